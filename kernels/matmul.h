/* matmul.h - matmul as one matrix product with as few batch dimensions as possible.
 *
 * Batch dimensions become rows of `a` if they all share one `b`; others are merged if they are adjacent and
 * broadcast alike. */
#ifndef AMPC_PRODUCT_H
#define AMPC_PRODUCT_H

#include "kernels/kernel.h"

typedef struct product {
    int rank;                                          /* batch dimensions */
    int64_t batch[IR_MAX_RANK];                        /* sizes, in y */
    bool a_shared[IR_MAX_RANK], b_shared[IR_MAX_RANK]; /* the operand is broadcast along this dimension */
    int64_t m, n, k;
    bool trans_a, trans_b;
} product;

/* The size of y's batch dimension i in an operand, which may have fewer dimensions. */
static inline int64_t product_batch_dim(const k_view *v, int i, int y_rank)
{
    int at = i - (y_rank - v->rank);
    return at < 0 ? 1 : v->dims[at];
}

static inline void product_add(product *p, int64_t size, bool a_shared, bool b_shared)
{
    int last = p->rank - 1;
    if (size == 1) return;
    if (last >= 0 && p->a_shared[last] == a_shared && p->b_shared[last] == b_shared) {
        p->batch[last] *= size;
        return;
    }
    p->batch[p->rank] = size;
    p->a_shared[p->rank] = a_shared;
    p->b_shared[p->rank++] = b_shared;
}

/* The product of a matmul; its bias and epilogue are not part of it. */
static inline product product_of(const k_args *args)
{
    const k_view *a = &args->in[IR_IN(matmul, a)], *b = &args->in[IR_IN(matmul, b)], *y = &args->out[0];
    product p = {.trans_a = args->attr[IR_ATTR(matmul, trans_a)].i != 0,
                 .trans_b = args->attr[IR_ATTR(matmul, trans_b)].i != 0};
    p.m = y->dims[y->rank - 2];
    p.n = y->dims[y->rank - 1];
    p.k = a->dims[a->rank - (p.trans_a ? 2 : 1)];
    for (int i = 0; i < y->rank - 2; i++)
        product_add(&p, y->dims[i], product_batch_dim(a, i, y->rank) == 1, product_batch_dim(b, i, y->rank) == 1);
    if (p.rank == 1 && p.b_shared[0] && !p.trans_a) {
        p.m *= p.batch[0];
        p.rank = 0;
    }
    return p;
}

/* The offset of batch item `item` in an operand whose matrices have `size` elements. */
static inline int64_t product_offset(const product *p, const bool *shared, int64_t item, int64_t size)
{
    int64_t offset = 0;
    for (int i = p->rank - 1; i >= 0; i--) {
        int64_t index = item % p->batch[i];
        item /= p->batch[i];
        if (shared[i]) continue;
        offset += index * size;
        size *= p->batch[i];
    }
    return offset;
}

#endif
