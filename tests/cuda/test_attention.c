/* test_attention.c - networks with attention train on the CUDA backend as on the CPU, within rounding, in f32, f16 and bf16, fused
 * and as separate ops. */
#include "tests/compile.h"
#include "tests/cuda/double/double.h"
#include "tests/cuda/compared.h"

#define PARAMS(k) "ampc-ir 3\n" STORAGE(k)
#define STORAGE(k) \
    "param @w : f32[16,16] = zero\nparam @wo : f32[16,16] = zero\n" \
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
    "!Attention \"y\"\n" RESULT
#define RESULT \
    "  %yt = transpose %y {perm=[0,2,1,3]} : f32[2,24,2,8] !Transpose \"yt\"\n" \
    "  %yr = reshape %yt {shape=[2,24,16]} : f32[2,24,16] !Reshape \"yr\"\n" \
    "  %o = matmul %yr, @wo : f32[2,24,16] !MatMul \"o\"\n" \
    "  %s = add %h, %o : f32[2,24,16] !Add \"s\"\n" \
    "  output \"s\" = %s\n}\n"

#define SPELLED_OUT \
    "  %s0 = matmul %tq, %tk {trans_b=true} : f32[2,2,24,24] !MatMul \"s0\"\n" \
    "  %s1 = mul %s0, @scale : f32[2,2,24,24] !Mul \"s1\"\n" \
    "  %p = softmax %s1 : f32[2,2,24,24] !Softmax \"p\"\n" \
    "  %d, %mask = dropout %p, @rng {ratio=0.25, stream=1} : f32[2,2,24,24], bool[2,2,24,24] !Dropout \"d\"\n" \
    "  %y = matmul %d, %tv : f32[2,2,24,8] !MatMul \"y\"\n" RESULT

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

static ir_module *compiled(scratch *t, const struct net *net, pass_level level, ir_dtype low, bool attention)
{
    compile_options o = compile_options_default();
    ir_module *m;
    o.level = level;
    o.attention = attention;
    o.low = low;
    o.loss = "mse";
    o.optimizer = "momentum,lr=0.5";
    o.init_scale = 64;
    must(t, ir_parse(net->text, strlen(net->text), "net.ir", t->d, &m));
    must(t, test_compile(m, &o, t->d));
    return m;
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
        ir_module *m = compiled(t, net, types[k % 3].level, types[k % 3].low, false);
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

/* The same probabilities are dropped if the attention is one op, in all steps. */
TEST_SCRATCH(dropout_is_that_of_separate_ops)
{
    static const struct net net = {
        "dropout", "ampc-ir 3\nstate @rng : i64[2] = zero as rng\nconst @scale : f32[] = 0.4\n" STORAGE(16)
                       HIDDEN PROJECTION(q, "%h", 16) PROJECTION(k, "%h", 16) PROJECTION(v, "%h", 16) HEADS(q, 2)
                           HEADS(k, 2) HEADS(v, 2) SPELLED_OUT};
    static outcome separate, one;
    for (int low = 0; low < 2; low++) {
        const pass_level level = low ? PASS_O1 : PASS_O0;
        const double bound = low ? 8e-3 : 1e-5; /* numbers are larger than without dropout */
        ir_module *m = compiled(t, &net, level, IR_f16, false), *fused = compiled(t, &net, level, IR_f16, true);
        train(t, "cpu", false, m, &separate);
        train(t, "cpu", false, fused, &one);
        compare(net.name, "one op", &separate, &one, bound);
        train(t, "cuda", false, fused, &one);
        compare(net.name, "one op on cuda", &separate, &one, bound);
        ir_module_free(m);
        ir_module_free(fused);
    }
}

int main(void)
{
    double_install();
    return test_run();
}
