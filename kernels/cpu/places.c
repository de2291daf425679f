/* places.c - gathers and scatters by coordinates (kernels/places.h).
 *
 * A gather handles a block of items at a time: it computes their rows, then copies them. A scatter first computes the
 * rows of all items. Then each thread owns a range of rows and applies all updates of it in order, so neither the last
 * of several updates of a row nor the order of additions depends on the number of threads. */
#include "kernels/places.h"
#include "kernels/cpu/cpu.h"

/* ---- rows of items ---- */

/* Sets rows[] to the bases of items [first, first + n). */
static void fill_bases(const k_walk *w, int64_t first, int64_t n, int64_t *rows)
{
    const int last = w->rank - 1;
    const int64_t step = w->src[last];
    for (int64_t done = 0; done < n;) {
        int64_t rest = (first + done) / w->dims[last], inner = (first + done) % w->dims[last], base = inner * step;
        const int64_t m = k_min(w->dims[last] - inner, n - done);
        for (int i = last - 1; i >= 0; rest /= w->dims[i--]) base += rest % w->dims[i] * w->src[i];
        for (int64_t i = 0; i < m; i++) rows[done + i] = base + i * step;
        done += m;
    }
}

/* The number of items whose indices fit into a tile. */
static int64_t block_items(const k_places *p) { return CPU_TILE / p->depth; }

/* Computes the rows of a block of items. Returns the position of the first index that is out of range, or -1. */
static int64_t find_rows(const k_places *p, const k_view *indices, int64_t first, int64_t n, int64_t *rows)
{
    cpu_tile scratch;
    const int64_t *index = cpu_tile_load(indices, first * p->depth, n * p->depth, IR_i64, &scratch);
    bool good = true;
    fill_bases(&p->items, first, n, rows);
    for (int k = 0; k < p->depth; k++) {
        const int64_t size = p->size[k], stride = p->stride[k];
        for (int64_t i = 0; i < n; i++) {
            const int64_t v = index[i * p->depth + k], at = v < 0 ? v + size : v;
            const bool fits = (uint64_t)at < (uint64_t)size;
            good &= fits;
            rows[i] += fits ? at * stride : 0;
        }
    }
    for (int64_t i = 0; !good && i < n * p->depth; i++)
        if (index[i] < -p->size[i % p->depth] || index[i] >= p->size[i % p->depth]) return first * p->depth + i;
    return -1;
}

static ampc_status refuse_index(const k_args *args, const k_places *p, int64_t at)
{
    const k_view *indices = &args->in[1];
    const int64_t size = p->size[at % p->depth];
    return cpu_fail(args->ctx, AMPC_REJECTED, "index %lld at position %lld is outside of [%lld,%lld)",
                    (long long)ir_load_i64(indices->dtype, cpu_at(indices, at)), (long long)at, (long long)-size,
                    (long long)size);
}

/* ---- gather ---- */

#define COPY(type) \
    do { \
        type *y = to; \
        const type *x = data; \
        for (int64_t i = 0; i < n; i++) y[i] = x[rows[i]]; \
    } while (0)

/* Copies n rows of `bytes` bytes. */
static void copy_rows(void *to, const void *data, size_t bytes, const int64_t *rows, int64_t n)
{
    switch (bytes) {
    case 1: COPY(uint8_t); break;
    case 2: COPY(uint16_t); break;
    case 4: COPY(uint32_t); break;
    case 8: COPY(uint64_t); break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)to + (size_t)i * bytes, (const char *)data + (size_t)rows[i] * bytes, bytes);
    }
}

static ampc_status gather_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const k_places p = k_places_of(args, x);
    const int64_t each = block_items(&p), blocks = cpu_ceil_div(p.count, each);
    const size_t bytes = (size_t)p.inner * ir_dtype_size(x->dtype);
    const int64_t work = k_max(k_count(y), p.count);
    int64_t bad = INT64_MAX;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, work)) reduction(min : bad) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        int64_t rows[CPU_TILE], first = b * each, n = k_min(each, p.count - first);
        const int64_t wrong = find_rows(&p, &args->in[1], first, n, rows);
        if (wrong >= 0) bad = k_min(bad, wrong);
        else if (bytes) copy_rows((char *)y->data + (size_t)first * bytes, x->data, bytes, rows, n);
    }
    return bad == INT64_MAX ? AMPC_OK : refuse_index(args, &p, bad);
}

/* ---- scatter ---- */

/* What a scatter accumulates in: the result, or a copy of it in the carrier's type. */
typedef struct scatter_sums {
    ir_dtype dtype;
    void *data;
    int64_t *rows; /* of all items */
    enum ir_words_scatter mode;
} scatter_sums;

static bool accumulates_apart(const k_args *args)
{
    const ir_dtype t = args->out[0].dtype;
    return args->attr[IR_ATTR(scatter_nd, reduction)].i != IR_WORD(scatter, none) && t != cpu_formula_carrier(t);
}

static size_t rows_bytes(const k_places *p) { return cpu_lines((size_t)p->count * sizeof(int64_t)); }

static ampc_status scatter_prepare(const k_args *args, void **state, size_t *workspace)
{
    const k_view *y = &args->out[0];
    const k_places p = k_places_of(args, y);
    (void)state;
    *workspace = rows_bytes(&p);
    if (accumulates_apart(args)) *workspace += (size_t)k_count(y) * ir_dtype_size(cpu_formula_carrier(y->dtype));
    return AMPC_OK;
}

#define REDUCE(T, Sum) \
    static void reduce_##T(enum ir_words_scatter mode, T *y, const T *x, int64_t n) \
    { \
        switch (mode) { \
        case IR_WORD(scatter, add): CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = (T)((Sum)y[i] + (Sum)x[i]); break; \
        case IR_WORD(scatter, mul): CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = (T)((Sum)y[i] * (Sum)x[i]); break; \
        case IR_WORD(scatter, max): \
            CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i]; \
            break; \
        default: CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = x[i] < y[i] || x[i] != x[i] ? x[i] : y[i]; break; \
        } \
    }
REDUCE(float, float)
REDUCE(double, double)
REDUCE(int64_t, uint64_t)
REDUCE(uint64_t, uint64_t)

/* Applies n elements of an update to elements [at, at + n). */
static void apply(const scatter_sums *s, int64_t at, const void *update, int64_t n)
{
    switch (s->mode == IR_WORD(scatter, none) ? IR_NO_DTYPE : s->dtype) {
    case IR_f32: reduce_float(s->mode, (float *)s->data + at, update, n); break;
    case IR_f64: reduce_double(s->mode, (double *)s->data + at, update, n); break;
    case IR_i64: reduce_int64_t(s->mode, (int64_t *)s->data + at, update, n); break;
    case IR_u64: reduce_uint64_t(s->mode, (uint64_t *)s->data + at, update, n); break;
    default: {
        const size_t size = ir_dtype_size(s->dtype);
        memcpy((char *)s->data + (size_t)at * size, update, (size_t)n * size);
    }
    }
}

/* Applies the updates of rows [low, high), in order. Several short rows of updates are loaded at a time. */
static void apply_updates(const k_args *args, const k_places *p, const scatter_sums *s, int64_t low, int64_t high)
{
    const k_view *updates = &args->in[IR_IN(scatter_nd, updates)];
    const int64_t columns = k_min(p->inner, CPU_TILE), together = CPU_TILE / columns;
    const size_t size = ir_dtype_size(s->dtype);
    cpu_tile scratch;
    for (int64_t first = 0; first < p->count; first += together) {
        const int64_t n = k_min(together, p->count - first);
        for (int64_t column = 0; column < p->inner; column += columns) {
            const int64_t m = k_min(columns, p->inner - column), at = first * p->inner + column;
            const char *block = s->dtype == updates->dtype
                                    ? cpu_at(updates, at)
                                    : cpu_tile_load(updates, at, m == p->inner ? n * m : m, s->dtype, &scratch);
            for (int64_t i = 0; i < n; i++)
                if (s->rows[first + i] >= low && s->rows[first + i] < high)
                    apply(s, s->rows[first + i] * p->inner + column, block + (size_t)(i * p->inner) * size, m);
        }
    }
}

/* Computes the rows of all items; returns the position of the first index out of range, or INT64_MAX. */
static int64_t find_all_rows(const k_args *args, const k_places *p, int64_t *rows)
{
    const int64_t each = block_items(p), blocks = cpu_ceil_div(p->count, each);
    int64_t bad = INT64_MAX;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, p->count)) reduction(min : bad) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = b * each;
        const int64_t wrong = find_rows(p, &args->in[1], first, k_min(each, p->count - first), rows + first);
        if (wrong >= 0) bad = k_min(bad, wrong);
    }
    return bad;
}

static ampc_status scatter_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const k_places p = k_places_of(args, y);
    const bool apart = accumulates_apart(args);
    scatter_sums s = {.dtype = apart ? cpu_formula_carrier(y->dtype) : y->dtype,
                      .data = apart ? (char *)args->workspace + rows_bytes(&p) : y->data,
                      .rows = args->workspace,
                      .mode = (enum ir_words_scatter)args->attr[IR_ATTR(scatter_nd, reduction)].i};
    const int64_t bad = find_all_rows(args, &p, s.rows);
    if (bad != INT64_MAX) return refuse_index(args, &p, bad);
    if (k_count(y) == 0) return AMPC_OK;
    const int parts = cpu_threads(args->ctx, k_count(y) + p.count * p.inner);
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int part = 0; part < parts; part++) {
        const int64_t low = p.rows * part / parts, high = p.rows * (part + 1) / parts;
        const int64_t first = low * p.inner, n = (high - low) * p.inner;
        char *own = (char *)s.data + (size_t)first * ir_dtype_size(s.dtype);
        if (apart) cpu_convert(s.dtype, own, x->dtype, cpu_at(x, first), n);
        else if (n) memcpy(own, cpu_at(x, first), (size_t)n * ir_dtype_size(s.dtype));
        apply_updates(args, &p, &s, low, high);
        if (apart) cpu_convert(y->dtype, cpu_at(y, first), s.dtype, own, n);
    }
    return AMPC_OK;
}

/* ---- bits ---- */

static ampc_status bit_cast_run(const k_args *args)
{
    if (k_bytes(&args->out[0])) memcpy(args->out[0].data, args->in[0].data, k_bytes(&args->out[0]));
    return AMPC_OK;
}

const k_kernel cpu_gather_at = {.run = gather_run};
const k_kernel cpu_scatter_at = {.prepare = scatter_prepare, .run = scatter_run};
const k_kernel cpu_bit_cast = {.run = bit_cast_run};
