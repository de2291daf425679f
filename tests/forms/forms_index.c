/* forms_index.c - generators of the operators that select, replace or rearrange elements by index or in blocks. */
#include "tests/forms/form.h"

enum { MAX_ITEMS = 512 };

static void draw_gather_elements(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    const int axis = choose(w->c, x.rank);
    tensor shape = {0};
    for (int i = 0; i < x.rank; i++)
        if (i == axis) push_size(&shape, x.dims[i] ? any_size(w) : 0);
        else if (x.symbol[i] || choose(w->c, 3)) push_axis(&shape, &x, i);
        else push_size(&shape, choose(w->c, (int)x.dims[i] + 1));
    const double size = (double)x.dims[axis];
    const tensor indices = new_tensor(w, choose(w->c, 2) ? ONNX_int64 : ONNX_int32,
                                      (values){choose(w->c, 2) ? -size : 0, size}, &shape, false);
    node_operand(w, &n, &x);
    node_operand(w, &n, &indices);
    node_int_or_default(w, &n, "axis", either_sign(w, axis, x.rank), 0);
    form_add(w, f, &n, 1);
}

/* Tuples of `depth` coordinates of x from axis `first` on, as rows of a list in the given shape. */
static tensor draw_tuples(drawing *w, const tensor *x, int first, int depth, const tensor *lead)
{
    tensor shape = *lead;
    double items[MAX_ITEMS];
    const int64_t count = count_of(lead);
    push_size(&shape, depth);
    for (int64_t i = 0; i < count * depth && i < MAX_ITEMS; i++) {
        const int64_t size = x->dims[first + i % depth];
        items[i] = (double)(choose(w->c, (int)size) - (choose(w->c, 2) ? size : 0));
    }
    return new_numbers(w, ONNX_int64, &shape, items);
}

static bool has_elements(const tensor *x, int first, int end)
{
    for (int i = first; i < end; i++)
        if (x->dims[i] == 0) return false;
    return true;
}

static void draw_gather_nd(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    int batch = w->m.opset >= 12 && choose(w->c, 2) ? choose(w->c, x.rank) : 0;
    for (int i = 0; i < batch; i++)
        if (x.symbol[i]) batch = 0; /* the constant indices have fixed dimensions */
    const int depth = 1 + choose(w->c, x.rank - batch);
    tensor lead = {0};
    for (int i = 0; i < batch; i++) push_size(&lead, x.dims[i]);
    if (choose(w->c, 2)) push_size(&lead, has_elements(&x, batch, batch + depth) ? any_size(w) : 0);
    else if (!has_elements(&x, batch, batch + depth)) push_size(&lead, 0);
    const tensor indices = draw_tuples(w, &x, batch, depth, &lead);
    node_operand(w, &n, &x);
    node_operand(w, &n, &indices);
    if (w->m.opset >= 12) node_int_or_default(w, &n, "batch_dims", batch, 0);
    form_add(w, f, &n, 1);
}

/* With a reduction, any indices; otherwise distinct ones along the axis, because the result is undefined for others. */
static void draw_scatter_elements(drawing *w, const form *f)
{
    static const char *const reductions[] = {"none", "add", "mul", "max", "min"};
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    const int axis = choose(w->c, x.rank);
    const int since = f->op[7] ? w->m.opset : 0; /* the old Scatter has no reduction */
    const int reduction = choose(w->c, since >= 18 ? 5 : since >= 16 ? 3 : 1);
    const int64_t size = x.dims[axis];
    tensor shape = {0};
    int64_t inner = 1;
    for (int i = 0; i < x.rank; i++) {
        push_size(&shape, choose(w->c, (int)(x.dims[i] < 5 ? x.dims[i] : 4) + 1));
        inner *= i > axis ? shape.dims[i] : 1;
    }
    double items[MAX_ITEMS];
    for (int64_t i = 0; i < count_of(&shape) && i < MAX_ITEMS; i++) {
        const int64_t place = i / inner % shape.dims[axis], to = reduction ? choose(w->c, (int)size) : size - 1 - place;
        items[i] = (double)(to - (choose(w->c, 2) ? size : 0));
    }
    const tensor indices = new_numbers(w, choose(w->c, 2) ? ONNX_int64 : ONNX_int32, &shape, items);
    const tensor updates = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &indices);
    node_operand(w, &n, &updates);
    node_int_or_default(w, &n, "axis", either_sign(w, axis, x.rank), 0);
    if (since >= 16 && (reduction || choose(w->c, 2))) node_text(&n, "reduction", reductions[reduction]);
    form_add(w, f, &n, 1);
}

static void draw_tensor_scatter(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 2, 4);
    const int axis = 1 + choose(w->c, x.rank - 1);
    const bool is_circular = choose(w->c, 2);
    tensor shape = {0};
    for (int i = 0; i < x.rank; i++)
        if (i == axis) push_size(&shape, choose(w->c, (int)x.dims[i] + 1));
        else push_axis(&shape, &x, i);
    const int64_t space = x.dims[axis] - (is_circular ? 1 : shape.dims[axis]);
    const tensor update = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &update);
    if (choose(w->c, 3) && space >= 0) {
        tensor batch = {0};
        push_axis(&batch, &x, 0);
        const tensor first = new_tensor(w, ONNX_int64, (values){0, (double)space + 1}, &batch, false);
        node_operand(w, &n, &first);
    }
    node_int_or_default(w, &n, "axis", either_sign(w, axis, x.rank), -2);
    if (is_circular || choose(w->c, 2)) node_text(&n, "mode", is_circular ? "circular" : "linear");
    form_add(w, f, &n, 1);
}

static void draw_reverse_sequence(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 2, 4);
    const int batch = choose(w->c, 2);
    tensor shape = {0};
    push_axis(&shape, &x, batch);
    const tensor lengths = new_tensor(w, ONNX_int64, (values){0, (double)x.dims[1 - batch] + 1}, &shape, false);
    node_operand(w, &n, &x);
    node_operand(w, &n, &lengths);
    node_int_or_default(w, &n, "batch_axis", batch, 1);
    node_int_or_default(w, &n, "time_axis", 1 - batch, 0);
    form_add(w, f, &n, 1);
}

static void draw_max_unpool(drawing *w, const form *f)
{
    node n = {0};
    const int spatial = 1 + choose(w->c, 2);
    int64_t kernel[2], strides[2], total = 1, sizes[4];
    double items[MAX_ITEMS];
    tensor shape = {0};
    for (int i = 0; i < 2; i++) push_size(&shape, 1 + choose(w->c, 2));
    for (int i = 0; i < spatial; i++) push_size(&shape, 1 + choose(w->c, 3));
    for (int i = 0; i < shape.rank; i++) {
        sizes[i] = shape.dims[i];
        if (i >= 2)
            sizes[i] = (shape.dims[i] - 1) * (strides[i - 2] = 1 + choose(w->c, 2)) +
                       (kernel[i - 2] = 1 + choose(w->c, 3));
        total *= sizes[i];
    }
    const int64_t count = count_of(&shape), skip = total / count;
    for (int64_t i = 0; i < count && i < MAX_ITEMS; i++) items[i] = (double)(i * skip + choose(w->c, (int)skip));
    const tensor x = new_operand(w, f, &shape), places = new_numbers(w, ONNX_int64, &shape, items);
    node_operand(w, &n, &x);
    node_operand(w, &n, &places);
    if (choose(w->c, 2)) {
        for (int i = 2; i < shape.rank; i++) sizes[i] += choose(w->c, 3);
        const tensor larger = new_list(w, sizes, shape.rank);
        node_operand(w, &n, &larger);
    }
    node_list(&n, "kernel_shape", kernel, spatial);
    node_list(&n, "strides", strides, spatial);
    form_add(w, f, &n, 1);
}

static void draw_depth_to_space(drawing *w, const form *f)
{
    node n = {0};
    const int64_t block = 1 + choose(w->c, 3);
    const bool is_depth = f->op[0] == 'D';
    tensor shape = any_shape(w, 1, 1);
    push_size(&shape, some_size(w) * (is_depth ? block * block : 1));
    for (int i = 0; i < 2; i++) push_size(&shape, any_size(w) * (is_depth ? 1 : block));
    const tensor x = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_int(&n, "blocksize", block);
    if (w->m.opset >= (is_depth ? 11 : 28) && choose(w->c, 2)) node_text(&n, "mode", choose(w->c, 2) ? "CRD" : "DCR");
    form_add(w, f, &n, 1);
}

static void draw_col2im(drawing *w, const form *f)
{
    node n = {0};
    int64_t image[2], block[2], strides[2], dilations[2], pads[4], blocks = 1, elements = 1;
    for (int i = 0; i < 2; i++) {
        block[i] = 1 + choose(w->c, 3);
        strides[i] = 1 + choose(w->c, 2);
        dilations[i] = 1 + choose(w->c, 2);
        pads[i] = choose(w->c, 2);
        pads[i + 2] = choose(w->c, 2);
        const int64_t reach = dilations[i] * (block[i] - 1) + 1, least = reach - pads[i] - pads[i + 2];
        image[i] = (least > 1 ? least : 1) + choose(w->c, 4);
        blocks *= (image[i] + pads[i] + pads[i + 2] - reach) / strides[i] + 1;
        elements *= block[i];
    }
    tensor shape = any_shape(w, 1, 1);
    push_size(&shape, elements * some_size(w));
    push_size(&shape, blocks);
    const tensor x = new_operand(w, f, &shape), image_shape = new_list(w, image, 2),
                 block_shape = new_list(w, block, 2);
    node_operand(w, &n, &x);
    node_operand(w, &n, &image_shape);
    node_operand(w, &n, &block_shape);
    node_list(&n, "strides", strides, 2);
    node_list(&n, "dilations", dilations, 2);
    node_list(&n, "pads", pads, 4);
    form_add(w, f, &n, 1);
}

static void draw_center_crop_pad(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    int64_t sizes[8], axes[8];
    int count = 0;
    for (int i = 0; i < x.rank; i++) {
        if (x.symbol[i] || choose(w->c, 3) == 0) continue;
        axes[count] = either_sign(w, i, x.rank);
        sizes[count++] = any_size(w);
    }
    const tensor shape = new_list(w, sizes, count);
    node_operand(w, &n, &x);
    node_operand(w, &n, &shape);
    if (count < x.rank || choose(w->c, 2)) node_list(&n, "axes", axes, count);
    form_add(w, f, &n, 1);
}

static void draw_one_hot(drawing *w, const form *f)
{
    node n = {0};
    const tensor shape = any_shape(w, 1, 3), two = fixed_shape(1, &(int64_t){2});
    const int64_t depth = some_size(w);
    const tensor indices = new_tensor(w, ONNX_int64, (values){(double)-depth - 1, (double)depth + 2}, &shape, false);
    const tensor count = new_scalar(w, ONNX_int64, (double)depth), ends = new_operand(w, f, &two);
    node_operand(w, &n, &indices);
    node_operand(w, &n, &count);
    node_operand(w, &n, &ends);
    node_int_or_default(w, &n, "axis", any_axis(w, shape.rank + 1), -1);
    form_add(w, f, &n, 1);
}

static void draw_eye_like(drawing *w, const form *f)
{
    static const int types[] = {ONNX_float32, ONNX_int64, ONNX_float64};
    node n = {0};
    const tensor shape = any_shape(w, 2, 2), x = new_tensor(w, w->type, (values){f->low, f->high}, &shape, false);
    node_operand(w, &n, &x);
    if (choose(w->c, 2)) node_int(&n, "dtype", CHOOSE(w->c, types));
    node_int_or_default(w, &n, "k", choose(w->c, 9) - 4, 0);
    form_add(w, f, &n, 1);
}

static void draw_bit_cast(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 4);
    node_operand(w, &n, &x);
    node_int(&n, "to", x.type == ONNX_float32 ? ONNX_int32 : x.type == ONNX_float64 ? ONNX_int64 : ONNX_int16);
    form_add(w, f, &n, 1);
}

#define WHOLE "the result is an integer"

const form forms_index[] = {
    {"GatherElements", draw_gather_elements, "fisb", -2, 2, NULL, false},
    {"GatherND", draw_gather_nd, "fisb", -2, 2, NULL, false},
    {"Scatter", draw_scatter_elements, "fi", -2, 2, NULL, false},
    {"ScatterElements", draw_scatter_elements, "fi", -2, 2, NULL, false},
    {"TensorScatter", draw_tensor_scatter, "f", -2, 2, NULL, false},
    {"ReverseSequence", draw_reverse_sequence, "fisb", -2, 2, NULL, false},
    {"MaxUnpool", draw_max_unpool, "f", -2, 2, NULL, false},
    {"DepthToSpace", draw_depth_to_space, "fi", -2, 2, NULL, false},
    {"SpaceToDepth", draw_depth_to_space, "fi", -2, 2, NULL, false},
    {"Col2Im", draw_col2im, "f", -2, 2, NULL, false},
    {"CenterCropPad", draw_center_crop_pad, "fisb", -2, 2, NULL, false},
    {"OneHot", draw_one_hot, "fi", -2, 2, NULL, false},
    {"EyeLike", draw_eye_like, "fi", -2, 2, "the result does not depend on values", false},
    {"BitCast", draw_bit_cast, "f", -2, 2, WHOLE, false},
    {0},
};
