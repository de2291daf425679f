/* pool_average.h - template over REAL, included by pool.c: average pooling, its gradient, and the gradient of maximum
 * pooling. */

/* Sums over the taps of a slice. */
CPU_CLONES static void R(sum_slice)(const REAL *x, const int32_t *taps, int64_t count, REAL *sum, int64_t n)
{
    for (int64_t k = 0; k < count; k++, taps += n) CPU_SIMD for (int64_t i = 0; i < n; i++)
        {
            REAL v = x[taps[i] < 0 ? 0 : taps[i]];
            sum[i] += taps[i] < 0 ? 0 : v;
        }
}

/* Adds the share of each output to all of its taps in a slice. */
static void R(spread_slice)(const REAL *share, const int32_t *taps, int64_t count, REAL *x, int64_t n)
{
    for (int64_t k = 0; k < count; k++, taps += n)
        for (int64_t i = 0; i < n; i++)
            if (taps[i] >= 0) x[taps[i]] += share[i];
}

/* to = from / elements of the window, for a plane */
static void R(divide_by_counts)(const geometry *g, const REAL *from, REAL *to)
{
    if (g->sum) {
        memmove(to, from, (size_t)g->out_plane * sizeof *to);
        return;
    }
    for (int64_t o = 0; o < g->a[0].out; o++) {
        int64_t depth = tap_count(g, 0, o);
        for (int64_t i = 0; i < g->out_slice; i++) *to++ = *from++ / (REAL)(depth * g->counts[i]);
    }
}

static void R(average_plane)(const geometry *g, const REAL *x, REAL *y)
{
    memset(y, 0, (size_t)g->out_plane * sizeof *y);
    for (int64_t o = 0; o < g->a[0].out; o++)
        for (int64_t k = 0; k < g->a[0].kernel; k++) {
            int64_t base = position_of(&g->a[0], o, k) * g->in_slice;
            if (base >= 0) R(sum_slice)(x + base, g->taps, g->slice_taps, y + o * g->out_slice, g->out_slice);
        }
    R(divide_by_counts)(g, y, y);
}

static void R(spread_plane)(const geometry *g, const REAL *dy, REAL *dx, REAL *share)
{
    memset(dx, 0, (size_t)g->in_plane * sizeof *dx);
    R(divide_by_counts)(g, dy, share);
    for (int64_t o = 0; o < g->a[0].out; o++)
        for (int64_t k = 0; k < g->a[0].kernel; k++) {
            int64_t base = position_of(&g->a[0], o, k) * g->in_slice;
            if (base >= 0) R(spread_slice)(share + o * g->out_slice, g->taps, g->slice_taps, dx + base, g->out_slice);
        }
}

/* Adds each of the n gradients to the position of its maximum, an index into the tensor whose current plane starts at
 * `first`. A window that is entirely in the padding has no maximum. */
static void R(scatter)(const REAL *dy, const int64_t *index, int64_t n, int64_t first, REAL *dx, int64_t size)
{
    for (int64_t i = 0; i < n; i++) {
        if (index[i] >= first && index[i] - first < size) dx[index[i] - first] += dy[i];
    }
}

/* ---- NHWC ---- */

/* Adds the taps in one row of x to a row of outputs. */
CPU_CLONES static void R(sum_points)(const REAL *x, const pool_axis *a, int64_t channels, REAL *y)
{
    for (int64_t k = 0; k < a->kernel; k++)
        for (int64_t o = 0; o < a->out; o++) {
            int64_t i = o * a->stride - a->before + k * a->dilation;
            if (i < 0 || i >= a->in) continue;
            const REAL *from = x + i * channels;
            REAL *to = y + o * channels;
            CPU_SIMD for (int64_t c = 0; c < channels; c++) to[c] += from[c];
        }
}

/* Adds the shares of a row of outputs to their taps in one row of x. */
CPU_CLONES static void R(spread_points)(const REAL *share, const pool_axis *a, int64_t channels, REAL *x)
{
    for (int64_t k = 0; k < a->kernel; k++)
        for (int64_t o = 0; o < a->out; o++) {
            int64_t i = o * a->stride - a->before + k * a->dilation;
            if (i < 0 || i >= a->in) continue;
            const REAL *from = share + o * channels;
            REAL *to = x + i * channels;
            CPU_SIMD for (int64_t c = 0; c < channels; c++) to[c] += from[c];
        }
}

/* to = from / elements of the window, for row (d, h) of the outputs */
CPU_CLONES static void R(divide_points)(const geometry *g, int64_t d, int64_t h, const REAL *from, REAL *to)
{
    int64_t rows = tap_count(g, 0, d) * tap_count(g, 1, h);
    for (int64_t o = 0; o < g->a[2].out; o++, from += g->channels, to += g->channels) {
        REAL count = g->sum ? 1 : (REAL)(rows * tap_count(g, 2, o));
        CPU_SIMD for (int64_t c = 0; c < g->channels; c++) to[c] = from[c] / count;
    }
}

static void R(average_row)(const geometry *g, const k_view *x, int64_t row, REAL *scratch, REAL *y)
{
    memset(y, 0, (size_t)g->narrow * sizeof *y);
    for (int64_t k = 0; k < g->a[0].kernel * g->a[1].kernel; k++) {
        int64_t in_row = input_row(g, row, k);
        if (in_row < 0) continue;
        const REAL *from = cpu_tile_load(x, in_row * g->wide, g->wide, cpu_carrier(x->dtype), scratch);
        R(sum_points)(from, &g->a[2], g->channels, y);
    }
    R(divide_points)(g, row / g->a[1].out % g->a[0].out, row % g->a[1].out, y, y);
}

static void R(avg_pool)(const k_args *args, const geometry *g, int64_t i)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const buffers b = thread_buffers(g, args);
    const ir_dtype carrier = cpu_carrier(x->dtype);
    REAL *to = cpu_tile_target(y, i * g->narrow, carrier, b.narrow);
    if (g->last) R(average_row)(g, x, i, b.wide, to);
    else R(average_plane)(g, cpu_tile_load(x, i * g->wide, g->wide, carrier, b.wide), to);
    cpu_tile_store(y, i * g->narrow, g->narrow, carrier, to);
}

/* Computes row `row` of dx; `scratch` and `share` are buffers for rows of dy. */
static void R(spread_row)(const geometry *g, const k_view *dy, int64_t row, REAL *scratch, REAL *share, REAL *dx)
{
    int64_t h = row % g->a[1].in, d = row / g->a[1].in % g->a[0].in, n = row / g->a[1].in / g->a[0].in;
    memset(dx, 0, (size_t)g->wide * sizeof *dx);
    for (int64_t k = 0; k < g->a[0].kernel * g->a[1].kernel; k++) {
        int64_t out_d = output_of(&g->a[0], d, k / g->a[1].kernel), out_h = output_of(&g->a[1], h, k % g->a[1].kernel);
        if (out_d < 0 || out_h < 0) continue;
        int64_t at = ((n * g->a[0].out + out_d) * g->a[1].out + out_h) * g->narrow;
        const REAL *row_dy = cpu_tile_load(dy, at, g->narrow, cpu_carrier(dy->dtype), scratch);
        R(divide_points)(g, out_d, out_h, row_dy, share);
        R(spread_points)(share, &g->a[2], g->channels, dx);
    }
}

static void R(avg_pool_grad)(const k_args *args, const geometry *g, int64_t i)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    const buffers b = thread_buffers(g, args);
    const ir_dtype carrier = cpu_carrier(dy->dtype);
    REAL *to = cpu_tile_target(dx, i * g->wide, carrier, b.wide);
    if (g->last) R(spread_row)(g, dy, i, b.narrow, b.extra, to);
    else R(spread_plane)(g, cpu_tile_load(dy, i * g->narrow, g->narrow, carrier, b.narrow), to, b.extra);
    cpu_tile_store(dx, i * g->wide, g->wide, carrier, to);
}

/* Scatters the gradients of `count` channels from `first` on of image n; the points of dx have stride `step`. */
static void R(scatter_points)(const k_view *dy, const int64_t *index, int64_t n, int64_t first, int64_t count,
                              int64_t size, REAL *dx, int64_t step)
{
    int64_t channels = dy->dims[1], points = pool_plane(dy);
    for (int64_t p = 0; p < points; p++) {
        REAL scratch[POOL_BLOCK];
        int64_t at = (n * points + p) * channels + first;
        const REAL *g = cpu_tile_load(dy, at, count, cpu_carrier(dy->dtype), scratch);
        for (int64_t c = 0; c < count; c++) {
            int64_t base = (n * channels + first + c) * size, to = index[at + c];
            if (to >= base && to - base < size) dx[(to - base) * step + c] += g[c];
        }
    }
}
