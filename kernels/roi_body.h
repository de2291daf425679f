/* roi_body.h - template over REAL (ir/real.h), for all devices: the samples of a cell of a region. The includer defines
 * K_FORMULA. */

/* A region in elements: its start, the sizes of its cells, and the samples per cell. */
typedef struct R(roi) {
    REAL y, x, height, width;
    int rows, columns;
} R(roi);

K_FORMULA int R(roi_samples)(const roi_shape *s, REAL cell)
{
    if (s->sampling > 0) return s->sampling;
    const REAL samples = (REAL)ceil(cell);
    return samples > 0 ? samples < (REAL)ROI_MAX_SAMPLES ? (int)samples : ROI_MAX_SAMPLES : 0; /* NaN: 0 */
}

K_FORMULA R(roi) R(roi_of)(const roi_shape *s, REAL x1, REAL y1, REAL x2, REAL y2)
{
    const REAL scale = (REAL)s->scale, shift = s->half_pixel ? (REAL)0.5 : 0;
    R(roi) r;
    r.x = x1 * scale - shift;
    r.y = y1 * scale - shift;
    REAL width = x2 * scale - shift - r.x, height = y2 * scale - shift - r.y;
    if (!s->half_pixel && !(width > 1)) width = 1;
    if (!s->half_pixel && !(height > 1)) height = 1;
    r.width = width / (REAL)s->columns;
    r.height = height / (REAL)s->rows;
    r.columns = R(roi_samples)(s, r.width);
    r.rows = R(roi_samples)(s, r.height);
    return r;
}

/* The first of two neighbouring elements at a position, and the weight of the second; -1: outside. */
K_FORMULA long long R(roi_place)(long long size, REAL at, REAL *part)
{
    *part = 0;
    if (!(at >= -1 && at <= (REAL)size)) return -1;
    if (at <= 0) return 0;
    const long long low = (long long)at;
    if (low >= size - 1) return size - 1;
    *part = at - (REAL)low;
    return low;
}

/* Corner `corner` of sample `sample` of a cell: its element and weight. A sample outside of the image has weight 0. */
K_FORMULA long long R(roi_corner)(const roi_shape *s, const R(roi) * r, long long row, long long column,
                                  long long sample, int corner, REAL *weight)
{
    const REAL i = (REAL)(sample / r->columns), j = (REAL)(sample % r->columns);
    REAL down, right;
    const long long y = R(roi_place)(s->height, r->y + ((REAL)row + (i + (REAL)0.5) / (REAL)r->rows) * r->height,
                                     &down);
    const long long x = R(roi_place)(s->width, r->x + ((REAL)column + (j + (REAL)0.5) / (REAL)r->columns) * r->width,
                                     &right);
    *weight = 0;
    if (y < 0 || x < 0) return 0;
    *weight = (corner & 2 ? down : 1 - down) * (corner & 1 ? right : 1 - right);
    return (y + (corner & 2 && y < s->height - 1)) * s->width + x + (corner & 1 && x < s->width - 1);
}
