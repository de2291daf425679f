/* test_profile.c - timing of a session on the double: repeated runs stay on the device, yield the same bits as ordinary runs, and
 * report faults; launch times add up to the time of the run; the output of `ampc-run bench`, and the names that profilers see. The
 * double's device spends one millisecond on each operation. */
#include "runtime/plan/plan.h"
#include "tests/cuda/trained.h"
#include "tests/messages.h"

#include <jansson.h>
#include <math.h>

enum { MODES = 5, RUNS = 10, LONG = 100 /* more than the number of events that are kept */ };

#define RUN_DOUBLE AMPC_BUILD_DIR "/tests/cuda/ampc-run-double"
#define NVTX_LOG AMPC_BUILD_DIR "/tests/cuda/libnvtx_log.so"
#define BENCH RUN_DOUBLE " bench " MLP " --loss=ce --optimizer=adamw --batch=4 --threads=1 --device=cuda --no-tune"

static const long modes[MODES] = {DOUBLE_EAGER, DOUBLE_LAZY, 1, 2, 3};

static rt_tensor inputs[2];

static ampc_status run(rt_session *s, diag *d) { return rt_session_run(s, "train_step", inputs, 2, d); }

static rt_session *open_on(scratch *t, long mode)
{
    rt_session *s = NULL;
    begin(mode);
    make_inputs(inputs);
    assert_ok(t, rt_session_open(module, &on_cuda, t->d, &s));
    return s;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Sum over all storage as numbers, which suffices to tell one training from another. */
static double digest(scratch *t, rt_session *s)
{
    double sum = 0;
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor v;
        size_t n = 1;
        assert_ok(t, rt_session_read(s, i, t->d, &v));
        for (int k = 0; k < v.rank; k++) n *= (size_t)v.dims[k];
        for (size_t k = 0; k < n; k++)
            sum += (double)(i + 1) * ir_load_f64(v.dtype, (const char *)v.data + k * ir_dtype_size(v.dtype));
    }
    return sum;
}

static double digest_of_runs(scratch *t, int n)
{
    rt_session *s = open_on(t, DOUBLE_EAGER);
    for (int i = 0; i < n; i++) assert_ok(t, run(s, t->d));
    double sum = digest(t, s);
    rt_session_close(s);
    return sum;
}

TEST_SCRATCH(repetitions_are_runs)
{
    enum { FIRST = 2, WARMUP = 3 };
    const double expected = digest_of_runs(t, FIRST + WARMUP + RUNS + 1);
    assert_true(expected != digest_of_runs(t, FIRST + WARMUP + RUNS));
    for (int i = 0; i < MODES; i++) {
        double ms[RUNS];
        rt_session *s = open_on(t, modes[i]);
        for (int k = 0; k < FIRST; k++) assert_ok(t, run(s, t->d));
        labels[0] = 77; /* the caller's inputs are not read again */
        assert_ok(t, rt_session_time(s, WARMUP, RUNS, t->d, ms));
        labels[0] = points[0][0] > 0;
        const char *loss = ir_output_name(
            ir_output_by_role(ir_graph_by_role(module, IR_GRAPH_train_step), IR_OUTPUT_loss));
        assert_true(isfinite(*(const float *)rt_session_output(s, loss)->data));
        assert_ok(t, run(s, t->d)); /* a later run is not affected */
        if (digest(t, s) != expected) fail_msg("mode %ld leaves other parameters", modes[i]);
        rt_session_close(s);
        expect_nothing_left("closed");
    }
}

/* Counts calls of the CUDA runtime that copy inputs, wait or launch directly. */
static void expect_calls(long runs, long waits)
{
    static const char *const none[] = {"cudaMemcpyAsync H2D", "cudaLaunchKernel",      "cudaMalloc",
                                       "cudaMallocHost",      "cudaDeviceSynchronize", "cublasLtMatmul"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (double_count(none[i])) fail_msg("%ld calls of %s", double_count(none[i]), none[i]);
    assert_int_equal(double_count("cudaGraphLaunch"), runs);
    assert_int_equal(double_count("cudaEventSynchronize"), waits);
    assert_int_equal(double_count("cudaStreamSynchronize"), 1);
}

TEST_SCRATCH(the_host_stays_away)
{
    double ms[LONG];
    rt_session *s = open_on(t, DOUBLE_LAZY);
    assert_true(rt_session_has_clock(s));
    for (int i = 0; i < 3; i++) assert_ok(t, run(s, t->d));
    double_mark();
    assert_ok(t, rt_session_time(s, 3, RUNS, t->d, ms));
    assert_int_equal(double_count("cudaEventRecordWithFlags"), RUNS + 1);
    expect_calls(RUNS + 3, RUNS);                               /* times are read after all runs are enqueued */
    for (int i = 0; i < RUNS; i++) assert_true(ms[i] == ms[0]); /* because all runs have the same operations */
    assert_true(ms[0] > 10);
    double_mark();
    assert_ok(t, rt_session_time(s, 0, LONG, t->d, ms));
    assert_int_equal(double_count("cudaEventRecordWithFlags"), LONG + 1);
    assert_true(double_count("cudaEventCreateWithFlags") < LONG);
    expect_calls(LONG, LONG);
    for (int i = 0; i < LONG; i++) assert_true(ms[i] == ms[0]);
    rt_session_close(s);
    expect_nothing_left("closed");
}

/* Writes the old values again, which invalidates hoisted values that depend on them. */
static void touch_storage(scratch *t, rt_session *s)
{
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor v;
        assert_ok(t, rt_session_read(s, i, t->d, &v));
        assert_ok(t, rt_session_write(s, i, v.data, t->d));
    }
}

/* The first run would be walked, because its slot has no captured graph and low copies of parameters are outdated. Updating them is
 * not part of the timed run. */
TEST_SCRATCH(the_first_time_is_like_the_others)
{
    double ms[3];
    rt_session *s = open_on(t, DOUBLE_EAGER);
    assert_ok(t, run(s, t->d));
    touch_storage(t, s);
    double_mark();
    assert_ok(t, rt_session_time(s, 0, 3, t->d, ms));
    assert_int_equal(double_count("cudaGraphInstantiateWithParams"), 1);
    assert_true(double_count("cudaLaunchKernel") > 0); /* for hoisted values */
    assert_true(ms[0] == ms[1] && ms[1] == ms[2]);
    rt_session_close(s);
}

/* ---- launches -------------------------------------------------------------------------------- */

typedef struct profile {
    int launches, next, largest;
    double sum;
} profile;

static void add_launch(void *user, const rt_launch *launch)
{
    profile *p = user;
    assert_int_equal(launch->step, p->next);
    assert_true(launch->start_ms == p->sum && launch->ms >= 1);
    assert_int_equal(launch->node == NULL, launch->steps == 0);
    p->launches += launch->steps > 0;
    p->next += launch->steps;
    p->sum += launch->ms;
    if (launch->steps > p->largest) p->largest = launch->steps;
}

/* Counts the steps in the plan's text: all, and those marked by a star, whose results are hoisted. */
static void count_steps(scratch *t, rt_session *s, int *all, int *kept)
{
    const rt_plan *plan;
    *all = *kept = 0;
    assert_ok(t, rt_session_plan(s, "train_step", inputs, 2, NULL, t->d, &plan));
    char *text = rt_plan_print(plan);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        int step;
        char star;
        if (sscanf(line, "%4d%c", &step, &star) != 2 || step != *all) continue;
        ++*all;
        *kept += star == '*';
    }
    free(text);
    assert_true(*all > 10);
}

/* The launch times add up to that of the run, and each step is in one of the launches. */
TEST_SCRATCH(launches_add_up)
{
    enum { PROFILED = 3 };
    const double expected = digest_of_runs(t, 1 + 1 + PROFILED);
    for (int i = 0; i < MODES; i++) {
        int steps, kept;
        double ms;
        rt_session *s = open_on(t, modes[i]);
        assert_ok(t, run(s, t->d));
        assert_ok(t, rt_session_time(s, 0, 1, t->d, &ms));
        count_steps(t, s, &steps, &kept);
        profile p = {.next = kept};
        double_mark();
        assert_ok(t, rt_session_profile(s, PROFILED, t->d, add_launch, &p));
        assert_int_equal(double_count("cudaGraphLaunch"), PROFILED);
        assert_int_equal(double_count("cudaGraphInstantiateWithParams"), 1);
        assert_int_equal(p.next, steps);
        assert_true(p.largest > 1 && p.launches < steps - kept);
        if (p.sum != ms) fail_msg("mode %ld: launches of %g ms in a run of %g ms", modes[i], p.sum, ms);
        if (digest(t, s) != expected) fail_msg("mode %ld yields a different result", modes[i]);
        rt_session_close(s);
        expect_nothing_left("closed");
    }
}

/* ---- failures ----------------------------------------------------------------------------------- */

/* Each run adds a row of the table to a sum and advances to the next row; after four runs no row is left. */
static const char indexing[] =
    "ampc-ir 3\nstate @at : i64[1] = [0]\nstate @sum : f32[1] = [0]\nconst @table : f32[4] = [1, 2, 4, 8]\n"
    "const @one : i64[1] = [1]\ngraph @g(@x : f32[1]) {\nforward:\n"
    "  %row = gather @table, @at {axis=0} : f32[1] !Gather \"lookup\"\n  %y = mul %row, @x : f32[1]\n"
    "  output \"y\" = %y\nupdate:\n  %next = add @at, @one : i64[1]\n  %more = add @sum, %y : f32[1]\n"
    "  store @at, %next\n  store @sum, %more\n}\n";

static void expect_sum(scratch *t, rt_session *s, float expected)
{
    rt_tensor sum;
    assert_ok(t, test_storage(s, "sum", t->d, &sum));
    assert_true(*(const float *)sum.data == expected);
}

static void expect_y(rt_session *s, float expected)
{
    const rt_tensor *y = rt_session_output(s, "y");
    assert_non_null(y);
    assert_true(*(const float *)y->data == expected);
}

static void no_launch(void *user, const rt_launch *launch)
{
    (void)user;
    fail_msg("a launch of step %d", launch->step);
}

/* The fifth run faults; neither it nor the runs after it change anything. */
TEST_SCRATCH(faults_are_reported)
{
    ir_module *m = NULL;
    float x = 10;
    const rt_tensor in = {.name = "x", .dtype = IR_f32, .rank = 1, .dims = {1}, .data = &x};
    assert_ok(t, ir_parse(indexing, strlen(indexing), "indexing.ir", t->d, &m));
    for (int i = 0; i < MODES; i++) {
        rt_session *s;
        double ms[6];
        begin(modes[i]);
        assert_ok(t, rt_session_open(m, &on_cuda, t->d, &s));
        assert_ok(t, rt_session_run(s, "g", &in, 1, t->d));
        expect_y(s, 10);
        assert_ok(t, rt_session_time(s, 0, 1, t->d, ms));
        expect_y(s, 20);
        expect_sum(t, s, 30);
        diag *d = diag_new(NULL, NULL);
        assert_int_equal(rt_session_time(s, 1, 6, d, ms), AMPC_REJECTED);
        if (!strstr(diag_first_error(d), "lookup")) fail_msg("%s", diag_first_error(d));
        diag_clear(d);
        expect_sum(t, s, 150);
        assert_int_equal(rt_session_profile(s, 2, d, no_launch, NULL), AMPC_REJECTED);
        if (!strstr(diag_first_error(d), "lookup")) fail_msg("%s", diag_first_error(d));
        diag_free(d);
        expect_sum(t, s, 150);
        assert_int_equal(rt_session_output_count(s), 0);
        assert_ok(t, rt_session_write(s, test_storage_find(s, "at"), &(int64_t){0}, t->d));
        assert_ok(t, rt_session_time(s, 0, 1, t->d, ms)); /* the fault has been cleared */
        expect_sum(t, s, 160);
        rt_session_close(s);
        expect_nothing_left("closed");
    }
    ir_module_free(m);
}

typedef struct outcome {
    ampc_status status;
    long calls; /* before the first repetition; test_session.c makes them fail */
    int launches;
    double ms;
} outcome;

static void count_launch(void *user, const rt_launch *launch)
{
    (void)launch;
    ++*(int *)user;
}

static outcome all_of_it(const ir_module *m, diag *d)
{
    outcome o = {.launches = 0};
    rt_session *s = NULL;
    float x = 10;
    const rt_tensor in = {.name = "x", .dtype = IR_f32, .rank = 1, .dims = {1}, .data = &x};
    o.status = rt_session_open(m, &on_cuda, d, &s);
    if (!o.status) o.status = rt_session_run(s, "g", &in, 1, d);
    o.calls = double_count("*");
    if (!o.status) o.status = rt_session_time(s, 0, 1, d, &o.ms);
    if (!o.status) o.status = rt_session_profile(s, 2, d, count_launch, &o.launches);
    rt_session_close(s);
    return o;
}

TEST_SCRATCH(every_call_may_fail)
{
    int reported = 0;
    ir_module *m = NULL;
    assert_ok(t, ir_parse(indexing, strlen(indexing), "indexing.ir", t->d, &m));
    begin(DOUBLE_EAGER);
    const outcome expected = all_of_it(m, t->d);
    const long calls = double_count("*");
    if (expected.status) fail_msg("%s", diag_first_error(t->d));
    for (long n = expected.calls + 1; n <= calls; n++) {
        diag *d = diag_new(NULL, NULL);
        begin(DOUBLE_EAGER);
        double_fail(n);
        const outcome o = all_of_it(m, d);
        if (!double_failed()) fail_msg("call %ld of %ld was not made", n, calls);
        if (!o.status && (o.launches != expected.launches || o.ms != expected.ms))
            fail_msg("call %ld, %s: wrong times", n, double_failed());
        if (o.status && message_complaint(d)) fail_msg("call %ld, %s: %s", n, double_failed(), message_complaint(d));
        expect_nothing_left(double_failed());
        reported += o.status != AMPC_OK;
        diag_free(d);
    }
    assert_true(reported > (calls - expected.calls) / 2);
    ir_module_free(m);
}

TEST_SCRATCH(used_memory_is_said)
{
    rt_memory before, after;
    rt_session *s = open_on(t, DOUBLE_EAGER);
    assert_ok(t, rt_session_memory(s, "train_step", inputs, 2, t->d, &before));
    assert_ok(t, run(s, t->d));
    assert_ok(t, rt_session_memory(s, "train_step", inputs, 2, t->d, &after));
    assert_true(before.used >= before.storage && after.used >= before.used + after.arena);
    rt_session_close(s);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Runs a shell command that must succeed; returns its output, to be freed. */
static char *output_of(const char *command)
{
    char *text = NULL;
    size_t size;
    FILE *pipe = popen(command, "r"), *out = open_memstream(&text, &size);
    assert_true(pipe && out);
    for (int c; (c = fgetc(pipe)) != EOF;) fputc(c, out);
    fclose(out);
    if (pclose(pipe)) fail_msg("%s: %s", command, text);
    return text;
}

static bool starts(const char *line, const char *with) { return strncmp(line, with, strlen(with)) == 0; }

/* Checks the calls between the first and the last timing event. */
TEST_SCRATCH(bench_replays)
{
    char *text = output_of("AMPC_DOUBLE_TRACE=/dev/stderr " BENCH " --warmup=3 --iterations=20 2>&1 >/dev/null");
    int marks = 0, launches = 0, copies = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (starts(line, "cudaEventRecordWithFlags")) marks++;
        copies += marks == 21 && starts(line, "cudaMemcpyAsync H2D"); /* including input copies */
        if (marks == 0 || marks == 21) continue;
        launches += starts(line, "cudaGraphLaunch");
        if (!starts(line, "cudaEventRecordWithFlags") && !starts(line, "cudaEventCreateWithFlags") &&
            !starts(line, "cudaStreamIsCapturing") && !starts(line, "cudaGraphLaunch"))
            fail_msg("between times: %s", line);
    }
    assert_int_equal(marks, 21);
    assert_int_equal(launches, 20);
    assert_int_equal(copies, 2 * 23);
    free(text);
}

static double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number '%s'", key);
    return json_number_value(value);
}

/* Checks the events of a trace; returns their total time in milliseconds and the number of steps. */
static double trace_ms(const char *path, int *steps)
{
    json_t *trace = json_load_file(path, 0, NULL), *event;
    double ms = 0;
    int next = -1;
    size_t i;
    assert_non_null(trace);
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const json_t *args = json_object_get(event, "args");
        if (strcmp(json_string_value(json_object_get(event, "ph")), "M") == 0) continue;
        const int step = (int)real_of(args, "step");
        if (next >= 0) assert_int_equal(step, next);
        assert_true(fabs(real_of(event, "ts") - 1e3 * ms) < 1e-3);
        next = step + (int)real_of(args, "steps");
        ms += real_of(event, "dur") * 1e-3;
        assert_true(json_is_string(json_object_get(args, "onnx")) && json_is_string(json_object_get(args, "ir")));
    }
    json_decref(trace);
    *steps = next;
    return ms;
}

TEST_SCRATCH(bench_prints_times_of_the_device)
{
    char command[1024];
    const char *path = scratch_path(t, "trace.json");
    int steps;
    snprintf(command, sizeof command, BENCH " --iterations=5 --json --trace=%s", path);
    char *text = output_of(command);
    json_t *line = json_loads(text, 0, NULL);
    assert_non_null(line);
    assert_string_equal(json_string_value(json_object_get(line, "clock")), "device");
    assert_string_equal(json_string_value(json_object_get(line, "device")), "cuda");
    const double median_ms = real_of(line, "median_ms");
    assert_true(real_of(line, "min_ms") == median_ms && real_of(line, "p99_ms") == median_ms); /* equal runs */
    assert_true(fabs(real_of(line, "samples_s") - 4e3 / median_ms) < 1e-3 * 4e3 / median_ms);
    assert_true(real_of(line, "with_input_median_ms") > 0);
    assert_true(real_of(line, "with_input_p90_ms") >= real_of(line, "with_input_median_ms"));
    assert_true(real_of(line, "device_used_bytes") >= real_of(line, "planned_bytes"));
    const double ms = trace_ms(path, &steps);
    if (ms != median_ms) fail_msg("launches of %g ms in a step of %g ms", ms, median_ms);
    assert_true(steps > 10);
    json_decref(line);
    free(text);
}

/* While steps are walked or captured, each launch is in a range named after its node; replays have no ranges. */
TEST_SCRATCH(profilers_see_names)
{
    static const char *const names[] = {"fc1", "fc2", "bn", "relu", "softmax_cross_entropy_grad", "adamw"};
    char open[64] = "";
    bool seen[sizeof names / sizeof *names] = {false};
    int ranges = 0, launches = 0, last = 0, captured = 0, number = 0;
    char *text = output_of("NVTX_INJECTION64_PATH=" NVTX_LOG
                           " AMPC_NVTX_LOG=/dev/stderr AMPC_DOUBLE_TRACE=/dev/stderr " BENCH
                           " --iterations=5 2>&1 >/dev/null");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), number++) {
        if (starts(line, "cudaStreamEndCapture")) captured = number;
        launches += *open && (starts(line, "cudaLaunchKernel") || starts(line, "cublasLtMatmul "));
        if (!starts(line, "range ")) continue;
        last = number;
        if (strcmp(line, "range end") == 0) {
            if (!*open) fail_msg("a range ends that did not begin");
            if (!launches) fail_msg("nothing is launched in the range of %s", open);
            *open = '\0';
            continue;
        }
        if (*open) fail_msg("%s within the range of %s", line, open);
        snprintf(open, sizeof open, "%s", line + strlen("range "));
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) seen[i] = seen[i] || strcmp(open, names[i]) == 0;
        launches = 0;
        ranges++;
    }
    assert_int_equal(*open, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!seen[i]) fail_msg("no range of %s", names[i]);
    assert_true(ranges > 40 && last < captured);
    free(text);
}

TEST_GROUP(group_setup, group_teardown)
