/* pool_average.h - template over REAL, included by pool.c: the average over the windows, and back; the
 * maximum back. */

CPU_CLONES static void R(add_to)(REAL *sum, const REAL *x, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

/* Outputs divided by the elements of their windows, n in a row. */
CPU_CLONES static void R(divide)(const REAL *x, const int32_t *counts, REAL *y, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = x[i] / (REAL)counts[i];
}

/* The same for the plane, between dense rows and rows of a phase's width. */
static void R(divide_by_counts)(const geometry *g, const REAL *dense, REAL *wide, REAL *packed)
{
    const axis *a = g->a;
    for (int64_t row = 0; row < a[0].out * a[1].out; row++) {
        int64_t at = row * a[2].out;
        REAL *w = wide + (row / a[1].out * a[1].extent + row % a[1].out) * a[2].extent;
        if (dense)
            R(divide)(dense + at, g->counts + at, w, a[2].out);
        else
            R(divide)(w, g->counts + at, packed + at, a[2].out);
    }
}

static void R(average_plane)(const geometry *g, const REAL *x, REAL *y, const buffers *b)
{
    REAL *sum = b->outputs;
    R(split_plane)(g, x, 0, b->phases);
    for (int64_t first = 0; first < g->wide_plane; first += PLANE_TILE) {
        int64_t n = k_min(PLANE_TILE, g->wide_plane - first);
        memset(sum + first, 0, (size_t)n * sizeof *sum);
        for (int64_t t = 0; t < g->taps; t++)
            R(add_to)(sum + first, (REAL *)b->phases + g->table[t].phase + first, n);
    }
    R(divide_by_counts)(g, NULL, sum, y);
}

/* One row of a phase back to its columns. */
CPU_INLINE void R(merge_row)(const axis *a, span inside, const REAL *y, REAL *x)
{
    for (int64_t e = inside.low; e < inside.high; e++) x[e * a->stride + inside.offset] = y[e];
}

CPU_CLONES static void R(merge_plane)(const geometry *g, const REAL *phases, REAL *x)
{
    const axis *a = g->a;
    memset(x, 0, (size_t)g->in_plane * sizeof *x); /* what no window reads */
    for (int64_t phase = 0; phase < phase_count(g); phase++) {
        int64_t ph = phase / a[2].stride % a[1].stride, pd = phase / a[2].stride / a[1].stride;
        span inside = span_of(&a[2], phase % a[2].stride);
        for (int64_t i = 0; i < a[0].extent; i++) {
            int64_t d = position_of(&a[0], pd, i);
            for (int64_t j = 0; j < a[1].extent; j++, phases += a[2].extent) {
                int64_t h = position_of(&a[1], ph, j);
                if (d >= 0 && h >= 0)
                    R(merge_row)(&a[2], inside, phases, x + (d * a[1].in + h) * a[2].in);
            }
        }
    }
}

static void R(spread_plane)(const geometry *g, const REAL *dy, REAL *dx, const buffers *b)
{
    REAL *share = b->outputs;
    memset(share, 0, (size_t)g->wide_plane * sizeof *share);
    memset(b->phases, 0, (size_t)(phase_count(g) * g->phase_plane) * sizeof *share);
    R(divide_by_counts)(g, dy, share, NULL);
    for (int64_t t = 0; t < g->taps; t++)
        R(add_to)((REAL *)b->phases + g->table[t].phase, share, g->wide_plane);
    R(merge_plane)(g, b->phases, dx);
}

/* Each of the n gradients goes to the position that its window took, an index into the tensor, of
 * which the plane starts at `first`. A window wholly in the padding took none. */
static void R(scatter)(const REAL *dy, const int64_t *index, int64_t n, int64_t first, REAL *dx,
                       int64_t size)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = index[i] - first;
        if (at >= 0 && at < size) dx[at] += dy[i];
    }
}
