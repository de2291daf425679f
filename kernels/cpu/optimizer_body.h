/* optimizer_body.h - template over REAL, included by optimizer.c: the update of one tile. */

CPU_CLONES static void R(sgd)(const settings *s, void *param, const void *grad, void *unused, void *unused2, int64_t n)
{
    (void)unused, (void)unused2;
    REAL *p = param, lr = (REAL)s->lr, decay = (REAL)s->decay;
    const REAL *g = grad;
    CPU_SIMD for (int64_t i = 0; i < n; i++) p[i] -= lr * (g[i] + decay * p[i]);
}

CPU_CLONES static void R(momentum)(const settings *s, void *param, const void *grad, void *velocity, void *unused,
                                   int64_t n)
{
    (void)unused;
    REAL *p = param, *v = velocity, lr = (REAL)s->lr, decay = (REAL)s->decay, mu = (REAL)s->mu;
    REAL own = s->nesterov ? 1 : 0, share = s->nesterov ? mu : 1; /* update = own * g + share * v */
    const REAL *grads = grad;
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        REAL g = grads[i] + decay * p[i];
        v[i] = mu * v[i] + g;
        p[i] -= lr * (own * g + share * v[i]);
    }
}

CPU_CLONES static void R(adamw)(const settings *s, void *param, const void *grad, void *first, void *second, int64_t n)
{
    REAL *p = param, *m = first, *v = second;
    REAL l2 = (REAL)(s->decoupled ? 0 : s->decay), shrink = (REAL)(s->decoupled ? s->lr * s->decay : 0);
    REAL b1 = (REAL)s->beta1, c1 = (REAL)(1 - s->beta1), b2 = (REAL)s->beta2, c2 = (REAL)(1 - s->beta2);
    REAL size = (REAL)s->step_size, root = (REAL)s->root, eps = (REAL)s->eps;
    const REAL *grads = grad;
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        REAL g = grads[i] + l2 * p[i], kept = p[i] - shrink * p[i];
        m[i] = b1 * m[i] + c1 * g;
        v[i] = b2 * v[i] + c2 * g * g;
        p[i] = kept - size * m[i] / (R(m_sqrt)(v[i]) / root + eps);
    }
}

CPU_CLONES static int R(unscale)(const void *grad, REAL inverse, void *to, int64_t n)
{
    const REAL *g = grad;
    REAL *y = to;
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; i++) {
        REAL v = g[i] * inverse;
        bad |= !(g[i] - g[i] == 0) | !(v - v == 0); /* infinity and NaN minus themselves are NaN */
        y[i] = v;
    }
    return bad;
}
