/* rows_norm.c - softmax, layer and batch normalization, with gradients from the textbook formulas. */
#include "kernels/statistics.h"
#include "tests/ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ir_dtype wide(ir_dtype t) { return t == IR_f64 ? t : IR_f32; }

/* ---- softmax ---- */

static const struct {
    int rank, axis;
    int64_t dims[4];
} rows[] = {
    {1, 0, {7}},
    {2, -1, {3, 10}},
    {2, 0, {3, 10}},
    {2, 1, {33, 1029}},
    {3, 1, {2, 5, 37}},
    {4, 1, {2, 3, 4, 5}},
    {2, 1, {4, 1}},
    {2, 1, {0, 4}},
    {2, 1, {4, 0}},
    {3, 1, {4, 60, 200}},
    {2, 1, {9, 1024}},
    {2, 1, {3, 5003}},
    {2, 1, {257, 31}},
    {3, 1, {1, 33, 32}},
#define EDGE(n) {2, 1, {3, n}},
    OPS_EDGES(EDGE)
#undef EDGE
        {2, 1, {2, 1023}},
    {2, 1, {2, 1025}},
};

typedef struct line {
    int64_t start, stride, length;
} line;

/* Returns line i along the axis. */
static line line_of(const ops_case *c, int64_t i)
{
    const k_view *v = &c->in[0];
    int axis = (int)(c->attr[0].i < 0 ? c->attr[0].i + v->rank : c->attr[0].i);
    line l = {0, 1, v->dims[axis]};
    for (int d = axis + 1; d < v->rank; d++) l.stride *= v->dims[d];
    l.start = i / l.stride * l.stride * l.length + i % l.stride;
    return l;
}

static void softmax_reference(ops_case *c)
{
    bool logarithm = c->op == IR_OP_log_softmax;
    int64_t n = k_count(&c->in[0]);
    for (int64_t i = 0; n && i < n / line_of(c, 0).length; i++) {
        line l = line_of(c, i);
        double most = -INFINITY;
        long double sum = 0;
        for (int64_t k = 0; k < l.length; k++) most = fmax(most, c->x[0][l.start + k * l.stride]);
        for (int64_t k = 0; k < l.length; k++) sum += exp(c->x[0][l.start + k * l.stride] - most);
        for (int64_t k = 0; k < l.length; k++) {
            double x = c->x[0][l.start + k * l.stride] - most;
            c->expected[0][l.start + k * l.stride] = logarithm ? x - log((double)sum) : exp(x) / (double)sum;
        }
    }
}

static void softmax_grad_reference(ops_case *c)
{
    bool logarithm = c->op == IR_OP_log_softmax_grad;
    int64_t n = k_count(&c->in[0]);
    for (int64_t i = 0; n && i < n / line_of(c, 0).length; i++) {
        line l = line_of(c, i);
        double sum = 0;
        bool arrives = false;
        for (int64_t k = 0; k < l.length; k++) {
            int64_t at = l.start + k * l.stride;
            sum += logarithm ? c->x[0][at] : c->x[0][at] * c->x[1][at];
            arrives |= c->x[0][at] != 0;
        }
        for (int64_t k = 0; k < l.length; k++) {
            int64_t at = l.start + k * l.stride;
            double dy = c->x[0][at], y = c->x[1][at];
            c->expected[0][at] = !arrives ? 0 : logarithm ? dy - exp(y) * sum : y * (dy - sum);
        }
    }
}

/* Makes every fourth row the result of a fully masked one, which has no gradient, and then one that has. */
static void mask_rows(ops_case *c, double *dy, double *y)
{
    const int64_t n = k_count(&c->in[0]);
    for (int64_t i = 1; n && i < n / line_of(c, 0).length; i += 4) {
        const line l = line_of(c, i), next = line_of(c, i + 1);
        for (int64_t k = 0; k < l.length; k++) {
            y[l.start + k * l.stride] = NAN;
            dy[l.start + k * l.stride] = k % 2 ? -0.0 : 0;
            if (i + 1 < n / l.length) y[next.start + k * next.stride] = NAN;
        }
    }
}

static void softmax(const ops_row *row, ir_dtype t)
{
    bool back = row->op == IR_OP_softmax_grad || row->op == IR_OP_log_softmax_grad;
    bool logarithm = row->op == IR_OP_log_softmax || row->op == IR_OP_log_softmax_grad;
    for (int s = 0; s < (int)(sizeof rows / sizeof *rows); s++) {
        ops_case c = case_of(row->op);
        double *x = case_in(&c, t, rows[s].rank, rows[s].dims, -8, 8);
        if (s == 1 && !back) x[3] = -INFINITY;                                     /* one masked element */
        for (int i = 0; s == 3 && !back && i < 1029; i++) x[1029 + i] = -INFINITY; /* all masked: NaN */
        double *y = back ? case_in(&c, t, rows[s].rank, rows[s].dims, logarithm ? -6 : 0, logarithm ? 0 : 1) : NULL;
        c.attr[0].i = rows[s].axis;
        if (back) mask_rows(&c, x, y);
        case_out(&c, t == IR_bf16 && !back ? IR_f32 : t, rows[s].rank, rows[s].dims);
        c.floor = back ? 4 : logarithm ? 1 : 0;
        c.units = back ? 64 : 16;
        case_finish(&c, back ? softmax_grad_reference : softmax_reference);
    }
}

/* ---- layer norm ---- */

static const struct {
    int rank, axis;
    int64_t dims[4];
} layers[] = {
    {2, -1, {3, 8}},
    {2, 1, {5, 1}},
    {3, 1, {4, 3, 7}},
    {1, 0, {9}},
    {2, 1, {70, 1030}},
    {3, -1, {8, 40, 130}},
    {2, 1, {0, 4}},
    {2, 1, {3, 0}},
    {4, 2, {2, 3, 4, 5}},
    {2, 0, {6, 11}},
    {3, 2, {1, 1, 600}},
#define EDGE(n) {2, 1, {3, n}},
    OPS_EDGES(EDGE)
#undef EDGE
        {2, 1, {257, 33}},
};

static int64_t length_from(const k_view *v, int axis)
{
    int64_t n = 1;
    for (int d = axis < 0 ? axis + v->rank : axis; d < v->rank; d++) n *= v->dims[d];
    return n;
}

static void statistics(const double *x, int64_t n, int64_t stride, double *mean, double *variance)
{
    long double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i * stride];
    *mean = (double)(sum / n);
    for (int64_t i = 0; i < n; i++) squares += pow(x[i * stride] - *mean, 2);
    *variance = (double)(squares / n);
}

static int64_t rows_before(const k_view *v, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < (axis < 0 ? axis + v->rank : axis); i++) n *= v->dims[i];
    return n;
}

static void layer_norm_reference(ops_case *c)
{
    const int axis = (int)c->attr[IR_ATTR(layer_norm, axis)].i;
    int64_t n = length_from(&c->in[0], axis);
    for (int64_t r = 0; r < rows_before(&c->in[0], axis); r++) {
        double mean, variance;
        statistics(c->x[0] + r * n, n, 1, &mean, &variance);
        if (!c->attr[IR_ATTR(layer_norm, center)].i) variance += mean * mean, mean = 0;
        double rstd = 1 / sqrt(variance + c->attr[IR_ATTR(layer_norm, eps)].f);
        for (int64_t i = 0; i < n; i++)
            c->expected[0][r * n + i] = (c->x[0][r * n + i] - mean) * rstd * (k_present(&c->in[1]) ? c->x[1][i] : 1) +
                                        (k_present(&c->in[2]) ? c->x[2][i] : 0);
        if (k_present(&c->out[1])) c->expected[1][r] = mean, c->expected[2][r] = rstd;
    }
}

static void layer_norm_grad_reference(ops_case *c)
{
    const int axis = (int)c->attr[IR_ATTR(layer_norm_grad, axis)].i;
    int64_t n = length_from(&c->in[0], axis);
    for (int64_t i = 0; i < n; i++) c->expected[1][i] = c->expected[2][i] = 0;
    for (int64_t r = 0; r < rows_before(&c->in[0], axis); r++) {
        const bool center = c->attr[IR_ATTR(layer_norm_grad, center)].i, scaled = k_present(&c->in[2]);
        double mean = center ? c->x[3][r] : 0, rstd = c->x[4][r], a = 0, b = 0;
        for (int64_t i = 0; i < n; i++) {
            double dy = c->x[0][r * n + i], h = (c->x[1][r * n + i] - mean) * rstd;
            double g = dy * (scaled ? c->x[2][i] : 1);
            if (center) a += g / (double)n;
            b += g * h / (double)n;
            c->expected[1][i] += dy * h;
            c->expected[2][i] += dy;
        }
        for (int64_t i = 0; i < n; i++) {
            double dy = c->x[0][r * n + i], h = (c->x[1][r * n + i] - mean) * rstd;
            c->expected[0][r * n + i] = rstd * (dy * (scaled ? c->x[2][i] : 1) - a - h * b);
        }
    }
}

static void layer_norm(const ops_row *row, ir_dtype t)
{
    bool back = row->op == IR_OP_layer_norm_grad;
    for (int s = 0; s < 2 * (int)(sizeof layers / sizeof *layers); s++) {
        ops_case c = case_of(row->op);
        const bool scaled = s % 4 != 2, center = s % 8 < 4;
        int rank = layers[s / 2].rank, axis = layers[s / 2].axis, first = axis < 0 ? axis + rank : axis;
        const int64_t *dims = layers[s / 2].dims;
        int64_t kept[4];
        for (int d = 0; d < rank; d++) kept[d] = d < first ? dims[d] : 1;
        ir_dtype group = s & 1 ? t : wide(t);
        case_in(&c, t, rank, dims, -2, 3);
        if (back) case_in(&c, t, rank, dims, -2, 3);
        if (scaled) case_in(&c, group, rank - first, dims + first, 0.5, 1.5);
        else case_absent(&c);
        if (!scaled) group = wide(t);
        if (back) {
            case_in(&c, wide(t), rank, kept, 0.4, 0.6);
            case_in(&c, wide(t), rank, kept, 0.5, 0.8);
            if (s % 3) case_addend(&c, t, rank, dims, -2, 2);
        } else if (s & 1) {
            case_in(&c, group, rank - first, dims + first, -1, 1);
        } else {
            case_absent(&c);
        }
        c.attr[back ? IR_ATTR(layer_norm_grad, axis) : IR_ATTR(layer_norm, axis)].i = axis;
        c.attr[back ? IR_ATTR(layer_norm_grad, center) : IR_ATTR(layer_norm, center)].i = center;
        case_out(&c, t, rank, dims);
        for (int k = 0; k < 2; k++) {
            if (back) case_out(&c, group, rank - first, dims + first);
            else case_out(&c, s & 1 ? wide(t) : IR_NO_DTYPE, rank, kept);
        }
        c.floor = c.size = 1;
        c.units = back ? 60 : 12;
        case_finish(&c, back ? layer_norm_grad_reference : layer_norm_reference);
    }
}

/* ---- batch norm ---- */

static const struct {
    int rank;
    int64_t dims[5];
} images[] = {
    {2, {9, 5}},
    {2, {300, 40}},
    {3, {4, 3, 7}},
    {4, {2, 3, 5, 5}},
    {4, {3, 17, 2, 2}},
    {4, {8, 6, 30, 31}},
    {5, {2, 3, 2, 3, 4}},
    {2, {1, 3}},
    {4, {2, 33, 3, 5}},
    {4, {4, 2, 1, 700}},
    {4, {4, 2, 50, 101}},
#define EDGE(n) {3, {1, 2, n}},
    OPS_EDGES(EDGE)
#undef EDGE
        {2, {257, 33}},
    {4, {3, 1, 5, 7}},
    {4, {2, 600, 3, 2}},
    {4, {5, 16, 20, 20}},
    {5, {1, 40, 3, 9, 10}},
    {3, {300, 3, 2}},
    {3, {15, 20, 151}},
};

static int64_t inner_size(const k_view *v)
{
    int64_t n = 1;
    for (int d = 2; d < v->rank; d++) n *= v->dims[d];
    return n;
}

#define EACH_OF_CHANNEL(view, channel, at) \
    for (int64_t at = 0, size_ = inner_size(view); at < k_count(view); at++) \
        if (at / size_ % (view)->dims[1] == (channel))

static void batch_norm_reference(ops_case *c)
{
    const k_view *x = &c->in[0];
    bool training = c->attr[IR_ATTR(batch_norm, training)].i;
    double m = c->attr[IR_ATTR(batch_norm, momentum)].f, n = (double)(k_count(x) / x->dims[1]);
    for (int64_t k = 0; k < x->dims[1]; k++) {
        long double sum = 0, squares = 0;
        EACH_OF_CHANNEL(x, k, at) sum += c->x[0][at];
        double mean = (double)sum / n;
        EACH_OF_CHANNEL(x, k, at) squares += pow(c->x[0][at] - mean, 2);
        double variance = (double)squares / n;
        c->expected[1][k] = training ? c->x[3][k] * m + mean * (1 - m) : c->x[3][k];
        c->expected[2][k] = training ? c->x[4][k] * m + variance * (1 - m) : c->x[4][k];
        if (!training) mean = c->x[3][k], variance = c->x[4][k];
        double rstd = 1 / sqrt(variance + c->attr[IR_ATTR(batch_norm, eps)].f);
        c->expected[3][k] = mean;
        c->expected[4][k] = rstd;
        EACH_OF_CHANNEL(x, k, at)
        c->expected[0][at] = (c->x[0][at] - mean) * rstd * c->x[1][k] + c->x[2][k];
    }
}

static void batch_norm_grad_reference(ops_case *c)
{
    const k_view *x = &c->in[1];
    bool training = c->attr[IR_ATTR(batch_norm_grad, training)].i;
    double n = (double)(k_count(x) / x->dims[1]);
    for (int64_t k = 0; k < x->dims[1]; k++) {
        double mean = c->x[3][k], rstd = c->x[4][k];
        long double sum = 0, dot = 0;
        EACH_OF_CHANNEL(x, k, at)
        {
            sum += c->x[0][at];
            dot += (long double)c->x[0][at] * (c->x[1][at] - mean) * rstd;
        }
        const double a = (double)sum, b = (double)dot;
        c->expected[1][k] = b;
        c->expected[2][k] = a;
        EACH_OF_CHANNEL(x, k, at)
        {
            double h = (c->x[1][at] - mean) * rstd, shift = training ? a / n + h * b / n : 0;
            c->expected[0][at] = c->x[2][k] * rstd * (c->x[0][at] - shift);
        }
    }
}

/* Passes the sums of x, to which `far` is added. The tolerance is that of the variance (kernels/statistics.h). */
static void know_sums(ops_case *c, double far)
{
    const k_view *x = &c->in[0];
    double *sum = case_in(c, IR_f32, 1, x->dims + 1, 0, 0), *squares = case_in(c, IR_f32, 1, x->dims + 1, 0, 0);
    for (int64_t at = 0, size = inner_size(x); at < k_count(x); at++) {
        const int64_t channel = at / size % x->dims[1];
        uint64_t raw;
        ir_store_f64(x->dtype, &raw, c->x[0][at] + far);
        c->x[0][at] = ir_load_f64(x->dtype, &raw);
        sum[channel] += c->x[0][at];
        squares[channel] += c->x[0][at] * c->x[0][at];
    }
    c->n_extra = K_SLOT(statistics, n_in);
    c->units *= 2 + far * far;
}

static void batch_norm_known(ir_dtype t)
{
    for (int s = 0; s < (int)(sizeof images / sizeof *images); s++) {
        ops_case c = case_of(IR_OP_batch_norm);
        const int64_t *channels = images[s].dims + 1;
        if (images[s].dims[0] * images[s].dims[2] < 8) continue; /* hardly any variance */
        case_in(&c, t, images[s].rank, images[s].dims, -2, 3);
        case_in(&c, IR_f32, 1, channels, 0.5, 1.5);
        case_in(&c, IR_f32, 1, channels, -1, 1);
        case_in(&c, IR_f32, 1, channels, -0.5, 0.5);
        case_in(&c, IR_f32, 1, channels, 0.5, 1.5);
        c.attr[IR_ATTR(batch_norm, training)].i = 1;
        case_out(&c, s % 3 ? t : IR_NO_DTYPE, images[s].rank, images[s].dims);
        for (int k = IR_OUT(batch_norm, mean_out); k <= IR_OUT(batch_norm, saved_rstd); k++)
            case_out(&c, IR_f32, 1, channels);
        c.floor = c.size = 1;
        c.units = 16;
        know_sums(&c, s % 2 ? 20 : 0);
        case_finish(&c, batch_norm_reference);
    }
}

static void batch_norm(const ops_row *row, ir_dtype t)
{
    bool back = row->op == IR_OP_batch_norm_grad;
    if (!back && t != IR_f64) batch_norm_known(t);
    for (int s = 0; s < 4 * (int)(sizeof images / sizeof *images); s++) {
        ops_case c = case_of(row->op);
        int rank = images[s / 4].rank;
        const int64_t *dims = images[s / 4].dims, *channels = dims + 1;
        ir_dtype group = s & 2 ? t : wide(t);
        case_in(&c, t, rank, dims, -2, 3);
        if (back) case_in(&c, t, rank, dims, -2, 3);
        case_in(&c, group, 1, channels, 0.5, 1.5);
        if (!back) case_in(&c, group, 1, channels, -1, 1);
        case_in(&c, back ? wide(t) : group, 1, channels, -0.5, 0.5);
        case_in(&c, back ? wide(t) : group, 1, channels, 0.5, 1.5);
        c.attr[back ? IR_ATTR(batch_norm_grad, training) : IR_ATTR(batch_norm, training)].i = s & 1;
        case_out(&c, t, rank, dims);
        case_out(&c, group, 1, channels);
        case_out(&c, group, 1, channels);
        if (!back) {
            case_out(&c, wide(t), 1, channels);
            case_out(&c, wide(t), 1, channels);
        }
        c.floor = c.size = 1;
        c.units = back ? 100 : 16;
        case_finish(&c, back ? batch_norm_grad_reference : batch_norm_reference);
    }
}

/* The gradient of a relu first: whether its operand is recomputed or its result is read, whether a second gradient is
 * added, and whether the gradient of the operand is stored. */
static const struct {
    bool recomputes, adds, stores;
} relus[] = {
    {true, false, false}, {true, true, false}, {false, false, false}, {false, false, true}, {false, true, true}};
enum {
    SLOTS = 5,
    BIAS = SLOTS + K_SLOT(relu, bias),
    Y = SLOTS + K_SLOT(relu, y),
    ADDEND = SLOTS + K_SLOT(relu, addend)
};

static double as_stored(ir_dtype t, double value)
{
    double stored;
    ir_store_f64(t, &stored, value);
    return ir_load_f64(t, &stored);
}

/* The operand of the relu with one rounding per op, each of which is exact in f64. */
static double recomputed(const ops_case *c, int64_t k, double x)
{
    const float centred = (float)(x - c->x[3][k]), normal = (float)(centred * c->x[4][k]);
    return as_stored(c->in[1].dtype, (float)((float)(normal * c->x[2][k]) + c->x[BIAS][k]));
}

static void relu_grad_reference(ops_case *c)
{
    const ir_dtype t = c->in[0].dtype;
    const int64_t n = k_count(&c->in[0]);
    const bool stores = k_present(&c->out[SLOTS - 2]);
    double *given = malloc((size_t)n * sizeof *given + 1);
    memcpy(given, c->x[0], (size_t)n * sizeof *given);
    for (int64_t k = 0; k < c->in[1].dims[1]; k++) EACH_OF_CHANNEL(&c->in[1], k, at)
        {
            const double y = k_present(&c->in[BIAS]) ? recomputed(c, k, c->x[1][at]) : c->x[Y][at];
            if (k_present(&c->in[ADDEND])) c->x[0][at] = as_stored(t, c->x[0][at] + c->x[ADDEND][at]);
            if (y <= 0) c->x[0][at] = 0;
            if (stores) c->expected[SLOTS - 2][at] = c->x[0][at];
        }
    batch_norm_grad_reference(c);
    memcpy(c->x[0], given, (size_t)n * sizeof *given);
    free(given);
}

static void batch_norm_relu(const ops_row *row, ir_dtype t)
{
    enum { RELUS = sizeof relus / sizeof *relus };
    for (int s = 0; ops_on->device_ops && s < RELUS * (int)(sizeof images / sizeof *images); s++) {
        ops_case c = case_of(row->op);
        const int rank = images[s / RELUS].rank, form = s % RELUS;
        const int64_t *dims = images[s / RELUS].dims, *channels = dims + 1;
        const ir_dtype group = s % 3 ? wide(t) : t;
        case_in(&c, t, rank, dims, -2, 3);
        case_in(&c, t, rank, dims, -2, 3);
        case_in(&c, group, 1, channels, -1.5, 1.5);
        case_in(&c, wide(t), 1, channels, -0.5, 0.5);
        case_in(&c, wide(t), 1, channels, 0.5, 1.5);
        if (relus[form].recomputes) case_in(&c, group, 1, channels, -1, 1), case_absent(&c);
        else case_absent(&c), case_in(&c, t, rank, dims, -1, 1);
        if (relus[form].adds) case_in(&c, t, rank, dims, -2, 3);
        else case_absent(&c);
        if (!relus[form].recomputes && k_count(&c.in[Y]) > 9) { /* neither 0 nor NaN is positive or negative */
            c.x[Y][3] = 0, c.x[Y][4] = -0.0, c.x[Y][7] = NAN;
            c.x[0][3] = INFINITY, c.x[0][4] = NAN;
        }
        c.n_extra = ADDEND + 1 - SLOTS;
        c.attr[IR_ATTR(batch_norm_grad, training)].i = s & 1;
        case_out(&c, t, rank, dims);
        case_out(&c, group, 1, channels);
        case_out(&c, group, 1, channels);
        case_out(&c, relus[form].stores ? t : IR_NO_DTYPE, rank, dims);
        c.floor = c.size = 1;
        c.units = 100;
        case_finish(&c, relu_grad_reference);
    }
}

/* clang-format off */
#define ROW(op, make) {IR_OP_##op, "F", make, 0, 0, NULL, 0, 0}
/* clang-format on */
const ops_row norm_rows[] = {
    ROW(softmax, softmax),
    ROW(softmax_grad, softmax),
    ROW(log_softmax, softmax),
    ROW(log_softmax_grad, softmax),
    ROW(layer_norm, layer_norm),
    ROW(layer_norm_grad, layer_norm),
    ROW(batch_norm, batch_norm),
    ROW(batch_norm_grad, batch_norm),
    ROW(batch_norm_grad, batch_norm_relu),
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
