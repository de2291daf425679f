/* convolution.h - a common form of convolution and its two gradients: views named by role, and their geometry.
 *
 * x [N, G*C, spatial], w [G*M, C, kernel], y [N, G*M, spatial], where C and M count channels per group. */
#ifndef AMPC_CONVOLUTION_H
#define AMPC_CONVOLUTION_H

#include "kernels/kernel.h"

typedef enum conv_kind { CONV_FORWARD, CONV_GRAD_INPUT, CONV_GRAD_WEIGHT } conv_kind;

/* Sizes and windows per spatial axis; axes from `spatial` on have size and stride 1. Pads are `before` and `after`. */
typedef struct conv_geometry {
    int spatial;
    int64_t n, groups, c, m;
    int64_t x[3], y[3], k[3], stride[3], dilation[3], before[3], after[3];
} conv_geometry;

/* One of the three ops, with its views named as in the forward convolution. */
typedef struct conv {
    conv_kind kind;
    const k_view *x, *w, *bias, *y; /* gradients: dx, dw, dbias or dy in their place; bias may be NULL */
    conv_geometry g;
} conv;

/* The slots of attributes, which differ between the three ops. */
typedef struct conv_attrs {
    int strides, pads, dilations, group;
} conv_attrs;
/* clang-format off */
#define CONV_ATTRS(op) {IR_ATTR(op, strides), IR_ATTR(op, pads), IR_ATTR(op, dilations), IR_ATTR(op, group)}
/* clang-format on */

static inline int64_t conv_item(const k_args *args, int slot, int i, int64_t absent)
{
    const ir_attr *a = &args->attr[slot];
    return i < a->list.count ? a->list.items[i] : absent;
}

/* Fills axis i. The padding follows from y because with output padding a transposed convolution reads beyond `pads`. */
static inline void conv_axis(conv_geometry *g, const k_args *args, conv_attrs at, int i)
{
    g->stride[i] = conv_item(args, at.strides, i, 1);
    g->dilation[i] = conv_item(args, at.dilations, i, 1);
    g->before[i] = conv_item(args, at.pads, i, 0);
    g->after[i] = conv_item(args, at.pads, g->spatial + i, 0);
    int64_t window = (g->k[i] - 1) * g->dilation[i] + 1;
    if ((g->x[i] + g->before[i] + g->after[i] - window) / g->stride[i] + 1 != g->y[i])
        g->after[i] = (g->y[i] - 1) * g->stride[i] + window - g->x[i] - g->before[i];
}

static inline conv conv_make(const k_args *args, conv_kind kind, const k_view *x, const k_view *w, const k_view *bias,
                             const k_view *y, conv_attrs at)
{
    conv c = {.kind = kind, .x = x, .w = w, .bias = bias, .y = y};
    conv_geometry *g = &c.g;
    g->spatial = x->rank - 2;
    g->groups = args->attr[at.group].i;
    g->n = x->dims[0];
    g->c = g->groups ? x->dims[1] / g->groups : 0;
    g->m = g->groups ? y->dims[1] / g->groups : 0;
    for (int i = 0; i < 3; i++) g->x[i] = g->y[i] = g->k[i] = g->stride[i] = g->dilation[i] = 1;
    for (int i = 0; i < g->spatial; i++) {
        g->x[i] = x->dims[2 + i];
        g->y[i] = y->dims[2 + i];
        g->k[i] = w->dims[2 + i];
        conv_axis(g, args, at, i);
    }
    return c;
}

/* The common form of args->op: conv, conv_grad_input or conv_grad_weight. */
static inline conv conv_of(const k_args *args)
{
    const k_view *in = args->in, *out = args->out;
    if (args->op == IR_OP_conv)
        return conv_make(args, CONV_FORWARD, &in[IR_IN(conv, x)], &in[IR_IN(conv, w)],
                         k_present(&in[IR_IN(conv, bias)]) ? &in[IR_IN(conv, bias)] : NULL, &out[IR_OUT(conv, y)],
                         (conv_attrs)CONV_ATTRS(conv));
    if (args->op == IR_OP_conv_grad_input)
        return conv_make(args, CONV_GRAD_INPUT, &out[IR_OUT(conv_grad_input, dx)], &in[IR_IN(conv_grad_input, w)], NULL,
                         &in[IR_IN(conv_grad_input, dy)], (conv_attrs)CONV_ATTRS(conv_grad_input));
    const k_view *dbias = &out[IR_OUT(conv_grad_weight, dbias)];
    return conv_make(args, CONV_GRAD_WEIGHT, &in[IR_IN(conv_grad_weight, x)], &out[IR_OUT(conv_grad_weight, dw)],
                     k_present(dbias) && dbias->data ? dbias : NULL, &in[IR_IN(conv_grad_weight, dy)],
                     (conv_attrs)CONV_ATTRS(conv_grad_weight));
}

static inline bool conv_is_empty(const conv *c)
{
    return k_count(c->x) == 0 || k_count(c->w) == 0 || k_count(c->y) == 0;
}

static inline const k_view *conv_result(const conv *c)
{
    return c->kind == CONV_FORWARD ? c->y : c->kind == CONV_GRAD_INPUT ? c->x : c->w;
}

#endif
