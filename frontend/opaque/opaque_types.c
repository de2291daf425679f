/* opaque_types.c - infers the result types of common opaque operators for models that do not declare them. A size
 * that no rule can infer is a new symbol. */
#include "frontend/opaque/opaque_rules.h"

#include <string.h>

/* ---- reductions ------------------------------------------------------------------------------ */

static bool reduced(onnx_node *n, const bool *set, bool keepdims, ir_type *out)
{
    const ir_type *x = &n->in[0]->type;
    out->rank = 0;
    for (int k = 0; k < x->rank; k++)
        if (!set[k]) out->dims[out->rank++] = x->dims[k];
        else if (keepdims) out->dims[out->rank++] = 1;
    return !n->failed;
}

bool opaque_reduce(onnx_node *n, int i, ir_type *out)
{
    enum { AXES_OPERAND_SINCE = 18 };
    int rank = n->in[0]->type.rank;
    bool set[IR_MAX_RANK], keepdims = onnx_bool(n, "keepdims", true);
    if (onnx_in(n, 1) && !ir_const_get(n->importer->consts, n->in[1])) return opaque_reduce_open(n, i, out);
    onnx_list axes = onnx_list_since(n, "axes", 1, AXES_OPERAND_SINCE);
    if (i || n->failed) return false;
    onnx_axes(n, axes, rank, set);
    bool none = !axes.count && onnx_bool(n, "noop_with_empty_axes", false);
    for (int k = 0; k < rank && !axes.count; k++) set[k] = !none;
    out->dtype = n->in[0]->type.dtype;
    return reduced(n, set, keepdims, out);
}

/* ---- selections ------------------------------------------------------------------------------ */

bool opaque_top(onnx_node *n, int i, ir_type *out)
{
    enum { K_OPERAND_SINCE = 10 };
    int axis = onnx_axis(n, onnx_int(n, "axis", -1), n->in[0]->type.rank);
    if (n->opset < K_OPERAND_SINCE || n->failed) return false;
    const bool known = onnx_in(n, 1) && ir_const_get(n->importer->consts, n->in[1]);
    *out = n->in[0]->type;
    out->dims[axis] = known ? onnx_const_int(n, 1, 0) : onnx_unknown_dim(n, i, axis);
    if (i) out->dtype = IR_i64;
    return !n->failed;
}

bool opaque_selection(onnx_node *n, int i, ir_type *out)
{
    *out = ir_type_make(IR_i64, 2, (const int64_t[]){onnx_unknown_dim(n, i, 0), 3});
    return true;
}

bool opaque_positions(onnx_node *n, int i, ir_type *out)
{
    *out = ir_type_make(IR_i64, 2, (const int64_t[]){n->in[0]->type.rank, onnx_unknown_dim(n, i, 1)});
    return true;
}

/* With an axis, slices of the operand; without one, elements of the flattened operand. */
bool opaque_compress(onnx_node *n, int i, ir_type *out)
{
    *out = n->in[0]->type;
    if (!onnx_has(n, "axis")) *out = ir_type_make(out->dtype, 1, out->dims);
    int axis = out->rank && onnx_has(n, "axis") ? onnx_axis(n, onnx_int(n, "axis", 0), out->rank) : 0;
    if (!out->rank) *out = ir_type_make(out->dtype, 1, (const int64_t[]){0});
    out->dims[axis] = onnx_unknown_dim(n, i, axis);
    return i == 0 && !n->failed;
}

/* Values, then first positions, then inverse indices, then counts. */
bool opaque_unique(onnx_node *n, int i, ir_type *out)
{
    if (i == 0) return opaque_compress(n, i, out);
    *out = ir_type_make(IR_i64, 1, (const int64_t[]){onnx_unknown_dim(n, i, 0)});
    return true;
}

bool opaque_range(onnx_node *n, int i, ir_type *out)
{
    *out = ir_type_make(n->in[0]->type.dtype, 1, (const int64_t[]){onnx_unknown_dim(n, i, 0)});
    return true;
}

/* indices [b1 .. bn, .., k]: batch axes, the other axes of indices except the last, then the remaining axes of data. */
bool opaque_gather_nd(onnx_node *n, int i, ir_type *out)
{
    const ir_type *data = &n->in[0]->type, *indices = &n->in[1]->type;
    if (i || !indices->rank || ir_dim_is_symbolic(indices->dims[indices->rank - 1])) return false;
    int64_t batch = onnx_int(n, "batch_dims", 0), depth = indices->dims[indices->rank - 1];
    if (batch < 0 || batch > data->rank || depth < 0 || depth > data->rank - batch) return false;
    int indexed = (int)(batch + depth);
    if (indices->rank - 1 + data->rank - indexed > ONNX_MAX_RANK) return false;
    *out = ir_type_make(data->dtype, 0, NULL);
    for (int k = 0; k + 1 < indices->rank; k++) out->dims[out->rank++] = indices->dims[k];
    for (int k = indexed; k < data->rank; k++) out->dims[out->rank++] = data->dims[k];
    return !n->failed;
}

bool opaque_one_hot(onnx_node *n, int i, ir_type *out)
{
    const ir_type *x = &n->in[0]->type;
    if (i || x->rank == ONNX_MAX_RANK) return false;
    const ir_const_value *depth = ir_const_get(n->importer->consts, n->in[1]);
    int axis = onnx_axis(n, onnx_int(n, "axis", -1), x->rank + 1);
    *out = ir_type_make(n->in[2]->type.dtype, 0, NULL);
    out->rank = x->rank + 1;
    for (int k = 0, from = 0; k < out->rank; k++)
        out->dims[k] = k != axis                              ? x->dims[from++]
                       : depth && depth->count && depth->ints ? depth->ints[0]
                                                              : onnx_unknown_dim(n, i, k);
    return !n->failed;
}

/* ---- shapes ------------------------------------------------------------------------------------ */

/* The type that all operands broadcast to. */
bool opaque_broadcast(onnx_node *n, int i, ir_type *out)
{
    ir_type all = n->in[0]->type;
    for (int k = 1; k < n->n_in; k++)
        if (!ir_broadcast(n->dims, &all, &n->in[k]->type, &all)) return false;
    out->rank = all.rank;
    memcpy(out->dims, all.dims, sizeof out->dims);
    return i == 0;
}

/* [N, C*b*b, H, W] <-> [N, C, H*b, W*b] */
static bool moved_blocks(onnx_node *n, ir_type *out, bool to_space)
{
    const ir_type *x = &n->in[0]->type;
    int64_t block = onnx_int(n, "blocksize", 0);
    if (x->rank != 4 || block < 1 || block > INT16_MAX) return false;
    *out = *x;
    for (int k = 1; k < 4; k++) {
        bool grows = (k == 1) != to_space;
        int64_t by = k == 1 ? block * block : block;
        out->dims[k] = grows ? ir_dim_mul(n->dims, x->dims[k], by) : ir_dim_floordiv(n->dims, x->dims[k], by);
        if (out->dims[k] == IR_DIM_NONE) return false;
    }
    return !n->failed;
}

bool opaque_to_space(onnx_node *n, int i, ir_type *out) { return i == 0 && moved_blocks(n, out, true); }

bool opaque_to_depth(onnx_node *n, int i, ir_type *out) { return i == 0 && moved_blocks(n, out, false); }

bool opaque_det(onnx_node *n, int i, ir_type *out)
{
    if (n->in[0]->type.rank < 2) return false;
    *out = ir_type_make(n->in[0]->type.dtype, n->in[0]->type.rank - 2, n->in[0]->type.dims);
    return i == 0;
}

/* ---- types specified by attributes ------------------------------------------------------------- */

static bool attribute_type(onnx_node *n, const char *name, ir_dtype otherwise, ir_type *out)
{
    out->dtype = onnx_has(n, name) ? onnx_type_dtype(onnx_int(n, name, 0)) : otherwise;
    return out->dtype != IR_NO_DTYPE && !n->failed;
}

/* The shape of the operand. */
bool opaque_like(onnx_node *n, int i, ir_type *out)
{
    *out = n->in[0]->type;
    return i == 0 && attribute_type(n, "dtype", out->dtype, out);
}

bool opaque_multinomial(onnx_node *n, int i, ir_type *out)
{
    if (i || n->in[0]->type.rank != 2) return false;
    *out = ir_type_make(IR_i32, 2, (const int64_t[]){n->in[0]->type.dims[0], onnx_int(n, "sample_size", 1)});
    return attribute_type(n, "dtype", IR_i32, out);
}

/* One axis with as many elements as the operand's value. */
bool opaque_signal_window(onnx_node *n, int i, ir_type *out)
{
    const ir_const_value *size = ir_const_get(n->importer->consts, n->in[0]);
    ir_dim count = size && size->ints ? size->ints[0] : onnx_unknown_dim(n, i, 0);
    *out = ir_type_make(IR_f32, 1, &count);
    return i == 0 && attribute_type(n, "output_datatype", IR_f32, out);
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef bool type_rule(onnx_node *n, int i, ir_type *out);

typedef struct type_row {
    const char *op;
    type_rule *rule; /* NULL: use the columns below */
    int shape_of, dtype_of;
} type_row;

static const type_row rows[] = {
#define LIKE(op, shape_of, dtype_of) {#op, NULL, shape_of, dtype_of},
#define TYPE(op, rule) {#op, opaque_##rule, 0, 0},
#include "frontend/onnx.def"
};

bool opaque_type(onnx_node *n, int i, ir_type *out)
{
    onnx_importer *im = n->importer;
    if (!onnx_is_default_domain(n->proto->domain)) return false;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const type_row *row = &rows[k];
        if (strcmp(row->op, n->proto->op_type) != 0) continue;
        const ir_value *shape = onnx_in(n, row->shape_of), *type = onnx_in(n, row->dtype_of);
        if (n->n_in && (!shape || !type)) return false;
        diag *outer = im->diag;
        im->diag = im->builder.diag = im->trial; /* messages of a rule that fails are dropped */
        *out = shape ? shape->type : (ir_type){0};
        if (type) out->dtype = type->type.dtype;
        bool inferred = !row->rule || row->rule(n, i, out);
        im->diag = im->builder.diag = outer;
        n->failed = false;
        for (int axis = 0; axis < out->rank; axis++)
            inferred &= ir_dim_is_symbolic(out->dims[axis]) || out->dims[axis] >= 0;
        return inferred && (row->rule || i == 0);
    }
    return false;
}
