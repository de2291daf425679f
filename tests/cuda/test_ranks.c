/* test_ranks.c - several ranks, each a thread with a device of its own: the results of one rank that has all samples, in
 * any order of device work; one launch per step; and what happens when a call fails, or another rank ends or hangs. */
#include "ir/graph/ir.h"
#include "tests/cuda/double/double.h"
#include "tests/ranks_threads.h"
#include "tests/session.h"
#include "tests/test.h"

#include <math.h>
#include <stdatomic.h>

enum {
    ROWS = 8,
    WIDTH = 40,
    PARAMS = 2 * WIDTH * WIDTH + 2 * WIDTH,
    STEPS = 5,
    MAX_RANKS = 8,
    MODES = 5,
    LIMIT = 1 /* seconds */
};

static const long modes[MODES] = {DOUBLE_EAGER, DOUBLE_LAZY, 1, 2, 3};

/* Two layers, whose gradients are in two buckets; WIRE and TREE are replaced. */
static const char text[] =
    "ampc-ir 3\n"
    "param @w1 : f32[40,40] = zero\n"
    "param @b1 : f32[40] = zero\n"
    "param @w2 : f32[40,40] = zero\n"
    "param @b2 : f32[40] = zero\n"
    "state @lr : f32[] = 0.1\nstate @one : f32[] = 1\nstate @seen : f32[] = 0\n"
    "graph @g(@x : f32[n,40], @label : i64[n]) {\nforward:\n"
    "  %z1 = matmul @x, @w1, @b1 : f32[n,40]\n"
    "  %h = tanh %z1 : f32[n,40]\n"
    "  %y = matmul %h, @w2, @b2 : f32[n,40]\n"
    "  %loss, %lse, %p = softmax_cross_entropy %y, @label : f32[], f32[n], f32[n,40]\n"
    "  %mean = all_reduce %loss {tree=TREE} : f32[]\n"
    "  %share = rank_number {number=\"share\"} : f32[]\n"
    "  %all = all_reduce %share {by=\"sum\"} : f32[]\n"
    "  output \"loss\" = %mean\n"
    "backward:\n"
    "  %d.y = softmax_cross_entropy_grad @one, %y, %lse, @label : f32[n,40]\n"
    "  %d.w2 = matmul %h, %d.y {trans_a=true} : f32[40,40]\n"
    "  %d.b2 = reduce_sum %d.y {axes=[0], keepdims=false} : f32[40]\n"
    "  %g.w2, %g.b2 = all_reduce %d.w2, %d.b2 {tree=TREE, wire=WIRE} : f32[40,40], f32[40]\n"
    "  %d.h = matmul %d.y, @w2 {trans_b=true} : f32[n,40]\n"
    "  %t1 = mul %d.h, %h : f32[n,40]\n  %t2 = mul %t1, %h : f32[n,40]\n  %d.z1 = sub %d.h, %t2 : f32[n,40]\n"
    "  %d.w1 = matmul @x, %d.z1 {trans_a=true} : f32[40,40]\n"
    "  %d.b1 = reduce_sum %d.z1 {axes=[0], keepdims=false} : f32[40]\n"
    "  %g.w1, %g.b1 = all_reduce %d.w1, %d.b1 {tree=TREE, wire=WIRE} : f32[40,40], f32[40]\n"
    "  %u.w1, %u.b1, %u.w2, %u.b2, %bad = check_finite_and_unscale %g.w1, %g.b1, %g.w2, %g.b2, @one : f32[40,40], "
    "f32[40], "
    "f32[40,40], f32[40], bool[]\n"
    "update:\n"
    "  %n.w1 = sgd @w1, %u.w1, @lr, %bad : f32[40,40]\n"
    "  %n.b1 = sgd @b1, %u.b1, @lr, %bad : f32[40]\n"
    "  %n.w2 = sgd @w2, %u.w2, @lr, %bad : f32[40,40]\n"
    "  %n.b2 = sgd @b2, %u.b2, @lr, %bad : f32[40]\n"
    "  %n.seen = add @seen, %all : f32[]\n"
    "  store @w1, %n.w1\n  store @b1, %n.b1\n  store @w2, %n.w2\n  store @b2, %n.b2\n  store @seen, %n.seen\n}\n";

static ir_module *parse(const char *wire, const char *tree)
{
    char words[sizeof text + 64], *to = words;
    for (const char *at = text; *at;) {
        const char *word = strncmp(at, "WIRE", 4) == 0 ? wire : strncmp(at, "TREE", 4) == 0 ? tree : NULL;
        if (word) to = stpcpy(to, word), at += 4;
        else *to++ = *at++;
    }
    *to = 0;
    ir_module *m = NULL;
    diag *d = diag_new(NULL, NULL);
    if (ir_parse(words, strlen(words), "ranks.ir", d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(d));
    diag_free(d);
    return m;
}

/* A run of all ranks, and what each of them ends with. */
typedef struct training {
    const ir_module *module;
    const char *device;
    int steps;
    bool sync, ahead;   /* step by step; without waiting for a step */
    bool watched;       /* a rank that has ended is noticed */
    bool limited;       /* no wait is longer than LIMIT */
    long failing;       /* call of rank 0 that fails; 0: none */
    int breaks, leaves; /* step before which the links break, or rank 1 ends; 0: none */
    ampc_status status[MAX_RANKS];
    char error[MAX_RANKS][512];
    float params[MAX_RANKS][PARAMS], loss[MAX_RANKS];
    double seen[MAX_RANKS];
} training;

static training got, expected;

static const char *const names[] = {"w1", "b1", "w2", "b2"};
static const int sizes[] = {WIDTH * WIDTH, WIDTH, WIDTH *WIDTH, WIDTH};

static ampc_status write_params(rt_session *s, diag *d)
{
    float values[WIDTH * WIDTH];
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < sizes[i]; k++) values[k] = 0.3f * sinf((float)(k * (i + 3)));
        TRY(rt_session_write(s, test_storage_find(s, names[i]), values, d));
    }
    return AMPC_OK;
}

static ampc_status read_params(rt_session *s, diag *d, float *to)
{
    for (int i = 0; i < 4; to += sizes[i++]) {
        rt_tensor t;
        TRY(test_storage(s, names[i], d, &t));
        memcpy(to, t.data, (size_t)sizes[i] * sizeof *to);
    }
    return AMPC_OK;
}

static ampc_status step(rt_session *s, const training *t, const k_ranks *r, int i, diag *d)
{
    static _Thread_local float x[ROWS * WIDTH];
    static _Thread_local int64_t label[ROWS], run;
    int64_t first;
    const int64_t n = k_rank_part(ROWS, r->index, r->count, &first);
    for (int64_t k = 0; k < n; k++) {
        for (int c = 0; c < WIDTH; c++) x[k * WIDTH + c] = sinf((float)((first + k) * 7 + c * 3 + i));
        label[k] = ((first + k) * 5 + i) % WIDTH;
    }
    const rt_tensor in[] = {{.name = "x", .dtype = IR_f32, .rank = 2, .dims = {n, WIDTH}, .data = x},
                            {.name = "label", .dtype = IR_i64, .rank = 1, .dims = {n}, .data = label}};
    return t->ahead ? rt_session_submit(s, "g", in, 2, d, &run) : rt_session_run(s, "g", in, 2, d);
}

static ampc_status train(training *t, k_ranks *r, rt_session *s, diag *d)
{
    TRY(write_params(s, d));
    for (int i = 0; i < t->steps; i++) {
        if (t->breaks && i == t->breaks && r->index == 0) double_break();
        if (t->leaves && i == t->leaves && r->index == 1) return AMPC_OK;
        TRY(step(s, t, r, i, d));
    }
    TRY(read_params(s, d, t->params[r->index]));
    TRY(rt_session_get_number(s, "seen", d, &t->seen[r->index]));
    const rt_tensor *loss = rt_session_output(s, "loss");
    if (loss) memcpy(&t->loss[r->index], loss->data, sizeof(float));
    return AMPC_OK;
}

static atomic_int ended; /* 1 + a rank */

static ampc_status check(k_ranks *r, double waited)
{
    const int rank = atomic_load(&ended) - 1;
    const bool has_ended = rank >= 0 && rank != r->index && got.watched;
    if (!has_ended && (!got.limited || waited < LIMIT)) return AMPC_OK;
    if (has_ended) snprintf(r->error, sizeof r->error, "rank %d has ended", rank);
    else snprintf(r->error, sizeof r->error, "a rank has not answered for %d seconds", LIMIT);
    return AMPC_DEVICE;
}

static void run_rank(k_ranks *r, void *user)
{
    training *t = user;
    const rt_session_options o = {
        .device = t->device, .threads = 1, .no_tune = true, .no_fuse = true, .sync_launch = t->sync, .ranks = r};
    diag *d = diag_new(NULL, NULL);
    rt_session *s = NULL;
    r->check = check;
    if (r->index == 0) double_fail(t->failing);
    ampc_status status = rt_session_open(t->module, &o, d, &s);
    if (status == AMPC_OK) status = train(t, r, s, d);
    rt_session_close(s);
    if (status != AMPC_OK) atomic_store(&ended, 1 + r->index);
    t->status[r->index] = status;
    if (status != AMPC_OK) snprintf(t->error[r->index], sizeof t->error[0], "%s", diag_first_error(d));
    diag_free(d);
}

static void run_all(training *t, int count)
{
    double shares[MAX_RANKS] = {0};
    int64_t first;
    for (int i = 0; i < count; i++) shares[i] = (double)k_rank_part(ROWS, i, count, &first) / ROWS;
    ranks_threads *all = ranks_threads_new(count, shares);
    atomic_store(&ended, 0);
    ranks_threads_run(all, run_rank, t);
    ranks_threads_free(all);
}

static void run_well(training *t, int count)
{
    run_all(t, count);
    for (int i = 0; i < count; i++)
        if (t->status[i] != AMPC_OK) fail_msg("rank %d of %d: %s", i, count, t->error[i]);
}

static void expect_near(const training *a, const training *b, int rank, double tolerance, const char *what)
{
    for (int i = 0; i < PARAMS; i++)
        if (!(fabs((double)a->params[rank][i] - (double)b->params[0][i]) <= tolerance))
            fail_msg("%s: parameter %d of rank %d is %g, not %g", what, i, rank, (double)a->params[rank][i],
                     (double)b->params[0][i]);
    if (!(fabs((double)a->loss[rank] - (double)b->loss[0]) <= tolerance)) fail_msg("%s: another loss", what);
}

static void expect_nothing_left(const char *when)
{
    char left[256];
    if (double_live(left, sizeof left)) fail_msg("%s: left %s", when, left);
}

static void on_double(long mode)
{
    double_install();
    double_reset();
    double_mode(mode);
}

TEST(test_results)
{
    static const struct {
        const char *wire, *tree;
        double tolerance;
    } kinds[] = {{"f32", "false", 1e-6},
                 {"f16", "false", 1e-4},
                 {"bf16", "false", 1e-3},
                 {"f32", "true", 0},
                 {"f16", "true", 1e-4}};
    static const int counts[] = {2, 4, 3, 8};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int m = 0; m < MODES; m++) {
            const int count = counts[(k + (size_t)m) % 4];
            ir_module *module = parse(kinds[k].wire, kinds[k].tree);
            char what[64];
            snprintf(what, sizeof what, "wire=%s tree=%s, %d ranks, mode %ld", kinds[k].wire, kinds[k].tree, count,
                     modes[m]);
            on_double(modes[m]);
            got = (training){.module = module, .steps = STEPS, .device = "cuda", .ahead = m % 2};
            run_well(&got, count);
            expect_nothing_left(what);
            for (int i = 1; i < count; i++) assert_memory_equal(got.params[i], got.params[0], sizeof got.params[0]);
            assert_true(fabs(got.seen[0] - STEPS) < 1e-5);
            expected = (training){.module = module, .steps = STEPS, .device = "cpu"};
            run_well(&expected, 1);
            expect_near(&got, &expected, 0, kinds[k].tolerance + 1e-5, what);
            ir_module_free(module);
        }
}

/* The first run issues the steps, the second records them; from then on each rank launches one graph a step, and no kernel. */
TEST(test_launches)
{
    ir_module *module = parse("f16", "false");
    long graphs[2], kernels[2];
    for (int i = 0; i < 2; i++) {
        on_double(DOUBLE_LAZY);
        got = (training){.module = module, .steps = STEPS + 3 * i, .device = "cuda", .ahead = true};
        run_well(&got, 2);
        graphs[i] = double_count("cudaGraphLaunch");
        kernels[i] = double_count("cudaLaunchKernel");
    }
    assert_int_equal(graphs[0], 2 * (STEPS - 1));
    assert_int_equal(graphs[1], graphs[0] + 2 * 3);
    assert_int_equal(kernels[1], kernels[0]);
    ir_module_free(module);
}

/* Step by step, every step is complete before the next one. */
TEST(test_synchronous)
{
    ir_module *module = parse("f32", "false");
    on_double(3);
    got = (training){.module = module, .steps = STEPS, .device = "cuda", .sync = true};
    run_well(&got, 2);
    expected = (training){.module = module, .steps = STEPS, .device = "cpu"};
    run_well(&expected, 1);
    expect_near(&got, &expected, 0, 1e-5, "sync_launch");
    ir_module_free(module);
}

/* Whatever call of rank 0 fails, no rank hangs; those that do not fail have the right result. */
TEST(test_failing_calls)
{
    ir_module *module = parse("f16", "false");
    on_double(DOUBLE_EAGER);
    expected = (training){.module = module, .steps = STEPS, .device = "cuda"};
    run_well(&expected, 2);
    int failed = 0;
    for (long call = 1, more = 1; more; call += 1 + call / 8) {
        on_double(call % 2 ? DOUBLE_LAZY : call);
        got = (training){
            .module = module, .steps = STEPS, .device = "cuda", .watched = true, .limited = true, .failing = call};
        run_all(&got, 2);
        more = double_failed() != NULL;
        for (int i = 0; i < 2; i++) {
            if (got.status[i] == AMPC_OK && memcmp(got.params[i], expected.params[i], sizeof got.params[i]) != 0)
                fail_msg("call %ld, %s: rank %d has another result", call, double_failed(), i);
            if (got.status[i] != AMPC_OK && !got.error[i][0])
                fail_msg("call %ld, %s: no reason", call, double_failed());
            failed += got.status[i] != AMPC_OK;
        }
        expect_nothing_left(double_failed() ? double_failed() : "none failed");
    }
    assert_true(failed > 20);
    ir_module_free(module);
}

/* A rank that ends between two steps: the other is told by NCCL, or waits for as long as it was told. */
TEST(test_lost_ranks)
{
    ir_module *module = parse("f32", "false");
    for (int i = 0; i < 3; i++) {
        on_double(i);
        double_silent(i == 1);
        got = (training){.module = module,
                         .steps = STEPS,
                         .device = "cuda",
                         .limited = true,
                         .leaves = i < 2 ? 3 : 0,
                         .breaks = i == 2 ? 2 : 0};
        run_all(&got, 2);
        assert_int_equal(got.status[0], AMPC_DEVICE);
        assert_non_null(strstr(got.error[0], i < 2 ? "a rank has not answered for 1 seconds" : "NCCL: "));
        expect_nothing_left("lost");
    }
    ir_module_free(module);
}

extern const long nccl_facts_own[64], nccl_facts_theirs[64];

TEST(test_declarations)
{
#ifdef NCCL_HEADER
    for (int i = 0; i < 64; i++) assert_int_equal(nccl_facts_own[i], nccl_facts_theirs[i]);
#else
    printf("[  SKIPPED ] needs the header of NCCL\n");
#endif
}

/* None begins unless all can: one of the GPU of another, without NCCL, or without CUDA. */
TEST(test_refusals)
{
    static const char *const errors[] = {
        "4 ranks have 1 GPU: each needs one of its own, but ranks 0 and 1 have the same", "CUDA",
        "several ranks on GPUs need NCCL 2.18 or later: ", "NCCL 2.17 is too old: 2.18 or later is required"};
    ir_module *module = parse("f32", "false");
    for (int i = 0; i < 4; i++) {
        on_double(DOUBLE_LAZY);
        double_one_device(i == 0);
        if (i >= 2) double_nccl(i == 2 ? 0 : 21708);
        got = (training){.module = module, .steps = STEPS, .device = "cuda", .failing = i == 1};
        run_all(&got, 4);
        for (int rank = 0; rank < 4; rank++) {
            const char *error = i == 1 && rank ? "rank 0 cannot use NCCL" : errors[i];
            assert_int_equal(got.status[rank], AMPC_DEVICE);
            if (!strstr(got.error[rank], error)) fail_msg("rank %d: %s", rank, got.error[rank]);
        }
        expect_nothing_left("refused");
    }
    ir_module_free(module);
}

enum { MANY = 5003, FEW = 7 };

/* Results of one reduction, by rank. */
typedef struct reduction {
    const ir_module *module;
    const char *device;
    float results[MAX_RANKS][MANY + FEW];
    ampc_status status[MAX_RANKS];
} reduction;

static void reduce_rank(k_ranks *r, void *user)
{
    reduction *u = user;
    static _Thread_local float x[MANY + FEW];
    const rt_session_options o = {.device = u->device, .threads = 1, .ranks = r};
    diag *d = diag_new(NULL, NULL);
    rt_session *s = NULL;
    for (int i = 0; i < MANY + FEW; i++) x[i] = sinf((float)(i * (r->index + 3))) * (float)(1 + i % 50);
    const rt_tensor in[] = {{.name = "x", .dtype = IR_f32, .rank = 1, .dims = {MANY}, .data = x},
                            {.name = "y", .dtype = IR_f32, .rank = 1, .dims = {FEW}, .data = x + MANY}};
    ampc_status status = rt_session_open(u->module, &o, d, &s);
    if (status == AMPC_OK) status = rt_session_run(s, "g", in, 2, d);
    if (status == AMPC_OK) {
        memcpy(u->results[r->index], rt_session_output(s, "a")->data, MANY * sizeof(float));
        memcpy(u->results[r->index] + MANY, rt_session_output(s, "b")->data, FEW * sizeof(float));
    }
    rt_session_close(s);
    u->status[r->index] = status;
    diag_free(d);
}

/* In the order of a tree, and for the largest value, the bits are those of the CPU. */
TEST(test_bits)
{
    static const char *const attributes[] = {"tree=true", "tree=true, wire=f16", "by=\"sum\", tree=true, wire=bf16",
                                             "by=\"max\", wire=f16"};
    static const double shares[MAX_RANKS] = {0.25, 0.3, 0.05, 0.1, 0.02, 0.13, 0.1, 0.05};
    static reduction on_cpu, on_cuda;
    for (int k = 0; k < 4; k++)
        for (int count = 2; count <= MAX_RANKS; count += 1 + k % 2) {
            char words[512];
            ir_module *m = NULL;
            diag *d = diag_new(NULL, NULL);
            snprintf(words, sizeof words,
                     "ampc-ir 3\ngraph @g(@x : f32[5003], @y : f32[7]) {\nforward:\n"
                     "  %%a, %%b = all_reduce @x, @y {%s} : f32[5003], f32[7]\n  output \"a\" = %%a\n  output \"b\" = "
                     "%%b\n}\n",
                     attributes[k]);
            if (ir_parse(words, strlen(words), "bits.ir", d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(d));
            on_double(count);
            on_cpu = (reduction){.module = m, .device = "cpu"};
            on_cuda = (reduction){.module = m, .device = "cuda"};
            for (int i = 0; i < 2; i++) {
                ranks_threads *all = ranks_threads_new(count, shares);
                ranks_threads_run(all, reduce_rank, i ? &on_cuda : &on_cpu);
                ranks_threads_free(all);
            }
            for (int i = 0; i < count; i++) {
                assert_int_equal(on_cpu.status[i], AMPC_OK);
                assert_int_equal(on_cuda.status[i], AMPC_OK);
                if (memcmp(on_cpu.results[0], on_cuda.results[i], sizeof on_cpu.results[0]) != 0)
                    fail_msg("%s: rank %d of %d has other bits", attributes[k], i, count);
            }
            ir_module_free(m);
            diag_free(d);
        }
}
