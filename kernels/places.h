/* places.h - the rows of a tensor that indices address, for kernels of all devices that gather or scatter by
 * coordinates (gather_elements, gather_nd, scatter_elements, scatter_nd).
 *
 * The tensor is `rows` rows of `inner` elements. Item i of `count` has `depth` adjacent indices and addresses row
 * base(i) + sum of index[k] * stride[k], where base(i) is the source offset of position i of the walk `items`. */
#ifndef AMPC_PLACES_H
#define AMPC_PLACES_H

#include "kernels/walk.h"

typedef struct k_places {
    k_walk items;
    int depth;
    int64_t size[IR_MAX_RANK], stride[IR_MAX_RANK]; /* of the indexed dimensions; strides in rows */
    int64_t count, rows, inner;
} k_places;

/* By element: an item is an element of `indices`, whose base has coordinate 0 on the axis. */
static inline k_places k_places_elements(const k_view *data, const k_view *indices, int axis)
{
    k_places p = {.depth = 1, .count = k_count(indices), .rows = k_count(data), .inner = 1};
    int64_t base[IR_MAX_RANK] = {0}, dense[IR_MAX_RANK];
    k_dense_strides(data->rank, data->dims, base);
    k_dense_strides(indices->rank, indices->dims, dense);
    p.size[0] = data->dims[axis];
    p.stride[0] = base[axis];
    base[axis] = 0;
    p.items = k_walk_make(indices->rank, indices->dims, dense, base);
    return p;
}

/* By coordinates: an item is a tuple of indices; all items of a batch index one part of the data. */
static inline k_places k_places_tuples(const k_view *data, const k_view *indices, int batch)
{
    k_places p = {.depth = (int)indices->dims[indices->rank - 1], .count = 1, .rows = 1, .inner = 1};
    int64_t batches = 1;
    for (int i = 0; i < indices->rank - 1; i++) p.count *= indices->dims[i];
    for (int i = 0; i < batch; i++) batches *= data->dims[i];
    for (int i = batch + p.depth; i < data->rank; i++) p.inner *= data->dims[i];
    for (int k = p.depth - 1; k >= 0; k--) {
        p.size[k] = data->dims[batch + k];
        p.stride[k] = p.rows;
        p.rows *= p.size[k];
    }
    const int64_t each = batches ? p.count / batches : 0;
    p.items = k_walk_make(2, (int64_t[]){batches, each}, (int64_t[]){each, 1}, (int64_t[]){p.rows, 0});
    p.rows *= batches;
    return p;
}

/* For the op's tensor `data`, which is operand 0 of a gather and result 0 of a scatter; operand 1 are the indices. */
static inline k_places k_places_of(const k_args *args, const k_view *data)
{
    const int64_t first = args->attr[0].i; /* axis or batch */
    const bool elements = args->op == IR_OP_gather_elements || args->op == IR_OP_scatter_elements;
    return elements ? k_places_elements(data, &args->in[1], k_axis_number(first, data->rank))
                    : k_places_tuples(data, &args->in[1], (int)first);
}

#endif
