/* rows_pool.c - pooling; the reference visits every tap of every window. */
#include "kernels/pooling.h"
#include "tests/ops/ops.h"

#include <math.h>

static const struct {
    int spatial;
    int64_t n, c, in[3], kernel[3], strides[3], pads[6], dilations[3];
    int ceil;
} shapes[] = {
    {2, 2, 3, {8, 9}, {2, 2}, {2, 2}, {0}, {1, 1}, 0},
    {2, 1, 2, {7, 7}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 0},
    {2, 1, 2, {7, 8}, {3, 2}, {1, 3}, {1, 0, 0, 1}, {1, 1}, 0},
    {2, 1, 2, {9, 9}, {2, 3}, {1, 1}, {0, 2, 1, 1}, {3, 2}, 0},
    {2, 2, 1, {6, 5}, {3, 3}, {2, 2}, {0}, {1, 1}, 1},
    {2, 1, 3, {5, 5}, {5, 5}, {1, 1}, {0}, {1, 1}, 0},
    {2, 2, 2, {37, 31}, {37, 31}, {1, 1}, {0}, {1, 1}, 0},
    {1, 3, 2, {11}, {4}, {3}, {1, 2}, {1}, 0},
    {3, 1, 2, {4, 5, 6}, {2, 3, 2}, {2, 1, 2}, {0, 1, 0, 0, 1, 0}, {1, 1, 1}, 0},
    {2, 4, 16, {24, 24}, {2, 2}, {2, 2}, {0}, {1, 1}, 0},
    {2, 0, 3, {4, 4}, {2, 2}, {2, 2}, {0}, {1, 1}, 0},
    {2, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0}, {1, 1}, 0},
    {2, 1, 1, {1, 1}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 0},
    {3, 2, 5, {5, 3, 4}, {3, 2, 2}, {2, 1, 1}, {1, 0, 1, 1, 1, 0}, {1, 1, 2}, 1},
    {2, 2, 40, {10, 9}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 1},
    {1, 2, 17, {10}, {3}, {2}, {1, 1}, {2}, 1},
    {2, 2, 65, {7, 7}, {7, 7}, {1, 1}, {0}, {1, 1}, 0},
    {2, 1, 600, {4, 5}, {2, 2}, {2, 2}, {0}, {1, 1}, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int shape; /* of the current case; the references index the table with it */

static int64_t pooled(int s, int d)
{
    int64_t reach = (shapes[s].kernel[d] - 1) * shapes[s].dilations[d] + 1, stride = shapes[s].strides[d];
    int64_t padded = shapes[s].in[d] + shapes[s].pads[d] + shapes[s].pads[d + shapes[s].spatial];
    int64_t n = (padded - reach + (shapes[s].ceil ? stride - 1 : 0)) / stride + 1;
    if (shapes[s].ceil && (n - 1) * stride >= shapes[s].in[d] + shapes[s].pads[d]) n--;
    return n;
}

/* Visits the taps of window `at` [n, c, spatial]. Position -1: in the padding, -2: beyond it. */
typedef struct window {
    int64_t tap, taps, position;
} window;

static bool next_tap(const int64_t *at, window *w)
{
    int spatial = shapes[shape].spatial;
    if (w->taps == 0) {
        w->taps = 1;
        for (int d = 0; d < spatial; d++) w->taps *= shapes[shape].kernel[d];
    }
    if (w->tap == w->taps) return false;
    int64_t rest = w->tap++, position = at[0] * shapes[shape].c + at[1], k[3];
    for (int d = spatial - 1; d >= 0; d--) {
        k[d] = rest % shapes[shape].kernel[d];
        rest /= shapes[shape].kernel[d];
    }
    bool padding = false, beyond = false;
    for (int d = 0; d < spatial; d++) {
        int64_t size = shapes[shape].in[d];
        int64_t i = at[2 + d] * shapes[shape].strides[d] - shapes[shape].pads[d] + k[d] * shapes[shape].dilations[d];
        padding |= i < 0 || i >= size;
        beyond |= i >= size + shapes[shape].pads[d + spatial];
        position = position * size + i;
    }
    w->position = beyond ? -2 : padding ? -1 : position;
    return true;
}

static int64_t column_major(int64_t position)
{
    int spatial = shapes[shape].spatial;
    int64_t at[3], result = 0;
    for (int d = spatial - 1; d >= 0; d--) {
        at[d] = position % shapes[shape].in[d];
        position /= shapes[shape].in[d];
    }
    for (int d = spatial - 1; d >= 0; d--) result = result * shapes[shape].in[d] + at[d];
    for (int d = 0; d < spatial; d++) position *= shapes[shape].in[d];
    return position + result;
}

static void max_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        int64_t at[5], best = -1;
        window w = {0, 0, 0};
        case_coordinates(&c->out[0], i, at);
        while (next_tap(at, &w))
            if (w.position >= 0 && (best < 0 || c->x[0][w.position] > c->x[0][best] || isnan(c->x[0][w.position])))
                best = w.position;
        c->expected[0][i] = best < 0 ? -INFINITY : c->x[0][best];
        if (!k_present(&c->out[1])) continue;
        c->expected[1][i] = (double)(c->attr[IR_ATTR(max_pool, column_major)].i ? column_major(best) : best);
    }
}

static double window_count(const int64_t *at, bool padded, bool sum)
{
    window w = {0, 0, 0};
    if (sum) return 1;
    int n = 0;
    while (next_tap(at, &w)) n += w.position >= 0 || (padded && w.position == -1);
    return n;
}

static void average_reference(ops_case *c)
{
    bool padded = c->attr[IR_ATTR(avg_pool, count_pad)].i, sums = c->attr[IR_ATTR(avg_pool, sum)].i;
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        int64_t at[5];
        window w = {0, 0, 0};
        double sum = 0;
        case_coordinates(&c->out[0], i, at);
        while (next_tap(at, &w))
            if (w.position >= 0) sum += c->x[0][w.position];
        c->expected[0][i] = sum / window_count(at, padded, sums);
    }
}

static void average_grad_reference(ops_case *c)
{
    bool padded = c->attr[IR_ATTR(avg_pool_grad, count_pad)].i, sums = c->attr[IR_ATTR(avg_pool_grad, sum)].i;
    memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        int64_t at[5];
        window w = {0, 0, 0};
        case_coordinates(&c->in[0], i, at);
        while (next_tap(at, &w))
            if (w.position >= 0) c->expected[0][w.position] += c->x[0][i] / window_count(at, padded, sums);
    }
}

static void max_grad_reference(ops_case *c)
{
    memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) c->expected[0][(int64_t)c->x[1][i]] += c->x[0][i];
}

static void windows(ops_case *c, int kernel, int s)
{
    case_list(c, kernel, shapes[s].kernel, shapes[s].spatial);
    case_list(c, kernel + 1, shapes[s].strides, shapes[s].spatial);
    case_list(c, kernel + 2, shapes[s].pads, 2 * shapes[s].spatial);
    case_list(c, kernel + 3, shapes[s].dilations, shapes[s].spatial);
    c->attr[kernel + 4].i = shapes[s].ceil;
}

static void dims_of(int s, int64_t *wide, int64_t *narrow)
{
    wide[0] = narrow[0] = shapes[s].n;
    wide[1] = narrow[1] = shapes[s].c;
    for (int d = 0; d < shapes[s].spatial; d++) {
        wide[2 + d] = shapes[s].in[d];
        narrow[2 + d] = pooled(s, d);
    }
}

static void max_pool(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < 3 * SHAPES; s++) {
        ops_case c = case_of(row->op);
        int64_t wide[5], narrow[5];
        shape = s / 3;
        dims_of(shape, wide, narrow);
        int rank = 2 + shapes[shape].spatial;
        double *x = case_in(&c, t, rank, wide, -9, 9);
        if (s % 3 == 1 && k_count(&c.in[0]) > 9 && ir_dtype_is_float(t)) {
            x[4] = NAN;
            x[5] = -INFINITY;
        }
        for (int64_t i = 0; s % 3 == 2 && i < k_count(&c.in[0]); i++) x[i] = ir_dtype_is_float(t) ? -INFINITY : 0;
        windows(&c, IR_ATTR(max_pool, kernel), shape);
        c.attr[IR_ATTR(max_pool, column_major)].i = s % 3 == 1;
        case_out(&c, t, rank, narrow);
        case_out(&c, s % 2 ? IR_NO_DTYPE : IR_i64, rank, narrow);
        c.units = 0;
        case_finish(&c, max_reference);
    }
}

/* ---- tap numbers in place of indices, on a device (kernels/pooling.h) ---- */

static void tap_reference(ops_case *c)
{
    max_reference(c);
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        int64_t at[5];
        window w = {0, 0, 0};
        const double best = c->expected[1][i];
        case_coordinates(&c->out[0], i, at);
        c->expected[1][i] = POOL_MAX_TAPS;
        while (next_tap(at, &w))
            if (w.position >= 0 && (double)w.position == best) c->expected[1][i] = (double)(w.tap - 1);
    }
}

static void tap_grad_reference(ops_case *c)
{
    memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        int64_t at[5];
        window w = {0, 0, 0};
        case_coordinates(&c->in[0], i, at);
        while (next_tap(at, &w))
            if (w.position >= 0 && (double)(w.tap - 1) == c->x[1][i]) c->expected[0][w.position] += c->x[0][i];
    }
}

/* Of the current shape; the gradient with all tap numbers, also of taps in the padding. */
static void taps(ir_op op, ir_dtype t)
{
    const bool back = op == IR_OP_max_pool_grad;
    const int rank = 2 + shapes[shape].spatial;
    int64_t wide[5], narrow[5], n = 1;
    ops_case c = case_of(op);
    for (int d = 0; d < shapes[shape].spatial; d++) n *= shapes[shape].kernel[d];
    if (n > POOL_MAX_TAPS) return;
    dims_of(shape, wide, narrow);
    case_in(&c, t, rank, back ? narrow : wide, -9, 9);
    if (back) case_in(&c, IR_u8, rank, narrow, 0, (double)n);
    if (back) case_list(&c, 0, wide, rank);
    windows(&c, (back ? ir_op_get(op)->n_attr : 0) + IR_ATTR(max_pool, kernel), shape);
    case_out(&c, t, rank, back ? wide : narrow);
    if (!back) case_out(&c, IR_u8, rank, narrow);
    c.floor = 1;
    c.units = back ? 40 : 0;
    case_finish(&c, back ? tap_grad_reference : tap_reference);
}

static void all_taps(const ops_row *row, ir_dtype t)
{
    for (shape = 0; ops_on->device_ops && shape < SHAPES; shape++) taps(row->op, t);
}

/* Random positions: many coincide, and those of a split plane belong to all of its pieces. */
static void max_pool_grad(const ops_row *row, ir_dtype t)
{
    static const struct {
        int rank;
        int64_t wide[5], narrow[5];
    } sizes[] = {
        {4, {3, 2, 6, 5}, {3, 2, 3, 2}},       {4, {1, 1, 107, 109}, {1, 1, 17, 20}},
        {4, {12, 100, 3, 2}, {12, 100, 1, 3}}, {4, {2, 1, 1, 1}, {2, 1, 20, 15}},
        {4, {0, 3, 4, 4}, {0, 3, 2, 2}},       {3, {2, 5, 9}, {2, 5, 4}},
        {5, {2, 3, 4, 3, 5}, {2, 3, 2, 3, 2}}, {4, {2, 17, 9, 8}, {2, 17, 4, 4}},
    };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t *wide = sizes[s].wide, *narrow = sizes[s].narrow;
        int64_t wide_area = 1, narrow_area = 1;
        int rank = sizes[s].rank;
        ops_case c = case_of(row->op);
        if ((s == 1 || s == 2) && t != IR_f32) continue; /* large: only once */
        for (int d = 2; d < rank; d++) wide_area *= wide[d], narrow_area *= narrow[d];
        case_in(&c, t, rank, narrow, -9, 9);
        double *at = case_in(&c, IR_i64, rank, narrow, 0, (double)(wide_area - 1));
        for (int64_t i = 0; i < k_count(&c.in[1]); i++) at[i] += (double)(i / narrow_area * wide_area);
        if (k_count(&c.in[1])) at[1] = at[0]; /* overlapping windows share a maximum */
        case_list(&c, 0, wide, rank);
        case_out(&c, t, rank, wide);
        c.floor = 1;
        c.units = 40;
        case_finish(&c, max_grad_reference);
    }
}

static void avg_pool(const ops_row *row, ir_dtype t)
{
    bool back = row->op == IR_OP_avg_pool_grad;
    for (int s = 0; s < 3 * SHAPES; s++) {
        ops_case c = case_of(row->op);
        int64_t wide[5], narrow[5];
        shape = s / 3;
        dims_of(shape, wide, narrow);
        int rank = 2 + shapes[shape].spatial;
        case_in(&c, t, rank, back ? narrow : wide, s % 3 == 2 ? 0 : -9, 9);
        if (back) case_list(&c, IR_ATTR(avg_pool_grad, shape), wide, rank);
        windows(&c, back ? IR_ATTR(avg_pool_grad, kernel) : IR_ATTR(avg_pool, kernel), shape);
        c.attr[back ? IR_ATTR(avg_pool_grad, count_pad) : IR_ATTR(avg_pool, count_pad)].i = s % 3 == 1;
        c.attr[back ? IR_ATTR(avg_pool_grad, sum) : IR_ATTR(avg_pool, sum)].i = s % 3 == 2;
        case_out(&c, t, rank, back ? wide : narrow);
        c.floor = 1;
        c.size = 1;                     /* terms of both signs cancel */
        c.units = s % 3 == 2 ? 40 : 16; /* sums: more than a thousand terms of one sign, one after the other */
        case_finish(&c, back ? average_grad_reference : average_reference);
    }
}

const ops_row pool_rows[] = {
    {IR_OP_max_pool, "FI", max_pool, 0, 0, NULL, 0, 0},
    {IR_OP_max_pool_grad, "F", max_pool_grad, 0, 0, NULL, 0, 0},
    {IR_OP_max_pool, "FI", all_taps, 0, 0, NULL, 0, 0},
    {IR_OP_max_pool_grad, "F", all_taps, 0, 0, NULL, 0, 0},
    {IR_OP_avg_pool, "F", avg_pool, 0, 0, NULL, 0, 0},
    {IR_OP_avg_pool_grad, "F", avg_pool, 0, 0, NULL, 0, 0},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
