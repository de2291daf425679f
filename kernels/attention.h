/* attention.h - what the runtime needs to know about attention and its gradient. */
#ifndef AMPC_KERNELS_ATTENTION_H
#define AMPC_KERNELS_ATTENTION_H

#include "kernels/kernel.h"

static inline bool attention_is(ir_op op) { return op == IR_OP_attention || op == IR_OP_attention_grad; }

/* Whether an infinity in result i only tells that a query sees no key. */
static inline bool attention_tells_empty(ir_op op, int i)
{
    return op == IR_OP_attention && i == IR_OUT(attention, lse);
}

/* The state of random numbers if probabilities are dropped, else NULL. */
static inline const k_view *attention_rng(const k_args *args)
{
    const int at = args->op == IR_OP_attention_grad ? IR_IN(attention_grad, rng) : IR_IN(attention, rng);
    return at < args->n_in && k_present(&args->in[at]) ? &args->in[at] : NULL;
}

/* Of the products with all keys, also of those that a mask excludes. The gradient computes the scores again. */
static inline int64_t attention_flops(const k_args *args)
{
    const bool is_grad = args->op == IR_OP_attention_grad;
    const k_view *q = &args->in[IR_IN(attention, q)], *k = &args->in[IR_IN(attention, k)];
    const k_view *v = &args->in[IR_IN(attention, v)];
    const int64_t keys = k->dims[k->rank - 2], size = q->dims[q->rank - 1], values = v->dims[v->rank - 1];
    const int64_t queries = size ? k_count(q) / size : 0;
    return 2 * queries * keys * (is_grad ? 3 * size + 2 * values : size + values);
}

#endif
