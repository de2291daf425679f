/* lower_pointwise.c - elementwise operators: arithmetic, comparison, logic, Clip, Where, casts. */
#include "frontend/lower/lower.h"

#include <string.h>

/* Attributes have the names and defaults of the operator's. */
static ir_value *apply(onnx_node *n, ir_op op, ir_value *x)
{
    const ir_op_info *info = ir_op_get(op);
    ir_node *node = ir_new(n->b, op, 1, x);
    for (int i = 0; i < info->n_attr; i++) {
        const ir_slot *slot = &info->attr[i];
        if (slot->kind == IR_SLOT_BOOL) ir_set_bool(node, i, onnx_bool(n, slot->name, slot->initial.i));
        else ir_set_float(node, i, onnx_float(n, slot->name, slot->initial.f));
    }
    return ir_done(n->b, node);
}

void onnx_lower_unary(onnx_node *n) { n->out[0] = apply(n, (ir_op)n->arg, n->in[0]); }

/* Integers are computed as floats that represent them exactly. */
void onnx_lower_shrink(onnx_node *n)
{
    ir_dtype t = n->in[0]->type.dtype, inside = ir_dtype_is_float(t) ? t : ir_dtype_size(t) < 4 ? IR_f32 : IR_f64;
    n->out[0] = ir_cast(n->b, apply(n, IR_OP_shrink, ir_cast(n->b, n->in[0], inside)), t);
}

void onnx_lower_gelu(onnx_node *n)
{
    static const char *const forms[] = {"none", "tanh", NULL};
    const bool tanh_form = onnx_word(n, "approximate", forms, 0) == 1;
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

void onnx_lower_mean(onnx_node *n)
{
    onnx_lower_chain(n);
    if (n->n_in > 1) n->out[0] = ir_binary(n->b, IR_OP_div, n->out[0], ir_scalar_like(n->b, n->in[0], n->n_in));
}

/* The slope is broadcast to the operand, not conversely. */
void onnx_lower_prelu(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type, *slope = &n->in[1]->type;
    ir_type both;
    if (!ir_broadcast(n->dims, x, slope, &both) || !ir_type_same_shape(&both, x))
        onnx_reject(n, "the slope does not broadcast to the shape of the operand");
    n->out[0] = ir_binary(n->b, IR_OP_prelu, n->in[0], n->in[1]);
}

static bool is_unsigned(ir_dtype t) { return t == IR_u8 || t == IR_u16 || t == IR_u32 || t == IR_u64; }

void onnx_lower_bit_shift(onnx_node *n)
{
    const char *direction = onnx_text(n, "direction", "");
    bool right = strcmp(direction, "RIGHT") == 0;
    if (!right && strcmp(direction, "LEFT") != 0) onnx_reject(n, "direction is '%s', not LEFT or RIGHT", direction);
    if (!is_unsigned(n->in[0]->type.dtype)) onnx_reject(n, "the operands must have an unsigned integer type");
    ir_node *node = ir_new(n->b, IR_OP_shift, 2, n->in[0], n->in[1]);
    ir_set_bool(node, IR_ATTR(shift, right), right);
    n->out[0] = ir_done(n->b, node);
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

/* The bytes of the operand as another type of the same size. */
void onnx_lower_bit_cast(onnx_node *n)
{
    if (!onnx_has(n, "to")) onnx_reject(n, "attribute 'to' is missing");
    const int64_t to = onnx_int(n, "to", ONNX_float32);
    const ir_dtype type = onnx_type_dtype(to);
    if (type == IR_NO_DTYPE) onnx_refuse(n, "a cast to %s is not supported", onnx_type_name(to));
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_bit_cast, 1, n->in[0]);
    ir_set_dtype(node, IR_ATTR(bit_cast, to), type);
    n->out[0] = ir_done(n->b, node);
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
