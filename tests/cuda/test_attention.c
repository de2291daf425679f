/* test_attention.c - networks with attention train on the CUDA backend as on the CPU, within rounding, in f32, f16 and bf16, fused
 * and as separate ops. */
#include "tests/compile.h"
#include "tests/cuda/double/double.h"
#include "tests/train/numbers.h"

#include <math.h>

enum { STEPS = 3, MAX_PARAMS = 16, MAX_INPUTS = 3, MAX_ELEMENTS = 1024 };

#define PARAMS(k) \
    "ampc-ir 3\nparam @w : f32[16,16] = zero\nparam @wo : f32[16,16] = zero\n" \
    "param @wq : f32[16,16] = zero\nparam @wk : f32[16," #k "] = zero\nparam @wv : f32[16," #k "] = zero\n" \
    "param @bq : f32[16] = zero\nparam @bk : f32[" #k "] = zero\nparam @bv : f32[" #k "] = zero\n" \
    "graph @forward(@x : f32[2,24,16]"
#define HIDDEN ") as forward {\n  %h = matmul @x, @w : f32[2,24,16] !MatMul \"h\"\n"
#define PROJECTION(p, x, n) \
    "  %" #p " = matmul " x ", @w" #p " : f32[2,24," #n "] !MatMul \"" #p "\"\n" \
    "  %a" #p " = add %" #p ", @b" #p " : f32[2,24," #n "] !Add \"a" #p "\"\n"
#define HEADS(p, heads) \
    "  %r" #p " = reshape %a" #p " {shape=[2,24," #heads ",8]} : f32[2,24," #heads ",8] !Reshape \"r" #p "\"\n" \
    "  %t" #p " = transpose %r" #p " {perm=[0,2,1,3]} : f32[2," #heads ",24,8] !Transpose \"t" #p "\"\n"
#define ATTENTION(mask, causal) \
    "  %y, %lse = attention %tq, %tk, %tv, " mask " {scale=0.4, causal=" causal "} : f32[2,2,24,8], f32[2,2,24,2] " \
    "!Attention \"y\"\n" \
    "  %yt = transpose %y {perm=[0,2,1,3]} : f32[2,24,2,8] !Transpose \"yt\"\n" \
    "  %yr = reshape %yt {shape=[2,24,16]} : f32[2,24,16] !Reshape \"yr\"\n" \
    "  %o = matmul %yr, @wo : f32[2,24,16] !MatMul \"o\"\n" \
    "  %s = add %h, %o : f32[2,24,16] !Add \"s\"\n" \
    "  output \"s\" = %s\n}\n"

static const struct net {
    const char *name, *text;
} nets[] = {
    {"separate, with a mask", PARAMS(16) ", @m : f32[2,1,1,24]" HIDDEN PROJECTION(q, "%h", 16) PROJECTION(k, "%h", 16)
                                  PROJECTION(v, "%h", 16) HEADS(q, 2) HEADS(k, 2) HEADS(v, 2) ATTENTION("@m", "false")},
    {"grouped, causal", PARAMS(8) HIDDEN PROJECTION(q, "%h", 16) PROJECTION(k, "%h", 8) PROJECTION(v, "%h", 8)
                            HEADS(q, 2) HEADS(k, 1) HEADS(v, 1) ATTENTION("_", "true")},
    {"keys and values of another operand",
     PARAMS(16) ", @z : f32[2,24,16]" HIDDEN "  %e = tanh @z : f32[2,24,16] !Tanh \"e\"\n" PROJECTION(q, "%h", 16)
         PROJECTION(k, "%e", 16) PROJECTION(v, "%e", 16) HEADS(q, 2) HEADS(k, 2) HEADS(v, 2) ATTENTION("_", "false")},
    {"packed, causal",
     "ampc-ir 3\nparam @w : f32[16,16] = zero\nparam @wo : f32[16,16] = zero\nparam @wp : f32[16,48] = zero\n"
     "param @bp : f32[48] = zero\ngraph @forward(@x : f32[2,24,16]" HIDDEN PROJECTION(
         p, "%h",
         48) "  %aq, %ak, %av = split %ap {axis=2, sizes=[16,16,16]} : f32[2,24,16], f32[2,24,16], f32[2,24,16] "
             "!Split \"split\"\n" HEADS(q, 2) HEADS(k, 2) HEADS(v, 2) ATTENTION("_", "true")}};

/* How far training moves each parameter. */
typedef struct outcome {
    const char *name[MAX_PARAMS];
    double values[MAX_PARAMS][MAX_ELEMENTS];
    size_t count[MAX_PARAMS];
    int n;
} outcome;

static ir_module *compiled(scratch *t, const struct net *net, pass_level level, ir_dtype low)
{
    compile_options o = compile_options_default();
    ir_module *m;
    o.level = level;
    o.low = low;
    o.loss = "mse";
    o.optimizer = "momentum,lr=0.5";
    o.init_scale = 64;
    must(t, ir_parse(net->text, strlen(net->text), "net.ir", t->d, &m));
    must(t, test_compile(m, &o, t->d));
    return m;
}

/* Adds `sign` times the parameters. */
static void add_parameters(scratch *t, rt_session *s, double sign, outcome *o)
{
    o->n = 0;
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor v;
        ir_storage_kind kind;
        rt_session_storage_at(s, i, &v, &kind);
        if (kind != IR_PARAM) continue;
        must(t, rt_session_read(s, i, t->d, &v));
        assert_true(o->n < MAX_PARAMS && count(&v) <= MAX_ELEMENTS);
        o->name[o->n] = v.name;
        o->count[o->n] = count(&v);
        for (size_t k = 0; k < count(&v); k++) o->values[o->n][k] += sign * ((const float *)v.data)[k];
        o->n++;
    }
}

static void train(scratch *t, const char *device, bool no_fuse, const ir_module *m, outcome *o)
{
    const rt_session_options options = {.device = device, .threads = 1, .no_tune = true, .no_fuse = no_fuse};
    rt_tensor in[MAX_INPUTS];
    rt_session *s;
    const int inputs = make_inputs(ir_graph_by_role(m, IR_GRAPH_train_step), in);
    *o = (outcome){.n = 0};
    must(t, rt_session_open(m, &options, t->d, &s));
    set_parameters(t, s);
    add_parameters(t, s, -1, o);
    for (int i = 0; i < STEPS; i++) must(t, rt_session_run(s, "train_step", in, inputs, t->d));
    add_parameters(t, s, 1, o);
    rt_session_close(s);
    for (int i = 0; i < inputs; i++) free(in[i].data);
}

/* Within `bound` of the length of the vector, or of 0.5: the gradient of a bias of keys is zero but for rounding. */
static void compare(const char *net, const char *what, const outcome *a, const outcome *b, double bound)
{
    assert_int_equal(a->n, b->n);
    for (int k = 0; k < a->n; k++) {
        double difference = 0, norm = 0;
        for (size_t i = 0; i < a->count[k]; i++) {
            difference += pow(a->values[k][i] - b->values[k][i], 2);
            norm += pow(a->values[k][i], 2);
        }
        if (!(sqrt(difference) <= bound * fmax(sqrt(norm), 0.5)))
            fail_msg("%s, @%s, %s: distance %.3g of %.3g", net, a->name[k], what, sqrt(difference), sqrt(norm));
    }
}

TEST_SCRATCH(devices_agree)
{
    static const struct {
        pass_level level;
        ir_dtype low;
        double bound;
    } types[] = {{PASS_O0, IR_f16, 1e-5}, {PASS_O1, IR_f16, 4e-3}, {PASS_O1, IR_bf16, 3e-2}};
    static outcome cpu, cuda;
    for (size_t k = 0; k < 3 * (sizeof nets / sizeof *nets); k++) {
        const struct net *net = &nets[k / 3];
        ir_module *m = compiled(t, net, types[k % 3].level, types[k % 3].low);
        train(t, "cpu", false, m, &cpu);
        train(t, "cuda", false, m, &cuda);
        compare(net->name, "on cuda", &cpu, &cuda, types[k % 3].bound);
        if (types[k % 3].low == IR_bf16) { /* separate ops are slow to simulate */
            train(t, "cuda", true, m, &cuda);
            compare(net->name, "on cuda, not fused", &cpu, &cuda, types[k % 3].bound);
        }
        ir_module_free(m);
    }
}

int main(void)
{
    double_install();
    return test_run();
}
