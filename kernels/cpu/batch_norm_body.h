/* batch_norm_body.h - template over REAL, included by batch_norm.c: one group of channels. */

typedef REAL R(panel)[PANEL];

/* Loads the chunk's elements of channels [first, first + channels), channel by channel. */
static const REAL *R(load)(const k_view *v, const layout *l, const chunk *p, int64_t first, int64_t channels,
                           REAL *panel)
{
    ir_dtype carrier = cpu_carrier(v->dtype);
    if (direct(l)) return cpu_tile_load(v, element(l, p, 0, first), p->count, carrier, panel);
    for (int64_t r = 0; r < p->rows && l->group == 1; r++)
        cpu_convert(carrier, panel + r * l->size, v->dtype, cpu_at(v, element(l, p, r, first)), l->size);
    for (int64_t r = 0; r < p->rows && l->group > 1; r++) {
        REAL scratch[GROUP * SMALL];
        const REAL *from = cpu_tile_load(v, element(l, p, r, first), channels * l->size, carrier, scratch);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t s = 0; s < l->size; s++) panel[c * p->count + r * l->size + s] = *from++;
    }
    return panel;
}

static REAL *R(target)(const k_view *v, const layout *l, const chunk *p, int64_t first, REAL *panel)
{
    return direct(l) ? cpu_tile_target(v, element(l, p, 0, first), cpu_carrier(v->dtype), panel) : panel;
}

static void R(store)(const k_view *v, const layout *l, const chunk *p, int64_t first, int64_t channels,
                     const REAL *values)
{
    ir_dtype carrier = cpu_carrier(v->dtype);
    if (direct(l)) {
        cpu_tile_store(v, element(l, p, 0, first), p->count, carrier, values);
        return;
    }
    for (int64_t r = 0; r < p->rows && l->group == 1; r++)
        cpu_tile_store(v, element(l, p, r, first), l->size, carrier, values + r * l->size);
    for (int64_t r = 0; r < p->rows && l->group > 1; r++) {
        REAL row[GROUP * SMALL], *to = row;
        for (int64_t c = 0; c < channels; c++)
            for (int64_t s = 0; s < l->size; s++) *to++ = values[c * p->count + r * l->size + s];
        cpu_tile_store(v, element(l, p, r, first), channels * l->size, carrier, row);
    }
}

/* Computes mean and population variance of each channel. */
static void R(statistics)(const k_view *x, const layout *l, int64_t first, int64_t channels, double *mean,
                          double *variance)
{
    double seen = 0, deviations[GROUP] = {0};
    for (int64_t c = 0; c < channels; c++) mean[c] = 0;
    for (int64_t i = 0; i < l->chunks; i++) {
        R(panel) panel;
        const chunk p = chunk_of(l, i);
        const REAL *values = R(load)(x, l, &p, first, channels, panel);
        double n = (double)p.count;
        for (int64_t c = 0; c < channels; c++) {
            const REAL *v = values + c * p.count;
            double part_mean = R(lanes_sum)(v, p.count) / n, delta = part_mean - mean[c];
            double off = part_mean - (double)(REAL)part_mean; /* corrects for the rounded mean */
            mean[c] += delta * n / (seen + n);
            deviations[c] += R(lanes_squares)(v, (REAL)part_mean, p.count) - off * off * n +
                             delta * delta * seen * n / (seen + n);
        }
        seen += n;
    }
    for (int64_t c = 0; c < channels; c++) variance[c] = l->count ? deviations[c] / (double)l->count : 0;
}

CPU_CLONES static void R(affine)(const REAL *x, REAL mean, REAL factor, REAL bias, REAL *y, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * factor + bias;
}

/* Computes factor and bias of y = (x - mean) factor + bias, and stores the small results, from the statistics of
 * channels [first, first + channels). Outside of training, the running statistics replace mean and variance. */
static void R(finish)(const k_args *args, int64_t first, int64_t channels, double *mean, double *variance, REAL *factor,
                      REAL *bias)
{
    const k_view *in = args->in;
    const double eps = args->attr[IR_ATTR(batch_norm, eps)].f;
    const bool training = args->attr[IR_ATTR(batch_norm, training)].i;
    const double keep = training ? args->attr[IR_ATTR(batch_norm, momentum)].f : 1;
    double old_mean[CPU_TILE], old_variance[CPU_TILE], rstd[CPU_TILE], scale[CPU_TILE];
    load_numbers(&in[1], first, channels, scale);
    load_numbers(&in[3], first, channels, old_mean);
    load_numbers(&in[4], first, channels, old_variance);
    cpu_convert(cpu_carrier(in[0].dtype), bias, in[2].dtype, cpu_at(&in[2], first), channels);
    if (!training) {
        memcpy(mean, old_mean, (size_t)channels * sizeof *mean);
        memcpy(variance, old_variance, (size_t)channels * sizeof *variance);
    }
    invert(variance, eps, rstd, channels);
    mix(old_mean, mean, keep, channels);
    mix(old_variance, variance, keep, channels);
    store_numbers(cpu_result(args, 1), first, channels, old_mean);
    store_numbers(cpu_result(args, 2), first, channels, old_variance);
    store_numbers(cpu_result(args, 3), first, channels, mean);
    store_numbers(cpu_result(args, 4), first, channels, rstd);
    scale_by(scale, rstd, channels);
    cpu_convert(cpu_carrier(in[0].dtype), factor, IR_f64, scale, channels);
}

static void R(normalise)(const k_args *args, const layout *l, int64_t group)
{
    int64_t first = group * l->group, channels = k_min(l->group, l->channels - first);
    double mean[GROUP], variance[GROUP];
    REAL factor[GROUP], bias[GROUP];
    if (args->attr[IR_ATTR(batch_norm, training)].i) R(statistics)(&args->in[0], l, first, channels, mean, variance);
    R(finish)(args, first, channels, mean, variance, factor, bias);
    for (int64_t i = 0; i < l->chunks && cpu_is_used(&args->out[0]); i++) {
        R(panel) from, to;
        const chunk p = chunk_of(l, i);
        const REAL *x = R(load)(&args->in[0], l, &p, first, channels, from);
        REAL *y = R(target)(&args->out[0], l, &p, first, to);
        for (int64_t c = 0; c < channels; c++)
            R(affine)(x + c * p.count, (REAL)mean[c], factor[c], bias[c], y + c * p.count, p.count);
        R(store)(&args->out[0], l, &p, first, channels, y);
    }
}

CPU_CLONES static void R(combine)(const REAL *dy, const REAL *x, REAL mean, REAL a, REAL b, REAL d, REAL *dx, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) dx[i] = a * dy[i] - (b + d * (x[i] - mean));
}

CPU_CLONES static void R(coefficients)(const double *scale, const double *rstd, const double *dscale,
                                       const double *dbias, double count, REAL *a, REAL *b, REAL *d, int64_t n)
{
    CPU_SIMD for (int64_t c = 0; c < n; c++)
    {
        const double factor = scale[c] * rstd[c];
        a[c] = (REAL)factor;
        b[c] = (REAL)(factor * dbias[c] / count);
        d[c] = (REAL)(factor * dscale[c] * rstd[c] / count);
    }
}

/* With h the normalised x, dscale = sum(dy h) and dbias = sum(dy). In training, with n elements per channel, dx = scale
 * rstd (dy - dbias / n - h dscale / n); otherwise dx = scale rstd dy. Stores the sums, and computes the coefficients of
 * dx = a dy - (b + d (x - mean)). */
static void R(finish_slopes)(const k_args *args, int64_t first, int64_t channels, int64_t count, const double *rstd,
                             const double *dscale, const double *dbias, REAL *a, REAL *b, REAL *d)
{
    double scale[CPU_TILE];
    load_numbers(&args->in[2], first, channels, scale);
    R(coefficients)(scale, rstd, dscale, dbias, (double)count, a, b, d, channels);
    if (!args->attr[IR_ATTR(batch_norm_grad, training)].i) {
        memset(b, 0, (size_t)channels * sizeof *b);
        memset(d, 0, (size_t)channels * sizeof *d);
    }
    store_numbers(cpu_result(args, 1), first, channels, dscale);
    store_numbers(cpu_result(args, 2), first, channels, dbias);
}

static void R(slope)(const k_args *args, const layout *l, int64_t group)
{
    const k_view *dy = &args->in[0], *x = &args->in[1];
    int64_t first = group * l->group, channels = k_min(l->group, l->channels - first);
    double mean[GROUP], rstd[GROUP], dscale[GROUP] = {0}, dbias[GROUP] = {0};
    REAL a[GROUP], b[GROUP], d[GROUP];
    R(panel) one, two, three;
    load_numbers(&args->in[3], first, channels, mean);
    load_numbers(&args->in[4], first, channels, rstd);
    for (int64_t i = 0; i < l->chunks; i++) {
        const chunk p = chunk_of(l, i);
        const REAL *g = R(load)(dy, l, &p, first, channels, one), *v = R(load)(x, l, &p, first, channels, two);
        for (int64_t c = 0; c < channels; c++) {
            dbias[c] += R(lanes_sum)(g + c * p.count, p.count);
            dscale[c] += R(lanes_dot_centred)(g + c * p.count, v + c * p.count, (REAL)mean[c], p.count) * rstd[c];
        }
    }
    R(finish_slopes)(args, first, channels, l->count, rstd, dscale, dbias, a, b, d);
    for (int64_t i = 0; i < l->chunks && cpu_is_used(&args->out[0]); i++) {
        const chunk p = chunk_of(l, i);
        const REAL *g = R(load)(dy, l, &p, first, channels, one), *v = R(load)(x, l, &p, first, channels, two);
        REAL *dx = R(target)(&args->out[0], l, &p, first, three);
        for (int64_t c = 0; c < channels; c++) {
            int64_t at = c * p.count;
            R(combine)(g + at, v + at, (REAL)mean[c], a[c], b[c], d[c], dx + at, p.count);
        }
        R(store)(&args->out[0], l, &p, first, channels, dx);
    }
}
