/* lower_sample.c - GridSample, AffineGrid, RoiAlign, DeformConv. */
#include "frontend/lower/lower.h"

#include <stdarg.h>
/* ---- GridSample ------------------------------------------------------------------------------- */

/* The modes had other names before opset 20. */
static int read_method(onnx_node *n)
{
    static const char *const old_words[] = {"nearest", "bilinear", "bicubic", NULL};
    return onnx_word(n, "mode", n->opset < 20 ? old_words : ir_words_sampling, IR_WORD(sampling, linear));
}

/* Images of integers are sampled in f32 and truncated. */
void onnx_lower_grid_sample(onnx_node *n)
{
    ir_value *x = n->in[0], *grid = n->in[1];
    const int method = read_method(n), border = onnx_word(n, "padding_mode", ir_words_border, IR_WORD(border, zeros));
    bool corners = onnx_bool(n, "align_corners", false);
    if (x->type.rank == 5 && method == IR_WORD(sampling, cubic))
        onnx_refuse(n, "mode cubic is not supported for volumes");
    if (n->failed) return;
    const ir_dtype dtype = x->type.dtype;
    if (!ir_dtype_is_float(dtype)) x = ir_cast(n->b, x, IR_f32);
    ir_node *node = ir_new(n->b, IR_OP_grid_sample, 2, x, grid);
    ir_set_int(node, IR_ATTR(grid_sample, method), method);
    ir_set_int(node, IR_ATTR(grid_sample, border), border);
    ir_set_bool(node, IR_ATTR(grid_sample, align_corners), corners);
    ir_value *y = ir_done(n->b, node);
    n->out[0] = y && dtype != y->type.dtype ? ir_cast(n->b, y, dtype) : y;
}

/* ---- AffineGrid -------------------------------------------------------------------------------- */

/* Coordinate i of `size` ones in [-1,1]. */
static double coordinate(int64_t i, int64_t size, bool corners)
{
    if (corners) return size > 1 ? 2 * (double)i / (double)(size - 1) - 1 : 0;
    return (2 * (double)i + 1) / (double)size - 1;
}

/* The positions (x, y[, z], 1) of all points in a type, [points, axes + 1]. */
static ir_value *base_positions(onnx_node *n, ir_dtype dtype, const int64_t *size, int axes, bool corners)
{
    int64_t points = 1;
    const size_t each = ir_dtype_size(dtype);
    for (int i = 0; i < axes; i++) points *= size[i];
    char *bytes = arena_array(n->importer->scratch, (size_t)(points * (axes + 1)) + 1, each);
    for (int64_t p = 0; p < points; p++) {
        int64_t rest = p;
        char *at = bytes + (size_t)(p * (axes + 1)) * each;
        for (int i = axes - 1; i >= 0; i--, at += each) {
            ir_store_f64(dtype, at, coordinate(rest % size[i], size[i], corners));
            rest /= size[i];
        }
        ir_store_f64(dtype, at, 1);
    }
    const ir_type type = ir_type_make(dtype, 2, (int64_t[]){points, axes + 1});
    return ir_constant(n->b, "affine_grid", &type, bytes);
}

void onnx_lower_affine_grid(onnx_node *n)
{
    enum { MAX_POINTS = 1 << 26 };
    ir_value *theta = n->in[0];
    const onnx_list size = onnx_const_shape(n, 1);
    const bool corners = onnx_bool(n, "align_corners", false);
    const int axes = size.count - 2;
    if (n->failed) return;
    if ((axes != 2 && axes != 3) || theta->type.rank != 3 || theta->type.dims[1] != axes ||
        theta->type.dims[2] != axes + 1 || theta->type.dims[0] != size.items[0]) {
        onnx_reject(n, "theta and size do not fit: [N,2,3] and [N,C,H,W], or [N,3,4] and [N,C,D,H,W]");
        return;
    }
    int64_t sizes[3], points = 1;
    ir_dim shape[5] = {size.items[0]};
    for (int i = 0; i < axes && !n->failed; i++) {
        shape[1 + i] = sizes[i] = onnx_size(n, size.items[2 + i], "a size");
        if (sizes[i] > MAX_POINTS || (points *= sizes[i]) > MAX_POINTS) onnx_refuse(n, "the grid is too large");
    }
    shape[1 + axes] = axes;
    if (n->failed) return;
    ir_value *base = base_positions(n, theta->type.dtype, sizes, axes, corners);
    ir_value *grid = ir_matmul(n->b, base, theta, NULL, false, true);
    n->out[0] = grid ? ir_reshape(n->b, grid, shape, axes + 2) : NULL;
}

/* ---- RoiAlign ---------------------------------------------------------------------------------- */

void onnx_lower_roi_align(onnx_node *n)
{
    static const char *const modes[] = {"avg", "max", NULL}, *const pixels[] = {"output_half_pixel", "half_pixel",
                                                                                NULL};
    const bool max = onnx_word(n, "mode", modes, 0) == 1;
    const bool half_pixel = n->opset >= 16 && onnx_word(n, "coordinate_transformation_mode", pixels, 1) == 1;
    const int64_t size[] = {onnx_int(n, "output_height", 1), onnx_int(n, "output_width", 1)};
    const int64_t sampling = onnx_int(n, "sampling_ratio", 0);
    const double scale = onnx_float(n, "spatial_scale", 1);
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_roi_align, 3, n->in[0], n->in[1], n->in[2]);
    ir_set_list(node, IR_ATTR(roi_align, size), size, 2);
    ir_set_int(node, IR_ATTR(roi_align, sampling), sampling);
    ir_set_float(node, IR_ATTR(roi_align, scale), scale);
    ir_set_bool(node, IR_ATTR(roi_align, half_pixel), half_pixel);
    ir_set_bool(node, IR_ATTR(roi_align, max), max);
    n->out[0] = ir_done(n->b, node);
}

/* ---- DeformConv --------------------------------------------------------------------------------
 * The images are sampled at the positions of all taps, moved by the offsets; the samples times the weight are the
 * result. Taps have their own channels: N and the offset groups together are the images of grid_sample. */

typedef struct deform {
    onnx_window w;
    int64_t group, offset_group, taps;
    ir_dim n, c, m, out[2], points;
} deform;

static ir_value *reshape(onnx_node *n, ir_value *v, int rank, ...)
{
    ir_dim dims[IR_MAX_RANK];
    va_list list;
    va_start(list, rank);
    for (int i = 0; i < rank; i++) dims[i] = va_arg(list, ir_dim);
    va_end(list);
    return v ? ir_reshape(n->b, v, dims, rank) : NULL;
}

/* The positions (x, y) of all taps without offsets, [1,taps,points,2]. */
static ir_value *tap_positions(onnx_node *n, const deform *d, ir_dtype dtype)
{
    const size_t each = ir_dtype_size(dtype);
    char *bytes = arena_array(n->importer->scratch, (size_t)(d->taps * d->points * 2) + 1, each), *at = bytes;
    for (int64_t k = 0; k < d->taps; k++)
        for (int64_t p = 0; p < d->points; p++)
            for (int axis = 1; axis >= 0; axis--, at += each) {
                const int64_t o = axis ? p % d->out[1] : p / d->out[1];
                const int64_t tap = axis ? k % d->w.kernel[1] : k / d->w.kernel[1];
                ir_store_f64(dtype, at,
                             (double)(o * d->w.strides[axis] - d->w.pads[axis] + tap * d->w.dilations[axis]));
            }
    const ir_type type = ir_type_make(dtype, 4, (int64_t[]){1, d->taps, d->points, 2});
    return ir_constant(n->b, "deform_conv", &type, bytes);
}

/* The positions of all taps, [images,taps,points,2]; offsets have the order (y, x) and [taps,2,points]. */
static ir_value *deform_grid(onnx_node *n, const deform *d, ir_value *offset)
{
    const ir_dim images = ir_dim_mul(n->dims, d->n, d->offset_group);
    ir_value *parts = reshape(n, offset, 4, images, (ir_dim)d->taps, (ir_dim)2, d->points);
    ir_node *swapped = ir_new(n->b, IR_OP_slice, 1, parts);
    ir_set_list(swapped, IR_ATTR(slice, start), (int64_t[]){0, 0, 1, 0}, 4);
    ir_set_list(swapped, IR_ATTR(slice, size), (int64_t[]){images, d->taps, 2, d->points}, 4);
    ir_set_list(swapped, IR_ATTR(slice, step), (int64_t[]){1, 1, -1, 1}, 4);
    ir_value *pairs = ir_transpose(n->b, ir_done(n->b, swapped), (int64_t[]){0, 1, 3, 2});
    return ir_binary(n->b, IR_OP_add, pairs, tap_positions(n, d, offset->type.dtype));
}

static ir_value *deform_samples(onnx_node *n, const deform *d)
{
    const ir_type *x = &n->in[0]->type;
    const ir_dim images = ir_dim_mul(n->dims, d->n, d->offset_group), channels = d->c / d->offset_group;
    ir_value *mask = onnx_in(n, 4), *parts = reshape(n, n->in[0], 4, images, channels, x->dims[2], x->dims[3]);
    ir_node *node = ir_new(n->b, IR_OP_grid_sample, 2, parts, deform_grid(n, d, n->in[2]));
    ir_set_bool(node, IR_ATTR(grid_sample, absolute), true);
    ir_value *y = ir_done(n->b, node);
    if (!mask || !y) return y;
    return ir_binary(n->b, IR_OP_mul, y, reshape(n, mask, 4, images, (ir_dim)1, (ir_dim)d->taps, d->points));
}

/* Reads the window and checks that the shapes of all operands fit. */
static deform read_deform(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type, *w = &n->in[1]->type, *offset = &n->in[2]->type;
    const ir_value *mask = onnx_in(n, 4);
    deform d = {.group = onnx_int(n, "group", 1), .offset_group = onnx_int(n, "offset_group", 1)};
    if (x->rank != 4) onnx_refuse(n, "only images with 2 spatial dimensions are supported");
    else if (w->rank != 4 || offset->rank != 4) onnx_reject(n, "the weight and the offset must have rank 4");
    if (n->failed) return d;
    d.w = onnx_window_of(n, n->in[0], w->dims + 2);
    d.n = x->dims[0];
    d.c = onnx_size(n, x->dims[1], "the number of channels");
    d.m = onnx_size(n, w->dims[0], "the number of filters");
    d.taps = d.w.kernel[0] * d.w.kernel[1];
    for (int i = 0; i < 2 && !n->failed; i++) {
        const int64_t reach = (d.w.kernel[i] - 1) * d.w.dilations[i] + 1, in = onnx_size(n, x->dims[2 + i], "a size");
        const int64_t space = in + d.w.pads[i] + d.w.pads[2 + i] - reach;
        if (space < 0) onnx_reject(n, "the window of axis %d is larger than the input", 2 + i);
        d.out[i] = space / d.w.strides[i] + 1;
        if (offset->dims[2 + i] != d.out[i])
            onnx_reject(n, "the offset must have %lld elements in axis %d", (long long)d.out[i], 2 + i);
    }
    d.points = d.out[0] * d.out[1];
    if (n->failed) return d;
    if (d.group < 1 || d.offset_group < 1 || d.c % d.group || d.c % d.offset_group || d.m % d.group ||
        w->dims[1] != d.c / d.group)
        onnx_reject(n, "the channels do not divide into groups");
    else if (offset->dims[0] != d.n || offset->dims[1] != 2 * d.offset_group * d.taps)
        onnx_reject(n, "the offset must have %lld channels", (long long)(2 * d.offset_group * d.taps));
    else if (mask &&
             (mask->type.rank != 4 || mask->type.dims[0] != d.n || mask->type.dims[1] != d.offset_group * d.taps ||
              mask->type.dims[2] != d.out[0] || mask->type.dims[3] != d.out[1]))
        onnx_reject(n, "the mask must have half of the offset's channels");
    else if (d.taps * d.points > 1 << 26) onnx_refuse(n, "the grid is too large");
    return d;
}

void onnx_lower_deform_conv(onnx_node *n)
{
    const deform d = read_deform(n);
    ir_value *bias = onnx_in(n, 3);
    if (n->failed) return;
    const ir_dim terms = d.c / d.group * d.taps, filters = d.m / d.group;
    ir_value *samples = reshape(n, deform_samples(n, &d), 4, d.n, (ir_dim)d.group, terms, d.points);
    ir_value *weight = reshape(n, n->in[1], 3, (ir_dim)d.group, filters, terms);
    ir_value *sums = samples && weight ? ir_matmul(n->b, weight, samples, NULL, false, false) : NULL;
    ir_value *y = reshape(n, sums, 4, d.n, d.m, d.out[0], d.out[1]);
    if (bias && (bias->type.rank != 1 || bias->type.dims[0] != d.m))
        onnx_reject(n, "the bias must have %lld elements", (long long)d.m);
    if (n->failed) return;
    n->out[0] = y && bias ? ir_binary(n->b, IR_OP_add, y, reshape(n, bias, 3, d.m, (ir_dim)1, (ir_dim)1)) : y;
}
