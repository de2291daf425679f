/* test_padding.c - networks whose classes are padded train on the CUDA backend as without padding: losses and weights. */
#include "tests/compile.h"
#include "tests/cuda/double/double.h"
#include "tests/cuda/compared.h"

enum { CLASSES = 13 };

static const struct net {
    const char *name, *loss, *text;
} nets[] = {{"a bias of the product", "ce",
             "ampc-ir 3\nparam @h : f32[16,16] = zero\nparam @w : f32[16,13] = zero\nparam @b : f32[13] = zero\n"
             "graph @forward(@x : f32[6,16]) as forward {\n"
             "  %h = matmul @x, @h : f32[6,16] !MatMul \"h\"\n  %r = relu %h : f32[6,16] !Relu \"r\"\n"
             "  %y = matmul %r, @w, @b : f32[6,13] !Gemm \"y\"\n  output \"y\" = %y\n}\n"},
            {"a bias apart, reshaped scores", "ce,axis=-1,ignore_index=1",
             "ampc-ir 3\nparam @h : f32[16,16] = zero\nparam @w : f32[13,16] = zero\nparam @b : f32[13] = zero\n"
             "graph @forward(@x : f32[2,5,16]) as forward {\n"
             "  %h = matmul @x, @h : f32[2,5,16] !MatMul \"h\"\n  %r = tanh %h : f32[2,5,16] !Tanh \"r\"\n"
             "  %m = matmul %r, @w {trans_b=true} : f32[2,5,13] !MatMul \"m\"\n"
             "  %y = add @b, %m : f32[2,5,13] !Add \"y\"\n  output \"y\" = %y\n}\n"},
            {"tied with an embedding", "ce,axis=-1",
             "ampc-ir 3\nparam @h : f32[16,16] = zero\nparam @e : f32[13,16] = zero\n"
             "graph @forward(@x : i64[2,5]) as forward {\n"
             "  %g = gather @e, @x : f32[2,5,16] !Gather \"g\"\n  %h = matmul %g, @h : f32[2,5,16] !MatMul \"h\"\n"
             "  %r = tanh %h : f32[2,5,16] !Tanh \"r\"\n"
             "  %y = matmul %r, @e {trans_b=true} : f32[2,5,13] !MatMul \"y\"\n  output \"y\" = %y\n}\n"}};

static bool is_padded(const ir_module *m)
{
    for (const ir_node *n = ir_graph_by_role(m, IR_GRAPH_train_step)->first; n; n = n->next)
        if (n->op == IR_OP_softmax_cross_entropy) return n->attr[IR_ATTR(softmax_cross_entropy, classes)].i == CLASSES;
    return false;
}

static ir_module *compiled(scratch *t, const struct net *net, ir_dtype low, bool pad)
{
    compile_options o = compile_options_default();
    ir_module *m;
    o.level = PASS_O1;
    o.low = low;
    o.loss = net->loss;
    o.optimizer = "momentum,lr=0.5";
    o.init_scale = 64;
    o.pad = pad;
    must(t, ir_parse(net->text, strlen(net->text), "net.ir", t->d, &m));
    must(t, test_compile(m, &o, t->d));
    assert_int_equal(is_padded(m), pad);
    return m;
}

/* Sums of products may have another order. */
TEST_SCRATCH(padding_changes_no_training)
{
    static const struct {
        ir_dtype low;
        double bound;
    } types[] = {{IR_f16, 5e-4}, {IR_bf16, 4e-3}};
    static outcome plain, padded;
    for (size_t k = 0; k < 2 * (sizeof nets / sizeof *nets); k++) {
        const struct net *net = &nets[k / 2];
        ir_module *m = compiled(t, net, types[k % 2].low, false), *with = compiled(t, net, types[k % 2].low, true);
        train(t, "cuda", false, m, &plain);
        train(t, "cuda", false, with, &padded);
        compare(net->name, "padded", &plain, &padded, types[k % 2].bound);
        train(t, "cuda", true, with, &padded);
        compare(net->name, "padded, not fused", &plain, &padded, types[k % 2].bound);
        ir_module_free(m);
        ir_module_free(with);
    }
}

int main(void)
{
    double_install();
    return test_run();
}
