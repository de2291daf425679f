/* lower_pointwise.c - elementwise operators: arithmetic, comparison, logic, Clip, Where, casts. */
#include "frontend/lower/lower.h"

#include <string.h>

void onnx_lower_unary(onnx_node *n) { n->out[0] = ir_unary(n->b, (ir_op)n->arg, n->in[0]); }

void onnx_lower_gelu(onnx_node *n)
{
    const char *form = onnx_text(n, "approximate", "none");
    bool tanh_form = strcmp(form, "tanh") == 0;
    if (!tanh_form && strcmp(form, "none") != 0) onnx_reject(n, "approximate is '%s', not none or tanh", form);
    ir_node *node = ir_new(n->b, IR_OP_gelu, 1, n->in[0]);
    ir_set_bool(node, IR_ATTR(gelu, tanh), tanh_form);
    n->out[0] = ir_done(n->b, node);
}

void onnx_lower_binary(onnx_node *n) { n->out[0] = ir_binary(n->b, (ir_op)n->arg, n->in[0], n->in[1]); }

void onnx_lower_chain(onnx_node *n)
{
    n->out[0] = n->in[0];
    for (int i = 1; i < n->n_in; i++) n->out[0] = ir_binary(n->b, (ir_op)n->arg, n->out[0], n->in[i]);
}

void onnx_lower_mod(onnx_node *n)
{
    bool fmod_form = onnx_bool(n, "fmod", false);
    if (!fmod_form && ir_dtype_is_float(n->in[0]->type.dtype) && n->opset < 28)
        onnx_reject(n, "before opset 28, fmod must be 1 for floating point operands");
    ir_node *node = ir_new(n->b, IR_OP_mod, 2, n->in[0], n->in[1]);
    ir_set_bool(node, IR_ATTR(mod, fmod), fmod_form);
    n->out[0] = ir_done(n->b, node);
}

/* The result has the type of the base. An integer base with a float exponent is computed in f64. */
void onnx_lower_pow(onnx_node *n)
{
    ir_dtype base = n->in[0]->type.dtype, exponent = n->in[1]->type.dtype;
    ir_dtype inside = !ir_dtype_is_float(base) && ir_dtype_is_float(exponent) ? IR_f64 : base;
    ir_value *x = ir_cast(n->b, n->in[0], inside), *y = ir_cast(n->b, n->in[1], inside);
    n->out[0] = ir_cast(n->b, ir_binary(n->b, IR_OP_pow, x, y), base);
}

/* ---- Clip ------------------------------------------------------------------------------------ */

void onnx_lower_clip(onnx_node *n)
{
    ir_value *lo = onnx_scalar_of(n, onnx_in(n, 1)), *hi = onnx_scalar_of(n, onnx_in(n, 2));
    if (n->failed) return;
    n->out[0] = lo || hi ? ir_done(n->b, ir_new(n->b, IR_OP_clip, 3, n->in[0], lo, hi)) : n->in[0];
}

void onnx_lower_clip_attribute(onnx_node *n)
{
    ir_value *lo = NULL, *hi = NULL;
    if (onnx_has(n, "min")) lo = ir_scalar_like(n->b, n->in[0], onnx_float(n, "min", 0));
    if (onnx_has(n, "max")) hi = ir_scalar_like(n->b, n->in[0], onnx_float(n, "max", 0));
    n->out[0] = lo || hi ? ir_done(n->b, ir_new(n->b, IR_OP_clip, 3, n->in[0], lo, hi)) : n->in[0];
}

void onnx_lower_where(onnx_node *n)
{
    n->out[0] = ir_done(n->b, ir_new(n->b, IR_OP_where, 3, n->in[0], n->in[1], n->in[2]));
}

/* ---- casts ----------------------------------------------------------------------------------- */

/* A cast to the type that its operand already has tells mixed precision which type to use, so it is kept. */
static ir_value *user_cast(onnx_node *n, ir_dtype to)
{
    ir_value *x = n->in[0];
    if (x->type.dtype != to || x->kind == IR_VALUE_STORAGE || !ir_dtype_is_float(to)) return ir_cast(n->b, x, to);
    ir_node *cast = ir_new(n->b, IR_OP_cast, 1, x);
    ir_set_dtype(cast, IR_ATTR(cast, to), to);
    return ir_done(n->b, cast);
}

void onnx_lower_cast(onnx_node *n)
{
    if (!onnx_has(n, "to")) onnx_reject(n, "attribute 'to' is missing");
    int64_t to = onnx_int(n, "to", ONNX_float32);
    onnx_ignore(n, "saturate");   /* both attributes concern 8-bit floats, */
    onnx_ignore(n, "round_mode"); /* which are not supported anyway */
    if (onnx_type_dtype(to) == IR_NO_DTYPE) onnx_refuse(n, "cast to %s is not supported", onnx_type_name(to));
    else n->out[0] = user_cast(n, onnx_type_dtype(to));
}

void onnx_lower_cast_like(onnx_node *n)
{
    onnx_ignore(n, "saturate");
    onnx_ignore(n, "round_mode");
    n->out[0] = user_cast(n, n->in[1]->type.dtype);
}
