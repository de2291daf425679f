/* rows_resample.c - resizing and its gradient. The reference follows ONNX's text: for each result and axis it visits
 * every element of the input extended beyond its ends. */
#include "tests/ops/ops.h"

#include <math.h>

enum { AXES = 4, MARGIN = 40 }; /* elements beyond each end that any filter here reaches */

typedef struct shape {
    const char *method, *coordinates, *rounding;
    int rank;
    int64_t in[AXES], out[AXES]; /* axes that differ are resized */
    int64_t scale[2];            /* of all resized axes; 0: from the sizes */
    double cubic;
    bool exclude, antialias;
    double start, end; /* of the region */
} shape;

static const shape shapes[] = {
    {"nearest", "half_pixel", "round_prefer_floor", 4, {2, 3, 4, 5}, {2, 3, 8, 10}, {2, 1}, 0, 0, 0, 0, 0},
    {"nearest", "asymmetric", "floor", 4, {1, 20, 9, 8}, {1, 20, 18, 16}, {2, 1}, 0, 0, 0, 0, 0},
    {"nearest", "asymmetric", "floor", 3, {3, 7, 10}, {3, 7, 6}, {0}, 0, 0, 0, 0, 0},
    {"nearest", "half_pixel", "round_prefer_ceil", 4, {2, 2, 7, 9}, {2, 2, 3, 14}, {0}, 0, 0, 0, 0, 0},
    {"nearest", "align_corners", "ceil", 4, {2, 3, 3, 4}, {4, 2, 7, 4}, {0}, 0, 0, 0, 0, 0},
    {"nearest", "tf_half_pixel_for_nn", "floor", 4, {1, 2, 5, 4}, {1, 2, 3, 9}, {0}, 0, 0, 0, 0, 0},
    {"nearest", "pytorch_half_pixel", "floor", 2, {5, 4}, {1, 9}, {0}, 0, 0, 0, 0, 0},
    {"nearest", "tf_crop_and_resize", "round_prefer_floor", 4, {1, 2, 6, 5}, {1, 2, 4, 7}, {0}, 0, 0, 0, -0.25, 1.25},
    {"linear", "half_pixel", "floor", 4, {2, 3, 4, 5}, {2, 3, 8, 10}, {2, 1}, 0, 0, 0, 0, 0},
    {"linear", "align_corners", "floor", 4, {2, 17, 6, 7}, {2, 17, 13, 4}, {0}, 0, 0, 0, 0, 0},
    {"linear", "asymmetric", "floor", 3, {4, 1, 9}, {4, 1, 13}, {3, 2}, 0, 0, 0, 0, 0},
    {"linear", "pytorch_half_pixel", "floor", 4, {1, 2, 9, 8}, {1, 2, 1, 3}, {0}, 0, 0, 0, 0, 0},
    {"linear", "half_pixel_symmetric", "floor", 4, {2, 3, 7, 9}, {2, 3, 4, 5}, {3, 5}, 0, 0, 0, 0, 0},
    {"linear", "half_pixel", "floor", 4, {3, 2, 4, 3}, {2, 4, 5, 7}, {0}, 0, 0, 0, 0, 0},
    {"linear", "tf_crop_and_resize", "floor", 4, {1, 2, 6, 5}, {1, 2, 9, 3}, {0}, 0, 0, 0, 0.25, 0.75},
    {"linear", "tf_crop_and_resize", "floor", 2, {6, 5}, {9, 4}, {0}, 0, 0, 0, 1.25, -0.25},
    {"linear", "half_pixel", "floor", 4, {1, 2, 16, 9}, {1, 2, 4, 3}, {0}, 0, 0, 1, 0, 0},
    {"linear", "half_pixel", "floor", 3, {2, 2, 30}, {2, 2, 7}, {0}, 0, 1, 1, 0, 0},
    {"linear", "half_pixel", "floor", 4, {2, 3, 1, 1}, {2, 3, 9, 8}, {0}, 0, 0, 0, 0, 0},
    {"linear", "half_pixel", "floor", 2, {40, 50}, {65, 90}, {0}, 0, 0, 0, 0, 0},
    {"cubic", "half_pixel", "floor", 4, {2, 3, 4, 5}, {2, 3, 7, 12}, {0}, -0.75, 0, 0, 0, 0},
    {"cubic", "align_corners", "floor", 4, {1, 2, 8, 6}, {1, 2, 5, 11}, {0}, -0.5, 1, 0, 0, 0},
    {"cubic", "asymmetric", "floor", 3, {3, 2, 7}, {3, 2, 12}, {7, 4}, -0.75, 1, 0, 0, 0},
    {"cubic", "half_pixel", "floor", 4, {1, 2, 12, 9}, {1, 2, 5, 4}, {0}, -0.5, 0, 1, 0, 0},
    {"cubic", "half_pixel", "floor", 4, {1, 1, 9, 14}, {1, 1, 4, 3}, {0}, -0.75, 1, 1, 0, 0},
    {"cubic", "tf_crop_and_resize", "floor", 3, {2, 3, 9}, {2, 3, 5}, {0}, -0.75, 0, 0, 0.125, 1.125},
    {"linear", "half_pixel", "floor", 4, {0, 3, 4, 5}, {0, 3, 8, 10}, {0}, 0, 0, 0, 0, 0},
    {"linear", "half_pixel", "floor", 3, {2, 3, 4}, {2, 3, 0}, {0}, 0, 0, 0, 0, 0},
    {"linear", "half_pixel", "floor", 3, {2, 3, 4}, {2, 3, 4}, {0}, 0, 0, 0, 0, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const shape *now; /* of the current case */
static double outside;

static double scale_of(int64_t in, int64_t out)
{
    return now->scale[0] ? (double)now->scale[0] / (double)now->scale[1] : (double)out / (double)in;
}

static double position(int64_t in, int64_t out, int64_t o)
{
    const double scale = scale_of(in, out), width = scale * (double)in, last = (double)(in - 1);
    const double half = ((double)o + 0.5) / scale - 0.5;
    const char *c = now->coordinates;
    if (!strcmp(c, "align_corners")) return width == 1 ? 0 : (double)o * last / (width - 1);
    if (!strcmp(c, "asymmetric")) return (double)o / scale;
    if (!strcmp(c, "tf_half_pixel_for_nn")) return half + 0.5;
    if (!strcmp(c, "pytorch_half_pixel")) return out > 1 ? half : 0;
    if (!strcmp(c, "half_pixel_symmetric")) return (double)in / 2 * (1 - (double)out / width) + half;
    if (strcmp(c, "tf_crop_and_resize") != 0) return half;
    if (out == 1) return 0.5 * (now->start + now->end) * last;
    return now->start * last + (double)o * (now->end - now->start) * last / (double)(out - 1);
}

static double filter(double distance)
{
    const double d = fabs(distance), a = now->cubic;
    if (now->method[0] == 'l') return fmax(0, 1 - d);
    if (d < 1) return (a + 2) * d * d * d - (a + 3) * d * d + 1;
    return d < 2 ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a : 0;
}

static double rounded(double at)
{
    if (!strcmp(now->rounding, "floor")) return floor(at);
    if (!strcmp(now->rounding, "ceil")) return ceil(at);
    const bool half = at - floor(at) == 0.5;
    return half ? (!strcmp(now->rounding, "round_prefer_floor") ? floor(at) : ceil(at)) : floor(at + 0.5);
}

/* Adds the weights of the elements of the input for result o; false: the position is outside. */
static bool weigh(int64_t in, int64_t out, int64_t o, double *weights)
{
    const double at = position(in, out, o), scale = scale_of(in, out);
    const double shrink = now->antialias && scale < 1 ? scale : 1;
    double sum = 0;
    memset(weights, 0, (size_t)in * sizeof *weights);
    if (!strcmp(now->coordinates, "tf_crop_and_resize") && (at < 0 || at > (double)(in - 1))) return false;
    for (int64_t i = -MARGIN; i < in + MARGIN; i++) {
        const bool beyond = i < 0 || i >= in;
        double w = now->method[0] == 'n' ? (double)i == rounded(at) : filter(((double)i - at) * shrink);
        if (beyond && now->exclude) w = 0;
        weights[i < 0 ? 0 : i >= in ? in - 1 : i] += w;
        sum += w;
    }
    for (int64_t i = 0; i < in; i++) weights[i] /= sum;
    return true;
}

/* y, or in reverse x, from the other: one axis after the other. */
static void resize_axis(const shape *s, int axis, const double *from, double *to, bool back)
{
    int64_t outer = 1, inner = 1, in = s->in[axis], out = s->out[axis];
    double weights[128];
    for (int i = 0; i < axis; i++) outer *= back ? s->in[i] : s->out[i];
    for (int i = axis + 1; i < s->rank; i++) inner *= back ? s->out[i] : s->in[i];
    for (int64_t i = 0; i < outer * inner * (back ? in : out); i++) to[i] = 0;
    for (int64_t o = 0; o < out; o++) {
        const bool inside = weigh(in, out, o, weights);
        for (int64_t a = 0; a < outer; a++)
            for (int64_t b = 0; b < inner; b++) {
                if (!inside && !back) to[(a * out + o) * inner + b] = outside;
                for (int64_t i = 0; i < in && inside; i++) {
                    const int64_t x = (a * in + i) * inner + b, y = (a * out + o) * inner + b;
                    to[back ? x : y] += weights[i] * from[back ? y : x];
                }
            }
    }
}

static void reference(ops_case *c)
{
    static double buffers[2][1 << 14];
    const bool back = c->op == IR_OP_resize_grad;
    const double *from = c->x[0];
    for (int i = 0; i < now->rank; i++) {
        double *to = i == now->rank - 1 ? c->expected[0] : buffers[i % 2];
        if (now->in[i] != now->out[i]) {
            resize_axis(now, i, from, to, back);
        } else {
            int64_t count = 1;
            for (int k = 0; k < now->rank; k++) count *= (k <= i) == back ? now->in[k] : now->out[k];
            memcpy(to, from, (size_t)count * sizeof *to);
        }
        from = to;
    }
}

static void resize(const ops_row *row, ir_dtype t)
{
    const bool back = row->op == IR_OP_resize_grad;
    for (int s = 0; s < SHAPES; s++) {
        ops_case c = case_of(row->op);
        int64_t axes[AXES], scales[2 * AXES], region[4 * AXES];
        int n = 0;
        now = &shapes[s];
        outside = ir_dtype_is_float(t) ? -3 : 1;
        if (!ir_dtype_is_float(t) && now->method[0] != 'n') continue;
        for (int i = 0; i < now->rank; i++)
            if (now->in[i] != now->out[i]) axes[n++] = i;
        for (int i = 0; i < n; i++) {
            scales[2 * i] = now->scale[0];
            scales[2 * i + 1] = now->scale[1];
            region[2 * i] = (int64_t)(now->start * 8);
            region[2 * (n + i)] = (int64_t)(now->end * 8);
            region[2 * i + 1] = region[2 * (n + i) + 1] = 8;
        }
        case_in(&c, t, now->rank, back ? now->out : now->in, -9, 9);
        case_list(&c, IR_ATTR(resize, shape), back ? now->in : now->out, now->rank);
        case_list(&c, IR_ATTR(resize, axes), axes, n);
        if (now->scale[0]) case_list(&c, IR_ATTR(resize, scales), scales, 2 * n);
        if (now->end != now->start) case_list(&c, IR_ATTR(resize, region), region, 4 * n);
        c.attr[IR_ATTR(resize, method)].i = ir_words_find(ir_words_sampling, now->method);
        c.attr[IR_ATTR(resize, coordinates)].i = ir_words_find(ir_words_coordinates, now->coordinates);
        c.attr[IR_ATTR(resize, rounding)].i = ir_words_find(ir_words_rounding, now->rounding);
        c.attr[IR_ATTR(resize, cubic)].f = now->cubic;
        c.attr[IR_ATTR(resize, exclude_outside)].i = now->exclude;
        c.attr[IR_ATTR(resize, antialias)].i = now->antialias;
        c.attr[IR_ATTR(resize, outside)].f = outside;
        case_out(&c, t, now->rank, back ? now->in : now->out);
        c.units = 160;
        c.size = 9;
        case_finish(&c, reference);
    }
}

const ops_row resample_rows[] = {
    {IR_OP_resize, "FIB", resize, 0, 0, NULL, 0, 0},
    {IR_OP_resize_grad, "F", resize, 0, 0, NULL, 0, 0},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
