/* rows_sized.c - ops whose results are rows up to a bound and a count: nonzero, nms and unique. */
#include "tests/ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- nonzero ---- */

static void nonzero_reference(ops_case *c)
{
    const int rank = c->in[0].rank;
    int64_t n = 0, at[IR_MAX_RANK];
    memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        if (c->x[0][i] == 0) continue;
        case_coordinates(&c->in[0], i, at);
        for (int k = 0; k < rank; k++) c->expected[0][n * rank + k] = (double)at[k];
        n++;
    }
    c->expected[1][0] = (double)n;
}

static void nonzero(const ops_row *row, ir_dtype t)
{
    static const struct {
        int rank;
        int64_t dims[4];
    } shapes[] = {{0, {0}},          {1, {0}},        {1, {1}},       {1, {513}}, {1, {100003}},
                  {4, {3, 5, 7, 2}}, {2, {300, 301}}, {3, {2, 0, 5}}, {2, {1, 9}}};
    for (int s = 0; s < 3 * (int)(sizeof shapes / sizeof *shapes); s++) {
        ops_case c = case_of(row->op);
        double *x = case_in(&c, t, shapes[s / 3].rank, shapes[s / 3].dims, 0, 3);
        const int64_t n = k_count(&c.in[0]), dims[2] = {n, shapes[s / 3].rank};
        for (int64_t i = 0; i < n; i++) x[i] = s % 3 == 0 ? floor(x[i]) : s % 3 == 1 ? 0 : 1;
        if (t != IR_bool && n > 8) x[3] = ir_dtype_is_float(t) ? NAN : 1, x[5] = ir_dtype_is_float(t) ? -0.0 : 0;
        case_out(&c, IR_i64, 2, dims);
        case_out(&c, IR_i64, 0, NULL);
        case_finish(&c, nonzero_reference);
    }
}

/* ---- nms ---- */

static void corners_of(const ops_case *c, int64_t box, double at[4])
{
    const double *b = c->x[0] + box * 4;
    const bool center = c->attr[IR_ATTR(nms, center)].i;
    for (int k = 0; k < 2; k++) {
        at[k] = center ? b[k] - b[k + 2] / 2 : fmin(b[k], b[k + 2]);
        at[k + 2] = center ? b[k] + b[k + 2] / 2 : fmax(b[k], b[k + 2]);
    }
}

static double overlap(const ops_case *c, int64_t i, int64_t j)
{
    double a[4], b[4], sides[2], areas[2] = {1, 1};
    corners_of(c, i, a);
    corners_of(c, j, b);
    for (int k = 0; k < 2; k++) {
        sides[k] = fmax(0, fmin(a[k + 2], b[k + 2]) - fmax(a[k], b[k]));
        areas[0] *= a[k + 2] - a[k];
        areas[1] *= b[k + 2] - b[k];
    }
    const double both = sides[0] * sides[1];
    return both > 0 && areas[0] > 0 && areas[1] > 0 ? both / (areas[0] + areas[1] - both) : -1;
}

/* Stores the rows of one batch and class; returns their number. */
static int64_t choose_boxes(ops_case *c, int64_t batch, int64_t class, double *rows)
{
    const int64_t boxes = c->in[0].dims[1], first = (batch * c->in[1].dims[1] + class) * boxes;
    const double most = k_present(&c->in[2]) ? c->x[2][0] : INFINITY;
    int64_t n = 0;
    char *done = calloc((size_t)boxes + 1, 1);
    for (;;) {
        int64_t best = -1;
        for (int64_t i = 0; i < boxes; i++) {
            const double score = c->x[1][first + i];
            if (!done[i] && score > c->x[4][0] && (best < 0 || score > c->x[1][first + best])) best = i;
        }
        if (best < 0 || n >= c->attr[IR_ATTR(nms, limit)].list.items[0] || (double)n >= most) break;
        bool keeps = true;
        for (int64_t i = 0; i < n; i++)
            keeps &= overlap(c, batch * boxes + best, batch * boxes + (int64_t)rows[3 * i + 2]) <= c->x[3][0];
        done[best] = 1;
        if (!keeps) continue;
        memcpy(rows + 3 * n++, (double[]){(double)batch, (double)class, (double)best}, 3 * sizeof *rows);
    }
    free(done);
    return n;
}

static void nms_reference(ops_case *c)
{
    int64_t n = 0;
    memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t pair = 0; pair < c->in[1].dims[0] * c->in[1].dims[1]; pair++)
        n += choose_boxes(c, pair / c->in[1].dims[1], pair % c->in[1].dims[1], c->expected[0] + 3 * n);
    c->expected[1][0] = (double)n;
}

/* Numbers are such that f32 and f64 agree on every comparison. */
static void nms(const ops_row *row, ir_dtype t)
{
    static const struct {
        int64_t batches, classes, boxes, limit, max; /* max -1: absent */
        double iou, score;
        bool center;
    } cases[] = {
        {1, 1, 1, 1, -1, 0.5, 0, false},     {2, 3, 40, 40, -1, 0.5, 0, false},  {2, 3, 40, 5, -1, 0.75, 0, true},
        {1, 2, 60, 60, 7, 0.25, 0.5, false}, {3, 1, 20, 20, 0, 0.5, 0, false},   {1, 1, 30, 0, -1, 0.5, 0, false},
        {2, 2, 30, 30, -3, 0.5, 0, true},    {1, 4, 50, 50, 1000, 0, -9, false}, {1, 1, 30, 30, -1, 1, 0, true},
        {0, 2, 5, 5, -1, 0.5, 0, false},     {2, 0, 5, 5, -1, 0.5, 0, false},    {1, 2, 0, 0, -1, 0.5, 0, false},
        {1, 3, 30, 30, -1, 0.5, 99, false},  {4, 9, 1000, 3, -1, 0.5, 1, false},
    };
    for (int s = 0; s < (int)(sizeof cases / sizeof *cases); s++) {
        const int64_t b = cases[s].batches, n = cases[s].boxes, k = cases[s].classes;
        const int64_t limit = cases[s].limit, rows[2] = {b * k * limit, 3};
        ops_case c = case_of(row->op);
        double *boxes = case_in(&c, t, 3, (int64_t[]){b, n, 4}, 0, 8);
        for (int64_t i = 0; i < b * n * 4; i++) boxes[i] = floor(boxes[i]);
        double *scores = case_in(&c, t, 3, (int64_t[]){b, k, n}, 0, 9);
        for (int64_t i = 0; i < b * k * n; i++) scores[i] = floor(scores[i] * 2) / 2;
        if (b * k * n > 8) scores[3] = NAN;
        if (cases[s].max == -1) case_absent(&c);
        else case_in(&c, IR_i64, 0, NULL, (double)cases[s].max, (double)cases[s].max);
        const ir_dtype wide = t == IR_f64 ? IR_f64 : IR_f32;
        case_in(&c, wide, 0, NULL, cases[s].iou, cases[s].iou);
        case_in(&c, wide, 0, NULL, cases[s].score, cases[s].score);
        case_list(&c, IR_ATTR(nms, limit), &limit, 1);
        c.attr[IR_ATTR(nms, center)].i = cases[s].center;
        case_out(&c, IR_i64, 2, rows);
        case_out(&c, IR_i64, 0, NULL);
        case_finish(&c, nms_reference);
    }
}

/* ---- unique ---- */

/* NaN is above all numbers and equals itself. */
static int compare_numbers(double a, double b)
{
    if (isnan(a) || isnan(b)) return !!isnan(a) - !!isnan(b);
    return (a > b) - (a < b);
}

static int compare_rows(const ops_case *c, int64_t i, int64_t j, int64_t width)
{
    int order = 0;
    for (int64_t k = 0; k < width && !order; k++)
        order = compare_numbers(c->x[0][i * width + k], c->x[0][j * width + k]);
    return order;
}

static void unique_reference(ops_case *c)
{
    const int64_t rows = c->in[0].dims[0], width = rows ? k_count(&c->in[0]) / rows : 0;
    const bool sorted = c->attr[IR_ATTR(unique, sorted)].i;
    int64_t n = 0;
    for (int i = 0; i < 3; i++) memset(c->expected[i], 0, (size_t)rows * sizeof(double));
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = 0;
        while (at < n && compare_rows(c, (int64_t)c->expected[0][at], row, width) != 0) at++;
        if (at < n) continue;
        for (at = n++; sorted && at > 0 && compare_rows(c, (int64_t)c->expected[0][at - 1], row, width) > 0; at--)
            c->expected[0][at] = c->expected[0][at - 1];
        c->expected[0][at] = (double)row;
    }
    for (int64_t row = 0; row < rows; row++)
        for (int64_t at = 0; at < n; at++)
            if (compare_rows(c, (int64_t)c->expected[0][at], row, width) == 0) {
                c->expected[1][row] = (double)at;
                c->expected[2][at]++;
            }
    c->expected[3][0] = (double)n;
}

static void unique(const ops_row *row, ir_dtype t)
{
    static const struct {
        int rank;
        int64_t dims[3];
        double high;
    } shapes[] = {{1, {0}, 3},        {1, {1}, 3},        {1, {300}, 90}, {1, {40000}, 9},
                  {2, {20000, 2}, 2}, {3, {60, 3, 2}, 2}, {2, {5, 0}, 3}, {2, {0, 4}, 3}};
    for (int s = 0; s < 2 * (int)(sizeof shapes / sizeof *shapes); s++) {
        const int64_t *dims = shapes[s / 2].dims;
        ops_case c = case_of(row->op);
        const double low = t == IR_bool || t == IR_u8 || t == IR_u16 || t == IR_u32 || t == IR_u64 ? 0 : -2;
        double *x = case_in(&c, t, shapes[s / 2].rank, dims, low, t == IR_bool ? 1 : shapes[s / 2].high);
        const int64_t n = k_count(&c.in[0]);
        for (int64_t i = 0; i < n; i++) x[i] = floor(x[i]);
        if (ir_dtype_is_float(t) && n > 20) x[2] = x[n - 1] = NAN, x[4] = -0.0, x[5] = INFINITY, x[6] = -INFINITY;
        for (int64_t i = 0; t == IR_u64 && i < n; i++) x[i] *= 0x1p57; /* beyond the signed range */
        c.attr[IR_ATTR(unique, sorted)].i = s & 1;
        for (int i = 0; i < 3; i++) case_out(&c, IR_i64, 1, dims);
        case_out(&c, IR_i64, 0, NULL);
        case_finish(&c, unique_reference);
    }
}

/* clang-format off */
#define ROW(op, groups, make) {IR_OP_##op, groups, make, 0, 0, NULL, 0, 0}
const ops_row sized_rows[] = {
    ROW(nonzero, "FIB", nonzero),
    ROW(nms, "F", nms),
    ROW(unique, "FIB", unique),
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
/* clang-format on */
