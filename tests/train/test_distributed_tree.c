/* test_distributed_tree.c - the sums of a step over ranks, which are threads, and micro-batches: the same bits, whoever
 * computes them. */
#include "runtime/train/checkpoint.h"
#include "tests/ranks_threads.h"
#include "tests/train/training_net.h"

enum { STEPS = 5, LEAVES = 8, RANKS = 4, ROWS_OF_LEAF = ROWS / LEAVES };

/* `ranks` ranks compute `leaves` numbers of 4 rows each; `window`: --accumulate, 0: none. */
typedef struct setup {
    const char *text, *loss;
    pass_level level;
    ir_dtype low;
    int ranks, window, leaves;
    bool unscale; /* the sums are divided by @unscale */
    bool plain;   /* the sums are those of pass accumulate */
    int cut;      /* so many micro-batches of a rank are followed by a checkpoint and a new session; 0: none */
} setup;

typedef struct rank {
    const setup *setup;
    net net;
    bool done;
    double losses[STEPS];
} rank;

static void open_rank(scratch *t, rank *r, const setup *s)
{
    compile_options o = options(s->loss, "momentum,lr=0.1");
    o.level = s->level;
    o.low = s->low;
    o.accumulate = s->window;
    o.clip_norm = 0.5;
    o.tree = true;
    *r = (rank){.setup = s, .net.t = t};
    must(t, ir_parse(s->text, strlen(s->text), "net.ir", t->d, &r->net.m));
    must(t, test_compile(r->net.m, &o, t->d));
    if (!s->plain) must(t, compile_distribute(r->net.m, &o, t->d));
    must(t, ir_verify(r->net.m, t->d));
}

/* Runs the graph on the rows of number i; false: it failed. */
static bool run_leaf(rank *r, const char *graph, int i)
{
    rt_tensor in[2];
    const int inputs = inputs_of(&r->net, graph, in);
    for (int k = 0; k < inputs; k++) in[k].dims[0] = ROWS_OF_LEAF;
    in[0].data = r->net.x[i * ROWS_OF_LEAF];
    in[1].data = r->net.label[i * ROWS_OF_LEAF];
    return rt_session_run(r->net.s, graph, in, inputs, r->net.t->d) == AMPC_OK;
}

static bool open_session(rank *r, k_ranks *ranks)
{
    const rt_session_options session = {ON_DEVICE, .threads = 1, .deterministic = 1, .ranks = ranks};
    return rt_session_open(r->net.m, &session, r->net.t->d, &r->net.s) == AMPC_OK;
}

/* Goes on in a new session, which has what the checkpoint has. */
static bool resume(rank *r, k_ranks *ranks)
{
    net *n = &r->net;
    char name[32];
    const rt_run_state state = {.batch = ROWS_OF_LEAF};
    snprintf(name, sizeof name, "rank%d.safetensors", ranks->index);
    const char *path = scratch_path(n->t, name);
    if (rt_checkpoint_write(n->s, n->m, &state, path, n->t->d)) return false;
    rt_session_close(n->s);
    n->s = NULL;
    return open_session(r, ranks) && rt_checkpoint_read(n->s, n->m, path, &rt_checkpoint_all, n->t->d, NULL) == AMPC_OK;
}

static bool run_step(rank *r, k_ranks *ranks)
{
    const int index = ranks->index;
    const setup *s = r->setup;
    const char *last = s->window ? "apply" : "train_step";
    if (!s->window) return run_leaf(r, last, index);
    for (int i = index; i < s->leaves; i += s->ranks)
        if (!run_leaf(r, "accumulate", i) || (i / s->ranks + 1 == s->cut && !resume(r, ranks))) return false;
    if (s->unscale && rt_session_run(r->net.s, "unscale", NULL, 0, r->net.t->d)) return false;
    return rt_session_run(r->net.s, last, NULL, 0, r->net.t->d) == AMPC_OK;
}

static void run_rank(k_ranks *ranks, void *user)
{
    rank *r = (rank *)user + ranks->index;
    if (!open_session(r, ranks)) return;
    set_parameters(&r->net);
    for (int k = 0; k < STEPS; k++) {
        set_batch(&r->net, (uint64_t)k);
        if (!run_step(r, ranks)) return;
        r->losses[k] = output(&r->net, "loss");
    }
    r->done = true;
}

static void run_all(scratch *t, const setup *s, rank *ranks)
{
    for (int i = 0; i < s->ranks; i++) open_rank(t, &ranks[i], s);
    ranks_threads *threads = ranks_threads_new(s->ranks, NULL);
    ranks_threads_run(threads, run_rank, ranks);
    ranks_threads_free(threads);
    for (int i = 0; i < s->ranks; i++)
        if (!ranks[i].done) fail_msg("%s", diag_first_error(t->d));
}

/* Whether the storage belongs to a window. */
static bool is_pending(const ir_storage *s)
{
    return s->kind == IR_STATE && s->role >= IR_STATE_grad_sum && s->role <= IR_STATE_overflow;
}

static void assert_equal(const rank *a, const rank *b)
{
    int compared = 0;
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    for (size_t i = 0; i < a->net.m->storage.count; i++) {
        const ir_storage *s = a->net.m->storage.items[i];
        if (s->kind == IR_CONST || is_pending(s)) continue;
        const rt_tensor v = storage(&a->net, s->name), w = storage(&b->net, s->name);
        if (memcmp(v.data, w.data, count(&v) * ir_dtype_size(v.dtype))) fail_msg("%s differs", s->name);
        compared++;
    }
    assert_true(compared > 5);
}

/* The first is the reference. */
static void assert_all_equal(scratch *t, const setup *setups, int n)
{
    rank first[RANKS], other[RANKS];
    run_all(t, &setups[0], first);
    assert_true(first[0].losses[STEPS - 1] != first[0].losses[0]);
    for (int k = 1; k < n; k++) {
        run_all(t, &setups[k], other);
        for (int i = 0; i < setups[k].ranks; i++) {
            assert_equal(&first[0], &other[i]);
            close_net(&other[i].net);
        }
    }
    for (int i = 0; i < setups[0].ranks; i++) close_net(&first[i].net);
}

static const struct {
    pass_level level;
    ir_dtype low;
} precisions[] = {{PASS_O0, IR_f16}, {PASS_O1, IR_f16}, {PASS_O1, IR_bf16}, {PASS_O2, IR_f16}};

#define SETUP(r, w, n, u) \
    { \
        text, "mse", precisions[i].level, precisions[i].low, r, w, n, u, false, 0 \
    }

/* With statistics and random numbers, too. */
TEST_SCRATCH(test_ranks_and_micro_batches_add_the_same)
{
    for (size_t k = 0; k < 2 * sizeof precisions / sizeof *precisions; k++) {
        const size_t i = k / 2;
        const char *text = k % 2 ? stateful : mlp;
        const setup of_4[] = {SETUP(1, 4, 4, false), SETUP(2, 2, 4, false), SETUP(4, 0, 4, false),
                              SETUP(4, 1, 4, false)};
        const setup of_8[] = {SETUP(1, 8, 8, false), SETUP(2, 4, 8, false), SETUP(4, 2, 8, false)};
        const setup of_6[] = {SETUP(1, 6, 6, false), SETUP(2, 3, 6, false), SETUP(1, 8, 6, false),
                              SETUP(2, 4, 6, true)};
        assert_all_equal(t, of_4, 4);
        assert_all_equal(t, of_8, 3);
        assert_all_equal(t, of_6, 4);
    }
}

/* The same numbers as with the sums of pass accumulate, but for the order. */
TEST_SCRATCH(test_the_sums_are_those_of_a_window)
{
    static const double bounds[] = {1e-6, 1e-3, 1e-2, 1e-3};
    const char *text = mlp;
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        setup plain = SETUP(1, 8, 6, false), tree = SETUP(2, 4, 6, false);
        rank a[RANKS], b[RANKS];
        plain.plain = true;
        run_all(t, &plain, a);
        run_all(t, &tree, b);
        for (int k = 0; k < STEPS; k++) assert_true(fabs(a->losses[k] - b->losses[k]) <= bounds[i]);
        close_net(&a[0].net);
        for (int k = 0; k < 2; k++) close_net(&b[k].net);
    }
}

/* A checkpoint within a window has the levels of its sums. */
TEST_SCRATCH(test_a_window_is_resumed)
{
    const char *text = stateful;
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        setup cut[] = {SETUP(1, 8, 8, false), SETUP(1, 8, 8, false), SETUP(1, 8, 8, false), SETUP(2, 4, 8, false)};
        for (int k = 1; k < 4; k++) cut[k].cut = (int[]){0, 2, 5, 3}[k];
        assert_all_equal(t, cut, 4);
    }
}

/* The module with its pending sums is complete text. */
TEST_SCRATCH(test_the_module_is_text)
{
    const setup s = {mlp, "mse", PASS_O1, IR_bf16, 1, 4, 4, false, false, 0};
    rank r;
    ir_module *again;
    open_rank(t, &r, &s);
    const char *text = ir_print(r.net.m, r.net.m->arena);
    must(t, ir_parse(text, strlen(text), "again.ir", t->d, &again));
    must(t, ir_verify(again, t->d));
    assert_string_equal(ir_print(again, again->arena), text);
    assert_non_null(ir_storage_find(again, "partial.partial.grad_sum.w1"));
    ir_module_free(again);
    ir_module_free(r.net.m);
}

/* Of one micro-batch, nothing is added. */
TEST_SCRATCH(test_one_rank_is_a_training_step)
{
    const char *text = stateful;
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        const setup of_1[] = {SETUP(1, 0, 1, false), SETUP(1, 1, 1, false), SETUP(1, 4, 1, false)};
        assert_all_equal(t, of_1, 3);
    }
}
