/* gather.c - rows of a table by index, and the sum of gradients into the rows.
 *
 * x is [outer, length, inner] around the axis. Indices are checked before any element is moved. In the gradient, each
 * thread owns a range of tables (outer positions), or a range of table rows and then scans all indices in order, so the
 * order of additions does not depend on the number of threads. */
#include "kernels/cpu/cpu.h"

static int64_t index_at(const k_view *indices, int64_t i, int64_t entries)
{
    int64_t v = indices->dtype == IR_i64 ? ((const int64_t *)indices->data)[i]
                                         : ir_load_i64(indices->dtype, cpu_at(indices, i));
    return v < 0 ? v + entries : v;
}

static ampc_status check_indices(const k_args *args, const k_view *indices, int64_t entries)
{
    for (int64_t i = 0; i < k_count(indices); i++) {
        int64_t v = index_at(indices, i, entries);
        if (v >= 0 && v < entries) continue;
        return cpu_fail(args->ctx, AMPC_REJECTED, "index %lld at position %lld is outside of [%lld,%lld)",
                        (long long)ir_load_i64(indices->dtype, cpu_at(indices, i)), (long long)i, (long long)-entries,
                        (long long)entries);
    }
    return AMPC_OK;
}

static void copy_row(char *to, const char *from, size_t bytes)
{
    switch (bytes) { /* constant sizes compile to single moves */
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    default: memcpy(to, from, bytes); break;
    }
}

static ampc_status gather_run(const k_args *args)
{
    const k_view *x = &args->in[0], *indices = &args->in[1], *y = &args->out[0];
    const k_axis l = k_axis_of(x, args->attr[IR_ATTR(gather, axis)].i);
    int64_t n = k_count(y), count = k_count(indices);
    ampc_status status = check_indices(args, indices, l.length);
    if (status || n == 0) return status;
    size_t bytes = (size_t)l.inner * ir_dtype_size(x->dtype);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t r = 0; r < l.outer * count; r++) {
        int64_t entry = r / count * l.length + index_at(indices, r % count, l.length);
        copy_row(cpu_at(y, r * l.inner), cpu_at(x, entry * l.inner), bytes);
    }
    return AMPC_OK;
}

/* ---- gradient ---- */

static bool sums_in_result(const k_args *args) { return args->out[0].dtype == cpu_carrier(args->out[0].dtype); }

static ampc_status gather_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const k_view *dx = &args->out[0];
    if (!sums_in_result(args)) *workspace = (size_t)k_count(dx) * ir_dtype_size(cpu_carrier(dx->dtype));
    return AMPC_OK;
}

CPU_CLONES static void add_row_f32(float *sum, const float *x, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

CPU_CLONES static void add_row_f64(double *sum, const double *x, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

/* Adds row r of dy, [outer, indices, inner], to row `entry` of the sums. */
static void add_row(const k_view *dy, ir_dtype carrier, void *sums, int64_t inner, int64_t r, int64_t entry)
{
    cpu_tile scratch;
    for (int64_t i = 0; i < inner; i += CPU_TILE) {
        int64_t m = k_min(CPU_TILE, inner - i);
        const void *values = cpu_tile_load(dy, r * inner + i, m, carrier, &scratch);
        if (carrier == IR_f64) add_row_f64((double *)sums + entry * inner + i, values, m);
        else add_row_f32((float *)sums + entry * inner + i, values, m);
    }
}

/* Adds the gradients at outer position o to the sums of its rows [low, high). */
static void add_rows(const k_args *args, const k_axis *l, ir_dtype carrier, void *sums, int64_t o, int64_t low,
                     int64_t high)
{
    const k_view *dy = &args->in[0], *indices = &args->in[1];
    const int64_t n = k_count(indices), base = o * l->length;
    cpu_tile scratch;
    if (l->inner > 1 || carrier != IR_f32) {
        for (int64_t i = 0; i < n; i++) {
            const int64_t entry = index_at(indices, i, l->length);
            if (entry >= low && entry < high) add_row(dy, carrier, sums, l->inner, o * n + i, base + entry);
        }
        return;
    }
    float *column = (float *)sums + base;
    for (int64_t i = 0; i < n; i += CPU_TILE) { /* rows of one element */
        const int64_t m = k_min(CPU_TILE, n - i);
        const float *values = cpu_tile_load(dy, o * n + i, m, IR_f32, &scratch);
        for (int64_t k = 0; k < m; k++) {
            const int64_t entry = index_at(indices, i + k, l->length);
            if (entry >= low && entry < high) column[entry] += values[k];
        }
    }
}

static ampc_status gather_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *indices = &args->in[1], *dx = &args->out[0];
    const k_axis l = k_axis_of(dx, args->attr[IR_ATTR(gather_grad, axis)].i);
    ampc_status status = check_indices(args, indices, l.length);
    const int64_t work = k_count(dx) + k_count(dy);
    if (status || k_count(dx) == 0) return status;
    ir_dtype carrier = cpu_carrier(dx->dtype);
    void *sums = sums_in_result(args) ? dx->data : args->workspace;
    size_t row_bytes = (size_t)l.inner * ir_dtype_size(carrier);
    const int parts = cpu_threads(args->ctx, work);
    const bool by_table = l.outer >= parts;
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int part = 0; part < parts; part++) {
        const int64_t first = by_table ? l.outer * part / parts : 0;
        const int64_t end = by_table ? l.outer * (part + 1) / parts : l.outer;
        const int64_t low = by_table ? 0 : l.length * part / parts;
        const int64_t high = by_table ? l.length : l.length * (part + 1) / parts;
        for (int64_t o = first; o < end; o++) {
            const int64_t base = o * l.length;
            char *own = (char *)sums + (size_t)(base + low) * row_bytes;
            memset(own, 0, (size_t)(high - low) * row_bytes);
            add_rows(args, &l, carrier, sums, o, low, high);
            cpu_tile_store(dx, (base + low) * l.inner, (high - low) * l.inner, carrier, own);
        }
    }
    return AMPC_OK;
}

const k_kernel cpu_gather = {.run = gather_run};
const k_kernel cpu_gather_grad = {.prepare = gather_grad_prepare, .run = gather_grad_run};
