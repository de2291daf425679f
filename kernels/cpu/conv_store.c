/* conv_store.c - finishes the sums of own convolutions and stores them in views of any type and layout. */
#include "kernels/cpu/conv_own.h"

#include <string.h>

/* The position in an image of the result of row `row` of a pass. */
static int64_t point_of(const conv_pass *p, int64_t row)
{
    const conv_window *w = &p->w;
    int64_t position[3], at = 0;
    conv_split(row % conv_volume(w->count), w->count, position);
    for (int i = 0; i < 3; i++) at = at * p->result.size[i] + w->first[i] + position[i] * w->stride[i];
    return at;
}

/* Stores rows of one image in a view whose positions are contiguous. */
static void store_planes(const conv_pass *p, const float *sums, int64_t ld, int64_t row, int64_t rows, int64_t column,
                         int64_t columns)
{
    enum { ROWS = 64, SIZE = 8 };
    const int64_t points = conv_volume(p->result.size), image = row / conv_volume(p->w.count);
    const int64_t size = (int64_t)ir_dtype_size(p->view->dtype);
    float tile[ROWS * GEMM_PANEL];
    char line[ROWS * SIZE];
    int64_t at[ROWS];
    for (int64_t i = 0; i < rows; i++) at[i] = point_of(p, row + i);
    const bool dense = at[rows - 1] - at[0] == rows - 1;
    for (int64_t j = 0; j < columns; j++) {
        if (j % GEMM_PANEL == 0) gemm_transpose(tile, ROWS, sums + j, ld, k_min(GEMM_PANEL, columns - j), rows);
        char *plane = cpu_at(p->view, (image * p->result.channels + column + j) * points);
        cpu_convert(p->view->dtype, dense ? plane + at[0] * size : line, IR_f32, tile + j % GEMM_PANEL * ROWS, rows);
        for (int64_t i = 0; i < rows && !dense; i++) memcpy(plane + at[i] * size, line + i * size, (size_t)size);
    }
}

void conv_store(const conv_pass *p, float *sums, int64_t ld, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const int64_t points = conv_volume(p->w.count), size = conv_volume(p->result.size), channels = p->result.channels;
    float terms[GEMM_COLUMNS];
    if (p->bias) {
        cpu_convert(IR_f32, terms, p->bias->dtype, cpu_at(p->bias, column), columns);
        for (int64_t i = 0; i < rows; i++) CPU_SIMD for (int64_t j = 0; j < columns; j++) sums[i * ld + j] += terms[j];
    }
    if (p->is_direct) return;
    if (p->view->channels_last || channels == 1 || size == 1) {
        for (int64_t i = 0; i < rows; i++) {
            const int64_t at = ((row + i) / points * size + point_of(p, row + i)) * channels + column;
            cpu_convert(p->view->dtype, cpu_at(p->view, at), IR_f32, sums + i * ld, columns);
        }
        return;
    }
    for (int64_t i = 0, n; i < rows; i += n) { /* at most 64, of one image */
        n = k_min(k_min(64, rows - i), points - (row + i) % points);
        store_planes(p, sums + i * ld, ld, row + i, n, column, columns);
    }
}

void conv_store_filter(const conv *c, int64_t m, int64_t first, const float *sums, int64_t count)
{
    const conv_weights at = conv_weights_of(c);
    const size_t size = ir_dtype_size(c->w->dtype);
    char *to = cpu_at(c->w, m * at.filter), line[GEMM_COLUMNS * sizeof(double)];
    if (at.channel == 1 && (at.tap == c->g.c || at.taps == 1)) {
        cpu_convert(c->w->dtype, to + (size_t)first * size, IR_f32, sums, count);
        return;
    }
    cpu_convert(c->w->dtype, line, IR_f32, sums, count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t tap = (first + i) / c->g.c, channel = (first + i) % c->g.c;
        memcpy(to + (size_t)(tap * at.tap + channel * at.channel) * size, line + (size_t)i * size, size);
    }
}
