/* softmax_body.h - template over REAL, included by softmax.c: one row. */

CPU_CLONES static void R(multiply)(REAL *y, REAL factor, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] *= factor;
}

CPU_CLONES static void R(softmax_slope)(const REAL *dy, const REAL *y, REAL dot, REAL *dx, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - dot);
}

CPU_CLONES static void R(log_softmax_slope)(const REAL *dy, const REAL *y, REAL sum, REAL *dx, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - R(m_decay)(y[i]) * sum;
}

static void R(softmax)(const void *x, const void *unused, void *y, int64_t n)
{
    (void)unused;
    const double sum = R(lanes_exp_sum)(x, R(lanes_max)(x, n), y, n);
    R(multiply)(y, (REAL)(1 / sum), n);
}

static void R(log_softmax)(const void *x, const void *unused, void *y, int64_t n)
{
    (void)unused;
    const REAL max = R(lanes_max)(x, n);
    R(lanes_shift)(x, max, (REAL)log(R(lanes_exp_sum)(x, max, y, n)), y, n);
}

static bool R(is_zero)(const REAL *x, int64_t n)
{
    while (n > 0 && x[n - 1] == 0) n--;
    return !n;
}

/* Whether the result of a row is NaN although no gradient arrives: it is 0 then. */
static bool R(is_unread)(const REAL *dy, REAL sum, int64_t n) { return sum != sum && R(is_zero)(dy, n); }

static void R(softmax_grad)(const void *dy, const void *y, void *dx, int64_t n)
{
    const REAL dot = (REAL)R(lanes_dot)(dy, y, n);
    if (R(is_unread)(dy, dot, n)) memset(dx, 0, (size_t)n * sizeof(REAL));
    else R(softmax_slope)(dy, y, dot, dx, n);
}

static void R(log_softmax_grad)(const void *dy, const void *y, void *dx, int64_t n)
{
    const REAL sum = (REAL)R(lanes_sum)(dy, n);
    if (sum == 0) memcpy(dx, dy, (size_t)n * sizeof(REAL));
    else R(log_softmax_slope)(dy, y, sum, dx, n);
}
