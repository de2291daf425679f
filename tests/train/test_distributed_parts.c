/* test_distributed_parts.c - what pass distribute does to losses and batch normalisation: the gradients of ranks, which
 * are threads, against those of one process with all samples. */
#include "passes/train/distribute.h"
#include "tests/ranks_threads.h"
#include "tests/train/training_net.h"

#ifdef ON_CUDA
enum { FIRST = 2, EACH = 3 };
#else
enum { FIRST = 0, EACH = 1 };
#endif
enum { RANKS = 4, BATCH = 8, LARGEST = 256 };

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
    int first, rows;
    bool done;
    result result;
} rank;

static rank rank_of(scratch *t, const problem *p, int first, int rows, bool distributed)
{
    rank r = {.problem = p, .first = first, .rows = rows, .net.t = t};
    must(t, ir_parse(p->text, strlen(p->text), "net.ir", t->d, &r.net.m));
    must(t, test_compile(r.net.m, &p->options, t->d));
    if (distributed) must(t, p->distribute(ir_graph_find(r.net.m, "grad"), t->d));
    must(t, ir_verify(r.net.m, t->d));
    return r;
}

static void read_results(rank *r, const ir_graph *g)
{
    r->result.loss = number(rt_session_output(r->net.s, ir_output_name(ir_output_by_role(g, IR_OUTPUT_loss))));
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        if (n->role != IR_OUTPUT_gradient && n->role != IR_OUTPUT_buffer) continue;
        const rt_tensor *v = rt_session_output(r->net.s, ir_output_name(n));
        for (size_t i = 0; i < count(v); i++)
            r->result.values[r->result.count++] = ir_load_f64(v->dtype, (char *)v->data + i * ir_dtype_size(v->dtype));
    }
    r->done = true;
}

static void run_rank(k_ranks *ranks, void *user)
{
    rank *r = (rank *)user + (ranks ? ranks->index : 0);
    const problem *p = r->problem;
    const rt_session_options session = {ON_DEVICE, .threads = 1, .deterministic = 1, .ranks = ranks};
    rt_tensor in[2] = {{.name = "x", .dtype = IR_f32, .rank = 2, .dims = {r->rows, IN}},
                       {.name = "label", .dtype = IR_i64, .rank = 1, .dims = {r->rows}}};
    in[0].data = (void *)p->x[r->first];
    in[1].data = (void *)&p->label[r->first];
    const ir_graph *g = ir_graph_find(r->net.m, "grad");
    if (rt_session_open(r->net.m, &session, r->net.t->d, &r->net.s)) return;
    set_parameters(&r->net);
    const int inputs = ir_graph_find_input(g, "label") ? 2 : 1;
    if (rt_session_run(r->net.s, "grad", in, inputs, r->net.t->d) == AMPC_OK) read_results(r, g);
}

static void end_rank(rank *r)
{
    if (!r->done) fail_msg("%s", diag_first_error(r->net.t->d));
    close_net(&r->net);
}

static result run_whole(scratch *t, const problem *p)
{
    rank r = rank_of(t, p, 0, BATCH, false);
    run_rank(NULL, &r);
    end_rank(&r);
    return r.result;
}

/* The mean of what the ranks compute, by their samples. */
static result run_ranks(scratch *t, const problem *p)
{
    rank ranks[RANKS];
    double part[RANKS] = {0};
    result mean = {0};
    int first = 0, n = 0;
    for (; p->rows[n]; first += p->rows[n++]) {
        ranks[n] = rank_of(t, p, first, p->rows[n], true);
        part[n] = p->rows[n] / (double)BATCH;
    }
    ranks_threads *threads = ranks_threads_new(n, part);
    ranks_threads_run(threads, run_rank, ranks);
    ranks_threads_free(threads);
    for (int i = 0; i < n; i++) {
        const result *r = &ranks[i].result;
        end_rank(&ranks[i]);
        mean.loss += r->loss * part[i];
        for (mean.count = 0; mean.count < r->count; mean.count++)
            mean.values[mean.count] += r->values[mean.count] * part[i];
    }
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
    for (int k = FIRST; k < SHARES; k += EACH) {
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

/* ---- batch normalisation ------------------------------------------------------------------------------- */

#define NORM_HEAD \
    "ampc-ir 3\n" \
    "param @w1 : f32[4,8] = zero\n" \
    "param @g : f32[8] = zero\n" \
    "param @b : f32[8] = zero\n" \
    "param @w2 : f32[8,3] = zero\n" \
    "state @mean : f32[8] = zero\n" \
    "state @var : f32[8] = [1, 1, 1, 1, 1, 1, 1, 1]\n" \
    "graph @forward(@x : f32[N,4]) as forward {\n" \
    "  %h = matmul @x, @w1 : f32[N,8] !MatMul \"fc1\"\n"
#define NORM(x, y, type) \
    "  %" y ", %m" y ", %v" y ", %sm" y ", %sr" y " = batch_norm %" x ", @g, @b, @mean, @var {training=true} : " type \
    ", f32[8], f32[8], f32[8], f32[8] !BatchNormalization \"" y "\"\n"
#define NORM_TAIL(h, last) \
    "  %y = matmul %" h ", @w2 : f32[N,3] !MatMul \"fc2\"\n" \
    "  output \"y\" = %y\n" \
    "update:\n" \
    "  store @mean, %m" last "\n" \
    "  store @var, %v" last "\n" \
    "}\n"

static const char *const norms[] = {
    NORM_HEAD NORM("h", "n", "f32[N,8]") "  %r = relu %n : f32[N,8] !Relu \"relu\"\n" NORM_TAIL("r", "n"), NORM_HEAD
    "  %i = reshape %h {shape=[N,8,1,1]} : f32[N,8,1,1] !Reshape \"image\"\n"
    "  %e = expand %i {shape=[N,8,2,3]} : f32[N,8,2,3] !Expand \"expand\"\n" NORM(
        "e", "n",
        "f32[N,8,2,3]") "  %r = relu %n : f32[N,8,2,3] !Relu \"relu\"\n" NORM("r", "o",
                                                                              "f32[N,8,2,3]") "  %s = reduce_mean %o "
                                                                                              "{axes=[2,3], "
                                                                                              "keepdims=false} : "
                                                                                              "f32[N,8] !ReduceMean "
                                                                                              "\"pool\"\n"
                                                                                              "  %t = mul %s, %s : "
                                                                                              "f32[N,8] !Mul "
                                                                                              "\"square\"\n" NORM_TAIL(
                                                                                                  "t", "o")};

TEST_SCRATCH(test_batch_normalisation)
{
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        for (int k = 0; k < 2 * PRECISIONS; k++) {
            const int precision = k / 2;
            problem p = problem_of(norms[i], "ce", precisions[precision].level, precisions[precision].low);
            p.distribute = distribute_batch_norm;
            p.options.running_var = k % 2 ? PASS_VARIANCE_UNBIASED : PASS_VARIANCE_BIASED;
            for (int j = 0; j < BATCH; j++) p.label[j] = j % OUT;
            check(t, &p, 4 * precisions[precision].bound);
        }
}

/* ---- one rank ------------------------------------------------------------------------------------------ */

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
