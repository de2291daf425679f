/* forms_norm.c - generators of the normalisations, softmax and Dropout. */
#include "tests/forms/form.h"

/* The training form, for gradients only: its other results are running statistics, which change with each run. */
static void draw_batch_norm(drawing *w, const form *f)
{
    static const values ranges[] = {{0.3, 2}, {-1, 1}, {-1, 1}, {0.3, 2}};
    node n = {0};
    const tensor x = any_operand(w, f, 2, 5);
    tensor shape = {0};
    push_axis(&shape, &x, 1);
    node_operand(w, &n, &x);
    for (int i = 0; i < 4; i++) {
        const tensor t = new_tensor(w, w->type, ranges[i], &shape, true);
        node_operand(w, &n, &t);
    }
    if (rarely(w->c, 3)) node_float(&n, "epsilon", 0.01f);
    if (rarely(w->c, 3)) node_float(&n, "momentum", 0.7f);
    const int statistics = !w->exact || w->m.opset < 9 || !rarely(w->c, 3) ? 0 : w->m.opset < 14 ? 4 : 2;
    if (statistics == 2) node_int(&n, "training_mode", 1);
    form_add(w, f, &n, 1 + statistics);
    w->n_results -= statistics;
}

static void draw_layer_norm(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    const int axis = choose(w->c, 2) ? x.rank - 1 : choose(w->c, x.rank);
    tensor shape = {0};
    for (int i = axis; i < x.rank; i++) push_axis(&shape, &x, i);
    const tensor scale = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &scale);
    if (choose(w->c, 2)) {
        const tensor bias = new_operand(w, f, &shape);
        node_operand(w, &n, &bias);
    }
    node_int_or_default(w, &n, "axis", either_sign(w, axis, x.rank), -1);
    if (rarely(w->c, 3)) node_float(&n, "epsilon", 0.01f);
    form_add(w, f, &n, w->type == ONNX_float32 && rarely(w->c, 4) ? 3 : 1);
}

static void draw_softmax(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    const bool is_flat = w->m.opset < 13;
    node_operand(w, &n, &x);
    if ((is_flat && x.rank < 2) || choose(w->c, 3)) node_int(&n, "axis", any_axis(w, x.rank));
    form_add(w, f, &n, 1);
}

static void draw_dropout(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    const double ratio = any_real(w, 0, 0.9);
    node_operand(w, &n, &x);
    if (w->m.opset < 12) {
        if (choose(w->c, 2)) node_float(&n, "ratio", (float)ratio);
    } else if (choose(w->c, 2)) {
        const tensor t = new_scalar(w, w->type, ratio);
        node_operand(w, &n, &t);
    }
    form_add(w, f, &n, w->m.opset >= 10 && rarely(w->c, 3) ? 2 : 1);
}

static void draw_rms_norm(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    const int axis = choose(w->c, 2) ? x.rank - 1 : choose(w->c, x.rank);
    tensor shape = {0};
    for (int i = axis; i < x.rank; i++) push_axis(&shape, &x, i);
    const tensor scale = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &scale);
    node_int_or_default(w, &n, "axis", either_sign(w, axis, x.rank), -1);
    if (rarely(w->c, 3)) node_float(&n, "epsilon", 0.01f);
    form_add(w, f, &n, 1);
}

/* Adds scale and bias, vectors of that size. */
static void add_vectors(drawing *w, const form *f, node *n, const tensor *shape)
{
    for (int i = 0; i < 2; i++) {
        const tensor t = new_operand(w, f, shape);
        node_operand(w, n, &t);
    }
}

static void draw_instance_norm(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 3, 5);
    tensor shape = {0};
    push_axis(&shape, &x, 1);
    node_operand(w, &n, &x);
    add_vectors(w, f, &n, &shape);
    if (choose(w->c, 2)) node_float(&n, "epsilon", 0.01f);
    form_add(w, f, &n, 1);
}

static void draw_group_norm(drawing *w, const form *f)
{
    node n = {0};
    const int64_t groups = 1 + choose(w->c, 3), channels = groups * (1 + choose(w->c, 3));
    tensor shape = {0}, vector = {0};
    push_size(&shape, some_size(w));
    push_size(&shape, channels);
    for (int i = choose(w->c, 2); i >= 0; i--) push_size(&shape, 1 + some_size(w));
    push_size(&vector, w->m.opset < 21 ? groups : channels);
    const tensor x = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    add_vectors(w, f, &n, &vector);
    node_int(&n, "num_groups", groups);
    if (choose(w->c, 2)) node_float(&n, "epsilon", 0.01f);
    form_add(w, f, &n, 1);
}

static void draw_mean_variance(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 4, 4);
    int64_t axes[4];
    int count = 0;
    for (int i = 0; i < x.rank; i++)
        if (choose(w->c, 2)) axes[count++] = i;
    node_operand(w, &n, &x);
    if (count) node_list(&n, "axes", axes, count);
    form_add(w, f, &n, 1);
}

static void draw_lp_norm(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    node_operand(w, &n, &x);
    node_int_or_default(w, &n, "axis", any_axis(w, x.rank), -1);
    node_int_or_default(w, &n, "p", 1 + choose(w->c, 2), 2);
    form_add(w, f, &n, 1);
}

static void draw_lrn(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 4, 4);
    node_operand(w, &n, &x);
    node_int(&n, "size", 1 + choose(w->c, 5));
    if (choose(w->c, 2)) node_float(&n, "alpha", 0.3f);
    if (choose(w->c, 2)) node_float(&n, "beta", 0.6f);
    if (choose(w->c, 2)) node_float(&n, "bias", 1.5f);
    form_add(w, f, &n, 1);
}

const form forms_norm[] = {
    {"BatchNormalization", draw_batch_norm, "f", -2, 2, NULL, false},
    {"LayerNormalization", draw_layer_norm, "f", -2, 2, NULL, false},
    {"RMSNormalization", draw_rms_norm, "f", -2, 2, NULL, false},
    {"InstanceNormalization", draw_instance_norm, "f", -2, 2, NULL, false},
    {"GroupNormalization", draw_group_norm, "f", -2, 2, NULL, false},
    {"MeanVarianceNormalization", draw_mean_variance, "f", -2, 2, NULL, false},
    {"LpNormalization", draw_lp_norm, "f", -2, 2, NULL, false},
    {"LRN", draw_lrn, "f", -2, 2, NULL, false},
    {"Softmax", draw_softmax, "f", -3, 3, NULL, false},
    {"LogSoftmax", draw_softmax, "f", -3, 3, NULL, false},
    {"Dropout", draw_dropout, "f", -2, 2, NULL, false},
    {0},
};
