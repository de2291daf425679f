/* movement.c - ops that only move elements.
 *
 * All but the last few are one strided copy (walk.c): an index space with a stride per dimension on each side. pad and
 * pad_grad have a table per axis in the workspace, with the source index of each result index. */
#include "kernels/cpu/tiles.h"

#include "kernels/padding.h"

#include <assert.h>

static size_t element_size(const k_view *v) { return ir_dtype_size(v->dtype); }

/* ---- one strided copy ---- */

static ampc_status transpose_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    k_walk w = k_walk_transpose(x, y, &args->attr[IR_ATTR(transpose, perm)]);
    cpu_walk_copy(&w, element_size(x), x->data, y->data, args->ctx);
    return AMPC_OK;
}

static ampc_status expand_run(const k_args *args)
{
    k_walk w = k_walk_broadcast(&args->in[0], &args->out[0]);
    cpu_walk_copy(&w, element_size(&args->in[0]), args->in[0].data, args->out[0].data, args->ctx);
    return AMPC_OK;
}

/* Copies between the dense view `part` and the positions start + i * step of `large`. */
static void copy_slice(const k_view *large, const k_view *part, const int64_t *start, const int64_t *step, bool into,
                       const k_context *ctx)
{
    int64_t offset;
    if (k_count(part) == 0) return;
    k_walk w = k_walk_slice(large, part, start, step, &offset);
    void *at = cpu_at(large, offset);
    if (at == part->data) return; /* in its place */
    if (into) w = k_walk_back(w);
    cpu_walk_copy(&w, element_size(part), into ? part->data : at, into ? at : part->data, ctx);
}

/* Copies between `part` and the positions of the larger view `large` from `first` on along `axis`, into or out of
 * `large`. */
static void copy_part(const k_view *large, const k_view *part, int axis, int64_t first, bool into, const k_context *ctx)
{
    int64_t start[IR_MAX_RANK] = {0};
    start[axis] = first;
    copy_slice(large, part, start, NULL, into, ctx);
}

static ampc_status concat_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    int axis = k_axis_number(args->attr[IR_ATTR(concat, axis)].i, y->rank);
    int64_t first = 0;
    for (int i = 0; i < args->n_in; i++) {
        if (k_present(&args->in[i])) copy_part(y, &args->in[i], axis, first, true, args->ctx);
        first += args->in[i].dims[axis];
    }
    return AMPC_OK;
}

static ampc_status split_run(const k_args *args)
{
    const k_view *x = &args->in[0];
    const ir_attr *sizes = &args->attr[IR_ATTR(split, sizes)];
    int axis = k_axis_number(args->attr[IR_ATTR(split, axis)].i, x->rank);
    int64_t first = 0;
    for (int i = 0; i < args->n_out; i++) {
        if (cpu_is_used(&args->out[i])) copy_part(x, &args->out[i], axis, first, false, args->ctx);
        first += sizes->list.items[i];
    }
    return AMPC_OK;
}

static ampc_status slice_run(const k_args *args)
{
    copy_slice(&args->in[0], &args->out[0], args->attr[IR_ATTR(slice, start)].list.items,
               args->attr[IR_ATTR(slice, step)].list.items, false, args->ctx);
    return AMPC_OK;
}

static void clear(const k_view *v)
{
    if (k_count(v)) memset(v->data, 0, k_bytes(v));
}

static ampc_status slice_grad_run(const k_args *args)
{
    clear(&args->out[0]);
    copy_slice(&args->out[0], &args->in[0], args->attr[IR_ATTR(slice_grad, start)].list.items,
               args->attr[IR_ATTR(slice_grad, step)].list.items, true, args->ctx);
    return AMPC_OK;
}

/* ---- padding ---- */

/* Fills the table with one source index for each position of each axis of the padded shape, axis by axis. */
static void pad_tables(const k_view *padded, const k_view *plain, const int64_t *before, int mode, int64_t *table)
{
    for (int a = 0; a < padded->rank; a++)
        for (int64_t i = 0; i < padded->dims[a]; i++) *table++ = k_pad_source(i - before[a], plain->dims[a], mode);
}

static size_t pad_table_bytes(const k_view *padded)
{
    int64_t n = 0;
    for (int a = 0; a < padded->rank; a++) n += padded->dims[a];
    return cpu_lines((size_t)(n + 1) * sizeof(int64_t));
}

/* The offset in `plain` of padded row `row`, counted over all axes but the last; -1: padding constant. */
static int64_t pad_row(const k_view *padded, const k_view *plain, const int64_t *table, int64_t row)
{
    int64_t offset = 0, stride = plain->dims[plain->rank - 1];
    const int64_t *axis = table;
    for (int a = 0; a < padded->rank - 1; a++) axis += padded->dims[a];
    for (int a = padded->rank - 2; a >= 0; a--) {
        axis -= padded->dims[a];
        int64_t source = axis[row % padded->dims[a]];
        if (source < 0) return -1;
        offset += source * stride;
        stride *= plain->dims[a];
        row /= padded->dims[a];
    }
    return offset;
}

static ampc_status pad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    *workspace = pad_table_bytes(&args->out[0]);
    return AMPC_OK;
}

static void pad_row_copy(const k_view *y, const k_view *x, const int64_t *columns, const void *value, int64_t row,
                         int64_t offset)
{
    size_t size = element_size(y);
    int64_t width = y->dims[y->rank - 1];
    char *to = cpu_at(y, row * width);
    for (int64_t i = 0; i < width;) {
        int64_t source = offset < 0 ? -1 : columns[i], run = 1;
        while (source >= 0 && i + run < width && columns[i + run] == source + run) run++;
        memcpy(to, source < 0 ? value : cpu_at(x, offset + source), (size_t)run * size);
        to += (size_t)run * size;
        i += run;
    }
}

static ampc_status pad_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    bool has_value = args->n_in > 1 && k_present(&args->in[1]);
    const uint64_t zero = 0;
    const void *value = has_value ? args->in[1].data : &zero;
    if (k_count(y) == 0) return AMPC_OK;
    if (y->rank == 0) {
        memcpy(y->data, x->data, element_size(x));
        return AMPC_OK;
    }
    int64_t *table = args->workspace, width = y->dims[y->rank - 1], rows = k_count(y) / width;
    pad_tables(y, x, args->attr[IR_ATTR(pad, before)].list.items, (int)args->attr[IR_ATTR(pad, mode)].i, table);
    const int64_t *columns = table;
    for (int a = 0; a < y->rank - 1; a++) columns += y->dims[a];
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(y))) schedule(static)
    for (int64_t row = 0; row < rows; row++) pad_row_copy(y, x, columns, value, row, pad_row(y, x, table, row));
    return AMPC_OK;
}

static ampc_status pad_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    ir_dtype carrier = cpu_carrier(args->out[0].dtype);
    *workspace = pad_table_bytes(&args->in[0]);
    if (args->out[0].dtype != carrier) *workspace += (size_t)k_count(&args->out[0]) * ir_dtype_size(carrier);
    return AMPC_OK;
}

/* sums[offset + columns[i]] += row[i] */
static void pad_row_add(ir_dtype carrier, void *sums, int64_t offset, const int64_t *columns, const void *row,
                        int64_t n)
{
    const double *d = row;
    const float *f = row;
    for (int64_t i = 0; i < n; i++) {
        if (columns[i] < 0) continue;
        if (carrier == IR_f64) ((double *)sums)[offset + columns[i]] += d[i];
        else ((float *)sums)[offset + columns[i]] += f[i];
    }
}

/* Runs on one thread because several padded elements may add to the same one. */
static ampc_status pad_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    ir_dtype carrier = cpu_carrier(dx->dtype);
    if (k_count(dx) == 0) return AMPC_OK;
    if (dx->rank == 0) {
        memcpy(dx->data, dy->data, element_size(dx));
        return AMPC_OK;
    }
    int64_t *table = args->workspace, width = dy->dims[dy->rank - 1], count = k_count(dx);
    pad_tables(dy, dx, args->attr[IR_ATTR(pad_grad, before)].list.items, (int)args->attr[IR_ATTR(pad_grad, mode)].i,
               table);
    const int64_t *columns = table;
    for (int a = 0; a < dy->rank - 1; a++) columns += dy->dims[a];
    void *sums = dx->dtype == carrier ? dx->data : (char *)args->workspace + pad_table_bytes(dy);
    memset(sums, 0, (size_t)count * ir_dtype_size(carrier));
    int64_t rows = width ? k_count(dy) / width : 0;
    for (int64_t row = 0; row < rows; row++) {
        cpu_tile scratch;
        int64_t offset = pad_row(dy, dx, table, row);
        for (int64_t i = 0; i < width && offset >= 0; i += CPU_TILE) {
            int64_t m = k_min(CPU_TILE, width - i);
            const void *values = cpu_tile_load(dy, row * width + i, m, carrier, &scratch);
            pad_row_add(carrier, sums, offset, columns + i, values, m);
        }
    }
    cpu_tile_store(dx, 0, count, carrier, sums);
    return AMPC_OK;
}

/* ---- other ops ---- */

static ampc_status trilu_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    int64_t k = args->attr[IR_ATTR(trilu, k)].i, n = k_count(y);
    bool upper = args->attr[IR_ATTR(trilu, upper)].i;
    if (n == 0) return AMPC_OK;
    int64_t rows = y->dims[y->rank - 2], columns = y->dims[y->rank - 1];
    size_t size = element_size(x);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t r = 0; r < n / columns; r++) {
        int64_t i = r % rows, edge = k > columns ? columns : k < -rows ? 0 : k_max(0, k_min(columns, i + k + !upper));
        char *to = cpu_at(y, r * columns);
        const char *from = cpu_at(x, r * columns);
        size_t left = (size_t)edge * size, right = (size_t)(columns - edge) * size;
        memset(upper ? to : to + left, 0, upper ? left : right);
        if (to == from) continue;
        memcpy(upper ? to + left : to, upper ? from + left : from, upper ? right : left);
    }
    return AMPC_OK;
}

#define CHOOSE(type) \
    do { \
        type *d = y; \
        const type *s = a, *t = b; \
        CPU_SIMD for (int64_t i = 0; i < n; i++) d[i] = cond[i] ? s[i] : t[i]; \
    } while (0)

CPU_CLONES void cpu_choose_tile(size_t size, void *y, const uint8_t *cond, const void *a, const void *b, int64_t n)
{
    switch (size) {
    case 1: CHOOSE(uint8_t); break;
    case 2: CHOOSE(uint16_t); break;
    case 4: CHOOSE(uint32_t); break;
    default: CHOOSE(uint64_t); break;
    }
}

static ampc_status where_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    k_walk walks[3];
    for (int i = 0; i < 3; i++) walks[i] = k_walk_broadcast(&args->in[i], y);
    int64_t n = k_count(y), tiles = cpu_ceil_div(n, CPU_TILE);
    size_t size = element_size(y);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        uint8_t c[CPU_TILE];
        uint64_t a[CPU_TILE], b[CPU_TILE];
        int64_t first = t * CPU_TILE, m = k_min(CPU_TILE, n - first);
        cpu_walk_gather(&walks[0], 1, args->in[0].data, first, m, c);
        cpu_walk_gather(&walks[1], size, args->in[1].data, first, m, a);
        cpu_walk_gather(&walks[2], size, args->in[2].data, first, m, b);
        cpu_choose_tile(size, cpu_at(y, first), c, a, b, m);
    }
    return AMPC_OK;
}

static ampc_status select_run(const k_args *args)
{
    const k_view *y = &args->out[0], *chosen = &args->in[*(const uint8_t *)args->in[0].data ? 1 : 2];
    if (y->data != chosen->data && k_count(y)) memcpy(y->data, chosen->data, k_bytes(y));
    return AMPC_OK;
}

static ampc_status iota_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    for (int64_t i = 0, n = k_count(y); i < n; i++) ir_store_i64(y->dtype, cpu_at(y, i), i);
    return AMPC_OK;
}

static ampc_status dims_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    const ir_attr *value = &args->attr[IR_ATTR(dims, value)];
    assert(k_count(y) == value->list.count); /* infer_dims derives the size from the list */
    for (int64_t i = 0; i < value->list.count; i++) ir_store_i64(y->dtype, cpu_at(y, i), value->list.items[i]);
    return AMPC_OK;
}

/* The planner commits states and delivers outputs. As kernels, store copies the value into the state and output does
 * nothing. */
static ampc_status store_run(const k_args *args)
{
    const k_view *state = &args->in[0], *value = &args->in[1];
    if (state->data != value->data && k_count(state)) memcpy(state->data, value->data, k_bytes(state));
    return AMPC_OK;
}

static ampc_status output_run(const k_args *args)
{
    (void)args;
    return AMPC_OK;
}

const k_kernel cpu_transpose = {.run = transpose_run};
const k_kernel cpu_expand = {.run = expand_run};
const k_kernel cpu_concat = {.run = concat_run};
const k_kernel cpu_split = {.run = split_run};
const k_kernel cpu_slice = {.run = slice_run};
const k_kernel cpu_slice_grad = {.run = slice_grad_run};
const k_kernel cpu_pad = {.prepare = pad_prepare, .run = pad_run};
const k_kernel cpu_pad_grad = {.prepare = pad_grad_prepare, .run = pad_grad_run};
const k_kernel cpu_trilu = {.run = trilu_run};
const k_kernel cpu_where = {.run = where_run};
const k_kernel cpu_select = {.run = select_run};
const k_kernel cpu_iota = {.run = iota_run};
const k_kernel cpu_dims = {.run = dims_run};
const k_kernel cpu_store = {.run = store_run};
const k_kernel cpu_output = {.run = output_run};
