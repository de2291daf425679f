/* opaque_networks.c - result types of opaque operators: recurrent networks, windows, matrix products, images. */
#include "frontend/opaque/opaque_rules.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* X [steps, batch, ...] -> Y [steps, directions, batch, hidden], states [directions, batch, hidden]. With layout 1, X
 * [batch, steps, ...] -> Y [batch, steps, directions, hidden], states [batch, directions, hidden]. */
bool opaque_recurrent(onnx_node *n, int i, ir_type *out)
{
    const ir_type *x = &n->in[0]->type, *r = &n->in[2]->type;
    if (x->rank != 3 || r->rank != 3) return false;
    const bool batch_first = onnx_int(n, "layout", 0) == 1;
    const ir_dim batch = x->dims[batch_first ? 0 : 1], steps = x->dims[batch_first ? 1 : 0];
    const ir_dim usual[] = {steps, r->dims[0], batch, r->dims[2]}, first[] = {batch, steps, r->dims[0], r->dims[2]},
                 states[] = {batch, r->dims[0], r->dims[2]};
    if (i) *out = ir_type_make(x->dtype, 3, batch_first ? states : usual + 1);
    else *out = ir_type_make(x->dtype, 4, batch_first ? first : usual);
    return !n->failed;
}

static ir_dim item(onnx_list list, int k, ir_dim otherwise) { return k < list.count ? list.items[k] : otherwise; }

/* stride * (in - 1) + output_padding + (kernel - 1) * dilation + 1 - pads */
bool opaque_conv_transpose(onnx_node *n, int i, ir_type *out)
{
    const ir_type *x = &n->in[0]->type, *w = &n->in[1]->type;
    const char *pad = onnx_text(n, "auto_pad", "NOTSET");
    onnx_list strides = onnx_ints(n, "strides"), pads = onnx_ints(n, "pads"), dilations = onnx_ints(n, "dilations"),
              more = onnx_ints(n, "output_padding");
    if (i || x->rank < 3 || w->rank != x->rank || n->failed) return false;
    const bool given = onnx_has(n, "output_shape") || strcmp(pad, "NOTSET") != 0;
    ir_dim_table *t = n->dims;
    int spatial = x->rank - 2;
    *out = *x;
    out->dims[1] = ir_dim_mul(t, w->dims[1], onnx_int(n, "group", 1));
    for (int k = 0; k < spatial && given; k++) out->dims[2 + k] = onnx_unknown_dim(n, i, 2 + k);
    for (int k = 0; k < spatial && !given; k++) {
        ir_dim steps = ir_dim_mul(t, ir_dim_sub(t, x->dims[2 + k], 1), item(strides, k, 1));
        ir_dim window = ir_dim_mul(t, ir_dim_sub(t, w->dims[2 + k], 1), item(dilations, k, 1));
        ir_dim padding = ir_dim_add(t, item(pads, k, 0), item(pads, spatial + k, 0));
        ir_dim size = ir_dim_add(t, ir_dim_add(t, ir_dim_add(t, steps, window), 1), item(more, k, 0));
        out->dims[2 + k] = ir_dim_sub(t, size, padding);
        if (out->dims[2 + k] == IR_DIM_NONE) return false;
    }
    return !n->failed;
}

/* Assigns the operand's sizes to the letters of its term and returns the end of the term. NULL: the number of letters
 * is not the rank. */
static const char *name_sizes(const char *term, const ir_type *x, ir_dim *size)
{
    int axis = 0;
    for (; *term && *term != ',' && *term != '-'; term++) {
        if (*term == ' ') continue;
        if (!isalpha((unsigned char)*term) || axis == x->rank) return NULL;
        size[(int)*term] = x->dims[axis++];
    }
    return axis == x->rank ? term : NULL;
}

/* "bij,bjk->bik": each letter has the size of an operand's axis. Unknown without "->" or with "...". */
bool opaque_einsum(onnx_node *n, int i, ir_type *out)
{
    ir_dim size[128];
    const char *p = onnx_text(n, "equation", "");
    if (i || !strstr(p, "->")) return false;
    for (int k = 0; k < 128; k++) size[k] = IR_DIM_NONE;
    for (int k = 0; k < n->n_in; k++) {
        p = name_sizes(p, &n->in[k]->type, size);
        if (!p || *p++ != (k + 1 < n->n_in ? ',' : '-')) return false;
    }
    *out = (ir_type){.dtype = n->in[0]->type.dtype};
    for (p++; *p; p++) {
        if (*p == ' ') continue;
        if ((unsigned char)*p > 127 || size[(int)*p] == IR_DIM_NONE || out->rank == ONNX_MAX_RANK) return false;
        out->dims[out->rank++] = size[(int)*p];
    }
    return true;
}

/* floor(size * scale), or IR_DIM_NONE. */
static ir_dim scaled(onnx_node *n, int i, int axis, double scale)
{
    ir_dim size = n->in[0]->type.dims[axis];
    if (scale == 1) return size;
    if (ir_dim_is_symbolic(size)) return onnx_unknown_dim(n, i, axis);
    double floored = floor((double)size * scale);
    return floored >= 0 && floored < 0x1p53 ? (ir_dim)floored : IR_DIM_NONE;
}

static bool is_known(const onnx_node *n, int i) { return ir_const_get(n->importer->consts, n->in[i]) != NULL; }

/* Supports sizes or scales of all axes; other sizes are unknown. */
bool opaque_resize(onnx_node *n, int i, ir_type *out)
{
    const ir_type *x = &n->in[0]->type;
    const bool sized = onnx_in(n, 3) && is_known(n, 3), scaled_by = onnx_in(n, 2) && is_known(n, 2);
    if (onnx_has(n, "axes") || onnx_has(n, "keep_aspect_ratio_policy") || (!sized && !scaled_by))
        return opaque_resized(n, i, out);
    onnx_list sizes = onnx_in(n, 3) ? onnx_const_list(n, 3) : (onnx_list){0};
    const ir_const_value *scales = !sizes.count && onnx_in(n, 2) ? onnx_const_numbers(n, 2) : NULL;
    if (i || n->failed || onnx_has(n, "axes") || (!sizes.count && (!scales || !scales->floats))) return false;
    if ((sizes.count ? sizes.count : scales->count) != x->rank) return false;
    *out = *x;
    for (int k = 0; k < x->rank; k++) {
        out->dims[k] = sizes.count ? sizes.items[k] : scaled(n, i, k, scales->floats[k]);
        if (out->dims[k] == IR_DIM_NONE) return false;
    }
    return true;
}

/* ---- windows ----------------------------------------------------------------------------------- */

/* The number of window positions, (in + pads - reach) / stride + 1, rounded down or, with ceil_mode, up. */
static bool slide(onnx_node *n, const onnx_window *w, bool ceil_mode, ir_type *out)
{
    ir_dim_table *t = n->dims;
    for (int k = 0; k < w->n && !n->failed; k++) {
        int64_t reach = (w->kernel[k] - 1) * w->dilations[k] + 1, pads = w->pads[k] + w->pads[k + w->n];
        ir_dim room = ir_dim_add(t, out->dims[2 + k], pads - reach + (ceil_mode ? w->strides[k] - 1 : 0));
        out->dims[2 + k] = ir_dim_add(t, ir_dim_floordiv(t, room, w->strides[k]), 1);
        if (out->dims[2 + k] == IR_DIM_NONE) return false;
    }
    return !n->failed;
}

static bool convolved(onnx_node *n, int weight, ir_dtype dtype, ir_type *out)
{
    const ir_type *w = &n->in[weight]->type;
    if (w->rank != n->in[0]->type.rank || w->rank < 3) return false;
    onnx_window window = onnx_window_of(n, n->in[0], w->dims + 2);
    *out = n->in[0]->type;
    out->dtype = dtype;
    out->dims[1] = w->dims[0];
    return slide(n, &window, false, out);
}

static ir_dtype type_of(const onnx_node *n, int i) { return onnx_in(n, i) ? n->in[i]->type.dtype : IR_NO_DTYPE; }

bool opaque_conv_integer(onnx_node *n, int i, ir_type *out) { return i == 0 && convolved(n, 1, IR_i32, out); }

bool opaque_deform_conv(onnx_node *n, int i, ir_type *out) { return i == 0 && convolved(n, 1, type_of(n, 0), out); }

bool opaque_qlinear_conv(onnx_node *n, int i, ir_type *out) { return i == 0 && convolved(n, 3, type_of(n, 7), out); }

/* ---- matrix products --------------------------------------------------------------------------- */

/* Like MatMul: a vector is a row on the left and a column on the right. */
static bool multiplied(onnx_node *n, int right, ir_dtype dtype, ir_type *out)
{
    ir_type a = n->in[0]->type, b = n->in[right]->type;
    if (!a.rank || !b.rank) return false;
    ir_dim rows = a.rank > 1 ? a.dims[a.rank - 2] : IR_DIM_NONE;
    ir_dim columns = b.rank > 1 ? b.dims[b.rank - 1] : IR_DIM_NONE;
    a.rank = a.rank > 1 ? a.rank - 2 : 0;
    b.rank = b.rank > 1 ? b.rank - 2 : 0;
    a.dtype = b.dtype = dtype;
    if (!ir_broadcast(n->dims, &a, &b, out)) return false;
    out->dtype = dtype;
    if (rows != IR_DIM_NONE) out->dims[out->rank++] = rows;
    if (columns != IR_DIM_NONE) out->dims[out->rank++] = columns;
    return true;
}

bool opaque_matmul_integer(onnx_node *n, int i, ir_type *out) { return i == 0 && multiplied(n, 1, IR_i32, out); }

bool opaque_qlinear_matmul(onnx_node *n, int i, ir_type *out) { return i == 0 && multiplied(n, 3, type_of(n, 7), out); }

/* Results: the quantised tensor, its scale, and its zero point. */
bool opaque_dynamic_quantize(onnx_node *n, int i, ir_type *out)
{
    *out = i ? ir_type_scalar(i == 1 ? IR_f32 : IR_u8) : n->in[0]->type;
    if (!i) out->dtype = IR_u8;
    return true;
}

/* The result type is that of the zero point, otherwise that of the attribute, otherwise u8. */
bool opaque_quantize(onnx_node *n, int i, ir_type *out)
{
    *out = n->in[0]->type;
    out->dtype = type_of(n, 2);
    if (out->dtype != IR_NO_DTYPE) return i == 0;
    int64_t wanted = onnx_int(n, "output_dtype", 0);
    out->dtype = wanted ? onnx_type_dtype(wanted) : IR_u8;
    return i == 0 && out->dtype != IR_NO_DTYPE;
}

/* ---- attention --------------------------------------------------------------------------------- */

/* [batch, heads, queries, keys] */
static bool attention_scores(onnx_node *n, int i, ir_type *out)
{
    const ir_type *q = &n->in[0]->type, *k = &n->in[1]->type;
    const bool flat = q->rank == 3;
    if (q->rank < 3 || q->rank > 4 || k->rank != q->rank) return false;
    const ir_dim heads = flat ? onnx_int(n, "q_num_heads", 0) : q->dims[1];
    const ir_dim keys = onnx_in(n, 4) ? onnx_unknown_dim(n, i, 3) : k->dims[flat ? 1 : 2];
    *out = ir_type_make(q->dtype, 4, (const int64_t[]){q->dims[0], heads, q->dims[flat ? 1 : 2], keys});
    return !n->failed;
}

/* Packed heads: query [batch, steps, heads * size] -> [batch, steps, heads * value size], state [batch, heads, size,
 * value size]. */
bool opaque_linear_attention(onnx_node *n, int i, ir_type *out)
{
    const ir_type *k = &n->in[1]->type, *v = &n->in[2]->type;
    const int64_t heads = onnx_int(n, "q_num_heads", 0), key_heads = onnx_int(n, "kv_num_heads", 0);
    if (heads < 1 || key_heads < 1 || out->rank != 3 || k->rank != 3 || v->rank != 3) return false;
    const ir_dim size = ir_dim_floordiv(n->dims, v->dims[2], key_heads);
    if (i == 0) out->dims[2] = ir_dim_mul(n->dims, size, heads);
    else
        *out = ir_type_make(
            out->dtype, 4,
            (const int64_t[]){out->dims[0], key_heads, ir_dim_floordiv(n->dims, k->dims[2], key_heads), size});
    return !n->failed;
}

/* The operand, then the last k - 1 columns. */
bool opaque_causal_conv(onnx_node *n, int i, ir_type *out)
{
    const ir_type *w = &n->in[1]->type;
    if (out->rank != 3 || w->rank != 3) return false;
    if (i) out->dims[2] = ir_dim_sub(n->dims, w->dims[2], 1);
    return true;
}

/* Y has the shape of Q with the head size of V; the present key and value are 4-D and extended by the past ones. */
bool opaque_attention(onnx_node *n, int i, ir_type *out)
{
    if (i > 2) return attention_scores(n, i, out);
    const ir_type *q = &n->in[0]->type, *side = &n->in[i == 1 ? 1 : 2]->type;
    int64_t q_heads = onnx_int(n, "q_num_heads", 0), kv_heads = onnx_int(n, "kv_num_heads", 0);
    bool flat = q->rank == 3;
    if (side->rank != q->rank || q->rank < 3 || (flat && (q_heads < 1 || kv_heads < 1))) return false;
    ir_dim size = flat ? ir_dim_floordiv(n->dims, side->dims[2], kv_heads) : side->dims[3];
    *out = *q;
    out->dtype = side->dtype;
    if (i == 0) {
        out->dtype = q->dtype;
        out->dims[q->rank - 1] = flat ? ir_dim_mul(n->dims, size, q_heads) : size;
    } else {
        ir_dim length = flat ? side->dims[1] : side->dims[2];
        if (onnx_in(n, 4)) length = onnx_unknown_dim(n, i, 2);
        *out = ir_type_make(side->dtype, 4,
                            (const int64_t[]){side->dims[0], flat ? kv_heads : side->dims[1], length, size});
    }
    return !n->failed;
}

/* ---- images ------------------------------------------------------------------------------------ */

/* X [N, C, ..], grid [N, out.., 2 or 3] */
bool opaque_grid_sample(onnx_node *n, int i, ir_type *out)
{
    const ir_type *x = &n->in[0]->type;
    if (i || n->in[1]->type.rank != x->rank || x->rank < 3) return false;
    *out = *x;
    for (int k = 2; k < x->rank; k++) out->dims[k] = n->in[1]->type.dims[k - 1];
    return true;
}

/* theta [N, d, d + 1] -> [N, sizes.., d] */
bool opaque_affine_grid(onnx_node *n, int i, ir_type *out)
{
    const ir_type *theta = &n->in[0]->type;
    if (i || theta->rank != 3 || ir_dim_is_symbolic(theta->dims[1]) || theta->dims[1] > 3 || theta->dims[1] < 2)
        return false;
    int d = (int)theta->dims[1];
    const ir_const_value *size = ir_const_get(n->importer->consts, n->in[1]);
    *out = ir_type_make(theta->dtype, 0, NULL);
    out->rank = d + 2;
    out->dims[0] = theta->dims[0];
    for (int k = 0; k < d; k++)
        out->dims[1 + k] = size && size->ints && size->count == d + 2 ? size->ints[2 + k]
                                                                      : onnx_unknown_dim(n, i, 1 + k);
    out->dims[d + 1] = d;
    return true;
}

/* [regions, C, height, width] */
static bool regions(onnx_node *n, int64_t height, int64_t width, ir_type *out)
{
    const ir_type *x = &n->in[0]->type;
    if (x->rank != 4 || n->in[1]->type.rank != 2 || height < 1 || width < 1) return false;
    *out = ir_type_make(x->dtype, 4, (const int64_t[]){n->in[1]->type.dims[0], x->dims[1], height, width});
    return !n->failed;
}

bool opaque_max_roi_pool(onnx_node *n, int i, ir_type *out)
{
    onnx_list shape = onnx_ints(n, "pooled_shape");
    return i == 0 && shape.count == 2 && regions(n, shape.items[0], shape.items[1], out);
}
