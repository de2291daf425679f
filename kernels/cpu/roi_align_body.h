/* roi_align_body.h - template over REAL, included by roi_align.c: regions. */

static R(roi) R(region)(const roi_shape *s, const wide *w, int64_t region)
{
    const REAL *r = (const REAL *)w->rois + 4 * region;
    return R(roi_of)(s, r[0], r[1], r[2], r[3]);
}

/* The corner with the largest product in a cell, NaN before numbers; -1: it is outside, or there are no samples. */
static int64_t R(largest)(const roi_shape *s, const R(roi) * r, const R(roi_cell) * c, const REAL *x, REAL *weight,
                          REAL *value)
{
    int64_t best = -1;
    bool is_first = !R(roi_has_others)(r, c);
    *weight = *value = 0;
    for (int64_t k = 0; k < 4 * (int64_t)c->rows * c->columns; k++) {
        REAL factor;
        const int64_t at = R(roi_corner)(s, r, c, k / 4, (int)(k % 4), &factor);
        const REAL product = at < 0 ? 0 : factor * x[at];
        if (!is_first && !(product > *value || product != product)) continue;
        best = at, *value = product, *weight = factor, is_first = false;
    }
    return best;
}

static REAL R(average)(const roi_shape *s, const R(roi) * r, const R(roi_cell) * c, const REAL *x)
{
    const int64_t samples = (int64_t)r->rows * r->columns;
    REAL sum = 0;
    for (int64_t k = 0; k < 4 * (int64_t)c->rows * c->columns; k++) {
        REAL factor;
        const int64_t at = R(roi_corner)(s, r, c, k / 4, (int)(k % 4), &factor);
        if (at >= 0) sum += factor * x[at];
    }
    return samples ? sum / (REAL)samples : 0;
}

/* Channel `plane` % channels of region `plane` / channels. */
static void R(pool_region)(const roi_shape *s, const wide *w, int64_t plane)
{
    const int64_t region = plane / s->channels, channel = plane % s->channels;
    const R(roi) r = R(region)(s, w, region);
    const REAL *x = (const REAL *)w->x + (w->batch[region] * s->channels + channel) * s->height * s->width;
    REAL *y = (REAL *)w->y + plane * s->rows * s->columns, weight;
    for (int64_t cell = 0; cell < s->rows * s->columns; cell++) {
        const R(roi_cell) c = R(roi_cell_of)(s, &r, cell / s->columns, cell % s->columns);
        if (s->max) R(largest)(s, &r, &c, x, &weight, &y[cell]);
        else y[cell] = R(average)(s, &r, &c, x);
    }
}

static void R(spread_cell)(const roi_shape *s, const R(roi) * r, int64_t cell, const REAL *x, REAL dy, REAL *dx)
{
    const R(roi_cell) c = R(roi_cell_of)(s, r, cell / s->columns, cell % s->columns);
    const int64_t samples = (int64_t)r->rows * r->columns;
    REAL factor, value;
    if (s->max) {
        const int64_t at = R(largest)(s, r, &c, x, &factor, &value);
        if (at >= 0) dx[at] += factor * dy;
        return;
    }
    for (int64_t k = 0; k < 4 * (int64_t)c.rows * c.columns; k++) {
        const int64_t at = R(roi_corner)(s, r, &c, k / 4, (int)(k % 4), &factor);
        if (at >= 0) dx[at] += factor * (dy / (REAL)samples);
    }
}

/* The gradient of one channel of an image. */
static void R(spread_plane)(const roi_shape *s, const wide *w, int64_t plane)
{
    const int64_t image = plane / s->channels, channel = plane % s->channels, area = s->height * s->width;
    const REAL *x = (const REAL *)w->x + plane * area;
    REAL *dx = (REAL *)w->y + plane * area;
    memset(dx, 0, (size_t)area * sizeof *dx);
    for (int64_t region = 0; region < s->regions; region++) {
        if (w->batch[region] != image) continue;
        const R(roi) r = R(region)(s, w, region);
        const REAL *dy = (const REAL *)w->dy + (region * s->channels + channel) * s->rows * s->columns;
        for (int64_t cell = 0; cell < s->rows * s->columns; cell++) R(spread_cell)(s, &r, cell, x, dy[cell], dx);
    }
}
