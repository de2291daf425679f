/* test_distributed_parts.c - what pass distribute does to losses and batch normalisation: the gradients of ranks, which
 * are threads, against those of one process with all samples. */
#include "kernels/ranks.h"
#include "passes/train/distribute.h"
#include "tests/train/training_net.h"

#include <pthread.h>

/* ---- ranks that are threads --------------------------------------------------------------------------- */

enum { RANKS = 4, BATCH = 8, LARGEST = 256 };

typedef struct meeting {
    pthread_barrier_t barrier;
    void *data[RANKS];
    int count;
} meeting;

typedef struct thread_ranks {
    k_ranks ranks;
    meeting *meeting;
} thread_ranks;

static double pair(double a, double b, k_reduced by, ir_dtype type)
{
    double v = by == K_REDUCED_max ? fmax(a, b) : a + b;
    return type == IR_f64 ? v : (float)v;
}

/* The numbers of ranks [first, first + n), as a balanced tree. */
static double reduce_tree(const double *v, int n, k_reduced by, ir_dtype type)
{
    int left = 1;
    if (n == 1) return v[0];
    while (2 * left < n) left *= 2;
    return pair(reduce_tree(v, left, by, type), reduce_tree(v + left, n - left, by, type), by, type);
}

static ampc_status reduce_all(k_ranks *r, void *data, int64_t n, ir_dtype type, k_reduced by, bool tree)
{
    meeting *m = ((thread_ranks *)r)->meeting;
    const size_t size = ir_dtype_size(type);
    char *sums = malloc((size_t)n * size + 1);
    (void)tree;
    m->data[r->index] = data;
    pthread_barrier_wait(&m->barrier);
    for (int64_t i = 0; i < n; i++) {
        double v[RANKS];
        for (int k = 0; k < r->count; k++) v[k] = ir_load_f64(type, (char *)m->data[k] + (size_t)i * size);
        ir_store_f64(type, sums + (size_t)i * size, reduce_tree(v, r->count, by, type));
    }
    pthread_barrier_wait(&m->barrier);
    memcpy(data, sums, (size_t)n * size);
    free(sums);
    return AMPC_OK;
}

static void *no_stage(k_ranks *r, size_t bytes)
{
    (void)r, (void)bytes;
    return NULL;
}

/* ---- networks --------------------------------------------------------------------------------------------- */

/* What a rank computes: the loss and all other outputs of role gradient or buffer, one after another. */
typedef struct result {
    double loss, values[LARGEST];
    int count;
} result;

typedef struct problem {
    const char *text; /* of the network */
    compile_options options;
    ampc_status (*distribute)(ir_graph *g, diag *d);
    const int *rows; /* of the ranks, the last one 0 */
    float x[BATCH][IN];
    int64_t label[BATCH];
} problem;

typedef struct rank {
    const problem *problem;
    net net;
    thread_ranks ranks;
    int first, rows;
    result result;
    pthread_t thread;
} rank;

static void open_rank(scratch *t, rank *r, k_ranks *ranks)
{
    const problem *p = r->problem;
    const rt_session_options session = {.device = "cpu", .threads = 1, .deterministic = 1, .ranks = ranks};
    r->net = (net){.t = t};
    must(t, ir_parse(p->text, strlen(p->text), "net.ir", t->d, &r->net.m));
    must(t, test_compile(r->net.m, &p->options, t->d));
    if (ranks) must(t, p->distribute(ir_graph_find(r->net.m, "grad"), t->d));
    must(t, ir_verify(r->net.m, t->d));
    must(t, rt_session_open(r->net.m, &session, t->d, &r->net.s));
    set_parameters(&r->net);
}

static void *run_rank(void *user)
{
    rank *r = user;
    const problem *p = r->problem;
    rt_tensor in[2] = {{.name = "x", .dtype = IR_f32, .rank = 2, .dims = {r->rows, IN}},
                       {.name = "label", .dtype = IR_i64, .rank = 1, .dims = {r->rows}}};
    in[0].data = (void *)p->x[r->first];
    in[1].data = (void *)&p->label[r->first];
    const ir_graph *g = ir_graph_find(r->net.m, "grad");
    if (rt_session_run(r->net.s, "grad", in, ir_graph_find_input(g, "label") ? 2 : 1, r->net.t->d)) return r;
    r->result.loss = output(&r->net, ir_output_name(ir_output_by_role(g, IR_OUTPUT_loss)));
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        if (n->role != IR_OUTPUT_gradient && n->role != IR_OUTPUT_buffer) continue;
        const rt_tensor *v = rt_session_output(r->net.s, ir_output_name(n));
        for (size_t i = 0; i < count(v); i++)
            r->result.values[r->result.count++] = ir_load_f64(v->dtype, (char *)v->data + i * ir_dtype_size(v->dtype));
    }
    return NULL;
}

static result run_whole(scratch *t, const problem *p)
{
    rank r = {.problem = p, .rows = BATCH};
    open_rank(t, &r, NULL);
    if (run_rank(&r)) fail_msg("%s", diag_first_error(t->d));
    close_net(&r.net);
    return r.result;
}

/* The mean of what the ranks compute, by their samples. */
static result run_ranks(scratch *t, const problem *p)
{
    rank ranks[RANKS] = {0};
    meeting m = {.count = 0};
    result mean = {0};
    int first = 0;
    while (p->rows[m.count]) m.count++;
    pthread_barrier_init(&m.barrier, NULL, (unsigned)m.count);
    for (int i = 0; i < m.count; i++) {
        rank *r = &ranks[i];
        *r = (rank){.problem = p, .first = first, .rows = p->rows[i], .ranks.meeting = &m};
        r->ranks.ranks = (k_ranks){.index = i, .count = m.count, .share = p->rows[i] / (double)BATCH};
        r->ranks.ranks.all_reduce = reduce_all;
        r->ranks.ranks.stage = no_stage;
        first += p->rows[i];
        open_rank(t, r, &r->ranks.ranks);
    }
    assert_int_equal(first, BATCH);
    for (int i = 0; i < m.count; i++) pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
    for (int i = 0; i < m.count; i++) {
        void *failed;
        pthread_join(ranks[i].thread, &failed);
        if (failed) fail_msg("%s", diag_first_error(t->d));
        const result *r = &ranks[i].result;
        mean.loss += r->loss * ranks[i].ranks.ranks.share;
        for (mean.count = 0; mean.count < r->count; mean.count++)
            mean.values[mean.count] += r->values[mean.count] * ranks[i].ranks.ranks.share;
        close_net(&ranks[i].net);
    }
    pthread_barrier_destroy(&m.barrier);
    return mean;
}

static void assert_near(const result *a, const result *b, double bound)
{
    double largest = 0;
    assert_true(fabs(a->loss - b->loss) <= bound * (1 + fabs(b->loss)));
    assert_int_equal(a->count, b->count);
    assert_true(a->count > 0);
    for (int i = 0; i < b->count; i++) largest = fmax(largest, fabs(b->values[i]));
    assert_true(largest > 0);
    for (int i = 0; i < a->count; i++)
        if (!(fabs(a->values[i] - b->values[i]) <= bound * largest))
            fail_msg("value %d is %g, not %g", i, a->values[i], b->values[i]);
}

static const int shares[][RANKS + 1] = {{8}, {4, 4}, {2, 2, 2, 2}, {3, 3, 2}, {1, 7}, {5, 1, 2}};
enum { SHARES = sizeof shares / sizeof *shares };

static problem problem_of(const char *text, const char *loss, pass_level level, ir_dtype low)
{
    problem p = {.text = text, .options = options(loss, "sgd"), .distribute = distribute_weights};
    p.options.level = level;
    p.options.low = low;
    p.options.init_scale = 256; /* one sample may be a rank's mean */
    for (size_t i = 0; i < (size_t)BATCH * IN; i++) p.x[i / IN][i % IN] = random_value(5, i);
    /* the first four are ignored, if -1 is: all labels of some ranks */
    for (int i = 0; i < BATCH; i++) p.label[i] = i < 4 ? -1 : i % OUT;
    return p;
}

static const struct {
    pass_level level;
    ir_dtype low;
    double bound;
} precisions[] = {{PASS_O0, IR_f16, 1e-6}, {PASS_O1, IR_f16, 4e-3}, {PASS_O1, IR_bf16, 3e-2}};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

static void check(scratch *t, problem *p, double bound)
{
    const result whole = run_whole(t, p);
    for (int k = 0; k < SHARES; k++) {
        p->rows = shares[k];
        const result mean = run_ranks(t, p);
        assert_near(&mean, &whole, bound);
    }
}

/* ---- losses ------------------------------------------------------------------------------------------- */

TEST_SCRATCH(test_losses_of_labels)
{
    static const char *const losses[] = {"ce,ignore_index=-1",
                                         "ce,ignore_index=-1,class_weights=1/3/0.5,label_smoothing=0.1,z_loss=0.01",
                                         "nll,ignore_index=-1,class_weights=0/2/3",
                                         "ce,ignore_index=-1:y,label"
                                         "+nll,weight=0.5,ignore_index=-1,class_weights=1/2/3:y,label"};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        for (int k = 0; k < PRECISIONS; k++) {
            problem p = problem_of(mlp, losses[i], precisions[k].level, precisions[k].low);
            check(t, &p, precisions[k].bound);
        }
}

/* A loss that the model spells out: q is the divisor. */
#define OWN(q) \
    "ampc-ir 3\n" \
    "param @w1 : f32[4,3] = zero\n" \
    "param @w2 : f32[4,3] = zero\n" \
    "const @minus : i64[] = -1\n" \
    "const @zero : f32[] = 0\n" \
    "const @one : f32[] = 1\n" \
    "const @least : f32[] = 1e-8\n" \
    "const @half : f32[] = 0.5\n" \
    "graph @forward(@x : f32[N,4], @label : i64[N]) as forward {\n" \
    "  %y = matmul @x, @w1 : f32[N,3] !MatMul \"fc\"\n" \
    "  %g = matmul @x, @w2 : f32[N,3] !MatMul \"gate\"\n" \
    "  %s = sigmoid %g : f32[N,3] !Sigmoid \"sigmoid\"\n" \
    "  %p = mul %y, %y : f32[N,3] !Mul \"square\"\n" \
    "  %r = reduce_sum %p {axes=[1], keepdims=false} : f32[N] !ReduceSum \"row\"\n" \
    "  %e = equal @label, @minus : bool[N] !Equal \"ignored\"\n" \
    "  %m = where %e, @zero, @one : f32[N] !Where \"mask\"\n" \
    "  %a = mul %r, %m : f32[N] !Mul \"masked\"\n" q "  output \"l\" = %l\n}\n"

static const char *const own[] = {
    OWN("  %t = reduce_sum %a {axes=[0], keepdims=false} : f32[] !ReduceSum \"total\"\n"
        "  %c = reduce_sum %m {axes=[0], keepdims=false} : f32[] !ReduceSum \"count\"\n"
        "  %b = max %c, @one : f32[] !Max \"bound\"\n"
        "  %l = div %t, %b : f32[] !Div \"mean\"\n"),
    /* weights that depend on parameters, and a mean */
    OWN("  %q = mul %p, %s : f32[N,3] !Mul \"weighted\"\n"
        "  %t = reduce_sum %q {axes=[0,1], keepdims=false} : f32[] !ReduceSum \"total\"\n"
        "  %c = reduce_sum %s {axes=[0,1], keepdims=false} : f32[] !ReduceSum \"count\"\n"
        "  %d = div %t, %c : f32[] !Div \"ratio\"\n"
        "  %h = mul %d, @half : f32[] !Mul \"half\"\n"
        "  %o = reduce_mean %p {axes=[0,1], keepdims=false} : f32[] !ReduceMean \"mean\"\n"
        "  %l = add %h, %o : f32[] !Add \"sum\"\n"),
    /* a sum, a mean, a term that reads no data */
    OWN("  %t = reduce_sum %a {axes=[0], keepdims=false} : f32[] !ReduceSum \"total\"\n"
        "  %h = mul %t, @half : f32[] !Mul \"half\"\n"
        "  %u = mul @w1, @w1 : f32[4,3] !Mul \"decay\"\n"
        "  %v = reduce_sum %u {axes=[0,1], keepdims=false} : f32[] !ReduceSum \"norm\"\n"
        "  %o = reduce_mean %s {axes=[0,1], keepdims=false} : f32[] !ReduceMean \"mean\"\n"
        "  %k = add %h, %v : f32[] !Add \"add1\"\n"
        "  %l = sub %o, %k : f32[] !Sub \"sub2\"\n")};

TEST_SCRATCH(test_losses_of_the_model)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        for (int k = 0; k < PRECISIONS; k++) {
            problem p = problem_of(own[i], NULL, precisions[k].level, precisions[k].low);
            check(t, &p, 4 * precisions[k].bound);
        }
}

/* One rank: the same numbers. All labels ignored: NaN, as in one process. */
TEST_SCRATCH(test_one_rank_computes_the_same)
{
    problem p = problem_of(mlp, "ce,ignore_index=-1,class_weights=1/3/0.5", PASS_O1, IR_f16);
    const result whole = run_whole(t, &p);
    p.rows = shares[0];
    const result one = run_ranks(t, &p);
    assert_memory_equal(&one, &whole, sizeof one);
    for (int i = 0; i < BATCH; i++) p.label[i] = -1;
    p.rows = shares[1];
    assert_true(isnan(run_whole(t, &p).loss));
    assert_true(isnan(run_ranks(t, &p).loss));
}
