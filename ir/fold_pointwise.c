/* fold_pointwise.c - arithmetic on known elements, and casts.
 *
 * Floats are computed in double and rounded to f32, then to the dtype: for + - * / and sqrt this is exactly what
 * f32 arithmetic gives, since a double has more than twice the bits. */
#include "ir/fold_formulas.h"

#include <math.h>

/* ---- formulas -------------------------------------------------------------------------------- */

typedef double float_unary(double a);
typedef double float_binary(double a, double b);

static double f_neg(double a) { return -a; }
static double f_sign(double a) { return a > 0 ? 1 : a < 0 ? -1 : a; }
static double f_relu(double a) { return a < 0 ? 0 : a; }
static double f_reciprocal(double a) { return 1 / a; }
static double f_sigmoid(double a) { return (a < 0 ? exp(a) : 1) / (1 + exp(-fabs(a))); }
static double f_softplus(double a) { return (a < 0 ? 0 : a) + log1p(exp(-fabs(a))); }
static double f_gelu(double a) { return a * 0.5 * (1 + erf(a * 0.70710678118654752)); }
static double f_gelu_tanh(double a)
{
    return 0.5 * a * (1 + tanh(0.79788456080286536 * a * (1 + 0.044715 * a * a)));
}

static double f_add(double a, double b) { return a + b; }
static double f_sub(double a, double b) { return a - b; }
static double f_mul(double a, double b) { return a * b; }
static double f_div(double a, double b) { return a / b; }
static double f_min(double a, double b) { return a < b || isnan(a) ? a : b; }
static double f_max(double a, double b) { return a > b || isnan(a) ? a : b; }
static double f_mod(double a, double b) /* sign of the divisor */
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static double f_equal(double a, double b) { return a == b; }
static double f_less(double a, double b) { return a < b; }
static double f_less_or_equal(double a, double b) { return a <= b; }
static double f_greater(double a, double b) { return a > b; }
static double f_greater_or_equal(double a, double b) { return a >= b; }

static const struct {
    float_unary *f;
    fold_int_unary *i;
} unary[IR_OP_COUNT] = {
    [IR_OP_neg] = {f_neg, fold_int_neg},
    [IR_OP_abs] = {fabs, fold_int_abs},
    [IR_OP_sign] = {f_sign, fold_int_sign},
    [IR_OP_relu] = {f_relu, fold_int_relu},
    [IR_OP_not] = {NULL, fold_int_not},
    [IR_OP_floor] = {floor, NULL},
    [IR_OP_ceil] = {ceil, NULL},
    [IR_OP_round] = {nearbyint, NULL}, /* half to even */
    [IR_OP_sqrt] = {sqrt, NULL},
    [IR_OP_reciprocal] = {f_reciprocal, NULL},
    [IR_OP_exp] = {exp, NULL},
    [IR_OP_log] = {log, NULL},
    [IR_OP_sin] = {sin, NULL},
    [IR_OP_cos] = {cos, NULL},
    [IR_OP_tanh] = {tanh, NULL},
    [IR_OP_sigmoid] = {f_sigmoid, NULL},
    [IR_OP_erf] = {erf, NULL},
    [IR_OP_softplus] = {f_softplus, NULL},
};

static const struct {
    float_binary *f;
    fold_int_binary *i;
} binary[IR_OP_COUNT] = {
    [IR_OP_add] = {f_add, fold_int_add},
    [IR_OP_sub] = {f_sub, fold_int_sub},
    [IR_OP_mul] = {f_mul, fold_int_mul},
    [IR_OP_div] = {f_div, fold_int_div},
    [IR_OP_pow] = {pow, fold_int_pow},
    [IR_OP_min] = {f_min, fold_int_min},
    [IR_OP_max] = {f_max, fold_int_max},
    [IR_OP_equal] = {f_equal, fold_int_equal},
    [IR_OP_less] = {f_less, fold_int_less},
    [IR_OP_less_or_equal] = {f_less_or_equal, fold_int_less_or_equal},
    [IR_OP_greater] = {f_greater, fold_int_greater},
    [IR_OP_greater_or_equal] = {f_greater_or_equal, fold_int_greater_or_equal},
    [IR_OP_and] = {NULL, fold_int_and},
    [IR_OP_or] = {NULL, fold_int_or},
    [IR_OP_xor] = {NULL, fold_int_xor},
};

/* ---- application ----------------------------------------------------------------------------- */

/* Stores an integer result; false when it is not known or might not fit. */
static bool put_int(const cells *out, int64_t i, ir_dim v)
{
    out->ints[i] = fold_wrap(out->type.dtype, v);
    return out->ints[i] != IR_DIM_NONE;
}

static bool map_unary(const folding *f, float_unary *real, fold_int_unary *integer)
{
    const cells *out = &f->out[0];
    for (int64_t i = 0; i < out->count; i++) {
        if (out->floats) out->floats[i] = fold_round(out->type.dtype, real(f->in[0]->floats[i]));
        else if (!put_int(out, i, integer(f->dims, f->in[0]->ints[i]))) return false;
    }
    return true;
}

/* Float operands and a float or bool result, or integers all along. */
static bool map_binary(const folding *f, float_binary *real, fold_int_binary *integer)
{
    const cells *out = &f->out[0];
    const ir_known *a = f->in[0], *b = f->in[1];
    fold_view left = fold_view_broadcast(&a->type, &out->type), right = fold_view_broadcast(&b->type, &out->type);
    for (int64_t i = 0; i < out->count; i++) {
        int64_t j = fold_view_at(&left, &out->type, i), k = fold_view_at(&right, &out->type, i);
        if (out->floats) out->floats[i] = fold_round(out->type.dtype, real(a->floats[j], b->floats[k]));
        else if (a->floats) out->ints[i] = real(a->floats[j], b->floats[k]) != 0;
        else if (!put_int(out, i, integer(f->dims, a->ints[j], b->ints[k]))) return false;
    }
    return true;
}

bool fold_unary(const folding *f)
{
    return map_unary(f, unary[f->node->op].f, unary[f->node->op].i);
}

bool fold_binary(const folding *f)
{
    return map_binary(f, binary[f->node->op].f, binary[f->node->op].i);
}

bool fold_gelu(const folding *f)
{
    return map_unary(f, f->node->attr[IR_ATTR(gelu, tanh)].i ? f_gelu_tanh : f_gelu, NULL);
}

bool fold_mod(const folding *f)
{
    if (f->node->attr[IR_ATTR(mod, fmod)].i) return map_binary(f, fmod, fold_int_fmod);
    return map_binary(f, f_mod, fold_int_mod);
}

bool fold_clip(const folding *f)
{
    const cells *out = &f->out[0];
    const ir_known *x = f->in[IR_IN(clip, x)], *lo = f->in[IR_IN(clip, lo)], *hi = f->in[IR_IN(clip, hi)];
    for (int64_t i = 0; i < out->count; i++) {
        if (out->floats) {
            double low = lo ? f_max(x->floats[i], lo->floats[0]) : x->floats[i];
            out->floats[i] = hi ? f_min(low, hi->floats[0]) : low;
        } else {
            ir_dim low = lo ? fold_int_max(f->dims, x->ints[i], lo->ints[0]) : x->ints[i];
            if (low != IR_DIM_NONE && hi) low = fold_int_min(f->dims, low, hi->ints[0]);
            if (!put_int(out, i, low)) return false;
        }
    }
    return true;
}

bool fold_div_count(const folding *f)
{
    const cells *out = &f->out[0];
    const ir_attr *count = &f->node->attr[IR_ATTR(div_count, count)];
    ir_dim n = ir_dim_product(f->dims, count->list.items, count->list.count);
    if (n == IR_DIM_NONE || ir_dim_is_symbolic(n)) return false;
    double divisor = out->type.dtype == IR_f64 ? (double)n : (double)(float)n;
    for (int64_t i = 0; i < out->count; i++)
        out->floats[i] = fold_round(out->type.dtype, f->in[0]->floats[i] / divisor);
    return true;
}

/* ---- cast ------------------------------------------------------------------------------------ */

/* A symbolic integer stays one in types that hold sizes, is true where it is never 0, and else does not fold. */
static ir_dim cast_symbolic(const folding *f, ir_dtype to, ir_dim v)
{
    if (to == IR_bool) return fold_int_greater(f->dims, v, 0) == 1 ? 1 : IR_DIM_NONE;
    return fold_wrap(to, v);
}

bool fold_cast(const folding *f)
{
    const cells *out = &f->out[0];
    const ir_known *x = f->in[0];
    ir_dtype to = out->type.dtype;
    for (int64_t i = 0; i < out->count; i++) {
        unsigned char bytes[8];
        if (x->ints && ir_dim_is_symbolic(x->ints[i])) {
            if (out->floats || (out->ints[i] = cast_symbolic(f, to, x->ints[i])) == IR_DIM_NONE) return false;
            continue;
        }
        if (x->floats) ir_store_f64(to, bytes, x->floats[i]);
        else ir_store_i64(to, bytes, x->ints[i]);
        if (out->floats) out->floats[i] = ir_load_f64(to, bytes);
        else out->ints[i] = ir_dim_number(ir_load_i64(to, bytes));
    }
    return true;
}
