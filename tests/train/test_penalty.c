/* test_penalty.c - the gradient of a penalized loss against central differences, in f64.
 *
 * Three networks (perceptron, convolutional, transformer) with several losses and penalties. Every element of every
 * parameter and float input is compared: |a-n| <= 1e-8 + 1e-5 max(|a|,|n|), with steps of 6e-6 max(1,|x|). The output
 * `penalty` is compared with the norm of the gradient that the network without a penalty has. */
#include "ir/philox.h"
#include "passes/pass.h"
#include "tests/compile.h"
#include "tests/session.h"
#include "tests/unit/scratch.h"

#include <math.h>

/* clang-format off */
static const char perceptron[] =
    "ampc-ir 1\n"
    "param @w1 : f64[4,6] = zero\n"
    "param @b1 : f64[6] = zero\n"
    "param @w2 : f64[6,5] = zero\n"
    "param @w3 : f64[5,3] = zero\n"
    "state @rng : i64[2] = [7, 0]\n"
    "graph @forward(@x : f64[5,4]) {\n"
    "  %h = matmul @x, @w1, @b1 : f64[5,6] !Gemm \"fc1\"\n"
    "  %r = gelu %h : f64[5,6] !Gelu \"gelu\"\n"
    "  %d, %k = dropout %r, @rng {ratio=0.25} : f64[5,6], bool[5,6] !Dropout \"drop\"\n"
    "  %g = matmul %d, @w2 : f64[5,5] !MatMul \"fc2\"\n"
    "  %s = swish %g : f64[5,5] !Swish \"swish\"\n"
    "  %y = matmul %s, @w3 : f64[5,3] !MatMul \"fc3\"\n"
    "  output \"y\" = %y\n"
    "}\n";

#define CONVOLUTIONAL(training) \
    "ampc-ir 1\n" \
    "param @w1 : f64[4,2,3,3] = zero\n" \
    "param @b1 : f64[4] = zero\n" \
    "param @scale : f64[4] = zero\n" \
    "param @shift : f64[4] = zero\n" \
    "param @w2 : f64[4,2,2,2] = zero\n" \
    "param @w3 : f64[2,1,3,3] = zero\n" \
    "param @w4 : f64[18,3] = zero\n" \
    "state @mean : f64[4] = [0.1, 0.2, -0.1, 0.3]\n" \
    "state @var : f64[4] = [1, 0.5, 2, 1.5]\n" \
    "graph @forward(@x : f64[3,2,6,6]) {\n" \
    "  %c = conv @x, @w1, @b1 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} : f64[3,4,6,6] !Conv \"conv\"\n" \
    "  %n, %m, %v, %sm, %sr = batch_norm %c, @scale, @shift, @mean, @var {training=" training "} : f64[3,4,6,6], " \
    "f64[4], f64[4], f64[4], f64[4] !BatchNormalization \"bn\"\n" \
    "  %r = leaky_relu %n {alpha=0.25} : f64[3,4,6,6] !LeakyRelu \"leaky\"\n" \
    "  %p, %i = max_pool %r {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} : f64[3,4,3,3], " \
    "i64[3,4,3,3] !MaxPool \"max\"\n" \
    "  %u = conv_grad_input %p, @w2 {shape=[3,2,6,6], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} : " \
    "f64[3,2,6,6] !ConvTranspose \"up\"\n" \
    "  %t = softplus %u : f64[3,2,6,6] !Softplus \"softplus\"\n" \
    "  %g = conv %t, @w3 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=2} : f64[3,2,6,6] !Conv \"group\"\n" \
    "  %e = relu %g : f64[3,2,6,6] !Relu \"relu\"\n" \
    "  %a = avg_pool %e {kernel=[3,3], strides=[2,2], pads=[1,1,1,1], dilations=[1,1]} : f64[3,2,3,3] " \
    "!AveragePool \"avg\"\n" \
    "  %f = reshape %a {shape=[3,18]} : f64[3,18] !Flatten \"flatten\"\n" \
    "  %y = matmul %f, @w4 : f64[3,3] !MatMul \"fc\"\n" \
    "  output \"y\" = %y\n" \
    "}\n"

/* Two tokens streams of length 4, one head, a causal mask, tied embeddings. */
static const char transformer[] =
    "ampc-ir 1\n"
    "param @table : f64[7,6] = zero\n"
    "param @place : f64[4,6] = zero\n"
    "param @g1 : f64[6] = zero\n"
    "param @b1 : f64[6] = zero\n"
    "param @wq : f64[6,6] = zero\n"
    "param @wk : f64[6,6] = zero\n"
    "param @wv : f64[6,6] = zero\n"
    "param @g2 : f64[6] = zero\n"
    "param @w1 : f64[6,8] = zero\n"
    "param @w2 : f64[8,6] = zero\n"
    "const @mask : f64[4,4] = [0, -1e9, -1e9, -1e9, 0, 0, -1e9, -1e9, 0, 0, 0, -1e9, 0, 0, 0, 0]\n"
    "const @root : f64[] = 2.449489742783178\n"
    "graph @forward(@ids : i64[2,4]) {\n"
    "  %e = gather @table, @ids : f64[2,4,6] !Gather \"embed\"\n"
    "  %x = add %e, @place : f64[2,4,6] !Add \"place\"\n"
    "  %n, %m1, %r1 = layer_norm %x, @g1, @b1 : f64[2,4,6], f64[2,4,1], f64[2,4,1] !LayerNormalization \"ln1\"\n"
    "  %q = matmul %n, @wq : f64[2,4,6] !MatMul \"q\"\n"
    "  %k = matmul %n, @wk : f64[2,4,6] !MatMul \"k\"\n"
    "  %v = matmul %n, @wv : f64[2,4,6] !MatMul \"v\"\n"
    "  %qk = matmul %q, %k {trans_b=true} : f64[2,4,4] !MatMul \"qk\"\n"
    "  %sc = div %qk, @root : f64[2,4,4] !Div \"scale\"\n"
    "  %mk = add %sc, @mask : f64[2,4,4] !Add \"mask\"\n"
    "  %p = softmax %mk : f64[2,4,4] !Softmax \"softmax\"\n"
    "  %a = matmul %p, %v : f64[2,4,6] !MatMul \"pv\"\n"
    "  %h = add %x, %a : f64[2,4,6] !Add \"residual1\"\n"
    "  %o, %m2, %r2 = layer_norm %h, @g2 {center=false} : f64[2,4,6], f64[2,4,1], f64[2,4,1] "
    "!RMSNormalization \"ln2\"\n"
    "  %f = matmul %o, @w1 : f64[2,4,8] !MatMul \"fc1\"\n"
    "  %t = gelu %f {tanh=true} : f64[2,4,8] !Gelu \"gelu\"\n"
    "  %w = matmul %t, @w2 : f64[2,4,6] !MatMul \"fc2\"\n"
    "  %z = add %h, %w : f64[2,4,6] !Add \"residual2\"\n"
    "  %l = matmul %z, @table {trans_b=true} : f64[2,4,7] !MatMul \"head\"\n"
    "  %y = reshape %l {shape=[8,7]} : f64[8,7] !Reshape \"rows\"\n"
    "  output \"y\" = %y\n"
    "}\n";
/* clang-format on */

static const struct subject {
    const char *name, *text, *loss, *penalty;
    double weight, target; /* of the option; target < 0: none */
} subjects[] = {
    {"mlp, mse, parameters", perceptron, "mse", "L2:params,1", 1, -1},
    {"mlp, mse, input", perceptron, "mse", "L2:input,0.5", 0.5, -1},
    {"mlp, ce, target", perceptron, "ce", "L2:input,10,target=1", 10, 1},
    {"mlp, bce_logits, some parameters", perceptron, "bce_logits", "L2:params=w*,0.1", 0.1, -1},
    {"mlp, l1", perceptron, "l1", "L2:params=w1,2", 2, -1},
    {"cnn, ce, parameters", CONVOLUTIONAL("true"), "ce", "L2:params,1", 1, -1},
    {"cnn, mse, input", CONVOLUTIONAL("true"), "mse", "L2:input=x,3,target=0.5", 3, 0.5},
    {"cnn, running statistics", CONVOLUTIONAL("false"), "ce", "L2:params,1", 1, -1},
    {"cnn, running statistics, input", CONVOLUTIONAL("false"), "ce", "L2:input,1", 1, -1},
    {"transformer, ce", transformer, "ce", "L2:params,1", 1, -1},
    {"transformer, nll, target", transformer, "nll", "L2:params,0.5,target=2", 0.5, 2},
};

enum { MAX_INPUTS = 2 };

typedef struct probe {
    scratch *t;
    const struct subject *subject;
    ir_module *m;
    rt_session *s;
    rt_tensor in[MAX_INPUTS];
    int inputs;
} probe;

static void must(const scratch *t, ampc_status status)
{
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static size_t count(const rt_tensor *v)
{
    size_t elements = 1;
    for (int i = 0; i < v->rank; i++) elements *= (size_t)v->dims[i];
    return elements;
}

static void fill(rt_tensor *v, uint64_t stream)
{
    for (size_t i = 0; i < count(v); i++) {
        double u = philox_unit(philox_word(5, stream, i));
        if (v->dtype == IR_i64) ((int64_t *)v->data)[i] = (int64_t)(u * 3);
        else ((double *)v->data)[i] = 1.6 * u - 0.8;
    }
}

static void compile_subject(probe *p, const char *penalty)
{
    static const char *const passes[] = {"mode", "loss", "penalty", "autodiff"};
    compile_options o = compile_options_default();
    o.level = PASS_O0;
    o.loss = p->subject->loss;
    o.grad_penalty = penalty;
    must(p->t, ir_parse(p->subject->text, strlen(p->subject->text), "net.ir", p->t->d, &p->m));
    for (int i = 0; i < 4; i++) must(p->t, test_pass(p->m, passes[i], &o, p->t->d));
}

static probe open_probe(scratch *t, const struct subject *subject, const char *penalty)
{
    const rt_session_options options = {.device = "cpu", .threads = 1};
    probe p = {.t = t, .subject = subject};
    compile_subject(&p, penalty);
    must(t, rt_session_open(p.m, &options, t->d, &p.s));
    for (int i = 0; i < rt_session_storage_count(p.s); i++) {
        rt_tensor v;
        ir_storage_kind kind;
        rt_session_storage_at(p.s, i, &v, &kind);
        must(t, rt_session_read(p.s, i, t->d, &v));
        if (kind == IR_PARAM) fill(&v, 100 + (uint64_t)v.name[0] * 256 + (uint64_t)v.name[1]);
    }
    const ir_graph *g = ir_graph_by_role(p.m, IR_GRAPH_train);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        rt_tensor *x = &p.in[p.inputs++];
        *x = (rt_tensor){.name = v->name, .dtype = v->type.dtype, .rank = v->type.rank};
        for (int k = 0; k < x->rank; k++) x->dims[k] = v->type.dims[k];
        x->data = calloc(count(x), 8);
        fill(x, i);
    }
    return p;
}

static void close_probe(probe *p)
{
    for (int i = 0; i < p->inputs; i++) free(p->in[i].data);
    rt_session_close(p->s);
    ir_module_free(p->m);
}

static double run(const probe *p, const char *output)
{
    must(p->t, rt_session_run(p->s, "train", p->in, p->inputs, p->t->d));
    return *(const double *)rt_session_output(p->s, output)->data;
}

/* The loss with x[i] = value; `storage` is the number of the parameter, -1 for an input. */
static double loss_at(const probe *p, double *x, double value, int storage)
{
    rt_tensor v;
    *x = value;
    if (storage >= 0) {
        must(p->t, rt_session_read(p->s, storage, p->t->d, &v));
        must(p->t, rt_session_write(p->s, storage, v.data, p->t->d));
    }
    return run(p, "loss");
}

static double difference_quotient(const probe *p, double *x, int storage)
{
    const double old = *x, h = 6e-6 * fmax(1, fabs(old));
    const double up = loss_at(p, x, old + h, storage), down = loss_at(p, x, old - h, storage);
    loss_at(p, x, old, storage);
    return (up - down) / (2 * h);
}

/* Compares the gradient in output `prefix`NAME of one tensor. */
static void compare(const probe *p, const char *prefix, const rt_tensor *v, int storage)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, v->name);
    run(p, "loss");
    const rt_tensor *d = rt_session_output(p->s, name);
    assert_non_null(d);
    double *analytic = calloc(count(v), sizeof *analytic);
    memcpy(analytic, d->data, count(v) * sizeof *analytic);
    for (size_t i = 0; i < count(v); i++) {
        const double a = analytic[i], n = difference_quotient(p, (double *)v->data + i, storage);
        if (!(fabs(a - n) <= 1e-8 + 1e-5 * fmax(fabs(a), fabs(n))))
            fail_msg("%s, %s[%zu]: %.9g, numeric %.9g", p->subject->name, name, i, a, n);
    }
    free(analytic);
}

static void test_differences(void **state)
{
    for (size_t k = 0; k < sizeof subjects / sizeof *subjects; k++) {
        probe p = open_probe(*state, &subjects[k], subjects[k].penalty);
        for (int i = 0; i < rt_session_storage_count(p.s); i++) {
            rt_tensor v;
            ir_storage_kind kind;
            rt_session_storage_at(p.s, i, &v, &kind);
            if (kind != IR_PARAM) continue;
            must(p.t, rt_session_read(p.s, i, p.t->d, &v));
            compare(&p, "grad/", &v, i);
        }
        if (p.in[0].dtype == IR_f64) compare(&p, "gradin/", &p.in[0], -1);
        close_probe(&p);
    }
}

/* The sum of the squares of the gradients that the penalty is about. */
static double squares_of(const probe *p)
{
    const ir_graph *g = ir_graph_by_role(p->m, IR_GRAPH_train);
    const char *glob = strstr(p->subject->penalty, "params=");
    const bool params = strstr(p->subject->penalty, "params") != NULL;
    double squares = 0;
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        if (n->role != (params ? IR_OUTPUT_gradient : IR_OUTPUT_input_gradient)) continue;
        if (params && glob && strncmp(n->of->name, glob + 7, strcspn(glob + 7, ",*")) != 0) continue;
        const rt_tensor *d = rt_session_output(p->s, ir_output_name(n));
        for (size_t i = 0; i < count(d); i++) squares += ((double *)d->data)[i] * ((double *)d->data)[i];
    }
    return squares;
}

static void test_value(void **state)
{
    for (size_t k = 0; k < sizeof subjects / sizeof *subjects; k++) {
        const struct subject *s = &subjects[k];
        probe plain = open_probe(*state, s, NULL), penalized = open_probe(*state, s, s->penalty);
        const double loss = run(&plain, "loss"), norm = sqrt(squares_of(&plain));
        const double expected = s->weight * (s->target < 0 ? norm : (norm - s->target) * (norm - s->target));
        if (!(norm > 1e-3)) fail_msg("%s: the norm is %g", s->name, norm);
        assert_true(fabs(run(&penalized, "penalty") - expected) <= 1e-12 * (1 + expected));
        assert_true(fabs(run(&penalized, "loss") - (loss + expected)) <= 1e-12 * (1 + loss + expected));
        close_probe(&plain);
        close_probe(&penalized);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_differences, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_value, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
