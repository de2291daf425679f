/* pool_body.h - template over REAL, included by pool.c: phases, and the maximum over the windows. */

CPU_INLINE void R(take_every)(const REAL *x, int64_t step, REAL *y, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = x[i * step];
}

/* One row of a phase, whose columns `inside` are read from x at distances `stride`; x is NULL for a
 * row in the padding. */
CPU_INLINE void R(split_row)(const axis *a, span inside, const REAL *x, REAL pad, REAL *y)
{
    int64_t low = x ? inside.low : a->extent, n = x ? inside.high - low : 0;
    for (int64_t i = 0; i < low; i++) y[i] = pad;
    for (int64_t i = low + n; i < a->extent; i++) y[i] = pad;
    if (n == 0) return;
    x += low * a->stride + inside.offset;
    switch (a->stride) { /* constant distances vectorise without gathers */
    case 1: R(take_every)(x, 1, y + low, n); break;
    case 2: R(take_every)(x, 2, y + low, n); break;
    default: R(take_every)(x, a->stride, y + low, n); break;
    }
}

CPU_CLONES static void R(split_plane)(const geometry *g, const REAL *x, REAL pad, REAL *phases)
{
    const axis *a = g->a;
    for (int64_t phase = 0; phase < phase_count(g); phase++) {
        int64_t ph = phase / a[2].stride % a[1].stride, pd = phase / a[2].stride / a[1].stride;
        span inside = span_of(&a[2], phase % a[2].stride);
        for (int64_t i = 0; i < a[0].extent; i++) {
            int64_t d = position_of(&a[0], pd, i);
            for (int64_t j = 0; j < a[1].extent; j++, phases += a[2].extent) {
                int64_t h = position_of(&a[1], ph, j);
                const REAL *row = d < 0 || h < 0 ? NULL : x + (d * a[1].in + h) * a[2].in;
                R(split_row)(&a[2], inside, row, pad, phases);
            }
        }
    }
}

/* Outputs from rows of a phase's width to dense rows. */
static void R(pack)(const geometry *g, const REAL *from, REAL *to)
{
    const axis *a = g->a;
    for (int64_t d = 0; d < a[0].out; d++)
        for (int64_t h = 0; h < a[1].out; h++, to += a[2].out)
            memcpy(to, from + (d * a[1].extent + h) * a[2].extent, (size_t)a[2].out * sizeof *to);
}

/* The first of equal maxima wins; NaN is a maximum. */
CPU_CLONES static void R(max_tap)(const REAL *x, int32_t t, REAL *best, int32_t *chosen, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        REAL v = x[i];
        bool take = (v > best[i]) | IS_NAN(v);
        best[i] = take ? v : best[i];
        chosen[i] = take ? t : chosen[i];
    }
}

CPU_CLONES static void R(start)(REAL *best, int32_t *chosen, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        best[i] = LOWEST;
        chosen[i] = -1;
    }
}

static void R(max_plane)(const geometry *g, const REAL *x, REAL *y, const buffers *b)
{
    REAL *best = b->outputs;
    int32_t *chosen = b->chosen;
    R(split_plane)(g, x, LOWEST, b->phases);
    for (int64_t first = 0; first < g->wide_plane; first += PLANE_TILE) {
        int64_t n = k_min(PLANE_TILE, g->wide_plane - first);
        R(start)(best + first, chosen + first, n);
        for (int64_t t = 0; t < g->taps; t++) R(max_tap)
        ((REAL *)b->phases + g->table[t].phase + first, (int32_t)t, best + first, chosen + first,
         n);
    }
    R(pack)(g, best, y);
}
