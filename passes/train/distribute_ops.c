/* distribute_ops.c - making the ops that reach the other ranks. */
#include "passes/train/distribute.h"

ir_value *distribute_number(ir_builder *b, enum ir_words_rank_number number)
{
    ir_node *n = ir_new(b, IR_OP_rank_number, 0);
    ir_set_int(n, IR_ATTR(rank_number, number), number);
    return ir_done(b, n);
}

bool distribute_reduce(ir_builder *b, ir_value **values, int n, enum ir_words_reduced by, ir_dtype wire, bool tree)
{
    ir_node *node = ir_new_array(b, IR_OP_all_reduce, n, values, n);
    if (!node) return false;
    ir_set_int(node, IR_ATTR(all_reduce, by), by);
    ir_set_bool(node, IR_ATTR(all_reduce, tree), tree);
    ir_set_dtype(node, IR_ATTR(all_reduce, wire), wire);
    if (!ir_done_all(b, node)) return false;
    for (int i = 0; i < n; i++) {
        ir_value_rename(node->out[i], arena_printf(b->graph->module->arena, "%s.all", values[i]->name));
        values[i] = node->out[i];
    }
    return true;
}
