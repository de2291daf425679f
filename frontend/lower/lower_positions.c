/* lower_positions.c - operators that compare positions (OneHot, EyeLike), and those whose result has a size that
 * depends on values (Compress, NonZero, Unique), if these are known. If not, lower_sized.c lowers them. */
#include "frontend/lower/lower.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- OneHot, EyeLike ------------------------------------------------------------------------- */

/* The number of classes, an integer or a float. */
static ir_dim depth_of(onnx_node *n)
{
    const ir_const_value *depth = onnx_const_numbers(n, 1);
    if (!depth) return 1;
    if (depth->count != 1 || depth->type.rank > 1) onnx_reject(n, "depth must have one element");
    if (n->failed) return 1;
    const double number = depth->ints ? (double)depth->ints[0] : depth->floats[0];
    if (depth->ints && ir_dim_is_symbolic(depth->ints[0])) return depth->ints[0];
    if (!(number >= 0 && number < 0x1p40)) onnx_reject(n, "depth is %g", number);
    return n->failed ? 1 : (ir_dim)number;
}

/* `on` where the class equals the index, which may count from the end. */
void onnx_lower_one_hot(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type, *values = &n->in[2]->type;
    const ir_dim depth = depth_of(n);
    const int axis = onnx_axis(n, onnx_int(n, "axis", -1), x->rank + 1);
    if (x->rank + 1 > ONNX_MAX_RANK) onnx_refuse(n, "the result rank is too large");
    if (values->rank != 1 || values->dims[0] != 2) onnx_reject(n, "values must have two elements");
    if (n->failed) return;
    ir_dim spread[IR_MAX_RANK], classes[IR_MAX_RANK];
    for (int i = 0; i <= x->rank; i++) {
        spread[i] = i == axis ? 1 : x->dims[i - (i > axis)];
        classes[i] = i == axis ? depth : 1;
    }
    ir_value *index = ir_cast(n->b, n->in[0], IR_i64), *zero = ir_scalar(n->b, IR_i64, 0);
    ir_value *count = ir_reshape(n->b, onnx_dims_value(n, &depth, 1), NULL, 0);
    ir_value *from_end = ir_binary(n->b, IR_OP_add, index, count);
    index = ir_done(n->b, ir_new(n->b, IR_OP_where, 3, ir_binary(n->b, IR_OP_less, index, zero), from_end, index));
    ir_value *class = ir_reshape(n->b, onnx_iota(n, IR_i64, depth), classes, x->rank + 1);
    ir_value *is_on = ir_binary(n->b, IR_OP_equal, ir_reshape(n->b, index, spread, x->rank + 1), class);
    ir_value *off = onnx_element(n, n->in[2], 0), *on = onnx_element(n, n->in[2], 1);
    n->out[0] = ir_done(n->b, ir_new(n->b, IR_OP_where, 3, is_on, on, off));
}

void onnx_lower_eye_like(onnx_node *n)
{
    enum { FAR = 1 << 30 }; /* beyond any matrix; numbers up to here are exact */
    const ir_type *x = &n->in[0]->type;
    const int64_t wanted = onnx_int(n, "dtype", 0), diagonal = onnx_int(n, "k", 0);
    const ir_dtype type = onnx_has(n, "dtype") ? onnx_type_dtype(wanted) : x->dtype;
    if (x->rank != 2) onnx_reject(n, "the rank is %d, must be 2", x->rank);
    if (type == IR_NO_DTYPE) onnx_refuse(n, "element type %s is not supported", onnx_type_name(wanted));
    if (n->failed) return;
    const int64_t k = diagonal > FAR ? FAR : diagonal < -FAR ? -FAR : diagonal;
    ir_value *row = ir_reshape(n->b, onnx_iota(n, IR_i64, x->dims[0]), (ir_dim[]){x->dims[0], 1}, 2);
    if (k != 0) row = ir_binary(n->b, IR_OP_add, row, ir_scalar(n->b, IR_i64, (double)k));
    n->out[0] = ir_cast(n->b, ir_binary(n->b, IR_OP_equal, row, onnx_iota(n, IR_i64, x->dims[1])), type);
}

/* ---- Compress, NonZero, Unique --------------------------------------------------------------- */

static ir_value *integers(onnx_node *n, int output, const int64_t *values, int rank, const ir_dim *dims)
{
    ir_type type = ir_type_make(IR_i64, rank, dims);
    return ir_constant(n->b, n->proto->output[output], &type, values);
}

void onnx_lower_compress(onnx_node *n)
{
    const bool flat = !onnx_has(n, "axis");
    ir_value *x = n->in[0];
    const ir_const_value *condition = onnx_const_sizing(n, 1);
    const int axis = flat ? 0 : onnx_axis(n, onnx_int(n, "axis", 0), x->type.rank);
    if (condition && (condition->type.rank != 1 || condition->type.dtype != IR_bool))
        onnx_reject(n, "condition must be a list of bool");
    if (n->failed) return;
    if (flat) x = ir_reshape(n->b, x, (ir_dim[]){ir_type_count(n->dims, &x->type)}, 1);
    if (!condition) {
        onnx_sized_compress(n, x, axis);
        return;
    }
    int64_t *chosen = arena_array(n->importer->scratch, (size_t)condition->count + 1, sizeof *chosen), count = 0;
    for (int64_t i = 0; i < condition->count; i++)
        if (condition->ints[i]) chosen[count++] = i;
    if (x && count && !ir_dim_is_symbolic(x->type.dims[axis]) && chosen[count - 1] >= x->type.dims[axis])
        onnx_reject(n, "condition selects element %lld of %lld", (long long)chosen[count - 1],
                    (long long)x->type.dims[axis]);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, x, integers(n, 0, chosen, 1, &count));
    ir_set_int(node, IR_ATTR(gather, axis), axis);
    n->out[0] = ir_done(n->b, node);
}

static bool is_nonzero(const ir_const_value *c, int64_t i) { return c->floats ? c->floats[i] != 0 : c->ints[i] != 0; }

/* [rank, number of elements that are not zero]: the coordinates of each */
void onnx_lower_nonzero(onnx_node *n)
{
    const ir_const_value *x = onnx_const_sizing(n, 0);
    if (!x) {
        onnx_sized_nonzero(n);
        return;
    }
    const int rank = x->type.rank;
    int64_t count = 0, at = 0;
    for (int64_t i = 0; i < x->count; i++) count += is_nonzero(x, i);
    int64_t *coordinates = arena_array(n->importer->scratch, (size_t)(count * rank) + 1, sizeof *coordinates);
    for (int64_t i = 0; i < x->count; i++) {
        if (!is_nonzero(x, i)) continue;
        int64_t rest = i;
        for (int k = rank - 1; k >= 0; rest /= x->type.dims[k--]) coordinates[k * count + at] = rest % x->type.dims[k];
        at++;
    }
    n->out[0] = integers(n, 0, coordinates, 2, (ir_dim[]){rank, count});
}

/* ---- Unique ---------------------------------------------------------------------------------- */

/* The slices of a tensor along an axis; without one, its elements. */
typedef struct slices {
    const ir_const_value *x;
    int64_t count, outer, inner; /* x is [outer, count, inner] */
} slices;

typedef struct slice_ref {
    const slices *of;
    int64_t at;    /* number of the slice */
    int64_t first; /* of the slices equal to it */
} slice_ref;

/* NaN is above all numbers and equal to itself, as in NumPy. */
static int compare_elements(const ir_const_value *x, int64_t a, int64_t b)
{
    if (x->floats && (isnan(x->floats[a]) || isnan(x->floats[b]))) return !!isnan(x->floats[a]) - !!isnan(x->floats[b]);
    if (x->floats) return (x->floats[a] > x->floats[b]) - (x->floats[a] < x->floats[b]);
    return (x->ints[a] > x->ints[b]) - (x->ints[a] < x->ints[b]);
}

static int compare_slices(const slices *s, int64_t a, int64_t b)
{
    for (int64_t i = 0; i < s->outer * s->inner; i++) {
        const int64_t at = i / s->inner * s->count * s->inner + i % s->inner;
        const int order = compare_elements(s->x, at + a * s->inner, at + b * s->inner);
        if (order) return order;
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const slice_ref *l = a, *r = b;
    const int order = compare_slices(l->of, l->at, r->at);
    return order ? order : (l->at > r->at) - (l->at < r->at);
}

static int by_first(const void *a, const void *b)
{
    const slice_ref *l = a, *r = b;
    return l->first != r->first ? (l->first > r->first) - (l->first < r->first) : (l->at > r->at) - (l->at < r->at);
}

/* Orders all slices so that equal ones are adjacent: by value, or by their first occurrence. */
static slice_ref *order_slices(onnx_node *n, const slices *s, bool sorted)
{
    slice_ref *refs = arena_array(n->importer->scratch, (size_t)s->count + 1, sizeof *refs);
    for (int64_t i = 0; i < s->count; i++) refs[i] = (slice_ref){s, i, i};
    qsort(refs, (size_t)s->count, sizeof *refs, by_value);
    for (int64_t i = 1; i < s->count; i++)
        if (compare_slices(s, refs[i].at, refs[i - 1].at) == 0) refs[i].first = refs[i - 1].first;
    if (!sorted) qsort(refs, (size_t)s->count, sizeof *refs, by_first);
    return refs;
}

static slices slices_of(onnx_node *n, const ir_const_value *x)
{
    slices s = {x, x->count, 1, 1};
    if (!onnx_has(n, "axis")) return s;
    const int axis = onnx_axis(n, onnx_int(n, "axis", 0), x->type.rank);
    for (int i = 0; i < x->type.rank && !n->failed; i++)
        *(i < axis    ? &s.outer
          : i == axis ? &s.count
                      : &s.inner) = i == axis  ? x->type.dims[i]
                                    : i < axis ? s.outer * x->type.dims[i]
                                               : s.inner * x->type.dims[i];
    return s;
}

/* Unique of known values. x: n->in[0], or that flattened. */
static void lower_known_unique(onnx_node *n, const slices *s, ir_value *x, int axis, bool sorted)
{
    const slice_ref *refs = order_slices(n, s, sorted);
    int64_t *numbers[3], count = 0; /* first occurrence, inverse, counts */
    for (int i = 0; i < 3; i++) numbers[i] = arena_array(n->importer->scratch, (size_t)s->count + 1, sizeof **numbers);
    for (int64_t i = 0; i < s->count; i++) {
        if (i == 0 || refs[i].first != refs[i - 1].first) numbers[0][count++] = refs[i].first;
        numbers[1][refs[i].at] = count - 1;
        numbers[2][count - 1]++;
    }
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, x, integers(n, 0, numbers[0], 1, &count));
    ir_set_int(node, IR_ATTR(gather, axis), axis);
    n->out[0] = ir_done(n->b, node);
    for (int i = 1; i < n->n_out; i++)
        if (onnx_result_is_used(n, i)) n->out[i] = integers(n, i, numbers[i - 1], 1, i == 2 ? &s->count : &count);
}

void onnx_lower_unique(onnx_node *n)
{
    ir_value *x = n->in[0];
    const ir_const_value *known = onnx_const_sizing(n, 0);
    const bool flat = !onnx_has(n, "axis"), sorted = onnx_bool(n, "sorted", true);
    const int axis = flat ? 0 : onnx_axis(n, onnx_int(n, "axis", 0), x->type.rank);
    const slices s = known ? slices_of(n, known) : (slices){0};
    if (n->failed) return;
    if (flat) x = ir_reshape(n->b, x, (ir_dim[]){ir_type_count(n->dims, &x->type)}, 1);
    if (known) lower_known_unique(n, &s, x, axis, sorted);
    else onnx_sized_unique(n, x, axis, sorted);
}
