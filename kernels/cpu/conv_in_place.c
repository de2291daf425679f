/* conv_in_place.c - convolutions of few positions, and their gradients, with weights that are read or written in place.
 *
 * With few positions, most of the time of a convolution is that of reading its weights. In a training they change in
 * each step, so they are read once, in the order of the model, as a matrix W [M, channels * taps]. What each position
 * reads of x, in the same order, is a row of a matrix P:
 *
 *     y^T = W P^T      dW = dy^T P      dx = dy W, of which each element is added to the position that it is from
 *
 * The f32 code reads P in panels. For a product of a low type P^T is written as a matrix of that type. */
#include "kernels/cpu/conv_own.h"

#include <string.h>

/* The images of x with contiguous positions: channel c is at data + c * ld; position `points`, and those up to ld, are
 * zeros. Tap t of row r of the pass reads position at[t * rows + r]. */
typedef struct planes {
    const conv_pass *p;
    float *data;
    int32_t *at;
    int64_t points, rows, ld, taps;
    ir_dtype type;     /* of the product */
    gemm_visit *visit; /* of dW; NULL: it is stored */
    void *user;
} planes;

static float any; /* without a workspace, only whether there is a matrix matters */

static planes planes_of(const conv_pass *p, char *workspace, size_t *at)
{
    planes s = {.p = p, .points = p->source.n * conv_volume(p->source.size), .taps = conv_volume(p->w.taps)};
    s.type = conv_type(p->c);
    s.rows = p->source.n * conv_volume(p->w.count);
    s.ld = cpu_ceil_div(s.points + 1, 8) * 8;
    s.data = conv_take(workspace, at, p->source.channels * s.ld * (int64_t)sizeof *s.data);
    s.at = conv_take(workspace, at, s.taps * s.rows * (int64_t)sizeof *s.at);
    return s;
}

static void find_positions(const planes *s)
{
    const int64_t *size = s->p->source.size;
    for (int64_t tap = 0; tap < s->taps; tap++) {
        int64_t of[3], shift[3];
        conv_row row = conv_row_at(s->p, 0);
        conv_split(tap, s->p->w.taps, of);
        conv_shift(s->p, of, shift);
        for (int64_t r = 0; r < s->rows; r++, conv_next(s->p, &row)) {
            int64_t at = row.image;
            bool inside = true;
            for (int i = 0; i < 3; i++) {
                const int64_t x = row.at[i] * s->p->w.step[i] + shift[i];
                inside &= x >= 0 && x < size[i];
                at = at * size[i] + x;
            }
            s->at[tap * s->rows + r] = (int32_t)(inside ? at : s->points);
        }
    }
}

static void read_planes(const planes *s, const k_context *ctx)
{
    const int64_t channels = s->p->source.channels;
    enum { CHANNELS = 16 };
#pragma omp parallel for num_threads(cpu_threads(ctx, channels * s->points)) schedule(static)
    for (int64_t c = 0; c < channels; c += CHANNELS) {
        const int64_t n = k_min(CHANNELS, channels - c);
        gemm_transpose(s->data + c * s->ld, s->ld, (const float *)s->p->source.data + c, channels, n, s->points);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = s->points; j < s->ld; j++) s->data[(c + i) * s->ld + j] = 0;
    }
}

CPU_CLONES static void gather(float *to, const float *from, const int32_t *at, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) to[i] = from[at[i]];
}

/* Rows [first, first + n) of column `term` of P. */
static void gather_term(const planes *s, int64_t term, int64_t first, int64_t n, float *to)
{
    gather(to, s->data + term / s->taps * s->ld, s->at + term % s->taps * s->rows + first, n);
}

static int64_t low_ld(const planes *s) { return cpu_ceil_div(s->rows, 32) * 32; }

/* P^T, [terms, rows], in the low type of the product. */
static void write_low(const planes *s, int64_t terms, uint16_t *to, const k_context *ctx)
{
#pragma omp parallel for num_threads(cpu_threads(ctx, terms * s->rows)) schedule(static)
    for (int64_t term = 0; term < terms; term++)
        for (int64_t row = 0; row < s->rows; row += GEMM_DEPTH) {
            float line[GEMM_DEPTH];
            const int64_t n = k_min(GEMM_DEPTH, s->rows - row);
            gather_term(s, term, row, n, line);
            cpu_convert(s->type, to + term * low_ld(s) + row, IR_f32, line, n);
        }
}

/* Makes P^T, or P, operand b of a product of a low type. */
static void multiply_by_low(const planes *s, int64_t terms, bool transposed, gemm *g, char *workspace, size_t *at,
                            const k_context *ctx)
{
    const int64_t ld = low_ld(s);
    uint16_t *low = conv_take(workspace, at, terms * ld * (int64_t)sizeof *low);
    g->type = s->type;
    g->b = (gemm_matrix){low, s->type, IR_NO_DTYPE, transposed ? ld : 1, transposed ? 1 : ld};
    if (workspace) write_low(s, terms, low, ctx);
}

/* ---- y ----------------------------------------------------------------------------------------------- */

/* The panels of P^T. */
static void pack_positions(const planes *s, int64_t terms, float *to, const k_context *ctx)
{
#pragma omp parallel for num_threads(cpu_threads(ctx, terms * s->rows)) schedule(static)
    for (int64_t term = 0; term < terms; term++)
        for (int64_t row = 0; row < s->rows; row += GEMM_PANEL) {
            const int64_t n = k_min(GEMM_PANEL, s->rows - row), width = n <= GEMM_HALF ? GEMM_HALF : GEMM_PANEL;
            float *line = to + row * terms + term * width;
            gather_term(s, term, row, n, line);
            for (int64_t j = n; j < width; j++) line[j] = 0;
        }
}

static void finish_y(const void *user, int64_t item, float *sums, int64_t ld, int64_t row, int64_t rows, int64_t column,
                     int64_t columns)
{
    enum { SIDE = 64 };
    const planes *s = user;
    float tile[SIDE * SIDE];
    (void)item;
    for (int64_t i = 0; i < columns; i += SIDE)
        for (int64_t j = 0; j < rows; j += SIDE) {
            const int64_t n = k_min(SIDE, columns - i), m = k_min(SIDE, rows - j);
            gemm_transpose(tile, SIDE, sums + j * ld + i, ld, n, m);
            conv_store(s->p, tile, SIDE, column + i, n, row + j, m);
        }
}

static size_t run_forward(const planes *s, char *workspace, size_t at, const k_context *ctx)
{
    const conv *c = s->p->c;
    const int64_t terms = c->g.c * s->taps;
    gemm g = {.items = 1, .m = c->g.m, .n = s->rows, .k = terms, .finish = finish_y, .user = s};
    g.a = (gemm_matrix){c->w->data, c->w->dtype, c->w->as, terms, 1};
    g.reads_a_once = c->w->dtype == IR_f32 && c->w->as == IR_NO_DTYPE;
    if (ir_dtype_is_low(s->type)) {
        multiply_by_low(s, terms, true, &g, workspace, &at, ctx);
    } else {
        float *panels = conv_take(workspace, &at, gemm_packed_size(terms, s->rows) * (int64_t)sizeof *panels);
        g.packed = panels ? panels : &any;
        if (workspace) pack_positions(s, terms, panels, ctx);
    }
    if (workspace) gemm_run(&g, workspace + at, ctx);
    return at + gemm_workspace(&g, ctx);
}

/* ---- dW ---------------------------------------------------------------------------------------------- */

/* The panels of P. */
static void pack_terms(const planes *s, int64_t terms, float *to, const k_context *ctx)
{
#pragma omp parallel for num_threads(cpu_threads(ctx, terms * s->rows)) schedule(static)
    for (int64_t first = 0; first < terms; first += GEMM_PANEL) {
        const int64_t n = k_min(GEMM_PANEL, terms - first), width = n <= GEMM_HALF ? GEMM_HALF : GEMM_PANEL;
        float part[GEMM_PANEL * GEMM_DEPTH];
        for (int64_t row = 0; row < s->rows; row += GEMM_DEPTH) {
            const int64_t rows = k_min(GEMM_DEPTH, s->rows - row);
            for (int64_t i = 0; i < width; i++)
                if (i < n) gather_term(s, first + i, row, rows, part + i * GEMM_DEPTH);
                else memset(part + i * GEMM_DEPTH, 0, (size_t)rows * sizeof *part);
            gemm_transpose(to + first * s->rows + row * width, width, part, GEMM_DEPTH, rows, width);
        }
    }
}

static void finish_dw(const void *user, int64_t item, float *sums, int64_t ld, int64_t row, int64_t rows,
                      int64_t column, int64_t columns)
{
    const planes *s = user;
    const conv *c = s->p->c;
    (void)item;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t first = (row + i) * c->g.c * s->taps + column;
        const int64_t next = i + 1 < rows ? first + c->g.c * s->taps : first;
        if (s->visit) s->visit(s->user, first, sums + i * ld, columns, next);
        else cpu_convert(c->w->dtype, cpu_at(c->w, first), IR_f32, sums + i * ld, columns);
    }
}

static size_t run_grad_weight(const planes *s, char *workspace, size_t at, const k_context *ctx)
{
    const conv *c = s->p->c;
    gemm g = {.items = 1, .m = c->g.m, .n = c->g.c * s->taps, .k = s->rows, .user = s};
    g.a = (gemm_matrix){s->p->result.data, IR_f32, IR_NO_DTYPE, 1, c->g.m};
    if (ir_dtype_is_low(s->type)) {
        multiply_by_low(s, g.n, false, &g, workspace, &at, ctx);
    } else {
        float *panels = conv_take(workspace, &at, gemm_packed_size(g.k, g.n) * (int64_t)sizeof *panels);
        g.packed = panels ? panels : &any;
        if (workspace) pack_terms(s, g.n, panels, ctx);
    }
    if (c->w->dtype == IR_f32 && !s->visit) {
        g.c = c->w->data;
        g.ldc = g.n;
    } else {
        g.finish = finish_dw;
    }
    if (workspace) gemm_run(&g, workspace + at, ctx);
    return at + gemm_workspace(&g, ctx);
}

/* ---- dx ---------------------------------------------------------------------------------------------- */

/* Adds the elements of dy W, in the order of the taps, to the planes of channels [first, first + n). */
static void add_terms(const planes *s, const float *products, int64_t terms, int64_t first, int64_t n)
{
    enum { SIDE = 64 };
    float tile[SIDE * SIDE];
    memset(s->data + first * s->ld, 0, (size_t)(n * s->ld) * sizeof *s->data);
    for (int64_t row = 0; row < s->rows; row += SIDE)
        for (int64_t term = first * s->taps; term < (first + n) * s->taps; term += SIDE) {
            const int64_t rows = k_min(SIDE, s->rows - row), m = k_min(SIDE, (first + n) * s->taps - term);
            gemm_transpose(tile, SIDE, products + row * terms + term, terms, m, rows);
            for (int64_t i = 0; i < m; i++) {
                const int32_t *at = s->at + (term + i) % s->taps * s->rows + row;
                float *plane = s->data + (term + i) / s->taps * s->ld;
                for (int64_t j = 0; j < rows; j++) plane[at[j]] += tile[i * SIDE + j];
            }
        }
}

static void store_dx(const planes *s, int64_t first, int64_t n)
{
    enum { SIDE = 64 };
    float tile[SIDE * SIDE];
    conv_pass p = *s->p;
    p.result = p.source;
    for (int i = 0; i < 3; i++) p.w.count[i] = p.source.size[i], p.w.first[i] = 0, p.w.stride[i] = 1;
    for (int64_t row = 0; row < s->points; row += SIDE) {
        const int64_t rows = k_min(SIDE, s->points - row);
        gemm_transpose(tile, SIDE, s->data + first * s->ld + row, s->ld, rows, n);
        conv_store(&p, tile, SIDE, row, rows, first, n);
    }
}

static size_t run_grad_input(const planes *s, char *workspace, size_t at, const k_context *ctx)
{
    enum { CHANNELS = 16 };
    const conv *c = s->p->c;
    gemm g = {.type = s->type, .items = 1, .m = s->rows, .n = c->g.c * s->taps, .k = c->g.m};
    g.a = (gemm_matrix){s->p->result.data, IR_f32, IR_NO_DTYPE, c->g.m, 1};
    g.b = (gemm_matrix){c->w->data, c->w->dtype, c->w->as, g.n, 1};
    float *products = conv_take(workspace, &at, g.m * g.n * (int64_t)sizeof *products);
    g.c = products ? products : &any;
    g.ldc = g.n;
    const size_t bytes = at + gemm_workspace(&g, ctx);
    if (!workspace) return bytes;
    gemm_run(&g, workspace + at, ctx);
#pragma omp parallel for num_threads(cpu_threads(ctx, g.m *g.n)) schedule(static)
    for (int64_t channel = 0; channel < c->g.c; channel += CHANNELS) {
        const int64_t n = k_min(CHANNELS, c->g.c - channel);
        add_terms(s, products, g.n, channel, n);
        store_dx(s, channel, n);
    }
    return bytes;
}

/* ---- all three --------------------------------------------------------------------------------------- */

/* Runs the convolution, unless there is no workspace. Returns the size that the workspace must have. */
static size_t run(const conv *c, char *workspace, gemm_visit *visit, void *user, const k_context *ctx)
{
    size_t at = 0;
    const conv_pass p = conv_pass_of(c, IR_f32, workspace, &at, ctx);
    if (workspace && c->kind == CONV_GRAD_WEIGHT && c->bias) conv_sum_positions(&p, ctx);
    if (!cpu_is_used(c->w)) return at;
    planes s = planes_of(&p, workspace, &at);
    s.visit = visit;
    s.user = user;
    if (workspace) find_positions(&s);
    if (workspace && c->kind != CONV_GRAD_INPUT) read_planes(&s, ctx);
    switch (c->kind) {
    case CONV_FORWARD: return run_forward(&s, workspace, at, ctx);
    case CONV_GRAD_INPUT: return run_grad_input(&s, workspace, at, ctx);
    case CONV_GRAD_WEIGHT: return run_grad_weight(&s, workspace, at, ctx);
    }
    return at;
}

size_t conv_in_place_workspace(const conv *c, const k_context *ctx) { return run(c, NULL, NULL, NULL, ctx); }
size_t conv_visit_workspace(const conv *c, gemm_visit *visit, const k_context *ctx)
{
    return run(c, NULL, visit, NULL, ctx);
}

void conv_in_place_run(const conv *c, void *workspace, const k_context *ctx)
{
    static char none[1]; /* a sum of dy needs no workspace */
    run(c, workspace ? workspace : none, NULL, NULL, ctx);
}

void conv_visit_gradient(const conv *c, void *workspace, gemm_visit *visit, void *user, const k_context *ctx)
{
    run(c, workspace, visit, user, ctx);
}
