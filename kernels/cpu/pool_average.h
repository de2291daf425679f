/* pool_average.h - template over REAL, included by pool.c: the average over the windows, and back; the
 * maximum back. */

/* Sums over the taps of a slice. */
CPU_CLONES static void R(sum_slice)(const REAL *x, const int32_t *taps, int64_t count, REAL *sum, int64_t n)
{
    for (int64_t k = 0; k < count; k++, taps += n) CPU_SIMD for (int64_t i = 0; i < n; i++)
        {
            REAL v = x[taps[i] < 0 ? 0 : taps[i]];
            sum[i] += taps[i] < 0 ? 0 : v;
        }
}

/* Shares added to all taps of a slice. */
static void R(spread_slice)(const REAL *share, const int32_t *taps, int64_t count, REAL *x, int64_t n)
{
    for (int64_t k = 0; k < count; k++, taps += n)
        for (int64_t i = 0; i < n; i++)
            if (taps[i] >= 0) x[taps[i]] += share[i];
}

/* to = from / elements of the window, over the plane */
static void R(divide_by_counts)(const geometry *g, const REAL *from, REAL *to, bool padded)
{
    for (int64_t o = 0; o < g->a[0].out; o++) {
        int64_t depth = tap_count(&g->a[0], o, padded);
        for (int64_t i = 0; i < g->out_slice; i++) *to++ = *from++ / (REAL)(depth * g->counts[i]);
    }
}

static void R(average_plane)(const geometry *g, const REAL *x, REAL *y, bool padded)
{
    memset(y, 0, (size_t)g->out_plane * sizeof *y);
    for (int64_t o = 0; o < g->a[0].out; o++)
        for (int64_t k = 0; k < g->a[0].kernel; k++) {
            int64_t base = position_of(&g->a[0], o, k) * g->in_slice;
            if (base >= 0) R(sum_slice)(x + base, g->taps, g->slice_taps, y + o * g->out_slice, g->out_slice);
        }
    R(divide_by_counts)(g, y, y, padded);
}

static void R(spread_plane)(const geometry *g, const REAL *dy, REAL *dx, REAL *share, bool padded)
{
    memset(dx, 0, (size_t)g->in_plane * sizeof *dx);
    R(divide_by_counts)(g, dy, share, padded);
    for (int64_t o = 0; o < g->a[0].out; o++)
        for (int64_t k = 0; k < g->a[0].kernel; k++) {
            int64_t base = position_of(&g->a[0], o, k) * g->in_slice;
            if (base >= 0)
                R(spread_slice)(share + o * g->out_slice, g->taps, g->slice_taps, dx + base, g->out_slice);
        }
}

/* Each of the n gradients goes to the position that its window took, an index into the tensor, of
 * which the plane starts at `first`. A window wholly in the padding took none. */
static void R(scatter)(const REAL *dy, const int64_t *index, int64_t n, int64_t first, REAL *dx, int64_t size)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = index[i] - first;
        if (at >= 0 && at < size) dx[at] += dy[i];
    }
}
