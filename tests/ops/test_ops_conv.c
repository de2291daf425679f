/* test_ops_conv.c - the three convolutions against f64 sums over the rounded operands.
 *
 * A row is a shape. It runs in every float type, in NCHW and in NHWC, with and without bias, and with f32 results of
 * low-precision operands. */
#include "tests/ops/products.h"
#include "tests/rows.h"
#include "tests/tier.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/philox.h"

enum { RANDOM_CONVS = 80 };

typedef struct conv_row {
    int spatial;
    int64_t n, c, m, group; /* c: all channels */
    int64_t x[3], k[3], strides[3], dilations[3], pads[6];
} conv_row;

static const conv_row convs[] = {
    {2, 2, 1, 16, 1, {14, 14}, {5, 5}, {1, 1}, {1, 1}, {0}},
    {2, 2, 16, 32, 1, {9, 9}, {5, 5}, {1, 1}, {1, 1}, {0}},
    {2, 2, 12, 20, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}, /* channels of half vectors */
    {2, 1, 3, 5, 1, {7, 6}, {3, 2}, {2, 1}, {1, 1}, {1, 0, 2, 1}},
    {2, 2, 8, 8, 8, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},  /* depthwise */
    {2, 2, 4, 8, 4, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},  /* depthwise, multiplier 2 */
    {2, 2, 6, 4, 2, {5, 7}, {3, 3}, {1, 2}, {1, 1}, {0}},           /* groups */
    {2, 2, 3, 4, 1, {9, 11}, {3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}}, /* dilation */
    {2, 2, 3, 4, 1, {8, 8}, {3, 3}, {3, 3}, {1, 1}, {0}},           /* with a remainder at the end */
    {2, 1, 1, 1, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {2, 2, 17, 19, 1, {4, 4}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {2, 0, 3, 4, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {0}}, /* empty batch */
    {2, 2, 0, 3, 1, {5, 4}, {3, 2}, {1, 1}, {1, 1}, {0}}, /* no channels: y has only the bias */
    {1, 2, 3, 4, 1, {0}, {2}, {1}, {1}, {1, 2}},          /* nothing but padding */
    {1, 2, 3, 5, 1, {13}, {3}, {2}, {2}, {1, 3}},
    {1, 1, 4, 4, 2, {6}, {4}, {1}, {1}, {3, 0}},
    {3, 2, 2, 3, 1, {4, 5, 6}, {2, 3, 2}, {1, 2, 1}, {1, 1, 2}, {0, 1, 0, 1, 1, 2}},
    {3, 1, 4, 4, 4, {3, 3, 3}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
    {2, 1, 2, 3, 1, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {2, 2, 3, 3}},    /* windows entirely in the padding */
    {2, 2, 3, 16, 1, {15, 14}, {7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}}, /* first layer of a network */
    {2, 2, 32, 16, 1, {6, 5}, {1, 1}, {2, 2}, {1, 1}, {0}},           /* shortcut */
    {2, 2, 40, 40, 40, {7, 6}, {3, 3}, {2, 2}, {1, 1}, {0, 0, 1, 1}}, /* depthwise, more than one vector */
    {2, 1, 32, 64, 2, {5, 5}, {3, 3}, {1, 1}, {2, 2}, {2, 2, 2, 2}},  /* groups of whole vectors */
    {1, 3, 1, 12, 1, {20}, {5}, {1}, {2}, {4, 4}},
    {1, 2, 24, 24, 24, {9}, {3}, {1}, {1}, {1, 1}},
    {3, 1, 17, 20, 1, {3, 4, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {0}},
    {3, 1, 1, 16, 1, {4, 4, 5}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
    {2, 3, 33, 50, 1, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}, /* sums that are tiles of neighbours */
    {2, 2, 40, 36, 2, {11, 10}, {5, 3}, {3, 2}, {2, 3}, {4, 0, 2, 5}},
    {2, 1, 16, 17, 1, {3, 5}, {3, 2}, {2, 1}, {1, 1}, {4, 3, 0, 2}}, /* more padding than taps */
    /* shapes for which oneDNN has faulty code (kernels/cpu/conv.c) */
    {3, 6, 3, 6, 1, {5, 1, 3}, {2, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 0, 1, 1, 0}}, /* a window higher than x */
    {3, 2, 2, 2, 1, {5, 7, 14}, {3, 3, 3}, {4, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
    {2, 2, 16, 16, 1, {3, 1}, {1, 2}, {1, 4}, {1, 1}, {0, 1, 0, 0}}, /* a stride longer than a row */
    {2, 1, 5, 6, 1, {4, 14}, {1, 1}, {1, 2}, {1, 1}, {0}},
    {2, 1, 11, 14, 1, {6, 30}, {1, 1}, {1, 2}, {1, 1}, {0}},
    {2, 1, 24, 9, 1, {4, 15}, {1, 1}, {1, 1}, {1, 1}, {0}}, /* an odd number of filters */
};

/* These run on own code although there is oneDNN (kernels/cpu/own_pack.c): with packed weights in f32, and with weights
 * that are read and written in place. */
static const conv_row own_convs[] = {
    {2, 1, 480, 80, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {2, 1, 257, 131, 1, {15, 15}, {1, 1}, {2, 2}, {1, 1}, {0}}, /* 64 rows of parts of an image */
    {2, 1, 130, 230, 1, {3, 4}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
    {2, 9, 115, 230, 1, {2, 2}, {3, 4}, {1, 1}, {1, 1}, {1, 2, 1, 1}}, /* more than 36 rows of small images */
    {3, 2, 75, 131, 1, {2, 1, 2}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
    {1, 3, 230, 229, 1, {9}, {5}, {1}, {2}, {4, 4}},
};

typedef struct conv_case {
    const conv_row *row;
    int64_t x[5], w[5], y[5];
    int64_t lists[4][6]; /* strides, pads, dilations, shape */
    double *xv, *wv, *yv;
} conv_case;

typedef void conv_visit(const conv_case *c, int64_t xi, int64_t wi, int64_t yi, double *sum);

static void case_init(conv_case *c, const conv_row *row)
{
    *c = (conv_case){.row = row};
    c->x[0] = c->y[0] = row->n;
    c->x[1] = row->c;
    c->y[1] = c->w[0] = row->m;
    c->w[1] = row->c / row->group;
    for (int i = 0; i < row->spatial; i++) {
        c->x[2 + i] = row->x[i];
        c->w[2 + i] = row->k[i];
        int64_t window = (row->k[i] - 1) * row->dilations[i] + 1;
        c->y[2 + i] = (row->x[i] + row->pads[i] + row->pads[row->spatial + i] - window) / row->strides[i] + 1;
    }
}

/* One tap of a window that is inside of the image: its index in a filter's window, that of its element in a plane of x. */
typedef struct tap {
    int64_t w, x;
} tap;

static int64_t product(const int64_t *dims, int count)
{
    int64_t n = 1;
    for (int i = 0; i < count; i++) n *= dims[i];
    return n;
}

/* Writes the taps of the window of element `at` of a plane of y. Returns their number. */
static int64_t window_taps(const conv_case *c, int64_t at, tap *taps)
{
    const conv_row *r = c->row;
    int64_t y[3], n = 0;
    for (int i = r->spatial - 1; i >= 0; i--) y[i] = at % c->y[2 + i], at /= c->y[2 + i];
    for (int64_t k = 0; k < product(r->k, r->spatial); k++) {
        int64_t rest = k, x = 0, pitch = 1;
        bool inside = true;
        for (int i = r->spatial - 1; i >= 0; i--) {
            const int64_t place = y[i] * r->strides[i] + rest % r->k[i] * r->dilations[i] - r->pads[i];
            inside = inside && place >= 0 && place < r->x[i];
            x += place * pitch;
            pitch *= r->x[i];
            rest /= r->k[i];
        }
        if (inside) taps[n++] = (tap){k, x};
    }
    return n;
}

/* Calls visit for every product of the convolution. */
static void case_visit(const conv_case *c, conv_visit *visit, double *sum)
{
    const conv_row *r = c->row;
    const int64_t y_plane = product(c->y + 2, r->spatial), x_plane = product(r->x, r->spatial),
                  window = product(r->k, r->spatial), channels = c->w[1], per_group = r->m / r->group;
    tap *taps = malloc((size_t)window * sizeof *taps);
    for (int64_t at = 0; at < y_plane; at++) {
        const int64_t n_taps = window_taps(c, at, taps);
        for (int64_t plane = 0; plane < r->n * r->m; plane++) {
            const int64_t n = plane / r->m, m = plane % r->m, first = n * r->c + m / per_group * channels;
            for (int64_t channel = 0; channel < channels; channel++)
                for (int64_t t = 0; t < n_taps; t++)
                    visit(c, (first + channel) * x_plane + taps[t].x, (m * channels + channel) * window + taps[t].w,
                          plane * y_plane + at, sum);
        }
    }
    free(taps);
}

static void visit_forward(const conv_case *c, int64_t xi, int64_t wi, int64_t yi, double *sum)
{
    sum[yi] += c->xv[xi] * c->wv[wi];
}

static void visit_grad_input(const conv_case *c, int64_t xi, int64_t wi, int64_t yi, double *sum)
{
    sum[xi] += c->yv[yi] * c->wv[wi];
}

static void visit_grad_weight(const conv_case *c, int64_t xi, int64_t wi, int64_t yi, double *sum)
{
    sum[wi] += c->yv[yi] * c->xv[xi];
}

static void case_attrs(conv_case *c, ir_attr *attr, int strides, int pads, int dilations, int group)
{
    int n = c->row->spatial;
    attr[strides].list.items = c->row->strides;
    attr[pads].list.items = c->row->pads;
    attr[dilations].list.items = c->row->dilations;
    attr[strides].list.count = attr[dilations].list.count = n;
    attr[pads].list.count = 2 * n;
    attr[group].i = c->row->group;
}
#define CASE_ATTRS(c, attr, op) \
    case_attrs(c, attr, IR_ATTR(op, strides), IR_ATTR(op, pads), IR_ATTR(op, dilations), IR_ATTR(op, group))

static void check_and_free(conv_case *c, const char *what, conv_visit *visit, k_view *result, double depth, ir_dtype in,
                           const k_view *bias, int64_t inner)
{
    double *expected = calloc((size_t)k_count(result) + 1, sizeof *expected);
    double *shift = view_values(bias);
    if (k_present(bias))
        for (int64_t i = 0; i < k_count(result); i++) expected[i] = shift[i / inner % k_count(bias)];
    case_visit(c, visit, expected);
    view_check(what, result, expected, depth, in);
    free(expected);
    free(shift);
    free(result->data);
}

static void conv_check(const conv_row *row, ir_dtype in, ir_dtype out, bool with_bias)
{
    conv_case c;
    case_init(&c, row);
    int rank = row->spatial + 2;
    int64_t inner = 1, taps = c.w[1];
    for (int i = 2; i < rank; i++) inner *= c.y[i], taps *= c.w[i];
    k_view x = view_make(in, rank, c.x), w = view_make(in, rank, c.w), y = view_make(out, rank, c.y), bias = {0};
    if (with_bias) bias = view_make(in, 1, &row->m);
    view_fill(&x);
    view_fill(&w);
    if (with_bias) view_fill(&bias);
    c.xv = view_values(&x);
    c.wv = view_values(&w);
    ir_attr attr[8] = {0};
    CASE_ATTRS(&c, attr, conv);
    k_view operands[] = {x, w, bias};
    run_kernel(IR_OP_conv, operands, 3, &y, 1, attr);
    check_and_free(&c, "conv", visit_forward, &y, (double)taps, in, &bias, inner);
    free(x.data);
    free(w.data);
    free(bias.data);
    free(c.xv);
    free(c.wv);
}

static void grad_input_check(const conv_row *row, ir_dtype in, ir_dtype out)
{
    conv_case c;
    case_init(&c, row);
    int rank = row->spatial + 2;
    double taps = (double)row->m;
    for (int i = 2; i < rank; i++) taps *= (double)c.w[i];
    k_view dy = view_make(in, rank, c.y), w = view_make(in, rank, c.w), dx = view_make(out, rank, c.x), none = {0};
    view_fill(&dy);
    view_fill(&w);
    c.yv = view_values(&dy);
    c.wv = view_values(&w);
    ir_attr attr[8] = {0};
    CASE_ATTRS(&c, attr, conv_grad_input);
    k_view operands[] = {dy, w};
    run_kernel(IR_OP_conv_grad_input, operands, 2, &dx, 1, attr);
    check_and_free(&c, "conv_grad_input", visit_grad_input, &dx, taps, in, &none, 1);
    free(dy.data);
    free(w.data);
    free(c.yv);
    free(c.wv);
}

static void bias_grad_check(const conv_case *c, k_view *dbias, int64_t inner, ir_dtype in)
{
    double *sum = calloc((size_t)c->row->m, sizeof *sum);
    for (int64_t i = 0; i < c->row->n * c->row->m * inner; i++) sum[i / inner % c->row->m] += c->yv[i];
    view_check("conv_grad_weight dbias", dbias, sum, (double)(c->row->n * inner), in);
    free(sum);
    free(dbias->data);
}

/* results_used: 1 dw, 2 dbias, 3 both */
static void grad_weight_check(const conv_row *row, ir_dtype in, ir_dtype out, int results_used)
{
    conv_case c;
    case_init(&c, row);
    int rank = row->spatial + 2;
    int64_t inner = 1;
    for (int i = 2; i < rank; i++) inner *= c.y[i];
    k_view dy = view_make(in, rank, c.y), x = view_make(in, rank, c.x), none = {0};
    view_fill(&dy);
    view_fill(&x);
    c.yv = view_values(&dy);
    c.xv = view_values(&x);
    k_view results[] = {view_make(out, rank, c.w), view_make(out, 1, &row->m)}, outputs[] = {results[0], results[1]};
    for (int i = 0; i < 2; i++)
        if (!(results_used & 1 << i)) results[i].data = NULL;
    ir_attr attr[8] = {0};
    CASE_ATTRS(&c, attr, conv_grad_weight);
    k_view operands[] = {dy, x};
    run_kernel(IR_OP_conv_grad_weight, operands, 2, results, 2, attr);
    if (results_used & 1)
        check_and_free(&c, "conv_grad_weight", visit_grad_weight, &outputs[0], (double)(row->n * inner), in, &none, 1);
    else free(outputs[0].data);
    if (results_used & 2) bias_grad_check(&c, &outputs[1], inner, in);
    else free(outputs[1].data);
    free(dy.data);
    free(x.data);
    free(c.yv);
    free(c.xv);
}

/* Below the full tier, a device has a half of the rows and types, and a sixth with channels last, because cuDNN compiles
 * kernels for most of their plans. */
static bool is_left_out(size_t row, int type)
{
    return ops_on->device_ops && !tier_is_due(row + (size_t)type, ops_channels_last ? 6 : 2);
}

#define EACH_CONV(statement) \
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) \
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t)) { \
            if (is_left_out(i, t)) continue; \
            const conv_row *row = &convs[i]; \
            ir_dtype in = types[t].in, out = types[t].out; \
            statement; \
        }

static void conv_rows(void **state)
{
    (void)state;
    EACH_CONV(conv_check(row, in, out, false); conv_check(row, in, out, true))
}

static void own_conv_rows(void **state)
{
    (void)state;
    if (ops_on->device_ops) return;
    for (size_t i = 0; i < sizeof own_convs / sizeof *own_convs; i++)
        conv_check(&own_convs[i], IR_f32, IR_f32, i % 2 == 0);
}

/* All three with weights in place; half of the rows in each layout. */
static void in_place_rows(void **state)
{
    static const ir_dtype in[] = {IR_f32, IR_bf16, IR_f16};
    (void)state;
    if (ops_on->device_ops) return;
    for (size_t i = 0; i < sizeof own_convs / sizeof *own_convs; i++) {
        if (i % 2 != ops_channels_last) continue;
        const ir_dtype t = in[i % 3], low = ops_takes(t) ? t : IR_f32;
        conv_check(&own_convs[i], low, i < 3 ? IR_f32 : low, i < 3);
        grad_input_check(&own_convs[i], low, i < 3 ? IR_f32 : low);
        grad_weight_check(&own_convs[i], low, i < 3 ? low : IR_f32, 1 + (int)i % 3);
    }
}

static void conv_grad_input_rows(void **state)
{
    (void)state;
    EACH_CONV(grad_input_check(row, in, out))
}

static void conv_grad_weight_rows(void **state)
{
    (void)state;
    EACH_CONV(for (int results_used = 1; results_used < 4; results_used++)
                  grad_weight_check(row, in, out, results_used))
}

/* ---- statistics, on a device ---- */

static const conv_row counted_convs[] = {
    {2, 2, 16, 24, 1, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {2, 3, 8, 16, 1, {7, 5}, {1, 1}, {1, 1}, {1, 1}, {0}},
    {2, 1, 32, 8, 1, {8, 11}, {1, 1}, {2, 2}, {1, 1}, {0}},
    {2, 2, 24, 40, 1, {5, 6}, {5, 3}, {2, 1}, {1, 1}, {2, 1, 2, 1}},
    {2, 1, 8, 136, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0}},
};

/* The sums may be of results before or after these are rounded. */
static void sums_check(const conv_case *c, const double *y, const k_view *sum, const k_view *squares)
{
    const int64_t plane = product(c->y + 2, c->row->spatial), m = c->row->m;
    for (int64_t k = 0; k < m; k++) {
        double expected[2] = {0}, size[2] = {0};
        for (int64_t i = 0; i < c->row->n * m * plane; i++) {
            if (i / plane % m != k) continue;
            expected[0] += y[i];
            expected[1] += y[i] * y[i];
            size[0] += fabs(y[i]);
        }
        size[1] = 2 * expected[1];
        for (int i = 0; i < 2; i++) {
            const double got = ((const float *)(i ? squares : sum)->data)[k];
            if (fabs(got - expected[i]) > 0x1p-10 * size[i])
                fail_msg("channel %d: %s %g instead of %g", (int)k, i ? "squares" : "sum", got, expected[i]);
        }
    }
}

/* Returns whether the device can. */
static bool statistics_check(const conv_row *row, ir_dtype t)
{
    conv_case c;
    case_init(&c, row);
    k_view x = view_make(t, 4, c.x), w = view_make(t, 4, c.w), none = {.dtype = IR_NO_DTYPE};
    k_view results[] = {view_make(t, 4, c.y), view_make(IR_f32, 1, &row->m), view_make(IR_f32, 1, &row->m)};
    view_fill(&x);
    view_fill(&w);
    c.xv = view_values(&x);
    c.wv = view_values(&w);
    ir_attr attr[8] = {0};
    CASE_ATTRS(&c, attr, conv);
    k_view operands[] = {x, w, none};
    char error[256] = "";
    const k_context ctx = {.threads = THREADS, .error = error, .error_size = sizeof error};
    k_view in[] = {x, w, none}, out[] = {results[0], results[1], results[2]};
    const k_args args = {.op = IR_OP_conv, .in = in, .out = out, .n_in = 3, .n_out = 3, .attr = attr, .ctx = &ctx};
    in[0].channels_last = in[1].channels_last = out[0].channels_last = ops_channels_last;
    const bool can = ops_absorbs(&args);
    double *y = calloc((size_t)k_count(&results[0]), sizeof *y);
    if (can) {
        run_kernel(IR_OP_conv, operands, 3, results, 3, attr);
        case_visit(&c, visit_forward, y);
        view_check("conv with statistics", &results[0], y, (double)product(c.w + 1, 3), t);
        if (run_candidate >= 0) sums_check(&c, y, &results[1], &results[2]);
    }
    for (int i = 0; i < 3; i++) free(results[i].data);
    free(x.data);
    free(w.data);
    free(c.xv);
    free(c.wv);
    free(y);
    return can;
}

/* In bf16, and in NCHW if that differs, cuDNN would have to compile its engines. */
static void statistics_rows(void **state)
{
    (void)state;
    if (!ops_on->device_ops) return;
    for (size_t i = 0; i < sizeof counted_convs / sizeof *counted_convs; i++) {
        assert_false(statistics_check(&counted_convs[i], IR_f32));
        if (ops_takes(IR_bf16)) assert_false(statistics_check(&counted_convs[i], IR_bf16));
        if (!ops_takes(IR_f16)) continue;
        const bool is_pixel = product(counted_convs[i].x, 2) == 1;
        assert_int_equal(statistics_check(&counted_convs[i], IR_f16), ops_channels_last || is_pixel);
    }
}

/* Every algorithm that cuDNN proposes is right, since tuning may choose any. The smallest row shows that they can be
 * chosen; the others are for a GPU (gpu-check --only engines), since the double computes alike with all of them. */
static void every_engine(void **state)
{
    (void)state;
    if (!ops_on->device_ops) return;
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
        for (int t = next_types(-1); t < N_TYPES; t = next_types(t)) {
            const conv_row *row = &convs[i];
            const ir_dtype in = types[t].in, out = types[t].out;
            if (in == IR_f32 || !(part_has_row(i) || row->c * row->m == 1)) continue;
            EACH_CANDIDATE(conv_check(row, in, out, false))
            EACH_CANDIDATE(conv_check(row, in, out, true))
            EACH_CANDIDATE(grad_input_check(row, in, out))
            EACH_CANDIDATE(grad_weight_check(row, in, out, 3))
        }
    for (size_t i = 0; i < sizeof counted_convs / sizeof *counted_convs; i++)
        if (ops_channels_last && ops_takes(IR_f16) && part_has_row(i))
            EACH_CANDIDATE(statistics_check(&counted_convs[i], IR_f16))
    check_candidates();
}

/* Returns a random number in [low, high] that depends only on `shape` and `choice`. */
static int64_t choose(uint64_t shape, uint64_t choice, int64_t low, int64_t high)
{
    return low + (int64_t)(philox_unit(philox_word(11, shape, choice)) * (float)(high - low + 1));
}

/* Draws small images with windows of any size. False: no window fits. */
static bool random_row(conv_row *r, uint64_t shape)
{
    *r = (conv_row){.spatial = (int)choose(shape, 0, 1, 3), .n = choose(shape, 1, 1, 3), .group = 1};
    r->c = choose(shape, 2, 1, 18);
    r->m = choose(shape, 3, 1, 18);
    bool fits = true, point = choose(shape, 4, 0, 2) == 0;
    for (int i = 0; i < r->spatial; i++) {
        uint64_t axis = 10 * (uint64_t)(i + 1);
        r->x[i] = choose(shape, axis, 1, point ? 15 : 6);
        r->k[i] = point ? 1 : choose(shape, axis + 1, 1, 4);
        r->strides[i] = choose(shape, axis + 2, 1, 3);
        r->dilations[i] = choose(shape, axis + 3, 1, 2);
        int64_t window = (r->k[i] - 1) * r->dilations[i] + 1;
        r->pads[i] = choose(shape, axis + 4, 0, window / 2);
        r->pads[r->spatial + i] = choose(shape, axis + 5, 0, window / 2);
        fits = fits && r->x[i] + r->pads[i] + r->pads[r->spatial + i] >= window;
    }
    return fits;
}

/* CPU only: its library has faults in code that few shapes reach. */
static void random_convs(void **state)
{
    (void)state;
    if (ops_on->device_ops) return;
    static const ir_dtype in[] = {IR_f32, IR_bf16};
    for (uint64_t shape = 0; shape < RANDOM_CONVS; shape++) {
        conv_row row;
        ir_dtype t = in[shape % 2];
        if (!random_row(&row, shape) || !ops_takes(t)) continue;
        conv_check(&row, t, IR_f32, true);
        grad_input_check(&row, t, IR_f32);
        grad_weight_check(&row, t, IR_f32, 3);
    }
}

/* A transposed convolution with output padding reads more of x than the attributes cover. */
static void conv_grad_input_output_padding(void **state)
{
    (void)state;
    int64_t y[] = {1, 2, 3, 3}, w[] = {2, 3, 3, 3}, x[] = {1, 3, 8, 8}, strides[] = {2, 2}, ones[] = {1, 1},
            none[4] = {0};
    k_view dy = view_make(IR_f32, 4, y), wv = view_make(IR_f32, 4, w), dx = view_make(IR_f32, 4, x);
    view_fill(&dy);
    view_fill(&wv);
    ir_attr attr[8] = {0};
    attr[IR_ATTR(conv_grad_input, strides)].list.items = strides;
    attr[IR_ATTR(conv_grad_input, dilations)].list.items = ones;
    attr[IR_ATTR(conv_grad_input, pads)].list.items = none;
    attr[IR_ATTR(conv_grad_input, strides)].list.count = attr[IR_ATTR(conv_grad_input, dilations)].list.count = 2;
    attr[IR_ATTR(conv_grad_input, pads)].list.count = 4;
    attr[IR_ATTR(conv_grad_input, group)].i = 1;
    k_view operands[] = {dy, wv};
    run_kernel(IR_OP_conv_grad_input, operands, 2, &dx, 1, attr);
    const float *result = dx.data;
    for (int i = 0; i < 3 * 64; i++) {
        bool beyond = i % 8 == 7 || i / 8 % 8 == 7;
        if (beyond) assert_true(result[i] == 0);
        else assert_true(isfinite(result[i]));
    }
    free(dy.data);
    free(wv.data);
    free(dx.data);
}

#define BOTH_LAYOUTS(test) \
    cmocka_unit_test(test), { #test " (channels last)", test, ops_begin_channels_last, ops_end_channels_last, NULL }

static int run(void)
{
    const struct CMUnitTest tests[] = {
        BOTH_LAYOUTS(conv_rows),    BOTH_LAYOUTS(conv_grad_input_rows), BOTH_LAYOUTS(conv_grad_weight_rows),
        BOTH_LAYOUTS(random_convs), BOTH_LAYOUTS(in_place_rows),        BOTH_LAYOUTS(conv_grad_input_output_padding),
        OPS_PACKED(conv_rows),      OPS_PACKED(own_conv_rows),          OPS_PACKED(conv_grad_input_rows),
        OPS_PACKED(random_convs),   BOTH_LAYOUTS(every_engine),         BOTH_LAYOUTS(statistics_rows),
    };
    if (ops_on->device_ops) tier_print_part("rows and types", 6);
    return rows_run(ops_on->name, tests, sizeof tests / sizeof *tests);
}

int main(int argc, char **argv) { return ops_main(argc, argv, run); }
