/* forms_reduce.c - generators of the reductions, and of what orders or accumulates elements along an axis. */
#include "tests/forms/form.h"

static void draw_reduce(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    const int since = strcmp(f->op, "ReduceSum") == 0 ? 13 : 18;
    int64_t axes[8];
    int count = 0;
    for (int i = 0; i < x.rank; i++)
        if (choose(w->c, 2)) axes[count++] = either_sign(w, i, x.rank);
    node_operand(w, &n, &x);
    if (count || (w->m.opset >= since && rarely(w->c, 3))) node_list_since(w, &n, since, "axes", axes, count);
    if (w->m.opset >= since && rarely(w->c, 4)) node_int(&n, "noop_with_empty_axes", choose(w->c, 2));
    node_int_or_default(w, &n, "keepdims", choose(w->c, 2), 1);
    form_add(w, f, &n, 1);
}

static void draw_arg(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    node_operand(w, &n, &x);
    if (choose(w->c, 4)) node_int(&n, "axis", any_axis(w, x.rank));
    node_int_or_default(w, &n, "keepdims", choose(w->c, 2), 1);
    if (w->m.opset >= 12) node_int_or_default(w, &n, "select_last_index", choose(w->c, 2), 0);
    form_add(w, f, &n, 1);
}

static void draw_top_k(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    const int axis = any_axis(w, x.rank), at = axis < 0 ? axis + x.rank : axis;
    const int64_t size = x.symbol[at] ? 1 : x.dims[at], k = 1 + choose(w->c, size > 1 ? (int)size : 1);
    node_operand(w, &n, &x);
    if (w->m.opset < 10) {
        node_int(&n, "k", k);
    } else {
        const tensor one = fixed_shape(1, (int64_t[]){1}), known = new_list(w, &k, 1);
        const values exactly = {(double)k, (double)k + 1}; /* an integer is rounded down */
        const bool is_known = w->exact || !rarely(w->c, 4);
        const tensor list = is_known ? known : new_tensor(w, ONNX_int64, exactly, &one, false);
        node_operand(w, &n, &list);
    }
    node_int_or_default(w, &n, "axis", axis, -1);
    if (w->m.opset >= 11) node_int_or_default(w, &n, "largest", choose(w->c, 2), 1);
    form_add(w, f, &n, 2);
}

static void draw_cum_sum(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    const tensor axis = new_scalar(w, rarely(w->c, 2) ? ONNX_int32 : ONNX_int64, any_axis(w, x.rank));
    node_operand(w, &n, &x);
    node_operand(w, &n, &axis);
    node_int_or_default(w, &n, "exclusive", choose(w->c, 2), 0);
    node_int_or_default(w, &n, "reverse", choose(w->c, 2), 0);
    form_add(w, f, &n, 1);
}

static void draw_hardmax(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    node_operand(w, &n, &x);
    if ((w->m.opset < 13 && x.rank < 2) || choose(w->c, 3)) node_int(&n, "axis", any_axis(w, x.rank));
    form_add(w, f, &n, 1);
}

static void draw_det(drawing *w, const form *f)
{
    node n = {0};
    tensor shape = any_shape(w, 0, 2);
    const int64_t size = some_size(w);
    push_size(&shape, size);
    push_size(&shape, size);
    const tensor x = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    form_add(w, f, &n, 1);
}

#define NO_ORDER "the result is an integer"
const form forms_reduce[] = {
    {"ReduceMean", draw_reduce, "f", -2, 2, NULL, false},
    {"ReduceSum", draw_reduce, "fi", -2, 2, NULL, false},
    {"ReduceMax", draw_reduce, "fi", -2, 2, NULL, false},
    {"ReduceMin", draw_reduce, "fi", -2, 2, NULL, false},
    {"ReduceProd", draw_reduce, "fi", -2, 2, NULL, false},
    {"ReduceL1", draw_reduce, "fi", -2, 2, NULL, false},
    {"ReduceL2", draw_reduce, "f", -2, 2, NULL, false},
    {"ReduceSumSquare", draw_reduce, "fi", -2, 2, NULL, false},
    {"ReduceLogSum", draw_reduce, "f", 0.2, 2, NULL, false},
    {"ReduceLogSumExp", draw_reduce, "f", -2, 2, NULL, false},
    {"ArgMax", draw_arg, "fi", -3, 3, NO_ORDER, false},
    {"ArgMin", draw_arg, "fi", -3, 3, NO_ORDER, false},
    {"TopK", draw_top_k, "fi", -3, 3, NULL, false},
    {"CumSum", draw_cum_sum, "fi", -2, 2, NULL, false},
    {"Hardmax", draw_hardmax, "f", -3, 3, "the result is piecewise constant", false},
    {"Det", draw_det, "f", -2, 2, NULL, false},
    {0},
};
