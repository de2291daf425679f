/* pool_body.h - template over REAL, included by pool.c: the maximum over the windows of one
 * plane. */

/* One tap: n outputs read x at distances `stride`; `at` is the position of the first, `step` of
 * the next. The first of equal maxima wins; NaN is a maximum. */
CPU_CLONES static void R(max_tap)(const REAL *x, int64_t stride, int32_t at, REAL *best,
                                  int32_t *position, int64_t n)
{
#define TAP(step)                                                                                  \
    CPU_SIMD for (int64_t i = 0; i < n; i++)                                                       \
    {                                                                                              \
        REAL v = x[i * (step)];                                                                    \
        bool take = (v > best[i]) | IS_NAN(v) | (position[i] < 0);                                 \
        best[i] = take ? v : best[i];                                                              \
        position[i] = take ? at + (int32_t)(i * (step)) : position[i];                             \
    }
    switch (stride) { /* constant distances vectorise without gathers */
    case 1: TAP(1) break;
    case 2: TAP(2) break;
    default: TAP(stride) break;
    }
#undef TAP
}

/* All taps of one input row into one output row. */
static void R(max_row)(const geometry *g, const REAL *x, int64_t row, REAL *best, int32_t *position)
{
    const axis *a = &g->a[AXES - 1];
    for (int64_t k = 0; k < a->kernel; k++) {
        int64_t low = g->range[2 * k], n = g->range[2 * k + 1] - low;
        int64_t first = row * a->in + low * a->stride - a->before + k * a->dilation;
        if (n > 0) R(max_tap)(x + first, a->stride, (int32_t)first, best + low, position + low, n);
    }
}

static void R(max_plane)(const geometry *g, const REAL *x, REAL *y, int32_t *position)
{
    const axis *a = g->a;
    int64_t width = a[2].out, d, h;
    for (int64_t i = 0; i < g->out_plane; i++) {
        y[i] = LOWEST;
        position[i] = -1;
    }
    for (int64_t row = 0; row < a[0].out * a[1].out; row++)
        for (int64_t i = 0; i < a[0].kernel; i++)
            for (int64_t j = 0; inside(&a[0], row / a[1].out, i, &d) && j < a[1].kernel; j++)
                if (inside(&a[1], row % a[1].out, j, &h))
                    R(max_row)(g, x, d * a[1].in + h, y + row * width, position + row * width);
}
