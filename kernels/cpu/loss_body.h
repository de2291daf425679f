/* loss_body.h - template over REAL, included by loss.c: one row of classes. */

CPU_CLONES static void R(multiply)(REAL *x, REAL factor, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

/* Computes log_prob = x - lse, if it `is_read`, and returns lse. If label >= 0, *at_label is log_prob[label] before it
 * is rounded to REAL. */
static double R(log_prob_row)(const REAL *x, REAL *log_prob, bool is_read, int64_t n, int64_t label, double *at_label)
{
    const REAL max = R(lanes_max)(x, n);
    const double rest = log(R(lanes_exp_sum)(x, max, log_prob, n));
    if (is_read) R(lanes_shift)(x, max, (REAL)rest, log_prob, n);
    if (label >= 0) *at_label = (double)x[label] - (double)max - rest;
    return (double)max + rest;
}

/* Computes dx = (softmax(x) - [label]) slope. The exponentials are divided by their own sum, since lse was rounded: a
 * large one has lost what all probabilities are multiplied by. At the label, the difference is minus the sum of the
 * other probabilities, which does not cancel. */
static void R(slope_row)(const REAL *x, REAL lse, double slope, REAL *dx, int64_t n, int64_t label)
{
    if (slope == 0) {
        memset(dx, 0, (size_t)n * sizeof *dx);
        return;
    }
    const int64_t after = label + 1;
    REAL own = 0;
    R(lanes_exp_sum)(x + label, lse, &own, 1);
    const double others = R(lanes_exp_sum)(x, lse, dx, label) + R(lanes_exp_sum)(x + after, lse, dx + after, n - after);
    const double factor = slope / ((double)own + others);
    dx[label] = 0;
    R(multiply)(dx, (REAL)factor, n);
    dx[label] = (REAL)(-others * factor);
}
