/* rows_select.c - ops that select elements: by index (gather), diagonal (trilu) or condition (where, select). */
#include "tests/ops/ops.h"
#include "tests/test.h"

enum { LOW = -100, HIGH = 100 };

/* ---- gather ---- */

static const struct {
    int axis, rank_i;
    int64_t x[3], indices[2];
} gathers[] = {
    {0, 1, {5, 3, 2}, {4}},      {1, 2, {5, 3, 2}, {2, 3}}, {2, 0, {5, 3, 2}, {0}},
    {0, 1, {5, 3, 2}, {0}},      {-1, 1, {2, 3, 40}, {70}}, {0, 2, {30, 1, 600}, {3, 40}},
    {0, 1, {2000, 1, 1}, {900}}, {1, 1, {3, 2, 21}, {700}}, {0, 2, {300, 1, 9}, {33, 31}},
};

static double *indices_in(ops_case *c, ir_dtype t, int rank, const int64_t *dims, int64_t entries)
{
    double *x = case_in(c, t, rank, dims, 0, (double)entries - 1);
    int64_t n = k_count(&c->in[c->n_in - 1]);
    for (int64_t i = 0; i < n; i += 3) x[i] -= (double)entries; /* negative indices count from the end */
    return x;
}

/* Returns the offset in the table of element i of the gathered view. */
static int64_t gather_offset(const ops_case *c, const k_view *table, const k_view *gathered, int axis, int64_t i)
{
    int64_t at[IR_MAX_RANK], to[IR_MAX_RANK];
    int rank = c->in[1].rank;
    if (axis < 0) axis += table->rank;
    case_coordinates(gathered, i, at);
    double index = c->x[1][case_offset(&c->in[1], at + axis)];
    for (int d = 0; d < table->rank; d++)
        to[d] = d < axis ? at[d] : d > axis ? at[d + rank - 1] : (int64_t)index + (index < 0) * table->dims[axis];
    return case_offset(table, to);
}

static void gather_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++)
        c->expected[0][i] = c->x[0][gather_offset(c, &c->in[0], &c->out[0], (int)c->attr[0].i, i)];
}

static void gather_grad_reference(ops_case *c)
{
    memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t i = 0; i < k_count(&c->in[0]); i++)
        c->expected[0][gather_offset(c, &c->out[0], &c->in[0], (int)c->attr[0].i, i)] += c->x[0][i];
}

static void gather(const ops_row *row, ir_dtype t)
{
    bool back = row->op == IR_OP_gather_grad;
    for (int s = 0; s < 2 * (int)(sizeof gathers / sizeof *gathers); s++) {
        ops_case c = case_of(row->op);
        int axis = gathers[s / 2].axis + (gathers[s / 2].axis < 0 ? 3 : 0), rank = 0;
        int64_t y[5];
        for (int d = 0; d < 3; d++) {
            if (d != axis) y[rank++] = gathers[s / 2].x[d];
            for (int k = 0; d == axis && k < gathers[s / 2].rank_i; k++) y[rank++] = gathers[s / 2].indices[k];
        }
        case_in(&c, t, back ? rank : 3, back ? y : gathers[s / 2].x, LOW, HIGH);
        indices_in(&c, s & 1 ? IR_i32 : IR_i64, gathers[s / 2].rank_i, gathers[s / 2].indices, gathers[s / 2].x[axis]);
        if (back && s % 3) case_addend(&c, t, 3, gathers[s / 2].x, LOW, HIGH);
        c.attr[0].i = gathers[s / 2].axis;
        case_out(&c, t, back ? 3 : rank, back ? gathers[s / 2].x : y);
        c.floor = 1;
        if (back) c.units = 100; /* hundreds of terms with both signs */
        case_finish(&c, back ? gather_grad_reference : gather_reference);
    }
}

/* An out-of-range index on either side, among valid ones. */
static void out_of_range(const ops_row *row, ir_dtype t)
{
    static const double bad[] = {5, -6, 1e9, -1e9};
    const int64_t table[] = {5, 3}, count[] = {40}, gathered[] = {40, 3};
    bool back = row->op == IR_OP_gather_grad;
    for (int s = 0; s < 4; s++) {
        ops_case c = case_of(row->op);
        case_in(&c, t, 2, back ? gathered : table, LOW, HIGH);
        double *indices = case_in(&c, IR_i64, 1, count, 0, 4);
        case_out(&c, t, 2, back ? table : gathered);
        indices[33] = -5;
        assert_int_equal(case_run(&c), AMPC_OK);
        indices[33] = bad[s];
        assert_int_equal(case_run(&c), AMPC_REJECTED);
        case_end(&c);
    }
}

/* ---- trilu ---- */

static void trilu_reference(ops_case *c)
{
    int64_t k = c->attr[IR_ATTR(trilu, k)].i, at[IR_MAX_RANK];
    for (int64_t e = 0; e < k_count(&c->out[0]); e++) {
        case_coordinates(&c->out[0], e, at);
        int64_t distance = at[c->out[0].rank - 1] - at[c->out[0].rank - 2];
        bool is_copied = c->attr[IR_ATTR(trilu, upper)].i ? distance >= k : distance <= k;
        c->expected[0][e] = is_copied ? c->x[0][e] : 0;
    }
}

static void trilu(const ops_row *row, ir_dtype t)
{
    static const int64_t dims[][3] = {{2, 4, 5}, {1, 5, 4}, {3, 1, 1}, {2, 0, 3}, {3, 120, 110}};
    static const int64_t diagonals[] = {0, 1, -1, 3, -3, 1000, -1000, INT64_MAX, INT64_MIN};
    for (int s = 0; s < 5 * 9 * 2; s += ops_brief ? 7 : 1) {
        ops_case c = case_of(row->op);
        case_in(&c, t, 3, dims[s % 5], LOW, HIGH);
        c.attr[IR_ATTR(trilu, k)].i = diagonals[s / 5 % 9];
        c.attr[IR_ATTR(trilu, upper)].i = s / 45;
        case_out(&c, t, 3, dims[s % 5]);
        case_finish(&c, trilu_reference);
    }
}

/* ---- where and select ---- */

static void where_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        int from = c->x[0][case_broadcast(&c->in[0], &c->out[0], i)] != 0 ? 1 : 2;
        c->expected[0][i] = c->x[from][case_broadcast(&c->in[from], &c->out[0], i)];
    }
}

static void where(const ops_row *row, ir_dtype t)
{
    static const struct {
        int rank[3], rank_y;
        int64_t dims[3][3], y[3];
    } cases[] = {
        {{0, 1, 1}, 1, {{0}, {5}, {5}}, {5}},
        {{2, 2, 0}, 2, {{3, 70}, {3, 70}, {0}}, {3, 70}},
        {{2, 1, 3}, 3, {{4, 1}, {5}, {3, 4, 5}}, {3, 4, 5}},
        {{3, 3, 3}, 3, {{60, 1, 40}, {60, 20, 40}, {1, 20, 1}}, {60, 20, 40}},
        {{1, 1, 1}, 1, {{0}, {0}, {1}}, {0}},
    };
    for (int s = 0; s < (int)(sizeof cases / sizeof *cases); s++) {
        ops_case c = case_of(row->op);
        for (int i = 0; i < 3; i++)
            case_in(&c, i ? t : IR_bool, cases[s].rank[i], cases[s].dims[i], i ? LOW : 0, i ? HIGH : 1);
        case_out(&c, t, cases[s].rank_y, cases[s].y);
        case_finish(&c, where_reference);
    }
}

static void select_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) c->expected[0][i] = c->x[c->x[0][0] != 0 ? 1 : 2][i];
}

#define EDGE(n) n,
static const int64_t lengths[] = {0, 1, 7, 1537, 33333, OPS_EDGES(EDGE)};
#undef EDGE
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void choose(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < 2 * LENGTHS; s++) {
        ops_case c = case_of(row->op);
        const int64_t *dims = &lengths[s / 2];
        case_in(&c, IR_bool, 0, NULL, s & 1, s & 1);
        case_in(&c, t, 1, dims, LOW, HIGH);
        case_in(&c, t, 1, dims, LOW, HIGH);
        case_out(&c, t, 1, dims);
        case_finish(&c, select_reference);
    }
}

/* clang-format off */
#define ROW(op, groups, make) {IR_OP_##op, groups, make, 0, 0, NULL, 0, 0}
const ops_row select_rows[] = {
    ROW(gather, "FIB", gather),
    ROW(gather_grad, "F", gather),
    ROW(gather, "1", out_of_range),
    ROW(gather_grad, "1", out_of_range),
    ROW(trilu, "FIB", trilu),
    ROW(where, "FIB", where),
    ROW(select, "FIB", choose),
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
/* clang-format on */
