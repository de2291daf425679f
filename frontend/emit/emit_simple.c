/* emit_simple.c - rules shared by several ops: `simple` and `none`. */
#include "frontend/emit/emit.h"

void emit_none(emitter *e, const ir_node *n)
{
    emit_refuse(e, n, "'%s' is a part of training: an ONNX model cannot hold it", ir_op_get(n->op)->name);
}

void emit_simple(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, e->rows[n->op].onnx->name);
    emit_operands(&op);
    emit_results(&op);
    emit_end(&op);
}
