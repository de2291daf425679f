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
CPU_CLONES static void R(add_row)(const REAL *dy, const REAL *x, REAL mean, REAL rstd, double *dscale, double *dbias,
                                  int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        dscale[i] += (double)(dy[i] * ((x[i] - mean) * rstd));
        dbias[i] += (double)dy[i];
    }
}

/* The same of four rows, whose terms are added first: the sums are read and written once. */
CPU_CLONES static void R(add_rows)(const REAL *dy[ROWS], const REAL *x[ROWS], const double mean[ROWS],
                                   const double rstd[ROWS], double *dscale, double *dbias, int64_t n)
{
    const REAL *g0 = dy[0], *g1 = dy[1], *g2 = dy[2], *g3 = dy[3], *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    const REAL m0 = (REAL)mean[0], m1 = (REAL)mean[1], m2 = (REAL)mean[2], m3 = (REAL)mean[3];
    const REAL r0 = (REAL)rstd[0], r1 = (REAL)rstd[1], r2 = (REAL)rstd[2], r3 = (REAL)rstd[3];
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        const REAL low = g0[i] * ((x0[i] - m0) * r0) + g1[i] * ((x1[i] - m1) * r1);
        const REAL high = g2[i] * ((x2[i] - m2) * r2) + g3[i] * ((x3[i] - m3) * r3);
        dscale[i] += (double)(low + high);
        dbias[i] += (double)((g0[i] + g1[i]) + (g2[i] + g3[i]));
    }
}

/* Adds the rows to the sums of columns. */
static void R(sums)(const rows *b, const shape *s, double *sums)
{
    const REAL *dy[ROWS], *x[ROWS];
    for (int i = 0; i < b->n; i++) dy[i] = b->dy[i], x[i] = b->x[i];
    if (b->n == ROWS) R(add_rows)(dy, x, b->mean, b->rstd, sums, sums + s->length, s->length);
    for (int i = 0; i < b->n && b->n < ROWS; i++)
        R(add_row)(dy[i], x[i], (REAL)b->mean[i], (REAL)b->rstd[i], sums, sums + s->length, s->length);
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

/* Computes one row of dx. */
static void R(slope)(const void *dy, const void *x, const shape *s, const void *scale, double mean, double rstd,
                     void *dx)
{
    const double n = (double)s->length;
    R(scaled)(dy, scale, dx, s->length);
    double a = s->center ? R(lanes_sum)(dx, s->length) / n : 0;
    double b = R(lanes_dot_centred)(dx, x, (REAL)mean, s->length) * (double)(REAL)rstd / n;
    R(combine)(dx, x, (REAL)mean, (REAL)rstd, (REAL)a, (REAL)b, s->length);
}
