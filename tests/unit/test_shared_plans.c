/* test_shared_plans.c - sessions that share plans: each request is planned once, and runs of eight threads at the same
 * time have the bits of a session that shares nothing. */
#include "runtime/session/session_state.h"
#include "tests/unit/session_fixture.h"

#include <pthread.h>

enum { THREADS = 8, RUNS = 5, BATCH = 6, IMAGE = 3 * 6 * 6, TRIPS = 4, SIDE = 4, GRAPHS = 3, BYTES = 4096 };

/* Kernels that bind what runs change: convolutions with and without tails, in f32 and bf16, matmuls, a recurrent
 * network; a loop whose body has a kernel that does; a size that depends on data. */
static const char text[] =
    "param @k : f32[8,3,3,3] = zero\nparam @m : f32[8,16] = zero\nparam @b : f32[16] = zero\n"
    "param @r : f32[16,4] = zero\nparam @u : f32[4,4] = zero\nparam @w : f32[108,5] = zero\nconst @z : f32[] = 0\n"
    "graph @net(@x : f32[N,3,6,6]) {\nforward:\n"
    "  %c = conv @x, @k, _ {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} : f32[N,8,6,6]\n"
    "  %a = relu %c : f32[N,8,6,6]\n  %p = reduce_mean %a {axes=[2,3], keepdims=false} : f32[N,8]\n"
    "  %h = matmul %p, @m, @b : f32[N,16]\n  %s = reshape %h {shape=[N,1,16]} : f32[N,1,16]\n"
    "  %y, %e, %f, %g, %i = recurrent %s, @r, _, _, _, _, _ : f32[N,1,4], f32[1,4], f32[1,4], f32[N,1,4], f32[N,1,16]\n"
    "  %l = cast @x {to=bf16} : bf16[N,3,6,6]\n  %v = cast @k {to=bf16} : bf16[8,3,3,3]\n"
    "  %o = conv %l, %v, _ {strides=[2,2], pads=[1,1,1,1], dilations=[1,1]} : bf16[N,8,3,3]\n"
    "  output \"y\" = %y\n  output \"o\" = %o\n}\n"
    "graph @loop(@n : i64[], @s : f32[4,4]) {\nforward:\n"
    "  %y = loop @n, @s [x_x:x] (body: graph(@i : i64[], @go : bool[], @s : f32[4,4]) {\n"
    "  %t = matmul @s, @u : f32[4,4]\n  output \"go\" = @go\n  output \"t\" = %t\n"
    "}) : f32[4,4] !Loop \"L\"\n  output \"y\" = %y\n}\n"
    "graph @parts(@x : f32[N,3,6,6]) {\nforward:\n"
    "  %f = reshape @x {shape=[N,108]} : f32[N,108]\n  %q = reduce_sum %f {axes=[1], keepdims=false} : f32[N]\n"
    "  %c = greater %q, @z : bool[N]\n  %p, %n = nonzero %c : i64[N,1], i64[]\n"
    "  %t = trim %p, %n {size=[K]} : i64[K,1]\n  %i = reshape %t {shape=[K]} : i64[K]\n"
    "  %k = gather %f, %i : f32[K,108]\n  %y = matmul %k, @w : f32[K,5]\n  output \"y\" = %y\n}\n";
static const char *const graphs[GRAPHS] = {"net", "loop", "parts"};

typedef struct worker {
    pthread_t thread;
    rt_session *s;
    diag *d;
    float x[BATCH][IMAGE], side[SIDE][SIDE];
    char expected[GRAPHS][BYTES]; /* all outputs of a graph, one after another */
    const char *failure;          /* NULL: none */
} worker;

static worker workers[THREADS];
static pthread_barrier_t begin;

static float number(int i, int seed) { return (float)((i * 37 + seed * 101) % 211) / 100 - 1; }

/* Runs graph g and copies its outputs to `to`. */
static bool run_once(worker *w, rt_session *s, int g, char *to)
{
    int64_t trips = TRIPS;
    const rt_tensor image = {.name = "x", .dtype = IR_f32, .rank = 4, .dims = {BATCH, 3, 6, 6}, .data = w->x};
    const rt_tensor loop[] = {{.name = "n", .dtype = IR_i64, .data = &trips},
                              {.name = "s", .dtype = IR_f32, .rank = 2, .dims = {SIDE, SIDE}, .data = w->side}};
    const bool is_loop = g == 1;
    if (rt_session_run(s, graphs[g], is_loop ? loop : &image, is_loop ? 2 : 1, w->d) != AMPC_OK) return false;
    memset(to, 0, BYTES);
    for (int i = 0; i < rt_session_output_count(s); i++) {
        const rt_tensor *y = rt_session_output_at(s, i);
        size_t bytes = ir_dtype_size(y->dtype);
        for (int k = 0; k < y->rank; k++) bytes *= (size_t)y->dims[k];
        memcpy(to, y->data, bytes);
        to += bytes;
    }
    return true;
}

static void *work(void *user)
{
    worker *w = user;
    char is[BYTES];
    pthread_barrier_wait(&begin);
    for (int i = 0; i < RUNS * GRAPHS && !w->failure; i++) {
        const int g = (i + (int)(w - workers)) % GRAPHS;
        if (!run_once(w, w->s, g, is)) w->failure = diag_first_error(w->d);
        else if (memcmp(is, w->expected[g], BYTES) != 0) w->failure = graphs[g];
    }
    return NULL;
}

/* Runs the workers from `first` on at the same time. */
static void run_all(int first)
{
    pthread_barrier_init(&begin, NULL, (unsigned)(THREADS - first));
    for (int i = first; i < THREADS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = first; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failure) fail_msg("thread %d: %s", i, workers[i].failure);
    }
    pthread_barrier_destroy(&begin);
}

static rt_session *open_filled(scratch *t)
{
    rt_session *s;
    assert_int_equal(rt_session_open(module, &(rt_session_options){.threads = 1}, t->d, &s), AMPC_OK);
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor v;
        float values[108 * 5];
        rt_session_storage_at(s, i, &v, NULL);
        int n = v.rank ? 1 : 0;
        for (int k = 0; k < v.rank; k++) n *= (int)v.dims[k];
        for (int k = 0; k < n; k++) values[k] = number(k, i) / 4;
        if (n) assert_int_equal(rt_session_write(s, i, values, t->d), AMPC_OK);
    }
    return s;
}

/* Every worker has inputs of its own, and the results of a session that shares nothing. */
static void expect_results(scratch *t)
{
    rt_session *alone = open_filled(t);
    for (int i = 0; i < THREADS; i++) {
        worker *w = &workers[i];
        *w = (worker){.d = diag_new(NULL, NULL)};
        for (int k = 0; k < BATCH * IMAGE; k++) w->x[k / IMAGE][k % IMAGE] = number(k, i);
        for (int k = 0; k < SIDE * SIDE; k++) w->side[k / SIDE][k % SIDE] = number(k, i);
        for (int g = 0; g < GRAPHS; g++) assert_true(run_once(w, alone, g, w->expected[g]));
    }
    for (int g = 0; g < GRAPHS; g++) assert_memory_not_equal(workers[0].expected[g], workers[1].expected[g], BYTES);
    rt_session_close(alone);
}

/* The number of executions of the one plan of this graph's first part. */
static int count_executions(const rt_session *s, const char *graph)
{
    int executions = 0;
    for (const rt_shared_plan *e = s->shared->plans; e; e = e->next) {
        if (strcmp(e->plan->graph->name, graph) != 0 || e->plan->part > 0) continue;
        assert_int_equal(executions, 0);
        executions = e->executions;
    }
    return executions;
}

TEST_SESSION(eight_threads_run_one_plan)
{
    load(t, text);
    expect_results(t);
    for (int i = 0; i < THREADS; i++) {
        const rt_session_options share = {.threads = 1, .share = workers[0].s};
        if (i == 0) workers[0].s = open_filled(t);
        else assert_int_equal(rt_session_open(module, &share, t->d, &workers[i].s), AMPC_OK);
    }
    run_all(0);
    for (int g = 0; g < GRAPHS; g++) assert_int_equal(count_executions(workers[0].s, graphs[g]), THREADS);
    for (int i = 0; i < THREADS / 2; i++) rt_session_close(workers[i].s);
    run_all(THREADS / 2); /* whoever has made the plans may be gone */
    for (int i = THREADS / 2; i < THREADS; i++) rt_session_close(workers[i].s);
    for (int i = 0; i < THREADS; i++) diag_free(workers[i].d);
}

/* Other options lead to other plans. */
TEST_SESSION(options_are_part_of_the_request)
{
    load(t, text);
    expect_results(t);
    rt_session *s[4];
    s[0] = open_filled(t);
    const rt_session_options others[] = {{.threads = 1, .share = s[0], .no_fuse = true},
                                         {.threads = 1, .share = s[0], .no_pack = true},
                                         {.threads = 2, .share = s[0]}};
    for (int i = 0; i < 3; i++) assert_int_equal(rt_session_open(module, &others[i], t->d, &s[i + 1]), AMPC_OK);
    char is[BYTES];
    for (int i = 0; i < 4; i++) assert_true(run_once(&workers[i], s[i], 0, is));
    int plans = 0;
    for (const rt_shared_plan *e = s[0]->shared->plans; e; e = e->next, plans++) assert_int_equal(e->executions, 1);
    assert_int_equal(plans, 4);
    for (int i = 0; i < 4; i++) rt_session_close(s[i]);
    for (int i = 0; i < THREADS; i++) diag_free(workers[i].d);
}
