/* rows_movement.c - ops that move, convert or generate elements; references find moved elements by their coordinates. */
#include "tests/ops/ops.h"

#include <string.h>

enum { LOW = -100, HIGH = 100 };

/* ---- transpose ---- */

static void transpose_reference(ops_case *c)
{
    const int64_t *perm = c->attr[0].list.items;
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        int64_t at[IR_MAX_RANK], from[IR_MAX_RANK];
        case_coordinates(&c->out[0], i, at);
        for (int d = 0; d < c->out[0].rank; d++) from[perm[d]] = at[d];
        c->expected[0][i] = c->x[0][case_offset(&c->in[0], from)];
    }
}

static void transpose(const ops_row *row, ir_dtype t)
{
    static const struct {
        int rank;
        int64_t dims[5], perm[5];
    } cases[] = {
        {0, {0}, {0}},
        {1, {5}, {0}},
        {2, {1, 7}, {1, 0}},
        {2, {33, 70}, {1, 0}},
        {2, {0, 3}, {1, 0}},
        {2, {200, 190}, {1, 0}},
        {3, {4, 5, 6}, {2, 0, 1}},
        {3, {4, 5, 6}, {0, 2, 1}},
        {4, {2, 3, 17, 19}, {0, 2, 3, 1}},
        {4, {2, 17, 3, 19}, {0, 2, 1, 3}},
        {3, {3, 65, 63}, {0, 2, 1}},
        {4, {9, 31, 2, 16}, {2, 3, 1, 0}},
        {5, {2, 3, 1, 4, 5}, {4, 2, 1, 0, 3}},
    };
    for (int s = 0; s < (int)(sizeof cases / sizeof *cases); s++) {
        ops_case c = case_of(row->op);
        int64_t out[5];
        for (int d = 0; d < cases[s].rank; d++) out[d] = cases[s].dims[cases[s].perm[d]];
        case_in(&c, t, cases[s].rank, cases[s].dims, LOW, HIGH);
        case_list(&c, IR_ATTR(transpose, perm), cases[s].perm, cases[s].rank);
        case_out(&c, t, cases[s].rank, out);
        case_finish(&c, transpose_reference);
    }
}

/* ---- expand ---- */

static void expand_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++)
        c->expected[0][i] = c->x[0][case_broadcast(&c->in[0], &c->out[0], i)];
}

static void expand(const ops_row *row, ir_dtype t)
{
    static const struct {
        int rank, rank_y;
        int64_t dims[4], y[4];
    } cases[] = {
        {0, 1, {0}, {9}},
        {1, 1, {1}, {9}},
        {1, 2, {5}, {3, 5}},
        {2, 2, {3, 1}, {3, 130}},
        {2, 4, {3, 1}, {2, 4, 3, 5}},
        {3, 3, {2, 1, 3}, {2, 5, 3}},
        {1, 1, {1}, {0}},
        {3, 3, {60, 1, 40}, {60, 20, 40}},
    };
    for (int s = 0; s < (int)(sizeof cases / sizeof *cases); s++) {
        ops_case c = case_of(row->op);
        case_in(&c, t, cases[s].rank, cases[s].dims, LOW, HIGH);
        case_out(&c, t, cases[s].rank_y, cases[s].y);
        case_finish(&c, expand_reference);
    }
}

/* ---- concat and split ---- */

static void concat_reference(ops_case *c)
{
    int axis = (int)c->attr[0].i;
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        int64_t at[IR_MAX_RANK];
        int part = 0;
        case_coordinates(&c->out[0], i, at);
        while (at[axis] >= c->in[part].dims[axis]) at[axis] -= c->in[part++].dims[axis];
        c->expected[0][i] = c->x[part][case_offset(&c->in[part], at)];
    }
}

static void split_reference(ops_case *c)
{
    int axis = (int)c->attr[IR_ATTR(split, axis)].i;
    int64_t first = 0;
    for (int part = 0; part < c->n_out; part++) {
        for (int64_t i = 0; k_present(&c->out[part]) && i < k_count(&c->out[part]); i++) {
            int64_t at[IR_MAX_RANK];
            case_coordinates(&c->out[part], i, at);
            at[axis] += first;
            c->expected[part][i] = c->x[0][case_offset(&c->in[0], at)];
        }
        first += c->attr[IR_ATTR(split, sizes)].list.items[part];
    }
}

static const struct {
    int axis, parts;
    int64_t full[3], sizes[4];
} parts[] = {
    {0, 1, {5, 3, 2}, {5}},       {0, 2, {5, 3, 2}, {2, 3}},           {1, 3, {4, 7, 2}, {1, 4, 2}},
    {2, 3, {4, 3, 9}, {3, 0, 6}}, {2, 4, {70, 20, 30}, {7, 1, 2, 20}}, {1, 2, {0, 4, 3}, {1, 3}},
};

static void concat(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < (int)(sizeof parts / sizeof *parts); s++) {
        ops_case c = case_of(row->op);
        for (int p = 0; p < parts[s].parts; p++) {
            int64_t dims[3] = {parts[s].full[0], parts[s].full[1], parts[s].full[2]};
            dims[parts[s].axis] = parts[s].sizes[p];
            case_in(&c, t, 3, dims, LOW, HIGH);
        }
        c.attr[IR_ATTR(concat, axis)].i = parts[s].axis;
        case_out(&c, t, 3, parts[s].full);
        case_finish(&c, concat_reference);
    }
}

static void split(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < (int)(sizeof parts / sizeof *parts); s++) {
        ops_case c = case_of(row->op);
        case_in(&c, t, 3, parts[s].full, LOW, HIGH);
        c.attr[IR_ATTR(split, axis)].i = parts[s].axis;
        case_list(&c, IR_ATTR(split, sizes), parts[s].sizes, parts[s].parts);
        for (int p = 0; p < parts[s].parts; p++) {
            int64_t dims[3] = {parts[s].full[0], parts[s].full[1], parts[s].full[2]};
            dims[parts[s].axis] = parts[s].sizes[p];
            case_out(&c, p == 1 && s == 2 ? IR_NO_DTYPE : t, 3, dims);
        }
        case_finish(&c, split_reference);
    }
}

/* ---- slice ---- */

static const struct {
    int rank;
    int64_t full[3], start[3], size[3], step[3];
} slices[] = {
    {1, {10}, {2}, {5}, {1}},
    {1, {10}, {9}, {10}, {-1}},
    {1, {10}, {8}, {3}, {-3}},
    {1, {10}, {1}, {4}, {2}},
    {1, {10}, {0}, {0}, {1}},
    {2, {6, 7}, {1, 0}, {4, 7}, {1, 1}},
    {2, {6, 7}, {5, 6}, {6, 7}, {-1, -1}},
    {3, {4, 5, 6}, {0, 4, 1}, {4, 2, 3}, {1, -3, 2}},
    {3, {40, 50, 60}, {1, 0, 0}, {39, 50, 60}, {1, 1, 1}},
    {3, {0, 5, 6}, {0, 0, 0}, {0, 5, 6}, {1, 1, 1}},
};

static int64_t slice_offset(const ops_case *c, const k_view *full, const k_view *part, int start, int step, int64_t i)
{
    int64_t at[IR_MAX_RANK];
    case_coordinates(part, i, at);
    for (int d = 0; d < part->rank; d++) at[d] = c->attr[start].list.items[d] + at[d] * c->attr[step].list.items[d];
    return case_offset(full, at);
}

static void slice_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++)
        c->expected[0][i] =
            c->x[0][slice_offset(c, &c->in[0], &c->out[0], IR_ATTR(slice, start), IR_ATTR(slice, step), i)];
}

static void slice_grad_reference(ops_case *c)
{
    memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t i = 0; i < k_count(&c->in[0]); i++)
        c->expected[0][slice_offset(c, &c->out[0], &c->in[0], IR_ATTR(slice_grad, start), IR_ATTR(slice_grad, step),
                                    i)] = c->x[0][i];
}

static void slice(const ops_row *row, ir_dtype t)
{
    bool back = row->op == IR_OP_slice_grad;
    for (int s = 0; s < (int)(sizeof slices / sizeof *slices); s++) {
        ops_case c = case_of(row->op);
        int rank = slices[s].rank;
        case_in(&c, t, rank, back ? slices[s].size : slices[s].full, LOW, HIGH);
        case_list(&c, back ? IR_ATTR(slice_grad, start) : IR_ATTR(slice, start), slices[s].start, rank);
        case_list(&c, back ? IR_ATTR(slice_grad, step) : IR_ATTR(slice, step), slices[s].step, rank);
        if (back) case_list(&c, IR_ATTR(slice_grad, shape), slices[s].full, rank);
        else case_list(&c, IR_ATTR(slice, size), slices[s].size, rank);
        case_out(&c, t, rank, back ? slices[s].full : slices[s].size);
        case_finish(&c, back ? slice_grad_reference : slice_reference);
    }
}

/* ---- pad ---- */

static const struct {
    int rank;
    int64_t plain[3], before[3], after[3];
} pads[] = {
    {1, {4}, {2}, {3}},
    {1, {4}, {-1}, {2}},
    {2, {3, 5}, {1, 0}, {0, 4}},
    {2, {3, 5}, {2, -2}, {1, 1}},
    {3, {2, 4, 6}, {0, 1, 2}, {0, 3, 1}},
    {3, {2, 30, 40}, {0, 1, 2}, {0, 3, 1}},
    {2, {3, 5}, {-1, -1}, {-1, -3}},
    {1, {1}, {0}, {0}},
};
static bool pad_source(const ops_case *c, const k_view *plain, int before, int64_t mode, int64_t *at)
{
    for (int d = 0; d < plain->rank; d++) {
        int64_t n = plain->dims[d], i = at[d] - c->attr[before].list.items[d];
        if (mode == IR_WORD(pad, constant) && (i < 0 || i >= n)) return false;
        if (mode == IR_WORD(pad, edge)) i = i < 0 ? 0 : i >= n ? n - 1 : i;
        while (mode == IR_WORD(pad, wrap) && i < 0) i += n;
        while (mode == IR_WORD(pad, wrap) && i >= n) i -= n;
        while (mode == IR_WORD(pad, reflect) && (i < 0 || i >= n)) i = n == 1 ? 0 : i < 0 ? -i : 2 * (n - 1) - i;
        at[d] = i;
    }
    return true;
}

static void pad_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        int64_t at[IR_MAX_RANK];
        case_coordinates(&c->out[0], i, at);
        double value = k_present(&c->in[1]) ? c->x[1][0] : 0;
        c->expected[0][i] = pad_source(c, &c->in[0], IR_ATTR(pad, before), c->attr[IR_ATTR(pad, mode)].i, at)
                                ? c->x[0][case_offset(&c->in[0], at)]
                                : value;
    }
}

static void pad_grad_reference(ops_case *c)
{
    memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        int64_t at[IR_MAX_RANK];
        case_coordinates(&c->in[0], i, at);
        if (pad_source(c, &c->out[0], IR_ATTR(pad_grad, before), c->attr[IR_ATTR(pad_grad, mode)].i, at))
            c->expected[0][case_offset(&c->out[0], at)] += c->x[0][i];
    }
}

static void pad(const ops_row *row, ir_dtype t)
{
    bool back = row->op == IR_OP_pad_grad;
    for (int s = 0; s < 4 * (int)(sizeof pads / sizeof *pads); s++) {
        ops_case c = case_of(row->op);
        int rank = pads[s / 4].rank;
        const int64_t *plain = pads[s / 4].plain;
        int64_t padded[3];
        for (int d = 0; d < rank; d++) padded[d] = plain[d] + pads[s / 4].before[d] + pads[s / 4].after[d];
        case_in(&c, t, rank, back ? padded : plain, LOW, HIGH);
        if (!back && s & 4) case_in(&c, t, 0, NULL, 5, 6);
        else if (!back) case_absent(&c);
        c.attr[back ? IR_ATTR(pad_grad, mode) : IR_ATTR(pad, mode)].i = s % 4;
        case_list(&c, back ? IR_ATTR(pad_grad, before) : IR_ATTR(pad, before), pads[s / 4].before, rank);
        case_list(&c, back ? IR_ATTR(pad_grad, after) : IR_ATTR(pad, after), pads[s / 4].after, rank);
        if (back) case_list(&c, IR_ATTR(pad_grad, shape), plain, rank);
        case_out(&c, t, rank, back ? plain : padded);
        c.floor = 1;
        case_finish(&c, back ? pad_grad_reference : pad_reference);
    }
}

/* ---- cast, integers and state ---- */

#define EDGE(n) n,
static const int64_t lengths[] = {0, 1, 7, 1537, 33333, OPS_EDGES(EDGE)};
#undef EDGE
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void cast_reference(ops_case *c)
{
    ir_dtype from = c->in[0].dtype, to = c->out[0].dtype;
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        uint64_t x = 0, y = 0;
        ir_store_f64(from, &x, c->x[0][i]);
        ir_convert(to, &y, from, &x, 1);
        c->expected[0][i] = ir_load_f64(to, &y);
    }
}

static void cast(const ops_row *row, ir_dtype t)
{
    for (ir_dtype to = IR_NO_DTYPE + 1; to < IR_DTYPE_COUNT; to++)
        for (int s = 0; s < LENGTHS && ops_takes(to); s++) {
            ops_case c = case_of(row->op);
            const int64_t *dims = &lengths[s];
            double *x = case_in(&c, t, 1, dims, -300, 300);
            for (int i = 0; lengths[s] > 1000 && i < 8; i++)
                x[i] = (double[]){0.5, 70000, -1e30, 1e-7, 3e9, 1e-41, -0.0, 65519}[i];
            c.attr[IR_ATTR(cast, to)].dtype = to;
            case_out(&c, to, 1, dims);
            c.units = 0;
            case_finish(&c, cast_reference);
        }
}

static void iota_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) c->expected[0][i] = (double)i;
}

static void dims_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) c->expected[0][i] = (double)c->attr[0].list.items[i];
}

static void numbers(const ops_row *row, ir_dtype t)
{
    static const int64_t values[] = {3, 0, 77, -5};
    int64_t count[] = {4};
    ops_case c = case_of(row->op);
    case_list(&c, 0, row->op == IR_OP_iota ? count : values, row->op == IR_OP_iota ? 1 : 4);
    case_out(&c, t, 1, count);
    case_finish(&c, row->op == IR_OP_iota ? iota_reference : dims_reference);
}

static void nothing(ops_case *c) { (void)c; }

/* The state receives the value; output has no result. */
static void edge(const ops_row *row, ir_dtype t)
{
    int64_t dims[] = {3};
    ops_case c = case_of(row->op);
    case_in(&c, t, 1, dims, LOW, HIGH);
    if (row->op == IR_OP_store) {
        double *value = case_in(&c, t, 1, dims, LOW, HIGH);
        for (int i = 0; i < 3; i++) c.x[0][i] = value[i];
    }
    case_finish(&c, nothing);
}

/* clang-format off */
#define ROW(op, groups, make) {IR_OP_##op, groups, make, 0, 0, NULL, 0, 0}
/* clang-format on */
const ops_row movement_rows[] = {
    ROW(transpose, "FIB", transpose),
    ROW(expand, "FIB", expand),
    ROW(concat, "FIB", concat),
    ROW(split, "FIB", split),
    ROW(slice, "FIB", slice),
    ROW(slice_grad, "FIB", slice),
    ROW(pad, "FIB", pad),
    ROW(pad_grad, "F", pad),
    ROW(cast, "FIB", cast),
    ROW(iota, "I", numbers),
    ROW(dims, "I", numbers),
    ROW(store, "FIB", edge),
    ROW(output, "FIB", edge),
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
