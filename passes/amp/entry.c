/* entry.c - how the types of operands and results follow from a node's entry. Colouring, cost model, placement and cast
 * insertion have to agree on this. */
#include "ir/ops/formulas.h"
#include "passes/amp/entry.h"

const char *amp_rule_sentence(amp_rule r)
{
    static const char *const sentences[] = {
#define AMP_RULE_TEXT(name, text) text,
        AMP_RULE_MAP(AMP_RULE_TEXT)
#undef AMP_RULE_TEXT
    };
    return sentences[r];
}

bool amp_is_cast_operand(const ir_node *n, int i)
{
    const ir_value *v = ir_in(n, i);
    const ir_slot *slot = ir_op_in_slot(n->op, i, n->n_in);
    if (!v || !slot || !ir_dtype_is_float(v->type.dtype)) return false;
    if (ir_op_has(n->op, IR_DECLARED)) return ir_opaque_operand_is_float(n, i);
    return slot->group == IR_GROUP_F || slot->group == IR_GROUP_N || slot->group == IR_GROUP_T;
}

bool amp_follows_result(const ir_node *n, int i)
{
    ir_group group = ir_op_out_slot(n->op, i, n->n_out)->group;
    if (ir_op_has(n->op, IR_DECLARED)) return ir_opaque_result_is_float(n, i) || n->n_regions;
    return group == IR_GROUP_F || group == IR_GROUP_N || group == IR_GROUP_T;
}

/* Whether the op reads what it yields in f32, a state, which is never rounded. */
static bool reads_f32(ir_op op)
{
    const ir_op_info *info = ir_op_get(op);
    for (int i = 0; i < info->n_in; i++)
        if (info->in[i].group == IR_GROUP_F32) return true;
    return false;
}

bool amp_narrows_result(const ir_node *n, int i, const amp_entry *e, const amp_list *l)
{
    return ir_dtype_is_low(e->result) && e->rule != AMP_F32_COMPUTE && n->loc.op && n->out[i]->type.dtype == IR_f32 &&
           ir_op_out_slot(n->op, i, n->n_out)->group == IR_GROUP_F32 && !reads_f32(n->op) &&
           !amp_list_fp32_operands(l, n->loc.op);
}

bool amp_second_follows(const ir_node *n, const amp_entry *e, const amp_list *l)
{
    return e->rule != AMP_F32_COMPUTE && n->loc.op && !amp_list_fp32_operands(l, n->loc.op);
}

bool amp_converts(const ir_value *v)
{
    if (v->kind != IR_VALUE_STORAGE || v->storage->kind != IR_CONST) return false;
    return v->storage->data.kind == IR_DATA_INLINE || v->storage->data.kind == IR_DATA_ZERO;
}

bool amp_only_moves(const ir_node *n)
{
    return ir_op_get(ir_op_like(n->op, n->attr))->colour == IR_CLEAR && n->n_in > 0;
}
