/* forms_pointwise.c - generators of the operators that compute each element from elements of the same position. */
#include "tests/forms/form.h"

void draw_unary(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    node_operand(w, &n, &x);
    form_add(w, f, &n, 1);
}

void draw_binary(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5), y = broadcast_operand(w, f, &x);
    const bool swapped = choose(w->c, 2);
    node_operand(w, &n, swapped ? &y : &x);
    node_operand(w, &n, swapped ? &x : &y);
    form_add(w, f, &n, 1);
}

void draw_chain(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    node_operand(w, &n, &x);
    for (int i = choose(w->c, 4); i > 0; i--) {
        const tensor y = smaller_operand(w, f, &x);
        node_operand(w, &n, &y);
    }
    form_add(w, f, &n, 1);
}

static void draw_gelu(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    node_operand(w, &n, &x);
    if (choose(w->c, 2)) node_text(&n, "approximate", choose(w->c, 2) ? "tanh" : "none");
    form_add(w, f, &n, 1);
}

static void draw_mod(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5), y = broadcast_operand(w, f, &x);
    const bool is_int = w->type != ONNX_float16 && w->type != ONNX_bfloat16 && w->type != ONNX_float32 &&
                        w->type != ONNX_float64;
    node_operand(w, &n, &x);
    node_operand(w, &n, &y);
    node_int_or_default(w, &n, "fmod", is_int ? choose(w->c, 2) : 1, 0);
    form_add(w, f, &n, 1);
}

/* A bound that is a constant, an input of the model, or absent. */
static void push_bound(drawing *w, node *n, const form *f, double at)
{
    const tensor scalar = {0};
    if (rarely(w->c, 4)) {
        node_operand(w, n, NULL);
    } else if (w->exact || choose(w->c, 2)) {
        const tensor bound = new_setting(w, at);
        node_operand(w, n, &bound);
    } else {
        const tensor bound = new_operand(w, f, &scalar);
        node_operand(w, n, &bound);
    }
}

static void draw_clip(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    const double low = any_real(w, -2, 1), high = low + any_real(w, 0, 2);
    node_operand(w, &n, &x);
    if (w->m.opset >= 11) {
        const int bounds = choose(w->c, 3);
        if (bounds > 0) push_bound(w, &n, f, low);
        if (bounds > 1) push_bound(w, &n, f, high);
    } else {
        if (choose(w->c, 3)) node_float(&n, "min", (float)low);
        if (choose(w->c, 3)) node_float(&n, "max", (float)high);
    }
    form_add(w, f, &n, 1);
}

static void draw_where(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5), y = broadcast_operand(w, f, &x);
    const tensor *shape = choose(w->c, 2) ? &x : &y;
    const tensor chosen = new_tensor(w, ONNX_bool, (values){0, 2}, shape, false);
    node_operand(w, &n, &chosen);
    node_operand(w, &n, &x);
    node_operand(w, &n, &y);
    form_add(w, f, &n, 1);
}

static int target_type(drawing *w)
{
    static const int types[] = {ONNX_float32, ONNX_float64, ONNX_float16, ONNX_bfloat16, ONNX_int64,
                                ONNX_int32,   ONNX_uint8,   ONNX_int8,    ONNX_int16,    ONNX_bool};
    return w->exact ? w->exact : types[w->m.opset < 13 && choose(w->c, 10) == 3 ? 0 : choose(w->c, 10)];
}

static void draw_cast(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    node_operand(w, &n, &x);
    node_int(&n, "to", target_type(w));
    form_add(w, f, &n, 1);
}

static void draw_cast_like(drawing *w, const form *f)
{
    node n = {0};
    const int64_t size = 1;
    const tensor x = any_operand(w, f, 0, 5), shape = fixed_shape(1, &size);
    const tensor like = new_tensor(w, target_type(w), (values){0, 2}, &shape, false);
    node_operand(w, &n, &x);
    node_operand(w, &n, &like);
    form_add(w, f, &n, 1);
}

/* Integers have no derivative. */
#define WHOLE "the result is an integer or a truth value"

const form forms_pointwise[] = {
    {"Abs", draw_unary, "fis", -2, 2, NULL, false},
    {"Ceil", draw_unary, "f", -3, 3, NULL, false},
    {"Cos", draw_unary, "f", -3, 3, NULL, false},
    {"Erf", draw_unary, "f", -2, 2, NULL, false},
    {"Exp", draw_unary, "f", -2, 2, NULL, false},
    {"Floor", draw_unary, "f", -3, 3, NULL, false},
    {"Log", draw_unary, "f", 0.3, 3, NULL, false},
    {"Neg", draw_unary, "fi", -2, 2, NULL, false},
    {"Not", draw_unary, "b", 0, 2, WHOLE, false},
    {"Reciprocal", draw_unary, "f", 0.3, 2, NULL, false},
    {"Relu", draw_unary, "f", -2, 2, NULL, false},
    {"Round", draw_unary, "f", -3, 3, NULL, false},
    {"Sigmoid", draw_unary, "f", -4, 4, NULL, false},
    {"Sign", draw_unary, "fi", -2, 2, NULL, false},
    {"Sin", draw_unary, "f", -3, 3, NULL, false},
    {"Softplus", draw_unary, "f", -4, 4, NULL, false},
    {"Softsign", draw_unary, "f", -2, 2, NULL, false},
    {"Sqrt", draw_unary, "f", 0.3, 3, NULL, false},
    {"Tanh", draw_unary, "f", -2, 2, NULL, false},
    {"Gelu", draw_gelu, "f", -2, 2, NULL, false},
    {"Add", draw_binary, "fi", -2, 2, NULL, false},
    {"Sub", draw_binary, "fi", -2, 2, NULL, false},
    {"Mul", draw_binary, "fi", -2, 2, NULL, false},
    {"Div", draw_binary, "fi", 1, 3, NULL, false},
    {"Equal", draw_binary, "fib", -2, 2, WHOLE, false},
    {"Less", draw_binary, "fi", -2, 2, WHOLE, false},
    {"LessOrEqual", draw_binary, "fi", -2, 2, WHOLE, false},
    {"Greater", draw_binary, "fi", -2, 2, WHOLE, false},
    {"GreaterOrEqual", draw_binary, "fi", -2, 2, WHOLE, false},
    {"And", draw_binary, "b", 0, 2, WHOLE, false},
    {"Or", draw_binary, "b", 0, 2, WHOLE, false},
    {"Xor", draw_binary, "b", 0, 2, WHOLE, false},
    {"Mod", draw_mod, "fi", 1, 5, NULL, false},
    {"Pow", draw_binary, "f", 0.3, 2, NULL, false},
    {"Sum", draw_chain, "f", -2, 2, NULL, false},
    {"Min", draw_chain, "fi", -2, 2, NULL, false},
    {"Max", draw_chain, "fi", -2, 2, NULL, false},
    {"Clip", draw_clip, "f", -2, 2, NULL, false},
    {"Where", draw_where, "fib", -2, 2, NULL, false},
    {"Cast", draw_cast, "fisb", -2, 2, NULL, false},
    {"CastLike", draw_cast_like, "fisb", -2, 2, NULL, false},
    {0},
};
