/* grid_sample_body.h - template over REAL, included by grid_sample.c: one point, or one block of channels. */

/* The elements inside the image that a point combines. slopes[i] are the derivatives of the weights by coordinate i. */
typedef struct R(taps) {
    int count;
    int64_t at[GRID_MAX_TAPS];
    REAL weight[GRID_MAX_TAPS], slopes[GRID_AXES][GRID_MAX_TAPS];
} R(taps);

/* The taps of point i of all images; coordinates are in the order x, y, z, axes in the opposite one. */
static void R(find_taps)(const grid_shape *s, const wide *w, int64_t i, R(taps) * t)
{
    R(grid_place) places[GRID_AXES] = {{0, 0}, {0, 0}, {0, 0}};
    const REAL *grid = (const REAL *)w->grid + i * s->axes;
    const int64_t taps = (int64_t)s->taps[0] * s->taps[1] * s->taps[2];
    for (int a = 0; a < s->axes; a++)
        places[GRID_AXES - 1 - a] = R(grid_place_of)(&s->rule, s->size[GRID_AXES - 1 - a], grid[a]);
    t->count = 0;
    for (int64_t k = 0; k < taps; k++) {
        const int digits[GRID_AXES] = {(int)(k / s->taps[2] / s->taps[1]), (int)(k / s->taps[2] % s->taps[1]),
                                       (int)(k % s->taps[2])};
        REAL weights[GRID_AXES], slopes[GRID_AXES];
        int64_t offset = 0;
        for (int a = 0; a < GRID_AXES && offset >= 0; a++) {
            weights[a] = 1, slopes[a] = 0;
            int64_t at = 0;
            if (a >= GRID_AXES - s->axes)
                at = R(grid_tap)(&s->rule, s->size[a], places[a], digits[a], &weights[a], &slopes[a]);
            offset = at < 0 ? -1 : offset * s->size[a] + at;
        }
        if (offset < 0) continue;
        t->at[t->count] = offset;
        t->weight[t->count] = weights[0] * weights[1] * weights[2];
        t->slopes[0][t->count] = weights[0] * weights[1] * slopes[2];
        t->slopes[1][t->count] = weights[0] * slopes[1] * weights[2];
        t->slopes[2][t->count++] = slopes[0] * weights[1] * weights[2];
    }
}

static REAL R(combine)(const R(taps) * t, const REAL *weights, const REAL *x)
{
    REAL sum = 0;
    for (int k = 0; k < t->count; k++) sum += weights[k] * x[t->at[k]];
    return sum;
}

static void R(sample_point)(const grid_shape *s, const wide *w, int64_t i)
{
    R(taps) t;
    const int64_t image = i / s->points, point = i % s->points;
    R(find_taps)(s, w, i, &t);
    for (int64_t c = image * s->channels; c < (image + 1) * s->channels; c++)
        ((REAL *)w->y)[c * s->points + point] = R(combine)(&t, t.weight, (const REAL *)w->x + c * s->plane);
}

static void R(slope_point)(const grid_shape *s, const wide *w, int64_t i)
{
    R(taps) t;
    const int64_t image = i / s->points, point = i % s->points;
    REAL *to = (REAL *)w->dgrid + i * s->axes;
    R(find_taps)(s, w, i, &t);
    for (int a = 0; a < s->axes; a++) to[a] = 0;
    for (int64_t c = image * s->channels; c < (image + 1) * s->channels; c++) {
        const REAL dy = ((const REAL *)w->dy)[c * s->points + point];
        for (int a = 0; a < s->axes; a++) to[a] += dy * R(combine)(&t, t.slopes[a], (const REAL *)w->x + c * s->plane);
    }
}

static void R(spread_channels)(const grid_shape *s, const wide *w, int64_t image, int64_t channel)
{
    R(taps) t;
    const int64_t first = image * s->channels + channel, count = k_min(CHANNEL_BLOCK, s->channels - channel);
    memset((REAL *)w->dx + first * s->plane, 0, (size_t)(count * s->plane) * sizeof(REAL));
    for (int64_t p = 0; p < s->points; p++) {
        R(find_taps)(s, w, image * s->points + p, &t);
        for (int64_t c = first; c < first + count; c++) {
            const REAL dy = ((const REAL *)w->dy)[c * s->points + p];
            REAL *to = (REAL *)w->dx + c * s->plane;
            for (int k = 0; k < t.count; k++) to[t.at[k]] += t.weight[k] * dy;
        }
    }
}
