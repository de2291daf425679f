/* batch_norm.c - normalisation per channel, and its gradient.
 *
 * x is [N, C, S]. A channel is processed in chunks of about one tile. If S is small, 64 channels are processed together
 * and separated while loading, so that whole cache lines are still read. Statistics need one pass over memory and do
 * not suffer from cancellation: the mean and squared deviations of each chunk are computed in the carrier's type and
 * combined in f64 (Chan, Golub, LeVeque 1979). A thread processes whole channels, so the order of additions depends
 * only on shapes.
 *
 * In NHWC, x has rows of C elements. Rows are divided into bands, whose number depends only on shapes, and columns into
 * tiles. The statistics of a band are computed strip by strip as above, for all columns of a tile at once; then those
 * of the bands are combined. Several short rows are processed as one long row. */
#include "kernels/cpu/cpu.h"
#include "ir/ops/real.h"

#include <math.h>

enum { GROUP = 64, SMALL = 16, PANEL = 16 * CPU_TILE };

typedef struct layout {
    int64_t batch, channels, size; /* N, C, S */
    int64_t count;                 /* elements per channel */
    int64_t group, groups;         /* channels per group; number of groups */
    int64_t rows, per_row, chunks; /* rows of S per chunk; chunks per row and per group */
} layout;

static layout layout_of(const k_view *x)
{
    layout l = {.batch = x->dims[0], .channels = x->dims[1], .size = 1};
    for (int i = 2; i < x->rank; i++) l.size *= x->dims[i];
    l.count = l.batch * l.size;
    l.group = l.size < SMALL ? GROUP : 1;
    l.groups = cpu_ceil_div(l.channels, l.group);
    l.rows = l.size == 0 ? 1 : l.group > 1 ? PANEL / GROUP / l.size : k_max(1, CPU_TILE / l.size);
    l.per_row = cpu_ceil_div(l.size, CPU_TILE);
    l.chunks = cpu_ceil_div(l.batch, l.rows) * l.per_row;
    return l;
}

/* Rows [row, row + rows) of the batch, columns [column, column + columns) of S. */
typedef struct chunk {
    int64_t row, rows, column, columns, count;
} chunk;

static chunk chunk_of(const layout *l, int64_t i)
{
    chunk p = {.row = i / l->per_row * l->rows, .column = i % l->per_row * CPU_TILE};
    p.rows = k_min(l->rows, l->batch - p.row);
    p.columns = k_min(CPU_TILE, l->size - p.column);
    p.count = p.rows * p.columns;
    return p;
}

static int64_t element(const layout *l, const chunk *p, int64_t row, int64_t channel)
{
    return ((p->row + row) * l->channels + channel) * l->size + p->column;
}

/* Whether a chunk is part of one row and needs no copy. */
static bool direct(const layout *l) { return l->group == 1 && l->rows == 1; }

/* ---- NHWC ---- */

enum { BANDS = 32, HEIGHT = PANEL / CPU_TILE, VECTORS = 4 };

typedef struct columns {
    int64_t rows, channels;       /* N S, C */
    int64_t fold;                 /* rows processed as one */
    int64_t tiles, bands, height; /* height: rows per strip */
    double *sums;                 /* [bands, 2, C]: two sums per band and channel */
    void *vectors[VECTORS];       /* one carrier per channel, repeated `fold` times */
} columns;

/* Rows [row, row + rows), columns [column, column + columns): `full` long rows of `wide` elements and one of `tail`.
 * `adjacent` rows are adjacent in memory. */
typedef struct strip {
    int64_t row, end, rows, column, columns, adjacent, full, wide, tail;
} strip;

static columns columns_of(const k_view *x, void *workspace)
{
    layout l = layout_of(x);
    columns s = {.rows = l.count, .channels = l.channels, .fold = k_max(1, GROUP / k_max(1, l.channels))};
    s.tiles = cpu_ceil_div(s.channels, CPU_TILE);
    s.height = s.fold * HEIGHT;
    s.bands = s.rows * s.channels < CPU_SERIAL ? 1 : k_min(BANDS, cpu_ceil_div(s.rows, s.height));
    s.sums = workspace;
    for (int i = 0; i < VECTORS && workspace; i++)
        s.vectors[i] = (char *)workspace +
                       (size_t)(2 * s.bands * s.channels + i * k_max(s.channels, GROUP)) * sizeof(double);
    return s;
}

static int64_t band_start(const columns *l, int64_t band) { return l->rows * band / l->bands; }

static double *tile_sums(const columns *l, int64_t band, int64_t tile)
{
    return l->sums + 2 * band * l->channels + tile * CPU_TILE;
}

/* The strip that starts at s->row; at the end of the band it has no rows. */
static strip strip_of(const columns *l, strip s)
{
    s.rows = k_min(l->height, s.end - s.row);
    s.adjacent = s.columns == l->channels ? s.rows : 1;
    s.full = s.rows / l->fold;
    s.wide = s.columns * l->fold;
    s.tail = s.rows % l->fold * s.columns;
    return s;
}

static strip strip_first(const columns *l, int64_t band, int64_t tile)
{
    return strip_of(l, (strip){.row = band_start(l, band),
                               .end = band_start(l, band + 1),
                               .column = tile * CPU_TILE,
                               .columns = k_min(CPU_TILE, l->channels - tile * CPU_TILE)});
}

static strip strip_next(const columns *l, const strip *s)
{
    strip next = *s;
    next.row += s->rows;
    return strip_of(l, next);
}

/* Combines the statistics of `count` more elements of each of n columns with those of the `seen` ones. */
CPU_CLONES static void join(double seen, double count, const double *part_mean, const double *squares, double *mean,
                            double *deviations, int64_t n)
{
    double share = count / (seen + count), weight = seen * share;
    CPU_SIMD for (int64_t j = 0; j < n; j++)
    {
        double delta = part_mean[j] - mean[j];
        mean[j] += delta * share;
        deviations[j] += squares[j] + delta * delta * weight;
    }
}

/* ---- a vector of numbers per channel: elements [first, first + n) of v ---- */

static void load_numbers(const k_view *v, int64_t first, int64_t n, double *numbers)
{
    cpu_convert(IR_f64, numbers, v->dtype, cpu_at(v, first), n);
}

static void store_numbers(const k_view *v, int64_t first, int64_t n, const double *numbers)
{
    if (cpu_is_used(v)) cpu_tile_store(v, first, n, IR_f64, numbers);
}

/* Stores the running statistic: a mix of the old one and of x, or the old one if `keep` is 1. */
CPU_CLONES static void mix(double *old, const double *x, double keep, int64_t n)
{
    if (keep == 1) return;
    CPU_SIMD for (int64_t c = 0; c < n; c++) old[c] = old[c] * keep + x[c] * (1 - keep);
}

CPU_CLONES static void invert(const double *variance, double eps, double *rstd, int64_t n)
{
    CPU_SIMD for (int64_t c = 0; c < n; c++) rstd[c] = 1 / sqrt(variance[c] + eps);
}

CPU_CLONES static void scale_by(double *x, const double *factor, int64_t n)
{
    CPU_SIMD for (int64_t c = 0; c < n; c++) x[c] *= factor[c];
}

CPU_CLONES static void divide_by(double *x, double count, int64_t n)
{
    CPU_SIMD for (int64_t c = 0; c < n; c++) x[c] /= count;
}

CPU_CLONES static void add_to(double *sum, const double *x, int64_t n)
{
    CPU_SIMD for (int64_t c = 0; c < n; c++) sum[c] += x[c];
}

#define REAL float
#include "kernels/cpu/batch_norm_body.h"
#include "kernels/cpu/batch_norm_last.h"
#undef REAL
#define REAL double
#include "kernels/cpu/batch_norm_body.h"
#include "kernels/cpu/batch_norm_last.h"
#undef REAL

typedef void band_fn(const k_args *args, const columns *l, int64_t band, int64_t tile);
typedef void tile_fn(const k_args *args, const columns *l, int64_t tile);

static void run_bands(const k_args *args, const columns *l, band_fn *band)
{
#pragma omp parallel for num_threads(cpu_threads(args->ctx, l->rows * l->channels)) schedule(static)
    for (int64_t i = 0; i < l->bands * l->tiles; i++) band(args, l, i / l->tiles, i % l->tiles);
}

static void run_tiles(const k_args *args, const columns *l, tile_fn *tile)
{
#pragma omp parallel for num_threads(cpu_threads(args->ctx, l->rows * l->channels)) schedule(static)
    for (int64_t i = 0; i < l->tiles; i++) tile(args, l, i);
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const columns l = columns_of(&args->in[0], NULL);
    *workspace = 0;
    if (args->in[0].channels_last)
        *workspace = (size_t)(2 * l.bands * l.channels + VECTORS * k_max(l.channels, GROUP)) * sizeof(double);
    return AMPC_OK;
}

/* ---- the kernels ---- */

typedef void group_fn(const k_args *args, const layout *l, int64_t group);

static ampc_status run_groups(const k_args *args, group_fn *f32, group_fn *f64)
{
    const layout l = layout_of(&args->in[0]);
    group_fn *group = args->in[0].dtype == IR_f64 ? f64 : f32;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, l.count *l.channels)) schedule(static)
    for (int64_t g = 0; g < l.groups; g++) group(args, &l, g);
    return AMPC_OK;
}

static ampc_status batch_norm_run(const k_args *args)
{
    const bool f64 = args->in[0].dtype == IR_f64;
    if (args->in[0].channels_last) {
        const columns l = columns_of(&args->in[0], args->workspace);
        if (args->attr[IR_ATTR(batch_norm, training)].i) run_bands(args, &l, f64 ? measure_double : measure_float);
        run_tiles(args, &l, f64 ? finish_tile_double : finish_tile_float);
        if (cpu_is_used(&args->out[0])) run_bands(args, &l, f64 ? normalise_rows_double : normalise_rows_float);
        return AMPC_OK;
    }
    return run_groups(args, normalise_float, normalise_double);
}

static ampc_status batch_norm_grad_run(const k_args *args)
{
    const bool f64 = args->in[0].dtype == IR_f64;
    if (args->in[0].channels_last) {
        const columns l = columns_of(&args->in[0], args->workspace);
        (f64 ? read_mean_double : read_mean_float)(args, &l);
        run_bands(args, &l, f64 ? measure_slopes_double : measure_slopes_float);
        run_tiles(args, &l, f64 ? finish_slopes_tile_double : finish_slopes_tile_float);
        if (cpu_is_used(&args->out[0])) run_bands(args, &l, f64 ? slope_rows_double : slope_rows_float);
        return AMPC_OK;
    }
    return run_groups(args, slope_float, slope_double);
}

const k_kernel cpu_batch_norm = {.prepare = prepare, .run = batch_norm_run};
const k_kernel cpu_batch_norm_grad = {.prepare = prepare, .run = batch_norm_grad_run};
