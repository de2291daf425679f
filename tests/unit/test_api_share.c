/* test_api_share.c - sessions that share one copy of the weights: memory, results from many threads, and what is
 * refused while weights are shared. */
#include "runtime/api/api.h"
#include "runtime/session/session_state.h"
#include "tests/session.h"
#include "tests/unit/api_calls.h"
#include "tests/unit/model_writer.h"

#include <pthread.h>
#include <unistd.h>

enum { THREADS = 8, RUNS = 6, BATCH = 4, WIDTH = 64 * 8 * 8, FLAT = 64 * 6 * 6, HIDDEN = 2048, OUT = 16 };
/* 18 MiB in the first matrix. Plans keep a copy of the bias of the convolution in low precision, and packs of weights. */
static const size_t weight_bytes = (size_t)FLAT * HIDDEN * sizeof(float);

/* x [N,64,8,8] -> Conv -> Relu -> Flatten [N,FLAT] -> MatMul -> MatMul -> y [N,OUT] */
static ampc_status import_wide(ampc_context *c, ampc_module **out)
{
    model m = model_new(17);
    const size_t n = (size_t)FLAT * HIDDEN;
    float *weights = malloc(weight_bytes);
    assert_non_null(weights);
    for (size_t i = 0; i < n; i++) weights[i] = (float)((i * 2654435761u >> 7) % 2001) / 20000 - 0.05f;
    model_input(&m, "x", 1, "?N,64,8,8");
    model_tensor(&m, tensor_new("k", 1, "64,64,3,3", weights, (size_t)64 * 64 * 3 * 3 * sizeof(float)));
    model_tensor(&m, tensor_new("w", 1, "2304,2048", weights, weight_bytes));
    model_tensor(&m, tensor_new("v", 1, "2048,16", weights, (size_t)HIDDEN * OUT * sizeof(float)));
    model_tensor(&m, tensor_new("b", 1, "64", weights, 64 * sizeof(float)));
    model_node(&m, "Conv", "x,k,b", "c");
    model_node(&m, "Relu", "c", "r");
    model_node(&m, "Flatten", "r", "f");
    model_node(&m, "MatMul", "f,w", "h");
    model_node(&m, "MatMul", "h,v", "y");
    model_output(&m, "y", 1, "?N,16");
    wire file = model_finish(&m);
    const ampc_import_options o = {.struct_size = sizeof o, .bytes = file.bytes, .n_bytes = file.size};
    ampc_status status = ampc_module_import_with(c, &o, out);
    wire_free(&file);
    free(weights);
    return status;
}

/* 0 with a sanitizer, which keeps freed memory. */
static size_t resident_bytes(void)
{
#ifdef AMPC_SANITIZED
    return 0;
#endif
    unsigned long size, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%lu %lu", &size, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* One thread with a context and a session of its own. */
typedef struct worker {
    pthread_t thread;
    ampc_context *c;
    ampc_session *s;
    float x[BATCH][WIDTH], expected[BATCH][OUT];
    const char *failure; /* NULL: none */
} worker;

static void fill(worker *w, int seed)
{
    for (int i = 0; i < BATCH * WIDTH; i++) w->x[i / WIDTH][i % WIDTH] = (float)((i * 37 + seed * 11) % 101) / 50 - 1;
}

static bool run_once(worker *w, float y[BATCH][OUT])
{
    ampc_tensor *x, *out;
    const int64_t dims[] = {BATCH, 64, 8, 8};
    if (ampc_tensor_create(w->c, "x", AMPC_F32, 4, dims, w->x, &x) != AMPC_OK) return false;
    bool good = ampc_session_run(w->s, "infer", &x, 1) == AMPC_OK;
    ampc_tensor_free(x);
    if (!good || ampc_session_get(w->s, "output/y", &out) != AMPC_OK) return false;
    good = ampc_tensor_bytes(out) == sizeof(float[BATCH][OUT]);
    if (good) memcpy(y, ampc_tensor_data(out), sizeof(float[BATCH][OUT]));
    ampc_tensor_free(out);
    return good;
}

static void *work(void *user)
{
    worker *w = user;
    float y[BATCH][OUT];
    for (int run = 0; run < RUNS && !w->failure; run++)
        if (!run_once(w, y)) w->failure = ampc_context_message(w->c);
        else if (memcmp(y, w->expected, sizeof y) != 0) w->failure = "another result";
    return NULL;
}

static void start_all(worker *workers)
{
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failure) fail_msg("thread %d: %s", i, workers[i].failure);
    }
}

/* Activations and workspace of a run. */
static size_t arena_bytes(worker *w)
{
    rt_memory memory;
    const rt_tensor x = {.name = "x", .dtype = IR_f32, .rank = 4, .dims = {BATCH, 64, 8, 8}};
    assert_int_equal(rt_session_memory(w->s->rt, "infer", &x, 1, w->c->d, &memory), AMPC_OK);
    return (size_t)memory.arena;
}

/* Eight threads together need their activations, but no copy of the weights, and compute what one thread does. */
TEST(test_eight_threads)
{
    worker *workers = calloc(THREADS, sizeof *workers), first = {0};
    ampc_module *m;
    const ampc_session_options one = {.struct_size = sizeof one, .deterministic = 1};
    assert_non_null(workers);
    assert_int_equal(ampc_context_create(NULL, &first.c), AMPC_OK);
    OK(first.c, import_wide(first.c, &m));
    OK(first.c, ampc_module_compile(m, NULL));
    OK(first.c, ampc_session_open(m, &one, &first.s));
    for (int i = 0; i < THREADS; i++) {
        fill(&workers[i], i);
        memcpy(first.x, workers[i].x, sizeof first.x);
        assert_true(run_once(&first, workers[i].expected));
    }
    assert_memory_not_equal(workers[0].expected, workers[1].expected, sizeof workers[0].expected);
    const size_t before = resident_bytes();
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(ampc_context_create(NULL, &workers[i].c), AMPC_OK);
        OK(workers[i].c, ampc_session_share(i ? workers[i - 1].s : first.s, workers[i].c, &one, &workers[i].s));
    }
    start_all(workers);
    const size_t more = resident_bytes() - before, activations = THREADS * arena_bytes(&first);
    if (more > activations + weight_bytes / 4)
        fail_msg("%zu bytes more; activations have %zu, weights %zu", more, activations, weight_bytes);
    ampc_session_free(first.s);
    ampc_module_free(m);
    ampc_context_free(first.c);
    start_all(workers); /* what the first one has opened is still there */
    for (int i = 0; i < THREADS; i++) {
        ampc_session_free(workers[i].s);
        ampc_context_free(workers[i].c);
    }
    free(workers);
}

/* All threads need the hoisted values at the same time, before any session has computed them. */
TEST(test_first_runs_together)
{
    worker *workers = calloc(THREADS, sizeof *workers);
    ampc_module *m;
    const ampc_session_options one = {.struct_size = sizeof one, .deterministic = 1};
    assert_non_null(workers);
    for (int i = 0; i < THREADS; i++) assert_int_equal(ampc_context_create(NULL, &workers[i].c), AMPC_OK);
    OK(workers[0].c, import_wide(workers[0].c, &m));
    OK(workers[0].c, ampc_module_compile(m, NULL));
    OK(workers[0].c, ampc_session_open(m, &one, &workers[0].s));
    fill(&workers[0], 5);
    assert_true(run_once(&workers[0], workers[0].expected));
    ampc_session_free(workers[0].s);
    OK(workers[0].c, ampc_session_open(m, &one, &workers[0].s));
    for (int i = 1; i < THREADS; i++) {
        memcpy(workers[i].x, workers[0].x, sizeof workers[0].x);
        memcpy(workers[i].expected, workers[0].expected, sizeof workers[0].expected);
        OK(workers[i].c, ampc_session_share(workers[0].s, workers[i].c, &one, &workers[i].s));
    }
    start_all(workers);
    ampc_module_free(m);
    for (int i = 0; i < THREADS; i++) {
        ampc_session_free(workers[i].s);
        ampc_context_free(workers[i].c);
    }
    free(workers);
}

/* Equal runs read one plan, with one block of hoisted values and one pack of each weight, which are freed with the last
 * session that needs them. */
TEST(test_hoisted_once)
{
    worker w[2] = {0};
    ampc_module *m;
    for (int i = 0; i < 2; i++) assert_int_equal(ampc_context_create(NULL, &w[i].c), AMPC_OK);
    OK(w[0].c, import_wide(w[0].c, &m));
    OK(w[0].c, ampc_module_compile(m, NULL));
    OK(w[0].c, ampc_session_open(m, &one_thread, &w[0].s));
    OK(w[1].c, ampc_session_share(w[0].s, w[1].c, &one_thread, &w[1].s));
    for (int i = 0; i < 2; i++) assert_true(run_once(&w[i], w[i].expected));
    const rt_shared *shared = w[1].s->rt->shared;
    assert_ptr_equal(shared, w[0].s->rt->shared);
    const rt_packed *pack = shared->packs[test_storage_find(w[0].s->rt, "k")];
    assert_non_null(pack);
    assert_null(pack->next);
    assert_int_equal(pack->plans, 1);
    const rt_shared_plan *plan = shared->plans;
    assert_null(plan->next);
    assert_int_equal(plan->executions, 2);
    assert_non_null(plan->hoisted);
    assert_int_equal(plan->hoisted->plans, 1);
    ampc_session_free(w[0].s);
    assert_int_equal(plan->executions, 1);
    assert_true(run_once(&w[1], w[1].expected));
    ampc_session_free(w[1].s);
    ampc_module_free(m);
    for (int i = 0; i < 2; i++) ampc_context_free(w[i].c);
}

/* ---- changes of weights ---------------------------------------------------------------------- */

typedef struct pair {
    ampc_context *c;
    ampc_module *m;
    ampc_session *a, *b;
    ampc_tensor *in[2];
    char path[64];
} pair;

static int open_pair(void **state)
{
    static pair p;
    const int64_t dims[] = {32, 4};
    float x[32][4];
    int64_t label[32];
    p = (pair){.path = "/tmp/ampc-share-XXXXXX"};
    for (int i = 0; i < 128; i++) x[i / 4][i % 4] = (float)(i * 37 % 19) / 9 - 1;
    for (int i = 0; i < 32; i++) label[i] = x[i][0] > 0;
    int fd = mkstemp(p.path);
    if (fd >= 0) close(fd);
    *state = &p;
    return fd < 0 || ampc_context_create(NULL, &p.c) || ampc_module_import(p.c, MLP, NULL, 0, &p.m) ||
           ampc_module_compile(p.m, &training) || ampc_session_open(p.m, &one_thread, &p.a) ||
           ampc_tensor_create(p.c, "x", AMPC_F32, 2, dims, x, &p.in[0]) ||
           ampc_tensor_create(p.c, "label", AMPC_I64, 1, dims, label, &p.in[1]) ||
           ampc_train_step(p.a, p.in, 2, NULL) || ampc_checkpoint_save(p.a, p.path, NULL) ||
           ampc_session_share(p.a, p.c, &one_thread, &p.b);
}

static int close_pair(void **state)
{
    pair *p = *state;
    ampc_tensor_free(p->in[0]);
    ampc_tensor_free(p->in[1]);
    ampc_session_free(p->a);
    ampc_session_free(p->b);
    ampc_module_free(p->m);
    ampc_context_free(p->c);
    unlink(p->path);
    return 0;
}

static double loss_of(pair *p, ampc_session *s)
{
    double loss;
    OK(p->c, ampc_eval_step(s, p->in, 2, &loss));
    return loss;
}

static void expect_refused(pair *p, ampc_session *s)
{
    const ampc_train_options how = {.struct_size = sizeof how, .data = "synthetic", .batch = 4, .steps = 1};
    static const char why[] = "while 2 sessions share the weights";
    const double before = loss_of(p, s);
    ampc_tensor *weight;
    expect_failure(ampc_train_step(s, p->in, 2, NULL), AMPC_USAGE, p->c, why);
    expect_failure(ampc_session_run(s, "train_step", p->in, 2), AMPC_USAGE, p->c, why);
    expect_failure(ampc_train(s, &how), AMPC_USAGE, p->c, why);
    expect_failure(ampc_session_set_number(s, "state/lr", 0.5), AMPC_USAGE, p->c, why);
    expect_failure(ampc_set_loss_scaling(s, 0), AMPC_USAGE, p->c, why);
    expect_failure(ampc_checkpoint_load(s, p->path, NULL), AMPC_USAGE, p->c, why);
    expect_failure(ampc_checkpoint_load_weights(s, p->path), AMPC_USAGE, p->c, why);
    OK(p->c, ampc_session_get(s, "param/fc1.weight", &weight));
    expect_failure(ampc_session_set(s, "param/fc1.weight", weight), AMPC_USAGE, p->c, why);
    ampc_tensor_free(weight);
    assert_true(loss_of(p, s) == before);
}

#define TEST_SHARE(name) TEST_WITH(open_pair, close_pair, pair *p, name)

/* Neither of the two may change weights; both may read them and save them. */
TEST_SHARE(test_changes_are_refused)
{
    expect_refused(p, p->a);
    expect_refused(p, p->b);
    OK(p->c, ampc_checkpoint_save(p->b, p->path, NULL));
    assert_true(loss_of(p, p->a) == loss_of(p, p->b));
}

/* The last session may train again. Sessions that share afterwards compute with the new weights, also where these have
 * low-precision copies. */
TEST_SHARE(test_alone_again)
{
    ampc_session *fresh;
    const double before = loss_of(p, p->b);
    ampc_session_free(p->a);
    for (int i = 0; i < 5; i++) OK(p->c, ampc_train_step(p->b, p->in, 2, NULL));
    OK(p->c, ampc_session_share(p->b, p->c, &one_thread, &p->a));
    const double after = loss_of(p, p->a);
    assert_true(after < before);
    assert_true(loss_of(p, p->b) == after);
    OK(p->c, ampc_checkpoint_save(p->a, p->path, NULL));
    OK(p->c, ampc_session_open(p->m, &one_thread, &fresh));
    OK(p->c, ampc_checkpoint_load(fresh, p->path, NULL));
    assert_true(loss_of(p, fresh) == after);
    ampc_session_free(fresh);
}

/* Messages go to the context of the session that failed; the module, and so its file, cannot be changed. */
TEST_SHARE(test_contexts_are_separate)
{
    ampc_context *other;
    ampc_session *s, *none = NULL;
    const ampc_session_options moved = {.struct_size = sizeof moved, .device = "cpu"};
    assert_int_equal(ampc_context_create(NULL, &other), AMPC_OK);
    OK(other, ampc_session_share(p->b, other, &one_thread, &s));
    expect_failure(ampc_session_run(s, "dream", NULL, 0), AMPC_USAGE, other, "dream");
    assert_string_equal(ampc_context_message(p->c), "");
    expect_failure(ampc_session_share(s, other, &moved, &none), AMPC_USAGE, other, "same device");
    expect_failure(ampc_module_save(p->m, "/tmp/none.ir"), AMPC_USAGE, p->c, "sessions of it are open");
    assert_null(none);
    ampc_context_free(other); /* its session keeps it */
    assert_int_equal(ampc_session_run(s, "infer", p->in, 1), AMPC_OK);
    ampc_session_free(s);
}
