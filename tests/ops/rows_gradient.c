/* rows_gradient.c - the rows of test_gradient.c and the functions that build their graphs. */
#include "tests/ops/rows_gradient.h"

/* ---- builders -------------------------------------------------------------------------------- */

#define BUILDER(name) \
    static ir_value *name(ir_builder *b, __attribute__((unused)) const gradient_row *r, ir_value **in, \
                          __attribute__((unused)) int set)

BUILDER(plain) { return ir_done(b, ir_new_array(b, r->op, r->n_in, in, 0)); }

static void set_word(ir_node *n, int attr, const char *word)
{
    if (n) ir_set_int(n, attr, ir_words_find(ir_op_get(n->op)->attr[attr].words, word));
}

/* p: the first attribute; text: the reduction */
BUILDER(build_index)
{
    ir_node *n = ir_new_array(b, r->op, r->n_in, in, 0);
    if (n) n->attr[0].i = r->p[0];
    if (r->text) set_word(n, IR_ATTR(scatter_nd, reduction), r->text);
    return ir_done(b, n);
}

/* p: stride, pad begin, pad end, dilation of each of k axes */
static void set_window(ir_node *n, ir_op op, int k, const int64_t p[4])
{
    int64_t strides[3], dilations[3], pads[6];
    for (int i = 0; i < k; i++) {
        strides[i] = p[0];
        pads[i] = p[1];
        pads[k + i] = p[2];
        dilations[i] = p[3];
    }
    ir_set_list(n, ir_op_find_attr(op, "strides"), strides, k);
    ir_set_list(n, ir_op_find_attr(op, "pads"), pads, 2 * k);
    ir_set_list(n, ir_op_find_attr(op, "dilations"), dilations, k);
}

/* alpha is not 1. */
BUILDER(build_alpha)
{
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_float(n, ir_op_find_attr(r->op, "alpha"), 0.5 + 0.25 * set);
    return ir_done(b, n);
}

BUILDER(build_clip)
{
    ir_value *lo = set % 3 == 1 ? NULL : r->n_in > 1 ? in[1] : ir_scalar(b, IR_f64, -1.1);
    ir_value *hi = set % 3 == 2 ? NULL : r->n_in > 2 ? in[2] : ir_scalar(b, IR_f64, 0.9);
    return ir_done(b, ir_new(b, r->op, 3, in[0], lo, hi));
}

BUILDER(build_div_count)
{
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_list(n, 0, (int64_t[]){3, set + 1}, 2);
    return ir_done(b, n);
}

BUILDER(build_reshape)
{
    ir_dim count = ir_type_count(b->graph->module->dims, &in[0]->type);
    return ir_reshape(b, in[0], (ir_dim[]){1, count, 1}, 3);
}

BUILDER(build_transpose)
{
    int rank = in[0]->type.rank;
    int64_t perm[5];
    for (int i = 0; i < rank; i++) perm[i] = (i + 1 + set % (rank > 1 ? rank - 1 : 1)) % rank;
    ir_node *n = ir_new(b, IR_OP_transpose, 1, in[0]);
    ir_set_list(n, 0, perm, rank);
    return ir_done(b, n);
}

BUILDER(build_expand)
{
    ir_type t = in[0]->type, wide = {.dtype = t.dtype, .rank = t.rank + 1};
    wide.dims[0] = 1 + set % 3;
    for (int i = 0; i < t.rank; i++) wide.dims[i + 1] = t.dims[i] == 1 ? 2 + i : t.dims[i];
    return ir_expand(b, in[0], wide.dims, wide.rank);
}

BUILDER(build_concat)
{
    ir_node *n = ir_new(b, IR_OP_concat, 3, in[0], in[1], in[0]);
    ir_set_int(n, 0, set % in[0]->type.rank);
    return ir_done(b, n);
}

/* Only two of three parts are read, which leaves a hole in the gradient. */
BUILDER(build_split)
{
    int axis = set % in[0]->type.rank;
    int64_t d = in[0]->type.dims[axis], sizes[3] = {d / 3, d / 3, d - 2 * (d / 3)};
    ir_node *n = ir_new_array(b, IR_OP_split, 1, in, 3);
    ir_set_int(n, IR_ATTR(split, axis), axis);
    ir_set_list(n, IR_ATTR(split, sizes), sizes, 3);
    if (!ir_done_all(b, n)) return NULL;
    return ir_binary(b, IR_OP_mul, n->out[0], n->out[0]);
}

static void slice_numbers(const ir_type *t, int set, int64_t *start, int64_t *size, int64_t *step)
{
    for (int i = 0; i < t->rank; i++) {
        int64_t d = t->dims[i];
        bool back = (set + i) % 3 == 0;
        step[i] = back ? -2 : 1 + (set + i) % 2;
        start[i] = d == 0 ? 0 : back ? d - 1 : d > 1;
        size[i] = d == 0 ? 0 : back ? start[i] / 2 + 1 : (d - start[i] + step[i] - 1) / step[i];
    }
}

BUILDER(build_slice)
{
    int64_t start[5], size[5], step[5];
    slice_numbers(&in[0]->type, set, start, size, step);
    ir_node *n = ir_new(b, IR_OP_slice, 1, in[0]);
    ir_set_list(n, IR_ATTR(slice, start), start, in[0]->type.rank);
    ir_set_list(n, IR_ATTR(slice, size), size, in[0]->type.rank);
    ir_set_list(n, IR_ATTR(slice, step), step, in[0]->type.rank);
    return ir_done(b, n);
}

BUILDER(build_slice_grad)
{
    int64_t shape_[5], start[5], step[5];
    int rank = in[0]->type.rank;
    for (int i = 0; i < rank; i++) {
        shape_[i] = in[0]->type.dims[i] * 2 + 1;
        start[i] = 1;
        step[i] = 2;
    }
    ir_node *n = ir_new(b, IR_OP_slice_grad, 1, in[0]);
    ir_set_list(n, IR_ATTR(slice_grad, shape), shape_, rank);
    ir_set_list(n, IR_ATTR(slice_grad, start), start, rank);
    ir_set_list(n, IR_ATTR(slice_grad, step), step, rank);
    return ir_done(b, n);
}

BUILDER(build_pad)
{
    int rank = in[0]->type.rank;
    int64_t before[5], after[5];
    for (int i = 0; i < rank; i++) {
        before[i] = (set + i) % 2;
        after[i] = r->p[0] ? (set + i) % 2 : (i % 2 ? -1 : 1);
    }
    ir_node *n = ir_new(b, IR_OP_pad, 2, in[0], r->n_in > 1 ? in[1] : NULL);
    ir_set_list(n, IR_ATTR(pad, before), before, rank);
    ir_set_list(n, IR_ATTR(pad, after), after, rank);
    set_word(n, IR_ATTR(pad, mode), r->text);
    return ir_done(b, n);
}

/* dy has the shape of the indices in place of axis 0 of a [limit, rest] table. */
BUILDER(build_gather_grad)
{
    int64_t dims[5] = {r->limit};
    int rest = in[0]->type.rank - in[1]->type.rank;
    for (int i = 0; i < rest; i++) dims[i + 1] = in[0]->type.dims[in[1]->type.rank + i];
    ir_node *n = ir_new(b, IR_OP_gather_grad, 2, in[0], in[1]);
    ir_set_list(n, IR_ATTR(gather_grad, shape), dims, rest + 1);
    return ir_done(b, n);
}

BUILDER(build_cast)
{
    ir_node *n = ir_new(b, IR_OP_cast, 1, in[0]); /* ir_cast would add none */
    ir_set_dtype(n, IR_ATTR(cast, to), IR_f64);
    ir_value *y = ir_done(b, n);
    return ir_binary(b, IR_OP_mul, y, y);
}

BUILDER(build_matmul) { return ir_matmul(b, in[0], in[1], r->n_in > 2 ? in[2] : NULL, r->p[0], r->p[1]); }

/* p: as in set_window; the shapes determine the groups. */
BUILDER(build_conv)
{
    ir_node *n = ir_new(b, IR_OP_conv, 3, in[0], in[1], r->n_in > 2 ? in[2] : NULL);
    set_window(n, IR_OP_conv, in[0]->type.rank - 2, r->p);
    ir_set_int(n, IR_ATTR(conv, group), in[1]->type.dims[1] ? in[0]->type.dims[1] / in[1]->type.dims[1] : 1);
    return ir_done(b, n);
}

/* p: as for conv; each axis is as long as its windows, plus p[0] - 1 elements that no window covers. */
BUILDER(build_conv_transpose)
{
    const int k = in[0]->type.rank - 2;
    const int64_t group = r->limit, *x = in[0]->type.dims, *w = in[1]->type.dims, *p = r->p;
    int64_t shape[5] = {x[0], w[1] * group};
    for (int i = 2; i < k + 2; i++) shape[i] = (x[i] - 1) * p[0] + (w[i] - 1) * p[3] + 1 - p[1] - p[2] + p[0] - 1;
    ir_node *n = ir_new(b, IR_OP_conv_grad_input, 2, in[0], in[1]);
    ir_set_list(n, IR_ATTR(conv_grad_input, shape), shape, k + 2);
    set_window(n, IR_OP_conv_grad_input, k, p);
    ir_set_int(n, IR_ATTR(conv_grad_input, group), group);
    return ir_done(b, n);
}

/* p: numerator and denominator of the scale of the last axes, their number, and whether the scale is given. */
BUILDER(build_resize)
{
    static const char *const coordinates[] = {"half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
    int rank = in[0]->type.rank, count = (int)r->p[2] < rank ? (int)r->p[2] : rank;
    int64_t axes[5], scales[10], shape[5];
    for (int i = 0; i < rank; i++) shape[i] = in[0]->type.dims[i];
    for (int i = 0; i < count; i++) {
        axes[i] = rank - count + i;
        scales[2 * i] = r->p[0];
        scales[2 * i + 1] = r->p[1];
        shape[axes[i]] = shape[axes[i]] * r->p[0] / r->p[1];
    }
    ir_node *n = ir_new(b, IR_OP_resize, 1, in[0]);
    ir_set_list(n, IR_ATTR(resize, shape), shape, rank);
    ir_set_list(n, IR_ATTR(resize, axes), axes, count);
    if (r->p[3]) ir_set_list(n, IR_ATTR(resize, scales), scales, 2 * count);
    set_word(n, IR_ATTR(resize, method), r->text);
    set_word(n, IR_ATTR(resize, coordinates), coordinates[set % 4]);
    set_word(n, IR_ATTR(resize, rounding), roundings[set / 2 % 4]);
    ir_set_bool(n, IR_ATTR(resize, antialias), set % 3 == 1 && r->text[0] != 'n');
    ir_set_bool(n, IR_ATTR(resize, exclude_outside), set % 3 == 2);
    return ir_done(b, n);
}

/* p: border, align_corners, absolute */
BUILDER(build_grid_sample)
{
    static const char *const borders[] = {"zeros", "border", "reflection"};
    (void)set;
    ir_node *n = ir_new(b, IR_OP_grid_sample, 2, in[0], in[1]);
    set_word(n, IR_ATTR(grid_sample, method), r->text);
    set_word(n, IR_ATTR(grid_sample, border), borders[r->p[0]]);
    ir_set_bool(n, IR_ATTR(grid_sample, align_corners), r->p[1]);
    ir_set_bool(n, IR_ATTR(grid_sample, absolute), r->p[2]);
    return ir_done(b, n);
}

/* p: samples, half_pixel, max */
BUILDER(build_roi_align)
{
    static const double rois[] = {0.3, -0.4, 3.7, 2.9, -1.2, 0.6, 1.9, 5.3, 1.1, 1.3, 2.2, 1.8};
    const ir_type type = ir_type_make(IR_f64, 2, (int64_t[]){3, 4}), list = ir_type_make(IR_i64, 1, (int64_t[]){3});
    const int64_t last = in[0]->type.dims[0] - 1;
    ir_value *batch = ir_constant(b, "batch", &list, (int64_t[]){0, last, last});
    ir_node *n = ir_new(b, IR_OP_roi_align, 3, in[0], ir_constant(b, "rois", &type, rois), batch);
    ir_set_list(n, IR_ATTR(roi_align, size), (int64_t[]){1 + set % 3, 2}, 2);
    ir_set_int(n, IR_ATTR(roi_align, sampling), r->p[0]);
    ir_set_bool(n, IR_ATTR(roi_align, half_pixel), r->p[1]);
    ir_set_bool(n, IR_ATTR(roi_align, max), r->p[2]);
    return ir_done(b, n);
}

/* p: the cell; 1: reverse, 2: linear_before_reset, 4: input_forget, 8: lengths, 16: clip. Operands: x, r, bias or the
 * peepholes, h0, c0. All states are results. */
BUILDER(build_recurrent)
{
    const ir_type *x = &in[0]->type, lengths = ir_type_make(IR_i64, 1, x->dims + 1);
    const int64_t hidden = in[1]->type.dims[1], last[3] = {1, x->dims[1], hidden};
    const bool lstm = r->p[0] == IR_WORD(cell, lstm);
    int64_t numbers[8];
    for (int i = 0; i < 8; i++) numbers[i] = (i + set) % (x->dims[0] + 1);
    ir_node *n = ir_new(b, IR_OP_recurrent, 7, in[0], in[1],
                        lstm          ? NULL
                        : r->n_in > 3 ? in[3]
                                      : NULL,
                        in[2], lstm ? in[4] : NULL, lstm ? in[3] : NULL,
                        r->p[1] & 8 ? ir_constant(b, "lengths", &lengths, numbers) : NULL);
    ir_set_int(n, IR_ATTR(recurrent, cell), r->p[0]);
    ir_set_bool(n, IR_ATTR(recurrent, reverse), r->p[1] & 1);
    ir_set_bool(n, IR_ATTR(recurrent, linear_before_reset), r->p[1] & 2);
    ir_set_bool(n, IR_ATTR(recurrent, input_forget), r->p[1] & 4);
    ir_set_float(n, IR_ATTR(recurrent, clip), r->p[1] & 16 ? 1.5 : 0);
    set_word(n, IR_ATTR(recurrent, f), r->text ? r->text : r->p[0] == IR_WORD(cell, rnn) ? "tanh" : "sigmoid");
    for (int i = 0; i < 3; i++) {
        ir_set_float(n, IR_ATTR(recurrent, f) + 3 * i + 1, 0.75);
        ir_set_float(n, IR_ATTR(recurrent, f) + 3 * i + 2, 0.375);
    }
    if (!ir_done_all(b, n)) return NULL;
    ir_value *states[3] = {n->out[0], ir_reshape(b, n->out[1], last, 3), ir_reshape(b, n->out[2], last, 3)};
    return ir_done(b, ir_new_array(b, IR_OP_concat, lstm ? 3 : 2, states, 0));
}

/* p: causal, dropout in 1/8 */
BUILDER(build_attention)
{
    const ir_type pair = ir_type_make(IR_i64, 1, (int64_t[]){2});
    ir_value *rng = r->p[1] ? ir_constant(b, "rng", &pair, (int64_t[]){5, set}) : NULL;
    ir_node *n = ir_new(b, IR_OP_attention, 5, in[0], in[1], in[2], r->n_in > 3 ? in[3] : NULL, rng);
    ir_set_float(n, IR_ATTR(attention, scale), 0.5);
    ir_set_float(n, IR_ATTR(attention, ratio), 0.125 * (double)r->p[1]);
    ir_set_bool(n, IR_ATTR(attention, causal), r->p[0]);
    return ir_done(b, n);
}

/* p: kernel, stride, pad, count_pad, or 2: sum */
BUILDER(build_pool)
{
    const int k = in[0]->type.rank - 2;
    const int64_t kernel[3] = {r->p[0], r->p[0], r->p[0]};
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_list(n, IR_ATTR(max_pool, kernel), kernel, k);
    set_window(n, r->op, k, (int64_t[]){r->p[1], r->p[2], r->p[2], 1});
    ir_set_bool(n, IR_ATTR(max_pool, ceil), set % 2);
    if (r->op == IR_OP_avg_pool) ir_set_bool(n, IR_ATTR(avg_pool, count_pad), r->p[3] == 1);
    if (r->op == IR_OP_avg_pool) ir_set_bool(n, IR_ATTR(avg_pool, sum), r->p[3] == 2);
    return ir_done(b, n);
}

/* p: training; also adds products of the other results to y. */
BUILDER(build_batch_norm)
{
    ir_node *n = ir_new(b, IR_OP_batch_norm, 5, in[0], in[1], in[2], in[3], in[4]);
    ir_set_bool(n, IR_ATTR(batch_norm, training), r->p[0]);
    ir_value *y = ir_done(b, n);
    if (!y || !r->p[1]) return y;
    ir_value *v = ir_binary(b, IR_OP_mul, n->out[IR_OUT(batch_norm, mean_out)], n->out[IR_OUT(batch_norm, var_out)]);
    ir_value *w = ir_binary(b, IR_OP_mul, n->out[IR_OUT(batch_norm, saved_mean)],
                            n->out[IR_OUT(batch_norm, saved_rstd)]);
    ir_type channel = ir_type_make(IR_f64, y->type.rank - 1, (int64_t[4]){in[1]->type.dims[0], 1, 1, 1});
    return ir_binary(b, IR_OP_add, y, ir_reshape_like(b, ir_binary(b, IR_OP_add, v, w), &channel));
}

/* Of the axes of the scale, or of any without one; p: not centred. */
BUILDER(build_layer_norm)
{
    ir_value *scale = r->n_in > 1 ? in[1] : NULL;
    ir_node *n = ir_new(b, IR_OP_layer_norm, 3, in[0], scale, r->n_in > 2 ? in[2] : NULL);
    ir_set_int(n, IR_ATTR(layer_norm, axis), scale ? -scale->type.rank : set % in[0]->type.rank);
    ir_set_bool(n, IR_ATTR(layer_norm, center), !r->p[0]);
    return ir_done(b, n);
}

BUILDER(build_top_k)
{
    const int axis = set % in[0]->type.rank;
    const int64_t k = (in[0]->type.dims[axis] + 1) / 2;
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_int(n, IR_ATTR(top_k, axis), axis);
    ir_set_list(n, IR_ATTR(top_k, count), &k, 1);
    ir_set_bool(n, IR_ATTR(top_k, largest), set % 2);
    return ir_done(b, n);
}

BUILDER(build_cum_sum)
{
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_int(n, IR_ATTR(cum_sum, axis), set % in[0]->type.rank);
    ir_set_bool(n, IR_ATTR(cum_sum, exclusive), set % 2);
    ir_set_bool(n, IR_ATTR(cum_sum, reverse), set / 2 % 2);
    return ir_done(b, n);
}

BUILDER(build_softmax)
{
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_int(n, 0, set % in[0]->type.rank);
    return ir_done(b, n);
}

BUILDER(build_reduce)
{
    int rank = in[0]->type.rank;
    int64_t axes[2] = {set % rank, rank - 1};
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_list(n, IR_ATTR(reduce_sum, axes), axes, axes[0] == axes[1] ? 1 : 2);
    ir_set_bool(n, IR_ATTR(reduce_sum, keepdims), set % 2);
    return ir_done(b, n);
}

BUILDER(build_loss)
{
    static const char *const reductions[] = {"mean", "sum", "none"};
    ir_node *n = ir_new(b, r->op, 3, in[0], in[1], r->n_in > 2 ? in[2] : NULL);
    ir_set_int(n, IR_ATTR(nll_loss, ignore_index), set % 2 ? 1 : INT64_MIN);
    set_word(n, IR_ATTR(nll_loss, reduction), reductions[set % 3]);
    return ir_done(b, n);
}

/* The sum of the loss of each item and the square of its lse, so that gradients arrive at both. */
BUILDER(build_lse)
{
    ir_node *n = ir_new(b, r->op, 2, in[0], in[1]);
    set_word(n, IR_ATTR(softmax_cross_entropy, reduction), "none");
    ir_value *loss = ir_done(b, n), *lse = loss ? ir_out(n, IR_OUT(softmax_cross_entropy, lse)) : NULL;
    return ir_binary(b, IR_OP_add, loss, ir_binary(b, IR_OP_mul, lse, lse));
}

/* The same with the last classes as padding, and log-probabilities with a weight each. */
BUILDER(build_padded)
{
    static const int64_t start[IR_MAX_RANK], step[] = {1, 1, 1, 1};
    const int rank = in[0]->type.rank;
    ir_type part = in[0]->type;
    part.dims[1] = 3;
    ir_node *n = ir_new(b, r->op, 2, in[0], in[1]);
    set_word(n, IR_ATTR(softmax_cross_entropy, reduction), "none");
    ir_set_int(n, IR_ATTR(softmax_cross_entropy, classes), part.dims[1]);
    ir_value *loss = ir_done(b, n), *lse = loss ? ir_out(n, IR_OUT(softmax_cross_entropy, lse)) : NULL;
    ir_value *sum = ir_binary(b, IR_OP_add, loss, ir_binary(b, IR_OP_mul, lse, lse));
    ir_node *slice = ir_new(b, IR_OP_slice, 1, loss ? ir_out(n, IR_OUT(softmax_cross_entropy, log_prob)) : NULL);
    ir_set_list(slice, IR_ATTR(slice, start), start, rank);
    ir_set_list(slice, IR_ATTR(slice, size), part.dims, rank);
    ir_set_list(slice, IR_ATTR(slice, step), step, rank);
    ir_value *log_prob = ir_done(b, slice), *square = ir_binary(b, IR_OP_mul, log_prob, log_prob);
    return ir_binary(b, IR_OP_add, sum, ir_reduce_sum(b, square, (int64_t[]){1}, 1, false));
}

BUILDER(build_dropout)
{
    ir_type pair = ir_type_make(IR_i64, 1, (int64_t[]){2});
    ir_node *n = ir_new(b, IR_OP_dropout, 2, in[0], ir_constant(b, "rng", &pair, (int64_t[]){5, set}));
    ir_set_float(n, IR_ATTR(dropout, ratio), 0.09 * set);
    return ir_done(b, n);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* clang-format off */
#define SHAPES1 "., 1, 0, 7, 3x5, 2x0x3, 1x1, 2x3x4, 33, 1x3x1x2, 17x2"
#define SHAPES1_RANKED "1, 0, 7, 3x5, 2x0x3, 1x1, 2x3x4, 33, 1x3x1x2, 17x2, 4x1x3"
#define SHAPES2 ". ., 3 ., . 2x3, 3x5 3x5, 3x5 5, 3x1 1x5, 2x3x4 3x1, 0x3 1x3, 1 7, 2x1x3 5x1, 4x1 4x3, 0 ."
/* clang-format on */
#define ONE(op, build, draw, shapes) {#op, IR_OP_##op, build, 1, {draw}, 0, {0}, NULL, shapes},
#define UNARY(op, draw) ONE(op, plain, draw, SHAPES1)
#define BINARY(op, a, b) {#op, IR_OP_##op, plain, 2, {a, b}, 0, {0}, NULL, SHAPES2},
/* clang-format off */
#define CONV_SHAPES \
     "1x1x5 1x1x3 1, 2x3x7 4x3x3 4, 2x4x9 4x2x3 4, 2x3x6x5 5x3x3x3 5, 1x4x5x7 4x1x3x3 4, 0x2x5x5 3x2x3x3 3, " \
     "3x1x5x5 2x1x3x1 2, 1x2x7x5 2x2x1x3 2, 1x2x5x5x5 2x2x3x3x3 2, 2x2x5x6x5 2x1x3x1x3 2"
#define POOL_SHAPES "1x1x5, 2x3x7, 1x2x5x5, 2x1x6x7, 0x1x5x5, 3x2x4x9, 1x1x4x4, 1x2x5x4x5, 2x1x4x5x6, 1x5x8"
#define GRID_SHAPES "1x2x5 1x4x1, 2x1x3x4 2x2x3x2, 1x3x4x2 1x1x5x2, 2x2x5x1 2x2x2x2, 0x2x3x3 0x2x2x2, 1x1x2x3x3 1x2x1x2x3"
#define REGION_SHAPES "1x2x5x4, 2x1x3x6, 3x2x4x4, 1x1x1x5"
#define TRANSPOSED_SHAPES \
     "1x2x5 2x1x3, 2x4x7 4x3x3, 2x2x3 2x2x4, 2x2x4x5 2x3x3x3, 1x4x3x4 4x1x2x3, 0x2x3x3 2x2x3x3, 3x2x1x1 2x2x3x2, " \
     "1x2x5x2 2x1x2x4, 1x2x2x3x2 2x1x3x2x3, 2x2x3x2x2 2x2x2x2x2"
#define RESIZE_SHAPES "3, 7, 2x3, 2x0x3, 5x4, 2x3x4, 2x1x5, 1x2x3x4, 2x2x5x3, 2x3x4x2, 1x2x3x2x3, 2x1x2x3x4"
/* clang-format on */

/* clang-format off */
const gradient_row gradient_rows[] = {
    UNARY(sqrt, POSITIVE) UNARY(log, POSITIVE) UNARY(tan, FRACTION) UNARY(asin, FRACTION) UNARY(acos, FRACTION)
    UNARY(acosh, ABOVE_ONE) UNARY(atanh, FRACTION) BINARY(prelu, ANY, ANY)
    {"gelu tanh", IR_OP_gelu, build_index, 1, {ANY}, 0, {1}, NULL, SHAPES1},
    {"swish alpha", IR_OP_swish, build_alpha, 1, {ANY}, 0, {0}, NULL, SHAPES1},
    {"celu alpha", IR_OP_celu, build_alpha, 1, {ANY}, 0, {0}, NULL, SHAPES1},
    {"clip by bounds", IR_OP_clip, build_clip, 3, {ANY, ANY, ANY}, 0, {0}, NULL,
     "7 . ., 3x5 . ., 5 . ., 2x3x2 . ., . . ., 0 . ., 9 . ., 17 . ."},
    BINARY(add, ANY, ANY) BINARY(sub, ANY, ANY) BINARY(mul, ANY, ANY) BINARY(div, ANY, ANY)
    BINARY(mod, ANY, ANY) {"fmod", IR_OP_mod, build_index, 2, {ANY, ANY}, 0, {1}, NULL, SHAPES2},
    BINARY(pow, POSITIVE, ANY) BINARY(min, ANY, ANY) BINARY(max, ANY, ANY)
    {"where", IR_OP_where, plain, 3, {TRUTH, ANY, ANY}, 0, {0}, NULL,
     ". . ., 3 3 3, 1 3 3, 2x3 3 ., 2x1 1x3 2x3, 0 0 ., 5 . 5, 4x1x2 3x1 1, 7 1 1, 1 2x2 2x1"},
    {"expand", IR_OP_expand, build_expand, 1, {ANY}, 0, {0}, NULL, "., 1, 3, 1x3, 3x1, 0, 2x1x3, 1x1, 1x2x1, 5x1"},
    {"concat", IR_OP_concat, build_concat, 2, {ANY, ANY}, 0, {0}, NULL,
     "1 1, 2x3 2x3, 2x3 2x3, 0 0, 3 3, 2x1x3 2x1x3, 7 7, 1x1 1x1, 5x2 5x2, 2x0 2x0"},
    {"split", IR_OP_split, build_split, 1, {ANY}, 0, {0}, NULL, "3, 6x2, 2x6x4, 9, 0, 3x3, 12x1, 4x3, 3x1x3, 33"},
    {"pad constant", IR_OP_pad, build_pad, 1, {ANY}, 0, {0}, "constant", "1, 3, 2x3, 2x3x4, 7, 1x1, 5x2, 3x3, 4x1x2, 33"},
    {"pad with a value", IR_OP_pad, build_pad, 2, {ANY, ANY}, 0, {0}, "constant", "3 ., 3x2 ., 2x3x2 ., 0x2 ."},
    {"pad reflect", IR_OP_pad, build_pad, 1, {ANY}, 0, {1}, "reflect", "2, 3, 2x3, 2x3x4, 7, 2x2, 5x2, 3x3, 4x2x2, 33"},
    {"pad edge", IR_OP_pad, build_pad, 1, {ANY}, 0, {1}, "edge", "1, 3, 2x3, 2x3x4, 7, 1x1, 5x2, 3x3, 4x1x2, 33"},
    {"gather", IR_OP_gather, build_index, 2, {ANY, INDEX}, 3, {0}, NULL,
     "3 ., 3 5, 3x2 4, 3x2 2x2, 3 0, 3x0 2, 4x3x2 3, 3x1 1x1, 5x7 9, 3x2x2 2x1"},
    {"gather axis 1", IR_OP_gather, build_index, 2, {ANY, INDEX}, 2, {1}, NULL, "3x2 ., 1x2 5, 3x2x2 2x2, 0x2 3"},
    {"gather_grad", IR_OP_gather_grad, build_gather_grad, 2, {ANY, INDEX}, 3, {0}, NULL,
     ". ., 5 5, 4x2 4, 2x2 2x2, 0 0, 7x1 7, 1x3 1, 2x2x3 2x2, 9x2 9, 3x0 3"},
    {"gather_elements", IR_OP_gather_elements, build_index, 2, {ANY, INDEX}, 3, {0}, NULL,
     "3 5, 3x2 4x2, 4x3 2x1, 3 0, 3x2x2 5x1x2"},
    {"gather_elements axis 1", IR_OP_gather_elements, build_index, 2, {ANY, INDEX}, 3, {1}, NULL,
     "2x3 2x5, 2x4x2 1x4x2, 1x3 1x1, 0x3 0x2, 3x3 3x3"},
    {"gather_nd", IR_OP_gather_nd, build_index, 2, {ANY, INDEX}, 3, {0}, NULL, "3 5x1, 3x4 1, 3x4 2, 3x3x2 2x3x2, 4x3 0x1"},
    {"gather_nd batch", IR_OP_gather_nd, build_index, 2, {ANY, INDEX}, 3, {1}, NULL,
     "2x3 2x1, 2x3x4 2x5x1, 2x3x3 2x4x2, 0x3 0x2x1, 1x3x2 1x1"},
#define SCATTER_ELEMENTS(reduction) \
    {"scatter_elements " reduction, IR_OP_scatter_elements, build_index, 3, {DISTINCT, INDEX, DISTINCT}, 3, {0}, \
     reduction, "3 5 5, 3x2 4x2 4x2, 4x3 2x1 2x1"},
#define SCATTER_ND(reduction) \
    {"scatter_nd " reduction, IR_OP_scatter_nd, build_index, 3, {DISTINCT, INDEX, DISTINCT}, 3, {0}, reduction, \
     "3 5x1 5, 3x4 1 4, 3x3x2 2x3x2 2x3x2"},
    SCATTER_ELEMENTS("none") SCATTER_ELEMENTS("add") SCATTER_ELEMENTS("mul") SCATTER_ELEMENTS("max")
    SCATTER_ELEMENTS("min") SCATTER_ND("none") SCATTER_ND("add") SCATTER_ND("mul") SCATTER_ND("max") SCATTER_ND("min")
    {"scatter_nd batch", IR_OP_scatter_nd, build_index, 3, {ANY, INDEX, ANY}, 3, {1}, "add", "2x3 2x1 2, 2x3x4 2x5x1 2x5x4"},
    {"trilu", IR_OP_trilu, plain, 1, {ANY}, 0, {0}, NULL, "1x1, 3x3, 2x5, 5x2, 0x3, 2x3x3, 7x7, 1x4, 4x1, 2x1x4x5"},
    {"matmul", IR_OP_matmul, build_matmul, 3, {ANY, ANY, ANY}, 0, {0, 0}, NULL,
     "1x1 1x1 1, 2x3 3x4 4, 5x7 7x3 3, 0x3 3x2 2, 2x0 0x3 3, 2x3x4 4x5 5, 2x3x4 2x4x5 5, 2x1x3x4 5x4x2 2, 3x4 2x4x5 5, "
     "1x9 9x1 1, 2x2x3x3 3x2 2"},
    {"matmul tn", IR_OP_matmul, build_matmul, 2, {ANY, ANY}, 0, {1, 0}, NULL, "3x2 3x4, 2x4x3 4x5, 2x4x3 2x4x5, 1x1 1x7"},
    {"matmul nt", IR_OP_matmul, build_matmul, 3, {ANY, ANY, ANY}, 0, {0, 1}, NULL,
     "2x3 4x3 4, 2x3x4 5x4 5, 2x3x4 2x5x4 5, 1x7 1x7 1"},
    {"matmul tt", IR_OP_matmul, build_matmul, 2, {ANY, ANY}, 0, {1, 1}, NULL, "3x2 4x3, 2x4x3 5x4, 2x4x3 2x5x4, 1x1 7x1"},
    {"conv", IR_OP_conv, build_conv, 3, {ANY, ANY, ANY}, 0, {1, 0, 0, 1}, NULL, CONV_SHAPES},
    {"conv stride, pads", IR_OP_conv, build_conv, 3, {ANY, ANY, ANY}, 0, {2, 1, 2, 1}, NULL, CONV_SHAPES},
    {"conv dilated, no bias", IR_OP_conv, build_conv, 2, {ANY, ANY}, 0, {1, 1, 0, 2}, NULL, CONV_SHAPES},
    {"max_pool", IR_OP_max_pool, build_pool, 1, {DISTINCT}, 0, {3, 2, 1}, NULL, POOL_SHAPES},
    {"max_pool overlapping", IR_OP_max_pool, build_pool, 1, {DISTINCT}, 0, {2, 1, 0}, NULL, POOL_SHAPES},
    {"avg_pool", IR_OP_avg_pool, build_pool, 1, {ANY}, 0, {3, 2, 1, 0}, NULL, POOL_SHAPES},
    {"avg_pool counting pads", IR_OP_avg_pool, build_pool, 1, {ANY}, 0, {2, 1, 1, 1}, NULL, POOL_SHAPES},
    {"sums of pools", IR_OP_avg_pool, build_pool, 1, {POSITIVE}, 0, {3, 2, 1, 2}, NULL, POOL_SHAPES},
    {"conv_transpose", IR_OP_conv_grad_input, build_conv_transpose, 2, {ANY, ANY}, 1, {1, 0, 0, 1}, NULL,
     TRANSPOSED_SHAPES},
    {"conv_transpose stride, pads", IR_OP_conv_grad_input, build_conv_transpose, 2, {ANY, ANY}, 1, {2, 1, 0, 2}, NULL,
     TRANSPOSED_SHAPES},
    {"conv_transpose groups", IR_OP_conv_grad_input, build_conv_transpose, 2, {ANY, ANY}, 2, {3, 0, 1, 1}, NULL,
     TRANSPOSED_SHAPES},
    {"resize nearest", IR_OP_resize, build_resize, 1, {ANY}, 0, {2, 1, 2, 1}, "nearest", RESIZE_SHAPES},
    {"resize nearest down", IR_OP_resize, build_resize, 1, {ANY}, 0, {3, 5, 3, 0}, "nearest", RESIZE_SHAPES},
    {"resize linear", IR_OP_resize, build_resize, 1, {ANY}, 0, {2, 1, 2, 0}, "linear", RESIZE_SHAPES},
    {"resize linear down", IR_OP_resize, build_resize, 1, {ANY}, 0, {3, 5, 3, 1}, "linear", RESIZE_SHAPES},
    {"resize cubic", IR_OP_resize, build_resize, 1, {ANY}, 0, {7, 4, 2, 1}, "cubic", RESIZE_SHAPES},
    {"resize cubic down", IR_OP_resize, build_resize, 1, {ANY}, 0, {1, 2, 2, 0}, "cubic", RESIZE_SHAPES},
    {"attention", IR_OP_attention, build_attention, 3, {ANY, ANY, ANY}, 0, {0}, NULL,
     "3x4 5x4 5x2, 2x3x4 2x5x4 2x5x2, 2x4x3x2 2x2x5x2 2x2x5x3, 1x1 1x1 1x1"},
    {"attention causal", IR_OP_attention, build_attention, 3, {ANY, ANY, ANY}, 0, {1}, NULL,
     "3x4 3x4 3x2, 2x3x4 2x5x4 2x5x2, 2x5x4 2x3x4 2x3x2"},
    {"attention dropout", IR_OP_attention, build_attention, 3, {ANY, ANY, ANY}, 0, {1, 3}, NULL,
     "3x4 5x4 5x2, 2x3x4 2x5x4 2x5x2, 2x4x3x2 2x2x5x2 2x2x5x3, 3x4 70x4 70x2"},
    {"attention mask", IR_OP_attention, build_attention, 4, {ANY, ANY, ANY, TRUTH}, 0, {0}, NULL,
     "3x4 5x4 5x2 3x5, 2x3x4 2x5x4 2x5x2 2x1x5, 2x2x3x4 2x1x5x4 2x1x5x2 2x1x3x5"},
    {"grid_sample", IR_OP_grid_sample, build_grid_sample, 2, {ANY, ANY}, 0, {0, 0, 0}, "linear", GRID_SHAPES},
    {"grid_sample border", IR_OP_grid_sample, build_grid_sample, 2, {ANY, ANY}, 0, {1, 1, 0}, "linear", GRID_SHAPES},
    {"grid_sample reflection", IR_OP_grid_sample, build_grid_sample, 2, {ANY, ANY}, 0, {2, 0, 0}, "linear", GRID_SHAPES},
    {"grid_sample absolute", IR_OP_grid_sample, build_grid_sample, 2, {ANY, ANY}, 0, {0, 0, 1}, "linear", GRID_SHAPES},
    {"grid_sample nearest", IR_OP_grid_sample, build_grid_sample, 2, {ANY, ANY}, 0, {1, 0, 0}, "nearest", GRID_SHAPES},
    {"grid_sample cubic", IR_OP_grid_sample, build_grid_sample, 2, {ANY, ANY}, 0, {2, 1, 0}, "cubic", GRID_SHAPES},
    {"roi_align", IR_OP_roi_align, build_roi_align, 1, {ANY}, 0, {2, 1, 0}, NULL, REGION_SHAPES},
    {"roi_align by size", IR_OP_roi_align, build_roi_align, 1, {ANY}, 0, {0, 0, 0}, NULL, REGION_SHAPES},
    {"roi_align max", IR_OP_roi_align, build_roi_align, 1, {ANY}, 0, {2, 1, 1}, NULL, REGION_SHAPES},
#define LSTM_SHAPES "3x2x12 12x3 2x3 3x3 2x3, 1x1x4 4x1 1x1 3x1 1x1, 4x3x8 8x2 3x2 3x2 3x2, 0x2x8 8x2 2x2 3x2 2x2"
#define GRU_SHAPES "3x2x9 9x3 2x3 3, 1x1x3 3x1 1x1 1, 4x3x6 6x2 3x2 2"
#define RNN_SHAPES "3x2x3 3x3 2x3, 1x1x1 1x1 1x1, 5x3x2 2x2 3x2"
#define LSTM(name, flags, word) \
    {"lstm" name, IR_OP_recurrent, build_recurrent, 5, {ANY, FRACTION, FRACTION, ANY, FRACTION}, 0, \
     {IR_WORD(cell, lstm), flags}, word, LSTM_SHAPES},
#define GRU(name, flags, word, n) \
    {"gru" name, IR_OP_recurrent, build_recurrent, n, {ANY, FRACTION, FRACTION, ANY}, 0, \
     {IR_WORD(cell, gru), flags}, word, GRU_SHAPES},
#define RNN(name, flags, word) \
    {"rnn" name, IR_OP_recurrent, build_recurrent, 3, {ANY, FRACTION, FRACTION}, 0, {IR_WORD(cell, rnn), flags}, word, RNN_SHAPES},
    LSTM("", 0, NULL) LSTM(" reverse, lengths", 9, NULL) LSTM(" coupled, clip", 20, NULL) LSTM(" affine", 1, "affine")
    LSTM(" scaled_tanh", 8, "scaled_tanh") LSTM(" softplus", 4, "softplus")
    GRU("", 0, NULL, 3) GRU(" reverse, lengths", 9, NULL, 3) GRU(" clip", 16, "softplus", 3)
    GRU(" after", 2, NULL, 4) GRU(" after, reverse, lengths", 11, "hard_sigmoid", 4) GRU(" after, no bias", 18, NULL, 3)
    RNN("", 0, NULL) RNN(" reverse, lengths", 9, NULL) RNN(" relu", 8, "relu") RNN(" elu", 1, "elu")
    RNN(" leaky_relu", 0, "leaky_relu") RNN(" thresholded_relu", 0, "thresholded_relu")
    {"batch_norm training", IR_OP_batch_norm, build_batch_norm, 5, {ANY, ANY, ANY, ANY, POSITIVE}, 0, {1}, NULL,
     "4x1 1 1 1 1, 3x2x5 2 2 2 2, 2x3x4x3 3 3 3 3, 7x3 3 3 3 3, 2x2x2x3x2 2 2 2 2, 5x1x3 1 1 1 1, 3x4x1x1 4 4 4 4, "
     "1x2x3x3 2 2 2 2, 9x2 2 2 2 2, 2x0x3 0 0 0 0"},
    {"batch_norm inference", IR_OP_batch_norm, build_batch_norm, 5, {ANY, ANY, ANY, ANY, POSITIVE}, 0, {0}, NULL,
     "1x1 1 1 1 1, 3x2x5 2 2 2 2, 2x3x4x3 3 3 3 3"},
    {"batch_norm statistics", IR_OP_batch_norm, build_batch_norm, 5, {ANY, ANY, ANY, ANY, POSITIVE}, 0, {1, 1}, NULL,
     "4x2 2 2 2 2, 3x2x5 2 2 2 2"},
    {"batch_norm given statistics", IR_OP_batch_norm, build_batch_norm, 5, {ANY, ANY, ANY, ANY, POSITIVE}, 0, {0, 1}, NULL,
     "4x2 2 2 2 2, 3x2x5 2 2 2 2, 2x3x2x2 3 3 3 3"},
    {"layer_norm", IR_OP_layer_norm, build_layer_norm, 3, {ANY, ANY, ANY}, 0, {0}, NULL,
     "3 3 3, 2x5 5 5, 1x7 7 7, 2x3x4 4 4, 2x3x4 3x4 3x4, 0x4 4 4, 5x2 2 2, 2x33 33 33, 2x2x2x3 2x3 2x3, 9x3 3 3"},
    {"layer_norm without bias", IR_OP_layer_norm, build_layer_norm, 2, {ANY, ANY}, 0, {0}, NULL, "2x5 5, 2x3x4 3x4"},
    {"layer_norm without mean", IR_OP_layer_norm, build_layer_norm, 2, {ANY, ANY}, 0, {1}, NULL,
     "3 3, 2x5 5, 2x3x4 3x4, 0x4 4, 5x1 1, 2x33 33"},
    {"layer_norm without scale", IR_OP_layer_norm, build_layer_norm, 1, {ANY}, 0, {0}, NULL,
     "3, 3x5, 2x3x4, 2x3x2x2, 17x2, 0x3, 9"},
    {"layer_norm without mean and scale", IR_OP_layer_norm, build_layer_norm, 1, {ANY}, 0, {1}, NULL, SHAPES1_RANKED},
    {"reduce_mean", IR_OP_reduce_mean, build_reduce, 1, {ANY}, 0, {0}, NULL,
     "1, 7, 3x5, 1x1, 2x3x4, 33, 1x3x1x2, 17x2, 4x1x3, 0x3"},
    {"reduce_prod with one zero", IR_OP_reduce_prod, build_reduce, 1, {DISTINCT}, 0, {0}, NULL, "12, 3x5, 2x3x4, 17x2, 33"},
    {"reduce_log_sum", IR_OP_reduce_log_sum, build_reduce, 1, {POSITIVE}, 0, {0}, NULL,
     "1, 7, 3x5, 1x1, 2x3x4, 33, 1x3x1x2, 17x2, 4x1x3, 0x3"},
    {"if", IR_OP_if, gradient_build_if, 3, {TRUTH, ANY, ANY}, 0, {0}, NULL,
     ". . ., 1 3 3, . 2x3 2x3, . 0 0, . 5 5, . 1x3x2 1x3x2, . 7 7, 1 33 33, . 4x1 4x1, . 2x2 2x2"},
    {"loop", IR_OP_loop, gradient_build_loop, 2, {ANY, ANY}, 0, {0}, NULL,
     "3 3, 2x3 2x3, 3 3, . ., 0 0, 5 5, 2x1x2 2x1x2, 4 4, 2 2, 3x2 3x2"},
    {"scan", IR_OP_loop, gradient_build_scan, 3, {ANY, ANY, ANY}, 0, {0}, NULL,
     "3 3 0x3, 2 2 1x2, 3 3 17x3, . . 4, 2x2 2x2 3x2x2, 1 1 5x1"},
    {"det", IR_OP_det, plain, 1, {ANY}, 0, {0}, NULL, "1x1, 2x2, 3x3, 4x2x2, 2x3x3x3, 5x5, 0x3x3, 2x1x1, 7x7, 3x0x2x2"},
    {"softmax_cross_entropy", IR_OP_softmax_cross_entropy, build_loss, 2, {ANY, INDEX}, 3, {0}, NULL,
     "4x3 4, 5x3 5, 2x3 2, 7x4 7, 2x3x5 2x5, 2x3x2x3 2x2x3, 3x5 3, 9x3 9, 0x3 0, 5x3x1 5x1"},
    {"softmax_cross_entropy weighted", IR_OP_softmax_cross_entropy, build_loss, 3, {ANY, INDEX, POSITIVE}, 3, {0}, NULL,
     "4x3 4 3, 5x3 5 3, 2x3x5 2x5 3, 9x4 9 4"},
    {"softmax_cross_entropy lse", IR_OP_softmax_cross_entropy, build_lse, 2, {ANY, INDEX}, 3, {0}, NULL,
     "4x3 4, 2x3x5 2x5, 2x3x2x3 2x2x3, 0x3 0"},
    {"softmax_cross_entropy padded", IR_OP_softmax_cross_entropy, build_padded, 2, {ANY, INDEX}, 3, {0}, NULL,
     "4x5 4, 2x4x5 2x5, 2x8x2x3 2x2x3, 5x3 5, 0x5 0"},
    {"nll_loss", IR_OP_nll_loss, build_loss, 2, {ANY, INDEX}, 3, {0}, NULL,
     "4x3 4, 5x3 5, 2x3 2, 7x4 7, 2x3x5 2x5, 2x3x2x3 2x2x3, 3x5 3, 9x3 9, 0x3 0, 5x3x1 5x1"},
    {"nll_loss weighted", IR_OP_nll_loss, build_loss, 3, {ANY, INDEX, POSITIVE}, 3, {0}, NULL,
     "4x3 4 3, 5x3 5 3, 2x3x5 2x5 3, 9x4 9 4"},
    ONE(gelu, build_index, ANY, SHAPES1) ONE(clip, build_clip, ANY, SHAPES1) ONE(div_count, build_div_count, ANY, SHAPES1)
    ONE(reshape, build_reshape, ANY, SHAPES1) ONE(transpose, build_transpose, ANY, SHAPES1_RANKED)
    ONE(slice, build_slice, ANY, SHAPES1_RANKED) ONE(slice_grad, build_slice_grad, ANY, SHAPES1_RANKED)
    ONE(cast, build_cast, ANY, SHAPES1) ONE(softmax, build_softmax, ANY, SHAPES1_RANKED)
    ONE(log_softmax, build_softmax, ANY, SHAPES1_RANKED) ONE(top_k, build_top_k, DISTINCT, SHAPES1_RANKED)
    ONE(cum_sum, build_cum_sum, ANY, SHAPES1_RANKED) ONE(dropout, build_dropout, ANY, SHAPES1_RANKED)
    ONE(reduce_sum, build_reduce, ANY, SHAPES1_RANKED) ONE(reduce_max, build_reduce, DISTINCT, SHAPES1_RANKED)
    ONE(reduce_min, build_reduce, DISTINCT, SHAPES1_RANKED) ONE(reduce_prod, build_reduce, ANY, SHAPES1_RANKED)
    ONE(reduce_l1, build_reduce, ANY, SHAPES1_RANKED) ONE(reduce_l2, build_reduce, ANY, SHAPES1_RANKED)
    ONE(reduce_sum_square, build_reduce, ANY, SHAPES1_RANKED)
    {0},
};

gradient_row gradient_default(ir_op op)
{
    return (gradient_row){ir_op_get(op)->name, op, plain, 1, {ANY}, 0, {0}, NULL, SHAPES1};
}
/* clang-format on */
