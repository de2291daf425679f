/* lower_gather.c - Gather; ScatterND among constants. */
#include "frontend/lower.h"

#include <string.h>

void onnx_lower_gather(onnx_node *n)
{
    int rank = n->in[0]->type.rank, axis = onnx_axis(n, onnx_int(n, "axis", 0), rank);
    if (rank - 1 + n->in[1]->type.rank > ONNX_MAX_RANK) onnx_refuse(n, "a result of so many axes");
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, n->in[0], n->in[1]);
    ir_set_int(node, IR_ATTR(gather, axis), axis);
    n->out[0] = ir_done(n->b, node);
}

/* ---- ScatterND -------------------------------------------------------------------------------
 * There is no such op at run time: exporters use it to paint constant masks (shifted windows), so
 * it is evaluated here when its three operands are known, and refused otherwise. */

/* Bytes of a known value in its own type; NULL after reporting symbolic elements. */
static unsigned char *known_bytes(onnx_node *n, const ir_known *known)
{
    size_t size = ir_dtype_size(known->type.dtype);
    unsigned char *bytes = arena_array(n->importer->scratch, (size_t)known->count + 1, size);
    for (int64_t i = 0; i < known->count; i++) {
        unsigned char *p = bytes + (size_t)i * size;
        if (known->floats)
            ir_store_f64(known->type.dtype, p, known->floats[i]);
        else
            ir_store_i64(known->type.dtype, p, onnx_size(n, known->ints[i], "an element"));
    }
    return n->failed ? NULL : bytes;
}

/* Where row `row` of the indices points: the number of a slice of `data` whose first `depth` axes
 * are indexed. */
static int64_t slice_number(onnx_node *n, const ir_known *data, const ir_known *indices,
                            int64_t row, int depth)
{
    int64_t number = 0;
    for (int k = 0; k < depth && !n->failed; k++) {
        int64_t size = data->type.dims[k],
                i = onnx_size(n, indices->ints[row * depth + k], "an index");
        if (i < -size || i >= size)
            onnx_reject(n, "index %lld is out of range for %lld", (long long)i, (long long)size);
        number = number * size + (i < 0 ? i + size : i);
    }
    return number;
}

/* The shapes of indices [..., depth] and updates [..., rest of data] must fit. */
static bool shapes_fit(const ir_known *data, const ir_known *indices, const ir_known *updates)
{
    int q = indices->type.rank;
    if (q < 1 || !indices->ints) return false;
    int64_t depth = indices->type.dims[q - 1];
    if (depth < 0 || depth > data->type.rank ||
        updates->type.rank != q - 1 + data->type.rank - depth)
        return false;
    for (int i = 0; i < updates->type.rank; i++) {
        ir_dim wanted = i < q - 1 ? indices->type.dims[i]
                                  : data->type.dims[i - (q - 1) + (int)depth];
        if (updates->type.dims[i] != wanted) return false;
    }
    return updates->type.dtype == data->type.dtype;
}

void onnx_lower_scatter_nd(onnx_node *n)
{
    const char *reduction = onnx_text(n, "reduction", "none");
    if (strcmp(reduction, "none") != 0) onnx_refuse(n, "reduction '%s'", reduction);
    const ir_known *data = onnx_known(n, 0), *indices = onnx_known(n, 1),
                   *updates = onnx_known(n, 2);
    if (n->failed) return;
    if (!shapes_fit(data, indices, updates)) {
        onnx_reject(n, "the shapes of data, indices and updates do not fit");
        return;
    }
    unsigned char *bytes = known_bytes(n, data), *from = known_bytes(n, updates);
    int depth = (int)indices->type.dims[indices->type.rank - 1];
    int64_t rows = 1, chunk = 1;
    for (int i = 0; i < indices->type.rank - 1; i++) rows *= indices->type.dims[i];
    for (int i = depth; i < data->type.rank; i++) chunk *= data->type.dims[i];
    size_t size = (size_t)chunk * ir_dtype_size(data->type.dtype);
    for (int64_t row = 0; row < rows && size && !n->failed; row++) {
        int64_t to = slice_number(n, data, indices, row, depth);
        if (!n->failed) memcpy(bytes + (size_t)to * size, from + (size_t)row * size, size);
    }
    if (!n->failed) n->out[0] = ir_constant(n->b, n->proto->output[0], &data->type, bytes);
}
