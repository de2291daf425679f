/* fold_pointwise.c - the formulas of formulas.def on known elements, and casts.
 *
 * Floats are computed in double and rounded to f32, then to the dtype. For + - * / and sqrt the result equals that of
 * f32 arithmetic, because a double has more than twice as many significand bits. */
#include "ir/fold/fold.h"

#define K_FORMULA static inline
#include "ir/ops/libm.h"
#define REAL_IS_FLOAT
#define REAL double
#include "ir/ops/formulas_body.h"
#undef REAL
#undef REAL_IS_FLOAT

/* The scalars of a formula besides its operands; IR_DIM_NONE: no bound. */
typedef struct numbers {
    double lo, hi;
    ir_dim low, high;
} numbers;

static double value_of(ir_formula formula, double a, double b, const numbers *n)
{
    switch (formula) {
        /* clang-format off */
#define FLOAT_FORMULA(name, ...) \
    case IR_FORMULA_##name: return f_##name##_double(a, b, n->lo, n->hi);
#include "ir/ops/formulas.def"
    /* clang-format on */
    default: return NAN;
    }
}

double fold_float(ir_formula formula, double a, double b)
{
    return value_of(formula, a, b, &(numbers){-INFINITY, INFINITY, IR_DIM_NONE, IR_DIM_NONE});
}

static void read_bound(const fold_state *f, int i, double *real, ir_dim *integer)
{
    const ir_const_value *bound = i < f->node->n_in ? f->in[i] : NULL;
    if (bound && bound->floats) *real = bound->floats[0];
    else if (bound) *integer = bound->ints[0];
}

/* The divisor as a kernel computes it; false if it is not known. */
static bool read_count(const fold_state *f, double *divisor)
{
    const ir_attr *count = &f->node->attr[0];
    ir_dim n = ir_dim_product(f->dims, count->list.items, count->list.count);
    *divisor = ir_count_divisor((double)n, f->node->attr);
    if (f->out[0].type.dtype != IR_f64) *divisor = (double)(float)*divisor;
    return n != IR_DIM_NONE && !ir_dim_is_symbolic(n);
}

static bool read_numbers(const fold_state *f, const ir_formula_info *formula, numbers *n)
{
    *n = (numbers){-INFINITY, INFINITY, IR_DIM_NONE, IR_DIM_NONE};
    if (formula->numbers == IR_NUMBERS_COUNT) return read_count(f, &n->lo);
    if (formula->numbers == IR_NUMBERS_PARAMS) {
        const ir_formula_params params = ir_formula_params_of(f->node->op, f->node->attr);
        n->lo = params.p;
        n->hi = params.q;
    }
    if (formula->numbers == IR_NUMBERS_BOUNDS) {
        read_bound(f, formula->operands, &n->lo, &n->low);
        read_bound(f, formula->operands + 1, &n->hi, &n->high);
    }
    return true;
}

/* Folds formulas on floats with a float or bool result, and formulas on integers unless a result is unknown or might
 * not fit. */
bool fold_pointwise(const fold_state *f)
{
    const ir_formula formula = ir_formula_of(f->node->op, f->node->attr);
    const ir_formula_info *info = ir_formula_get(formula);
    const cells *out = &f->out[0];
    const ir_const_value *a = f->in[0], *b = f->in[info->operands - 1];
    fold_view left = fold_view_broadcast(&a->type, &out->type), right = fold_view_broadcast(&b->type, &out->type);
    numbers n;
    if (!read_numbers(f, info, &n)) return false;
    for (int64_t i = 0; i < out->count; i++) {
        int64_t j = fold_view_at(&left, &out->type, i), k = fold_view_at(&right, &out->type, i);
        if (out->floats) {
            out->floats[i] = fold_round(out->type.dtype, value_of(formula, a->floats[j], b->floats[k], &n));
        } else if (a->floats) {
            out->ints[i] = value_of(formula, a->floats[j], b->floats[k], &n) != 0;
        } else {
            ir_dim v = fold_bounded(f, formula, a->ints[j], b->ints[k], n.low, n.high);
            out->ints[i] = fold_wrap(out->type.dtype, v);
            if (out->ints[i] == IR_DIM_NONE) return false;
        }
    }
    return true;
}

/* ---- cast ------------------------------------------------------------------------------------ */

/* A symbolic integer is kept if the type can hold sizes; cast to bool it is true if it is never 0; otherwise it is not
 * folded. */
static ir_dim cast_symbolic(const fold_state *f, ir_dtype to, ir_dim v)
{
    if (to == IR_bool) return fold_integer(f, IR_FORMULA_greater, v, 0) == 1 ? 1 : IR_DIM_NONE;
    return fold_wrap(to, v);
}

bool fold_cast(const fold_state *f)
{
    const cells *out = &f->out[0];
    const ir_const_value *x = f->in[0];
    ir_dtype to = out->type.dtype;
    for (int64_t i = 0; i < out->count; i++) {
        unsigned char stored[8], bytes[8];
        if (x->ints && ir_dim_is_symbolic(x->ints[i])) {
            if (out->floats || (out->ints[i] = cast_symbolic(f, to, x->ints[i])) == IR_DIM_NONE) return false;
            continue;
        }
        if (x->floats) ir_store_f64(x->type.dtype, stored, x->floats[i]);
        else ir_store_i64(x->type.dtype, stored, x->ints[i]);
        ir_convert(to, bytes, x->type.dtype, stored, 1);
        if (out->floats) out->floats[i] = ir_load_f64(to, bytes);
        else if ((out->ints[i] = fold_number(to, ir_load_i64(to, bytes))) == IR_DIM_NONE) return false;
    }
    return true;
}
