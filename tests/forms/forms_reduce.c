/* forms_reduce.c - generators of the reductions. */
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

const form forms_reduce[] = {
    {"ReduceMean", draw_reduce, "f", -2, 2, NULL, false},
    {"ReduceSum", draw_reduce, "fi", -2, 2, NULL, false},
    {0},
};
