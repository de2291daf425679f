/* pool_body.h - template over REAL, included by pool.c: the maximum over the windows of a plane. */

/* The maximum over the taps of a slice of x, which starts at position `base` of the plane; the first
 * of equal maxima wins, NaN is a maximum. An output without a tap stays as it is. */
CPU_CLONES static void R(max_slice)(const REAL *x, const int32_t *taps, int64_t count, int32_t base,
                                    REAL *best, int32_t *position, int64_t n)
{
    for (int64_t k = 0; k < count; k++, taps += n) CPU_SIMD for (int64_t i = 0; i < n; i++)
        {
            int32_t at = taps[i] < 0 ? 0 : taps[i];
            REAL v = x[at];
            bool take = ((v > best[i]) | IS_NAN(v) | (position[i] < 0)) & (taps[i] >= 0);
            best[i] = take ? v : best[i];
            position[i] = take ? base + at : position[i];
        }
}

static void R(max_plane)(const geometry *g, const REAL *x, REAL *y, int32_t *position)
{
    for (int64_t i = 0; i < g->out_plane; i++) {
        y[i] = LOWEST;
        position[i] = -1;
    }
    for (int64_t o = 0; o < g->a[0].out; o++)
        for (int64_t k = 0; k < g->a[0].kernel; k++) {
            int64_t base = position_of(&g->a[0], o, k) * g->in_slice, to = o * g->out_slice;
            if (base >= 0)
                R(max_slice)
                (x + base, g->taps, g->slice_taps, (int32_t)base, y + to, position + to, g->out_slice);
        }
}
