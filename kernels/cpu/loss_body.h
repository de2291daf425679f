/* loss_body.h - template over REAL, included by loss.c: one row of classes. */

CPU_CLONES static void R(scaled_softmax)(const REAL *x, REAL lse, REAL scale, REAL *dx, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) dx[i] = R(m_exp)(x[i] - lse) * scale;
}

/* Computes log_prob = x - lse and returns lse. If label >= 0, *at_label is log_prob[label] before it is rounded to
 * REAL. */
static double R(log_prob_row)(const REAL *x, REAL *log_prob, int64_t n, int64_t label, double *at_label)
{
    REAL max = R(lanes_max)(x, n);
    R(lanes_exp)(x, max, log_prob, n);
    double rest = log(R(lanes_sum)(log_prob, n));
    R(lanes_shift)(x, max, (REAL)rest, log_prob, n);
    if (label >= 0) *at_label = (double)x[label] - (double)max - rest;
    return (double)max + rest;
}

static void R(slope_row)(const REAL *x, REAL lse, REAL slope, REAL *dx, int64_t n, int64_t label)
{
    if (slope == 0) {
        memset(dx, 0, (size_t)n * sizeof *dx);
        return;
    }
    R(scaled_softmax)(x, lse, slope, dx, n);
    dx[label] = (R(m_exp)(x[label] - lse) - 1) * slope;
}
