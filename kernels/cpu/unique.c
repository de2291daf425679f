/* unique.c - the different rows of a tensor.
 *
 * An entry holds the first element of a row as a key, an integer in the order of the elements. Threads sort parts of
 * the entries, which are then merged in pairs. Equal rows keep their order, so the first of a group occurs first. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

typedef struct entry {
    uint64_t key;
    int64_t row;
} entry;

typedef struct sorting {
    int64_t rows, width;
    const uint64_t *keys; /* [rows][width] */
    entry *entries, *other;
} sorting;

/* ---- keys ------------------------------------------------------------------------------------ */

/* Integers of the same order; NaN, of any sign, is the largest. */
#define FLOAT_KEYS(REAL, U) \
    static void keys_of_##REAL(const REAL *x, int64_t n, uint64_t *keys) \
    { \
        const U sign = (U)1 << (8 * sizeof(U) - 1); \
        for (int64_t i = 0; i < n; i++) { \
            const REAL number = x[i] == 0 ? 0 : x[i]; /* -0 equals 0 */ \
            U bits; \
            memcpy(&bits, &number, sizeof bits); \
            keys[i] = isnan(number) ? UINT64_MAX : bits & sign ? (U)~bits : bits | sign; \
        } \
    }
FLOAT_KEYS(float, uint32_t)
FLOAT_KEYS(double, uint64_t)

static void load_keys(const k_view *x, int64_t first, int64_t n, uint64_t *keys)
{
    const ir_dtype carrier = cpu_formula_carrier(x->dtype);
    cpu_tile tile;
    const void *from = cpu_tile_load(x, first, n, carrier, &tile);
    const uint64_t flip = carrier == IR_i64 ? (uint64_t)1 << 63 : 0;
    if (carrier == IR_f32) keys_of_float(from, n, keys);
    else if (carrier == IR_f64) keys_of_double(from, n, keys);
    else
        for (int64_t i = 0; i < n; i++) keys[i] = ((const uint64_t *)from)[i] ^ flip;
}

/* ---- sorting --------------------------------------------------------------------------------- */

static int compare(const sorting *s, const entry *a, const entry *b)
{
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    const uint64_t *x = s->keys + a->row * s->width, *y = s->keys + b->row * s->width;
    for (int64_t i = 1; i < s->width; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Merges the sorted ranges [first, middle) and [middle, end) of `from` into `to`. */
static void merge(const sorting *s, const entry *from, entry *to, int64_t first, int64_t middle, int64_t end)
{
    int64_t a = first, b = middle;
    for (int64_t i = first; i < end; i++)
        to[i] = b == end || (a < middle && compare(s, &from[a], &from[b]) <= 0) ? from[a++] : from[b++];
}

/* Sorts entries [first, end) in place. */
static void sort_range(const sorting *s, int64_t first, int64_t end)
{
    entry *from = s->entries, *to = s->other;
    for (int64_t width = 1; width < end - first; width *= 2) {
        for (int64_t at = first; at < end; at += 2 * width)
            merge(s, from, to, at, k_min(at + width, end), k_min(at + 2 * width, end));
        entry *swap = from;
        from = to;
        to = swap;
    }
    if (from != s->entries) memcpy(s->entries + first, from + first, (size_t)(end - first) * sizeof *from);
}

/* Sorts all entries; returns them, in either buffer. */
static entry *sort(const sorting *s, const k_context *ctx)
{
    const int parts = cpu_threads(ctx, s->rows * s->width);
    entry *from = s->entries, *to = s->other;
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int i = 0; i < parts; i++) sort_range(s, s->rows * i / parts, s->rows * (i + 1) / parts);
    for (int step = 1; step < parts; step *= 2) {
#pragma omp parallel for num_threads(parts) schedule(static, 1)
        for (int i = 0; i < parts; i += 2 * step) {
            const int64_t middle = k_min(i + step, parts), end = k_min(i + 2 * step, parts);
            merge(s, from, to, s->rows * i / parts, s->rows * middle / parts, s->rows * end / parts);
        }
        entry *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* ---- results --------------------------------------------------------------------------------- */

typedef struct numbers {
    int64_t *first, *inverse, *counts; /* inverse and counts may be NULL */
    int64_t *group_of;                 /* by row: scratch space */
} numbers;

/* Numbers the groups in the order of the entries and returns how many there are. */
static int64_t number_sorted(const sorting *s, const entry *sorted, const numbers *out)
{
    int64_t groups = 0;
    for (int64_t i = 0; i < s->rows; i++) {
        if (i == 0 || compare(s, &sorted[i - 1], &sorted[i]) != 0) out->first[groups++] = sorted[i].row;
        out->group_of[sorted[i].row] = groups - 1;
    }
    return groups;
}

/* Renumbers the groups in the order of their first rows. `renumbered` has a place for each group. */
static void number_by_first(const sorting *s, const numbers *out, int64_t *renumbered, int64_t groups)
{
    for (int64_t i = 0; i < groups; i++) renumbered[i] = -1;
    for (int64_t row = 0, n = 0; row < s->rows; row++) {
        int64_t *number = &renumbered[out->group_of[row]];
        if (*number < 0) {
            out->first[n] = row;
            *number = n++;
        }
        out->group_of[row] = *number;
    }
}

static void store_numbers(const sorting *s, const numbers *out, int64_t groups)
{
    memset(out->first + groups, 0, (size_t)(s->rows - groups) * sizeof *out->first);
    if (out->inverse) memcpy(out->inverse, out->group_of, (size_t)s->rows * sizeof *out->inverse);
    if (!out->counts) return;
    memset(out->counts, 0, (size_t)s->rows * sizeof *out->counts);
    for (int64_t row = 0; row < s->rows; row++) out->counts[out->group_of[row]]++;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static sorting sorting_of(const k_args *args)
{
    const k_view *x = &args->in[0];
    const int64_t rows = x->dims[0];
    return (sorting){.rows = rows, .width = rows ? k_count(x) / rows : 0};
}

static size_t key_bytes(const sorting *s) { return cpu_lines((size_t)(s->rows * s->width) * sizeof(uint64_t)); }
static size_t entry_bytes(const sorting *s) { return cpu_lines((size_t)s->rows * sizeof(entry)); }

static ampc_status unique_prepare(const k_args *args, void **state, size_t *workspace)
{
    const sorting s = sorting_of(args);
    (void)state;
    *workspace = key_bytes(&s) + 2 * entry_bytes(&s) + cpu_lines((size_t)s.rows * sizeof(int64_t));
    return AMPC_OK;
}

static int64_t *result(const k_args *args, int i)
{
    const k_view *v = cpu_result(args, i);
    return cpu_is_used(v) ? v->data : NULL;
}

static void make_entries(const k_args *args, const sorting *s, uint64_t *keys)
{
    const int64_t n = s->rows * s->width, tiles = cpu_ceil_div(n, CPU_TILE);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t tile = 0; tile < tiles; tile++)
        load_keys(&args->in[0], tile * CPU_TILE, k_min(CPU_TILE, n - tile * CPU_TILE), keys + tile * CPU_TILE);
    for (int64_t row = 0; row < s->rows; row++) s->entries[row] = (entry){s->width ? keys[row * s->width] : 0, row};
}

static ampc_status unique_run(const k_args *args)
{
    sorting s = sorting_of(args);
    char *space = args->workspace;
    uint64_t *keys = args->workspace;
    s.keys = keys;
    s.entries = (entry *)(space += key_bytes(&s));
    s.other = (entry *)(space += entry_bytes(&s));
    const numbers out = {.first = result(args, 0),
                         .inverse = result(args, 1),
                         .counts = result(args, 2),
                         .group_of = (int64_t *)(space + entry_bytes(&s))};
    make_entries(args, &s, keys);
    entry *sorted = sort(&s, args->ctx);
    const int64_t groups = number_sorted(&s, sorted, &out);
    if (!args->attr[IR_ATTR(unique, sorted)].i) number_by_first(&s, &out, (int64_t *)sorted, groups);
    store_numbers(&s, &out, groups);
    if (result(args, 3)) *result(args, 3) = groups;
    return AMPC_OK;
}

const k_kernel cpu_unique = {.prepare = unique_prepare, .run = unique_run};
