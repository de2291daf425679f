/* pool_average.h - template over REAL, included by pool.c: the average over the windows of one
 * plane, and back. */

CPU_CLONES static void R(gather_tap)(const REAL *x, int64_t stride, REAL *sum, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) sum[i] += x[i * stride];
}

CPU_CLONES static void R(scatter_tap)(const REAL *g, int64_t stride, REAL *sum, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) sum[i * stride] += g[i];
}

/* All taps between one input row and one output row: `back` adds the output row to the input. */
static void R(average_row)(const geometry *g, REAL *x_row, REAL *y_row, bool back)
{
    const axis *a = &g->a[AXES - 1];
    for (int64_t k = 0; k < a->kernel; k++) {
        int64_t low = g->range[2 * k], n = g->range[2 * k + 1] - low;
        if (n <= 0) continue;
        REAL *x = x_row + (low * a->stride - a->before + k * a->dilation);
        if (back)
            R(scatter_tap)(y_row + low, a->stride, x, n);
        else
            R(gather_tap)(x, a->stride, y_row + low, n);
    }
}

/* All rows of the plane; x is written only if `back`, y only if not. */
static void R(average_rows)(const geometry *g, REAL *x, REAL *y, bool back)
{
    const axis *a = g->a;
    int64_t d, h;
    for (int64_t row = 0; row < a[0].out * a[1].out; row++)
        for (int64_t i = 0; i < a[0].kernel; i++)
            for (int64_t j = 0; inside(&a[0], row / a[1].out, i, &d) && j < a[1].kernel; j++)
                if (inside(&a[1], row % a[1].out, j, &h))
                    R(average_row)(g, x + (d * a[1].in + h) * a[2].in, y + row * a[2].out, back);
}

/* to = from / elements of the window */
static void R(divide_by_counts)(const geometry *g, const REAL *from, REAL *to, bool padded)
{
    const axis *a = g->a;
    for (int64_t row = 0; row < a[0].out * a[1].out; row++) {
        int64_t outer = tap_count(&a[0], row / a[1].out, padded) *
                        tap_count(&a[1], row % a[1].out, padded);
        for (int64_t w = 0; w < a[2].out; w++)
            to[row * a[2].out + w] = from[row * a[2].out + w] / (REAL)(outer * g->columns[w]);
    }
}

static void R(average_plane)(const geometry *g, const REAL *x, REAL *y, bool padded)
{
    memset(y, 0, (size_t)g->out_plane * sizeof *y);
    R(average_rows)(g, (REAL *)(uintptr_t)x, y, false);
    R(divide_by_counts)(g, y, y, padded);
}

static void R(spread_plane)(const geometry *g, const REAL *dy, REAL *dx, REAL *spare, bool padded)
{
    memset(dx, 0, (size_t)g->in_plane * sizeof *dx);
    R(divide_by_counts)(g, dy, spare, padded);
    R(average_rows)(g, dx, spare, true);
}
