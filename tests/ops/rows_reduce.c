/* rows_reduce.c - sums, means and the global norm. */
#include "tests/ops/ops.h"

#include <math.h>

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

static void reference(ops_case *c)
{
    const k_view *x = &c->in[0], *y = &c->out[0]; /* y keeps reduced dimensions as 1 */
    double terms = 1;
    for (int d = 0; d < x->rank; d++)
        if (y->dims[d] != x->dims[d]) terms *= (double)x->dims[d];
    memset(c->expected[0], 0, (size_t)k_count(y) * sizeof(double));
    for (int64_t i = 0; i < k_count(x); i++) c->expected[0][case_broadcast(y, x, i)] += c->x[0][i];
    for (int64_t i = 0; c->op == IR_OP_reduce_mean && i < k_count(y); i++) {
        c->expected[0][i] /= terms;
        if (!ir_dtype_is_float(x->dtype)) c->expected[0][i] = terms == 0 ? 0 : trunc(c->expected[0][i]);
    }
}

static void reduce(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < 2 * (int)(sizeof shapes / sizeof *shapes); s++) {
        ops_case c;
        int k = s / 2, rank = shapes[k].rank;
        int64_t y[4];
        if (k == LARGE && t != IR_f16 && t != IR_i32) continue; /* expensive */
        for (int d = 0; d < rank; d++) y[d] = is_axis(k, d) ? 1 : shapes[k].dims[d];
        case_begin(&c, row->op);
        case_in(&c, t, rank, shapes[k].dims, s & 1 ? -100 : 0, s & 1 ? 100 : 3);
        case_list(&c, IR_ATTR(reduce_sum, axes), shapes[k].axes, shapes[k].n_axes);
        ir_dtype out = s & 1 && t == IR_f16 ? IR_f32 : t;
        case_out(&c, out, rank, y);
        c.floor = 1;
        c.units = s & 1 ? 400 : 8; /* terms of both signs cancel */
        if (row->op == IR_OP_reduce_mean && k_count(&c.in[0]) == 0 && t != IR_f64) c.units = 0;
        case_check(&c, reference);
        case_end(&c);
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
        ops_case c;
        case_begin(&c, row->op);
        for (int i = 0; i < s; i++) case_in(&c, t, 1, &sizes[i], -3, 3);
        case_out(&c, t == IR_f64 ? t : IR_f32, 0, NULL);
        case_check(&c, norm_reference);
        case_end(&c);
    }
}

const ops_row reduce_rows[] = {
    {IR_OP_reduce_sum, "FI", reduce, 0, 0, NULL, 0, 0},
    {IR_OP_reduce_mean, "FI", reduce, 0, 0, NULL, 0, 0},
    {IR_OP_global_norm, "F", global_norm, 0, 0, NULL, 0, 0},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
