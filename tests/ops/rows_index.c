/* rows_index.c - ops that address elements by coordinates: gather_elements, gather_nd, and their scatters. */
#include "tests/ops/ops.h"
#include "tests/test.h"

#include <math.h>

enum { LOW = -9, HIGH = 9 };

typedef struct layout {
    int first; /* axis or batch */
    int rank, rank_i;
    int64_t x[4], indices[4];
} layout;

static const layout by_elements[] = {
    {0, 1, 1, {5}, {7}},
    {1, 2, 2, {4, 5}, {4, 3}},
    {-1, 2, 2, {4, 5}, {2, 300}},
    {0, 3, 3, {33, 7, 5}, {64, 6, 5}},
    {1, 3, 3, {3, 2, 700}, {2, 9, 650}},
    {2, 3, 3, {2, 3, 4}, {2, 0, 4}},
    {0, 2, 2, {9, 2049}, {17, 2048}},
    {0, 2, 2, {3000, 2}, {1, 2}},
};

/* the last dimension of `indices` is the number of coordinates */
static const layout by_tuples[] = {
    {0, 1, 2, {5}, {7, 1}},
    {0, 2, 1, {4, 5}, {2}},
    {0, 3, 2, {4, 5, 6}, {9, 1}},
    {0, 3, 3, {6, 5, 300}, {3, 17, 2}},
    {1, 3, 2, {3, 4, 5}, {3, 1}},
    {2, 4, 3, {2, 3, 40, 33}, {2, 3, 1}},
    {1, 3, 3, {2, 70, 520}, {2, 40, 1}},
    {1, 3, 3, {2, 4, 5}, {2, 0, 2}},
    {0, 2, 2, {2500, 8}, {1100, 1}},
    {0, 1, 2, {30000}, {2049, 1}},
};

/* ---- reference ---- */

static bool is_by_elements(ir_op op) { return op == IR_OP_gather_elements || op == IR_OP_scatter_elements; }

/* The offset in `data` of element i of the items' view (updates, or the result of a gather). */
static int64_t place(const ops_case *c, const k_view *data, const k_view *items, int64_t i)
{
    const k_view *indices = &c->in[1];
    const int first = (int)c->attr[0].i;
    int64_t at[IR_MAX_RANK], to[IR_MAX_RANK], index[IR_MAX_RANK];
    case_coordinates(items, i, at);
    if (is_by_elements(c->op)) {
        const int axis = first < 0 ? first + data->rank : first;
        memcpy(to, at, sizeof to);
        to[axis] = (int64_t)c->x[1][i];
        if (to[axis] < 0) to[axis] += data->dims[axis];
        return case_offset(data, to);
    }
    const int tuple = (int)indices->dims[indices->rank - 1], lead = indices->rank - 1;
    memcpy(index, at, sizeof index);
    for (int k = 0; k < first; k++) to[k] = at[k];
    for (int k = 0; k < tuple; k++) {
        index[lead] = k;
        to[first + k] = (int64_t)c->x[1][case_offset(indices, index)];
        if (to[first + k] < 0) to[first + k] += data->dims[first + k];
    }
    for (int k = first + tuple; k < data->rank; k++) to[k] = at[lead + k - first - tuple];
    return case_offset(data, to);
}

static void gather_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) c->expected[0][i] = c->x[0][place(c, &c->in[0], &c->out[0], i)];
}

static void scatter_reference(ops_case *c)
{
    memcpy(c->expected[0], c->x[0], (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t i = 0; i < k_count(&c->in[2]); i++) {
        double *y = &c->expected[0][place(c, &c->out[0], &c->in[2], i)], u = c->x[2][i];
        switch (c->attr[IR_ATTR(scatter_nd, reduction)].i) {
        case IR_WORD(scatter, none): *y = u; break;
        case IR_WORD(scatter, add): *y += u; break;
        case IR_WORD(scatter, mul): *y *= u; break;
        case IR_WORD(scatter, max): *y = fmax(*y, u); break;
        default: *y = fmin(*y, u);
        }
    }
}

/* ---- cases ---- */

/* Random indices, the third of them negative; `spread` 1 uses only the first element of every axis. */
static void indices_in(ops_case *c, const layout *l, ir_dtype t, bool crowded)
{
    const bool elements = is_by_elements(c->op);
    const int64_t tuple = elements ? 1 : l->indices[l->rank_i - 1];
    double *x = case_in(c, t, l->rank_i, l->indices, 0, 1 << 20);
    const int64_t n = k_count(&c->in[1]);
    for (int64_t i = 0; i < n; i++) {
        const int axis = elements ? (l->first < 0 ? l->first + l->rank : l->first) : l->first + (int)(i % tuple);
        x[i] = crowded ? 0 : fmod(x[i], (double)l->x[axis]);
        if (i % 3 == 0) x[i] -= (double)l->x[axis];
    }
}

/* The shape of the elements that the indices address. */
static int items_shape(ir_op op, const layout *l, int64_t *dims)
{
    const bool elements = is_by_elements(op);
    int rank = 0;
    for (int i = 0; i < l->rank_i - !elements; i++) dims[rank++] = l->indices[i];
    for (int i = elements ? l->rank : l->first + (int)l->indices[l->rank_i - 1]; i < l->rank; i++)
        dims[rank++] = l->x[i];
    return rank;
}

static const layout *layout_of(ir_op op, int i)
{
    if (is_by_elements(op)) return i < (int)(sizeof by_elements / sizeof *by_elements) ? &by_elements[i] : NULL;
    return i < (int)(sizeof by_tuples / sizeof *by_tuples) ? &by_tuples[i] : NULL;
}

static void gather(const ops_row *row, ir_dtype t)
{
    const layout *l;
    for (int s = 0; (l = layout_of(row->op, s / 2)); s++) {
        int64_t dims[8];
        ops_case c = case_of(row->op);
        case_in(&c, t, l->rank, l->x, LOW, HIGH);
        indices_in(&c, l, s & 1 ? IR_i32 : IR_i64, false);
        c.attr[0].i = l->first;
        case_out(&c, t, items_shape(row->op, l, dims), dims);
        case_finish(&c, gather_reference);
    }
}

/* Multiplies elements and updates, so that some exceed the signed range of 64 bits. */
static void enlarge(ops_case *c)
{
    for (int k = 0; k <= 2; k += 2)
        for (int64_t i = 0; i < k_count(&c->in[k]); i++) c->x[k][i] = fabs(c->x[k][i]) * 0x1p60;
}

/* Crowded indices make many updates of one place. Factors are near 1 for floats and -1, 0 or 1 for integers. */
static void scatter(const ops_row *row, ir_dtype t)
{
    const layout *l;
    for (int s = 0; (l = layout_of(row->op, s / 10)); s++) {
        const int reduction = s % 5;
        int64_t dims[8];
        ops_case c = case_of(row->op);
        if (t == IR_bool && reduction) continue;
        if (ops_brief && reduction > IR_WORD(scatter, add)) continue; /* other reductions have the same accesses */
        case_in(&c, t, l->rank, l->x, LOW, HIGH);
        indices_in(&c, l, s & 1 ? IR_i32 : IR_i64, s / 5 % 2);
        const int rank = items_shape(row->op, l, dims);
        double *u = case_in(&c, t, rank, dims, LOW, HIGH);
        for (int64_t i = 0; reduction == IR_WORD(scatter, mul) && i < k_count(&c.in[2]); i++)
            u[i] = ir_dtype_is_float(t) ? (i % 2 ? 1.0009765625 : 0.9990234375) : u[i] < 0 ? -1 : 1;
        for (int64_t i = 0; t == IR_u8 && reduction == IR_WORD(scatter, mul) && i < k_count(&c.in[2]); i++) u[i] = 1;
        for (int64_t i = 0; !ir_dtype_is_float(t) && reduction == IR_WORD(scatter, add) && i < k_count(&c.in[2]); i++)
            u[i] = i % 5 == 0;
        if (t == IR_u64 && reduction >= IR_WORD(scatter, max)) enlarge(&c);
        c.attr[0].i = l->first;
        c.attr[IR_ATTR(scatter_nd, reduction)].i = reduction;
        case_out(&c, t, l->rank, l->x);
        c.floor = 1;
        c.units = reduction == IR_WORD(scatter, add) || reduction == IR_WORD(scatter, mul) ? 2000
                                                                                           : 0; /* thousands of terms */
        case_finish(&c, scatter_reference);
    }
}

/* An out-of-range index on either side, among valid ones; also if nothing is moved. */
static void out_of_range(const ops_row *row, ir_dtype t)
{
    static const double bad[] = {5, -6, 1e9, -1e9};
    const bool elements = is_by_elements(row->op);
    const bool back = row->op == IR_OP_scatter_elements || row->op == IR_OP_scatter_nd;
    for (int s = 0; s < 16; s++) {
        const int64_t x[] = {5, elements || s < 8 ? 3 : 0}, indices[] = {700, elements ? 3 : 1};
        const int64_t items[] = {700, x[1]};
        ops_case c = case_of(row->op);
        case_in(&c, t, 2, x, LOW, HIGH);
        double *at = case_in(&c, IR_i64, 2, indices, 0, 4);
        if (back) case_in(&c, t, 2, items, LOW, HIGH);
        c.attr[0].i = 0;
        if (back) c.attr[IR_ATTR(scatter_nd, reduction)].i = s & 4 ? IR_WORD(scatter, add) : IR_WORD(scatter, none);
        case_out(&c, t, 2, back ? x : items);
        at[633] = -5;
        assert_int_equal(case_run(&c), AMPC_OK);
        at[633] = bad[s % 4];
        assert_int_equal(case_run(&c), AMPC_REJECTED);
        case_end(&c);
    }
}

/* NaN is the largest and the smallest number of a place. */
static void not_a_number(const ops_row *row, ir_dtype t)
{
    const int64_t three[] = {3}, indices[] = {4, 1}, four[] = {4};
    static const double expected[2][3] = {{NAN, NAN, 7}, {NAN, NAN, -1}};
    for (int s = 0; s < 2; s++) {
        ops_case c = case_of(row->op);
        memcpy(case_in(&c, t, 1, three, 0, 1), (double[]){NAN, 1, -1}, 3 * sizeof(double));
        memcpy(case_in(&c, IR_i64, 2, indices, 0, 1), (double[]){0, 1, 2, 1}, 4 * sizeof(double));
        memcpy(case_in(&c, t, 1, four, 0, 1), (double[]){5, NAN, 7, 3}, 4 * sizeof(double));
        c.attr[IR_ATTR(scatter_nd, reduction)].i = s ? IR_WORD(scatter, min) : IR_WORD(scatter, max);
        case_out(&c, t, 1, three);
        assert_int_equal(case_run(&c), AMPC_OK);
        for (int i = 0; i < 3; i++) {
            const double v = ir_load_f64(t, (char *)c.out[0].data + (size_t)i * ir_dtype_size(t));
            assert_true(isnan(expected[s][i]) ? isnan(v) : v == expected[s][i]);
        }
        case_end(&c);
    }
}

/* ---- bit_cast ---- */

static void bit_cast(const ops_row *row, ir_dtype t)
{
    const int64_t n[] = {1000};
    const ir_dtype types[] = {IR_f32, IR_i32, IR_f16, IR_i16, IR_u8, IR_i8, IR_bf16, IR_f16};
    (void)t;
    for (int s = 0; s < 8; s++) {
        ops_case c = case_of(row->op);
        case_in(&c, types[s], 1, n, LOW, HIGH);
        case_out(&c, types[s ^ 1], 1, n);
        c.attr[IR_ATTR(bit_cast, to)].dtype = types[s ^ 1];
        assert_int_equal(case_run(&c), AMPC_OK);
        assert_memory_equal(c.in[0].data, c.out[0].data, k_bytes(&c.out[0]));
        case_end(&c);
    }
}

/* clang-format off */
#define ROW(op, groups, make) {IR_OP_##op, groups, make, 0, 0, NULL, 0, 0}
const ops_row index_rows[] = {
    ROW(gather_elements, "FIB", gather),
    ROW(gather_nd, "FIB", gather),
    ROW(scatter_elements, "FIB", scatter),
    ROW(scatter_nd, "FIB", scatter),
    ROW(gather_elements, "1", out_of_range),
    ROW(gather_nd, "1", out_of_range),
    ROW(scatter_elements, "1", out_of_range),
    ROW(scatter_nd, "1", out_of_range),
    ROW(scatter_nd, "F", not_a_number),
    ROW(bit_cast, "1", bit_cast),
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
/* clang-format on */
