/* gemm_item.h - what gemm.c and gemm_amx.c share. */
#ifndef AMPC_GEMM_ITEM_H
#define AMPC_GEMM_ITEM_H

#include "kernels/cpu/gemm.h"
#include "kernels/matmul.h"

#if defined(__clang__)
#define GEMM_UNROLL _Pragma("unroll")
#else
#define GEMM_UNROLL _Pragma("GCC unroll 16")
#endif

/* The operands of an item. */
static inline const char *gemm_item_a(const gemm *g, int64_t item)
{
    const int64_t offset = g->batch ? product_offset(g->batch, g->batch->a_shared, item, g->m * g->k)
                                    : item * g->a_item;
    return (const char *)g->a.data + offset * (int64_t)ir_dtype_size(g->a.dtype);
}

static inline const char *gemm_item_b(const gemm *g, int64_t item)
{
    const int64_t offset = g->batch ? product_offset(g->batch, g->batch->b_shared, item, g->k * g->n)
                                    : item * g->b_item;
    return (const char *)g->b.data + offset * (int64_t)ir_dtype_size(g->b.dtype);
}

/* The panels of an item. */
static inline const void *gemm_item_packed(const gemm *g, int64_t item)
{
    const int64_t number = g->batch ? product_offset(g->batch, g->batch->b_shared, item, 1) : item;
    return (const char *)g->packed + number * g->packed_item;
}

#endif
