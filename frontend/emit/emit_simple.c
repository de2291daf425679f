/* emit_simple.c - what most rules share: the attributes of the rows ATTR and OPT, and the rules `simple` and `none`. */
#include "frontend/emit/emit.h"

#include <string.h>

/* ---- attributes ------------------------------------------------------------------------------ */

typedef struct emit_attribute {
    ir_op op;
    int attr;
    const char *name;
    bool optional;
    int since;
} emit_attribute;

static const emit_attribute attributes[] = {
#define ATTR(op, attribute, name) {IR_OP_##op, IR_ATTR(op, attribute), #name, false, 0},
#define OPT(op, attribute, name, since) {IR_OP_##op, IR_ATTR(op, attribute), #name, true, since},
#include "frontend/onnx.def"
};

/* The default of an optional list is 1 for each axis. */
static bool is_default(const ir_slot *slot, const ir_attr *value)
{
    if (slot->kind != IR_SLOT_INTS) return ir_attr_equal(slot->kind, value, &slot->initial);
    for (int i = 0; i < value->list.count; i++)
        if (value->list.items[i] != 1) return false;
    return true;
}

static void put_attribute(emit_op *op, const emit_attribute *a)
{
    const ir_slot *slot = &ir_op_get(op->n->op)->attr[a->attr];
    const ir_attr *value = &op->n->attr[a->attr];
    if (a->optional && is_default(slot, value)) return;
    emit_need(op->e, a->since);
    switch (slot->kind) {
    case IR_SLOT_FLOAT: emit_float(op, a->name, value->f); break;
    case IR_SLOT_STR: emit_text(op, a->name, value->s); break;
    case IR_SLOT_ONE_OF: emit_text(op, a->name, slot->words[value->i]); break;
    case IR_SLOT_INTS: emit_ints(op, a->name, value->list.items, value->list.count); break;
    default: emit_int(op, a->name, value->i);
    }
}

void emit_attributes(emit_op *op)
{
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].op == op->n->op) put_attribute(op, &attributes[i]);
}

void emit_finish(emit_op *op)
{
    emit_attributes(op);
    emit_results(op);
    emit_end(op);
}

/* ---- rules ----------------------------------------------------------------------------------- */

void emit_none(emitter *e, const ir_node *n)
{
    const bool drops = ir_op_has(n->op, IR_DRAWS) && n->loc.op;
    (drops ? emit_refuse_training : emit_refuse)(e, n, "'%s' is a training op, which ONNX cannot express",
                                                 ir_op_get(n->op)->name);
}

void emit_sized(emitter *e, const ir_node *n)
{
    emit_refuse(e, n, "'%s' cannot be exported: convert the model file, which keeps the operator",
                ir_op_get(n->op)->name);
}

/* The operator that the model had, if it is another name of the usual one. */
static const char *operator_of(const emitter *e, const ir_node *n)
{
    static const struct {
        ir_op op;
        const char *name;
    } aliases[] = {
#define ALIAS(onnx, op) {IR_OP_##op, #onnx},
#include "frontend/onnx.def"
    };
    for (size_t i = 0; n->loc.op && i < sizeof aliases / sizeof *aliases; i++)
        if (aliases[i].op == n->op && strcmp(aliases[i].name, n->loc.op) == 0) return n->loc.op;
    return e->rows[n->op].onnx->name;
}

void emit_simple(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, operator_of(e, n));
    emit_operands(&op);
    emit_finish(&op);
}
