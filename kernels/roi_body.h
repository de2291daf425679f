/* roi_body.h - template over REAL (real.h), for all devices: the samples of a cell of a region. The includer defines
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

/* The samples of a cell that may be within the image: all others are outside, however large the region is. */
typedef struct R(roi_cell) {
    long long row, column;
    int top, left, rows, columns; /* the first samples, and the numbers of samples */
} R(roi_cell);

/* The samples [*first, *first + n) of a cell along an axis that may be in [-1, extent]; returns n. The margin covers
 * the rounding of positions. */
K_FORMULA int R(roi_inside)(REAL start, REAL size, long long cell, int samples, long long extent, int *first)
{
    const double step = (double)size / samples, from = (double)start + ((double)cell + 0.5 / samples) * (double)size;
    *first = 0;
    if (!(from - from == 0)) return 0; /* no position is finite */
    if (!(step > 0)) return samples;
    const double margin = 2 + 1e-6 * (fabs((double)start) + (double)(cell + 1) * (double)size) / step;
    const double low = floor((-1 - from) / step - margin), high = ceil(((double)extent - from) / step + margin);
    if (high < 0 || low >= samples) return 0;
    *first = low > 0 ? (int)low : 0;
    return (high < samples - 1 ? (int)high + 1 : samples) - *first;
}

K_FORMULA R(roi_cell) R(roi_cell_of)(const roi_shape *s, const R(roi) * r, long long row, long long column)
{
    R(roi_cell) c;
    c.row = row;
    c.column = column;
    c.rows = R(roi_inside)(r->y, r->height, row, r->rows, s->height, &c.top);
    c.columns = R(roi_inside)(r->x, r->width, column, r->columns, s->width, &c.left);
    return c;
}

/* Whether samples of the cell are not among those of c. */
K_FORMULA bool R(roi_has_others)(const R(roi) * r, const R(roi_cell) * c)
{
    return (long long)c->rows * c->columns < (long long)r->rows * r->columns;
}

/* The position of a sample along an axis, rounded as PyTorch and onnxruntime do: it may be just at the border. */
K_FORMULA REAL R(roi_position)(REAL start, REAL size, long long cell, REAL sample, int samples)
{
    return start + (REAL)cell * size + (sample + (REAL)0.5) * size / (REAL)samples;
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

/* Corner `corner` of sample `sample` of a cell: its element and weight; -1: the sample is outside of the image, where
 * the value is 0. */
K_FORMULA long long R(roi_corner)(const roi_shape *s, const R(roi) * r, const R(roi_cell) * c, long long sample,
                                  int corner, REAL *weight)
{
    const REAL i = (REAL)(c->top + sample / c->columns), j = (REAL)(c->left + sample % c->columns);
    REAL down, right;
    const long long y = R(roi_place)(s->height, R(roi_position)(r->y, r->height, c->row, i, r->rows), &down);
    const long long x = R(roi_place)(s->width, R(roi_position)(r->x, r->width, c->column, j, r->columns), &right);
    *weight = 0;
    if (y < 0 || x < 0) return -1;
    *weight = (corner & 2 ? down : 1 - down) * (corner & 1 ? right : 1 - right);
    return (y + (corner & 2 && y < s->height - 1)) * s->width + x + (corner & 1 && x < s->width - 1);
}
