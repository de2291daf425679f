/* emit_index.c - operators that address elements by coordinates: GatherElements, GatherND and their scatters. */
#include "frontend/emit/emit.h"

/* The operator with indices in the given type. */
static void emit_indexed(emitter *e, const ir_node *n, ir_dtype indices)
{
    emit_op op = emit_begin(e, n, e->rows[n->op].onnx->name);
    emit_operand(&op, 0);
    emit_in(&op, emit_value_as(e, ir_in(n, 1), indices));
    if (n->n_in > 2) emit_operand(&op, 2);
    emit_finish(&op);
}

static void need_reduction(emitter *e, int64_t reduction)
{
    enum { WITH_MAX = 18 };
    if (reduction == IR_WORD(scatter, max) || reduction == IR_WORD(scatter, min)) emit_need(e, WITH_MAX);
}

/* By element, indices may be i32. */
static ir_dtype element_indices(const ir_node *n) { return ir_in(n, 1)->type.dtype == IR_i32 ? IR_i32 : IR_i64; }

void emit_gather_elements(emitter *e, const ir_node *n) { emit_indexed(e, n, element_indices(n)); }
void emit_gather_nd(emitter *e, const ir_node *n) { emit_indexed(e, n, IR_i64); }

void emit_scatter_elements(emitter *e, const ir_node *n)
{
    need_reduction(e, n->attr[IR_ATTR(scatter_elements, reduction)].i);
    emit_indexed(e, n, element_indices(n));
}

void emit_scatter_nd(emitter *e, const ir_node *n)
{
    need_reduction(e, n->attr[IR_ATTR(scatter_nd, reduction)].i);
    if (n->attr[IR_ATTR(scatter_nd, batch)].i) emit_refuse(e, n, "ScatterND has no batch axes");
    else emit_indexed(e, n, IR_i64);
}

/* A sum of rows at a list of indices (Col2Im): added to zeros by a ScatterElements with the indices repeated. */
void emit_gather_grad(emitter *e, const ir_node *n)
{
    enum { WITH_REDUCTION = 16 };
    const ir_value *dy = ir_in(n, 0), *indices = ir_in(n, 1), *dx = ir_out(n, 0);
    const ir_attr *axis = &n->attr[IR_ATTR(gather_grad, axis)];
    if (indices->type.rank != 1) {
        emit_refuse(e, n, "'gather_grad' is a training op, which ONNX cannot express");
        return;
    }
    const int64_t zero[1] = {0};
    const ir_type scalar = ir_type_scalar(dx->type.dtype);
    int64_t column[IR_MAX_RANK];
    for (int i = 0; i < dy->type.rank; i++) column[i] = 1;
    column[axis->i < 0 ? axis->i + dy->type.rank : axis->i] = -1;
    emit_need(e, WITH_REDUCTION);
    const char *shape = emit_dims(e, n, dx->type.dims, dx->type.rank);
    const char *zeros = emit_call(e, n, "Expand", emit_constant(e, &scalar, zero), shape);
    const char *flat = emit_i64s(e, column, dy->type.rank);
    const char *list = emit_call(e, n, "Reshape", emit_value_as(e, indices, IR_i64), flat);
    const char *repeated = emit_call(e, n, "Expand", list, emit_dims(e, n, dy->type.dims, dy->type.rank));
    const char *rows = emit_value_as(e, dy, dx->type.dtype);
    emit_op op = emit_begin(e, n, "ScatterElements");
    emit_in(&op, zeros);
    emit_in(&op, repeated);
    emit_in(&op, rows);
    emit_int(&op, "axis", axis->i);
    emit_text(&op, "reduction", "add");
    emit_finish(&op);
}

void emit_bit_cast(emitter *e, const ir_node *n)
{
    enum { WITH_BIT_CAST = 26 };
    emit_need(e, WITH_BIT_CAST);
    emit_op op = emit_begin(e, n, "BitCast");
    emit_operand(&op, 0);
    emit_int(&op, "to", onnx_type_of(n->out[0]->type.dtype));
    emit_finish(&op);
}
