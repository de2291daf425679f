/* emit_own.c - operators of our own domain, for the nodes of a training step that no operator of ONNX expresses
 * exactly. Type, operands, results and attributes are those of the op table. */
#include "frontend/emit/emit.h"

/* ---- attributes ------------------------------------------------------------------------------ */

/* Sizes that depend on the inputs are texts, as in types. */
static void put_dims(emit_op *op, const char *name, const ir_attr *dims)
{
    emitter *e = op->e;
    const int count = dims->list.count;
    const char **texts = arena_array(e->arena, (size_t)count + 1, sizeof *texts);
    bool symbolic = false;
    for (int i = 0; i < count; i++) {
        symbolic |= ir_dim_is_symbolic(dims->list.items[i]);
        texts[i] = ir_dim_print(e->module->dims, dims->list.items[i], e->arena);
    }
    if (symbolic) emit_texts(op, name, texts, count);
    else emit_ints(op, name, dims->list.items, count);
}

static void put_fields(emit_op *op, const ir_attr *fields)
{
    for (int i = 0; i < fields->fields.count; i++) {
        const ir_field *f = &fields->fields.items[i];
        double *numbers = arena_array(op->e->arena, (size_t)f->count + 1, sizeof *numbers);
        for (int k = 0; f->kind == 'F' && k < f->count; k++) numbers[k] = (double)f->floats[k];
        switch (f->kind) {
        case 'i': emit_int(op, f->name, f->i); break;
        case 'f': emit_float(op, f->name, f->f); break;
        case 's': emit_text(op, f->name, f->s); break;
        case 'I': emit_ints(op, f->name, f->ints, f->count); break;
        default: emit_floats(op, f->name, numbers, f->count);
        }
    }
}

static void put_attribute(emit_op *op, const ir_slot *slot, const ir_attr *value)
{
    switch (slot->kind) {
    case IR_SLOT_FLOAT: emit_float(op, slot->name, value->f); break;
    case IR_SLOT_DOUBLE: emit_double(op, slot->name, value->f); break;
    case IR_SLOT_DTYPE:
        if (value->dtype != IR_NO_DTYPE) emit_text(op, slot->name, ir_dtype_name(value->dtype));
        break;
    case IR_SLOT_STR:
        if (*value->s) emit_text(op, slot->name, value->s);
        break;
    case IR_SLOT_ONE_OF: emit_text(op, slot->name, slot->words[value->i]); break;
    case IR_SLOT_INTS: emit_ints(op, slot->name, value->list.items, value->list.count); break;
    case IR_SLOT_DIMS: put_dims(op, slot->name, value); break;
    case IR_SLOT_FIELDS: put_fields(op, value); break;
    default: emit_int(op, slot->name, value->i);
    }
}

/* ---- the rule -------------------------------------------------------------------------------- */

/* Those of the operator; its subgraphs read the others by name. */
static void put_operands(emit_op *op)
{
    int count = ir_declared_operands(op->n);
    while (count && !ir_in(op->n, count - 1)) count--;
    for (int i = 0; i < count; i++) emit_operand(op, i);
}

static void put_results(emit_op *op)
{
    int count = op->n->n_out;
    while (count && !ir_value_used(op->n->out[count - 1])) count--;
    for (int i = 0; i < count; i++) emit_result(op, i, op->n->out[i]->type.dtype);
}

void emit_own(emitter *e, const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    const bool ordered = n->layout.marks != NULL;
    emit_op op = emit_begin(e, n, info->name);
    op.domain = EMIT_OWN_DOMAIN;
    if (ordered) emit_layout_operands(&op);
    else put_operands(&op);
    for (int i = 0; i < info->n_attr; i++) put_attribute(&op, &info->attr[i], &n->attr[i]);
    for (int i = 0; i < n->n_regions; i++) emit_region(e, n, &n->regions[i], &op.attributes);
    if (ordered) emit_layout_results(&op);
    else put_results(&op);
    emit_end(&op);
}
