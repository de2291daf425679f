/* image_resize.c - separable resampling with a triangle filter, in the fixed-point arithmetic of Pillow (Resample.c),
 * and the nearest pixels.
 *
 * When an image shrinks, the filter is widened by the same factor, so every source pixel contributes (antialiasing).
 * Rows are resampled first, to u8, then columns, as in Pillow up to 12; Pillow 13 chooses the cheaper order. */
#include "runtime/backend/memory.h"
#include "runtime/data/image.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PRECISION = 32 - 8 - 2 }; /* fraction bits of a weight: 8 bits for the pixel, 2 for the sign and overshoot */

/* For each result pixel: the first source pixel, the number of them, and their weights. */
typedef struct taps {
    int width; /* weights per result pixel */
    int *first, *count;
    int32_t *weights;
} taps;

static void taps_clear(taps *t)
{
    free(t->first);
    free(t->count);
    free(t->weights);
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* The weights of one result pixel, whose centre is at `centre`; `real` is a scratch array. */
static void set_taps(taps *t, int index, double centre, double widening, int size, double *real)
{
    double total = 0;
    int first = (int)(centre - widening + 0.5), end = (int)(centre + widening + 0.5);
    if (first < 0) first = 0;
    if (end > size) end = size;
    for (int i = 0; i < end - first; i++) total += real[i] = triangle((i + first - centre + 0.5) * (1 / widening));
    for (int i = 0; i < end - first; i++) {
        double weight = total != 0 ? real[i] / total : real[i];
        t->weights[(size_t)index * (size_t)t->width + (size_t)i] = (int32_t)(0.5 + weight * (1 << PRECISION));
    }
    t->first[index] = first;
    t->count[index] = end - first;
}

/* Maps `count` result pixels to from .. to of `size` source pixels. */
static ampc_status taps_make(taps *t, int size, float from, float to, int count, diag *d)
{
    const double scale = (double)(to - from) / count, widening = scale < 1 ? 1 : scale;
    t->width = (int)ceil(widening) * 2 + 1;
    t->first = malloc((size_t)count * sizeof *t->first);
    t->count = malloc((size_t)count * sizeof *t->count);
    t->weights = malloc((size_t)count * (size_t)t->width * sizeof *t->weights);
    double *real = malloc((size_t)t->width * sizeof *real);
    if (t->first && t->count && t->weights && real)
        for (int i = 0; i < count; i++) set_taps(t, i, from + (i + 0.5) * scale, widening, size, real);
    bool complete = t->first && t->count && t->weights && real;
    free(real);
    return complete ? AMPC_OK : rt_no_memory(d);
}

static uint8_t saturate(int32_t sum)
{
    sum >>= PRECISION;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* The weighted sum of pixels that are `step` bytes apart. */
static uint8_t blend(const taps *t, int index, const uint8_t *from, size_t step)
{
    const int32_t *weights = t->weights + (size_t)index * (size_t)t->width;
    int32_t sum = 1 << (PRECISION - 1);
    from += (size_t)t->first[index] * step;
    for (int i = 0; i < t->count[index]; i++) sum += from[(size_t)i * step] * weights[i];
    return saturate(sum);
}

/* Stores rows first_row .. first_row + rows - 1, resampled to `width` pixels, at dst. */
static void resample_rows(const taps *t, const rt_image *image, int first_row, int rows, int width, uint8_t *dst)
{
    const size_t channels = (size_t)image->channels, stride = (size_t)image->width * channels;
    for (int y = 0; y < rows; y++) {
        const uint8_t *row = image->pixels + (size_t)(first_row + y) * stride;
        for (int x = 0; x < width; x++)
            for (size_t c = 0; c < channels; c++) *dst++ = blend(t, x, row + c, channels);
    }
}

static void resample_columns(const taps *t, const uint8_t *src, size_t stride, int height, uint8_t *dst)
{
    for (int y = 0; y < height; y++)
        for (size_t i = 0; i < stride; i++) *dst++ = blend(t, y, src + i, stride);
}

/* Resamples only the rows that `down` reads, and makes it count from the first of them. */
static ampc_status resample(const rt_image *image, const taps *across, taps *down, rt_image *out, diag *d)
{
    const size_t stride = (size_t)out->width * (size_t)out->channels;
    const int first = down->first[0];
    const int rows = down->first[out->height - 1] + down->count[out->height - 1] - first;
    uint8_t *between = malloc((size_t)rows * stride);
    out->pixels = malloc((size_t)out->height * stride);
    bool allocated = between && out->pixels;
    for (int y = 0; y < out->height; y++) down->first[y] -= first;
    if (allocated) {
        resample_rows(across, image, first, rows, out->width, between);
        resample_columns(down, between, stride, out->height, out->pixels);
    }
    free(between);
    return allocated ? AMPC_OK : rt_no_memory(d);
}

ampc_status rt_image_resize(const rt_image *image, const rt_image_box *box, int width, int height, diag *d,
                            rt_image *out)
{
    rt_image result = {.width = width, .height = height, .channels = image->channels};
    taps across = {0}, down = {0};
    ampc_status s = taps_make(&across, image->width, box->left, box->right, width, d);
    if (s == AMPC_OK) s = taps_make(&down, image->height, box->top, box->bottom, height, d);
    if (s == AMPC_OK) s = resample(image, &across, &down, &result, d);
    taps_clear(&across);
    taps_clear(&down);
    if (s == AMPC_OK) *out = result;
    else rt_image_clear(&result);
    return s;
}

/* The source pixel, of `size`, in which the centre of result pixel `index` of `count` is. */
static size_t nearest(float from, float to, int index, int count, int size)
{
    const int at = (int)floor(from + (index + 0.5) * ((double)to - from) / count);
    return (size_t)(at < 0 ? 0 : at < size ? at : size - 1);
}

ampc_status rt_image_pick(const rt_image *image, const rt_image_box *box, int width, int height, diag *d, rt_image *out)
{
    const size_t pixel = (size_t)image->channels, stride = (size_t)image->width * pixel;
    rt_image result = {.width = width, .height = height, .channels = image->channels};
    uint8_t *to = result.pixels = malloc((size_t)width * (size_t)height * pixel);
    if (!to) return rt_no_memory(d);
    for (int y = 0; y < height; y++) {
        const uint8_t *row = image->pixels + nearest(box->top, box->bottom, y, height, image->height) * stride;
        for (int x = 0; x < width; x++, to += pixel)
            memcpy(to, row + nearest(box->left, box->right, x, width, image->width) * pixel, pixel);
    }
    *out = result;
    return AMPC_OK;
}

rt_image_box rt_image_whole(const rt_image *image)
{
    return (rt_image_box){0, 0, (float)image->width, (float)image->height};
}

rt_image_box rt_image_centre(const rt_image *image, int width, int height)
{
    const double ratio = (double)width / height;
    double w = image->width, h = image->height;
    if (w / h >= ratio) w = ratio * h;
    else h = w / ratio;
    const double left = (image->width - w) * 0.5, top = (image->height - h) * 0.5;
    return (rt_image_box){(float)left, (float)top, (float)(left + w), (float)(top + h)};
}
