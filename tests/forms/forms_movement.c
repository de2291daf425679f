/* forms_movement.c - generators of the operators that move elements. */
#include "tests/forms/form.h"

static void draw_identity(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    node_operand(w, &n, &x);
    form_add(w, f, &n, 1);
}

/* Another shape for the elements of x: keeps some sizes (as 0 or as a number) and merges or splits the others. */
static int draw_new_shape(drawing *w, const tensor *x, int64_t items[8])
{
    int n = 0;
    int64_t rest = 1;
    for (int i = 0; i < x->rank; i++) {
        if (i == n && n < 4 && choose(w->c, 2)) {
            items[n++] = x->symbol[i] || (x->dims[i] && rarely(w->c, 3)) ? 0 : x->dims[i];
        } else if (i + 1 < x->rank || n >= 4) {
            rest *= x->dims[i];
        } else if (x->dims[i] % 2 == 0 && x->dims[i] && !x->symbol[i]) {
            items[n++] = 2;
            rest *= x->dims[i] / 2;
        } else {
            rest *= x->dims[i];
        }
    }
    if (rest != 1 || rarely(w->c, 3)) items[n++] = count_of(x) && choose(w->c, 2) ? -1 : rest;
    return n;
}

static void draw_reshape(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    int64_t items[8];
    const int count = draw_new_shape(w, &x, items);
    const tensor shape = new_list(w, items, count);
    node_operand(w, &n, &x);
    node_operand(w, &n, &shape);
    if (w->m.opset >= 14 && rarely(w->c, 4)) node_int(&n, "allowzero", choose(w->c, 2));
    form_add(w, f, &n, 1);
}

static void draw_flatten(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    const int axis = choose(w->c, x.rank + 1);
    node_operand(w, &n, &x);
    node_int_or_default(w, &n, "axis", w->m.opset >= 11 && axis < x.rank ? either_sign(w, axis, x.rank) : axis, 1);
    form_add(w, f, &n, 1);
}

static void draw_squeeze(drawing *w, const form *f)
{
    node n = {0};
    tensor shape = any_shape(w, 0, 5);
    int64_t axes[8];
    int count = 0, ones = 0;
    for (int i = 0; i < shape.rank; i++) {
        if (rarely(w->c, 2)) shape.dims[i] = 1, shape.symbol[i] = 0;
        if (shape.dims[i] != 1 || shape.symbol[i]) continue;
        ones++;
        if (choose(w->c, 2)) axes[count++] = w->m.opset >= 11 ? either_sign(w, i, shape.rank) : i;
    }
    const tensor x = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    if (count) node_list_since(w, &n, 13, "axes", axes, count);
    form_add(w, f, &n, 1);
}

static void draw_unsqueeze(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 3);
    const int added = 1 + choose(w->c, 2), rank = x.rank + added;
    const int first = choose(w->c, rank), second = (first + 1 + choose(w->c, rank - 1)) % rank;
    int64_t axes[2];
    axes[0] = w->m.opset >= 11 ? either_sign(w, first, rank) : first;
    axes[1] = w->m.opset >= 11 ? either_sign(w, second, rank) : second;
    node_operand(w, &n, &x);
    node_list_since(w, &n, 13, "axes", axes, added);
    form_add(w, f, &n, 1);
}

static void draw_transpose(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    int64_t order[8];
    for (int i = 0; i < x.rank; i++) {
        const int k = choose(w->c, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    node_operand(w, &n, &x);
    if (x.rank && choose(w->c, 4)) node_list(&n, "perm", order, x.rank);
    form_add(w, f, &n, 1);
}

static void draw_concat(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    const int axis = choose(w->c, x.rank);
    node_operand(w, &n, &x);
    for (int k = choose(w->c, 3); k > 0; k--) {
        tensor shape = {0};
        for (int i = 0; i < x.rank; i++)
            if (i == axis && choose(w->c, 2)) push_size(&shape, any_size(w));
            else push_axis(&shape, &x, i);
        const tensor y = new_operand(w, f, &shape);
        node_operand(w, &n, &y);
    }
    node_int(&n, "axis", w->m.opset >= 11 ? either_sign(w, axis, x.rank) : axis);
    form_add(w, f, &n, 1);
}

static void draw_split(drawing *w, const form *f)
{
    node n = {0};
    tensor shape = any_shape(w, 1, 5);
    const int axis = choose(w->c, shape.rank), parts = 1 + choose(w->c, 3);
    int64_t sizes[4], sum = 0;
    const bool is_even = choose(w->c, 2);
    for (int i = 0; i < parts; i++) sum += sizes[i] = is_even ? 2 : any_size(w);
    shape.dims[axis] = sum, shape.symbol[axis] = 0;
    const tensor x = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    if (!is_even || choose(w->c, 2)) node_list_since(w, &n, 13, "split", sizes, parts);
    else if (w->m.opset >= 18) node_int(&n, "num_outputs", parts);
    node_int_or_default(w, &n, "axis", w->m.opset >= 11 ? either_sign(w, axis, x.rank) : axis, 0);
    form_add(w, f, &n, parts);
}

static void draw_slice(drawing *w, const form *f)
{
    static const int64_t wide[] = {INT64_MAX, INT64_MIN, INT32_MAX, -1};
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    int64_t starts[8], ends[8], axes[8], steps[8];
    int count = 0;
    const bool is_new = w->m.opset >= 10, has_axes = choose(w->c, 4), has_steps = is_new && has_axes && choose(w->c, 2);
    for (int i = 0; i < x.rank; i++) {
        if (has_axes && count + 1 < x.rank && choose(w->c, 2)) continue;
        const int reach = (int)x.dims[i] + 2;
        const bool is_back = has_steps && rarely(w->c, 3);
        axes[count] = is_new ? either_sign(w, i, x.rank) : i;
        starts[count] = is_back ? choose(w->c, reach) - 1 : choose(w->c, reach) - (rarely(w->c, 3) ? reach : 0);
        ends[count] = rarely(w->c, 3) ? wide[is_back ? 1 : choose(w->c, 4)] : choose(w->c, 2 * reach) - reach;
        steps[count++] = (is_back ? -1 : 1) * (1 + choose(w->c, 3));
    }
    node_operand(w, &n, &x);
    node_list_since(w, &n, 10, "starts", starts, count);
    node_list_since(w, &n, 10, "ends", ends, count);
    if (has_axes) node_list_since(w, &n, 10, "axes", axes, count);
    if (has_steps) node_list_since(w, &n, 10, "steps", steps, count);
    form_add(w, f, &n, 1);
}

/* Padding of an axis; "reflect" repeats elements, so it is limited by the size. */
static int64_t draw_pad_size(drawing *w, bool is_reflect, int64_t size)
{
    const int64_t limit = is_reflect ? size : 3;
    if (!is_reflect && size > 2 && rarely(w->c, 6)) return -1;
    return limit > 0 ? choose(w->c, limit > 3 ? 3 : (int)limit) : 0;
}

static void draw_pad(drawing *w, const form *f)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    node n = {0};
    const tensor x = any_operand(w, f, 1, 5);
    const int mode = choose(w->c, w->m.opset >= 19 ? 4 : 3);
    const bool has_axes = w->m.opset >= 18 && rarely(w->c, 3), has_value = mode == 0 && choose(w->c, 2);
    int64_t pads[10], axes[5];
    int count = 0;
    for (int i = 0; i < x.rank; i++)
        if (!has_axes || choose(w->c, 2)) axes[count++] = i;
    for (int i = 0; i < 2 * count; i++) {
        const int64_t size = x.dims[axes[i % count]];
        pads[i] = mode && size == 0 ? 0 : draw_pad_size(w, mode == 1, size);
    }
    node_operand(w, &n, &x);
    node_list_since(w, &n, 11, w->m.opset < 2 ? "paddings" : "pads", pads, 2 * count);
    if (w->m.opset >= 11 && has_value) {
        const tensor value = new_setting(w, 1 + choose(w->c, 3));
        node_operand(w, &n, &value);
    } else if (has_axes) {
        node_operand(w, &n, NULL);
    }
    if (has_axes) {
        for (int i = 0; i < count; i++) axes[i] = either_sign(w, (int)axes[i], x.rank);
        const tensor chosen = new_list(w, axes, count);
        node_operand(w, &n, &chosen);
    }
    if (mode || choose(w->c, 2)) node_text(&n, "mode", modes[mode]);
    if (w->m.opset < 11 && has_value) node_float(&n, "value", 1.5f);
    form_add(w, f, &n, 1);
}

static void draw_expand(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 4);
    const int more = rarely(w->c, 3), less = more ? 0 : rarely(w->c, 4) ? choose(w->c, x.rank + 1) : 0;
    int64_t items[8];
    int count = 0;
    if (more) items[count++] = some_size(w);
    for (int i = less; i < x.rank; i++)
        items[count++] = x.symbol[i] ? 1 : x.dims[i] == 1 ? any_size(w) : rarely(w->c, 4) ? 1 : x.dims[i];
    const tensor shape = new_list(w, items, count);
    node_operand(w, &n, &x);
    node_operand(w, &n, &shape);
    form_add(w, f, &n, 1);
}

static void draw_tile(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    int64_t items[8];
    for (int i = 0; i < x.rank; i++) items[i] = rarely(w->c, 8) ? 0 : 1 + choose(w->c, 2);
    const tensor repeats = new_list(w, items, x.rank);
    node_operand(w, &n, &x);
    node_operand(w, &n, &repeats);
    form_add(w, f, &n, 1);
}

static void draw_trilu(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 2, 5);
    node_operand(w, &n, &x);
    if (choose(w->c, 2)) {
        const tensor k = new_scalar(w, ONNX_int64, choose(w->c, 9) - 4);
        node_operand(w, &n, &k);
    }
    node_int_or_default(w, &n, "upper", choose(w->c, 2), 1);
    form_add(w, f, &n, 1);
}

static void draw_shape(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 0, 5);
    node_operand(w, &n, &x);
    if (w->m.opset >= 15 && f->op[1] == 'h') {
        if (rarely(w->c, 3)) node_int(&n, "start", choose(w->c, 2 * x.rank + 3) - x.rank - 1);
        if (rarely(w->c, 3)) node_int(&n, "end", choose(w->c, 2 * x.rank + 3) - x.rank - 1);
    }
    form_add(w, f, &n, 1);
}

/* Indices below `size`, from the end in opset 11 and later sometimes; constants sometimes. */
static tensor draw_indices(drawing *w, int64_t size, const tensor *shape)
{
    const double low = w->m.opset >= 11 && choose(w->c, 2) ? -(double)size : 0;
    return new_tensor(w, choose(w->c, 2) ? ONNX_int64 : ONNX_int32, (values){low, (double)size}, shape, false);
}

static void draw_gather(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    const int axis = choose(w->c, x.rank);
    tensor shape = any_shape(w, 0, 2);
    if (x.dims[axis] == 0) shape = fixed_shape(1, &(int64_t){0});
    const tensor indices = draw_indices(w, x.dims[axis], &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &indices);
    node_int_or_default(w, &n, "axis", either_sign(w, axis, x.rank), 0);
    form_add(w, f, &n, 1);
}

/* Replaces rows or elements of x by updates, at distinct places, because the result is undefined otherwise; with a
 * reduction, at any. */
static void draw_scatter_nd(drawing *w, const form *f)
{
    static const char *const reductions[] = {"none", "add", "mul", "max", "min"};
    node n = {0};
    const tensor x = any_operand(w, f, 1, 4);
    const int64_t rows = x.dims[0], count = rows ? choose(w->c, (int)rows + 1) : 0;
    const int reduction = choose(w->c, w->m.opset >= 18 ? 5 : w->m.opset >= 16 ? 3 : 1);
    const bool is_back = w->m.opset >= 13 && choose(w->c, 2);
    double items[64];
    for (int64_t i = 0; i < count && i < 64; i++) {
        const int64_t row = reduction ? choose(w->c, (int)rows) : count - 1 - i;
        items[i] = (double)(is_back && choose(w->c, 2) ? row - rows : row);
    }
    const tensor places = fixed_shape(2, (int64_t[]){count, 1}), indices = new_numbers(w, ONNX_int64, &places, items);
    tensor shape = {0};
    push_size(&shape, count);
    for (int i = 1; i < x.rank; i++) push_axis(&shape, &x, i);
    const tensor updates = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &indices);
    node_operand(w, &n, &updates);
    if (reduction || choose(w->c, 2)) {
        if (w->m.opset >= 16) node_text(&n, "reduction", reductions[reduction]);
    }
    form_add(w, f, &n, 1);
}

#define WHOLE "the result is an integer"

const form forms_movement[] = {
    {"Identity", draw_identity, "fisb", -2, 2, NULL, false},
    {"Reshape", draw_reshape, "fisb", -2, 2, NULL, false},
    {"Flatten", draw_flatten, "fisb", -2, 2, NULL, false},
    {"Squeeze", draw_squeeze, "fisb", -2, 2, NULL, false},
    {"Unsqueeze", draw_unsqueeze, "fisb", -2, 2, NULL, false},
    {"Transpose", draw_transpose, "fisb", -2, 2, NULL, false},
    {"Concat", draw_concat, "fisb", -2, 2, NULL, false},
    {"Split", draw_split, "fisb", -2, 2, NULL, false},
    {"Slice", draw_slice, "fisb", -2, 2, NULL, false},
    {"Pad", draw_pad, "fi", -2, 2, NULL, false},
    {"Expand", draw_expand, "fib", -2, 2, NULL, false},
    {"Tile", draw_tile, "fisb", -2, 2, NULL, false},
    {"Trilu", draw_trilu, "fib", -2, 2, NULL, false},
    {"Shape", draw_shape, "fisb", -2, 2, WHOLE, false},
    {"Size", draw_shape, "fisb", -2, 2, WHOLE, false},
    {"Gather", draw_gather, "fisb", -2, 2, NULL, false},
    {"ScatterND", draw_scatter_nd, "fi", -2, 2, NULL, false},
    {0},
};
