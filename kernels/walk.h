/* walk.h - shapes and strides for kernels of all devices: walks over an index space, and views split at an axis.
 *
 * A walk visits an index space in row-major order. Each side has a stride (in elements) per dimension: 0 where it is
 * broadcast, negative where it is reversed. Dimensions of one element are dropped, and adjacent dimensions are merged
 * where the strides of both sides allow it; most walks have one or two dimensions. */
#ifndef AMPC_WALK_H
#define AMPC_WALK_H

#include "kernels/kernel.h"

#include <assert.h>

typedef struct k_walk {
    int rank; /* >= 1 */
    int64_t dims[IR_MAX_RANK], src[IR_MAX_RANK], dst[IR_MAX_RANK];
} k_walk;

static inline int k_axis_number(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

/* The strides, in elements, of a dense row-major view. */
static inline void k_dense_strides(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= dims[i];
    }
}

/* The strides of any view. */
static inline void k_strides(const k_view *v, int64_t *strides)
{
    if (v->strides) memcpy(strides, v->strides, (size_t)v->rank * sizeof *strides);
    else k_dense_strides(v->rank, v->dims, strides);
}

/* The walk over `dims` with the given strides, in its shortest form. */
static inline k_walk k_walk_make(int rank, const int64_t *dims, const int64_t *dst, const int64_t *src)
{
    k_walk w = {.rank = 0};
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 1) continue;
        int last = w.rank - 1;
        if (last >= 0 && w.src[last] == src[i] * dims[i] && w.dst[last] == dst[i] * dims[i]) {
            w.dims[last] *= dims[i];
            w.src[last] = src[i];
            w.dst[last] = dst[i];
            continue;
        }
        w.dims[w.rank] = dims[i];
        w.src[w.rank] = src[i];
        w.dst[w.rank++] = dst[i];
    }
    if (w.rank == 0) w = (k_walk){1, {1}, {1}, {1}};
    return w;
}

/* The walk that broadcasts v to the shape of `to` by NumPy's rules. */
static inline k_walk k_walk_broadcast(const k_view *v, const k_view *to)
{
    int64_t strides[IR_MAX_RANK], src[IR_MAX_RANK] = {0}, dst[IR_MAX_RANK];
    int missing = to->rank - v->rank;
    /* by inference the result has the larger rank, and scalars have rank 0 (infer_expect_scalar) */
    assert(missing >= 0);
    k_dense_strides(v->rank, v->dims, strides);
    k_dense_strides(to->rank, to->dims, dst);
    for (int i = 0; i < v->rank; i++) src[i + missing] = v->dims[i] == 1 ? 0 : strides[i];
    return k_walk_make(to->rank, to->dims, dst, src);
}

/* The walk that transposes x into the dense view y; an empty `perm` reverses the dimensions. */
static inline k_walk k_walk_transpose(const k_view *x, const k_view *y, const ir_attr *perm)
{
    int64_t strides[IR_MAX_RANK], src[IR_MAX_RANK], dst[IR_MAX_RANK];
    k_dense_strides(x->rank, x->dims, strides);
    k_dense_strides(y->rank, y->dims, dst);
    for (int i = 0; i < y->rank; i++) src[i] = strides[perm->list.count ? perm->list.items[i] : x->rank - 1 - i];
    return k_walk_make(y->rank, y->dims, dst, src);
}

/* The walk between the dense view `part` (dst) and positions start + i * step of `large` (src), of which the first has
 * the offset *offset. NULL for `start` means zeros, for `step` ones. */
static inline k_walk k_walk_slice(const k_view *large, const k_view *part, const int64_t *start, const int64_t *step,
                                  int64_t *offset)
{
    int64_t wide[IR_MAX_RANK], narrow[IR_MAX_RANK];
    k_dense_strides(large->rank, large->dims, wide);
    k_dense_strides(part->rank, part->dims, narrow);
    *offset = 0;
    for (int i = 0; i < large->rank; i++) {
        *offset += start ? start[i] * wide[i] : 0;
        wide[i] *= step && part->dims[i] > 1 ? step[i] : 1; /* the step over one element is irrelevant */
    }
    return k_walk_make(part->rank, part->dims, narrow, wide);
}

/* The walk with source and destination swapped. */
static inline k_walk k_walk_back(k_walk w)
{
    k_walk back = w;
    memcpy(back.src, w.dst, sizeof back.src);
    memcpy(back.dst, w.src, sizeof back.dst);
    return back;
}

/* The dimension that is contiguous in src while the innermost one is contiguous only in dst; -1: none. */
static inline int k_walk_transposed(const k_walk *w)
{
    int inner = w->rank - 1;
    if (w->dst[inner] != 1 || w->src[inner] == 1 || w->src[inner] == 0) return -1;
    for (int i = 0; i < inner; i++)
        if (w->src[i] == 1) return i;
    return -1;
}

/* A view reshaped to [outer, length, inner] around an axis. */
typedef struct k_axis {
    int64_t outer, length, inner;
} k_axis;

static inline k_axis k_axis_of(const k_view *v, int64_t axis)
{
    k_axis a = {1, 1, 1};
    int at = k_axis_number(axis, v->rank);
    for (int i = 0; i < v->rank; i++) *(i < at ? &a.outer : i == at ? &a.length : &a.inner) *= v->dims[i];
    return a;
}

#endif
