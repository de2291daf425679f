/* rows_scan.c - arg_max, top_k and cum_sum. */
#include "tests/ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int rank, axis;
    int64_t dims[4];
} shapes[] = {
    {1, 0, {1}},     {1, 0, {7}},          {2, 1, {3, 5}},     {2, 0, {5, 3}},        {2, -1, {70, 130}},
    {2, 0, {33, 9}}, {3, 1, {4, 31, 17}},  {3, 0, {40, 2, 3}}, {4, -3, {2, 5, 3, 4}}, {2, 1, {2, 3001}},
    {2, 1, {0, 3}},  {3, 1, {2, 300, 20}}, {2, 1, {5, 32}},    {2, 1, {3, 33}},       {1, 0, {2100}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The dimensions before and after the axis, and its size. */
typedef struct rows {
    int axis;
    int64_t outer, length, inner;
} rows;

static rows rows_of(const k_view *v, int64_t axis)
{
    rows r = {.axis = (int)(axis < 0 ? axis + v->rank : axis), .outer = 1, .length = 1, .inner = 1};
    for (int d = 0; d < v->rank; d++) *(d < r.axis ? &r.outer : d == r.axis ? &r.length : &r.inner) *= v->dims[d];
    return r;
}

static int64_t position(const rows *r, int64_t row, int64_t i)
{
    return (row / r->inner * r->length + i) * r->inner + row % r->inner;
}

/* Few distinct values make ties; a NaN and infinities in floats. */
static void draw(ops_case *c, ir_dtype t, int s, bool special)
{
    const bool ties = s & 1;
    double *x = case_in(c, t, shapes[s / 2].rank, shapes[s / 2].dims, ties ? 0 : -100, ties ? 3 : 100);
    const int64_t n = k_count(&c->in[0]);
    if (t == IR_u8)
        for (int64_t i = 0; i < n; i++) x[i] = fabs(x[i]);
    if (t == IR_u64) /* beyond the signed range */
        for (int64_t i = 0; i < n; i++) x[i] = fabs(x[i]) * (ties ? 0x1p62 : 0x1p57);
    for (int64_t i = 0; ties && i < n; i++) x[i] = floor(x[i]);
    if (!special || !ir_dtype_is_float(t) || n < 20) return;
    x[1] = INFINITY, x[4] = -INFINITY, x[7] = x[n - 2] = NAN;
}

/* ---- arg_max ---- */

static bool beats(double a, double best, bool largest, bool last)
{
    if (isnan(best)) return isnan(a) && last;
    if (isnan(a)) return true;
    return a == best ? last : (a > best) == largest;
}

static void arg_reference(ops_case *c)
{
    const bool largest = c->attr[IR_ATTR(arg_max, largest)].i, last = c->attr[IR_ATTR(arg_max, last)].i;
    const rows r = rows_of(&c->in[0], c->attr[IR_ATTR(arg_max, axis)].i);
    for (int64_t row = 0; row < r.outer * r.inner; row++) {
        int64_t best = 0;
        for (int64_t i = 1; i < r.length; i++)
            if (beats(c->x[0][position(&r, row, i)], c->x[0][position(&r, row, best)], largest, last)) best = i;
        c->expected[0][row] = (double)best;
    }
}

static void arg_max(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < 2 * SHAPES; s++) {
        for (int form = 0; form < 4; form++) {
            ops_case c = case_of(row->op);
            int64_t y[4];
            draw(&c, t, s, form & 1);
            c.attr[IR_ATTR(arg_max, axis)].i = shapes[s / 2].axis;
            c.attr[IR_ATTR(arg_max, largest)].i = form & 1;
            c.attr[IR_ATTR(arg_max, last)].i = form >> 1;
            const rows r = rows_of(&c.in[0], shapes[s / 2].axis);
            for (int d = 0; d < shapes[s / 2].rank; d++) y[d] = d == r.axis ? 1 : shapes[s / 2].dims[d];
            case_out(&c, IR_i64, shapes[s / 2].rank, y);
            case_finish(&c, arg_reference);
        }
    }
}

/* ---- top_k ---- */

static bool sorts_before(double a, double b, bool largest)
{
    if (isnan(a) || isnan(b)) return isnan(a) && !isnan(b) ? largest : isnan(b) && !isnan(a) && !largest;
    return a != b && (a > b) == largest;
}

static void top_k_reference(ops_case *c)
{
    const bool largest = c->attr[IR_ATTR(top_k, largest)].i;
    const rows r = rows_of(&c->in[0], c->attr[IR_ATTR(top_k, axis)].i);
    const rows y = rows_of(&c->out[0], c->attr[IR_ATTR(top_k, axis)].i);
    int64_t *order = malloc((size_t)(r.length + 1) * sizeof *order);
    for (int64_t row = 0; row < r.outer * r.inner; row++) {
        for (int64_t i = 0; i < r.length; i++) { /* insertion sort */
            int64_t at = i;
            const double v = c->x[0][position(&r, row, i)];
            while (at > 0 && sorts_before(v, c->x[0][position(&r, row, order[at - 1])], largest)) at--;
            memmove(order + at + 1, order + at, (size_t)(i - at) * sizeof *order);
            order[at] = i;
        }
        for (int64_t i = 0; i < y.length; i++) {
            const int64_t to = position(&y, row, i);
            c->expected[0][to] = c->x[0][position(&r, row, order[i])];
            if (k_present(&c->out[1])) c->expected[1][to] = (double)order[i];
        }
    }
    free(order);
}

static void top_k(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < 2 * SHAPES; s++) {
        for (int form = 0; form < 4; form++) {
            ops_case c = case_of(row->op);
            int64_t y[4];
            draw(&c, t, s, form & 1);
            const rows r = rows_of(&c.in[0], shapes[s / 2].axis);
            const int64_t k = form < 2 ? (r.length + 2) / 3 : r.length > 100 ? 2 : r.length;
            for (int d = 0; d < shapes[s / 2].rank; d++) y[d] = d == r.axis ? k : shapes[s / 2].dims[d];
            c.attr[IR_ATTR(top_k, axis)].i = shapes[s / 2].axis;
            c.attr[IR_ATTR(top_k, largest)].i = form & 1;
            case_list(&c, IR_ATTR(top_k, count), &k, 1);
            case_out(&c, t, shapes[s / 2].rank, y);
            case_out(&c, form == 3 ? IR_NO_DTYPE : IR_i64, shapes[s / 2].rank, y);
            if (r.length < (ops_brief ? 100 : 500) || form > 1)
                case_check(&c, top_k_reference); /* the others are expensive */
            case_end(&c);
        }
    }
}

/* ---- cum_sum ---- */

static void cum_sum_reference(ops_case *c)
{
    const bool exclusive = c->attr[IR_ATTR(cum_sum, exclusive)].i, reverse = c->attr[IR_ATTR(cum_sum, reverse)].i;
    const rows r = rows_of(&c->in[0], c->attr[IR_ATTR(cum_sum, axis)].i);
    for (int64_t row = 0; row < r.outer * r.inner; row++) {
        for (int64_t i = 0; i < r.length; i++) {
            double sum = 0;
            for (int64_t j = reverse ? r.length - 1 : 0; j != i; j += reverse ? -1 : 1)
                sum += c->x[0][position(&r, row, j)];
            c->expected[0][position(&r, row, i)] = exclusive ? sum : sum + c->x[0][position(&r, row, i)];
        }
    }
}

static void cum_sum(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < SHAPES; s++) {
        for (int form = 0; form < 4; form++) {
            ops_case c = case_of(row->op);
            double *x = case_in(&c, t, shapes[s].rank, shapes[s].dims, ir_dtype_is_float(t) ? -3 : 0, 1);
            const int64_t n = k_count(&c.in[0]);
            const rows r = rows_of(&c.in[0], shapes[s].axis);
            if (form == 1 && ir_dtype_is_float(t) && n > 20) x[n - 3] = INFINITY;
            for (int64_t i = 0; t == IR_u64 && i < n; i++) /* exact in f64, and beyond the signed range */
                x[i] = x[i] * 0x1p12 + (i / r.inner % r.length == 0 ? 0x1p63 : 0);
            for (int64_t i = 0; t == IR_f32 && form == 0 && r.length > 2000 && i < n; i++)
                x[i] = i / r.inner % r.length == 0 ? 0x1p26 : 0.12; /* 32 of them do not change a sum in f32 */
            c.attr[IR_ATTR(cum_sum, axis)].i = shapes[s].axis;
            c.attr[IR_ATTR(cum_sum, exclusive)].i = form & 1;
            c.attr[IR_ATTR(cum_sum, reverse)].i = form >> 1;
            case_out(&c, t, shapes[s].rank, shapes[s].dims);
            c.floor = form == 1 ? 0 : 1;
            c.size = 1;
            c.units = 16;
            case_finish(&c, cum_sum_reference);
        }
    }
}

const ops_row scan_rows[] = {
    {IR_OP_arg_max, "FI", arg_max, 0, 0, NULL, 0, 0},
    {IR_OP_top_k, "FI", top_k, 0, 0, NULL, 0, 0},
    {IR_OP_cum_sum, "FI", cum_sum, 0, 0, NULL, 0, 0},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
