/* forms_vision.c - generators of resizing, transposed convolution, powers of pools, samples of images, and signals. */
#include "tests/forms/form.h"

/* An image: batch, channels and `axes` more axes, mostly a new operand. */
static tensor draw_image(drawing *w, const form *f, int axes)
{
    tensor shape = any_shape(w, 2, 2);
    for (int i = 0; i < axes; i++) push_size(&shape, 1 + choose(w->c, 6));
    return choose(w->c, 4) ? new_operand(w, f, &shape) : any_operand(w, f, axes + 2, axes + 2);
}

/* ---- Resize, Upsample ---- */

/* Scales for `count` axes, of which the first `fixed` keep their size. */
static void draw_scales(drawing *w, int count, int fixed, bool grows, double *scales)
{
    static const double choices_[] = {2, 3, 1.5, 1, 2.5, 0.5, 0.75, 0.6};
    for (int i = 0; i < count; i++) scales[i] = i < fixed ? 1 : choices_[choose(w->c, grows ? 5 : 8)];
}

static tensor list_of(drawing *w, const double *numbers, int count)
{
    const int64_t size[] = {count};
    const tensor shape = fixed_shape(1, size);
    return new_numbers(w, ONNX_float32, &shape, numbers);
}

static void draw_upsample(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = draw_image(w, f, 1 + choose(w->c, 2));
    double scales[FORM_MAX_RANK];
    draw_scales(w, x.rank, 2, f->op[0] == 'U', scales);
    const tensor s = list_of(w, scales, x.rank);
    node_operand(w, &n, &x);
    if (w->m.opset >= 9) {
        node_operand(w, &n, &s);
    } else {
        char text[64] = "";
        for (int i = 0; i < x.rank; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.1f", i ? "," : "", scales[i]);
        node_floats(&n, "scales", text);
    }
    if (choose(w->c, 2)) node_text(&n, "mode", choose(w->c, 2) ? "linear" : "nearest");
    form_add(w, f, &n, 1);
}

static const char *draw_coordinates(drawing *w)
{
    static const char *const words[] = {"half_pixel", "asymmetric",          "align_corners",
                                        "half_pixel", "pytorch_half_pixel",  "tf_crop_and_resize",
                                        "half_pixel", "half_pixel_symmetric"};
    return words[choose(w->c, w->m.opset >= 19 ? 8 : 6)];
}

static void push_mode(drawing *w, node *n)
{
    static const char *const modes[] = {"nearest", "linear", "linear", "cubic"}, *const roundings[] = {
                                                                                     "floor", "ceil",
                                                                                     "round_prefer_floor",
                                                                                     "round_prefer_ceil"};
    const char *mode = CHOOSE(w->c, modes);
    node_text(n, "mode", mode);
    if (*mode == 'n' && choose(w->c, 2)) node_text(n, "nearest_mode", CHOOSE(w->c, roundings));
    if (*mode == 'c' && choose(w->c, 2)) node_float(n, "cubic_coeff_a", -0.5f);
    if (*mode == 'c' && choose(w->c, 2)) node_int(n, "exclude_outside", 1);
    if (*mode != 'n' && w->m.opset >= 18 && rarely(w->c, 3)) node_int(n, "antialias", 1);
}

static void draw_resize(drawing *w, const form *f)
{
    node n = {0};
    if (w->m.opset < 11) {
        draw_upsample(w, f);
        return;
    }
    const tensor x = draw_image(w, f, 1 + choose(w->c, 2));
    const char *coordinates = draw_coordinates(w);
    double scales[FORM_MAX_RANK], region[2 * FORM_MAX_RANK];
    int64_t sizes[FORM_MAX_RANK];
    draw_scales(w, x.rank, 2, false, scales);
    for (int i = 0; i < x.rank; i++) {
        sizes[i] = i < 2 ? x.dims[i] : some_size(w);
        region[i] = i < 2 ? 0 : any_real(w, 0, 0.4);
        region[x.rank + i] = i < 2 ? 1 : any_real(w, 0.6, 1);
    }
    const bool scaled = choose(w->c, 2), cropped = strcmp(coordinates, "tf_crop_and_resize") == 0;
    const tensor nothing = list_of(w, NULL, 0);
    node_operand(w, &n, &x);
    if (cropped) {
        const tensor t = list_of(w, region, 2 * x.rank);
        node_operand(w, &n, &t);
    } else {
        node_operand(w, &n, w->m.opset < 13 ? &nothing : NULL);
    }
    const tensor s = scaled ? list_of(w, scales, x.rank) : new_list(w, sizes, x.rank);
    if (!scaled) node_operand(w, &n, w->m.opset < 13 ? &nothing : NULL);
    node_operand(w, &n, &s);
    if (choose(w->c, 3)) node_text(&n, "coordinate_transformation_mode", coordinates);
    push_mode(w, &n);
    form_add(w, f, &n, 1);
}

/* ---- ConvTranspose ---- */

static void draw_conv_transpose(drawing *w, const form *f)
{
    static const char *const modes[] = {"VALID", "SAME_UPPER", "SAME_LOWER"};
    node n = {0};
    const tensor x = draw_image(w, f, 1 + choose(w->c, 2));
    const int axes = x.rank - 2;
    const int64_t groups = x.dims[1] > 1 && rarely(w->c, 3) ? x.dims[1] : 1, filters = some_size(w);
    int64_t kernel[3], strides[3], pads[6], extra[3];
    tensor shape = {0}, bias = {0};
    push_axis(&shape, &x, 1);
    push_size(&shape, filters);
    for (int i = 0; i < axes; i++) {
        push_size(&shape, kernel[i] = 1 + choose(w->c, 3));
        strides[i] = 1 + choose(w->c, 3);
        extra[i] = choose(w->c, (int)strides[i]);
        pads[i] = choose(w->c, (int)kernel[i]);
        pads[axes + i] = choose(w->c, (int)kernel[i]);
    }
    const tensor weight = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &weight);
    if (choose(w->c, 2)) {
        push_size(&bias, filters * groups);
        const tensor b = new_operand(w, f, &bias);
        node_operand(w, &n, &b);
    }
    node_list(&n, "strides", strides, axes);
    if (choose(w->c, 2)) node_list(&n, "output_padding", extra, axes);
    node_int_or_default(w, &n, "group", groups, 1);
    if (rarely(w->c, 4)) node_text(&n, "auto_pad", CHOOSE(w->c, modes));
    else if (choose(w->c, 2)) node_list(&n, "pads", pads, 2 * axes);
    form_add(w, f, &n, 1);
}

/* ---- LpPool, GlobalLpPool ---- */

static void draw_lp_pool(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = draw_image(w, f, 1 + choose(w->c, 3));
    int64_t kernel[3], strides[3];
    for (int i = 0; i < x.rank - 2; i++) kernel[i] = 1 + choose(w->c, 2), strides[i] = 1 + choose(w->c, 2);
    node_operand(w, &n, &x);
    if (f->op[0] == 'L') node_list(&n, "kernel_shape", kernel, x.rank - 2);
    if (f->op[0] == 'L' && choose(w->c, 2)) node_list(&n, "strides", strides, x.rank - 2);
    node_int_or_default(w, &n, "p", 1 + choose(w->c, 3), 2);
    form_add(w, f, &n, 1);
}

/* ---- GridSample, AffineGrid ---- */

static void draw_grid_sample(drawing *w, const form *f)
{
    static const char *const modes[] = {"linear", "nearest", "cubic"},
                             *const old[] = {"bilinear", "nearest", "bicubic"},
                             *const borders[] = {"zeros", "border", "reflection"};
    node n = {0};
    const int axes = w->m.opset >= 20 && rarely(w->c, 3) ? 3 : 2, mode = choose(w->c, axes == 3 ? 2 : 3);
    const tensor x = draw_image(w, f, axes);
    tensor shape = {0};
    push_axis(&shape, &x, 0);
    for (int i = 0; i < axes; i++) push_size(&shape, some_size(w));
    push_size(&shape, axes);
    const tensor grid = new_operand(w, f, &shape);
    node_operand(w, &n, &x);
    node_operand(w, &n, &grid);
    if (choose(w->c, 3)) node_text(&n, "mode", w->m.opset < 20 ? old[mode] : modes[mode]);
    if (choose(w->c, 3)) node_text(&n, "padding_mode", CHOOSE(w->c, borders));
    node_int_or_default(w, &n, "align_corners", choose(w->c, 2), 0);
    form_add(w, f, &n, 1);
}

static void draw_affine_grid(drawing *w, const form *f)
{
    node n = {0};
    const int axes = 2 + choose(w->c, 2);
    int64_t size[5] = {some_size(w), 1};
    for (int i = 0; i < axes; i++) size[2 + i] = some_size(w);
    const tensor shape = fixed_shape(3, (const int64_t[]){size[0], axes, axes + 1}), theta = new_operand(w, f, &shape);
    const tensor list = new_list(w, size, axes + 2);
    node_operand(w, &n, &theta);
    node_operand(w, &n, &list);
    node_int_or_default(w, &n, "align_corners", choose(w->c, 2), 0);
    form_add(w, f, &n, 1);
}

/* ---- RoiAlign ---- */

static void draw_roi_align(drawing *w, const form *f)
{
    node n = {0};
    const tensor x = draw_image(w, f, 2);
    const int64_t regions = some_size(w);
    const tensor shape = fixed_shape(2, (const int64_t[]){regions, 4});
    const tensor rois = new_tensor(w, w->type, (values){-1, 6}, &shape, false);
    int64_t *batch = calloc((size_t)regions, sizeof *batch);
    for (int64_t i = 0; batch && i < regions; i++) batch[i] = x.dims[0] > 0 ? choose(w->c, (int)x.dims[0]) : 0;
    const tensor list = new_list(w, batch, (int)regions);
    free(batch);
    node_operand(w, &n, &x);
    node_operand(w, &n, &rois);
    node_operand(w, &n, &list);
    node_int_or_default(w, &n, "output_height", some_size(w), 1);
    node_int_or_default(w, &n, "output_width", some_size(w), 1);
    node_int_or_default(w, &n, "sampling_ratio", choose(w->c, 3), 0);
    if (choose(w->c, 2)) node_text(&n, "mode", choose(w->c, 2) ? "max" : "avg");
    if (w->m.opset >= 16 && choose(w->c, 2)) node_text(&n, "coordinate_transformation_mode", "output_half_pixel");
    form_add(w, f, &n, 1);
}

/* ---- DeformConv ---- */

static void draw_deform_conv(drawing *w, const form *f)
{
    node n = {0};
    const int64_t size[4] = {some_size(w), 2, 3 + choose(w->c, 3), 3 + choose(w->c, 3)};
    const int64_t kernel[2] = {1 + choose(w->c, 3), 1 + choose(w->c, 3)}, groups = 1 + choose(w->c, 2);
    const int64_t taps = groups * kernel[0] * kernel[1], filters = 2,
                  out[2] = {size[2] - kernel[0] + 1, size[3] - kernel[1] + 1};
    const tensor shapes[] = {fixed_shape(4, size), fixed_shape(4, (const int64_t[]){filters, 2, kernel[0], kernel[1]}),
                             fixed_shape(4, (const int64_t[]){size[0], 2 * taps, out[0], out[1]}),
                             fixed_shape(1, &filters),
                             fixed_shape(4, (const int64_t[]){size[0], taps, out[0], out[1]})};
    const int count = 3 + choose(w->c, 3);
    for (int i = 0; i < count; i++) {
        const tensor t = new_operand(w, f, &shapes[i]);
        node_operand(w, &n, &t);
    }
    node_int_or_default(w, &n, "offset_group", groups, 1);
    form_add(w, f, &n, 1);
}

/* ---- signals ---- */

static void draw_dft(drawing *w, const form *f)
{
    node n = {0};
    tensor shape = any_shape(w, 1, 3);
    const int axis = choose(w->c, shape.rank + 1), parts = 1 + choose(w->c, 2);
    push_size(&shape, some_size(w));
    push_size(&shape, parts);
    const tensor x = new_operand(w, f, &shape);
    const tensor length = new_scalar(w, ONNX_int64, (double)some_size(w)), at = new_scalar(w, ONNX_int64, axis);
    node_operand(w, &n, &x);
    node_operand(w, &n, choose(w->c, 2) ? &length : NULL);
    if (w->m.opset >= 20) node_operand(w, &n, &at);
    else node_int(&n, "axis", axis);
    if (choose(w->c, 2)) node_int(&n, parts == 1 ? "onesided" : "inverse", 1);
    form_add(w, f, &n, 1);
}

static void draw_stft(drawing *w, const form *f)
{
    node n = {0};
    const int64_t length = 1 + choose(w->c, 5);
    const tensor shape = fixed_shape(3, (const int64_t[]){some_size(w), length + choose(w->c, 6), 1});
    const tensor weights = fixed_shape(1, &length), x = new_operand(w, f, &shape), window = new_operand(w, f, &weights);
    const tensor step = new_scalar(w, ONNX_int64, 1 + choose(w->c, 3)),
                 size = new_scalar(w, ONNX_int64, (double)length);
    const bool has_window = choose(w->c, 2);
    node_operand(w, &n, &x);
    node_operand(w, &n, &step);
    node_operand(w, &n, has_window ? &window : NULL);
    if (!has_window || choose(w->c, 2)) node_operand(w, &n, &size);
    node_int_or_default(w, &n, "onesided", choose(w->c, 2), 1);
    form_add(w, f, &n, 1);
}

static void draw_window(drawing *w, const form *f)
{
    node n = {0};
    const tensor size = new_scalar(w, ONNX_int64, 2 + choose(w->c, 9));
    node_operand(w, &n, &size);
    node_int_or_default(w, &n, "periodic", choose(w->c, 2), 1);
    form_add(w, f, &n, 1);
}

static void draw_mel_weights(drawing *w, const form *f)
{
    node n = {0};
    const double numbers[] = {1 + choose(w->c, 8), 16 << choose(w->c, 3), 8000};
    for (int i = 0; i < 3; i++) {
        const tensor t = new_scalar(w, ONNX_int64, numbers[i]);
        node_operand(w, &n, &t);
    }
    const tensor low = new_scalar(w, ONNX_float32, 100 * choose(w->c, 5)), high = new_scalar(w, ONNX_float32, 3500);
    node_operand(w, &n, &low);
    node_operand(w, &n, &high);
    form_add(w, f, &n, 1);
}

#define CONSTANT "the result is a constant"
const form forms_vision[] = {
    {"DFT", draw_dft, "f", -2, 2, NULL, false},
    {"STFT", draw_stft, "f", -2, 2, NULL, false},
    {"HannWindow", draw_window, "f", 0, 1, CONSTANT, false},
    {"HammingWindow", draw_window, "f", 0, 1, CONSTANT, false},
    {"BlackmanWindow", draw_window, "f", 0, 1, CONSTANT, false},
    {"MelWeightMatrix", draw_mel_weights, "f", 0, 1, CONSTANT, false},
    {"Resize", draw_resize, "f", -2, 2, NULL, false},
    {"Upsample", draw_upsample, "f", -2, 2, NULL, false},
    {"ConvTranspose", draw_conv_transpose, "f", -1, 1, NULL, false},
    {"LpPool", draw_lp_pool, "f", 0.2, 2, NULL, false},
    {"GlobalLpPool", draw_lp_pool, "f", 0.2, 2, NULL, false},
    {"GridSample", draw_grid_sample, "f", -0.9, 0.9, NULL, false},
    {"AffineGrid", draw_affine_grid, "f", -1, 1, NULL, false},
    {"RoiAlign", draw_roi_align, "f", -2, 2, NULL, false},
    {"DeformConv", draw_deform_conv, "f", -1, 1, NULL, false},
    {0},
};
