/* foreign_types.c - the results of common operators that are only carried along, for models that
 * do not declare them. A size that no rule gives is a symbol of its own. */
#include "frontend/foreign.h"
#include "frontend/lower.h"

#include <math.h>
#include <string.h>

/* The type of result i; false: not known. */
typedef bool type_rule(onnx_node *n, int i, ir_type *out);

ir_dim foreign_unknown_dim(onnx_node *n, int i, int axis)
{
    return ir_dim_symbol(n->dims, arena_printf(n->importer->scratch, "%s_dim%d", n->proto->output[i], axis));
}

/* ---- reductions ------------------------------------------------------------------------------ */

static bool reduced(onnx_node *n, const bool *set, bool keepdims, ir_type *out)
{
    const ir_type *x = &n->in[0]->type;
    out->rank = 0;
    for (int k = 0; k < x->rank; k++)
        if (!set[k])
            out->dims[out->rank++] = x->dims[k];
        else if (keepdims)
            out->dims[out->rank++] = 1;
    return !n->failed;
}

static bool rule_reduce(onnx_node *n, int i, ir_type *out)
{
    enum { AXES_OPERAND_SINCE = 18 };
    int rank = n->in[0]->type.rank;
    bool set[IR_MAX_RANK], keepdims = onnx_bool(n, "keepdims", true);
    onnx_list axes = onnx_list_since(n, "axes", 1, AXES_OPERAND_SINCE);
    if (i || n->failed) return false;
    onnx_axes(n, axes, rank, set);
    bool none = !axes.count && onnx_bool(n, "noop_with_empty_axes", false);
    for (int k = 0; k < rank && !axes.count; k++) set[k] = !none;
    out->dtype = n->in[0]->type.dtype;
    return reduced(n, set, keepdims, out);
}

static bool rule_arg(onnx_node *n, int i, ir_type *out)
{
    bool set[IR_MAX_RANK] = {false}, keepdims = onnx_bool(n, "keepdims", true);
    int axis = onnx_axis(n, onnx_int(n, "axis", 0), n->in[0]->type.rank);
    if (i || n->failed) return false;
    set[axis] = true;
    out->dtype = IR_i64;
    return reduced(n, set, keepdims, out);
}

/* ---- selections ------------------------------------------------------------------------------ */

static bool rule_top(onnx_node *n, int i, ir_type *out)
{
    enum { K_OPERAND_SINCE = 10 };
    int axis = onnx_axis(n, onnx_int(n, "axis", -1), n->in[0]->type.rank);
    if (n->opset < K_OPERAND_SINCE || n->failed) return false;
    *out = n->in[0]->type;
    out->dims[axis] = onnx_known_int(n, 1, 0);
    if (i) out->dtype = IR_i64;
    return !n->failed;
}

static bool rule_selection(onnx_node *n, int i, ir_type *out)
{
    *out = ir_type_make(IR_i64, 2, (const int64_t[]){foreign_unknown_dim(n, i, 0), 3});
    return true;
}

static bool rule_positions(onnx_node *n, int i, ir_type *out)
{
    *out = ir_type_make(IR_i64, 2, (const int64_t[]){n->in[0]->type.rank, foreign_unknown_dim(n, i, 1)});
    return true;
}

/* ---- networks -------------------------------------------------------------------------------- */

/* X [steps, batch, ...] -> Y [steps, directions, batch, hidden], states without the steps. */
static bool rule_recurrent(onnx_node *n, int i, ir_type *out)
{
    const ir_type *x = &n->in[0]->type, *r = &n->in[2]->type;
    if (x->rank != 3 || r->rank != 3 || onnx_int(n, "layout", 0) != 0) return false;
    ir_dim dims[] = {x->dims[0], r->dims[0], x->dims[1], r->dims[2]};
    *out = i ? ir_type_make(x->dtype, 3, dims + 1) : ir_type_make(x->dtype, 4, dims);
    return !n->failed;
}

static ir_dim item(onnx_list list, int k, ir_dim otherwise)
{
    return k < list.count ? list.items[k] : otherwise;
}

/* stride * (in - 1) + output_padding + (kernel - 1) * dilation + 1 - pads */
static bool rule_conv_transpose(onnx_node *n, int i, ir_type *out)
{
    const ir_type *x = &n->in[0]->type, *w = &n->in[1]->type;
    const char *pad = onnx_text(n, "auto_pad", "NOTSET");
    onnx_list strides = onnx_ints(n, "strides"), pads = onnx_ints(n, "pads"),
              dilations = onnx_ints(n, "dilations"), more = onnx_ints(n, "output_padding");
    if (i || x->rank < 3 || w->rank != x->rank || onnx_has(n, "output_shape") || n->failed ||
        strcmp(pad, "NOTSET") != 0)
        return false;
    ir_dim_table *t = n->dims;
    int spatial = x->rank - 2;
    *out = *x;
    out->dims[1] = ir_dim_mul(t, w->dims[1], onnx_int(n, "group", 1));
    for (int k = 0; k < spatial; k++) {
        ir_dim steps = ir_dim_mul(t, ir_dim_sub(t, x->dims[2 + k], 1), item(strides, k, 1));
        ir_dim window = ir_dim_mul(t, ir_dim_sub(t, w->dims[2 + k], 1), item(dilations, k, 1));
        ir_dim padding = ir_dim_add(t, item(pads, k, 0), item(pads, spatial + k, 0));
        ir_dim size = ir_dim_add(t, ir_dim_add(t, steps, window), 1 + item(more, k, 0));
        out->dims[2 + k] = ir_dim_sub(t, size, padding);
        if (out->dims[2 + k] == IR_DIM_NONE) return false;
    }
    return !n->failed;
}

/* "bij,bjk->bik": each letter has the size that it has in an operand. Without "->" or with "..." not
 * known. */
static bool rule_einsum(onnx_node *n, int i, ir_type *out)
{
    ir_dim size[128];
    const char *p = onnx_text(n, "equation", "");
    if (i || !strstr(p, "->") || strchr(p, '.')) return false;
    memset(size, 0, sizeof size);
    for (int k = 0; k < n->n_in; k++, p++)
        for (int axis = 0; *p && *p != ',' && *p != '-'; p++) {
            if (*p == ' ') continue;
            if (axis >= n->in[k]->type.rank || *p < 0) return false;
            size[(int)*p] = n->in[k]->type.dims[axis++];
        }
    *out = (ir_type){.dtype = n->in[0]->type.dtype};
    for (p = strstr(onnx_text(n, "equation", ""), "->") + 2; *p; p++) {
        if (*p == ' ') continue;
        if (*p < 0 || out->rank == ONNX_MAX_RANK) return false;
        out->dims[out->rank++] = size[(int)*p];
    }
    return true;
}

/* By sizes, or floor(size * scale), of all axes. */
static bool rule_resize(onnx_node *n, int i, ir_type *out)
{
    const ir_type *x = &n->in[0]->type;
    onnx_list sizes = onnx_in(n, 3) ? onnx_known_list(n, 3) : (onnx_list){0};
    const ir_known *scales = !sizes.count && onnx_in(n, 2) ? onnx_known(n, 2) : NULL;
    if (i || n->failed || onnx_has(n, "axes") || (!sizes.count && !scales)) return false;
    if ((sizes.count ? sizes.count : scales->count) != x->rank) return false;
    *out = *x;
    for (int k = 0; k < x->rank; k++) {
        double scale = sizes.count ? 0 : scales->floats[k];
        if (sizes.count)
            out->dims[k] = sizes.items[k];
        else if (scale != 1 && ir_dim_is_symbolic(x->dims[k]))
            out->dims[k] = foreign_unknown_dim(n, i, k);
        else if (scale != 1)
            out->dims[k] = (ir_dim)floor((double)x->dims[k] * scale);
    }
    return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct type_row {
    const char *op;
    type_rule *rule; /* NULL: as below */
    int shape_of, dtype_of;
} type_row;

static const type_row rows[] = {
#define LIKE(op, shape_of, dtype_of) {#op, NULL, shape_of, dtype_of},
#define RULE(op, rule) {#op, rule_##rule, 0, 0},
#include "frontend/foreign_types.def"
};

bool foreign_type(onnx_node *n, int i, ir_type *out)
{
    onnx_importer *im = n->importer;
    if (!onnx_is_default_domain(n->proto->domain)) return false;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const type_row *row = &rows[k];
        if (strcmp(row->op, n->proto->op_type) != 0) continue;
        const ir_value *shape = onnx_in(n, row->shape_of), *type = onnx_in(n, row->dtype_of);
        if (!n->in[0] || !shape || !type) return false;
        diag *own = im->diag;
        im->diag = im->builder.diag = im->trial; /* a rule that fails says nothing */
        *out = shape->type;
        out->dtype = type->type.dtype;
        bool known = !row->rule || row->rule(n, i, out);
        im->diag = im->builder.diag = own;
        n->failed = false;
        return known && (row->rule || i == 0);
    }
    return false;
}
