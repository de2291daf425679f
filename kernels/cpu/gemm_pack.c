/* gemm_pack.c - loads matrices of any type and strides, and makes panels of them. */
#include "kernels/cpu/gemm.h"

#include <string.h>

enum { SIDE = 8, CHUNK = 64 };

typedef float vector __attribute__((vector_size(SIDE * sizeof(float)), aligned(4), may_alias));
typedef int32_t order __attribute__((vector_size(SIDE * sizeof(float))));

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (order){__VA_ARGS__})
#endif

/* Transposes 8 x 8 elements: pairs, then pairs of pairs, then halves. */
CPU_INLINE void transpose_square(float *to, int64_t to_ld, const float *from, int64_t ld)
{
    vector a[SIDE], b[SIDE];
    for (int i = 0; i < SIDE; i++) a[i] = *(const vector *)(from + i * ld);
    for (int i = 0; i < SIDE; i += 2) {
        b[i] = SHUFFLE(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[i + 1] = SHUFFLE(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < SIDE; i++) {
        const int first = i / 4 * 4 + i % 2;
        a[i] = i % 4 < 2 ? SHUFFLE(b[first], b[first + 2], 0, 1, 8, 9, 4, 5, 12, 13)
                         : SHUFFLE(b[first], b[first + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    for (int i = 0; i < SIDE; i++) {
        const int first = i % 4;
        *(vector *)(to + i * to_ld) = i < 4 ? SHUFFLE(a[first], a[first + 4], 0, 1, 2, 3, 8, 9, 10, 11)
                                            : SHUFFLE(a[first], a[first + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

CPU_CLONES void gemm_transpose(float *to, int64_t to_ld, const float *from, int64_t ld, int64_t rows, int64_t columns)
{
    const int64_t whole_rows = rows / SIDE * SIDE, whole_columns = columns / SIDE * SIDE;
    for (int64_t i = 0; i < whole_rows; i += SIDE)
        for (int64_t j = 0; j < whole_columns; j += SIDE)
            transpose_square(to + i * to_ld + j, to_ld, from + i + j * ld, ld);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; j++) to[i * to_ld + j] = from[i + j * ld];
}

static void gather(char *to, const char *from, int64_t stride, int64_t n, size_t size)
{
    if (size == sizeof(float))
        for (int64_t i = 0; i < n; i++) memcpy(to + i * 4, from + i * stride * 4, 4);
    else
        for (int64_t i = 0; i < n; i++) memcpy(to + (size_t)i * size, from + i * stride * (int64_t)size, size);
}

void gemm_load(float *to, const gemm_matrix *m, const void *at, int64_t stride, int64_t n)
{
    const size_t size = ir_dtype_size(m->dtype);
    if (stride == 1) {
        cpu_convert(IR_f32, to, m->dtype, at, n);
    } else if (m->dtype == IR_f32) {
        gather((char *)to, at, stride, n, size);
    } else {
        char line[CHUNK * sizeof(double)];
        for (int64_t i = 0; i < n; i += CHUNK) {
            const int64_t part = k_min(CHUNK, n - i);
            gather(line, (const char *)at + i * stride * (int64_t)size, stride, part, size);
            cpu_convert(IR_f32, to + i, m->dtype, line, part);
        }
    }
    if (m->as != IR_NO_DTYPE) cpu_as_stored(m->as, IR_f32, to, n);
}

/* Makes rows of a panel of `columns` columns from a matrix whose columns are contiguous, piece by piece. */
static void pack_crossed(float *to, int64_t width, const gemm_matrix *b, const char *from, int64_t depth,
                         int64_t columns)
{
    const int64_t size = (int64_t)ir_dtype_size(b->dtype);
    float piece[GEMM_PANEL * CHUNK];
    for (int64_t l = 0; l < depth; l += CHUNK) {
        const int64_t part = k_min(CHUNK, depth - l);
        const float *source = (const float *)(const void *)(from + l * size);
        int64_t ld = b->column;
        if (b->dtype != IR_f32 || b->as != IR_NO_DTYPE) {
            for (int64_t j = 0; j < columns; j++)
                gemm_load(piece + j * CHUNK, b, from + (l + j * b->column) * size, 1, part);
            source = piece;
            ld = CHUNK;
        }
        gemm_transpose(to + l * width, width, source, ld, part, columns);
    }
    for (int64_t l = 0; l < depth && columns < width; l++)
        memset(to + l * width + columns, 0, (size_t)(width - columns) * sizeof *to);
}

void gemm_spread(float *to, int64_t k, int64_t row, const float *from, int64_t columns)
{
    const int64_t whole = columns / GEMM_PANEL * GEMM_PANEL;
    const int64_t width = columns - whole <= GEMM_HALF ? GEMM_HALF : GEMM_PANEL;
    float *last = to + whole * k + row * width;
    for (int64_t j = 0; j < whole; j += GEMM_PANEL)
        memcpy(to + j * k + row * GEMM_PANEL, from + j, GEMM_PANEL * sizeof *to);
    for (int64_t j = whole; j < columns; j++) last[j - whole] = from[j];
    for (int64_t j = columns; whole < columns && j < whole + width; j++) last[j - whole] = 0;
}

/* Rows [first, first + depth) of panels that are k rows high, from a matrix whose columns are not contiguous. */
static void pack_rows(float *to, int64_t k, int64_t first, const gemm_matrix *b, const char *from, int64_t depth,
                      int64_t columns)
{
    const int64_t size = (int64_t)ir_dtype_size(b->dtype);
    float line[GEMM_COLUMNS];
    for (int64_t l = 0; l < depth; l++) {
        const float *source = (const float *)(const void *)(from + l * b->row * size);
        if (b->dtype != IR_f32 || b->as != IR_NO_DTYPE || b->column != 1) {
            gemm_load(line, b, source, b->column, columns);
            source = line;
        }
        gemm_spread(to, k, first + l, source, columns);
    }
}

void gemm_pack(float *packed, const gemm_matrix *b, int64_t k, int64_t n, int64_t first, int64_t depth,
               const k_context *ctx)
{
    const bool crossed = b->row == 1 && b->column != 1;
    const int64_t size = (int64_t)ir_dtype_size(b->dtype), span = crossed ? GEMM_PANEL : GEMM_COLUMNS;
    const int64_t spans = cpu_ceil_div(n, span);
#pragma omp parallel for num_threads(cpu_threads(ctx, depth *n)) schedule(static)
    for (int64_t i = 0; i < spans; i++) {
        const int64_t column = i * span, columns = k_min(span, n - column);
        const int64_t width = columns <= GEMM_HALF ? GEMM_HALF : GEMM_PANEL;
        const char *from = (const char *)b->data + column * b->column * size;
        float *to = packed + column * k;
        if (crossed) pack_crossed(to + first * width, width, b, from, depth, columns);
        else pack_rows(to, k, first, b, from, depth, columns);
    }
}
