/* test_gradient.c - checks every gradient rule against central differences, in f64.
 *
 * A row builds y = op(x, ...) for a set of shapes. The loss is sum(y * r) with random r, which makes every
 * element of y significant. Autodiff computes d(loss)/dx; the reference is (loss(x+h) - loss(x-h)) / 2h with
 * h = 6e-6 max(1,|x|). They agree if |a-n| <= 1e-7 + 1e-6 max(|a|,|n|). The rows draw values from intervals
 * without kinks (0 for relu, ties of max). The last test fails if an op has a gradient but no row. */
#include "passes/pass.h"
#include "tests/compile.h"
#include "runtime/session/session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_IN = 5, MAX_SHAPES = 14 };

typedef struct shape {
    int rank;
    int64_t dims[5];
} shape;

/* The distribution of an operand's elements. */
typedef enum draw {
    ANY,      /* +-[0.2, 2]: never near 0 */
    POSITIVE, /* [0.3, 2] */
    DISTINCT, /* a permutation of well separated values, without ties for max */
    INDEX,    /* i64 in [0, limit) */
    TRUTH     /* bool */
} draw;

typedef struct row row;
typedef ir_value *build_fn(ir_builder *b, const row *r, ir_value **in, int set);

struct row {
    const char *name;
    ir_op op;
    build_fn *build;
    int n_in;
    draw draws[MAX_IN];
    int64_t limit; /* of INDEX */
    int64_t p[4];  /* parameters of the builder */
    const char *text;
    shape sets[MAX_SHAPES][MAX_IN]; /* rank -1 ends the list */
};

/* ---- builders -------------------------------------------------------------------------------- */

static ir_value *plain(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)set;
    return ir_done(b, ir_new_array(b, r->op, r->n_in, in, 0));
}

static ir_value *with_first_attr(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)set;
    ir_node *n = ir_new_array(b, r->op, r->n_in, in, 0);
    if (n) n->attr[0].i = r->p[0];
    return ir_done(b, n);
}

static ir_value *build_clip(ir_builder *b, const row *r, ir_value **in, int set)
{
    ir_value *lo = set % 3 == 1 ? NULL : ir_scalar(b, IR_f64, -1.1);
    ir_value *hi = set % 3 == 2 ? NULL : ir_scalar(b, IR_f64, 0.9);
    return ir_done(b, ir_new(b, r->op, 3, in[0], lo, hi));
}

static ir_value *build_div_count(ir_builder *b, const row *r, ir_value **in, int set)
{
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_list(n, 0, (int64_t[]){3, set + 1}, 2);
    return ir_done(b, n);
}

static ir_value *build_reshape(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)r, (void)set;
    ir_dim count = ir_type_count(b->graph->module->dims, &in[0]->type);
    return ir_reshape(b, in[0], (ir_dim[]){1, count, 1}, 3);
}

static ir_value *build_transpose(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)r;
    int rank = in[0]->type.rank;
    int64_t perm[5];
    for (int i = 0; i < rank; i++) perm[i] = (i + 1 + set % (rank > 1 ? rank - 1 : 1)) % rank;
    ir_node *n = ir_new(b, IR_OP_transpose, 1, in[0]);
    ir_set_list(n, 0, perm, rank);
    return ir_done(b, n);
}

static ir_value *build_expand(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)r;
    ir_type t = in[0]->type, wide = {.dtype = t.dtype, .rank = t.rank + 1};
    wide.dims[0] = 1 + set % 3;
    for (int i = 0; i < t.rank; i++) wide.dims[i + 1] = t.dims[i] == 1 ? 2 + i : t.dims[i];
    return ir_expand(b, in[0], wide.dims, wide.rank);
}

static ir_value *build_concat(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)r;
    ir_node *n = ir_new(b, IR_OP_concat, 3, in[0], in[1], in[0]);
    ir_set_int(n, 0, set % in[0]->type.rank);
    return ir_done(b, n);
}

/* Only two of three parts are read, which leaves a hole in the gradient. */
static ir_value *build_split(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)r;
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

static ir_value *build_slice(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)r;
    int64_t start[5], size[5], step[5];
    slice_numbers(&in[0]->type, set, start, size, step);
    ir_node *n = ir_new(b, IR_OP_slice, 1, in[0]);
    ir_set_list(n, IR_ATTR(slice, start), start, in[0]->type.rank);
    ir_set_list(n, IR_ATTR(slice, size), size, in[0]->type.rank);
    ir_set_list(n, IR_ATTR(slice, step), step, in[0]->type.rank);
    return ir_done(b, n);
}

static ir_value *build_slice_grad(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)r, (void)set;
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

static ir_value *build_pad(ir_builder *b, const row *r, ir_value **in, int set)
{
    int rank = in[0]->type.rank;
    int64_t before[5], after[5];
    for (int i = 0; i < rank; i++) {
        before[i] = (set + i) % 2;
        after[i] = r->p[0] ? (set + i) % 2 : (i % 2 ? -1 : 1);
    }
    ir_node *n = ir_new(b, IR_OP_pad, 1, in[0]);
    ir_set_list(n, IR_ATTR(pad, before), before, rank);
    ir_set_list(n, IR_ATTR(pad, after), after, rank);
    ir_set_str(n, IR_ATTR(pad, mode), r->text);
    return ir_done(b, n);
}

static ir_value *build_gather(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)set;
    ir_node *n = ir_new(b, r->op, 2, in[0], in[1]);
    ir_set_int(n, IR_ATTR(gather, axis), r->p[0]);
    return ir_done(b, n);
}

/* dy has the shape of the indices in place of axis 0 of a [limit, rest] table. */
static ir_value *build_gather_grad(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)set;
    int64_t dims[5] = {r->limit};
    int rest = in[0]->type.rank - in[1]->type.rank;
    for (int i = 0; i < rest; i++) dims[i + 1] = in[0]->type.dims[in[1]->type.rank + i];
    ir_node *n = ir_new(b, IR_OP_gather_grad, 2, in[0], in[1]);
    ir_set_list(n, IR_ATTR(gather_grad, shape), dims, rest + 1);
    return ir_done(b, n);
}

static ir_value *build_cast(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)r, (void)set;
    return ir_cast(b, ir_cast(b, ir_binary(b, IR_OP_mul, in[0], in[0]), IR_f64), IR_f64);
}

static ir_value *build_matmul(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)set;
    return ir_matmul(b, in[0], in[1], r->n_in > 2 ? in[2] : NULL, r->p[0], r->p[1]);
}

/* p: stride, pad begin, pad end, dilation; the shapes determine the groups. */
static ir_value *build_conv(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)set;
    int k = in[0]->type.rank - 2;
    int64_t strides[3], dilations[3], pads[6];
    for (int i = 0; i < k; i++) {
        strides[i] = r->p[0];
        dilations[i] = r->p[3];
        pads[i] = r->p[1];
        pads[k + i] = r->p[2];
    }
    ir_node *n = ir_new(b, IR_OP_conv, 3, in[0], in[1], r->n_in > 2 ? in[2] : NULL);
    ir_set_list(n, IR_ATTR(conv, strides), strides, k);
    ir_set_list(n, IR_ATTR(conv, pads), pads, 2 * k);
    ir_set_list(n, IR_ATTR(conv, dilations), dilations, k);
    ir_set_int(n, IR_ATTR(conv, group), in[1]->type.dims[1] ? in[0]->type.dims[1] / in[1]->type.dims[1] : 1);
    return ir_done(b, n);
}

/* p: kernel, stride, pad, count_pad */
static ir_value *build_pool(ir_builder *b, const row *r, ir_value **in, int set)
{
    int k = in[0]->type.rank - 2;
    int64_t kernel[3], strides[3], dilations[3], pads[6];
    for (int i = 0; i < k; i++) {
        kernel[i] = r->p[0];
        strides[i] = r->p[1];
        dilations[i] = 1;
        pads[i] = pads[k + i] = r->p[2];
    }
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_list(n, IR_ATTR(max_pool, kernel), kernel, k);
    ir_set_list(n, IR_ATTR(max_pool, strides), strides, k);
    ir_set_list(n, IR_ATTR(max_pool, pads), pads, 2 * k);
    ir_set_list(n, IR_ATTR(max_pool, dilations), dilations, k);
    ir_set_bool(n, IR_ATTR(max_pool, ceil), set % 2);
    if (r->op == IR_OP_avg_pool) ir_set_bool(n, IR_ATTR(avg_pool, count_pad), r->p[3]);
    return ir_done(b, n);
}

static ir_value *build_batch_norm(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)set;
    ir_node *n = ir_new(b, IR_OP_batch_norm, 5, in[0], in[1], in[2], in[3], in[4]);
    ir_set_bool(n, IR_ATTR(batch_norm, training), r->p[0]);
    return ir_done(b, n);
}

static ir_value *build_layer_norm(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)set;
    ir_node *n = ir_new(b, IR_OP_layer_norm, 3, in[0], in[1], r->n_in > 2 ? in[2] : NULL);
    ir_set_int(n, IR_ATTR(layer_norm, axis), -in[1]->type.rank);
    return ir_done(b, n);
}

static ir_value *build_softmax(ir_builder *b, const row *r, ir_value **in, int set)
{
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_int(n, 0, set % in[0]->type.rank);
    return ir_done(b, n);
}

static ir_value *build_reduce(ir_builder *b, const row *r, ir_value **in, int set)
{
    int rank = in[0]->type.rank;
    int64_t axes[2] = {set % rank, rank - 1};
    ir_node *n = ir_new(b, r->op, 1, in[0]);
    ir_set_list(n, IR_ATTR(reduce_sum, axes), axes, axes[0] == axes[1] ? 1 : 2);
    ir_set_bool(n, IR_ATTR(reduce_sum, keepdims), set % 2);
    return ir_done(b, n);
}

static ir_value *build_loss(ir_builder *b, const row *r, ir_value **in, int set)
{
    static const char *const reductions[] = {"mean", "sum", "none"};
    ir_node *n = ir_new(b, r->op, 3, in[0], in[1], r->n_in > 2 ? in[2] : NULL);
    ir_set_int(n, IR_ATTR(nll_loss, ignore_index), set % 2 ? 1 : INT64_MIN);
    ir_set_str(n, IR_ATTR(nll_loss, reduction), reductions[set % 3]);
    return ir_done(b, n);
}

static ir_value *build_dropout(ir_builder *b, const row *r, ir_value **in, int set)
{
    (void)r;
    ir_type pair = ir_type_make(IR_i64, 1, (int64_t[]){2});
    ir_node *n = ir_new(b, IR_OP_dropout, 2, in[0], ir_constant(b, "rng", &pair, (int64_t[]){5, set}));
    ir_set_float(n, IR_ATTR(dropout, ratio), 0.09 * set);
    return ir_done(b, n);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* clang-format off */
#define S(...) {(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}}
#define SCALAR {0, {0}}
#define END_SETS {{-1, {0}}}
#define SHAPES1 \
    {{SCALAR}, {S(1)}, {S(0)}, {S(7)}, {S(3, 5)}, {S(2, 0, 3)}, {S(1, 1)}, {S(2, 3, 4)}, {S(33)}, {S(1, 3, 1, 2)}, \
     {S(17, 2)}, END_SETS}
#define SHAPES1_RANKED \
    {{S(1)}, {S(0)}, {S(7)}, {S(3, 5)}, {S(2, 0, 3)}, {S(1, 1)}, {S(2, 3, 4)}, {S(33)}, {S(1, 3, 1, 2)}, \
     {S(17, 2)}, {S(4, 1, 3)}, END_SETS}
#define SHAPES2 \
    {{SCALAR, SCALAR}, {S(3), SCALAR}, {SCALAR, S(2, 3)}, {S(3, 5), S(3, 5)}, {S(3, 5), S(5)}, {S(3, 1), S(1, 5)}, \
     {S(2, 3, 4), S(3, 1)}, {S(0, 3), S(1, 3)}, {S(1), S(7)}, {S(2, 1, 3), S(5, 1)}, {S(4, 1), S(4, 3)}, \
     {S(0), SCALAR}, END_SETS}
/* clang-format on */
#define UNARY(op, draw) {#op, IR_OP_##op, plain, 1, {draw}, 0, {0}, NULL, SHAPES1},
#define BINARY(op, a, b) {#op, IR_OP_##op, plain, 2, {a, b}, 0, {0}, NULL, SHAPES2},
/* clang-format off */
#define CONV_SHAPES \
    {{S(1, 1, 5), S(1, 1, 3), S(1)}, {S(2, 3, 7), S(4, 3, 3), S(4)}, {S(2, 4, 9), S(4, 2, 3), S(4)}, \
     {S(2, 3, 6, 5), S(5, 3, 3, 3), S(5)}, {S(1, 4, 5, 7), S(4, 1, 3, 3), S(4)}, \
     {S(0, 2, 5, 5), S(3, 2, 3, 3), S(3)}, {S(3, 1, 5, 5), S(2, 1, 3, 1), S(2)}, \
     {S(1, 2, 7, 5), S(2, 2, 1, 3), S(2)}, {S(1, 2, 5, 5, 5), S(2, 2, 3, 3, 3), S(2)}, \
     {S(2, 2, 5, 6, 5), S(2, 1, 3, 1, 3), S(2)}, END_SETS}
#define POOL_SHAPES \
    {{S(1, 1, 5)}, {S(2, 3, 7)}, {S(1, 2, 5, 5)}, {S(2, 1, 6, 7)}, {S(0, 1, 5, 5)}, {S(3, 2, 4, 9)}, \
     {S(1, 1, 4, 4)}, {S(1, 2, 5, 4, 5)}, {S(2, 1, 4, 5, 6)}, {S(1, 5, 8)}, END_SETS}
/* clang-format on */

/* clang-format off */
static row rows[] = {
    UNARY(neg, ANY) UNARY(abs, ANY) UNARY(sign, ANY) UNARY(floor, ANY) UNARY(ceil, ANY) UNARY(round, ANY)
    UNARY(relu, ANY) UNARY(sqrt, POSITIVE) UNARY(reciprocal, ANY) UNARY(exp, ANY) UNARY(log, POSITIVE)
    UNARY(sin, ANY) UNARY(cos, ANY) UNARY(tanh, ANY) UNARY(sigmoid, ANY) UNARY(erf, ANY) UNARY(softplus, ANY)
    UNARY(softsign, ANY)
    {"gelu", IR_OP_gelu, with_first_attr, 1, {ANY}, 0, {0}, NULL, SHAPES1},
    {"gelu tanh", IR_OP_gelu, with_first_attr, 1, {ANY}, 0, {1}, NULL, SHAPES1},
    {"clip", IR_OP_clip, build_clip, 1, {ANY}, 0, {0}, NULL, SHAPES1},
    {"div_count", IR_OP_div_count, build_div_count, 1, {ANY}, 0, {0}, NULL, SHAPES1},
    BINARY(add, ANY, ANY) BINARY(sub, ANY, ANY) BINARY(mul, ANY, ANY) BINARY(div, ANY, ANY)
    BINARY(pow, POSITIVE, ANY) BINARY(min, ANY, ANY) BINARY(max, ANY, ANY)
    {"where", IR_OP_where, plain, 3, {TRUTH, ANY, ANY}, 0, {0}, NULL,
     {{SCALAR, SCALAR, SCALAR}, {S(3), S(3), S(3)}, {S(1), S(3), S(3)}, {S(2, 3), S(3), SCALAR}, {S(2, 1),
      S(1, 3), S(2, 3)},
      {S(0), S(0), SCALAR}, {S(5), SCALAR, S(5)}, {S(4, 1, 2), S(3, 1), S(1)}, {S(7), S(1), S(1)}, {S(1),
       S(2, 2), S(2, 1)},
      END_SETS}},
    {"reshape", IR_OP_reshape, build_reshape, 1, {ANY}, 0, {0}, NULL, SHAPES1},
    {"transpose", IR_OP_transpose, build_transpose, 1, {ANY}, 0, {0}, NULL, SHAPES1_RANKED},
    {"expand", IR_OP_expand, build_expand, 1, {ANY}, 0, {0}, NULL,
     {{SCALAR}, {S(1)}, {S(3)}, {S(1, 3)}, {S(3, 1)}, {S(0)}, {S(2, 1, 3)}, {S(1, 1)}, {S(1, 2, 1)}, {S(5,
      1)}, END_SETS}},
    {"concat", IR_OP_concat, build_concat, 2, {ANY, ANY}, 0, {0}, NULL,
     {{S(1), S(1)}, {S(2, 3), S(2, 3)}, {S(2, 3), S(2, 3)}, {S(0), S(0)}, {S(3), S(3)}, {S(2, 1, 3), S(2, 1, 3)},
      {S(7), S(7)}, {S(1, 1), S(1, 1)}, {S(5, 2), S(5, 2)}, {S(2, 0), S(2, 0)}, END_SETS}},
    {"split", IR_OP_split, build_split, 1, {ANY}, 0, {0}, NULL,
     {{S(3)}, {S(6, 2)}, {S(2, 6, 4)}, {S(9)}, {S(0)}, {S(3, 3)}, {S(12, 1)}, {S(4, 3)}, {S(3, 1, 3)},
      {S(33)}, END_SETS}},
    {"slice", IR_OP_slice, build_slice, 1, {ANY}, 0, {0}, NULL, SHAPES1_RANKED},
    {"slice_grad", IR_OP_slice_grad, build_slice_grad, 1, {ANY}, 0, {0}, NULL, SHAPES1_RANKED},
    {"pad constant", IR_OP_pad, build_pad, 1, {ANY}, 0, {0}, "constant",
     {{S(1)}, {S(3)}, {S(2, 3)}, {S(2, 3, 4)}, {S(7)}, {S(1, 1)}, {S(5, 2)}, {S(3, 3)}, {S(4, 1, 2)},
      {S(33)}, END_SETS}},
    {"pad reflect", IR_OP_pad, build_pad, 1, {ANY}, 0, {1}, "reflect",
     {{S(2)}, {S(3)}, {S(2, 3)}, {S(2, 3, 4)}, {S(7)}, {S(2, 2)}, {S(5, 2)}, {S(3, 3)}, {S(4, 2, 2)},
      {S(33)}, END_SETS}},
    {"pad edge", IR_OP_pad, build_pad, 1, {ANY}, 0, {1}, "edge",
     {{S(1)}, {S(3)}, {S(2, 3)}, {S(2, 3, 4)}, {S(7)}, {S(1, 1)}, {S(5, 2)}, {S(3, 3)}, {S(4, 1, 2)},
      {S(33)}, END_SETS}},
    {"gather", IR_OP_gather, build_gather, 2, {ANY, INDEX}, 3, {0}, NULL,
     {{S(3), SCALAR}, {S(3), S(5)}, {S(3, 2), S(4)}, {S(3, 2), S(2, 2)}, {S(3), S(0)}, {S(3, 0), S(2)},
      {S(4, 3, 2), S(3)},
      {S(3, 1), S(1, 1)}, {S(5, 7), S(9)}, {S(3, 2, 2), S(2, 1)}, END_SETS}},
    {"gather axis 1", IR_OP_gather, build_gather, 2, {ANY, INDEX}, 2, {1}, NULL,
     {{S(3, 2), SCALAR}, {S(1, 2), S(5)}, {S(3, 2, 2), S(2, 2)}, {S(0, 2), S(3)}, END_SETS}},
    {"gather_grad", IR_OP_gather_grad, build_gather_grad, 2, {ANY, INDEX}, 3, {0}, NULL,
     {{SCALAR, SCALAR}, {S(5), S(5)}, {S(4, 2), S(4)}, {S(2, 2), S(2, 2)}, {S(0), S(0)}, {S(7, 1), S(7)},
      {S(1, 3), S(1)},
      {S(2, 2, 3), S(2, 2)}, {S(9, 2), S(9)}, {S(3, 0), S(3)}, END_SETS}},
    {"trilu", IR_OP_trilu, plain, 1, {ANY}, 0, {0}, NULL,
     {{S(1, 1)}, {S(3, 3)}, {S(2, 5)}, {S(5, 2)}, {S(0, 3)}, {S(2, 3, 3)}, {S(7, 7)}, {S(1, 4)}, {S(4, 1)},
      {S(2, 1, 4, 5)}, END_SETS}},
    {"cast", IR_OP_cast, build_cast, 1, {ANY}, 0, {0}, NULL, SHAPES1},
    {"matmul", IR_OP_matmul, build_matmul, 3, {ANY, ANY, ANY}, 0, {0, 0}, NULL,
     {{S(1, 1), S(1, 1), S(1)}, {S(2, 3), S(3, 4), S(4)}, {S(5, 7), S(7, 3), S(3)}, {S(0, 3), S(3, 2),
      S(2)}, {S(2, 0), S(0, 3), S(3)},
      {S(2, 3, 4), S(4, 5), S(5)}, {S(2, 3, 4), S(2, 4, 5), S(5)}, {S(2, 1, 3, 4), S(5, 4, 2), S(2)}, {S(3,
       4), S(2, 4, 5), S(5)},
      {S(1, 9), S(9, 1), S(1)}, {S(2, 2, 3, 3), S(3, 2), S(2)}, END_SETS}},
    {"matmul tn", IR_OP_matmul, build_matmul, 2, {ANY, ANY}, 0, {1, 0}, NULL,
     {{S(3, 2), S(3, 4)}, {S(2, 4, 3), S(4, 5)}, {S(2, 4, 3), S(2, 4, 5)}, {S(1, 1), S(1, 7)}, END_SETS}},
    {"matmul nt", IR_OP_matmul, build_matmul, 3, {ANY, ANY, ANY}, 0, {0, 1}, NULL,
     {{S(2, 3), S(4, 3), S(4)}, {S(2, 3, 4), S(5, 4), S(5)}, {S(2, 3, 4), S(2, 5, 4), S(5)}, {S(1, 7), S(1,
      7), S(1)}, END_SETS}},
    {"matmul tt", IR_OP_matmul, build_matmul, 2, {ANY, ANY}, 0, {1, 1}, NULL,
     {{S(3, 2), S(4, 3)}, {S(2, 4, 3), S(5, 4)}, {S(2, 4, 3), S(2, 5, 4)}, {S(1, 1), S(7, 1)}, END_SETS}},
    {"conv", IR_OP_conv, build_conv, 3, {ANY, ANY, ANY}, 0, {1, 0, 0, 1}, NULL, CONV_SHAPES},
    {"conv stride, pads", IR_OP_conv, build_conv, 3, {ANY, ANY, ANY}, 0, {2, 1, 2, 1}, NULL, CONV_SHAPES},
    {"conv dilated, no bias", IR_OP_conv, build_conv, 2, {ANY, ANY}, 0, {1, 1, 0, 2}, NULL, CONV_SHAPES},
    {"max_pool", IR_OP_max_pool, build_pool, 1, {DISTINCT}, 0, {3, 2, 1}, NULL, POOL_SHAPES},
    {"max_pool overlapping", IR_OP_max_pool, build_pool, 1, {DISTINCT}, 0, {2, 1, 0}, NULL, POOL_SHAPES},
    {"avg_pool", IR_OP_avg_pool, build_pool, 1, {ANY}, 0, {3, 2, 1, 0}, NULL, POOL_SHAPES},
    {"avg_pool counting pads", IR_OP_avg_pool, build_pool, 1, {ANY}, 0, {2, 1, 1, 1}, NULL, POOL_SHAPES},
    {"batch_norm training", IR_OP_batch_norm, build_batch_norm, 5, {ANY, ANY, ANY, ANY, POSITIVE}, 0, {1}, NULL,
     {{S(4, 1), S(1), S(1), S(1), S(1)}, {S(3, 2, 5), S(2), S(2), S(2), S(2)}, {S(2, 3, 4, 3), S(3), S(3),
      S(3), S(3)},
      {S(7, 3), S(3), S(3), S(3), S(3)}, {S(2, 2, 2, 3, 2), S(2), S(2), S(2), S(2)}, {S(5, 1, 3), S(1),
       S(1), S(1), S(1)},
      {S(3, 4, 1, 1), S(4), S(4), S(4), S(4)}, {S(1, 2, 3, 3), S(2), S(2), S(2), S(2)}, {S(9, 2), S(2),
       S(2), S(2), S(2)},
      {S(2, 0, 3), S(0), S(0), S(0), S(0)}, END_SETS}},
    {"batch_norm inference", IR_OP_batch_norm, build_batch_norm, 5, {ANY, ANY, ANY, ANY, POSITIVE}, 0, {0}, NULL,
     {{S(1, 1), S(1), S(1), S(1), S(1)}, {S(3, 2, 5), S(2), S(2), S(2), S(2)}, {S(2, 3, 4, 3), S(3), S(3),
      S(3), S(3)}, END_SETS}},
    {"layer_norm", IR_OP_layer_norm, build_layer_norm, 3, {ANY, ANY, ANY}, 0, {0}, NULL,
     {{S(3), S(3), S(3)}, {S(2, 5), S(5), S(5)}, {S(1, 7), S(7), S(7)}, {S(2, 3, 4), S(4), S(4)}, {S(2, 3,
      4), S(3, 4), S(3, 4)},
      {S(0, 4), S(4), S(4)}, {S(5, 2), S(2), S(2)}, {S(2, 33), S(33), S(33)}, {S(2, 2, 2, 3), S(2, 3), S(2,
       3)}, {S(9, 3), S(3), S(3)},
      END_SETS}},
    {"layer_norm without bias", IR_OP_layer_norm, build_layer_norm, 2, {ANY, ANY}, 0, {0}, NULL,
     {{S(2, 5), S(5)}, {S(2, 3, 4), S(3, 4)}, END_SETS}},
    {"softmax", IR_OP_softmax, build_softmax, 1, {ANY}, 0, {0}, NULL, SHAPES1_RANKED},
    {"log_softmax", IR_OP_log_softmax, build_softmax, 1, {ANY}, 0, {0}, NULL, SHAPES1_RANKED},
    {"reduce_sum", IR_OP_reduce_sum, build_reduce, 1, {ANY}, 0, {0}, NULL, SHAPES1_RANKED},
    {"reduce_mean", IR_OP_reduce_mean, build_reduce, 1, {ANY}, 0, {0}, NULL,
     {{S(1)}, {S(7)}, {S(3, 5)}, {S(1, 1)}, {S(2, 3, 4)}, {S(33)}, {S(1, 3, 1, 2)}, {S(17, 2)}, {S(4, 1,
      3)}, {S(0, 3)}, END_SETS}},
    {"softmax_cross_entropy", IR_OP_softmax_cross_entropy, build_loss, 2, {ANY, INDEX}, 3, {0}, NULL,
     {{S(4, 3), S(4)}, {S(5, 3), S(5)}, {S(2, 3), S(2)}, {S(7, 4), S(7)}, {S(2, 3, 5), S(2, 5)}, {S(2, 3,
      2, 3), S(2, 2, 3)},
      {S(3, 5), S(3)}, {S(9, 3), S(9)}, {S(0, 3), S(0)}, {S(5, 3, 1), S(5, 1)}, END_SETS}},
    {"softmax_cross_entropy weighted", IR_OP_softmax_cross_entropy, build_loss, 3, {ANY, INDEX, POSITIVE}, 3, {0}, NULL,
     {{S(4, 3), S(4), S(3)}, {S(5, 3), S(5), S(3)}, {S(2, 3, 5), S(2, 5), S(3)}, {S(9, 4), S(9), S(4)}, END_SETS}},
    {"nll_loss", IR_OP_nll_loss, build_loss, 2, {ANY, INDEX}, 3, {0}, NULL,
     {{S(4, 3), S(4)}, {S(5, 3), S(5)}, {S(2, 3), S(2)}, {S(7, 4), S(7)}, {S(2, 3, 5), S(2, 5)}, {S(2, 3,
      2, 3), S(2, 2, 3)},
      {S(3, 5), S(3)}, {S(9, 3), S(9)}, {S(0, 3), S(0)}, {S(5, 3, 1), S(5, 1)}, END_SETS}},
    {"nll_loss weighted", IR_OP_nll_loss, build_loss, 3, {ANY, INDEX, POSITIVE}, 3, {0}, NULL,
     {{S(4, 3), S(4), S(3)}, {S(5, 3), S(5), S(3)}, {S(2, 3, 5), S(2, 5), S(3)}, {S(9, 4), S(9), S(4)}, END_SETS}},
    {"dropout", IR_OP_dropout, build_dropout, 1, {ANY}, 0, {0}, NULL, SHAPES1_RANKED},
};
/* clang-format on */
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t random_state;

static double uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static size_t count_of(const shape *s)
{
    size_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= (size_t)s->dims[i];
    return n;
}

static void fill(void *data, draw how, size_t n, int64_t limit)
{
    double *x = data;
    for (size_t i = 0; i < n; i++) switch (how) {
        case ANY: x[i] = (uniform() < 0.5 ? -1 : 1) * (0.2 + 1.8 * uniform()); break;
        case POSITIVE: x[i] = 0.3 + 1.7 * uniform(); break;
        case DISTINCT: x[i] = (double)((i * 7919 + 13) % (n + 1)) * 0.1 - 1; break;
        case INDEX: ((int64_t *)data)[i] = (int64_t)(uniform() * (double)limit); break;
        case TRUTH: ((unsigned char *)data)[i] = uniform() < 0.5; break;
        }
}

static ir_dtype dtype_of(draw how) { return how == INDEX ? IR_i64 : how == TRUTH ? IR_bool : IR_f64; }

/* ---- one set of shapes ----------------------------------------------------------------------- */

typedef struct probe {
    const row *row;
    int set;
    diag *diag;
    ir_module *module;
    rt_session *session;
    rt_tensor inputs[MAX_IN + 1];
    int n;
    char error[512];
} probe;

static void take_message(void *user, diag_level level, const char *message)
{
    if (level == DIAG_ERROR) snprintf(((probe *)user)->error, 512, "%s", message);
}

static bool build_graph(probe *p)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    ir_graph *g = ir_graph_new(p->module, "train");
    g->role = IR_GRAPH_train;
    ir_value *in[MAX_IN];
    for (int i = 0; i < p->row->n_in; i++) {
        const shape *s = &p->row->sets[p->set][i];
        ir_type t = ir_type_make(dtype_of(p->row->draws[i]), s->rank, s->dims);
        in[i] = ir_graph_input(g, names[i], &t);
        p->inputs[i] = (rt_tensor){.name = names[i], .dtype = t.dtype, .rank = s->rank};
        memcpy(p->inputs[i].dims, s->dims, sizeof s->dims);
        p->inputs[i].data = calloc(count_of(s) + 1, 8);
        fill(p->inputs[i].data, p->row->draws[i], count_of(s), p->row->limit);
    }
    ir_builder b = ir_builder_at_end(g, p->diag);
    ir_value *y = p->row->build(&b, p->row, in, p->set);
    if (!y) return false;
    ir_type weights = y->type;
    ir_value *r = ir_graph_input(g, "r", &weights);
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; i < y->type.rank; i++) axes[i] = i;
    ir_value *loss = ir_reduce_sum(&b, ir_binary(&b, IR_OP_mul, y, r), axes, y->type.rank, false);
    ir_output_as(&b, IR_OUTPUT_loss, NULL, loss);
    r->role = IR_INPUT_label;
    p->n = p->row->n_in + 1;
    rt_tensor *w = &p->inputs[p->n - 1];
    *w = (rt_tensor){.name = "r", .dtype = IR_f64, .rank = weights.rank};
    size_t count = 1;
    for (int i = 0; i < weights.rank; i++) count *= (size_t)(w->dims[i] = weights.dims[i]);
    w->data = calloc(count + 1, 8);
    fill(w->data, ANY, count, 0);
    return loss != NULL;
}

static double loss_of(probe *p)
{
    assert_int_equal(rt_session_run(p->session, "train", p->inputs, p->n, p->diag), AMPC_OK);
    return *(const double *)rt_session_output(p->session, "loss")->data;
}

static double difference_quotient(probe *p, double *x)
{
    double old = *x, h = 6e-6 * fmax(1, fabs(old));
    *x = old + h;
    double up = loss_of(p);
    *x = old - h;
    double down = loss_of(p);
    *x = old;
    return (up - down) / (2 * h);
}

static void compare_operand(probe *p, int i)
{
    char name[16];
    snprintf(name, sizeof name, "gradin/%s", p->inputs[i].name);
    loss_of(p);
    const rt_tensor *d = rt_session_output(p->session, name);
    assert_non_null(d);
    size_t n = count_of(&p->row->sets[p->set][i]);
    double *analytic = malloc((n + 1) * sizeof *analytic);
    memcpy(analytic, d->data, n * sizeof *analytic);
    for (size_t k = 0; k < n; k++) {
        double numeric = difference_quotient(p, (double *)p->inputs[i].data + k);
        double bound = 1e-7 + 1e-6 * fmax(fabs(analytic[k]), fabs(numeric));
        if (!(fabs(analytic[k] - numeric) <= bound))
            fail_msg("%s, shapes %d, operand %d, element %zu: %.9g, numeric %.9g", p->row->name, p->set, i, k,
                     analytic[k], numeric);
    }
    free(analytic);
}

static void test_set(const row *r, int set)
{
    probe p = {.row = r, .set = set};
    p.diag = diag_new(take_message, &p);
    p.module = ir_module_new();
    random_state = (uint64_t)(set + 1) * 77777u;
    bool built = build_graph(&p);
    compile_options o = compile_options_default();
    ampc_status status = built ? test_pass(p.module, "autodiff", &o, p.diag) : AMPC_REJECTED;
    if (status == AMPC_OK) {
        rt_session_options options = {.device = "cpu", .threads = 1};
        status = rt_session_open(p.module, &options, p.diag, &p.session);
    }
    if (status != AMPC_OK) print_error("%s, shapes %d: %s\n", r->name, set, p.error);
    assert_int_equal(status, AMPC_OK);
    for (int i = 0; i < r->n_in; i++)
        if (dtype_of(r->draws[i]) == IR_f64 && !(r->op == IR_OP_batch_norm && i > 2) &&
            !((r->op == IR_OP_nll_loss || r->op == IR_OP_softmax_cross_entropy) && i > 1))
            compare_operand(&p, i);
    for (int i = 0; i < p.n; i++) free(p.inputs[i].data);
    rt_session_close(p.session);
    ir_module_free(p.module);
    diag_free(p.diag);
}

static void test_row(void **state)
{
    const row *r = *state;
    for (int set = 0; set < MAX_SHAPES && r->sets[set][0].rank >= 0; set++) test_set(r, set);
}

/* ---- coverage -------------------------------------------------------------------------------- */

static void test_coverage(void **state)
{
    (void)state;
    for (int op = 0; op < IR_OP_COUNT; op++) {
        int sets = 0;
        for (int i = 0; i < ROWS; i++)
            for (int k = 0; rows[i].op == (ir_op)op && k < MAX_SHAPES && rows[i].sets[k][0].rank >= 0; k++) sets++;
        if (pass_has_gradient((ir_op)op) && sets < 10)
            fail_msg("op %s has a gradient and only %d shapes", ir_op_get((ir_op)op)->name, sets);
    }
}

int main(void)
{
    static struct CMUnitTest tests[ROWS + 1];
    for (int i = 0; i < ROWS; i++)
        tests[i] = (struct CMUnitTest){.name = rows[i].name, .test_func = test_row, .initial_state = &rows[i]};
    tests[ROWS] = (struct CMUnitTest){.name = "every gradient has ten shapes", .test_func = test_coverage};
    return _cmocka_run_group_tests("gradient", tests, ROWS + 1, NULL, NULL);
}
