/* conv_own.c - convolutions as products: rows are positions of images, columns are channels of the result. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/conv_own.h"

#include <string.h>

/* ---- windows ----------------------------------------------------------------------------------------- */

static conv_window forward_window(const conv_geometry *g)
{
    conv_window w;
    for (int i = 0; i < 3; i++) {
        w.count[i] = g->y[i], w.first[i] = 0, w.stride[i] = 1;
        w.taps[i] = g->k[i], w.from[i] = 0, w.every[i] = 1;
        w.step[i] = g->stride[i], w.offset[i] = -g->before[i], w.apart[i] = g->dilation[i];
    }
    return w;
}

static int64_t divisor(int64_t a, int64_t b) { return b == 0 ? a : divisor(b, a % b); }

/* Position x is read by tap t of position y if y * stride = x + before - t * dilation. For positions x with remainder
 * `rest`, t is the first tap for which the right side is a multiple, or one of every stride / gcd(stride, dilation). */
static void set_phase(conv_window *w, const conv_geometry *g, int i, int64_t rest)
{
    const int64_t stride = g->stride[i], every = stride / divisor(stride, g->dilation[i]);
    int64_t from = 0;
    while (from < every && (rest + g->before[i] - from * g->dilation[i]) % stride != 0) from++;
    w->count[i] = cpu_ceil_div(g->x[i] - rest, stride), w->first[i] = rest, w->stride[i] = stride;
    w->taps[i] = from < every && from < g->k[i] ? (g->k[i] - 1 - from) / every + 1 : 0;
    w->from[i] = from, w->every[i] = every;
    w->step[i] = 1;
    w->offset[i] = (rest + g->before[i] - from * g->dilation[i]) / stride;
    w->apart[i] = -every * g->dilation[i] / stride;
}

static int64_t phases_of(const conv_geometry *g, int i) { return k_min(g->stride[i], g->x[i]); }

/* The phases of a gradient of x, of which number `at` is returned. */
static conv_window gradient_window(const conv_geometry *g, int64_t at)
{
    conv_window w;
    for (int i = 2; i >= 0; i--) {
        set_phase(&w, g, i, at % phases_of(g, i));
        at /= phases_of(g, i);
    }
    return w;
}

static int64_t n_phases(const conv_geometry *g) { return phases_of(g, 0) * phases_of(g, 1) * phases_of(g, 2); }

/* ---- reading images ---------------------------------------------------------------------------------- */

/* The terms of one row and group, in the order taps, channels: a run is a part of them that is contiguous in the source
 * except for padding, all taps of the last axis or a single tap. */
typedef struct runs {
    int64_t length, unit; /* of a run, of a tap */
    bool joined;
} runs;

static runs runs_of(const conv_pass *p)
{
    const int64_t unit = p->source.inner;
    const bool joined = unit == p->source.channels && p->w.apart[2] == 1;
    return (runs){joined ? unit * p->w.taps[2] : unit, unit, joined};
}

/* Like memcpy, which costs more than a short copy. */
static void copy_bytes(char *to, const char *from, int64_t n)
{
    enum { PIECE = 64 };
    if (n < PIECE) {
        for (; n >= 16; n -= 16, to += 16, from += 16) memcpy(to, from, 16);
        for (; n >= 4; n -= 4, to += 4, from += 4) memcpy(to, from, 4);
        if (n > 0) memcpy(to, from, sizeof(uint16_t));
        return;
    }
    for (int64_t i = 0; i + PIECE <= n; i += PIECE) memcpy(to + i, from + i, PIECE);
    memcpy(to + n - PIECE, from + n - PIECE, PIECE);
}

static void zero_bytes(char *to, int64_t n)
{
    if (n > 0) memset(to, 0, (size_t)n);
}

/* Copies elements [first, first + n) of the run that begins with tap `tap`. */
static void copy_run(const conv_pass *p, const runs *r, const conv_row *row, int64_t channel, const int64_t *tap,
                     int64_t first, int64_t n, char *to)
{
    const int64_t *size = p->source.size, bytes = (int64_t)ir_dtype_size(p->type);
    int64_t x[3];
    conv_shift(p, tap, x);
    for (int i = 0; i < 3; i++) x[i] += row->at[i] * p->w.step[i];
    if (x[0] < 0 || x[0] >= size[0] || x[1] < 0 || x[1] >= size[1]) {
        zero_bytes(to, n * bytes);
        return;
    }
    const int64_t end = first + n, begin = k_min(end, k_max(first, -x[2] * r->unit));
    const int64_t stop = k_max(begin, k_min(end, (size[2] - x[2]) * r->unit));
    const int64_t at = ((row->image * size[0] + x[0]) * size[1] + x[1]) * size[2] + x[2];
    zero_bytes(to, (begin - first) * bytes);
    if (stop > begin)
        copy_bytes(to + (begin - first) * bytes,
                   (const char *)p->source.data + (at * p->source.channels + channel + begin) * bytes,
                   (stop - begin) * bytes);
    zero_bytes(to + (stop - first) * bytes, (end - stop) * bytes);
}

/* A place in the terms of a row: element `first` of the run that begins with `tap`. */
typedef struct place {
    int64_t tap[3], first;
} place;

static place place_of(const conv_pass *p, const runs *r, int64_t k)
{
    place at = {.first = k % r->length};
    conv_split(k / r->length * (r->joined ? p->w.taps[2] : 1), p->w.taps, at.tap);
    return at;
}

static void next_run(const conv_pass *p, const runs *r, place *at)
{
    at->first = 0;
    if (!r->joined && ++at->tap[2] < p->w.taps[2]) return;
    at->tap[2] = 0;
    if (++at->tap[1] < p->w.taps[1]) return;
    at->tap[1] = 0;
    at->tap[0]++;
}

/* Copies `depth` terms of a row. */
static void copy_row(const conv_pass *p, const runs *r, int64_t group, const conv_row *row, place at, int64_t depth,
                     char *to)
{
    while (depth > 0) {
        const int64_t n = k_min(r->length - at.first, depth);
        copy_run(p, r, row, group * r->unit, at.tap, at.first, n, to);
        next_run(p, r, &at);
        to += n * (int64_t)ir_dtype_size(p->type);
        depth -= n;
    }
}

/* Copies terms [k, k + depth) of rows; the distance between two of them is `ld` bytes. */
static void copy_rows(const conv_pass *p, int64_t group, int64_t row, int64_t rows, int64_t k, int64_t depth, char *to,
                      int64_t ld)
{
    const runs r = runs_of(p);
    const place at = place_of(p, &r, k);
    conv_row from = conv_row_at(p, row);
    for (int64_t i = 0; i < rows; i++, conv_next(p, &from)) copy_row(p, &r, group, &from, at, depth, to + i * ld);
}

static void fill_rows(const void *user, int64_t item, int64_t row, int64_t rows, int64_t k, int64_t depth, float *to,
                      int64_t ld)
{
    copy_rows(user, item, row, rows, k, depth, (char *)to, ld * (int64_t)sizeof *to);
}

static void fill_low(const void *user, int64_t item, int64_t row, int64_t rows, int64_t column, int64_t columns,
                     uint16_t *to, int64_t ld)
{
    copy_rows(user, item, row, rows, column, columns, (char *)to, ld * (int64_t)sizeof *to);
}

static void fill_panels(const void *user, int64_t item, int64_t k, int64_t depth, int64_t column, int64_t columns,
                        float *to)
{
    const conv_pass *p = user;
    const runs r = runs_of(p);
    const place at = place_of(p, &r, column);
    conv_row from = conv_row_at(p, k);
    float line[GEMM_COLUMNS];
    for (int64_t l = 0; l < depth; l++, conv_next(p, &from)) {
        copy_row(p, &r, item, &from, at, columns, (char *)line);
        gemm_spread(to, depth, l, line, columns);
    }
}

/* Copies a view [n, channels, points] of any type and layout to images. */
static void read_images(char *to, ir_dtype type, const k_view *v, int64_t n, int64_t channels, int64_t points,
                        const k_context *ctx)
{
    enum { POINTS = 64, CHANNELS = 32 };
    const int64_t across = cpu_ceil_div(channels, CHANNELS), down = cpu_ceil_div(points, POINTS);
    const int64_t size = (int64_t)ir_dtype_size(type);
    const bool last = v->channels_last || channels == 1 || points == 1;
#pragma omp parallel for num_threads(cpu_threads(ctx, n *channels *points)) schedule(static)
    for (int64_t i = 0; i < n * across * down; i++) {
        float tile[CHANNELS * POINTS], turned[CHANNELS * POINTS];
        const int64_t image = i / (across * down), channel = i / down % across * CHANNELS, point = i % down * POINTS;
        const int64_t rows = k_min(POINTS, points - point), columns = k_min(CHANNELS, channels - channel);
        const int64_t at = (image * points + point) * channels + channel;
        for (int64_t j = 0; !last && j < columns; j++) {
            const int64_t from = (image * channels + channel + j) * points + point;
            cpu_convert(IR_f32, tile + j * POINTS, v->dtype, cpu_at(v, from), rows);
        }
        if (!last) gemm_transpose(turned, CHANNELS, tile, POINTS, rows, columns);
        for (int64_t j = 0; j < rows; j++) {
            char *row = to + (at + j * channels) * size;
            if (last) cpu_convert(type, row, v->dtype, cpu_at(v, at + j * channels), columns);
            else cpu_convert(type, row, IR_f32, turned + j * CHANNELS, columns);
        }
    }
}

/* ---- writing images ---------------------------------------------------------------------------------- */

static void finish_rows(const void *user, int64_t item, float *sums, int64_t ld, int64_t row, int64_t rows,
                        int64_t column, int64_t columns)
{
    const conv_pass *p = user;
    conv_store(p, sums, ld, row, rows, item * p->result.inner + column, columns);
}

/* ---- weights ----------------------------------------------------------------------------------------- */

/* The terms of a tap. More than one tap in AMX tiles are padded, each with zeros. */
static int64_t depth_of(const conv_pass *p)
{
    const int64_t depth = p->source.inner;
    if (conv_volume(p->w.taps) < 2 || !conv_amx_fits(p)) return depth;
    return cpu_ceil_div(depth, AMX_TERMS) * AMX_TERMS;
}

static int64_t terms_of(const conv_pass *p) { return conv_volume(p->w.taps) * depth_of(p); }

/* The size of the panels of a group, in bytes. */
static int64_t panels_of(const conv_pass *p) { return gemm_packed_bytes(p->type, terms_of(p), p->result.inner); }

/* The weights of a pass as matrices of each tap: rows are channels of the source, columns those of the result. */
typedef struct weights {
    conv_weights at;
    int64_t row, column;
    bool joined; /* the rows of all taps are equally far apart */
} weights;

static weights weights_of(const conv_pass *p)
{
    const conv_weights at = conv_weights_of(p->c);
    const bool forward = p->c->kind == CONV_FORWARD;
    weights t = {at, forward ? at.channel : at.filter, forward ? at.filter : at.channel, false};
    t.joined = conv_volume(p->w.taps) == at.taps && at.tap == depth_of(p) * t.row;
    return t;
}

/* The matrix of a tap of a group. */
static gemm_matrix tap_matrix(const conv_pass *p, const weights *t, int64_t group, int64_t tap)
{
    const conv *c = p->c;
    const int64_t from = group * c->g.m * t->at.filter + conv_kernel_tap(p, tap) * t->at.tap;
    return (gemm_matrix){cpu_at(c->w, from), c->w->dtype, c->w->as, t->row, t->column};
}

/* Elements of a matrix of a type of 16 bits. */
static void gather_low(uint16_t *to, const uint16_t *from, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];
}

/* Rows of all taps, one after the other, in the low type of the product. */
static void fill_weights(const void *user, int64_t item, int64_t row, int64_t rows, int64_t column, int64_t columns,
                         uint16_t *to, int64_t ld)
{
    const conv_pass *p = user;
    const weights t = weights_of(p);
    const int64_t depth = depth_of(p), size = (int64_t)ir_dtype_size(p->c->w->dtype);
    for (int64_t i = 0; i < rows; i++) {
        if ((row + i) % depth >= p->source.inner) {
            zero_bytes((char *)(to + i * ld), columns * (int64_t)sizeof *to);
            continue;
        }
        const gemm_matrix m = tap_matrix(p, &t, item, (row + i) / depth);
        const char *from = (const char *)m.data + ((row + i) % depth * m.row + column * m.column) * size;
        float line[GEMM_COLUMNS];
        if (m.dtype == p->type && (m.as == IR_NO_DTYPE || m.as == p->type)) {
            gather_low(to + i * ld, (const uint16_t *)(const void *)from, m.column, columns);
            continue;
        }
        gemm_load(line, &m, from, m.column, columns);
        cpu_convert(p->type, to + i * ld, IR_f32, line, columns);
    }
}

static void pack_low(const conv_pass *p, void *to, const k_context *ctx)
{
    const weights t = weights_of(p);
    gemm g = {.type = p->type, .items = p->c->g.groups, .n = p->result.inner, .k = terms_of(p), .user = p};
    if (t.joined) {
        g.b = tap_matrix(p, &t, 0, 0);
        g.b_item = p->c->g.m * t.at.filter;
    } else {
        g.low_b = fill_weights;
    }
    gemm_pack_low(to, &g, ctx);
}

/* Makes the panels of each group. */
static void pack_weights(const conv_pass *p, char *to, const k_context *ctx)
{
    const weights t = weights_of(p);
    const int64_t n = conv_volume(p->w.taps), depth = p->source.inner;
    if (ir_dtype_is_low(p->type)) {
        pack_low(p, to, ctx);
        return;
    }
    for (int64_t group = 0; group < p->c->g.groups; group++)
        for (int64_t tap = 0; tap < (t.joined ? 1 : n); tap++) {
            const gemm_matrix m = tap_matrix(p, &t, group, tap);
            gemm_pack((float *)(void *)(to + group * panels_of(p)), &m, n * depth, p->result.inner, tap * depth,
                      t.joined ? n * depth : depth, ctx);
        }
}

/* The weights of a depthwise convolution as [taps, channels] in f32. */
static void read_taps(const conv *c, float *to)
{
    const conv_weights at = conv_weights_of(c);
    const gemm_matrix m = {c->w->data, c->w->dtype, c->w->as, 0, 0};
    for (int64_t tap = 0; tap < at.taps; tap++)
        gemm_load(to + tap * c->g.groups, &m, cpu_at(c->w, tap), at.taps, c->g.groups);
}

static void finish_weights(const void *user, int64_t item, float *sums, int64_t ld, int64_t row, int64_t rows,
                           int64_t column, int64_t columns)
{
    const conv *c = ((const conv_pass *)user)->c;
    for (int64_t i = 0; i < rows; i++) conv_store_filter(c, item * c->g.m + row + i, column, sums + i * ld, columns);
}

/* ---- passes ------------------------------------------------------------------------------------------ */

static bool is_images(const k_view *v, ir_dtype type)
{
    return v->dtype == type && (v->channels_last || v->dims[1] == 1 || k_count(v) == v->dims[0] * v->dims[1]);
}

void *conv_take(char *workspace, size_t *at, int64_t bytes)
{
    void *block = workspace ? workspace + *at : NULL;
    *at += cpu_lines((size_t)bytes);
    return block;
}

/* The images of a view; they are copied to the workspace if they have another form and `reads`. */
static conv_images images_of(const conv_pass *p, const k_view *v, const int64_t *size, int64_t inner, bool reads,
                             char *workspace, size_t *at, const k_context *ctx)
{
    conv_images m = {.data = v->data, .n = p->c->g.n, .channels = v->dims[1], .inner = inner};
    memcpy(m.size, size, sizeof m.size);
    if (is_images(v, p->type) || !reads) return m;
    m.data = conv_take(workspace, at, k_count(v) * (int64_t)ir_dtype_size(p->type));
    if (workspace) read_images((char *)m.data, p->type, v, m.n, m.channels, conv_volume(size), ctx);
    return m;
}

/* Whether each position of the result reads one of the source, which is at the same place. */
static bool is_matrix(const conv_pass *p)
{
    const conv_window *w = &p->w;
    bool same = terms_of(p) == p->source.inner;
    for (int i = 0; i < 3; i++) same &= w->step[i] == 1 && w->offset[i] == 0 && w->count[i] == p->source.size[i];
    return same;
}

static gemm product_of_pass(const conv_pass *p, const void *packed)
{
    const bool low = ir_dtype_is_low(p->type);
    gemm g = {.type = p->type, .items = p->c->g.groups, .n = p->result.inner, .k = terms_of(p), .packed = packed};
    g.user = p;
    g.m = p->source.n * conv_volume(p->w.count);
    g.packed_item = panels_of(p);
    if (is_matrix(p)) {
        g.a = (gemm_matrix){p->source.data, p->type, IR_NO_DTYPE, p->source.channels, 1};
        g.a_item = p->source.inner;
    } else if (low) {
        g.low_a = fill_low;
    } else {
        g.fill_a = fill_rows;
    }
    if (p->is_direct) {
        g.c = p->result.data;
        g.c_item = p->result.inner;
        g.ldc = p->result.channels;
    }
    if (p->bias || !p->is_direct) g.finish = finish_rows;
    return g;
}

/* Runs a pass, unless there is no workspace. Returns the size that the workspace must have if `at` bytes are in use. */
static size_t run_pass(const conv_pass *p, const void *packed, char *workspace, size_t at, const k_context *ctx)
{
    static const float any[1]; /* without a workspace, only whether there are panels matters */
    if (!packed) {
        void *panels = conv_take(workspace, &at, p->c->g.groups * panels_of(p));
        if (workspace) pack_weights(p, panels, ctx);
        packed = workspace ? panels : any;
    }
    if (!is_matrix(p) && conv_amx_fits(p)) {
        if (workspace) conv_amx_run(p, packed, workspace + at, ctx);
        return at + conv_amx_workspace(p, ctx);
    }
    const gemm g = product_of_pass(p, packed);
    if (workspace) gemm_run(&g, workspace + at, ctx);
    return at + gemm_workspace(&g, ctx);
}

void conv_sum_positions(const conv_pass *p, const k_context *ctx)
{
    enum { CHANNELS = 64 };
    const int64_t rows = p->result.n * conv_volume(p->result.size), channels = p->result.channels;
#pragma omp parallel for num_threads(cpu_threads(ctx, rows *channels)) schedule(static)
    for (int64_t first = 0; first < channels; first += CHANNELS) {
        const int64_t n = k_min(CHANNELS, channels - first);
        double sums[CHANNELS] = {0};
        for (int64_t i = 0; i < rows; i++) {
            float line[CHANNELS];
            const char *from = (const char *)p->result.data + (i * channels + first) * (int64_t)ir_dtype_size(p->type);
            cpu_convert(IR_f32, line, p->type, from, n);
            CPU_SIMD for (int64_t j = 0; j < n; j++) sums[j] += (double)line[j];
        }
        cpu_convert(p->c->bias->dtype, cpu_at(p->c->bias, first), IR_f64, sums, n);
    }
}

static size_t run_grad_weight(const conv_pass *p, char *workspace, size_t at, const k_context *ctx)
{
    const conv *c = p->c;
    const conv_weights w = conv_weights_of(c);
    if (workspace && c->bias) conv_sum_positions(p, ctx);
    if (!cpu_is_used(c->w)) return at;
    if (conv_is_depthwise(c)) {
        float *sums = conv_take(workspace, &at, conv_depthwise_size(c) * (int64_t)sizeof(float));
        if (workspace) conv_depthwise_grad_weight(p, sums, ctx);
        return at;
    }
    gemm g = {.type = p->type, .items = c->g.groups, .m = c->g.m, .user = p};
    g.n = conv_volume(p->w.taps) * c->g.c;
    g.k = p->result.n * conv_volume(p->result.size);
    if (ir_dtype_is_low(p->type)) g.low_b = fill_low;
    else g.fill_b = fill_panels;
    g.a = (gemm_matrix){p->result.data, p->type, IR_NO_DTYPE, 1, p->result.channels};
    g.a_item = c->g.m;
    if (c->w->dtype == IR_f32 && w.channel == 1 && (w.tap == c->g.c || w.taps == 1)) {
        g.c = c->w->data;
        g.ldc = g.n;
        g.c_item = g.m * g.n;
    } else {
        g.finish = finish_weights;
    }
    if (workspace) gemm_run(&g, workspace + at, ctx);
    return at + gemm_workspace(&g, ctx);
}

conv_pass conv_pass_of(const conv *c, ir_dtype type, char *workspace, size_t *at, const k_context *ctx)
{
    const conv_geometry *g = &c->g;
    const bool forward = c->kind == CONV_FORWARD, gradient = c->kind == CONV_GRAD_INPUT;
    conv_pass p = {.c = c, .w = forward_window(g), .view = gradient ? c->x : c->y, .bias = forward ? c->bias : NULL};
    p.type = type;
    p.source = images_of(&p, c->x, g->x, g->c, forward || (!gradient && cpu_is_used(c->w)), workspace, at, ctx);
    p.result = images_of(&p, c->y, g->y, g->m, !forward, workspace, at, ctx);
    return p;
}

/* The type of the product; single channels are multiplied in f32. */
static ir_dtype own_type(const conv *c) { return conv_is_depthwise(c) ? IR_f32 : conv_type(c); }

/* Runs the convolution, unless there is no workspace. Returns the size that the workspace must have. */
static size_t run_conv(const conv *c, const void *packed, char *workspace, const k_context *ctx)
{
    const bool gradient = c->kind == CONV_GRAD_INPUT;
    const int64_t phases = gradient ? n_phases(&c->g) : 1;
    size_t at = 0, most = 0;
    conv_pass p = conv_pass_of(c, own_type(c), workspace, &at, ctx);
    if (c->kind == CONV_GRAD_WEIGHT) return run_grad_weight(&p, workspace, at, ctx);
    if (gradient) {
        const conv_images x = p.source;
        p.source = p.result;
        p.result = x;
    }
    p.is_direct = phases == 1 && is_images(p.view, IR_f32);
    if (conv_is_depthwise(c) && !packed) {
        float *taps = conv_take(workspace, &at, conv_depthwise_size(c) * (int64_t)sizeof(float));
        if (workspace) read_taps(c, taps);
        packed = taps;
    }
    for (int64_t i = 0; i < phases; i++) {
        if (gradient) p.w = gradient_window(&c->g, i);
        if (!conv_is_depthwise(c)) {
            const size_t bytes = run_pass(&p, packed, workspace, at, ctx);
            most = bytes > most ? bytes : most;
        }
        if (conv_is_depthwise(c) && workspace) conv_depthwise_run(&p, packed, ctx);
    }
    return most > at ? most : at;
}

size_t conv_own_workspace(const conv *c, const k_context *ctx) { return run_conv(c, NULL, NULL, ctx); }
void conv_own_run(const conv *c, void *workspace, const k_context *ctx)
{
    conv_own_run_packed(c, NULL, workspace, ctx);
}

/* ---- packed weights ---------------------------------------------------------------------------------- */

static conv_pass weights_pass(const conv *c)
{
    conv_pass p = {.c = c, .type = own_type(c), .w = forward_window(&c->g)};
    p.source.inner = c->g.c;
    p.result.inner = c->g.m;
    return p;
}

int64_t conv_own_packed_size(const conv *c)
{
    const conv_pass p = weights_pass(c);
    return conv_is_depthwise(c) ? conv_depthwise_size(c) * (int64_t)sizeof(float) : c->g.groups * panels_of(&p);
}

void conv_own_pack(const conv *c, void *packed, const k_context *ctx)
{
    const conv_pass p = weights_pass(c);
    if (conv_is_depthwise(c)) read_taps(c, packed);
    else pack_weights(&p, packed, ctx);
}

size_t conv_own_packed_workspace(const conv *c, const k_context *ctx)
{
    static const float any[1];
    return run_conv(c, any, NULL, ctx);
}

void conv_own_run_packed(const conv *c, const void *packed, void *workspace, const k_context *ctx)
{
    static char none[1]; /* a convolution may need no workspace */
    run_conv(c, packed, workspace ? workspace : none, ctx);
}
