/* conv_amx.c - convolutions of a low type in AMX tiles, without a copy of each window.
 *
 * Positions of the source are copied once, to a grid in which every position of the result reads all its taps at the
 * same distances: if the window has steps, there is a grid for each remainder of a position divided by the steps that
 * a tap reads. In a grid each axis ends with as many zeros as the padding needs, at its end or at the beginning of what
 * follows. So 16 neighbours are a tile, whose rows are as far apart as positions are, even across the ends of lines
 * and images; the sums of positions that are zeros of the grid are dropped. A thread copies what the positions of a
 * task read, which fits the second level of the cache.
 *
 * The weights are panels of gemm_pack_low, in which each tap begins with a new tile. An element of f16 is split as in
 * gemm_amx.c, into grids of high and of low parts. A sum is in the order taps, channels. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/conv_own.h"
#include "kernels/cpu/gemm_item.h"

bool conv_amx_fits(const conv_pass *p)
{
    return ir_dtype_is_low(p->type) && p->source.inner >= CONV_AMX_CHANNELS && conv_volume(p->w.taps) > 0;
}

#if defined(__x86_64__)
#include <omp.h>

/* ---- grids ------------------------------------------------------------------------------------------- */

/* An axis of the grids. Tap t reads position x + floor((offset + t * apart) / step) of grid t % grids. */
typedef struct axis {
    int64_t grids, inside, pitch; /* positions with data, and all */
    int64_t least, most;          /* what taps add to a position */
} axis;

static int64_t divisor(int64_t a, int64_t b) { return b == 0 ? a : divisor(b, a % b); }

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static int64_t shift_of(const conv_window *w, int i, int64_t tap) { return w->offset[i] + tap * w->apart[i]; }

static axis axis_of(const conv_pass *p, int i)
{
    const conv_window *w = &p->w;
    const int64_t step = w->step[i], apart = w->apart[i] < 0 ? -w->apart[i] : w->apart[i];
    const int64_t first = floor_div(shift_of(w, i, 0), step), last = floor_div(shift_of(w, i, w->taps[i] - 1), step);
    axis a = {.grids = k_min(w->taps[i], step / divisor(step, apart))};
    a.least = k_min(first, last), a.most = k_max(first, last);
    const int64_t end = w->count[i] + a.most;
    a.inside = k_max(0, k_min(end, cpu_ceil_div(p->source.size[i], step)));
    a.pitch = k_max(w->count[i], a.inside + k_max(-a.least, k_max(end - a.inside, 0)));
    return a;
}

/* How a pass is divided. A task is a range of positions of the grids and one of panels. */
typedef struct division {
    axis axes[3];
    int64_t image, positions; /* positions of the grids per image, and all */
    int64_t least, reach;     /* what taps add to a position: least and most - least */
    int64_t bytes;            /* of a position */
    int64_t part;             /* of an element, the bytes of a grid of it */
    int64_t grid, grids;      /* the bytes of all parts of a grid */
    int64_t length, chunks;   /* positions of a task */
    int64_t panels, across;   /* panels of a task */
    int64_t tasks;
    int threads;
    size_t shifts, rows, per_thread, total; /* bytes */
} division;

/* The length of a task, in positions. */
static int64_t length_of(const division *d, const conv_pass *p, const k_context *ctx)
{
    enum { BYTES = 1 << 20 };
    const int64_t parts = p->type == IR_f16 ? 2 : 1;
    const int64_t fit = BYTES / (d->bytes * parts * d->grids) - d->reach;
    const int64_t share = cpu_ceil_div(d->positions, ctx->threads), least = k_max(2 * AMX_STRIP, d->reach / 2);
    const int64_t most = k_max(least, k_min(fit, share));
    return cpu_ceil_div(cpu_ceil_div(d->positions, cpu_ceil_div(d->positions, most)), AMX_STRIP) * AMX_STRIP;
}

static division divide(const conv_pass *p, const k_context *ctx)
{
    enum { SERIAL = 128 }; /* as in gemm_amx.c */
    division d = {.grids = 1, .image = 1};
    int64_t most = 0;
    for (int i = 0; i < 3; i++) {
        const axis a = d.axes[i] = axis_of(p, i);
        d.grids *= a.grids;
        d.image *= a.pitch;
        d.least = d.least * a.pitch + a.least;
        most = most * a.pitch + a.most;
    }
    d.reach = most - d.least;
    d.positions = p->source.n * d.image;
    d.bytes = cpu_ceil_div(p->source.inner, AMX_TERMS) * AMX_LINE;
    if (d.bytes % (4 * AMX_LINE) == 0) d.bytes += AMX_LINE; /* positions in different sets of the cache */
    d.length = length_of(&d, p, ctx);
    d.chunks = cpu_ceil_div(d.positions, d.length);
    d.part = (d.length + d.reach + AMX_STRIP) * d.bytes;
    d.grid = p->type == IR_f16 ? 2 * d.part : d.part;
    const int64_t panels = cpu_ceil_div(p->result.inner, AMX_STRIP), blocks = d.chunks * p->c->g.groups;
    d.panels = cpu_ceil_div(panels, k_min(panels, cpu_ceil_div(ctx->threads, blocks)));
    d.across = cpu_ceil_div(panels, d.panels);
    d.tasks = blocks * d.across;
    const int64_t taps = conv_volume(p->w.taps), work = d.positions * taps * p->source.channels * p->result.inner;
    d.threads = (int)k_min(cpu_threads(ctx, work / SERIAL), d.tasks);
    d.shifts = cpu_lines((size_t)taps * sizeof(int64_t));
    d.rows = cpu_lines((size_t)d.length * sizeof(int64_t));
    d.per_thread = d.rows + (size_t)(d.grids * d.grid);
    d.total = d.shifts + d.per_thread * (size_t)k_min(ctx->threads, d.tasks);
    return d;
}

size_t conv_amx_workspace(const conv_pass *p, const k_context *ctx) { return divide(p, ctx).total; }

/* Where in the grids of a task each tap of its first position is, in bytes. */
static void find_taps(const conv_pass *p, const division *d, int64_t *shifts)
{
    for (int64_t t = 0; t < conv_volume(p->w.taps); t++) {
        int64_t tap[3], grid = 0, at = 0;
        conv_split(t, p->w.taps, tap);
        for (int i = 0; i < 3; i++) {
            grid = grid * d->axes[i].grids + tap[i] % d->axes[i].grids;
            at = at * d->axes[i].pitch + floor_div(shift_of(&p->w, i, tap[i]), p->w.step[i]);
        }
        shifts[t] = grid * d->grid + (at - d->least) * d->bytes;
    }
}

/* ---- tasks ------------------------------------------------------------------------------------------- */

typedef struct task {
    const conv_pass *p;
    const division *d;
    const int64_t *shifts;
    const char *packed;
    bool plain; /* see is_plain */
    int64_t group, first, length, panel, panels;
    int64_t *rows; /* of each position: the row of the pass, or -1 */
    char *grids;
} task;

/* A position of the grids, which may be outside. */
static conv_row position_at(const division *d, int64_t position)
{
    const int64_t size[3] = {d->axes[0].pitch, d->axes[1].pitch, d->axes[2].pitch};
    conv_row r = {.image = floor_div(position, d->image)};
    conv_split(position - r.image * d->image, size, r.at);
    return r;
}

static void next_position(const division *d, conv_row *r)
{
    for (int i = 2; i >= 0; i--) {
        if (++r->at[i] < d->axes[i].pitch) return;
        r->at[i] = 0;
    }
    r->image++;
}

static void find_rows(const task *t)
{
    const int64_t *count = t->p->w.count;
    conv_row r = position_at(t->d, t->first);
    for (int64_t i = 0; i < t->length; i++, next_position(t->d, &r)) {
        const bool valid = r.at[0] < count[0] && r.at[1] < count[1] && r.at[2] < count[2];
        t->rows[i] = valid ? ((r.image * count[0] + r.at[0]) * count[1] + r.at[1]) * count[2] + r.at[2] : -1;
    }
}

/* Copies a position; `low` is where the low parts are, or 0. */
AMX_INLINE void copy_position(char *to, int64_t low, const uint16_t *from, int64_t n)
{
    for (int64_t j = 0; j < n; j += AMX_TERMS, to += AMX_LINE) {
        const __m512i x = from ? _mm512_maskz_loadu_epi16(amx_mask_32(n - j), from + j) : _mm512_setzero_si512();
        amx_store_row(to, low, x);
    }
}

/* The position of the source that is at r in the grid of these remainders, or NULL. */
static const uint16_t *source_at(const task *t, const conv_row *r, const int64_t *rest)
{
    const conv_images *s = &t->p->source;
    int64_t at = r->image;
    if (at < 0 || at >= s->n) return NULL;
    for (int i = 0; i < 3; i++) {
        const int64_t x = r->at[i] * t->p->w.step[i] + rest[i];
        if (r->at[i] >= t->d->axes[i].inside || x >= s->size[i]) return NULL;
        at = at * s->size[i] + x;
    }
    return (const uint16_t *)s->data + at * s->channels + t->group * s->inner;
}

/* Copies what the task reads of a grid. */
AMX static void copy_grid(const task *t, int64_t number)
{
    const division *d = t->d;
    const conv_window *w = &t->p->w;
    const int64_t size[3] = {d->axes[0].grids, d->axes[1].grids, d->axes[2].grids};
    const int64_t low = t->p->type == IR_f16 ? d->part : 0, end = t->length + d->reach, n = t->p->source.inner;
    int64_t rest[3], grid[3];
    conv_split(number, size, grid);
    for (int i = 0; i < 3; i++) {
        const int64_t shift = shift_of(w, i, grid[i]);
        rest[i] = shift - floor_div(shift, w->step[i]) * w->step[i];
    }
    char *to = t->grids + number * d->grid;
    conv_row r = position_at(d, t->first + d->least);
    for (int64_t i = 0; i < end; i++, to += d->bytes, next_position(d, &r))
        copy_position(to, low, source_at(t, &r, rest), n);
    for (int64_t i = 0; i < AMX_STRIP; i++, to += d->bytes) copy_position(to, low, NULL, n);
}

/* ---- products ---------------------------------------------------------------------------------------- */

/* 32 positions times a panel. The sums are stored after the next product has been computed, as in gemm_amx.c. */
typedef struct strip {
    _Alignas(64) float sums[AMX_STRIP * AMX_STRIP];
    const task *t; /* NULL: nothing is pending */
    const char *b;
    int64_t first, rows, column, columns; /* of the task, of the group */
} strip;

/* Rows of the left tiles are positions. */
#define LOAD_A(part) \
    do { \
        _tile_loadd(4, a + (part)*low, bytes); \
        if (rows > 1) _tile_loadd(5, a + (part)*low + AMX_LANES * bytes, bytes); \
    } while (0)
#define LOAD_B(part) AMX_LOAD(6, 7, b, columns, part)

/* All that follows `sums` is constant: the tiles of positions and of columns, the parts of an element, and how many are
 * used. */
AMX_INLINE void multiply(const strip *s, float *sums, const int rows, const int columns, const int parts,
                         const int used)
{
    const division *d = s->t->d;
    const int64_t taps = conv_volume(s->t->p->w.taps), steps = cpu_ceil_div(s->t->p->source.inner, AMX_TERMS);
    const int64_t bytes = d->bytes, low = d->part;
    const char *b = s->b, *from = s->t->grids + s->first * bytes;
    __asm__ volatile("" ::: "memory"); /* the instructions read memory, which gcc does not know */
    AMX_EACH_SUM(AMX_ZERO);
    for (int64_t t = 0; t < taps; t++) {
        const char *a = from + s->t->shifts[t];
        for (int64_t l = 0; l < steps; l++, a += AMX_LINE, b += parts * columns * AMX_TILE) {
            AMX_STEP(used);
        }
    }
    AMX_EACH_SUM(AMX_STORE);
    __asm__ volatile("" ::: "memory");
}

AMX_DEFINE_PRODUCTS(strip)

static int64_t tiles_of(int64_t lanes) { return cpu_ceil_div(lanes, AMX_LANES); }

static void compute(strip *s)
{
    const int64_t i = tiles_of(s->rows) - 1, j = tiles_of(s->columns) - 1;
    (s->t->p->type == IR_f16 ? multiply_f16 : multiply_bf16)[i][j](s, s->sums);
}

AMX static bool is_finite(const strip *s)
{
    const __m512i exponent = _mm512_set1_epi32(0x7f800000);
    __m512i worst = _mm512_setzero_si512();
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j += AMX_LANES)
            worst = _mm512_max_epu32(worst, _mm512_and_si512(_mm512_load_si512(s->sums + i * AMX_STRIP + j), exponent));
    return _mm512_cmpeq_epu32_mask(worst, exponent) == 0;
}

/* The low part of an infinity is NaN: see gemm_amx.c. */
static void mend(strip *s)
{
    _Alignas(64) float high[AMX_STRIP * AMX_STRIP];
    if (is_finite(s)) return;
    multiply_high[tiles_of(s->rows) - 1][tiles_of(s->columns) - 1](s, high);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = i * AMX_STRIP; j < i * AMX_STRIP + s->columns; j++)
            if (s->sums[j] - s->sums[j] != 0) s->sums[j] = high[j];
}

/* Whether the rows of a pass are those of its view, in the type of the product. */
static bool is_plain(const conv_pass *p)
{
    bool plain = p->view->channels_last && p->view->dtype == p->type && !p->bias;
    for (int i = 0; i < 3; i++) plain &= p->w.stride[i] == 1 && p->w.count[i] == p->result.size[i];
    return plain;
}

/* Stores the rows of a plain pass; `type` is constant. */
AMX_INLINE void put_rows(const strip *s, const int64_t *rows, int64_t column, const ir_dtype type)
{
    const conv_pass *p = s->t->p;
    for (int64_t i = 0; i < s->rows; i++) {
        if (rows[i] < 0) continue;
        uint16_t *to = (uint16_t *)p->view->data + rows[i] * p->result.channels + column;
        for (int64_t j = 0; j < s->columns; j += AMX_LANES) {
            const __mmask16 mask = amx_mask_16(s->columns - j);
            const __m512 x = _mm512_load_ps(s->sums + i * AMX_STRIP + j);
            if (type == IR_bf16) _mm256_mask_storeu_epi16(to + j, mask, (__m256i)_mm512_cvtneps_pbh(x));
            else _mm256_mask_storeu_epi16(to + j, mask, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
        }
    }
}

AMX static void put_plain(const strip *s, const int64_t *rows, int64_t column)
{
    if (s->t->p->type == IR_bf16) put_rows(s, rows, column, IR_bf16);
    else put_rows(s, rows, column, IR_f16);
}

/* Stores the rows of a strip; neighbours are rows of the pass that follow each other. */
static void put(strip *s)
{
    const task *t = s->t;
    if (!t) return;
    if (t->p->type == IR_f16) mend(s);
    const int64_t *rows = t->rows + s->first, column = t->group * t->p->result.inner + s->column;
    if (t->plain) put_plain(s, rows, column);
    for (int64_t i = 0, n; i < s->rows && !t->plain; i += n) {
        for (n = 1; i + n < s->rows && (rows[i] < 0) == (rows[i + n] < 0); n++) continue;
        if (rows[i] >= 0) conv_store(t->p, s->sums + i * AMX_STRIP, AMX_STRIP, rows[i], n, column, s->columns);
    }
    s->t = NULL;
}

static void multiply_panel(const task *t, int64_t column)
{
    const conv_pass *p = t->p;
    const int64_t terms = conv_volume(p->w.taps) * cpu_ceil_div(p->source.inner, AMX_TERMS) * AMX_TERMS;
    const char *b = t->packed + t->group * gemm_low_bytes(p->type, terms, p->result.inner) +
                    gemm_low_bytes(p->type, terms, column);
    strip two[2];
    two[0].t = two[1].t = NULL;
    int turn = 0;
    for (int64_t i = 0; i < t->length;) {
        if (t->rows[i] < 0) {
            i++;
            continue;
        }
        strip *s = &two[turn];
        s->t = t, s->b = b, s->first = i, s->column = column;
        s->rows = k_min(AMX_STRIP, t->length - i);
        s->columns = k_min(AMX_STRIP, p->result.inner - column);
        compute(s);
        turn = !turn;
        put(&two[turn]);
        i += AMX_STRIP;
    }
    put(&two[!turn]);
}

AMX static void run_task(const task *t)
{
    amx_configure();
    find_rows(t);
    for (int64_t i = 0; i < t->d->grids; i++) copy_grid(t, i);
    for (int64_t i = 0; i < t->panels; i++) multiply_panel(t, (t->panel + i) * AMX_STRIP);
    _tile_release();
}

static task task_of(const conv_pass *p, const division *d, int64_t i, char *buffer)
{
    task t = {.p = p, .d = d, .plain = is_plain(p), .rows = (int64_t *)(void *)buffer, .grids = buffer + d->rows};
    t.group = i / (d->chunks * d->across);
    t.panel = i / d->chunks % d->across * d->panels;
    t.first = i % d->chunks * d->length;
    t.length = k_min(d->length, d->positions - t.first);
    t.panels = k_min(d->panels, cpu_ceil_div(p->result.inner, AMX_STRIP) - t.panel);
    return t;
}

void conv_amx_run(const conv_pass *pass, const void *packed, void *workspace, const k_context *ctx)
{
    const division d = divide(pass, ctx);
    conv_pass p = *pass;
    p.is_direct = false; /* conv_store stores all rows */
    find_taps(&p, &d, workspace);
#pragma omp parallel for num_threads(d.threads) schedule(static)
    for (int64_t i = 0; i < d.tasks; i++) {
        task t = task_of(&p, &d, i, (char *)workspace + d.shifts + d.per_thread * (size_t)omp_get_thread_num());
        t.shifts = workspace;
        t.packed = packed;
        run_task(&t);
    }
}
#else
size_t conv_amx_workspace(const conv_pass *p, const k_context *ctx)
{
    (void)p, (void)ctx;
    return 0;
}
void conv_amx_run(const conv_pass *pass, const void *packed, void *workspace, const k_context *ctx)
{
    (void)pass, (void)packed, (void)workspace, (void)ctx;
}
#endif
