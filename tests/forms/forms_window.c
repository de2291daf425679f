/* forms_window.c - generators of convolution and pooling. */
#include "tests/forms/form.h"

typedef struct window {
    int axes;
    int64_t kernel[3], strides[3], dilations[3], pads[6];
} window;

static window draw_kernel(drawing *w, int axes)
{
    window k = {.axes = axes};
    for (int i = 0; i < axes; i++) {
        k.kernel[i] = 1 + choose(w->c, 3);
        k.strides[i] = 1 + choose(w->c, 3);
        k.dilations[i] = rarely(w->c, 4) ? 2 : 1;
        k.pads[i] = choose(w->c, (int)k.kernel[i]);
        k.pads[axes + i] = choose(w->c, (int)k.kernel[i]);
    }
    return k;
}

/* Adds strides, dilations and padding, each left out sometimes. */
static void push_window(drawing *w, node *n, const window *k, bool has_dilations)
{
    static const char *const modes[] = {"VALID", "SAME_UPPER", "SAME_LOWER", "NOTSET"};
    if (choose(w->c, 3)) node_list(n, "strides", k->strides, k->axes);
    if (has_dilations && rarely(w->c, 3)) node_list(n, "dilations", k->dilations, k->axes);
    if (rarely(w->c, 4)) node_text(n, "auto_pad", CHOOSE(w->c, modes));
    else if (choose(w->c, 3)) node_list(n, "pads", k->pads, 2 * k->axes);
}

/* An image: batch, channels and up to three axes that a window fits on. */
static tensor draw_image(drawing *w, const form *f)
{
    tensor shape = any_shape(w, 2, 2);
    for (int i = 1 + choose(w->c, 2) + rarely(w->c, 4); i > 0; i--) push_size(&shape, 3 + choose(w->c, 5));
    if (choose(w->c, 3)) return any_operand(w, f, 3, 5);
    return new_operand(w, f, &shape);
}

static void draw_conv(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = draw_image(w, f);
    const window k = draw_kernel(w, x.rank - 2);
    const int64_t channels = x.dims[1], groups = channels > 1 && rarely(w->c, 3) ? channels : 1;
    tensor shape = {0}, bias = {0};
    push_size(&shape, groups * some_size(w));
    if (groups == 1) push_axis(&shape, &x, 1);
    else push_size(&shape, channels / groups);
    for (int i = 0; i < k.axes; i++) push_size(&shape, k.kernel[i]);
    const tensor weight = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &weight);
    if (choose(w->c, 2)) {
        push_size(&bias, shape.dims[0]);
        const tensor b = new_operand(w, f, &bias);
        node_operand(w, &n, &b);
    }
    if (choose(w->c, 2)) node_list(&n, "kernel_shape", k.kernel, k.axes);
    node_int_or_default(w, &n, "group", groups, 1);
    push_window(w, &n, &k, true);
    form_add(w, f, &n, 1);
}

static void draw_pool(drawing *w, const form *f)
{
    node n = {0};
    const bool is_max = f->op[0] == 'M';
    const tensor x = draw_image(w, f);
    const window k = draw_kernel(w, x.rank - 2);
    node_operand(w, &n, &x);
    node_list(&n, "kernel_shape", k.kernel, k.axes);
    push_window(w, &n, &k, w->m.opset >= (is_max ? 10 : 19));
    if (w->m.opset >= 10) node_int_or_default(w, &n, "ceil_mode", choose(w->c, 2), 0);
    if (!is_max) node_int_or_default(w, &n, "count_include_pad", choose(w->c, 2), 0);
    form_add(w, f, &n, 1);
}

static void draw_global_pool(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 3, 5);
    node_operand(w, &n, &x);
    form_add(w, f, &n, 1);
}

const form forms_window[] = {
    {"Conv", draw_conv, "f", -1, 1, NULL, false},
    {"MaxPool", draw_pool, "f", -2, 2, NULL, false},
    {"AveragePool", draw_pool, "f", -2, 2, NULL, false},
    {"GlobalAveragePool", draw_global_pool, "f", -2, 2, NULL, false},
    {"GlobalMaxPool", draw_global_pool, "f", -2, 2, NULL, false},
    {0},
};
