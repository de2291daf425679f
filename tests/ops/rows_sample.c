/* rows_sample.c - samples at the positions of a grid and in regions. The references find the neighbours of each position
 * by visiting all elements; the gradient of the grid is a difference quotient. */
#include "tests/ops/ops.h"

#include <math.h>

/* ---- grids ----------------------------------------------------------------------------------- */

typedef struct image {
    const char *method, *border;
    bool corners, absolute;
    int axes;
    int64_t n, c, size[3], points[3];
} image;

static const image images[] = {
    {"linear", "zeros", 0, 0, 2, 2, 3, {5, 6}, {4, 7}},
    {"linear", "zeros", 1, 0, 2, 1, 2, {4, 1}, {3, 3}},
    {"linear", "border", 0, 0, 2, 2, 9, {3, 5}, {6, 2}},
    {"linear", "reflection", 0, 0, 2, 1, 2, {4, 5}, {5, 5}},
    {"linear", "reflection", 1, 0, 2, 2, 1, {6, 3}, {4, 4}},
    {"nearest", "zeros", 0, 0, 2, 2, 3, {7, 5}, {3, 9}},
    {"nearest", "border", 1, 0, 2, 1, 2, {4, 6}, {5, 3}},
    {"nearest", "reflection", 0, 0, 2, 1, 2, {4, 6}, {5, 3}},
    {"cubic", "zeros", 0, 0, 2, 2, 2, {6, 5}, {4, 4}},
    {"cubic", "border", 1, 0, 2, 1, 3, {5, 7}, {3, 5}},
    {"cubic", "reflection", 0, 0, 2, 2, 1, {4, 5}, {6, 3}},
    {"linear", "zeros", 0, 0, 3, 2, 2, {3, 4, 5}, {2, 3, 4}},
    {"linear", "border", 1, 0, 3, 1, 3, {2, 5, 3}, {3, 3, 3}},
    {"nearest", "zeros", 0, 0, 3, 1, 2, {3, 3, 4}, {2, 2, 5}},
    {"linear", "border", 0, 0, 1, 2, 3, {9}, {11}},
    {"linear", "zeros", 0, 1, 2, 3, 4, {6, 7}, {5, 9}},
    {"linear", "zeros", 0, 0, 2, 0, 3, {5, 6}, {4, 7}},
    {"linear", "zeros", 0, 0, 2, 1, 1, {90, 95}, {8, 9}},
};
enum { IMAGES = sizeof images / sizeof *images };

static const image *now;

/* Moves a position into [low, low + span] by reflection. */
static double reflected(double at, double low, double span)
{
    if (span == 0) return low;
    double from = fmod(fabs(at - low), 2 * span);
    return low + (from > span ? 2 * span - from : from);
}

static double bounded(double at, int64_t size)
{
    const double last = (double)(size - 1);
    if (now->border[0] == 'r') at = now->corners ? reflected(at, 0, last) : reflected(at, -0.5, (double)size);
    return now->border[0] == 'z' ? at : fmin(fmax(at, 0), last);
}

static double filter(double d)
{
    d = fabs(d);
    if (now->method[0] == 'l') return fmax(0, 1 - d);
    return d <= 1 ? (1.25 * d - 2.25) * d * d + 1 : d < 2 ? ((-0.75 * d + 3.75) * d - 6) * d + 3 : 0;
}

/* The weights of all elements of an axis for coordinate g. */
static void weigh(double g, int64_t size, double *weights)
{
    const double s = (double)size;
    double at = now->absolute ? g : now->corners ? (g + 1) / 2 * (s - 1) : ((g + 1) * s - 1) / 2;
    memset(weights, 0, (size_t)size * sizeof *weights);
    if (now->method[0] != 'c') at = bounded(at, size);
    for (int64_t i = -100; i < size + 100; i++) {
        const double w = now->method[0] == 'n' ? rint(at) == (double)i : filter((double)i - at);
        const double to = now->method[0] == 'c' ? bounded((double)i, size) : (double)i;
        if (w != 0 && to >= 0 && to < s) weights[(int64_t)to] += w;
    }
}

/* Calls `visit` with each element of an image that has a weight at a position. */
static void each_element(const double *g, void (*visit)(void *, int64_t, double), void *user)
{
    static double weights[3][128];
    int64_t sizes[3] = {1, 1, 1};
    for (int a = 0; a < 3; a++) weights[a][0] = 1;
    for (int a = 0; a < now->axes; a++) {
        sizes[2 - a] = now->size[now->axes - 1 - a];
        weigh(g[a], sizes[2 - a], weights[2 - a]);
    }
    for (int64_t z = 0; z < sizes[0]; z++)
        for (int64_t y = 0; y < sizes[1]; y++)
            for (int64_t x = 0; x < sizes[2]; x++) {
                const double w = weights[0][z] * weights[1][y] * weights[2][x];
                if (w != 0) visit(user, (z * sizes[1] + y) * sizes[2] + x, w);
            }
}

typedef struct walk {
    const double *x, *dy;
    double *sums, *dx;
    int64_t plane, points;
} walk;

static void add_sums(void *user, int64_t element, double weight)
{
    walk *w = user;
    for (int64_t c = 0; c < now->c; c++) w->sums[c] += weight * w->x[c * w->plane + element];
}

static void add_shares(void *user, int64_t element, double weight)
{
    walk *w = user;
    for (int64_t c = 0; c < now->c; c++) w->dx[c * w->plane + element] += weight * w->dy[c * w->points];
}

static void measure(walk *w)
{
    w->plane = w->points = 1;
    for (int i = 0; i < now->axes; i++) w->plane *= now->size[i], w->points *= now->points[i];
}

static void sample_reference(ops_case *c)
{
    double sums[16];
    walk w = {.sums = sums};
    measure(&w);
    for (int64_t n = 0; n < now->n; n++)
        for (int64_t p = 0; p < w.points; p++) {
            w.x = c->x[0] + n * now->c * w.plane;
            memset(sums, 0, sizeof sums);
            each_element(c->x[1] + (n * w.points + p) * now->axes, add_sums, &w);
            for (int64_t k = 0; k < now->c; k++) c->expected[0][(n * now->c + k) * w.points + p] = sums[k];
        }
}

/* The sum over the channels of dy times y at a position. */
static double product_at(walk *w, const double *g)
{
    double sums[16] = {0}, product = 0;
    w->sums = sums;
    each_element(g, add_sums, w);
    for (int64_t k = 0; k < now->c; k++) product += w->dy[k * w->points] * sums[k];
    return product;
}

static void grad_reference(ops_case *c)
{
    walk w = {.x = NULL};
    measure(&w);
    if (k_present(&c->out[0])) memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t n = 0; n < now->n; n++)
        for (int64_t p = 0; p < w.points; p++) {
            double g[3];
            const int64_t at = (n * w.points + p) * now->axes;
            w.x = c->x[1] + n * now->c * w.plane;
            w.dy = c->x[0] + n * now->c * w.points + p;
            if (k_present(&c->out[0])) w.dx = c->expected[0] + n * now->c * w.plane;
            memcpy(g, c->x[2] + at, (size_t)now->axes * sizeof *g);
            if (k_present(&c->out[0])) each_element(g, add_shares, &w);
            for (int a = 0; a < now->axes && k_present(&c->out[1]); a++) {
                const double h = 1e-6, old = g[a];
                g[a] = old + h;
                const double up = product_at(&w, g);
                g[a] = old - h;
                c->expected[1][at + a] = (up - product_at(&w, g)) / (2 * h);
                g[a] = old;
            }
        }
}

/* Odd multiples of 1/64, which are exact in all types and never positions of elements or edges. */
static void set_grid(ops_case *c, double *grid, int64_t count)
{
    const double scale = now->absolute ? 4 : 1;
    (void)c;
    for (int64_t i = 0; i < count; i++) grid[i] = scale * (2 * floor(grid[i]) + 1) / 64 + (now->absolute ? 2 : 0);
}

static void grid_sample(const ops_row *row, ir_dtype t)
{
    const bool back = row->op == IR_OP_grid_sample_grad;
    for (int s = 0; s < (back ? 2 : 1) * IMAGES; s++) {
        if (s >= IMAGES && s % 2) continue; /* neither result is wanted */
        ops_case c = case_of(row->op);
        now = &images[s % IMAGES];
        const int rank = now->axes + 2;
        int64_t x[5] = {now->n, now->c}, y[5] = {now->n, now->c}, grid[5] = {now->n}, count = now->n * now->axes;
        for (int i = 0; i < now->axes; i++) {
            x[2 + i] = now->size[i];
            y[2 + i] = grid[1 + i] = now->points[i];
            count *= now->points[i];
        }
        grid[rank - 1] = now->axes;
        if (back) case_in(&c, t, rank, y, -2, 2);
        case_in(&c, t, rank, x, -2, 2);
        set_grid(&c, case_in(&c, t, rank, grid, -40, 40), count);
        c.attr[IR_ATTR(grid_sample, method)].i = ir_words_find(ir_words_sampling, now->method);
        c.attr[IR_ATTR(grid_sample, border)].i = ir_words_find(ir_words_border, now->border);
        c.attr[IR_ATTR(grid_sample, align_corners)].i = now->corners;
        c.attr[IR_ATTR(grid_sample, absolute)].i = now->absolute;
        case_out(&c, back && s >= IMAGES ? IR_NO_DTYPE : t, rank, back ? x : y);
        if (back) case_out(&c, s % 2 ? IR_NO_DTYPE : t, rank, grid);
        c.units = back && t == IR_f64 ? 1e9 : 1000;
        c.size = 1;
        case_finish(&c, back ? grad_reference : sample_reference);
    }
}

/* ---- regions --------------------------------------------------------------------------------- */

static const struct region {
    int64_t n, c, height, width, rois, size[2], sampling;
    double scale;
    bool half_pixel, max;
} regions[] = {
    {2, 3, 6, 7, 4, {2, 3}, 2, 1, true, false},  {1, 2, 9, 5, 3, {3, 2}, 0, 0.5, true, false},
    {2, 1, 5, 8, 5, {1, 1}, 3, 1, false, false}, {2, 3, 6, 7, 4, {2, 3}, 2, 1, true, true},
    {1, 2, 4, 4, 3, {2, 2}, 0, 1, false, true},  {1, 1, 100, 95, 9, {4, 4}, 1, 8, true, false},
    {2, 2, 3, 4, 0, {2, 2}, 1, 1, true, false},  {1, 3, 1, 1, 2, {2, 2}, 2, 1, false, false},
};
enum { REGIONS = sizeof regions / sizeof *regions };

static const struct region *here;

/* The value at a position, and in `add` (if not NULL) the shares of the four neighbours, or of the largest one. */
typedef struct corner {
    int64_t at;
    double weight;
} corner;

static void corners_of(double y, double x, corner *out)
{
    for (int k = 0; k < 4; k++) out[k] = (corner){-1, 0};
    if (y < -1 || y > (double)here->height || x < -1 || x > (double)here->width) return;
    y = fmin(fmax(y, 0), (double)(here->height - 1));
    x = fmin(fmax(x, 0), (double)(here->width - 1));
    for (int k = 0; k < 4; k++) {
        const double row = floor(y) + k / 2, column = floor(x) + k % 2;
        out[k].weight = fmax(0, 1 - fabs(y - row)) * fmax(0, 1 - fabs(x - column));
        out[k].at = (int64_t)(fmin(row, (double)(here->height - 1)) * (double)here->width +
                              fmin(column, (double)(here->width - 1)));
    }
}

/* The value of a cell of a region; adds `share` times its derivatives to dx if that is not NULL. */
static double cell(const double *roi, const double *x, int64_t row, int64_t column, double share, double *dx)
{
    const double shift = here->half_pixel ? 0.5 : 0;
    double start[2], extent[2], sum = 0;
    int64_t samples[2];
    corner best = {-1, 0}, corners[4];
    double value = 0;
    bool is_first = true;
    for (int a = 0; a < 2; a++) {
        start[a] = roi[1 - a] * here->scale - shift;
        extent[a] = roi[3 - a] * here->scale - shift - start[a];
        if (!here->half_pixel) extent[a] = fmax(1, extent[a]);
        extent[a] /= (double)here->size[a];
        samples[a] = here->sampling ? here->sampling : (int64_t)ceil(extent[a]);
    }
    const double count = (double)(samples[0] * samples[1]);
    for (int64_t i = 0; i < samples[0]; i++)
        for (int64_t j = 0; j < samples[1]; j++) {
            corners_of(start[0] + ((double)row + ((double)i + 0.5) / (double)samples[0]) * extent[0],
                       start[1] + ((double)column + ((double)j + 0.5) / (double)samples[1]) * extent[1], corners);
            for (int k = 0; k < 4; k++) {
                const double v = corners[k].at < 0 ? 0 : corners[k].weight * x[corners[k].at];
                if (!here->max) sum += v / count;
                if (!here->max && dx && corners[k].at >= 0) dx[corners[k].at] += share * corners[k].weight / count;
                if (here->max && (is_first || v > value || isnan(v))) best = corners[k], value = v;
                is_first = false;
            }
        }
    if (!here->max) return sum;
    if (dx && best.at >= 0) dx[best.at] += share * best.weight;
    return value;
}

static void region_reference(ops_case *c)
{
    const bool back = c->op == IR_OP_roi_align_grad;
    const double *rois = c->x[back + 1], *batch = c->x[back + 2];
    const int64_t cells = here->size[0] * here->size[1], plane = here->height * here->width;
    if (back) memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double));
    for (int64_t i = 0; i < here->rois * here->c * cells; i++) {
        const int64_t roi = i / cells / here->c, channel = i / cells % here->c, at = i % cells;
        const int64_t offset = ((int64_t)batch[roi] * here->c + channel) * plane;
        const double v = cell(rois + 4 * roi, c->x[back] + offset, at / here->size[1], at % here->size[1],
                              back ? c->x[0][i] : 0, back ? c->expected[0] + offset : NULL);
        if (!back) c->expected[0][i] = v;
    }
}

static void zero_reference(ops_case *c) { memset(c->expected[0], 0, (size_t)k_count(&c->out[0]) * sizeof(double)); }

/* With `far`, regions are so large that their samples miss the image, and so many that only those near it may be
 * visited. */
static void align_regions(const ops_row *row, ir_dtype t, bool far)
{
    const bool back = row->op == IR_OP_roi_align_grad;
    for (int s = 0; s < REGIONS; s++) {
        ops_case c = case_of(row->op);
        here = &regions[s];
        if (far && (here->max || here->sampling)) continue;
        const int64_t x[] = {here->n, here->c, here->height, here->width}, rois[] = {here->rois, 4};
        const int64_t y[] = {here->rois, here->c, here->size[0], here->size[1]};
        if (back) case_in(&c, t, 4, y, -2, 2);
        double *pixels = case_in(&c, t, 4, x, -2, 2);
        if (here->max) pixels[k_count(&c.in[back]) / 2] = NAN;
        double *r = case_in(&c, t, 2, rois, 0, 24);
        for (int64_t i = 0; i < 4 * here->rois; i++)
            r[i] = far ? (i % 4 < 2 ? -3e4 : 4e4) : (2 * floor(r[i]) + 1) / 8 + (i % 4 < 2 ? -1 : 4);
        case_in(&c, s % 2 ? IR_i32 : IR_i64, 1, rois, 0, (double)(here->n - 1));
        case_list(&c, IR_ATTR(roi_align, size), here->size, 2);
        c.attr[IR_ATTR(roi_align, sampling)].i = here->sampling;
        c.attr[IR_ATTR(roi_align, scale)].f = here->scale;
        c.attr[IR_ATTR(roi_align, half_pixel)].i = here->half_pixel;
        c.attr[IR_ATTR(roi_align, max)].i = here->max;
        case_out(&c, t, 4, back ? x : y);
        c.units = far && t == IR_f64 ? 1e9 : 200;
        c.size = 2;
        case_finish(&c, far ? zero_reference : region_reference);
    }
}

static void roi_align(const ops_row *row, ir_dtype t)
{
    align_regions(row, t, false);
    align_regions(row, t, true);
}

const ops_row sample_rows[] = {
    {IR_OP_grid_sample, "F", grid_sample, 0, 0, NULL, 0, 0},
    {IR_OP_grid_sample_grad, "F", grid_sample, 0, 0, NULL, 0, 0},
    {IR_OP_roi_align, "F", roi_align, 0, 0, NULL, 0, 0},
    {IR_OP_roi_align_grad, "F", roi_align, 0, 0, NULL, 0, 0},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
