/* opaque_shapes.c - result types of opaque operators whose shape depends on values that are not known: the rank follows
 * from the length of an operand, and sizes that do not follow are new symbols. */
#include "frontend/opaque/opaque_rules.h"

/* ---- lists that are not known ------------------------------------------------------------------ */

/* The number of elements of a list; -1: unknown. */
static int length_of(const onnx_node *n, int operand)
{
    const ir_value *v = onnx_in(n, operand);
    if (!v || v->type.rank > 1) return -1;
    const ir_dim length = v->type.rank ? v->type.dims[0] : 1;
    return ir_dim_is_symbolic(length) || length > ONNX_MAX_RANK ? -1 : (int)length;
}

/* Element k of a list of integers; IR_DIM_NONE: unknown. */
static ir_dim item_of(const onnx_node *n, int operand, int k)
{
    const ir_const_value *c = ir_const_get(n->importer->consts, n->in[operand]);
    return c && c->ints && k < c->count ? c->ints[k] : IR_DIM_NONE;
}

/* Unknown sizes for all axes. */
static bool open_shape(onnx_node *n, int i, int rank, ir_type *out)
{
    if (rank < 0 || rank > ONNX_MAX_RANK) return false;
    out->rank = rank;
    for (int k = 0; k < rank; k++) out->dims[k] = onnx_unknown_dim(n, i, k);
    return true;
}

/* The axes in the list get unknown sizes; all axes if the list is absent or unknown. */
static bool open_axes(onnx_node *n, int i, int operand, ir_type *out)
{
    const ir_type x = *out;
    const int count = onnx_in(n, operand) ? length_of(n, operand) : -1;
    if (!open_shape(n, i, x.rank, out)) return false;
    for (int k = 0; k < count; k++)
        if (item_of(n, operand, k) == IR_DIM_NONE) return true;
    bool listed[IR_MAX_RANK] = {false};
    for (int k = 0; k < count; k++) listed[onnx_axis(n, item_of(n, operand, k), x.rank)] = true;
    for (int k = 0; k < x.rank && count >= 0; k++)
        if (!listed[k]) out->dims[k] = x.dims[k];
    return !n->failed;
}

/* ---- movement ------------------------------------------------------------------------------------ */

bool opaque_reshape(onnx_node *n, int i, ir_type *out)
{
    const ir_type x = *out;
    const bool allow_zero = onnx_bool(n, "allowzero", false);
    if (i || !open_shape(n, i, length_of(n, 1), out)) return false;
    for (int k = 0; k < out->rank; k++) {
        const ir_dim d = item_of(n, 1, k);
        const bool copied = d == 0 && !allow_zero;
        if (copied && k >= x.rank) return false;
        if (copied) out->dims[k] = x.dims[k];
        else if (d >= 0 || ir_dim_is_symbolic(d)) out->dims[k] = d;
    }
    return true;
}

/* The rank of the operand. */
bool opaque_resized(onnx_node *n, int i, ir_type *out)
{
    *out = n->in[0]->type;
    return i == 0 && open_shape(n, i, out->rank, out);
}

/* A size other than 1 stays. */
bool opaque_expand(onnx_node *n, int i, ir_type *out)
{
    const ir_type x = *out;
    const int length = length_of(n, 1), rank = length > x.rank ? length : x.rank;
    if (i || length < 0 || !open_shape(n, i, rank, out)) return false;
    for (int k = 0; k < x.rank; k++)
        if (!ir_dim_is_symbolic(x.dims[k]) && x.dims[k] != 1) out->dims[rank - x.rank + k] = x.dims[k];
    return true;
}

bool opaque_slice(onnx_node *n, int i, ir_type *out) { return i == 0 && open_axes(n, i, 3, out); }

bool opaque_pad(onnx_node *n, int i, ir_type *out) { return i == 0 && open_axes(n, i, 3, out); }

bool opaque_split(onnx_node *n, int i, ir_type *out)
{
    const int axis = onnx_axis(n, onnx_int(n, "axis", 0), out->rank);
    const ir_dim size = onnx_in(n, 1) ? item_of(n, 1, i) : IR_DIM_NONE;
    if (n->failed) return false;
    out->dims[axis] = size == IR_DIM_NONE ? onnx_unknown_dim(n, i, axis) : size;
    return true;
}

bool opaque_squeeze(onnx_node *n, int i, ir_type *out)
{
    const int length = length_of(n, 1);
    return i == 0 && length >= 0 && open_shape(n, i, out->rank - length, out);
}

bool opaque_unsqueeze(onnx_node *n, int i, ir_type *out)
{
    const int length = length_of(n, 1);
    return i == 0 && length >= 0 && open_shape(n, i, out->rank + length, out);
}

bool opaque_constant_of_shape(onnx_node *n, int i, ir_type *out)
{
    const Onnx__TensorProto *value = onnx_tensor_attr(n, "value");
    out->dtype = value ? onnx_type_dtype(value->data_type) : IR_f32;
    return i == 0 && out->dtype != IR_NO_DTYPE && open_shape(n, i, length_of(n, 0), out);
}

/* ---- reductions with unknown axes ---------------------------------------------------------------- */

bool opaque_reduce_open(onnx_node *n, int i, ir_type *out)
{
    const bool keepdims = onnx_bool(n, "keepdims", true);
    const int length = length_of(n, 1);
    if (i || n->failed || length < 0) return false;
    return open_shape(n, i, keepdims ? out->rank : length ? out->rank - length : 0, out);
}

/* ---- windows whose padding depends on unknown sizes ------------------------------------------------ */

static bool open_space(onnx_node *n, int i, ir_dim channels, ir_type *out)
{
    for (int k = 2; k < out->rank; k++) out->dims[k] = onnx_unknown_dim(n, i, k);
    out->dims[1] = channels;
    return out->rank > 2;
}

bool opaque_conv(onnx_node *n, int i, ir_type *out)
{
    return i == 0 && n->in[1]->type.rank == out->rank && open_space(n, i, n->in[1]->type.dims[0], out);
}

/* The pooled values, then the positions of the maxima. */
bool opaque_pool(onnx_node *n, int i, ir_type *out)
{
    if (i) out->dtype = IR_i64;
    return open_space(n, i, out->dims[1], out);
}

/* ---- others --------------------------------------------------------------------------------------- */

/* The operand, then a mask. */
bool opaque_dropout(onnx_node *n, int i, ir_type *out)
{
    enum { BOOL_SINCE = 10 };
    if (i && n->opset >= BOOL_SINCE) out->dtype = IR_bool;
    return true;
}

/* One column per entry of the vocabulary. */
bool opaque_tf_idf(onnx_node *n, int i, ir_type *out)
{
    const onnx_list columns = onnx_ints(n, "ngram_indexes");
    int64_t last = -1;
    for (int k = 0; k < columns.count; k++)
        if (columns.items[k] > last) last = columns.items[k];
    if (i || out->rank < 1 || out->rank > 2 || last < 0) return false;
    out->dtype = IR_f32;
    out->dims[out->rank - 1] = last + 1;
    return true;
}

/* [mel bins of operand 0, half of operand 1 + 1] */
bool opaque_mel_weights(onnx_node *n, int i, ir_type *out)
{
    const ir_dim bins = item_of(n, 0, 0), length = item_of(n, 1, 0);
    *out = ir_type_make(IR_f32, 2, (const int64_t[]){0, 0});
    for (int axis = 0; axis < 2; axis++) out->dims[axis] = onnx_unknown_dim(n, i, axis);
    if (length != IR_DIM_NONE) out->dims[0] = ir_dim_add(n->dims, ir_dim_floordiv(n->dims, length, 2), 1);
    if (bins != IR_DIM_NONE) out->dims[1] = bins;
    const int64_t wanted = onnx_int(n, "output_datatype", 1);
    out->dtype = onnx_type_dtype(wanted);
    return i == 0 && out->dtype != IR_NO_DTYPE;
}

/* [batch, frames, frequencies, 2] */
bool opaque_stft(onnx_node *n, int i, ir_type *out)
{
    const ir_dim batch = out->dims[0];
    if (i || out->rank < 2) return false;
    open_shape(n, i, 4, out);
    out->dims[0] = batch;
    out->dims[3] = 2;
    return true;
}

bool opaque_image(onnx_node *n, int i, ir_type *out)
{
    out->dtype = IR_u8;
    return i == 0 && open_shape(n, i, 3, out);
}

/* x [N, C * blocks, L], image shape [H, W, ..] -> [N, C, H, W, ..] */
bool opaque_col2im(onnx_node *n, int i, ir_type *out)
{
    const ir_dim batch = out->dims[0];
    const int axes = length_of(n, 1);
    if (i || axes < 1 || out->rank != 3 || !open_shape(n, i, axes + 2, out)) return false;
    out->dims[0] = batch;
    for (int k = 0; k < axes; k++)
        if (item_of(n, 1, k) != IR_DIM_NONE) out->dims[2 + k] = item_of(n, 1, k);
    return true;
}
