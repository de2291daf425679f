/* recurrent.h - one direction of a recurrent network, for host and device code. */
#ifndef AMPC_RECURRENT_H
#define AMPC_RECURRENT_H

#include "ir/ops/words.h"

typedef struct recurrent_activation {
    int word;
    double p, q;
} recurrent_activation;

typedef struct recurrent_shape {
    long long steps, batch, hidden;
    int cell, gates, saved; /* columns of x and of `gates` per hidden unit */
    int reverse, input_forget, linear_before_reset;
    double clip; /* infinity: none */
    recurrent_activation f, g, h;
} recurrent_shape;

#ifndef __cplusplus
#include "kernels/kernel.h"

#include <math.h>

#define RECURRENT_SAME(name) \
    _Static_assert(IR_ATTR(recurrent, name) == IR_ATTR(recurrent_grad, name), "one reader reads both ops");
RECURRENT_SAME(cell)
RECURRENT_SAME(reverse)
RECURRENT_SAME(input_forget)
RECURRENT_SAME(linear_before_reset)
RECURRENT_SAME(clip)
RECURRENT_SAME(f)
RECURRENT_SAME(g)
RECURRENT_SAME(h)
#undef RECURRENT_SAME
_Static_assert(IR_ATTR(recurrent, f) + 1 == IR_ATTR(recurrent, f_alpha), "an activation precedes its parameters");
_Static_assert(IR_ATTR(recurrent, f) + 2 == IR_ATTR(recurrent, f_beta), "an activation precedes its parameters");
_Static_assert(IR_ATTR(recurrent, f) + 3 == IR_ATTR(recurrent, g), "activations are adjacent");
_Static_assert(IR_ATTR(recurrent, g) + 3 == IR_ATTR(recurrent, h), "activations are adjacent");

static inline recurrent_activation recurrent_activation_of(const ir_attr *attr)
{
    return (recurrent_activation){.word = (int)attr[0].i, .p = attr[1].f, .q = attr[2].f};
}

/* `states` is the result or operand y. */
static inline recurrent_shape recurrent_shape_of(const k_args *args, const k_view *states)
{
    const ir_attr *attr = args->attr;
    const int cell = (int)attr[IR_ATTR(recurrent, cell)].i;
    const int gates = cell == IR_WORD(cell, rnn) ? 1 : cell == IR_WORD(cell, gru) ? 3 : 4;
    const bool late = attr[IR_ATTR(recurrent, linear_before_reset)].i != 0;
    const double clip = attr[IR_ATTR(recurrent, clip)].f;
    return (recurrent_shape){.steps = states->dims[0],
                             .batch = states->dims[1],
                             .hidden = states->dims[2],
                             .cell = cell,
                             .gates = gates,
                             .saved = gates + late,
                             .reverse = attr[IR_ATTR(recurrent, reverse)].i != 0,
                             .input_forget = attr[IR_ATTR(recurrent, input_forget)].i != 0,
                             .linear_before_reset = late,
                             .clip = clip > 0 ? clip : (double)INFINITY,
                             .f = recurrent_activation_of(attr + IR_ATTR(recurrent, f)),
                             .g = recurrent_activation_of(attr + IR_ATTR(recurrent, g)),
                             .h = recurrent_activation_of(attr + IR_ATTR(recurrent, h))};
}

/* Of the products with R in all steps, also of those of the gradient. Does not depend on which results are used. */
static inline int64_t recurrent_flops(const k_args *args)
{
    const bool is_grad = args->op == IR_OP_recurrent_grad;
    const k_view *r = &args->in[is_grad ? IR_IN(recurrent_grad, r) : IR_IN(recurrent, r)];
    const k_view *rows = &args->in[is_grad ? IR_IN(recurrent_grad, y) : IR_IN(recurrent, x)]; /* [T,B,any] */
    return 2 * rows->dims[0] * rows->dims[1] * k_count(r);
}
#endif

#endif
