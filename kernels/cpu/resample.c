/* resample.c - resizing of any number of axes, and its gradient, which is resizing with transposed tables.
 *
 * The axes are resized one after the other, the innermost first. A task is a band of results along the outermost
 * resized axis of one plane (the axes before it): it reads the slices of the plane that the band needs, so what it
 * keeps between two axes fits into the cache. Nearest neighbours in the forward direction are copied, row by row. */
#include "kernels/cpu/resample.h"
#include "ir/ops/real.h"

#include <omp.h>
#include <stdlib.h>

typedef struct state {
    resizing r;
    cpu_taps taps[IR_MAX_RANK]; /* by axis of r; empty if it is not resized */
    int first;                  /* the outermost resized axis; its planes, and the elements after it */
    int64_t planes, rest_in, rest_out;
    int64_t band, bands; /* results per task, tasks per plane */
    int64_t buffer;      /* numbers in each of the two buffers of a thread */
} state;

enum { BAND_NUMBERS = 32768, TASKS_PER_THREAD = 4, ROWS_PER_TASK = 16 };

static void release(void *of)
{
    state *s = of;
    for (int i = 0; s && i < s->r.rank; i++) cpu_taps_free(&s->taps[i]);
    free(s);
}

/* ---- bands ---- */

typedef struct slices {
    int64_t low, n;
} slices;

/* The elements of the axis that results [from, to) use. */
static slices slices_of(const cpu_taps *t, int64_t from, int64_t to)
{
    int64_t low = t->in, high = 0;
    for (int k = 0; k < t->taps; k++)
        for (int64_t o = from; o < to; o++) {
            const int64_t at = t->index[k * t->out + o];
            low = k_min(low, at);
            high = k_max(high, at + 1);
        }
    return (slices){low, high - low};
}

/* The largest number of elements of `n` slices in any stage. */
static int64_t stage_numbers(const state *s, int64_t n)
{
    int64_t numbers = n * s->rest_in, most = numbers;
    for (int i = s->r.rank - 1; i > s->first; i--) {
        numbers = numbers / s->r.axes[i].in * s->r.axes[i].out;
        most = k_max(most, numbers);
    }
    return most;
}

static void divide_work(state *s, const k_context *ctx)
{
    const cpu_taps *outer = &s->taps[s->first];
    int64_t slices_per_band = 0;
    s->band = k_max(4, BAND_NUMBERS / k_max(1, s->rest_out));
    s->band = k_min(s->band, cpu_ceil_div(outer->out * s->planes, (int64_t)ctx->threads * TASKS_PER_THREAD));
    s->band = k_max(1, k_min(s->band, outer->out));
    s->bands = cpu_ceil_div(outer->out, s->band);
    for (int64_t b = 0; b < s->bands; b++) {
        const slices part = slices_of(outer, b * s->band, k_min((b + 1) * s->band, outer->out));
        slices_per_band = k_max(slices_per_band, part.n);
    }
    s->buffer = k_max(stage_numbers(s, slices_per_band), s->band * s->rest_out);
    s->buffer = cpu_ceil_div(s->buffer, 64) * 64;
}

static ampc_status measure(state *s, const k_args *args)
{
    const ir_dtype carrier = cpu_carrier(args->out[0].dtype);
    s->planes = s->rest_in = s->rest_out = 1;
    s->first = s->r.rank;
    for (int i = 0; i < s->r.rank; i++) {
        const resizing_axis *a = &s->r.axes[i];
        if (a->in > INT32_MAX || a->out > INT32_MAX)
            return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "an axis has 2^31 elements or more");
        if (a->resized && s->first == s->r.rank) s->first = i;
        if (s->first == s->r.rank) s->planes *= a->in;
        else if (i > s->first) s->rest_in *= a->in, s->rest_out *= a->out;
        if (a->resized && !cpu_taps_make(&a->axis, s->r.backward, carrier, &s->taps[i]))
            return cpu_fail(args->ctx, AMPC_NO_MEMORY, "out of memory");
    }
    if (s->first < s->r.rank) divide_work(s, args->ctx);
    return AMPC_OK;
}

static bool selects(const k_args *args)
{
    return args->op == IR_OP_resize && args->attr[IR_ATTR(resize, method)].i == IR_WORD(sampling, nearest);
}

static size_t thread_bytes(const state *s) { return 2 * (size_t)s->buffer * sizeof(double); }

static ampc_status prepare(const k_args *args, void **out, size_t *workspace)
{
    const bool empty = k_count(&args->in[0]) == 0;
    if (k_count(&args->out[0]) == 0 || (empty && args->op == IR_OP_resize_grad)) return AMPC_OK;
    if (empty) return cpu_fail(args->ctx, AMPC_REJECTED, "an axis has no elements to resize");
    state *s = *out = calloc(1, sizeof *s);
    if (!s) return cpu_fail(args->ctx, AMPC_NO_MEMORY, "out of memory");
    s->r = resizing_of(args);
    const ampc_status status = measure(s, args);
    if (status == AMPC_OK && !selects(args)) *workspace = (size_t)args->ctx->threads * thread_bytes(s);
    return status;
}

#define REAL float
#include "kernels/cpu/resample_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/resample_body.h"
#undef REAL

/* ---- nearest ---- */

/* The axes of a row: all from `axis`, the innermost resized one, on. */
typedef struct rows {
    int axis;
    int64_t count;  /* of result rows */
    size_t in, out; /* bytes per row */
    size_t block;   /* bytes per element of the axis */
} rows;

static rows rows_of(const state *s, size_t size)
{
    rows r = {.axis = s->r.rank - 1, .count = 1};
    size_t block = size;
    while (r.axis > 0 && !s->r.axes[r.axis].resized) block *= (size_t)s->r.axes[r.axis--].out;
    for (int i = 0; i < r.axis; i++) r.count *= s->r.axes[i].out;
    r.block = block;
    r.in = block * (size_t)s->r.axes[r.axis].in;
    r.out = block * (size_t)s->r.axes[r.axis].out;
    return r;
}

/* The row of x that result row `row` copies; -1: none, it is outside. */
static int64_t source_row(const state *s, const rows *r, int64_t row)
{
    int64_t source = 0, stride = 1;
    for (int i = r->axis - 1; i >= 0; i--) {
        const resizing_axis *a = &s->r.axes[i];
        const int64_t o = row % a->out;
        if (a->resized && !s->taps[i].counts[o]) return -1;
        source += (a->resized ? s->taps[i].index[o] : o) * stride;
        stride *= a->in;
        row /= a->out;
    }
    return source;
}

static void fill_row(char *y, size_t bytes, const char *value, size_t size)
{
    for (size_t i = 0; i < bytes; i += size) memcpy(y + i, value, size);
}

/* Consecutive result rows often copy the same row of x: then the result is copied. */
static void select_rows(const k_args *args, const state *s, const rows *r, int64_t first, const char *outside)
{
    const size_t size = ir_dtype_size(args->out[0].dtype);
    const char *x = args->in[0].data;
    char *y = (char *)args->out[0].data + (size_t)first * r->out;
    int64_t before = -1;
    for (int64_t row = first; row < k_min(first + ROWS_PER_TASK, r->count); row++, y += r->out) {
        const int64_t source = source_row(s, r, row);
        if (source < 0) fill_row(y, r->out, outside, size);
        else if (source == before) memcpy(y, y - r->out, r->out);
        else if (!s->r.axes[r->axis].resized) memcpy(y, x + (size_t)source * r->in, r->out);
        else cpu_select_row(&s->taps[r->axis], r->block, x + (size_t)source * r->in, y, outside, size);
        before = source;
    }
}

static void select_all(const k_args *args, const state *s)
{
    const k_view *y = &args->out[0];
    const rows r = rows_of(s, ir_dtype_size(y->dtype));
    char outside[sizeof(double)];
    cpu_store_number(&(k_view){.data = outside, .dtype = y->dtype}, 0, args->attr[IR_ATTR(resize, outside)].f);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(y))) schedule(static)
    for (int64_t i = 0; i < cpu_ceil_div(r.count, ROWS_PER_TASK); i++)
        select_rows(args, s, &r, i * ROWS_PER_TASK, outside);
}

static ampc_status run(const k_args *args)
{
    const state *s = args->state;
    const k_view *x = &args->in[0], *y = &args->out[0];
    if (!s) {
        if (k_count(y)) memset(y->data, 0, k_bytes(y));
        return AMPC_OK;
    }
    if (s->first == s->r.rank) {
        memcpy(y->data, x->data, k_bytes(y));
        return AMPC_OK;
    }
    if (selects(args)) {
        select_all(args, s);
        return AMPC_OK;
    }
    const bool wide = cpu_carrier(y->dtype) == IR_f64;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_max(k_count(x), k_count(y)))) schedule(static)
    for (int64_t task = 0; task < s->planes * s->bands; task++) {
        char *scratch = (char *)args->workspace + (size_t)omp_get_thread_num() * thread_bytes(s);
        if (wide) resize_band_double(args, s, task, scratch);
        else resize_band_float(args, s, task, scratch);
    }
    return AMPC_OK;
}

const k_kernel cpu_resize = {.prepare = prepare, .run = run, .release = release};
const k_kernel cpu_resize_grad = {.prepare = prepare, .run = run, .release = release};
