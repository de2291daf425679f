/* test_resident.c - which storage is in memory: weights that only hoisted steps read are dropped and read again. */
#include "runtime/session/session_state.h"
#include "tests/unit/session_fixture.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIDE = 192, ELEMENTS = SIDE * SIDE, RUNS = 12 };

/* @squares reads @w only in a hoisted step; @plain reads it in each run. */
static const char text[] =
    "param @w : f32[192,192] = file(\"w.bin\", 64, 147456)\n"
    "param @v : f32[192,192] = file(\"w.bin\", 147520, 147456)\n"
    "param @small : f32[2] = [1, 2]\n"
    "graph @squares(@x : f32[N,192]) {\nforward:\n  %t = mul @w, @w : f32[192,192]\n"
    "  %y = matmul @x, %t {trans_a=false, trans_b=false} : f32[N,192]\n  output \"y\" = %y\n}\n"
    "graph @plain(@x : f32[K]) {\nforward:\n  %s = reduce_sum @x {axes=[0], keepdims=false} : f32[]\n"
    "  %y = add @w, %s : f32[192,192]\n  output \"y\" = %y\n}\n"
    "graph @other(@x : f32[]) {\nforward:\n  %y = add @v, @x : f32[192,192]\n"
    "  output \"y\" = %y\n}\n";

static float weights[2 * ELEMENTS];

static void write_weights(scratch *t)
{
    static unsigned char file[64 + sizeof weights];
    for (int i = 0; i < 2 * ELEMENTS; i++) weights[i] = (float)(i * 7 % 11 - 5);
    memcpy(file + 64, weights, sizeof weights);
    scratch_write(t, "w.bin", file, sizeof file);
}

static void begin(scratch *t)
{
    write_weights(t);
    load(t, text);
    if (open_with(t, &(rt_session_options){.threads = 1, .weights_dir = t->folder}) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
}

static bool is_loaded(const char *name) { return session->shared->residence[test_storage_find(session, name)].loaded; }

/* Runs @squares on `rows` unit vectors: row i of the result is row i of the squares. */
static ampc_status run_squares(rt_session *s, int64_t rows, diag *d)
{
    static float units[ELEMENTS];
    for (int i = 0; i < SIDE; i++) units[i * SIDE + i] = 1;
    const rt_tensor x = {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {rows, SIDE}, .data = units};
    return rt_session_run(s, "squares", &x, 1, d);
}

static bool are_squares(rt_session *s, int64_t rows, const float *w)
{
    const float *y = rt_session_output(s, "y")->data;
    for (int i = 0; i < rows * SIDE; i++)
        if (y[i] != w[i] * w[i]) return false;
    return true;
}

static void expect_squares(scratch *t, int64_t rows, const float *w)
{
    if (run_squares(session, rows, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    assert_true(are_squares(session, rows, w));
}

static ampc_status run_plain(rt_session *s, int64_t n, diag *d)
{
    static float zeros[SIDE];
    const rt_tensor x = vector("x", IR_f32, n, zeros);
    return rt_session_run(s, "plain", &x, 1, d);
}

static void expect_plain(scratch *t, const float *w)
{
    if (run_plain(session, 1, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    assert_memory_equal(rt_session_output(session, "y")->data, w, ELEMENTS * sizeof *w);
}

/* ---- tests ------------------------------------------------------------------------------------ */

TEST_SESSION(weights_are_loaded_when_needed)
{
    begin(t);
    assert_false(is_loaded("w"));
    expect_squares(t, 3, weights);
    assert_false(is_loaded("w")); /* the hoisted square is what runs read */
    expect_squares(t, 5, weights);
    expect_plain(t, weights);
    assert_true(is_loaded("w"));
    expect_squares(t, 7, weights); /* its hoisted step must not drop what another plan reads */
    assert_true(is_loaded("w"));
    expect_plain(t, weights);
    assert_false(is_loaded("v")); /* no graph that ran reads it */
}

TEST_SESSION(planned_storage_is_what_runs_read)
{
    float x[SIDE] = {0};
    begin(t);
    const rt_tensor rows = {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {1, SIDE}, .data = x};
    const rt_tensor one = vector("x", IR_f32, 1, x);
    rt_memory squares, plain;
    assert_int_equal(rt_session_memory(session, "squares", &rows, 1, t->d, &squares), AMPC_OK);
    assert_int_equal(rt_session_memory(session, "plain", &one, 1, t->d, &plain), AMPC_OK);
    assert_int_equal(plain.storage - squares.storage, ELEMENTS * sizeof(float));
    rt_session *planning;
    rt_memory planned;
    assert_int_equal(rt_session_open(module, &(rt_session_options){.plan_only = true, .threads = 1}, t->d, &planning),
                     AMPC_OK);
    assert_int_equal(rt_session_memory(planning, "squares", &rows, 1, t->d, &planned), AMPC_OK);
    assert_int_equal(planned.storage, squares.storage);
    rt_session_close(planning);
}

TEST_SESSION(a_read_storage_stays)
{
    begin(t);
    expect_squares(t, 1, weights);
    const float *w = storage_floats(t, "w");
    assert_memory_equal(w, weights, ELEMENTS * sizeof *w);
    expect_squares(t, 2, weights);
    assert_memory_equal(w, weights, ELEMENTS * sizeof *w);
}

TEST_SESSION(a_written_storage_stays)
{
    static float other[ELEMENTS];
    begin(t);
    expect_squares(t, 1, weights);
    for (int i = 0; i < ELEMENTS; i++) other[i] = (float)(i % 5);
    assert_int_equal(rt_session_write(session, test_storage_find(session, "w"), other, t->d), AMPC_OK);
    expect_squares(t, 1, other);
    expect_squares(t, 4, other);
    expect_plain(t, other);
}

/* A file that has become shorter is an error of the run; with the file back, the session goes on. */
TEST_SESSION(a_truncated_file)
{
    begin(t);
    const char *path = scratch_path(t, "w.bin");
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(run_squares(session, 1, t->d), AMPC_IO);
    scratch_expect(t, "w.bin: error: cannot read");
    write_weights(t);
    expect_squares(t, 1, weights);
}

/* A session needs the file, not its name. */
TEST_SESSION(a_removed_file)
{
    begin(t);
    assert_int_equal(remove(scratch_path(t, "w.bin")), 0);
    expect_squares(t, 1, weights);
    expect_plain(t, weights);
}

/* With so many files that they cannot all stay open, the weights are read when the session is opened. */
TEST_SESSION(many_files)
{
    enum { FILES = RT_WEIGHT_FILES + 3 };
    char name[16], params[FILES * 64], sums[FILES * 64], whole[sizeof params + sizeof sums + 200];
    size_t p = 0, n = 0;
    write_weights(t);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "w%d.bin", i);
        scratch_write(t, name, weights + i, ELEMENTS * sizeof *weights);
        p += (size_t)snprintf(params + p, sizeof params - p, "param @w%d : f32[192,192] = file(\"%s\", 0, 147456)\n", i,
                              name);
        n += (size_t)snprintf(sums + n, sizeof sums - n,
                              "  %%y%d = add @w%d, @x : f32[192,192]\n  output \"y%d\" = %%y%d\n", i, i, i, i);
    }
    snprintf(whole, sizeof whole, "%sgraph @g(@x : f32[]) {\nforward:\n%s}\n", params, sums);
    load(t, whole);
    assert_int_equal(open_with(t, &(rt_session_options){.threads = 1, .weights_dir = t->folder}), AMPC_OK);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "w%d.bin", i);
        assert_int_equal(remove(scratch_path(t, name)), 0);
    }
    const rt_tensor x = {.name = "x", .dtype = IR_f32, .data = (float[]){0}};
    run_ok(t, "g", &x, 1);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "y%d", i);
        assert_memory_equal(rt_session_output(session, name)->data, weights + i, ELEMENTS * sizeof *weights);
    }
}

/* The module refers to another file once it has been written; the session keeps reading the first one. */
TEST_SESSION(a_module_that_is_written)
{
    begin(t);
    ir_storage_find(module, "w")->data = (ir_data){.kind = IR_DATA_SIDECAR};
    expect_squares(t, 1, weights);
    expect_plain(t, weights);
}

/* Returns the number of pages of all storage that are in memory. */
static int pages_in_memory(void)
{
    static unsigned char in_memory[1024];
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)session->shared->block & -page;
    const size_t bytes = (uintptr_t)session->shared->block + (uintptr_t)session->storage_bytes - first;
    int pages = 0;
    if (bytes / page + 1 > sizeof in_memory || mincore((void *)first, bytes, in_memory)) fail();
    for (size_t i = 0; i < (bytes + page - 1) / page; i++) pages += in_memory[i] & 1;
    return pages;
}

/* Tensors that share pages, in a block that is large enough for huge pages. Runs read
 * the sums and one weight, so what stays are the pages of that weight and at most those at the ends of the block. */
TEST_SESSION(small_weights_share_pages)
{
    enum { WEIGHTS = 400, N = 40, BYTES = N * N * 4, KEPT = 17 };
    static char whole[WEIGHTS * 250];
    static float file[WEIGHTS * N * N];
    size_t n = 0;
    scratch_write(t, "w.bin", file, sizeof file);
    for (int i = 0; i < WEIGHTS; i++)
        n += (size_t)snprintf(whole + n, sizeof whole - n, "param @w%d : f32[40,40] = file(\"w.bin\", %d, %d)\n", i,
                              i * BYTES, BYTES);
    n += (size_t)snprintf(whole + n, sizeof whole - n, "graph @g(@x : f32[]) {\nforward:\n");
    for (int i = 0; i < WEIGHTS; i++)
        n += (size_t)snprintf(whole + n, sizeof whole - n,
                              i == KEPT ? "  %%y%d = add @w%d, @x : f32[40,40]\n  output \"y%d\" = %%y%d\n"
                                        : "  %%t%d = reduce_sum @w%d {axes=[0,1], keepdims=false} : f32[]\n"
                                          "  %%y%d = add %%t%d, @x : f32[]\n  output \"y%d\" = %%y%d\n",
                              i, i, i, i, i, i);
    snprintf(whole + n, sizeof whole - n, "}\n");
    load(t, whole);
    assert_int_equal(open_with(t, &(rt_session_options){.threads = 1, .weights_dir = t->folder}), AMPC_OK);
    const rt_tensor x = {.name = "x", .dtype = IR_f32, .data = (float[]){0}};
    run_ok(t, "g", &x, 1);
    assert_in_range(pages_in_memory(), 1, 3 + BYTES / 4096 + 1);
    assert_true(is_loaded("w17"));
    assert_false(is_loaded("w16") || is_loaded("w18"));
}

/* Returns a number of bytes from /proc/self/status. */
static int64_t memory_now(const char *field)
{
    char line[200];
    long long kilobytes = -1;
    const size_t n = strlen(field);
    FILE *f = fopen("/proc/self/status", "r");
    while (f && kilobytes < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, field, n) == 0 && line[n] == ':') sscanf(line + n + 1, "%lld", &kilobytes);
    if (f) fclose(f);
    return (int64_t)kilobytes * 1024;
}

static bool reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    const bool done = f && fputs("5", f) >= 0;
    return f && fclose(f) == 0 && done;
}

/* A hoisted value that is computed from a large storage is computed while there are no packs, and the packs of large
 * weights are made first: at the peak there are all packs and the smallest weight. */
TEST_SESSION(peak_of_the_first_run)
{
    enum { ROWS = 512, TABLE = 8192, MIB = 1 << 20 };
    static float x[ROWS];
    const struct {
        const char *name;
        int columns, at;
    } weights_of[] = {{"small", 512, 16}, {"large", 4096, 17}, {"middle", 2048, 25}};
    char whole[2000];
    size_t n = 0;
    scratch_write(t, "w.bin", "", 0);
    assert_int_equal(truncate(scratch_path(t, "w.bin"), 30 * MIB), 0);
    n += (size_t)snprintf(whole, sizeof whole, "param @e : f32[%d,512] = file(\"w.bin\", 0, %d)\n", TABLE, 16 * MIB);
    for (int i = 0; i < 3; i++)
        n += (size_t)snprintf(whole + n, sizeof whole - n, "param @%s : f32[%d,%d] = file(\"w.bin\", %d, %d)\n",
                              weights_of[i].name, ROWS, weights_of[i].columns, weights_of[i].at * MIB,
                              ROWS * weights_of[i].columns * 4);
    n += (size_t)snprintf(whole + n, sizeof whole - n, "graph @g(@x : f32[N,%d]) {\nforward:\n", ROWS);
    for (int i = 0; i < 3; i++)
        n += (size_t)snprintf(whole + n, sizeof whole - n,
                              "  %%y%d = matmul @x, @%s {trans_a=false, trans_b=false} : f32[N,%d]\n"
                              "  output \"y%d\" = %%y%d\n",
                              i, weights_of[i].name, weights_of[i].columns, i, i);
    snprintf(whole + n, sizeof whole - n,
             "  %%s = reduce_sum @e {axes=[0], keepdims=false} : f32[512]\n"
             "  %%z = add @x, %%s : f32[N,512]\n  output \"z\" = %%z\n}\n");
    load(t, whole);
    assert_int_equal(open_with(t, &(rt_session_options){.threads = 1, .weights_dir = t->folder}), AMPC_OK);
    if (!reset_peak()) skip();
    const int64_t before = memory_now("VmRSS");
    const rt_tensor input = {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {1, ROWS}, .data = x};
    run_ok(t, "g", &input, 1);
    assert_in_range(memory_now("VmHWM") - before, 13 * MIB,
                    20 * MIB); /* packs: 13 MiB; code pages, arena: less than 3 */
}

/* Packed, and read by another hoisted step. */
TEST_SESSION(a_weight_with_two_hoisted_readers)
{
    static float x[SIDE];
    write_weights(t);
    load(t, "param @w : f32[192,192] = file(\"w.bin\", 64, 147456)\n"
            "graph @g(@x : f32[N,192]) {\nforward:\n  %s = reduce_sum @w {axes=[0], keepdims=false} : f32[192]\n"
            "  %y = matmul @x, @w {trans_a=false, trans_b=false} : f32[N,192]\n"
            "  %z = add %y, %s : f32[N,192]\n  output \"z\" = %z\n}\n");
    assert_int_equal(open_with(t, &(rt_session_options){.threads = 1, .weights_dir = t->folder}), AMPC_OK);
    const rt_tensor input = {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {1, SIDE}, .data = x};
    run_ok(t, "g", &input, 1);
    assert_false(is_loaded("w"));
    const float *z = rt_session_output(session, "z")->data;
    for (int i = 0; i < SIDE; i++) {
        float sum = 0;
        for (int j = 0; j < SIDE; j++) sum += weights[j * SIDE + i];
        assert_true(z[i] == sum);
    }
}

/* ---- threads ---------------------------------------------------------------------------------- */

typedef struct worker {
    rt_session *session;
    diag *d;
    bool squares;
    const char *failure;
} worker;

static void *work(void *user)
{
    worker *w = user;
    for (int i = 0; i < RUNS && !w->failure; i++) {
        const int64_t n = 1 + i % 6;
        if ((w->squares ? run_squares(w->session, n, w->d) : run_plain(w->session, n, w->d)) != AMPC_OK)
            w->failure = "a run failed";
        else if (w->squares
                     ? !are_squares(w->session, n, weights)
                     : memcmp(rt_session_output(w->session, "y")->data, weights, ELEMENTS * sizeof *weights) != 0)
            w->failure = "a wrong result";
    }
    return NULL;
}

TEST_SESSION(sessions_that_share_it)
{
    rt_session *other;
    begin(t);
    diag *d = diag_new(NULL, NULL);
    const rt_session_options o = {.threads = 1, .share = session};
    assert_int_equal(rt_session_open(module, &o, d, &other), AMPC_OK);
    worker workers[] = {{session, t->d, true, NULL}, {other, d, false, NULL}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        if (workers[i].failure) fail_msg("%s", workers[i].failure);
    assert_true(is_loaded("w"));
    rt_session_close(other);
    expect_squares(t, 9, weights); /* no other plan reads it now */
    assert_false(is_loaded("w"));
    diag_free(d);
}
