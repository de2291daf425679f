/* forms_sized.c - generators of operators whose result has a size that depends on values, which are constants or computed at
 * run time. A gradient needs constants. */
#include "tests/forms/form.h"

enum { MAX_ITEMS = 512 };

/* A list of integers, or one number, that is a constant or an input. */
static tensor any_number(drawing *w, int type, double value)
{
    const tensor one = fixed_shape(1, (int64_t[]){1});
    if (w->exact || choose(w->c, 2)) return new_numbers(w, type, &one, &value);
    const double width = type == ONNX_int64 ? 1 : 0; /* an integer is rounded down */
    return new_tensor(w, type, (values){value, value + width}, &one, false);
}

static void draw_compress(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    const bool is_flat = rarely(w->c, 3), is_constant = w->exact || choose(w->c, 2);
    const int axis = choose(w->c, x.rank);
    const int64_t size = is_flat ? count_of(&x) : x.dims[axis], count = choose(w->c, (int)(size < 8 ? size : 8) + 1);
    double items[8];
    for (int64_t i = 0; i < count; i++) items[i] = choose(w->c, 2);
    const tensor shape = fixed_shape(1, &count);
    const tensor condition = is_constant ? new_numbers(w, ONNX_bool, &shape, items)
                                         : new_tensor(w, ONNX_bool, (values){0, 1}, &shape, false);
    node_operand(w, &n, &x);
    node_operand(w, &n, &condition);
    if (!is_flat) node_int(&n, "axis", w->m.opset >= 11 ? either_sign(w, axis, x.rank) : axis);
    form_add(w, f, &n, 1);
}

/* At least one element, because onnxruntime does not return from Unique of empty slices. */
static tensor any_values(drawing *w, const form *f)
{
    const tensor shape = any_shape(w, 1, 3);
    tensor fixed = {0};
    double items[MAX_ITEMS];
    if (!w->exact && choose(w->c, 2) && count_of(&shape)) {
        const values few = {f->low, f->high}, many = {-20, 20};
        return new_tensor(w, w->type, choose(w->c, 3) ? few : many, &shape, false);
    }
    for (int i = 0; i < shape.rank; i++) push_size(&fixed, shape.dims[i] ? shape.dims[i] : 1);
    for (int64_t i = 0; i < count_of(&fixed) && i < MAX_ITEMS; i++) items[i] = choose(w->c, 3);
    return new_numbers(w, w->type, &fixed, items);
}

static void draw_nonzero(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_values(w, f);
    node_operand(w, &n, &x);
    form_add(w, f, &n, 1);
}

static void draw_unique(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_values(w, f);
    node_operand(w, &n, &x);
    if (choose(w->c, 2)) node_int(&n, "axis", any_axis(w, x.rank));
    node_int_or_default(w, &n, "sorted", choose(w->c, 2), 1);
    form_add(w, f, &n, 4);
}

static void draw_non_max_suppression(drawing *w, const form *f)
{
    static const double overlaps[] = {0, 0.3, 0.5, 1}, scores[] = {-1, 0, 0.5, 2};
    node n = {0};
    const tensor sizes = any_shape(w, 2, 2); /* batches, boxes */
    tensor box_shape = {0}, score_shape = {0};
    push_axis(&box_shape, &sizes, 0);
    push_axis(&box_shape, &sizes, 1);
    push_size(&box_shape, 4);
    push_axis(&score_shape, &sizes, 0);
    push_size(&score_shape, some_size(w));
    push_axis(&score_shape, &sizes, 1);
    const tensor boxes = new_tensor(w, ONNX_float32, (values){f->low, f->high}, &box_shape, false);
    const tensor score = new_tensor(w, ONNX_float32, (values){0, 1}, &score_shape, false);
    node_operand(w, &n, &boxes);
    node_operand(w, &n, &score);
    const int operands = choose(w->c, 5);
    const tensor most = any_number(w, ONNX_int64, choose(w->c, 8));
    if (operands) node_operand(w, &n, &most);
    const tensor overlap = any_number(w, ONNX_float32, CHOOSE(w->c, overlaps));
    if (operands > 1) node_operand(w, &n, &overlap);
    const tensor least = any_number(w, ONNX_float32, CHOOSE(w->c, scores));
    if (operands > 2) node_operand(w, &n, &least);
    node_int_or_default(w, &n, "center_point_box", choose(w->c, 2), 0);
    form_add(w, f, &n, 1);
}

#define SIZED "an operand of known values is constant, because the size of the result depends on it"

const form forms_sized[] = {
    {"Compress", draw_compress, "fisb", -2, 2, NULL, false},
    {"NonZero", draw_nonzero, "fisb", -2, 2, SIZED, false},
    {"Unique", draw_unique, "fi", -2, 2, SIZED, false},
    {"NonMaxSuppression", draw_non_max_suppression, "f", -2, 2, "the result is positions", false},
    {0},
};
