/* forms_control.c - generators of constants, of operators with bodies, and of sequences. */
#include "tests/forms/block.h"

static wire drawn_tensor(drawing *w, int type, const tensor *shape)
{
    char dims[64], data[8 * 256] = {0};
    size_t used = 0;
    const ir_dtype dtype = onnx_type_dtype(type);
    const int64_t count = count_of(shape) < 256 ? count_of(shape) : 256;
    dims[0] = 0;
    for (int i = 0; i < shape->rank; i++)
        used += (size_t)snprintf(dims + used, sizeof dims - used, "%s%d", i ? "," : "", (int)shape->dims[i]);
    for (int64_t i = 0; i < count; i++)
        ir_store_f64(dtype, data + (size_t)i * ir_dtype_size(dtype), choose(w->c, 9) - 4);
    return tensor_new("", type, dims, data, (size_t)count * ir_dtype_size(dtype));
}

static void draw_constant(drawing *w, const form *f)
{
    node n = {0};
    const int64_t dims[] = {some_size(w), some_size(w), some_size(w)};
    const tensor shape = fixed_shape(choose(w->c, 4), dims);
    const int kind = w->m.opset >= 12 ? choose(w->c, 6) : 0;
    if (kind == 1) node_float(&n, "value_float", 0.5f);
    else if (kind == 2) node_int(&n, "value_int", choose(w->c, 9) - 4);
    else if (kind == 3) node_list(&n, "value_ints", dims, 3);
    else node_tensor(&n, "value", drawn_tensor(w, w->type, &shape));
    form_add(w, f, &n, 1);
}

static void draw_constant_of_shape(drawing *w, const form *f)
{
    node n = {0};
    const int64_t dims[] = {any_size(w), some_size(w), some_size(w)}, one = 1;
    const tensor shape = new_list(w, dims, choose(w->c, 4)), single = fixed_shape(1, &one);
    node_operand(w, &n, &shape);
    if (choose(w->c, 3)) node_tensor(&n, "value", drawn_tensor(w, w->type, &single));
    form_add(w, f, &n, 1);
}

static void draw_range(drawing *w, const form *f)
{
    node n = {0};
    const double start = choose(w->c, 9) - 4, step = rarely(w->c, 3) ? -(1 + choose(w->c, 2)) : 1 + choose(w->c, 2);
    const double part = w->type == ONNX_float32 || w->type == ONNX_float64 ? 0.5 : 1;
    const double items[] = {start * part, (start + step * choose(w->c, 7) - choose(w->c, 2)) * part, step * part};
    for (int i = 0; i < 3; i++) {
        const tensor t = new_scalar(w, w->type, items[i]);
        node_operand(w, &n, &t);
    }
    form_add(w, f, &n, 1);
}

/* The branches read x of the enclosing graph. */
static void draw_if(drawing *w, const form *f)
{
    static const char *const ops[] = {"Neg", "Abs", "Identity", "Tanh", "Exp"};
    node n = {0};
    const tensor scalar = {0}, x = any_operand(w, f, 0, 4);
    const tensor chosen = choose(w->c, 2) ? new_tensor(w, ONNX_bool, (values){0, 2}, &scalar, false)
                                          : new_scalar(w, ONNX_bool, choose(w->c, 2));
    node_operand(w, &n, &chosen);
    for (int i = 0; i < 2; i++) {
        char name[16];
        model branch = model_new(w->m.opset);
        snprintf(name, sizeof name, "b%d", w->made++);
        model_node(&branch, CHOOSE(w->c, ops), x.name, name);
        model_output(&branch, name, x.type, NULL);
        node_graph(&n, i ? "then_branch" : "else_branch", &branch);
    }
    form_add(w, f, &n, 1);
}

static void put_results(drawing *w, const form *f, const block *b) { form_results(w, f, b->pool + 1, b->n_pool - 1); }

static void draw_loop(drawing *w, const form *f)
{
    const tensor x = any_operand(w, f, 0, 3);
    block b = block_start(w, f, &x);
    block_loop(&b);
    put_results(w, f, &b);
}

static void draw_scan(drawing *w, const form *f)
{
    const tensor x = any_operand(w, f, 0, 3);
    block b = block_start(w, f, &x);
    for (int i = 0; i < 4 && b.n_pool == 1; i++) block_scan(&b);
    put_results(w, f, &b);
}

static void draw_sequence(drawing *w, const form *f)
{
    const int64_t dims[] = {some_size(w), some_size(w), some_size(w)};
    const tensor shape = fixed_shape(1 + choose(w->c, 3), dims), x = new_operand(w, f, &shape);
    block b = block_start(w, f, &x);
    block_sequence(&b, f->op);
    put_results(w, f, &b);
}

#define NOTHING "it has no operand with elements"

const form forms_control[] = {
    {"Constant", draw_constant, "fisb", -2, 2, NOTHING, false},
    {"ConstantOfShape", draw_constant_of_shape, "fisb", -2, 2, NOTHING, false},
    {"Range", draw_range, "if", -2, 2, "the operands decide the shape", false},
    {"If", draw_if, "f", -2, 2, NULL, false},
    {"Loop", draw_loop, "f", -2, 2, NULL, false},
    {"Scan", draw_scan, "f", -2, 2, NULL, false},
    {"SequenceConstruct", draw_sequence, "f", -2, 2, NULL, false},
    {"SequenceEmpty", draw_sequence, "f", -2, 2, NULL, false},
    {"SequenceLength", draw_sequence, "f", -2, 2, NULL, false},
    {"SequenceAt", draw_sequence, "f", -2, 2, NULL, false},
    {"SequenceInsert", draw_sequence, "f", -2, 2, NULL, false},
    {"SequenceErase", draw_sequence, "f", -2, 2, NULL, false},
    {"SplitToSequence", draw_sequence, "f", -2, 2, NULL, false},
    {"ConcatFromSequence", draw_sequence, "f", -2, 2, NULL, false},
    {"SequenceMap", draw_sequence, "f", -2, 2, NULL, false},
    {"Optional", draw_sequence, "f", -2, 2, NULL, false},
    {"OptionalGetElement", draw_sequence, "f", -2, 2, NULL, false},
    {"OptionalHasElement", draw_sequence, "f", -2, 2, NULL, false},
    {0},
};
