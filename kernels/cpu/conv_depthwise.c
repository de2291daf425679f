/* conv_depthwise.c - convolutions of single channels: vectors of channels, tap by tap. */
#include "kernels/cpu/conv_own.h"

enum { BLOCK = 64, LIST = 64, ROWS = 16 };

bool conv_is_depthwise(const conv *c) { return c->g.groups > 1 && c->g.c == 1 && c->g.m == 1; }

/* Vectors of equal length that are multiplied in pairs. */
typedef struct pairs {
    int64_t count;
    const float *x[LIST], *y[LIST];
} pairs;

/* to = the sum of the products of all pairs, plus `to` if `adds`. */
CPU_CLONES static void sum_pairs(float *to, const pairs *p, int64_t n, bool adds)
{
    for (int64_t first = 0; first < n; first += BLOCK) {
        float sums[BLOCK];
        const int64_t m = k_min(BLOCK, n - first);
        for (int64_t i = 0; i < m; i++) sums[i] = adds ? to[first + i] : 0;
        for (int64_t l = 0; l < p->count; l++) {
            const float *x = p->x[l] + first, *y = p->y[l] + first;
            if (m == BLOCK) CPU_SIMD for (int64_t i = 0; i < BLOCK; i++) sums[i] += x[i] * y[i];
            else CPU_SIMD for (int64_t i = 0; i < m; i++) sums[i] += x[i] * y[i];
        }
        for (int64_t i = 0; i < m; i++) to[first + i] = sums[i];
    }
}

/* Some of the taps of a pass: what they add to a position, and their weights. */
typedef struct tap_list {
    int64_t count, shift[LIST][3];
    const float *weights[LIST];
} tap_list;

static tap_list taps_from(const conv_pass *p, int64_t first, const float *weights)
{
    tap_list t = {.count = k_min(LIST, conv_volume(p->w.taps) - first)};
    for (int64_t i = 0; i < t.count; i++) {
        int64_t tap[3];
        conv_split(first + i, p->w.taps, tap);
        conv_shift(p, tap, t.shift[i]);
        t.weights[i] = weights + conv_kernel_tap(p, first + i) * p->result.channels;
    }
    return t;
}

/* Computes channels [column, column + columns) of rows. */
static void sum_block(const conv_pass *p, const float *weights, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, float *to, int64_t ld)
{
    const int64_t all = conv_volume(p->w.taps);
    for (int64_t first = 0; first == 0 || first < all; first += LIST) {
        const tap_list t = taps_from(p, first, weights);
        conv_row from = conv_row_at(p, row);
        for (int64_t i = 0; i < rows; i++, conv_next(p, &from)) {
            pairs list;
            list.count = 0;
            for (int64_t l = 0; l < t.count; l++) {
                const float *x = conv_source(p, &from, t.shift[l]);
                if (!x) continue;
                list.x[list.count] = x + column;
                list.y[list.count++] = t.weights[l] + column;
            }
            sum_pairs(to + i * ld, &list, columns, first > 0);
        }
    }
}

void conv_depthwise_run(const conv_pass *p, const float *weights, const k_context *ctx)
{
    const int64_t rows = p->source.n * conv_volume(p->w.count), channels = p->result.channels;
    const int64_t across = cpu_ceil_div(channels, GEMM_COLUMNS), down = cpu_ceil_div(rows, ROWS);
#pragma omp parallel for num_threads(cpu_threads(ctx, rows *channels)) schedule(static)
    for (int64_t i = 0; i < down * across; i++) {
        const int64_t row = i / across * ROWS, column = i % across * GEMM_COLUMNS;
        const int64_t height = k_min(ROWS, rows - row), columns = k_min(GEMM_COLUMNS, channels - column);
        float block[ROWS * GEMM_COLUMNS];
        float *sums = p->is_direct ? (float *)p->result.data + row * channels + column : block;
        const int64_t ld = p->is_direct ? channels : columns;
        sum_block(p, weights, row, height, column, columns, sums, ld);
        conv_store(p, sums, ld, row, height, column, columns);
    }
}

int64_t conv_depthwise_size(const conv *c) { return conv_volume(c->g.k) * c->g.groups; }

/* Computes the gradients of all taps of channels [first, first + n): a part of at most LIST rows after the other. */
static void sum_rows(const conv_pass *p, int64_t first, int64_t n, float *sums)
{
    const int64_t rows = p->result.n * conv_volume(p->result.size), channels = p->result.channels;
    float part[BLOCK];
    for (int64_t tap = 0; tap < conv_volume(p->w.taps); tap++) {
        float *to = sums + tap * channels + first;
        int64_t at[3], shift[3];
        conv_row from = conv_row_at(p, 0);
        conv_split(tap, p->w.taps, at);
        conv_shift(p, at, shift);
        for (int64_t i = 0; i < n; i++) to[i] = 0;
        for (int64_t row = 0; row < rows;) {
            pairs list;
            list.count = 0;
            for (; row < rows && list.count < LIST; row++, conv_next(p, &from)) {
                const float *x = conv_source(p, &from, shift);
                if (!x) continue;
                list.x[list.count] = x + first;
                list.y[list.count++] = (const float *)p->result.data + row * channels + first;
            }
            sum_pairs(part, &list, n, false);
            for (int64_t i = 0; i < n; i++) to[i] += part[i];
        }
    }
}

void conv_depthwise_grad_weight(const conv_pass *p, float *workspace, const k_context *ctx)
{
    const int64_t channels = p->result.channels, taps = conv_volume(p->w.taps);
#pragma omp parallel for num_threads(cpu_threads(ctx, p->result.n *channels *taps)) schedule(static)
    for (int64_t first = 0; first < channels; first += BLOCK)
        sum_rows(p, first, k_min(BLOCK, channels - first), workspace);
    for (int64_t channel = 0; channel < channels; channel++)
        for (int64_t tap = 0; tap < taps; tap += GEMM_COLUMNS) {
            float line[GEMM_COLUMNS];
            const int64_t count = k_min(GEMM_COLUMNS, taps - tap);
            for (int64_t i = 0; i < count; i++) line[i] = workspace[(tap + i) * channels + channel];
            conv_store_filter(p->c, channel, tap, line, count);
        }
}
