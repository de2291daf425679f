/* lower_resample.c - Resize, Upsample.
 *
 * Axes that keep their size at scale 1 are not resized. The sizes of the others follow from the scales, or the scales
 * from the sizes. */
#include "frontend/lower/lower.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct axes {
    int count;
    int64_t axis[IR_MAX_RANK];
    bool scaled; /* the scales are given */
    float scale[IR_MAX_RANK], start[IR_MAX_RANK], end[IR_MAX_RANK];
    ir_dim size[IR_MAX_RANK];
} axes;

/* ---- numbers ---------------------------------------------------------------------------------- */

/* Writes an f32 number as an exact quotient. */
static void put_quotient(onnx_node *n, float v, int64_t *out)
{
    double numerator = (double)v;
    int64_t denominator = 1;
    while (numerator != floor(numerator) && denominator < INT64_C(1) << 60) numerator *= 2, denominator *= 2;
    if (!(fabs(numerator) < 0x1p62) || numerator != floor(numerator))
        onnx_refuse(n, "the number %g is out of range", (double)v);
    else out[0] = (int64_t)numerator, out[1] = denominator;
}

/* Floats of an operand with `count` elements; false if it is absent or empty. */
static bool read_floats(onnx_node *n, int i, int count, float *out)
{
    if (!onnx_in(n, i)) return false;
    const ir_const_value *c = onnx_const_numbers(n, i);
    if (!c || c->count == 0) return false;
    if (!c->floats || c->type.rank != 1 || c->count != count) {
        onnx_reject(n, "input %d ('%s') must have %d numbers", i, n->proto->input[i], count);
        return false;
    }
    for (int k = 0; k < count; k++) out[k] = (float)c->floats[k];
    return true;
}

/* The size after scaling, rounded down. The product is that of shape inference, in f32; with a symbol it is exact,
 * which is the same for the scales accepted here. */
static ir_dim scaled_size(onnx_node *n, ir_dim size, float scale)
{
    enum { MAX_TERM = 256 };
    int64_t q[2] = {1, 1};
    if (!ir_dim_is_symbolic(size)) {
        const float product = floorf((float)size * scale);
        if (product < 0x1p31f) return (int64_t)product;
        onnx_reject(n, "scale %g is out of range for %lld elements", (double)scale, (long long)size);
        return size;
    }
    put_quotient(n, scale, q);
    if (q[0] > MAX_TERM || q[1] > MAX_TERM)
        onnx_refuse_dim(n, size, "scale %g of dimension %s is not supported", (double)scale,
                        ir_dim_print(n->dims, size, n->importer->scratch));
    return n->failed ? size : ir_dim_floordiv(n->dims, ir_dim_mul(n->dims, size, q[0]), q[1]);
}

static void apply_scales(onnx_node *n, axes *a)
{
    a->scaled = true;
    for (int i = 0; i < a->count && !n->failed; i++) {
        if (!(a->scale[i] > 0 && a->scale[i] <= FLT_MAX))
            onnx_reject(n, "scale %g is out of range", (double)a->scale[i]);
        else a->size[i] = scaled_size(n, n->in[0]->type.dims[a->axis[i]], a->scale[i]);
    }
}

/* ---- sizes ------------------------------------------------------------------------------------ */

/* keep_aspect_ratio_policy: one scale for all axes, the smallest or largest. */
static void keep_ratio(onnx_node *n, axes *a, bool smallest)
{
    float common = 0;
    for (int i = 0; i < a->count && !n->failed; i++) {
        const int64_t in = onnx_size(n, n->in[0]->type.dims[a->axis[i]], "keep_aspect_ratio_policy: a dimension"),
                      out = onnx_size(n, a->size[i], "keep_aspect_ratio_policy: a size");
        const float scale = (float)out / (float)in;
        if (in == 0) onnx_reject(n, "axis %d has no elements to resize", (int)a->axis[i]);
        if (i == 0 || (smallest ? scale < common : scale > common)) common = scale;
    }
    a->scaled = true;
    for (int i = 0; i < a->count && !n->failed; i++) {
        a->scale[i] = common;
        a->size[i] = (int64_t)floorf(common * (float)n->in[0]->type.dims[a->axis[i]] + 0.5f);
    }
    if (!n->failed && !(common > 0)) onnx_reject(n, "a size is 0");
}

static void apply_sizes(onnx_node *n, axes *a)
{
    const onnx_list sizes = onnx_const_shape(n, 3);
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};
    const int policy = n->opset >= 18 ? onnx_word(n, "keep_aspect_ratio_policy", policies, 0) : 0;
    if (n->failed) return;
    if (sizes.count != a->count) {
        onnx_reject(n, "%d sizes for %d axes", sizes.count, a->count);
        return;
    }
    const ir_dim *x = n->in[0]->type.dims;
    for (int i = 0; i < a->count; i++) a->size[i] = onnx_batch_size(n->importer, x[a->axis[i]], sizes.items[i]);
    if (policy) keep_ratio(n, a, policy == 1);
}

/* ---- the node --------------------------------------------------------------------------------- */

typedef struct options {
    int method, coordinates, rounding;
    double cubic, outside;
    bool exclude_outside, antialias, cropped;
} options;

static options read_options(onnx_node *n)
{
    /* half_pixel_symmetric, the last word, is of opset 19. */
    const int known = IR_WORD(coordinates, half_pixel_symmetric) + (n->opset >= 19);
    options o = {.method = onnx_word(n, "mode", ir_words_sampling, IR_WORD(sampling, nearest)),
                 .coordinates = onnx_word_of(n, "coordinate_transformation_mode", ir_words_coordinates, known,
                                             IR_WORD(coordinates, half_pixel)),
                 .rounding = onnx_word(n, "nearest_mode", ir_words_rounding, IR_WORD(rounding, round_prefer_floor)),
                 .cubic = onnx_float(n, "cubic_coeff_a", -0.75),
                 .outside = onnx_float(n, "extrapolation_value", 0),
                 .exclude_outside = onnx_bool(n, "exclude_outside", false),
                 .antialias = n->opset >= 18 && onnx_bool(n, "antialias", false)};
    o.cropped = o.coordinates == IR_WORD(coordinates, tf_crop_and_resize);
    if (o.antialias && o.method == IR_WORD(sampling, nearest)) onnx_reject(n, "antialias needs mode linear or cubic");
    if (!isfinite(o.cubic) || !isfinite(o.outside)) onnx_reject(n, "an attribute is not finite");
    return o;
}

/* Removes the axes that stay as they are. */
static void drop_unchanged(const onnx_node *n, const options *o, axes *a)
{
    int kept = 0;
    for (int i = 0; i < a->count; i++) {
        const bool whole = !o->cropped || (a->start[i] == 0 && a->end[i] == 1);
        if (whole && a->size[i] == n->in[0]->type.dims[a->axis[i]] && (!a->scaled || a->scale[i] == 1)) continue;
        a->axis[kept] = a->axis[i];
        a->size[kept] = a->size[i];
        a->scale[kept] = a->scale[i];
        a->start[kept] = a->start[i];
        a->end[kept++] = a->end[i];
    }
    a->count = kept;
}

static void set_options(ir_node *node, const options *o)
{
    ir_set_int(node, IR_ATTR(resize, method), o->method);
    ir_set_int(node, IR_ATTR(resize, coordinates), o->coordinates);
    ir_set_int(node, IR_ATTR(resize, rounding), o->rounding);
    ir_set_float(node, IR_ATTR(resize, cubic), o->cubic);
    ir_set_float(node, IR_ATTR(resize, outside), o->outside);
    ir_set_bool(node, IR_ATTR(resize, exclude_outside), o->exclude_outside);
    ir_set_bool(node, IR_ATTR(resize, antialias), o->antialias);
}

static void set_quotients(onnx_node *n, const options *o, const axes *a, ir_node *node)
{
    int64_t scales[2 * IR_MAX_RANK], region[4 * IR_MAX_RANK];
    for (int i = 0; i < a->count; i++) {
        if (a->scaled) put_quotient(n, a->scale[i], scales + 2 * i);
        if (!o->cropped) continue;
        put_quotient(n, a->start[i], region + 2 * i);
        put_quotient(n, a->end[i], region + 2 * (a->count + i));
    }
    if (n->failed) return;
    if (a->scaled) ir_set_list(node, IR_ATTR(resize, scales), scales, 2 * a->count);
    if (o->cropped) ir_set_list(node, IR_ATTR(resize, region), region, 4 * a->count);
}

/* A resize of integers other than a selection is computed in f32 and truncated. */
static ir_value *resize(onnx_node *n, const options *o, axes *a, ir_value *x)
{
    ir_dim shape[IR_MAX_RANK];
    drop_unchanged(n, o, a);
    if (!a->count || !x) return x;
    const ir_dtype dtype = x->type.dtype;
    const bool converts = !ir_dtype_is_float(dtype) && o->method != IR_WORD(sampling, nearest);
    if (converts) x = ir_cast(n->b, x, IR_f32);
    for (int i = 0; x && i < x->type.rank; i++) shape[i] = x->type.dims[i];
    for (int i = 0; i < a->count; i++) shape[a->axis[i]] = a->size[i];
    ir_node *node = ir_new(n->b, IR_OP_resize, 1, x);
    if (!node) return NULL;
    ir_set_list(node, IR_ATTR(resize, shape), shape, x->type.rank);
    ir_set_list(node, IR_ATTR(resize, axes), a->axis, a->count);
    set_options(node, o);
    set_quotients(n, o, a, node);
    ir_value *y = n->failed ? NULL : ir_done(n->b, node);
    return converts && y ? ir_cast(n->b, y, dtype) : y;
}

static void read_axes(onnx_node *n, axes *a)
{
    const onnx_list list = n->opset >= 18 ? onnx_ints(n, "axes") : (onnx_list){0};
    const int rank = n->in[0]->type.rank;
    bool set[IR_MAX_RANK];
    onnx_axes(n, list, rank, set);
    a->count = list.present ? list.count : rank;
    for (int i = 0; i < a->count && !n->failed; i++) a->axis[i] = list.present ? onnx_axis(n, list.items[i], rank) : i;
}

static void read_region(onnx_node *n, const options *o, axes *a)
{
    float both[2 * IR_MAX_RANK];
    if (!o->cropped) return;
    if (!read_floats(n, 1, 2 * a->count, both) && !n->failed) onnx_reject(n, "tf_crop_and_resize needs input 'roi'");
    for (int i = 0; i < a->count && !n->failed; i++) {
        a->start[i] = both[i];
        a->end[i] = both[a->count + i];
        if (!isfinite(a->start[i]) || !isfinite(a->end[i])) onnx_reject(n, "roi is not finite");
    }
}

/* From opset 11 on: X, roi, scales, sizes; an empty list is an absent one. */
void onnx_lower_resize(onnx_node *n)
{
    axes a = {0};
    const options o = read_options(n);
    read_axes(n, &a);
    if (n->failed) return;
    read_region(n, &o, &a);
    const bool scaled = read_floats(n, 2, a.count, a.scale);
    const ir_value *sizes = onnx_in(n, 3);
    const bool sized = sizes && !(sizes->type.rank == 1 && sizes->type.dims[0] == 0);
    if (scaled == sized) onnx_reject(n, "needs either scales or sizes");
    if (n->opset >= 18 && scaled) onnx_ignore(n, "keep_aspect_ratio_policy");
    if (n->failed) return;
    if (scaled) apply_scales(n, &a);
    else apply_sizes(n, &a);
    if (!n->failed) n->out[0] = resize(n, &o, &a, n->in[0]);
}

/* ---- before opset 11 -------------------------------------------------------------------------- */

/* The operator has no modes for coordinates: the result counts from the start, and elements are those before the
 * position or, in an axis that shrinks, after it (as onnxruntime does; the specification does not tell). */
static void resize_simply(onnx_node *n, const axes *all)
{
    options o = {.method = onnx_word_of(n, "mode", ir_words_sampling, IR_WORD(sampling, cubic), 0),
                 .coordinates = IR_WORD(coordinates, asymmetric),
                 .cubic = -0.75};
    ir_value *y = n->in[0];
    for (int shrinks = 0; shrinks < 2 && !n->failed; shrinks++) {
        axes part = {0};
        for (int i = 0; i < all->count; i++) {
            if ((all->scale[i] < 1) != shrinks) continue;
            part.axis[part.count] = all->axis[i];
            part.scale[part.count++] = all->scale[i];
        }
        o.rounding = shrinks ? IR_WORD(rounding, ceil) : IR_WORD(rounding, floor);
        apply_scales(n, &part);
        if (!n->failed) y = resize(n, &o, &part, y);
    }
    n->out[0] = y;
}

void onnx_lower_resize_scales(onnx_node *n)
{
    axes a = {.count = n->in[0]->type.rank};
    if (strcmp(n->proto->op_type, "Upsample") == 0 && n->opset >= 10) onnx_reject(n, "is deprecated since opset 10");
    for (int i = 0; i < a.count; i++) a.axis[i] = i;
    if (!read_floats(n, 1, a.count, a.scale)) onnx_reject(n, "needs %d scales", a.count);
    if (!n->failed) resize_simply(n, &a);
}

void onnx_lower_upsample(onnx_node *n)
{
    axes a = {.count = n->in[0]->type.rank};
    int count;
    const float *scales = onnx_floats(n, "scales", &count);
    if (count != a.count) onnx_reject(n, "needs %d scales, has %d", a.count, count);
    for (int i = 0; i < a.count && !n->failed; i++) a.axis[i] = i, a.scale[i] = scales[i];
    if (!n->failed) resize_simply(n, &a);
}

/* com.microsoft.nchwc: whole factors; nearest repeats elements. */
void onnx_lower_nchwc_upsample(onnx_node *n)
{
    axes a = {.count = n->in[0]->type.rank};
    options o = {.method = onnx_word_of(n, "mode", ir_words_sampling, IR_WORD(sampling, cubic), 0),
                 .coordinates = onnx_word_of(n, "coordinate_transformation_mode", ir_words_coordinates,
                                             IR_WORD(coordinates, half_pixel_symmetric),
                                             IR_WORD(coordinates, asymmetric)),
                 .rounding = IR_WORD(rounding, floor)};
    int64_t factors[IR_MAX_RANK];
    onnx_numbers(n, "scales", a.count, 1, 1, factors);
    if (o.method == IR_WORD(sampling, nearest)) o.coordinates = IR_WORD(coordinates, asymmetric);
    for (int i = 0; i < a.count && !n->failed; i++) a.axis[i] = i, a.scale[i] = (float)factors[i];
    if (!n->failed) apply_scales(n, &a);
    if (!n->failed) n->out[0] = resize(n, &o, &a, n->in[0]);
}
