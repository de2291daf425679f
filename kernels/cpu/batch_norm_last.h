/* batch_norm_last.h - template over REAL, included by batch_norm.c: NHWC, one band of rows. */

/* The buffer for a strip in the carrier: `panel`, or v's own data if it has that type. *step is the stride of its
 * rows. */
static REAL *R(strip_target)(const k_view *v, const columns *l, const strip *s, REAL *panel, int64_t *step)
{
    bool itself = v->dtype == cpu_carrier(v->dtype);
    *step = l->fold * (itself ? l->channels : s->columns);
    return itself ? cpu_at(v, s->row * l->channels + s->column) : panel;
}

static const REAL *R(strip_load)(const k_view *v, const columns *l, const strip *s, REAL *panel, int64_t *step)
{
    REAL *to = R(strip_target)(v, l, s, panel, step);
    for (int64_t r = 0; r < s->rows && to == panel; r += s->adjacent)
        cpu_convert(cpu_carrier(v->dtype), to + r * s->columns, v->dtype,
                    cpu_at(v, (s->row + r) * l->channels + s->column), s->adjacent * s->columns);
    return to;
}

static void R(strip_store)(const k_view *v, const columns *l, const strip *s, const REAL *values, const REAL *panel)
{
    for (int64_t r = 0; r < s->rows && values == panel; r += s->adjacent)
        cpu_convert(v->dtype, cpu_at(v, (s->row + r) * l->channels + s->column), cpu_carrier(v->dtype),
                    values + r * s->columns, s->adjacent * s->columns);
}

/* ---- loops over a strip: `rows` of n elements and one of `tail` ---- */

CPU_CLONES static void R(add_rows)(const REAL *x, int64_t step, int64_t rows, int64_t n, int64_t tail, REAL *sum)
{
    for (; rows >= 4; rows -= 4, x += 4 * step)
        CPU_SIMD for (int64_t j = 0; j < n; j++) sum[j] += (x[j] + x[j + step]) + (x[j + 2 * step] + x[j + 3 * step]);
    for (; rows > 0; rows--, x += step) CPU_SIMD for (int64_t j = 0; j < n; j++) sum[j] += x[j];
    CPU_SIMD for (int64_t j = 0; j < tail; j++) sum[j] += x[j];
}

CPU_CLONES static void R(add_squares)(const REAL *x, int64_t step, int64_t rows, int64_t n, int64_t tail,
                                      const REAL *mean, REAL *sum)
{
    for (; rows >= 2; rows -= 2, x += 2 * step) CPU_SIMD for (int64_t j = 0; j < n; j++)
        {
            REAL a = x[j] - mean[j], b = x[j + step] - mean[j];
            sum[j] += a * a + b * b;
        }
    for (; rows >= 0; rows--, x += step) {
        int64_t m = rows ? n : tail;
        CPU_SIMD for (int64_t j = 0; j < m; j++) sum[j] += (x[j] - mean[j]) * (x[j] - mean[j]);
    }
}

/* Adds dy to sum and dy (x - mean) to dot. */
CPU_CLONES static void R(add_slopes)(const REAL *dy, int64_t dy_step, const REAL *x, int64_t x_step, int64_t rows,
                                     int64_t n, int64_t tail, const REAL *mean, REAL *sum, REAL *dot)
{
    for (; rows >= 2; rows -= 2, dy += 2 * dy_step, x += 2 * x_step) CPU_SIMD for (int64_t j = 0; j < n; j++)
        {
            REAL a = dy[j], b = dy[j + dy_step];
            sum[j] += a + b;
            dot[j] += a * (x[j] - mean[j]) + b * (x[j + x_step] - mean[j]);
        }
    for (; rows >= 0; rows--, dy += dy_step, x += x_step) {
        int64_t m = rows ? n : tail;
        CPU_SIMD for (int64_t j = 0; j < m; j++)
        {
            sum[j] += dy[j];
            dot[j] += dy[j] * (x[j] - mean[j]);
        }
    }
}

CPU_CLONES static void R(affine_row)(const REAL *x, const REAL *mean, const REAL *factor, const REAL *bias, REAL *y,
                                     int64_t n)
{
    CPU_SIMD for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean[j]) * factor[j] + bias[j];
}

CPU_CLONES static void R(combine_row)(const REAL *dy, const REAL *x, const REAL *mean, const REAL *a, const REAL *b,
                                      const REAL *d, REAL *dx, int64_t n)
{
    CPU_SIMD for (int64_t j = 0; j < n; j++) dx[j] = a[j] * dy[j] - (b[j] + d[j] * (x[j] - mean[j]));
}

/* The mean of n elements whose sum is `sum`, and that mean rounded to the carrier. */
CPU_CLONES static void R(means)(const REAL *sum, double n, double *exact, REAL *rounded, int64_t width)
{
    CPU_SIMD for (int64_t j = 0; j < width; j++)
    {
        exact[j] = (double)sum[j] / n;
        rounded[j] = (REAL)exact[j];
    }
}

/* The squared deviations from the mean, given those from the rounded one. */
CPU_CLONES static void R(correct)(const REAL *squares, double n, const double *exact, const REAL *rounded,
                                  double *deviations, int64_t width)
{
    CPU_SIMD for (int64_t j = 0; j < width; j++)
    {
        const double off = exact[j] - (double)rounded[j];
        deviations[j] = (double)squares[j] - off * off * n;
    }
}

CPU_CLONES static void R(add_wide)(double *sum, const REAL *x, int64_t width)
{
    CPU_SIMD for (int64_t j = 0; j < width; j++) sum[j] += (double)x[j];
}

/* ---- several rows in one long row ---- */

static void R(fold)(const columns *l, REAL *sum)
{
    for (int64_t k = l->channels; k < l->fold * l->channels && l->fold > 1; k++) sum[k % l->channels] += sum[k];
}

static void R(repeat)(const columns *l, REAL *values)
{
    for (int64_t k = l->channels; k < l->fold * l->channels && l->fold > 1; k++) values[k] = values[k - l->channels];
}

/* ---- bands and tiles ---- */

/* Computes mean and squared deviations of the columns of a tile over the rows of a band. */
static void R(measure)(const k_args *args, const columns *l, int64_t band, int64_t tile)
{
    double *mean = tile_sums(l, band, tile), *deviations = mean + l->channels;
    R(panel) panel;
    strip s = strip_first(l, band, tile);
    memset(mean, 0, (size_t)s.columns * sizeof *mean);
    memset(deviations, 0, (size_t)s.columns * sizeof *mean);
    for (double seen = 0; s.rows; seen += (double)s.rows, s = strip_next(l, &s)) {
        REAL sum[CPU_TILE] = {0}, part_mean[CPU_TILE], squares[CPU_TILE] = {0};
        double exact[CPU_TILE], about[CPU_TILE], n = (double)s.rows;
        int64_t step;
        const REAL *x = R(strip_load)(&args->in[0], l, &s, panel, &step);
        R(add_rows)(x, step, s.full, s.wide, s.tail, sum);
        R(fold)(l, sum);
        R(means)(sum, n, exact, part_mean, s.columns);
        R(repeat)(l, part_mean);
        R(add_squares)(x, step, s.full, s.wide, s.tail, part_mean, squares);
        R(fold)(l, squares);
        R(correct)(squares, n, exact, part_mean, about, s.columns);
        join(seen, n, exact, about, mean, deviations, s.columns);
    }
}

/* Combines the statistics of the bands, and derives the coefficients of the columns of a tile. */
static void R(finish_tile)(const k_args *args, const columns *l, int64_t tile)
{
    int64_t first = tile * CPU_TILE, n = k_min(CPU_TILE, l->channels - first);
    double mean[CPU_TILE] = {0}, variance[CPU_TILE] = {0}, seen = 0;
    REAL *vectors[3];
    for (int i = 0; i < 3; i++) vectors[i] = (REAL *)l->vectors[i] + first;
    for (int64_t b = 0; b < l->bands && args->attr[IR_ATTR(batch_norm, training)].i; b++) {
        double count = (double)(band_start(l, b + 1) - band_start(l, b));
        const double *part = tile_sums(l, b, tile);
        join(seen, count, part, part + l->channels, mean, variance, n);
        seen += count;
    }
    if (l->rows) divide_by(variance, (double)l->rows, n); /* else it is 0 */
    R(finish)(args, first, n, mean, variance, vectors[1], vectors[2]);
    cpu_convert(cpu_carrier(args->in[0].dtype), vectors[0], IR_f64, mean, n);
    for (int i = 0; i < 3; i++) R(repeat)(l, vectors[i]);
}

static void R(normalise_rows)(const k_args *args, const columns *l, int64_t band, int64_t tile)
{
    const REAL *mean = (REAL *)l->vectors[0] + tile * CPU_TILE, *factor = (REAL *)l->vectors[1] + tile * CPU_TILE,
               *bias = (REAL *)l->vectors[2] + tile * CPU_TILE;
    R(panel) from, to;
    for (strip s = strip_first(l, band, tile); s.rows; s = strip_next(l, &s)) {
        int64_t x_step, y_step;
        const REAL *x = R(strip_load)(&args->in[0], l, &s, from, &x_step);
        REAL *y = R(strip_target)(&args->out[0], l, &s, to, &y_step);
        for (int64_t r = 0; r <= s.full; r++)
            R(affine_row)(x + r * x_step, mean, factor, bias, y + r * y_step, r < s.full ? s.wide : s.tail);
        R(strip_store)(&args->out[0], l, &s, y, to);
    }
}

/* Loads the mean, which the sums of dy and of dy (x - mean) need. */
static void R(read_mean)(const k_args *args, const columns *l)
{
    const k_view *mean = &args->in[3];
    cpu_convert(cpu_carrier(args->in[0].dtype), l->vectors[0], mean->dtype, mean->data, l->channels);
    R(repeat)(l, l->vectors[0]);
}

static void R(measure_slopes)(const k_args *args, const columns *l, int64_t band, int64_t tile)
{
    const REAL *mean = (REAL *)l->vectors[0] + tile * CPU_TILE;
    double *sums = tile_sums(l, band, tile), *dots = sums + l->channels;
    R(panel) one, two;
    strip s = strip_first(l, band, tile);
    memset(sums, 0, (size_t)s.columns * sizeof *sums);
    memset(dots, 0, (size_t)s.columns * sizeof *dots);
    for (; s.rows; s = strip_next(l, &s)) {
        REAL sum[CPU_TILE] = {0}, dot[CPU_TILE] = {0};
        int64_t dy_step, x_step;
        const REAL *dy = R(strip_load)(&args->in[0], l, &s, one, &dy_step),
                   *x = R(strip_load)(&args->in[1], l, &s, two, &x_step);
        R(add_slopes)(dy, dy_step, x, x_step, s.full, s.wide, s.tail, mean, sum, dot);
        R(fold)(l, sum);
        R(fold)(l, dot);
        R(add_wide)(sums, sum, s.columns);
        R(add_wide)(dots, dot, s.columns);
    }
}

static void R(finish_slopes_tile)(const k_args *args, const columns *l, int64_t tile)
{
    int64_t first = tile * CPU_TILE, n = k_min(CPU_TILE, l->channels - first);
    double dscale[CPU_TILE] = {0}, dbias[CPU_TILE] = {0}, rstd[CPU_TILE];
    REAL *vectors[3];
    for (int i = 0; i < 3; i++) vectors[i] = (REAL *)l->vectors[1 + i] + first;
    for (int64_t b = 0; b < l->bands; b++) {
        add_to(dbias, tile_sums(l, b, tile), n);
        add_to(dscale, tile_sums(l, b, tile) + l->channels, n);
    }
    load_numbers(&args->in[4], first, n, rstd);
    scale_by(dscale, rstd, n);
    R(finish_slopes)(args, first, n, l->rows, rstd, dscale, dbias, vectors[0], vectors[1], vectors[2]);
    for (int i = 0; i < 3; i++) R(repeat)(l, vectors[i]);
}

static void R(slope_rows)(const k_args *args, const columns *l, int64_t band, int64_t tile)
{
    const REAL *v[4];
    for (int i = 0; i < 4; i++) v[i] = (REAL *)l->vectors[i] + tile * CPU_TILE;
    R(panel) one, two, three;
    for (strip s = strip_first(l, band, tile); s.rows; s = strip_next(l, &s)) {
        int64_t dy_step, x_step, dx_step;
        const REAL *dy = R(strip_load)(&args->in[0], l, &s, one, &dy_step),
                   *x = R(strip_load)(&args->in[1], l, &s, two, &x_step);
        REAL *dx = R(strip_target)(&args->out[0], l, &s, three, &dx_step);
        for (int64_t r = 0; r <= s.full; r++) {
            int64_t width = r < s.full ? s.wide : s.tail;
            R(combine_row)(dy + r * dy_step, x + r * x_step, v[0], v[1], v[2], v[3], dx + r * dx_step, width);
        }
        R(strip_store)(&args->out[0], l, &s, dx, three);
    }
}
