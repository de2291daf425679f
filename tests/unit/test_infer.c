/* test_infer.c - inference of nodes that no text builds; tests/expect/ir/infer.rows has the results of every op. */
#include "ir_graphs.h"

static ir_node *product(void)
{
    ir_graph *g = read_graph("graph @g(@a : f32[2,3], @b : f32[3,5]) {\n%m = matmul @a, @b : f32[2,5]\n}\n");
    g->inputs.items[1]->type.dims[0] = 4;
    return g->first;
}

static void refuses(ir_node *n, const char *message)
{
    diag_clear(messages);
    assert_int_equal(ir_infer(n, messages), AMPC_REJECTED);
    if (!strstr(diag_first_error(messages), message))
        fail_msg("expected \"%s\", got \"%s\"", message, diag_first_error(messages));
}

TEST_GRAPH(test_arity)
{
    ir_node *n = read_graph("graph @g(@x : f32[2]) {\n%s = add @x, @x : f32[2]\n}\n")->first;
    n->n_in = 1;
    refuses(n, "has 1 operands, expected 2");
    n->n_in = 2;
    ir_node_set_input(n, 1, NULL);
    refuses(n, "operand b is missing");
    n->n_out = 0;
    refuses(n, "has 0 results, expected 1");
}

/* The error refers to the model's node, or to the op and value of a node that the compiler created. */
TEST_GRAPH(test_location)
{
    ir_node *n = product();
    n->loc = (ir_loc){.file = "model.onnx", .op = "MatMul", .node = "fc/MatMul"};
    refuses(n, "model.onnx: node 'fc/MatMul' (MatMul): error: inner dimensions differ: 3 and 4");
    n->loc = (ir_loc){0};
    ir_value_rename(n->out[0], "y");
    refuses(n, "'y' (matmul): error: inner dimensions differ: 3 and 4");
}

static ampc_status infer_again(ir_graph *g)
{
    for (ir_node *n = g->first; n; n = n->next) TRY(ir_infer(n, messages));
    return AMPC_OK;
}

TEST_GRAPH(test_graph)
{
    ir_graph *g = read_graph("graph @g(@x : f32[2,3]) {\n%r = relu @x : f32[2,3]\n%y = exp %r : f32[2,3]\n}\n");
    ir_value *x = g->inputs.items[0], *y = g->last->out[0];
    x->type.dims[0] = ir_dim_symbol(module->dims, "N");
    assert_int_equal(infer_again(g), AMPC_OK);
    assert_true(ir_type_equal(&y->type, &x->type));
    x->type.dtype = IR_bool;
    assert_int_equal(infer_again(g), AMPC_REJECTED);
}
