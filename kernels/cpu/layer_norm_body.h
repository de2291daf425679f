/* layer_norm_body.h - template over REAL, included by layer_norm.c: one row. */

/* Computes y = (x - mean) rstd scale + bias; NULL: no scale, no bias. */
CPU_CLONES static void R(affine)(const REAL *x, REAL mean, REAL rstd, const REAL *scale, const REAL *bias, REAL *y,
                                 int64_t n)
{
    if (scale) CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * scale[i];
    else CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd;
    if (bias) CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] += bias[i];
}

static void R(normalise)(const void *x, const shape *s, const void *scale, const void *bias, double eps, void *y,
                         double *mean, double *rstd)
{
    const double n = (double)s->length;
    *mean = s->center ? R(lanes_sum)(x, s->length) / n : 0;
    *rstd = 1 / sqrt(R(lanes_squares)(x, (REAL)*mean, s->length) / n + eps);
    R(affine)(x, (REAL)*mean, (REAL)*rstd, scale, bias, y, s->length);
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
    if (scale) CPU_SIMD for (int64_t i = 0; i < n; i++) g[i] = dy[i] * scale[i];
    else if (g != dy) memcpy(g, dy, (size_t)n * sizeof *g);
}

/* dx = rstd (g - a - h b), where g = dy * scale; overwrites g */
CPU_CLONES static void R(combine)(REAL *g, const REAL *x, REAL mean, REAL rstd, REAL a, REAL b, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) g[i] = rstd * (g[i] - a - (x[i] - mean) * rstd * b);
}

/* Computes one row of dx, and adds to the sums of columns unless `sums` is NULL. */
static void R(slope)(const void *dy, const void *x, const shape *s, const void *scale, double mean, double rstd,
                     void *dx, double *sums)
{
    const double n = (double)s->length;
    if (sums) R(sums)(dy, x, (REAL)mean, (REAL)rstd, sums, sums + s->length, s->length);
    R(scaled)(dy, scale, dx, s->length);
    double a = s->center ? R(lanes_sum)(dx, s->length) / n : 0;
    double b = R(lanes_dot_centred)(dx, x, (REAL)mean, s->length) * (double)(REAL)rstd / n;
    R(combine)(dx, x, (REAL)mean, (REAL)rstd, (REAL)a, (REAL)b, s->length);
}
