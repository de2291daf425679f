/* lower_gather.c - Gather; ScatterND with known indices. */
#include "frontend/lower/lower.h"

#include <limits.h>
#include <string.h>

void onnx_lower_gather(onnx_node *n)
{
    int rank = n->in[0]->type.rank, axis = onnx_axis(n, onnx_int(n, "axis", 0), rank);
    if (rank - 1 + n->in[1]->type.rank > ONNX_MAX_RANK) onnx_refuse(n, "the result rank is too large");
    if (n->failed) return;
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, n->in[0], n->in[1]);
    ir_set_int(node, IR_ATTR(gather, axis), axis);
    n->out[0] = ir_done(n->b, node);
}

/* ---- ScatterND -------------------------------------------------------------------------------
 * Becomes a gather: the rows of data and of updates are concatenated, and a list selects one of them for each row of
 * the result. The list is computed here, so indices must be known at compile time. data and updates may be any values,
 * and both are differentiable. */

/* The data row that index row `row` addresses. A data row is what remains after indexing the first `depth` axes. */
static int64_t row_number(onnx_node *n, const ir_const_value *indices, int64_t row, int depth)
{
    int64_t number = 0;
    for (int k = 0; k < depth && !n->failed; k++) {
        int64_t size = n->in[0]->type.dims[k], i = onnx_size(n, indices->ints[row * depth + k], "an index");
        if (i < -size || i >= size)
            onnx_reject(n, "index %lld is out of range for %lld", (long long)i, (long long)size);
        number = number * size + (i < 0 ? i + size : i);
    }
    return number;
}

/* Checks the shapes of indices [..., depth] and updates [..., remaining axes of data]. */
static bool shapes_fit(const ir_type *data, const ir_const_value *indices, const ir_type *updates)
{
    int q = indices->type.rank;
    if (q < 1 || !indices->ints) return false;
    int64_t depth = indices->type.dims[q - 1];
    if (depth < 0 || depth > data->rank || updates->rank != q - 1 + data->rank - depth) return false;
    for (int i = 0; i < updates->rank; i++) {
        ir_dim expected = i < q - 1 ? indices->type.dims[i] : data->dims[i - (q - 1) + (int)depth];
        if (updates->dims[i] != expected) return false;
    }
    return updates->dtype == data->dtype;
}

/* The product of the first `axes` sizes of `type`; counts beyond the limit of a list are refused. */
static int64_t count_rows(onnx_node *n, const ir_type *type, int axes)
{
    int64_t rows = 1;
    for (int i = 0; i < axes && !n->failed; i++)
        if (!checked_mul(rows, onnx_size(n, type->dims[i], "a dimension"), &rows) || rows > INT_MAX)
            onnx_refuse(n, "more than %d rows are not supported", INT_MAX);
    return rows;
}

/* Reshapes a value to `rows` rows, each with the shape of the axes from `axis` on. */
static ir_value *as_rows(onnx_node *n, ir_value *v, int64_t rows, int axis)
{
    ir_dim dims[IR_MAX_RANK] = {rows};
    int rest = v->type.rank - axis;
    memcpy(dims + 1, v->type.dims + axis, (size_t)rest * sizeof *dims);
    return ir_reshape(n->b, v, dims, rest + 1);
}

void onnx_lower_scatter_nd(onnx_node *n)
{
    const char *reduction = onnx_text(n, "reduction", "none");
    if (strcmp(reduction, "none") != 0) onnx_refuse(n, "reduction '%s' is not supported", reduction);
    ir_value *data = n->in[0], *updates = n->in[2];
    const ir_const_value *indices = onnx_const(n, 1);
    if (n->failed) return;
    if (!shapes_fit(&data->type, indices, &updates->type)) {
        onnx_reject(n, "the shapes of data, indices and updates do not match");
        return;
    }
    int depth = (int)indices->type.dims[indices->type.rank - 1], lead = indices->type.rank - 1;
    int64_t rows = count_rows(n, &data->type, depth), changes = count_rows(n, &indices->type, lead);
    if (n->failed) return;
    int64_t *from = arena_array(n->importer->scratch, (size_t)rows + 1, sizeof *from);
    for (int64_t i = 0; i < rows; i++) from[i] = i;
    for (int64_t i = 0; i < changes && !n->failed; i++) {
        int64_t to = row_number(n, indices, i, depth);
        if (!n->failed) from[to] = rows + i; /* the last duplicate wins: ONNX defines no order */
    }
    if (n->failed) return;
    ir_type list = ir_type_make(IR_i64, 1, &rows);
    ir_value *both[] = {as_rows(n, data, rows, depth), as_rows(n, updates, changes, lead)};
    ir_value *all = ir_done(n->b, ir_new_array(n->b, IR_OP_concat, 2, both, 0));
    const char *name = arena_printf(n->importer->scratch, "%s.rows", n->proto->output[0]);
    ir_value *chosen = ir_constant(n->b, name, &list, from);
    ir_value *y = ir_done(n->b, ir_new(n->b, IR_OP_gather, 2, all, chosen));
    n->out[0] = ir_reshape_like(n->b, y, &data->type);
}
