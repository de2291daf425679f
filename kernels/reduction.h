/* reduction.h - splits the dimensions of a reduction into kept and reduced ones, for all devices.
 *
 * Adjacent dimensions of the same kind are merged. The innermost run of them is separate because it is contiguous. */
#ifndef AMPC_REDUCTION_H
#define AMPC_REDUCTION_H

#include "kernels/walk.h"

typedef struct k_reduction {
    k_walk kept, reduced;      /* outer dimensions of each kind; src: strides in the operand */
    int64_t n_kept, n_reduced; /* numbers of their positions */
    bool inner_kept;           /* the innermost run is kept, not reduced */
    int64_t length;            /* of the innermost run */
    int64_t outputs, terms;    /* number of results; elements summed per result */
} k_reduction;

static inline bool k_is_reduced(const ir_attr *axes, int rank, int i)
{
    for (int k = 0; k < axes->list.count; k++)
        if (axes->list.items[k] == i || axes->list.items[k] + rank == i) return true;
    return false;
}

static inline void k_reduction_append(k_walk *w, int64_t *count, int64_t dim, int64_t stride)
{
    int last = w->rank - 1;
    *count *= dim;
    if (last >= 0 && w->src[last] == stride * dim) {
        w->dims[last] *= dim;
        w->src[last] = stride;
        return;
    }
    w->dims[w->rank] = dim;
    w->src[w->rank++] = stride;
}

/* The reduction of x over `axes`, which may be negative. */
static inline k_reduction k_reduction_of(const k_view *x, const ir_attr *axes)
{
    k_reduction r = {.n_kept = 1, .n_reduced = 1, .inner_kept = true, .length = 1};
    int64_t strides[IR_MAX_RANK];
    k_dense_strides(x->rank, x->dims, strides);
    int inner = x->rank - 1;
    while (inner > 0 && x->dims[inner] == 1) inner--;
    if (inner >= 0) r.inner_kept = !k_is_reduced(axes, x->rank, inner);
    for (; inner >= 0; inner--) {
        if (x->dims[inner] != 1 && k_is_reduced(axes, x->rank, inner) == r.inner_kept) break;
        r.length *= x->dims[inner];
    }
    for (int i = 0; i <= inner; i++) {
        if (x->dims[i] == 1) continue;
        if (k_is_reduced(axes, x->rank, i)) k_reduction_append(&r.reduced, &r.n_reduced, x->dims[i], strides[i]);
        else k_reduction_append(&r.kept, &r.n_kept, x->dims[i], strides[i]);
    }
    r.terms = r.n_reduced * (r.inner_kept ? 1 : r.length);
    r.outputs = r.n_kept * (r.inner_kept ? r.length : 1);
    return r;
}

#endif
