/* lower_blocks.c - operators that rearrange blocks of an image: DepthToSpace, SpaceToDepth, Col2Im, CenterCropPad. */
#include "frontend/lower/lower.h"

#include <string.h>

/* ---- DepthToSpace, SpaceToDepth -------------------------------------------------------------- */

/* The block size of an operand [N,C,H,W]. */
static int64_t block_size(onnx_node *n)
{
    int64_t size = onnx_int(n, "blocksize", 0);
    if (n->in[0]->type.rank != 4) onnx_reject(n, "the rank is %d, must be 4", n->in[0]->type.rank);
    else if (size < 1 || size > INT32_MAX) onnx_reject(n, "blocksize is %lld", (long long)size);
    return size;
}

/* dims / by, which must be a whole number. */
static ir_dim divide(onnx_node *n, ir_dim dim, int64_t by)
{
    ir_dim quotient = ir_dim_div(n->dims, dim, by);
    if (quotient == IR_DIM_NONE && ir_dim_is_symbolic(dim))
        onnx_refuse_dim(n, dim, "cannot divide %s by %lld", ir_dim_print(n->dims, dim, n->importer->scratch),
                        (long long)by);
    else if (quotient == IR_DIM_NONE)
        onnx_reject(n, "dimension %lld is not a multiple of %lld", (long long)dim, (long long)by);
    return quotient;
}

/* x reshaped to six dimensions, transposed, and reshaped to `to`. */
static ir_value *rearrange(onnx_node *n, const ir_dim *from, const int64_t *perm, const ir_dim *to)
{
    return ir_reshape(n->b, ir_transpose(n->b, ir_reshape(n->b, n->in[0], from, 6), perm), to, 4);
}

/* Whether the depth of a block is its row and column, then the channel (mode DCR), or the other way (CRD). */
static bool blocks_are_first(onnx_node *n, int mode_since)
{
    static const char *const modes[] = {"DCR", "CRD", NULL};
    return n->opset < mode_since || onnx_word(n, "mode", modes, 0) == 0;
}

void onnx_lower_depth_to_space(onnx_node *n)
{
    const bool blocks_first = blocks_are_first(n, 11);
    const int64_t b = block_size(n);
    if (n->failed) return;
    const ir_dim *x = n->in[0]->type.dims, depth = divide(n, x[1], b * b);
    if (n->failed) return;
    const ir_dim height = ir_dim_mul(n->dims, x[2], b), width = ir_dim_mul(n->dims, x[3], b);
    const ir_dim to[] = {x[0], depth, height, width};
    n->out[0] = blocks_first
                    ? rearrange(n, (ir_dim[]){x[0], b, b, depth, x[2], x[3]}, (int64_t[]){0, 3, 4, 1, 5, 2}, to)
                    : rearrange(n, (ir_dim[]){x[0], depth, b, b, x[2], x[3]}, (int64_t[]){0, 1, 4, 2, 5, 3}, to);
}

void onnx_lower_space_to_depth(onnx_node *n)
{
    const bool blocks_first = blocks_are_first(n, 28);
    const int64_t b = block_size(n);
    if (n->failed) return;
    const ir_dim *x = n->in[0]->type.dims, height = divide(n, x[2], b), width = divide(n, x[3], b);
    if (n->failed) return;
    const ir_dim to[] = {x[0], ir_dim_mul(n->dims, x[1], b * b), height, width};
    const int64_t *perm = blocks_first ? (int64_t[]){0, 3, 5, 1, 2, 4} : (int64_t[]){0, 1, 3, 5, 2, 4};
    n->out[0] = rearrange(n, (ir_dim[]){x[0], x[1], height, b, width, b}, perm, to);
}

/* ---- Col2Im ----------------------------------------------------------------------------------
 * The position in the padded image of element k of block l is a sum over the axes: (k*dilation + l*stride) times the
 * axis' stride in the image. Elements are added there, then the padding is cut off. */

enum { MAX_SPATIAL = ONNX_MAX_RANK - 2 };

typedef struct blocks {
    int axes;
    int64_t size[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL], before[MAX_SPATIAL];
    int64_t image[MAX_SPATIAL], padded[MAX_SPATIAL]; /* sizes of the image */
    int64_t count[MAX_SPATIAL];                      /* blocks per axis */
} blocks;

/* Entry i of a list attribute, or `otherwise`; values below `lowest` are malformed. */
static int64_t entry(onnx_node *n, onnx_list list, int i, int64_t lowest, int64_t otherwise)
{
    const int64_t v = list.present && i < list.count ? list.items[i] : otherwise;
    if (v < lowest || v > INT32_MAX) onnx_reject(n, "%lld in an attribute is out of range", (long long)v);
    return v;
}

static blocks read_blocks(onnx_node *n)
{
    onnx_list image = onnx_const_shape(n, 1), block = onnx_const_shape(n, 2), pads = onnx_ints(n, "pads");
    onnx_list strides = onnx_ints(n, "strides"), dilations = onnx_ints(n, "dilations");
    blocks b = {.axes = image.count};
    if (n->failed || !onnx_numeric(n, image, "a size of the image") || !onnx_numeric(n, block, "a size of the block"))
        return b;
    if (b.axes < 1 || b.axes > MAX_SPATIAL) onnx_refuse(n, "an image of %d axes is not supported", b.axes);
    else if (block.count != b.axes || (pads.present && pads.count != 2 * b.axes) ||
             (strides.present && strides.count != b.axes) || (dilations.present && dilations.count != b.axes))
        onnx_reject(n, "image_shape, block_shape, strides, dilations and pads differ in length");
    for (int i = 0; i < b.axes && !n->failed; i++) {
        b.image[i] = entry(n, image, i, 1, 0);
        b.size[i] = entry(n, block, i, 1, 0);
        b.stride[i] = entry(n, strides, i, 1, 1);
        b.dilation[i] = entry(n, dilations, i, 1, 1);
        b.before[i] = entry(n, pads, i, 0, 0);
        b.padded[i] = b.image[i] + b.before[i] + entry(n, pads, i + b.axes, 0, 0);
        const int64_t space = b.padded[i] - 1 - b.dilation[i] * (b.size[i] - 1);
        if (space < 0) onnx_reject(n, "axis %d: the block is larger than the padded image", i);
        b.count[i] = space / b.stride[i] + 1;
    }
    return b;
}

/* 0, step, 2*step, ... on axis `axis` of `rank`. */
static ir_value *ramp(onnx_node *n, int64_t size, int64_t step, int axis, int rank)
{
    ir_dim dims[2 * MAX_SPATIAL];
    for (int i = 0; i < rank; i++) dims[i] = i == axis ? size : 1;
    ir_value *scale = ir_scalar(n->b, IR_i64, (double)step);
    ir_value *v = ir_binary(n->b, IR_OP_mul, onnx_iota(n, IR_i64, size), scale);
    return ir_reshape(n->b, v, dims, rank);
}

/* The positions, [elements of a block * blocks]; *size: elements of the padded image. */
static ir_value *block_positions(onnx_node *n, const blocks *b, ir_dim total, int64_t *size)
{
    ir_value *sum = NULL;
    *size = 1;
    for (int i = b->axes - 1; i >= 0 && !n->failed; i--) {
        ir_value *within = ramp(n, b->size[i], b->dilation[i] * *size, i, 2 * b->axes);
        ir_value *start = ramp(n, b->count[i], b->stride[i] * *size, b->axes + i, 2 * b->axes);
        ir_value *both = ir_binary(n->b, IR_OP_add, within, start);
        sum = sum ? ir_binary(n->b, IR_OP_add, sum, both) : both;
        if (!checked_mul(*size, b->padded[i], size) || *size > INT32_MAX)
            onnx_refuse(n, "an image of more than %d elements is not supported", INT32_MAX);
    }
    return ir_reshape(n->b, sum, &total, 1);
}

/* The part of x, [N,C,padded], that is the image. */
static ir_value *cut_padding(onnx_node *n, const blocks *b, ir_value *x)
{
    int64_t start[IR_MAX_RANK] = {0}, size[IR_MAX_RANK], step[IR_MAX_RANK];
    if (!x || memcmp(b->image, b->padded, (size_t)b->axes * sizeof *b->image) == 0) return x;
    for (int i = 0; i < x->type.rank; i++) {
        size[i] = i < 2 ? x->type.dims[i] : b->image[i - 2];
        start[i] = i < 2 ? 0 : b->before[i - 2];
        step[i] = 1;
    }
    ir_node *node = ir_new(n->b, IR_OP_slice, 1, x);
    ir_set_list(node, IR_ATTR(slice, start), start, x->type.rank);
    ir_set_list(node, IR_ATTR(slice, size), size, x->type.rank);
    ir_set_list(node, IR_ATTR(slice, step), step, x->type.rank);
    return ir_done(n->b, node);
}

void onnx_lower_col2im(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    const blocks b = read_blocks(n);
    int64_t elements = 1, number = 1, size;
    if (!n->failed && x->rank != 3) onnx_reject(n, "the rank is %d, must be 3", x->rank);
    for (int i = 0; i < b.axes && !n->failed; i++)
        if (!checked_mul(elements, b.size[i], &elements) || !checked_mul(number, b.count[i], &number) ||
            elements > INT32_MAX || number > INT32_MAX)
            onnx_refuse(n, "more than %d blocks or elements of a block are not supported", INT32_MAX);
    if (!n->failed && x->dims[2] != number)
        onnx_reject(n, "there are %s blocks, but the image has %lld",
                    ir_dim_print(n->dims, x->dims[2], n->importer->scratch), (long long)number);
    const ir_dim channels = n->failed ? 1 : divide(n, x->dims[1], elements);
    if (n->failed) return;
    const ir_dim total = elements * number, rows = ir_dim_mul(n->dims, x->dims[0], channels);
    ir_value *positions = block_positions(n, &b, total, &size);
    ir_node *node = ir_new(n->b, IR_OP_gather_grad, 2, ir_reshape(n->b, n->in[0], (ir_dim[]){rows, total}, 2),
                           positions);
    ir_set_int(node, IR_ATTR(gather_grad, axis), 1);
    ir_set_list(node, IR_ATTR(gather_grad, shape), (ir_dim[]){rows, size}, 2);
    ir_dim dims[ONNX_MAX_RANK] = {x->dims[0], channels};
    memcpy(dims + 2, b.padded, (size_t)b.axes * sizeof *dims);
    n->out[0] = cut_padding(n, &b, ir_reshape(n->b, ir_done(n->b, node), dims, 2 + b.axes));
}

/* ---- CenterCropPad --------------------------------------------------------------------------- */

/* Negative amounts crop. An odd difference pads more at the end, and crops more at the end. */
void onnx_lower_center_crop_pad(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    onnx_list shape = onnx_const_shape(n, 1), axes = onnx_ints(n, "axes");
    const int count = axes.present ? axes.count : x->rank;
    int64_t before[IR_MAX_RANK] = {0}, after[IR_MAX_RANK] = {0};
    bool set[IR_MAX_RANK], nothing = true;
    if (!n->failed && shape.count != count) onnx_reject(n, "%d sizes for %d axes", shape.count, count);
    if (!n->failed) onnx_axes(n, axes, x->rank, set);
    for (int i = 0; i < count && !n->failed; i++) {
        const int axis = axes.present ? onnx_axis(n, axes.items[i], x->rank) : i;
        const int64_t more = onnx_size(n, ir_dim_sub(n->dims, shape.items[i], x->dims[axis]), "the difference in size");
        before[axis] = more / 2;
        after[axis] = more - more / 2;
        nothing &= more == 0;
    }
    if (nothing) n->out[0] = n->in[0];
    if (nothing || n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_pad, 1, n->in[0]);
    ir_set_list(node, IR_ATTR(pad, before), before, x->rank);
    ir_set_list(node, IR_ATTR(pad, after), after, x->rank);
    n->out[0] = ir_done(n->b, node);
}
