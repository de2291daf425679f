/* forms_activation.c - generators of activations, trigonometric and bitwise operators, random numbers, quantisation. */
#include "tests/forms/form.h"

/* The float attributes of an operator, with their defaults. */
static const struct {
    const char *op, *name;
    double otherwise, low, high;
} attributes[] = {
    {"HardSigmoid", "alpha", 0.2, 0.1, 1},  {"HardSigmoid", "beta", 0.5, -1, 1}, {"LeakyRelu", "alpha", 0.01, -1, 1},
    {"ThresholdedRelu", "alpha", 1, -1, 1}, {"Elu", "alpha", 1, 0.1, 2},         {"Selu", "alpha", 1.6732632, 0.1, 2},
    {"Selu", "gamma", 1.0507010, 0.1, 2},   {"Celu", "alpha", 1, 0.3, 2},        {"Swish", "alpha", 1, -1, 2},
    {"Shrink", "lambd", 0.5, 0.1, 1},       {"Shrink", "bias", 0, -1, 1},
};

static void draw_activation(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    node_operand(w, &n, &x);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (strcmp(attributes[i].op, f->op) == 0 && choose(w->c, 3))
            node_float(&n, attributes[i].name, (float)any_real(w, attributes[i].low, attributes[i].high));
    form_add(w, f, &n, 1);
}

static void draw_is_inf(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    node_operand(w, &n, &x);
    node_int_or_default(w, &n, "detect_negative", choose(w->c, 2), 1);
    node_int_or_default(w, &n, "detect_positive", choose(w->c, 2), 1);
    form_add(w, f, &n, 1);
}

static void draw_prelu(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5), slope = smaller_operand(w, f, &x);
    node_operand(w, &n, &x);
    node_operand(w, &n, &slope);
    form_add(w, f, &n, 1);
}

static void draw_shift(drawing *w, const form *f)
{
    static const int types[] = {ONNX_uint8, ONNX_uint16, ONNX_uint32, ONNX_uint64};
    node n = {0};
    const int type = types[choose(w->c, 4)];
    const tensor shape = any_shape(w, 0, 4);
    const tensor x = new_tensor(w, type, (values){0, 200}, &shape, false);
    const tensor y = new_tensor(w, type, (values){0, 7}, &shape, false);
    node_operand(w, &n, &x);
    node_operand(w, &n, &y);
    node_text(&n, "direction", choose(w->c, 2) ? "LEFT" : "RIGHT");
    form_add(w, f, &n, 1);
}

static void draw_random_like(drawing *w, const form *f)
{
    node n = {0};
    const tensor shape = any_shape(w, 0, 5), x = new_tensor(w, w->type, (values){f->low, f->high}, &shape, false);
    node_operand(w, &n, &x);
    form_add(w, f, &n, 1);
}

static void draw_random(drawing *w, const form *f)
{
    node n = {0};
    int64_t dims[3];
    const int rank = choose(w->c, 4);
    for (int i = 0; i < rank; i++) dims[i] = some_size(w);
    node_list(&n, "shape", dims, rank);
    form_add(w, f, &n, 1);
}

/* A scale and a zero point of one element, or of one per index of an axis. */
static void draw_quantize(drawing *w, const form *f)
{
    static const int targets[] = {ONNX_uint8, ONNX_int8};
    const bool back = *f->op == 'D';
    const int type = targets[choose(w->c, 2)];
    node n = {0};
    tensor shape = {0};
    w->type = ONNX_float32;
    const tensor x = back ? (shape = any_shape(w, 1, 4), new_tensor(w, type, (values){0, 100}, &shape, false))
                          : any_operand(w, f, 1, 4);
    tensor per_axis = {0};
    if (w->m.opset >= 13 && choose(w->c, 2)) {
        const int axis = choose(w->c, x.rank);
        push_axis(&per_axis, &x, axis);
        node_int(&n, "axis", either_sign(w, axis, x.rank));
    } else if (w->m.opset >= 13 && x.rank == 1) {
        node_int(&n, "axis", 0);
    }
    const tensor scale = new_tensor(w, ONNX_float32, (values){0.05, 0.5}, &per_axis, false);
    const tensor zero = new_tensor(w, type, (values){0, 20}, &per_axis, false);
    node_operand(w, &n, &x);
    node_operand(w, &n, &scale);
    node_operand(w, &n, &zero);
    form_add(w, f, &n, 1);
}

static void draw_dynamic_quantize(drawing *w, const form *f)
{
    node n = {0};
    w->type = ONNX_float32;
    const tensor x = any_operand(w, f, 1, 4);
    node_operand(w, &n, &x);
    form_add(w, f, &n, 3);
}

static tensor bytes_of(drawing *w, const tensor *shape)
{
    return new_tensor(w, ONNX_uint8, (values){0, 255}, shape, false);
}

static void push_bytes(drawing *w, node *n, const tensor *shape)
{
    const tensor x = bytes_of(w, shape);
    node_operand(w, n, &x);
}

/* A value in bytes; for QLinear operators with its scale and zero point. */
static void push_quantized(drawing *w, node *n, const tensor *shape, bool scaled)
{
    const tensor one = {0};
    push_bytes(w, n, shape);
    if (!scaled) return;
    const tensor scale = new_tensor(w, ONNX_float32, (values){0.01, 0.1}, &one, false);
    node_operand(w, n, &scale);
    push_bytes(w, n, &one);
}

/* The scale and zero point of the result, or the zero points of the operands. */
static void push_result(drawing *w, node *n, bool scaled)
{
    const tensor one = {0};
    if (scaled) {
        const tensor scale = new_tensor(w, ONNX_float32, (values){1, 5}, &one, false);
        node_operand(w, n, &scale);
        push_bytes(w, n, &one);
    } else if (choose(w->c, 2)) {
        push_bytes(w, n, &one);
        push_bytes(w, n, &one);
    }
}

static void draw_integer_product(drawing *w, const form *f)
{
    node n = {0};
    const int64_t rows = some_size(w), terms = some_size(w), columns = some_size(w);
    const tensor a = fixed_shape(2, (int64_t[]){rows, terms}), b = fixed_shape(2, (int64_t[]){terms, columns});
    const bool scaled = *f->op == 'Q';
    push_quantized(w, &n, &a, scaled);
    push_quantized(w, &n, &b, scaled);
    push_result(w, &n, scaled);
    form_add(w, f, &n, 1);
}

static void draw_integer_convolution(drawing *w, const form *f)
{
    node n = {0};
    const int64_t channels = 1 + choose(w->c, 3), made = 1 + choose(w->c, 3), size = 3 + choose(w->c, 5);
    const int64_t kernel = 1 + choose(w->c, 3), pad = choose(w->c, (int)kernel), pads[] = {pad, 0, pad, 0};
    const tensor x = fixed_shape(4, (int64_t[]){1 + choose(w->c, 2), channels, size, size});
    const tensor weight = fixed_shape(4, (int64_t[]){made, channels, kernel, kernel});
    const bool scaled = *f->op == 'Q';
    push_quantized(w, &n, &x, scaled);
    push_quantized(w, &n, &weight, scaled);
    push_result(w, &n, scaled);
    node_list(&n, "pads", pads, 4);
    form_add(w, f, &n, 1);
}

/* Integers have no derivative. */
#define WHOLE "the result is an integer or a truth value"
#define DRAWN "the result does not depend on the operand's elements"

const form forms_activation[] = {
    {"Tan", draw_unary, "f", -1, 1, NULL, false},
    {"Asin", draw_unary, "f", -0.9, 0.9, NULL, false},
    {"Acos", draw_unary, "f", -0.9, 0.9, NULL, false},
    {"Atan", draw_unary, "f", -3, 3, NULL, false},
    {"Sinh", draw_unary, "f", -2, 2, NULL, false},
    {"Cosh", draw_unary, "f", -2, 2, NULL, false},
    {"Asinh", draw_unary, "f", -3, 3, NULL, false},
    {"Acosh", draw_unary, "f", 1.2, 4, NULL, false},
    {"Atanh", draw_unary, "f", -0.9, 0.9, NULL, false},
    {"HardSigmoid", draw_activation, "f", -3, 3, NULL, false},
    {"HardSwish", draw_activation, "f", -4, 4, NULL, false},
    {"LeakyRelu", draw_activation, "f", -2, 2, NULL, false},
    {"ThresholdedRelu", draw_activation, "f", -2, 2, NULL, false},
    {"Elu", draw_activation, "f", -3, 3, NULL, false},
    {"Selu", draw_activation, "f", -3, 3, NULL, false},
    {"Celu", draw_activation, "f", -3, 3, NULL, false},
    {"Mish", draw_activation, "f", -4, 4, NULL, false},
    {"Swish", draw_activation, "f", -4, 4, NULL, false},
    {"Shrink", draw_activation, "f", -2, 2, NULL, false},
    {"IsNaN", draw_unary, "f", -2, 2, WHOLE, false},
    {"IsInf", draw_is_inf, "f", -2, 2, WHOLE, false},
    {"PRelu", draw_prelu, "f", -2, 2, NULL, false},
    {"Mean", draw_chain, "f", -2, 2, NULL, false},
    {"BitwiseNot", draw_unary, "is", -9, 9, WHOLE, false},
    {"BitwiseAnd", draw_binary, "is", -9, 9, WHOLE, false},
    {"BitwiseOr", draw_binary, "is", -9, 9, WHOLE, false},
    {"BitwiseXor", draw_binary, "is", -9, 9, WHOLE, false},
    {"BitShift", draw_shift, "i", 0, 7, WHOLE, false},
    {"RandomNormalLike", draw_random_like, "f", -2, 2, DRAWN, true},
    {"RandomUniformLike", draw_random_like, "f", -2, 2, DRAWN, true},
    {"RandomNormal", draw_random, "f", -2, 2, DRAWN, true},
    {"RandomUniform", draw_random, "f", -2, 2, DRAWN, true},
    {"Bernoulli", draw_random_like, "f", 0, 1, DRAWN, true},
    {"QuantizeLinear", draw_quantize, "f", -4, 4, WHOLE, false},
    {"DequantizeLinear", draw_quantize, "f", -4, 4, "the operand is an integer; a scale is not trained", false},
    {"DynamicQuantizeLinear", draw_dynamic_quantize, "f", -4, 4, WHOLE, false},
    {"MatMulInteger", draw_integer_product, "i", 0, 255, WHOLE, false},
    {"QLinearMatMul", draw_integer_product, "i", 0, 255, WHOLE, false},
    {"ConvInteger", draw_integer_convolution, "i", 0, 255, WHOLE, false},
    {"QLinearConv", draw_integer_convolution, "i", 0, 255, WHOLE, false},
    {0},
};
