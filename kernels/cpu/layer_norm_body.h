/* layer_norm_body.h - template over REAL, included by layer_norm.c: one row. */

CPU_CLONES static void R(affine)(const REAL *x, REAL mean, REAL rstd, const REAL *scale, const REAL *bias, REAL *y,
                                 int64_t n)
{
    if (bias) CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * scale[i] + bias[i];
    else CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * scale[i];
}

static void R(normalise)(const void *x, const void *scale, const void *bias, double eps, void *y, int64_t n,
                         double *mean, double *rstd)
{
    *mean = R(lanes_sum)(x, n) / (double)n;
    *rstd = 1 / sqrt(R(lanes_squares)(x, (REAL)*mean, n) / (double)n + eps);
    R(affine)(x, (REAL)*mean, (REAL)*rstd, scale, bias, y, n);
}

/* Adds dy * h to dscale and dy to dbias, where h is the normalised x. */
CPU_CLONES static void R(sums)(const REAL *dy, const REAL *x, REAL mean, REAL rstd, double *dscale, double *dbias,
                               int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        dscale[i] += (double)(dy[i] * ((x[i] - mean) * rstd));
        dbias[i] += (double)dy[i];
    }
}

CPU_CLONES static void R(scaled)(const REAL *dy, const REAL *scale, REAL *g, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) g[i] = dy[i] * scale[i];
}

/* dx = rstd (g - a - h b), where g = dy * scale; overwrites g */
CPU_CLONES static void R(combine)(REAL *g, const REAL *x, REAL mean, REAL rstd, REAL a, REAL b, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) g[i] = rstd * (g[i] - a - (x[i] - mean) * rstd * b);
}

static void R(slope)(const void *dy, const void *x, const void *scale, REAL mean, REAL rstd, void *dx, int64_t n,
                     double *sums)
{
    R(sums)(dy, x, mean, rstd, sums, sums + n, n);
    R(scaled)(dy, scale, dx, n);
    double a = R(lanes_sum)(dx, n) / (double)n;
    double b = R(lanes_dot_centred)(dx, x, mean, n) * (double)rstd / (double)n;
    R(combine)(dx, x, mean, rstd, (REAL)a, (REAL)b, n);
}
