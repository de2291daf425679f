/* emit_resample.c - Resize, GridSample, RoiAlign. */
#include "frontend/emit/emit.h"

#include <math.h>

/* The quotients of the resized axes as f32 numbers. */
static void numbers_of(const ir_node *n, const int64_t *quotients, float *out)
{
    for (int i = 0; i < n->attr[IR_ATTR(resize, axes)].list.count; i++)
        out[i] = (float)((double)quotients[2 * i] / (double)quotients[2 * i + 1]);
}

/* A list with a number for each axis: `numbers` for the resized ones, otherwise `absent`. */
static void spread(const ir_node *n, const float *numbers, float absent, float *out)
{
    const ir_attr *axes = &n->attr[IR_ATTR(resize, axes)];
    for (int i = 0; i < n->out[0]->type.rank; i++) out[i] = absent;
    for (int i = 0; i < axes->list.count; i++) out[axes->list.items[i]] = numbers[i];
}

static const char *floats(emitter *e, const float *items, int count)
{
    const ir_type type = ir_type_make(IR_f32, 1, (int64_t[]){count});
    return emit_constant(e, &type, items);
}

/* The region for all axes, or for the resized ones only; NULL: none. */
static const char *region_of(emitter *e, const ir_node *n, bool resized_only)
{
    const ir_attr *region = &n->attr[IR_ATTR(resize, region)];
    const int count = n->attr[IR_ATTR(resize, axes)].list.count, rank = n->out[0]->type.rank;
    float both[2 * IR_MAX_RANK], all[2 * IR_MAX_RANK];
    if (!region->list.count) return NULL;
    numbers_of(n, region->list.items, both);
    numbers_of(n, region->list.items + 2 * count, both + count);
    if (resized_only) return floats(e, both, 2 * count);
    spread(n, both, 0, all);
    spread(n, both + count, 1, all + rank);
    return floats(e, all, 2 * rank);
}

/* Whether an operator with these scales has a result of this shape. */
static bool scales_yield_shape(const ir_node *n, const float *scales)
{
    const ir_type *x = &ir_in(n, 0)->type, *y = &n->out[0]->type;
    bool same = true;
    for (int i = 0; i < x->rank; i++)
        if (!ir_dim_is_symbolic(x->dims[i])) same &= (int64_t)floorf((float)x->dims[i] * scales[i]) == y->dims[i];
    return same;
}

/* Operands for a common scale from which the sizes were rounded (keep_aspect_ratio_policy): the size of an axis whose
 * quotient is the scale, and larger sizes for all others. */
static const char *limits_of(emitter *e, const ir_node *n, const float *scales)
{
    const ir_attr *axes = &n->attr[IR_ATTR(resize, axes)];
    const ir_type *x = &ir_in(n, 0)->type, *y = &n->out[0]->type;
    int64_t limits[IR_MAX_RANK];
    for (int i = 0; i < axes->list.count; i++) {
        const int axis = (int)axes->list.items[i];
        const bool exact = (float)y->dims[axis] / (float)x->dims[axis] == scales[axis];
        limits[i] = y->dims[axis] + !exact;
    }
    return emit_i64s(e, limits, axes->list.count);
}

void emit_resize(emitter *e, const ir_node *n)
{
    enum { WITH_POLICY = 18, WITH_SYMMETRIC = 19 };
    const ir_attr *axes = &n->attr[IR_ATTR(resize, axes)], *quotients = &n->attr[IR_ATTR(resize, scales)];
    const ir_type *y = &n->out[0]->type;
    const char *scales = NULL, *sizes = NULL;
    float numbers[IR_MAX_RANK], factors[IR_MAX_RANK];
    if (quotients->list.count) {
        numbers_of(n, quotients->list.items, numbers);
        spread(n, numbers, 1, factors);
    }
    const bool policy = quotients->list.count && !scales_yield_shape(n, factors);
    const char *region = region_of(e, n, policy);
    if (policy) sizes = limits_of(e, n, factors);
    else if (quotients->list.count) scales = floats(e, factors, y->rank);
    else sizes = emit_dims(e, n, y->dims, y->rank);
    if (policy) emit_need(e, WITH_POLICY);
    if (n->attr[IR_ATTR(resize, coordinates)].i == IR_WORD(coordinates, half_pixel_symmetric))
        emit_need(e, WITH_SYMMETRIC);
    emit_op op = emit_begin(e, n, "Resize");
    emit_operand(&op, 0);
    emit_in(&op, region);
    emit_in(&op, scales);
    if (sizes) emit_in(&op, sizes);
    if (policy) emit_ints(&op, "axes", axes->list.items, axes->list.count);
    if (policy) emit_text(&op, "keep_aspect_ratio_policy", "not_larger");
    emit_finish(&op);
}

/* ---- GridSample, RoiAlign -------------------------------------------------------------------- */

/* A constant of the grid's type with a number for each coordinate, which has an axis of the given size. */
static const char *by_coordinate(emitter *e, const ir_node *n, double (*number)(double size))
{
    const ir_type *x = &ir_in(n, IR_IN(grid_sample, x))->type;
    const ir_dtype dtype = ir_in(n, IR_IN(grid_sample, grid))->type.dtype;
    const int axes = x->rank - 2;
    const ir_type type = ir_type_make(dtype, 1, (int64_t[]){axes});
    unsigned char bytes[IR_MAX_RANK * sizeof(double)];
    for (int i = 0; i < axes; i++)
        ir_store_f64(dtype, bytes + (size_t)i * ir_dtype_size(dtype), number((double)x->dims[x->rank - 1 - i]));
    return emit_constant(e, &type, bytes);
}

static double spacing(double size) { return 2 / size; }
static double first_centre(double size) { return 1 / size - 1; }

/* The grid; positions in elements become those in [-1,1]. NULL after reporting a size that is not known. */
static const char *grid_of(emitter *e, const ir_node *n)
{
    const ir_value *grid = ir_in(n, IR_IN(grid_sample, grid));
    const ir_type *x = &ir_in(n, IR_IN(grid_sample, x))->type;
    if (!n->attr[IR_ATTR(grid_sample, absolute)].i) return emit_value(e, grid);
    for (int i = 2; i < x->rank; i++)
        if (ir_dim_is_symbolic(x->dims[i])) {
            emit_refuse(e, n, "the size of axis %d must be bound", i);
            return NULL;
        }
    const char *by = by_coordinate(e, n, spacing), *scaled = emit_call(e, n, "Mul", emit_value(e, grid), by);
    return emit_call(e, n, "Add", scaled, by_coordinate(e, n, first_centre));
}

void emit_grid_sample(emitter *e, const ir_node *n)
{
    enum { WITH_VOLUMES = 20 };
    static const char *const old_words[] = {"nearest", "bilinear", "bicubic"};
    const int64_t method = n->attr[IR_ATTR(grid_sample, method)].i;
    if (n->out[0]->type.rank != 4) emit_need(e, WITH_VOLUMES);
    const char *grid = grid_of(e, n);
    if (!grid) return;
    emit_op op = emit_begin(e, n, "GridSample");
    emit_operand(&op, IR_IN(grid_sample, x));
    emit_in(&op, grid);
    emit_text(&op, "mode", e->opset >= WITH_VOLUMES ? ir_words_sampling[method] : old_words[method]);
    emit_finish(&op);
}

void emit_roi_align(emitter *e, const ir_node *n)
{
    const int64_t *size = n->attr[IR_ATTR(roi_align, size)].list.items;
    const char *batch = emit_value_as(e, ir_in(n, IR_IN(roi_align, batch)), IR_i64);
    emit_op op = emit_begin(e, n, "RoiAlign");
    emit_operand(&op, IR_IN(roi_align, x));
    emit_operand(&op, IR_IN(roi_align, rois));
    emit_in(&op, batch);
    emit_int(&op, "output_height", size[0]);
    emit_int(&op, "output_width", size[1]);
    emit_text(&op, "mode", n->attr[IR_ATTR(roi_align, max)].i ? "max" : "avg");
    emit_text(&op, "coordinate_transformation_mode",
              n->attr[IR_ATTR(roi_align, half_pixel)].i ? "half_pixel" : "output_half_pixel");
    emit_finish(&op);
}
