/* emit_pointwise.c - elementwise ops that need more than their operator: Gelu, BitShift, Clip, Cast. */
#include "frontend/emit/emit.h"

enum { GELU_SINCE = 20 };

static const char *number(emitter *e, ir_dtype t, double v)
{
    char bytes[8];
    ir_type scalar = ir_type_scalar(t);
    ir_store_f64(t, bytes, v);
    return emit_constant(e, &scalar, bytes);
}

/* erf(x / sqrt(2)), or tanh(x * sqrt(2/pi) * (1 + 0.044715 x^2)). */
static const char *gelu_sign(emitter *e, const ir_node *n, const char *x, ir_dtype t)
{
    if (!n->attr[IR_ATTR(gelu, tanh)].i)
        return emit_call(e, n, "Erf", emit_call(e, n, "Div", x, number(e, t, 1.4142135623730951)), NULL);
    const char *weight = number(e, t, 0.044715);
    const char *square = emit_call(e, n, "Mul", emit_call(e, n, "Mul", x, x), weight);
    const char *slope = emit_call(e, n, "Add", square, number(e, t, 1));
    const char *line = emit_call(e, n, "Mul", x, number(e, t, 0.7978845608028654));
    return emit_call(e, n, "Tanh", emit_call(e, n, "Mul", line, slope), NULL);
}

/* Expands Gelu for opsets without it. Overflow cannot reach the result: x is halved first, and tanh maps an infinite
 * argument to 1 or -1. */
static void gelu_parts(emitter *e, const ir_node *n)
{
    const char *x = emit_value(e, ir_in(n, 0));
    ir_dtype t = ir_in(n, 0)->type.dtype;
    const char *one = number(e, t, 1), *share = emit_call(e, n, "Add", gelu_sign(e, n, x, t), one),
               *half = emit_call(e, n, "Mul", x, number(e, t, 0.5));
    emit_op op = emit_begin(e, n, "Mul");
    emit_in(&op, half);
    emit_in(&op, share);
    emit_finish(&op);
}

void emit_gelu(emitter *e, const ir_node *n)
{
    if (e->opset < GELU_SINCE) {
        gelu_parts(e, n);
        return;
    }
    emit_op op = emit_begin(e, n, "Gelu");
    emit_operands(&op);
    if (n->attr[IR_ATTR(gelu, tanh)].i) emit_text(&op, "approximate", "tanh");
    emit_finish(&op);
}

void emit_shift(emitter *e, const ir_node *n)
{
    emit_op op = emit_begin(e, n, "BitShift");
    emit_operands(&op);
    emit_text(&op, "direction", n->attr[IR_ATTR(shift, right)].i ? "RIGHT" : "LEFT");
    emit_finish(&op);
}

/* ONNX requires scalar bounds; the IR also allows other tensors with one element. */
static const char *bound(emitter *e, const ir_node *n, int i)
{
    const ir_value *v = ir_in(n, i);
    if (!v) return NULL;
    const char *name = emit_value(e, v);
    return v->type.rank ? emit_call(e, n, "Reshape", name, emit_i64s(e, NULL, 0)) : name;
}

void emit_clip(emitter *e, const ir_node *n)
{
    const char *lo = bound(e, n, IR_IN(clip, lo)), *hi = bound(e, n, IR_IN(clip, hi));
    emit_op op = emit_begin(e, n, "Clip");
    emit_operand(&op, 0);
    if (lo || hi) emit_in(&op, lo);
    if (hi) emit_in(&op, hi);
    emit_finish(&op);
}

/* A cast of a weight that a pass inserted is merged into the initializer; casts from the model are kept. */
void emit_cast(emitter *e, const ir_node *n)
{
    const ir_value *v = ir_in(n, 0);
    ir_dtype to = n->out[0]->type.dtype;
    if (!n->loc.op && v->kind == IR_VALUE_STORAGE && !e->own) {
        emit_define(e, n, 0, emit_value_as(e, v, to), to);
        return;
    }
    emit_op op = emit_begin(e, n, "Cast");
    emit_operand(&op, 0);
    emit_int(&op, "to", onnx_type_of(to));
    emit_finish(&op);
}
