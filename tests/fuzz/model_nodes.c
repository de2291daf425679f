/* model_nodes.c - random nodes that compute, and the choice among all families of nodes. */
#include "tests/fuzz/model.h"

#include <stdio.h>
#include <string.h>

static void draw_unary(drawing *w)
{
    static const char *const ops[] = {"Relu", "Abs",        "Ceil",     "Cos",     "Erf",  "Exp",   "Floor",    "Log",
                                      "Neg",  "Reciprocal", "Round",    "Sigmoid", "Sign", "Sin",   "Softplus", "Sqrt",
                                      "Tanh", "Gelu",       "Identity", "Dropout", "Clip", "Trilu", "Selu"};
    const tensor x = pick_float(w, 0);
    add_node(w, CHOOSE(w->c, ops), x.name, NULL, x.type, x.rank, x.dims);
}

static void draw_binary(drawing *w)
{
    static const char *const ops[] = {"Add", "Sub", "Mul",   "Div",  "Pow",         "Min",     "Max",
                                      "Sum", "Mod", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
    char operands[32];
    const int op = choose(w->c, 14);
    const tensor x = pick_float(w, 0), y = pick_like(w, &x);
    const bool swapped = choose(w->c, 2);
    snprintf(operands, sizeof operands, "%s,%s", swapped ? y.name : x.name, swapped ? x.name : y.name);
    const tensor z = add_node(w, ops[op], operands, NULL, op < 9 ? x.type : BOOL, x.rank, x.dims);
    if (z.type != BOOL) return;
    char chosen[48];
    snprintf(chosen, sizeof chosen, "%s,%s,%s", z.name, x.name, y.name);
    add_node(w, "Where", chosen, NULL, x.type, x.rank, x.dims);
}

static void draw_cast(drawing *w)
{
    static const int types[] = {FLOAT, HALF, BFLOAT, INT64, BOOL, DOUBLE};
    const tensor x = pick_float(w, 0);
    const int to = CHOOSE(w->c, types);
    node a = {0};
    node_int(&a, "to", to);
    add_node(w, "Cast", x.name, &a, to, x.rank, x.dims);
}

static void draw_matmul(drawing *w)
{
    char operands[48];
    const tensor x = pick_float(w, 1);
    const int64_t m = draw_size(w), k = x.dims[x.rank - 1];
    const bool is_gemm = x.rank == 2 && choose(w->c, 2), is_transposed = is_gemm && choose(w->c, 2);
    int64_t dims[MAX_RANK];
    node a = {0};
    const tensor y = new_source(w, x.type, 2, is_transposed ? (int64_t[]){m, k} : (int64_t[]){k, m});
    memcpy(dims, x.dims, sizeof dims);
    dims[x.rank - 1] = m;
    snprintf(operands, sizeof operands, "%s,%s", x.name, y.name);
    if (is_transposed) node_int(&a, "transB", 1);
    if (is_gemm && choose(w->c, 2)) {
        const tensor b = new_source(w, x.type, 1, &m);
        snprintf(operands, sizeof operands, "%s,%s,%s", x.name, y.name, b.name);
        if (rarely(w->c, 3)) node_float(&a, "alpha", 0.5f);
    }
    add_node(w, is_gemm ? "Gemm" : "MatMul", operands, &a, x.type, x.rank, dims);
}

/* Returns the result size of a window; UNKNOWN if the input size is a symbol. */
static int64_t window(int64_t size, int64_t kernel, int64_t stride, int64_t pads)
{
    return size < 0 ? UNKNOWN : size + pads < kernel ? 0 : (size + pads - kernel) / stride + 1;
}

static void draw_window(drawing *w)
{
    static const char *const ops[] = {"Conv", "Conv", "MaxPool", "AveragePool"};
    const char *op = CHOOSE(w->c, ops);
    const tensor x = pick_float(w, 3);
    const int axes = x.rank - 2;
    int64_t dims[MAX_RANK], kernel[MAX_RANK], strides[MAX_RANK], pads[2 * MAX_RANK], weights[MAX_RANK];
    char operands[48], text[128];
    node a = {0};
    memcpy(dims, x.dims, sizeof dims);
    for (int i = 0; i < axes; i++) {
        kernel[i] = 1 + choose(w->c, 3);
        strides[i] = 1 + choose(w->c, 2);
        pads[i] = pads[axes + i] = choose(w->c, 2);
        dims[2 + i] = window(x.dims[2 + i], kernel[i], strides[i], 2 * pads[i]);
    }
    snprintf(operands, sizeof operands, "%s", x.name);
    node_ints(&a, "kernel_shape", format_list(kernel, axes, text));
    node_ints(&a, "strides", format_list(strides, axes, text));
    node_ints(&a, "pads", format_list(pads, 2 * axes, text));
    if (*op == 'C') {
        const bool is_depthwise = x.dims[1] > 0 && rarely(w->c, 3);
        weights[0] = is_depthwise ? x.dims[1] : draw_size(w);
        weights[1] = is_depthwise ? 1 : x.dims[1];
        memcpy(weights + 2, kernel, sizeof *kernel * (size_t)axes);
        const tensor k = new_source(w, x.type, x.rank, weights);
        snprintf(operands, sizeof operands, "%s,%s", x.name, k.name);
        if (is_depthwise) node_int(&a, "group", x.dims[1]);
        dims[1] = weights[0];
    } else if (rarely(w->c, 3)) {
        node_int(&a, "ceil_mode", 1);
    }
    add_node(w, op, operands, &a, x.type, x.rank, dims);
}

static void draw_norm(drawing *w)
{
    char operands[96];
    const tensor x = pick_float(w, 2);
    node a = {0};
    if (choose(w->c, 2)) {
        tensor p[4];
        for (int i = 0; i < 4; i++) p[i] = new_source(w, x.type, 1, &x.dims[1]);
        snprintf(operands, sizeof operands, "%s,%s,%s,%s,%s", x.name, p[0].name, p[1].name, p[2].name, p[3].name);
        add_node(w, "BatchNormalization", operands, NULL, x.type, x.rank, x.dims);
    } else if (choose(w->c, 2)) {
        const int axis = draw_axis(w, &x);
        const tensor s = new_source(w, x.type, x.rank - axis, &x.dims[axis]);
        snprintf(operands, sizeof operands, "%s,%s", x.name, s.name);
        node_int(&a, "axis", axis_or_negative(w, &x, axis));
        add_node(w, "LayerNormalization", operands, &a, x.type, x.rank, x.dims);
    } else {
        node_int(&a, "axis", axis_or_negative(w, &x, draw_axis(w, &x)));
        add_node(w, choose(w->c, 2) ? "Softmax" : "LogSoftmax", x.name, &a, x.type, x.rank, x.dims);
    }
}

static void draw_reduce(drawing *w)
{
    static const char *const ops[] = {"ReduceMean", "ReduceSum", "GlobalAveragePool", "Flatten"};
    const int op = choose(w->c, 4);
    const tensor x = pick_float(w, op == 2 ? 3 : 1);
    char operands[128];
    int64_t dims[MAX_RANK] = {0}, axes[MAX_RANK];
    int n = 0;
    node a = {0};
    snprintf(operands, sizeof operands, "%s", x.name);
    for (int i = 0; i < x.rank; i++) {
        dims[i] = x.dims[i];
        if (op == 2 ? i < 2 : op > 2 || choose(w->c, 2)) continue;
        axes[n++] = axis_or_negative(w, &x, i);
        dims[i] = 1;
    }
    if (op < 2) add_list(w, op ? 13 : 18, "axes", axes, n, operands, &a);
    if (op == 3) dims[0] = dims[1] = UNKNOWN;
    add_node(w, ops[op], operands, &a, x.type, op == 3 ? 2 : x.rank, dims);
}

static void draw_loss(drawing *w)
{
    static const char *const reductions[] = {"mean", "sum", "none"};
    const tensor x = pick_float(w, 2);
    char operands[48];
    int64_t dims[MAX_RANK];
    node a = {0};
    for (int i = 0, k = 0; i < x.rank; i++)
        if (i != 1) dims[k++] = x.dims[i];
    const tensor label = new_source(w, INT64, x.rank - 1, dims);
    const int reduction = choose(w->c, 3);
    node_text(&a, "reduction", reductions[reduction]);
    if (rarely(w->c, 3)) node_int(&a, "ignore_index", choose(w->c, 3) - 1);
    snprintf(operands, sizeof operands, "%s,%s", x.name, label.name);
    add_node(w, choose(w->c, 2) ? "SoftmaxCrossEntropyLoss" : "NegativeLogLikelihoodLoss", operands, &a, x.type,
             reduction == 2 ? x.rank - 1 : 0, dims);
}

static void draw_if(drawing *w)
{
    const tensor x = pick_float(w, 0);
    const tensor chosen = new_source(w, BOOL, 0, NULL);
    node a = {0};
    for (int i = 0; i < 2; i++) {
        char name[16];
        model subgraph = model_new(w->m.opset);
        snprintf(name, sizeof name, "b%d.%d", i, w->made++);
        model_node(&subgraph, i ? "Relu" : "Neg", x.name, name);
        model_output(&subgraph, name, 0, NULL);
        node_graph(&a, i ? "then_branch" : "else_branch", &subgraph);
    }
    add_node(w, "If", chosen.name, &a, x.type, x.rank, x.dims);
}

void draw_node(drawing *w)
{
    static void (*const draws[])(drawing * w) = {draw_unary,  draw_unary,    draw_binary,   draw_binary,   draw_matmul,
                                                 draw_matmul, draw_window,   draw_window,   draw_norm,     draw_norm,
                                                 draw_reduce, draw_movement, draw_movement, draw_movement, draw_split,
                                                 draw_gather, draw_shape,    draw_cast,     draw_loss,     draw_if};
    CHOOSE(w->c, draws)(w);
}
