/* test_fold.c - what is known to be constant, and the commit of constants; tests/expect/ir/fold.rows has the values of
 * every op. */
#include "ir_graphs.h"

static ir_node *node_of(ir_value *v) { return v->def; }

TEST_GRAPH(test_constants_are_known)
{
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_const_map *k = ir_const_map_new(module->arena, g);
    ir_type type = ir_type_make(IR_i32, 1, (int64_t[]){2});
    ir_value *c = ir_constant(&b, "c", &type, (int32_t[]){5, -1});
    const ir_const_value *known = ir_const_get(k, c);
    assert_int_equal(known->count, 2);
    assert_true(known->ints[0] == 5 && known->ints[1] == -1);
    assert_ptr_equal(ir_const_get(k, c), known);
    assert_true(ir_const_get(k, ir_scalar(&b, IR_f16, 0.5))->floats[0] == 0.5);
    ir_storage *zero = ir_storage_new(module, IR_CONST, "z", &type);
    known = ir_const_get(k, ir_graph_storage(g, zero));
    assert_true(known->count == 2 && known->ints[0] == 0 && known->ints[1] == 0);
    ir_storage *param = ir_storage_new(module, IR_PARAM, "p", &type);
    ir_storage_set(module, param, (int32_t[]){1, 2});
    assert_null(ir_const_get(k, ir_graph_storage(g, param)));
    assert_null(ir_const_get(k, ir_graph_input(g, "x", &type)));
    ir_storage *file = ir_storage_new(module, IR_CONST, "f", &type);
    file->data.kind = IR_DATA_FILE;
    assert_null(ir_const_get(k, ir_graph_storage(g, file)));
    for (int i = 0; i < 300; i++) { /* values created after the map */
        ir_value *v = ir_scalar(&b, IR_i64, i);
        assert_int_equal(ir_const_get(k, v)->ints[0], i);
    }
}

TEST_GRAPH(test_limit)
{
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_const_map *k = ir_const_map_new(module->arena, g);
    ir_value *wide = ir_expand(&b, ir_scalar(&b, IR_f32, 1), (int64_t[]){10}, 1);
    assert_false(ir_fold(k, node_of(wide), 9));
    assert_true(ir_fold(k, node_of(wide), 10));
    ir_value *sum = ir_reduce_sum(&b, wide, (int64_t[]){0}, 1, false);
    assert_false(ir_fold(k, node_of(sum), 9));
    assert_true(ir_fold(k, node_of(sum), 10));
}

static ir_value *fold_all(ir_const_map *k, ir_graph *g)
{
    ir_value *last = NULL;
    for (ir_node *n = g->first; n; n = n->next)
        if (n->n_out && ir_fold(k, n, 100)) last = n->out[0];
    return last;
}

static size_t count_nodes(const ir_graph *g)
{
    size_t count = 0;
    for (const ir_node *n = g->first; n; n = n->next) count++;
    return count;
}

/* Known numbers become constants, the nodes that computed them are removed, unknown values stay. */
TEST_GRAPH(test_commit_constant)
{
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_type type = ir_type_make(IR_f32, 1, (int64_t[]){ir_dim_symbol(module->dims, "N")});
    ir_value *x = ir_graph_input(g, "x", &type);
    ir_value *two = ir_binary(&b, IR_OP_add, ir_scalar(&b, IR_f32, 1), ir_scalar(&b, IR_f32, 1));
    ir_value *y = ir_binary(&b, IR_OP_mul, x, ir_unary(&b, IR_OP_neg, two));
    ir_value_rename(node_of(y)->in[1].value, "factor");
    ir_output(&b, "y", y);
    ir_const_map *k = ir_const_map_new(module->arena, g);
    fold_all(k, g);
    ir_fold_commit(k, g, messages);
    assert_int_equal(count_nodes(g), 2);
    const ir_value *factor = ir_in(node_of(y), 1);
    assert_int_equal(factor->kind, IR_VALUE_STORAGE);
    assert_string_equal(factor->storage->name, "factor");
    assert_int_equal(factor->storage->kind, IR_CONST);
    assert_true(ir_load_f64(IR_f32, factor->storage->data.bytes) == -2);
}

/* Symbolic values become a dims node with the type of the value it replaces. */
TEST_GRAPH(test_commit_symbolic)
{
    ir_graph *g = ir_graph_new(module, "g");
    ir_builder b = ir_builder_at_end(g, messages);
    ir_node *n = ir_new(&b, IR_OP_dims, 0);
    ir_dim size = ir_dim_symbol(module->dims, "N");
    ir_set_list(n, IR_ATTR(dims, value), &size, 1);
    ir_value *v = ir_reshape(&b, ir_cast(&b, ir_done(&b, n), IR_i32), NULL, 0);
    ir_output(&b, "n", ir_binary(&b, IR_OP_mul, v, v));
    ir_const_map *k = ir_const_map_new(module->arena, g);
    fold_all(k, g);
    ir_fold_commit(k, g, messages);
    const ir_value *got = ir_in(g->last, 0);
    assert_string_equal(ir_type_print(module, &got->type, module->arena), "i32[]");
    assert_int_equal(count_nodes(g), 4); /* dims, cast, reshape, output */
    assert_string_equal(ir_dim_print(module->dims, *g->first->attr[0].list.items, module->arena), "N*N");
    for (n = g->first; n; n = n->next) assert_int_equal(ir_infer(n, messages), AMPC_OK);
    /* a dims node with a direct use is kept unchanged */
    k = ir_const_map_new(module->arena, g);
    ir_node *dims = g->first;
    assert_true(ir_fold(k, dims, 100));
    ir_fold_commit(k, g, messages);
    assert_ptr_equal(g->first, dims);
}
