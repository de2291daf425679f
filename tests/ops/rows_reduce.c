/* rows_reduce.c - the reductions, the global norm and determinants. */
#include "tests/ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 11 };

static const struct {
    int rank, n_axes;
    int64_t dims[4], axes[4];
} shapes[] = {{0, 0, {0}, {0}},
              {1, 1, {1}, {0}},
              {1, 1, {0}, {0}},
              {1, 0, {700}, {0}},
              {1, 1, {70001}, {0}},
              {2, 1, {5, 7}, {1}},
              {2, 1, {5, 7}, {0}},
              {2, 2, {5, 7}, {0, 1}},
              {2, 1, {4000, 10}, {0}},
              {2, 1, {40, 1300}, {-2}},
              {2, 1, {40, 1300}, {-1}},
              [LARGE] = {2, 1, {2050, 265}, {1}},
              {2, 1, {3, 40003}, {1}},
              {3, 1, {2, 129, 263}, {1}},
              {3, 2, {3, 4, 5}, {0, 2}},
              {3, 1, {3, 4, 5}, {1}},
              {4, 3, {2, 3, 5, 49}, {0, 2, 3}},
              {4, 2, {3, 5, 7, 9}, {1, 3}},
              {4, 2, {3, 5, 7, 9}, {0, 2}},
              {4, 3, {16, 6, 40, 41}, {0, 2, 3}},
              {2, 1, {3, 0}, {1}},
              {2, 1, {0, 3}, {1}},
              {3, 1, {5, 1, 7}, {1}},
#define EDGE(n) {2, 1, {3, n}, {1}}, {2, 1, {n, 3}, {0}},
              OPS_EDGES(EDGE)
#undef EDGE
};

static bool is_axis(int s, int d)
{
    for (int k = 0; k < shapes[s].n_axes; k++)
        if ((shapes[s].axes[k] + shapes[s].rank) % shapes[s].rank == d) return true;
    return false;
}

/* What an op computes: `join` combines the elements, `finish` the result with their number. */
typedef struct formula {
    ir_op op;
    double start;
    long double (*join)(long double s, long double a);
    long double (*finish)(long double s, double n);
} formula;

static long double join_sum(long double s, long double a) { return s + a; }
static long double join_abs(long double s, long double a) { return s + fabsl(a); }
static long double join_squares(long double s, long double a) { return s + a * a; }
static long double join_product(long double s, long double a) { return s * a; }
static long double join_max(long double s, long double a) { return isnan(s) || isnan(a) ? NAN : fmaxl(s, a); }
static long double join_min(long double s, long double a) { return isnan(s) || isnan(a) ? NAN : fminl(s, a); }
static long double divide(long double s, double n) { return s / n; }
static long double root(long double s, double n) { return (void)n, sqrtl(s); }
static long double logarithm(long double s, double n) { return (void)n, logl(s); }

static const formula formulas[] = {
    {IR_OP_reduce_sum, 0, join_sum, NULL},          {IR_OP_reduce_mean, 0, join_sum, divide},
    {IR_OP_reduce_max, -INFINITY, join_max, NULL},  {IR_OP_reduce_min, INFINITY, join_min, NULL},
    {IR_OP_reduce_prod, 1, join_product, NULL},     {IR_OP_reduce_l1, 0, join_abs, NULL},
    {IR_OP_reduce_l2, 0, join_squares, root},       {IR_OP_reduce_sum_square, 0, join_squares, NULL},
    {IR_OP_reduce_log_sum, 0, join_sum, logarithm},
};

static const formula *formula_of(ir_op op)
{
    int i = 0;
    while (formulas[i].op != op) i++;
    return &formulas[i];
}

/* The nearest number of the type: without elements, the maximum is -infinity or the lowest integer. */
static double saturated(ir_dtype t, double v)
{
    unsigned char bytes[8];
    if (ir_dtype_is_float(t)) return v;
    if (t == IR_bool) return v > 0;
    ir_store_f64(t, bytes, v);
    return ir_load_f64(t, bytes);
}

static void reference(ops_case *c)
{
    const k_view *x = &c->in[0], *y = &c->out[0]; /* y keeps reduced dimensions as 1 */
    const formula *f = formula_of(c->op);
    double terms = 1;
    for (int d = 0; d < x->rank; d++)
        if (y->dims[d] != x->dims[d]) terms *= (double)x->dims[d];
    long double *sums = malloc((size_t)(k_count(y) + 1) * sizeof *sums);
    for (int64_t i = 0; i < k_count(y); i++) sums[i] = f->start;
    for (int64_t i = 0; i < k_count(x); i++) {
        long double *s = &sums[case_broadcast(y, x, i)];
        *s = f->join(*s, c->x[0][i]);
    }
    for (int64_t i = 0; i < k_count(y); i++) {
        double s = (double)(f->finish ? f->finish(sums[i], terms) : sums[i]);
        if (f->finish && !ir_dtype_is_float(x->dtype)) s = terms == 0 ? 0 : (double)truncl(f->finish(sums[i], terms));
        c->expected[0][i] = terms == 0 ? saturated(y->dtype, s) : s;
    }
    free(sums);
}

/* The first term of each result of a u64 case that exceeds the signed range; the others remain small. */
static void enlarge(ops_case *c, ir_op op, int k)
{
    int64_t at[IR_MAX_RANK];
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        bool first = true;
        case_coordinates(&c->in[0], i, at);
        for (int d = 0; d < shapes[k].rank; d++) first &= !is_axis(k, d) || at[d] == 0;
        if (first) c->x[0][i] = op == IR_OP_reduce_sum_square ? 3.5e9 : 0x1.8p63 - 0x1p20 * (double)(i % 9);
    }
}

/* Draws elements of both signs if `wide`; products and logarithms have elements that keep their results in range. */
static void draw(ops_case *c, ir_op op, ir_dtype t, int k, bool wide)
{
    double low = wide ? -100 : 0, high = wide ? 100 : 3;
    if (op == IR_OP_reduce_prod)
        low = ir_dtype_is_float(t) ? 0.97 : t == IR_u64 ? 1 : -1, high = ir_dtype_is_float(t) ? 1.03 : 1;
    if (op == IR_OP_reduce_log_sum) low = 0.5;
    if (op == IR_OP_reduce_sum_square && !ir_dtype_is_float(t)) low = -3, high = 3;
    double *x = case_in(c, t, shapes[k].rank, shapes[k].dims, low, high);
    if (wide && t == IR_u64) enlarge(c, op, k);
    const bool extreme = op == IR_OP_reduce_max || op == IR_OP_reduce_min;
    if (extreme && wide && ir_dtype_is_float(t) && k_count(&c->in[0]) > 40) {
        x[3] = NAN, x[17] = INFINITY, x[33] = -INFINITY;
    }
}

static void reduce(const ops_row *row, ir_dtype t)
{
    const bool chooses = ir_op_out_attr(row->op) >= 0,
               sums = row->op == IR_OP_reduce_sum || row->op == IR_OP_reduce_mean;
    for (int s = 0; s < 2 * (int)(sizeof shapes / sizeof *shapes); s++) {
        ops_case c = case_of(row->op);
        int k = s / 2, rank = shapes[k].rank;
        int64_t y[4];
        if (k == LARGE && ((t != IR_f16 && t != IR_i32) || !sums)) continue; /* expensive */
        for (int d = 0; d < rank; d++) y[d] = is_axis(k, d) ? 1 : shapes[k].dims[d];
        draw(&c, row->op, t, k, s & 1);
        case_list(&c, IR_ATTR(reduce_sum, axes), shapes[k].axes, shapes[k].n_axes);
        ir_dtype out = s & 1 && t == IR_f16 && chooses ? IR_f32 : t;
        case_out(&c, out, rank, y);
        c.floor = 1;
        c.units = s & 1 ? 400 : 8; /* terms of both signs cancel */
        if (row->units > 0) c.units = row->units;
        if (row->op == IR_OP_reduce_mean && k_count(&c.in[0]) == 0 && t != IR_f64) c.units = 0;
        case_finish(&c, reference);
    }
}

static void norm_reference(ops_case *c)
{
    long double sum = 0;
    for (int i = 0; i < c->n_in; i++)
        for (int64_t k = 0; k < k_count(&c->in[i]); k++) sum += c->x[i][k] * c->x[i][k];
    c->expected[0][0] = sqrt((double)sum);
}

static void global_norm(const ops_row *row, ir_dtype t)
{
    static const int64_t sizes[] = {0, 1, 700, 50001};
    for (int s = 1; s <= 4; s++) {
        ops_case c = case_of(row->op);
        for (int i = 0; i < s; i++) case_in(&c, t, 1, &sizes[i], -3, 3);
        case_out(&c, t == IR_f64 ? t : IR_f32, 0, NULL);
        case_finish(&c, norm_reference);
    }
}

/* ---- determinants ---- */

static const struct {
    int rank;
    int64_t dims[4];
} squares[] = {
    {2, {1, 1}},       {2, {2, 2}}, {2, {3, 3}},    {3, {5, 4, 4}},
    {4, {2, 3, 2, 2}}, {2, {7, 7}}, {3, {0, 3, 3}}, {3, {70, 3, 3}},
};

/* The determinant of the n columns `in` (a bit each) of rows row, row + 1, ..., by expansion along the first row. */
static long double expand(const double *a, int64_t size, int64_t row, unsigned in)
{
    long double sum = 0, sign = 1;
    if (row == size) return 1;
    for (int64_t j = 0; j < size; j++) {
        if (!(in >> j & 1)) continue;
        sum += sign * a[row * size + j] * expand(a, size, row + 1, in & ~(1u << j));
        sign = -sign;
    }
    return sum;
}

static void det_reference(ops_case *c)
{
    int64_t n = c->in[0].dims[c->in[0].rank - 1];
    for (int64_t m = 0; m < k_count(&c->out[0]); m++)
        c->expected[0][m] = (double)expand(c->x[0] + m * n * n, n, 0, (1u << n) - 1);
}

/* A cofactor is the change of the determinant, which is linear in each element. */
static void det_grad_reference(ops_case *c)
{
    int64_t n = c->in[1].dims[c->in[1].rank - 1];
    for (int64_t i = 0; i < k_count(&c->in[1]); i++) {
        double *a = c->x[1] + i / (n * n) * n * n, *v = c->x[1] + i, old = *v;
        *v = 1;
        long double with = expand(a, n, 0, (1u << n) - 1);
        *v = 0;
        c->expected[0][i] = c->x[0][i / (n * n)] * (double)(with - expand(a, n, 0, (1u << n) - 1));
        *v = old;
    }
}

/* Every second matrix is singular: its first two rows are equal, or it is zero. */
static void det(const ops_row *row, ir_dtype t)
{
    const bool back = row->op == IR_OP_det_grad;
    for (int s = 0; s < 2 * (int)(sizeof squares / sizeof *squares); s++) {
        ops_case c = case_of(row->op);
        const int rank = squares[s / 2].rank;
        const int64_t *dims = squares[s / 2].dims, n = dims[rank - 1];
        if (back) case_in(&c, t, rank - 2, dims, 0.5, 2);
        double *x = case_in(&c, t, rank, dims, -2, 2);
        const int64_t count = k_count(&c.in[c.n_in - 1]);
        for (int64_t i = 0; s & 1 && n > 1 && i < count; i++)
            if (i / n % n == 1) x[i] = x[i - n];
        for (int64_t i = 0; s & 1 && i < count && i < n * n && count > n * n; i++) x[i] = 0;
        case_out(&c, t, back ? rank : rank - 2, dims);
        c.floor = 1;
        c.size = 1;
        c.units = 40;
        case_finish(&c, back ? det_grad_reference : det_reference);
    }
}

const ops_row reduce_rows[] = {
    {IR_OP_reduce_sum, "FI", reduce, 0, 0, NULL, 0, 0},
    {IR_OP_reduce_mean, "FI", reduce, 0, 0, NULL, 0, 0},
    {IR_OP_reduce_max, "FIB", reduce, 0, 0, NULL, 0, 0},
    {IR_OP_reduce_min, "FIB", reduce, 0, 0, NULL, 0, 0},
    {IR_OP_reduce_prod, "FI", reduce, 0, 0, NULL, 800, 0}, /* an error per factor */
    {IR_OP_reduce_l1, "FI", reduce, 0, 0, NULL, 8, 0},
    {IR_OP_reduce_l2, "F", reduce, 0, 0, NULL, 8, 0},
    {IR_OP_reduce_sum_square, "FI", reduce, 0, 0, NULL, 8, 0},
    {IR_OP_reduce_log_sum, "F", reduce, 0, 0, NULL, 0, 0},
    {IR_OP_global_norm, "F", global_norm, 0, 0, NULL, 0, 0},
    {IR_OP_det, "F", det, 0, 0, NULL, 0, 0},
    {IR_OP_det_grad, "F", det, 0, 0, NULL, 0, 0},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
