/* layer_norm.cu - layer and RMS normalisation and their gradient.
 *
 * Mean and variance need two passes over a row, which stays in registers if it fits into a warp. The gradients of scale
 * and bias are sums over rows: each block sums a stripe of columns over a group of rows, then a second kernel adds the
 * groups in order. */
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/rows.cuh"

/* ---- forward ---- */

static __device__ __forceinline__ float tile_sum(const float (&v)[TILE], int n)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < TILE; i++) sum += i < n ? v[i] : 0;
    return sum;
}

static __device__ __forceinline__ float tile_squares(const float (&v)[TILE], float mean, int n)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < TILE; i++) sum += i < n ? (v[i] - mean) * (v[i] - mean) : 0;
    return sum;
}

/* Columns [i, i + n) of the scale; 1 if it is absent. */
static __device__ __forceinline__ void scale_load(const void *scale, int dtype, long long i, int n, float (&v)[TILE])
{
    if (scale) return tile_load(scale, dtype, i, n, v);
#pragma unroll
    for (int j = 0; j < TILE; j++) v[j] = 1;
}

/* Computes columns [i, i + n) of the result in place. */
static __device__ __forceinline__ void affine(const layer_norm_forward &a, float mean, float rstd, long long i, int n,
                                              float (&v)[TILE])
{
    float scale[TILE], bias[TILE] = {};
    scale_load(a.scale, a.scale_dtype, i, n, scale);
    if (a.bias) tile_load(a.bias, a.scale_dtype, i, n, bias);
#pragma unroll
    for (int j = 0; j < TILE; j++) v[j] = (v[j] - mean) * rstd * scale[j] + bias[j];
}

static __device__ __forceinline__ float rstd_of(const layer_norm_forward &a, float squares)
{
    return 1 / m_sqrt_float(squares / (float)a.rows.length + a.eps);
}

static __device__ __forceinline__ void store_statistics(const layer_norm_forward &a, const row_part &p, float mean,
                                                        float rstd)
{
    if (!p.leads) return;
    if (a.mean) a.mean[p.item] = mean;
    if (a.rstd) a.rstd[p.item] = rstd;
}

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) layer_norm_warp(layer_norm_forward a)
{
    const int length = (int)a.rows.length;
    rows_each<by_warp>(a.rows, [&](const row_part &p) {
        float v[ROW_TILES][TILE], sum = 0, squares = 0;
        row_load(a.x, a.x_dtype, p, v);
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) sum += tile_sum(v[t], tile_length(row_tile(t), length));
        const float mean = a.center ? warp_sum(sum) / (float)length : 0;
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) squares += tile_squares(v[t], mean, tile_length(row_tile(t), length));
        const float rstd = rstd_of(a, warp_sum(squares));
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
            if (row_tile(t) < length) affine(a, mean, rstd, row_tile(t), tile_length(row_tile(t), length), v[t]);
        row_store(a.y, a.y_dtype, p, v);
        store_statistics(a, p, mean, rstd);
    });
}
AMPC_KERNEL(layer_norm_warp)

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) layer_norm_block(layer_norm_forward a)
{
    __shared__ float slots[WARP];
    rows_each<by_block>(a.rows, [&](const row_part &p) {
        float v[TILE], sum = 0, squares = 0;
        if (a.center)
            tiles_each(p, [&](long long i, int n) {
                tile_load(a.x, a.x_dtype, p.first + i, n, v);
                sum += tile_sum(v, n);
            });
        const float mean = a.center ? block_sum(sum, slots) / (float)p.length : 0;
        tiles_each(p, [&](long long i, int n) {
            tile_load(a.x, a.x_dtype, p.first + i, n, v);
            squares += tile_squares(v, mean, n);
        });
        const float rstd = rstd_of(a, block_sum(squares, slots));
        tiles_each(p, [&](long long i, int n) {
            tile_load(a.x, a.x_dtype, p.first + i, n, v);
            affine(a, mean, rstd, i, n, v);
            tile_store(a.y, a.y_dtype, p.first + i, n, v);
        });
        store_statistics(a, p, mean, rstd);
    });
}
AMPC_KERNEL(layer_norm_block)

/* ---- gradient of x: with h the normalised x and g = dy scale, dx = rstd (g - mean(g) - h mean(g h)), plus the addend;
 * without centring, mean(g) is replaced by 0 ---- */

/* Replaces dy by g and x by h, and adds to the sums of g and g h. */
static __device__ __forceinline__ void add_slope(const layer_norm_backward &a, float mean, float rstd, long long i,
                                                  int n, float (&dy)[TILE], float (&x)[TILE], float &g, float &gh)
{
    float scale[TILE];
    scale_load(a.scale, a.scale_dtype, i, n, scale);
#pragma unroll
    for (int j = 0; j < TILE; j++) {
        dy[j] = j < n ? dy[j] * scale[j] : 0;
        x[j] = j < n ? (x[j] - mean) * rstd : 0;
        g += dy[j];
        gh += dy[j] * x[j];
    }
}

static __device__ __forceinline__ void combine(float rstd, float g, float gh, float (&dy)[TILE],
                                               const float (&h)[TILE])
{
#pragma unroll
    for (int j = 0; j < TILE; j++) dy[j] = rstd * (dy[j] - g - h[j] * gh);
}

static __device__ __forceinline__ void add_tile(float (&sum)[TILE], const float (&v)[TILE])
{
#pragma unroll
    for (int j = 0; j < TILE; j++) sum[j] += v[j];
}

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) layer_norm_grad_warp(layer_norm_backward a)
{
    const int length = (int)a.rows.length;
    rows_each<by_warp>(a.rows, [&](const row_part &p) {
        const float mean = a.center ? a.mean[p.item] : 0, rstd = a.rstd[p.item];
        float dy[ROW_TILES][TILE], x[ROW_TILES][TILE], g = 0, gh = 0;
        row_load(a.dy, a.dtype, p, dy);
        row_load(a.x, a.dtype, p, x);
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
            if (row_tile(t) < length)
                add_slope(a, mean, rstd, row_tile(t), tile_length(row_tile(t), length), dy[t], x[t], g, gh);
        g = a.center ? warp_sum(g) / (float)length : 0;
        gh = warp_sum(gh) / (float)length;
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) combine(rstd, g, gh, dy[t], x[t]);
        if (a.addend) {
            row_load(a.addend, a.dtype, p, x);
#pragma unroll
            for (int t = 0; t < ROW_TILES; t++) add_tile(dy[t], x[t]);
        }
        row_store(a.dx, a.dtype, p, dy);
    });
}
AMPC_KERNEL(layer_norm_grad_warp)

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) layer_norm_grad_block(layer_norm_backward a)
{
    __shared__ float slots[WARP];
    rows_each<by_block>(a.rows, [&](const row_part &p) {
        const float mean = a.center ? a.mean[p.item] : 0, rstd = a.rstd[p.item];
        float dy[TILE], x[TILE], g = 0, gh = 0, unused = 0;
        tiles_each(p, [&](long long i, int n) {
            tile_load(a.dy, a.dtype, p.first + i, n, dy);
            tile_load(a.x, a.dtype, p.first + i, n, x);
            add_slope(a, mean, rstd, i, n, dy, x, g, gh);
        });
        g = a.center ? block_sum(g, slots) / (float)p.length : 0;
        gh = block_sum(gh, slots) / (float)p.length;
        tiles_each(p, [&](long long i, int n) {
            tile_load(a.dy, a.dtype, p.first + i, n, dy);
            tile_load(a.x, a.dtype, p.first + i, n, x);
            add_slope(a, mean, rstd, i, n, dy, x, unused, unused);
            combine(rstd, g, gh, dy, x);
            if (a.addend) {
                tile_load(a.addend, a.dtype, p.first + i, n, x);
                add_tile(dy, x);
            }
            tile_store(a.dx, a.dtype, p.first + i, n, dy);
        });
    });
}
AMPC_KERNEL(layer_norm_grad_block)

/* ---- gradients of scale and bias ---- */

/* Sums over a group of rows. Each warp adds every eighth row, each lane a tile of columns. Blocks: groups times
 * stripes. */
extern "C" __global__ void __launch_bounds__(ROW_BLOCK) layer_norm_group_sums(layer_norm_backward a)
{
    __shared__ float slots[2][ROW_WARPS][COLUMN_TILE];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const long long group = blockIdx.x % a.groups, stripe = blockIdx.x / a.groups * COLUMN_TILE;
    const long long column = stripe + lane * TILE;
    const int n = column < a.rows.length ? tile_length(column, a.rows.length) : 0;
    const long long low = a.rows.outer * group / a.groups, high = a.rows.outer * (group + 1) / a.groups;
    float dscale[TILE] = {}, dbias[TILE] = {};
    for (long long row = low + warp; n > 0 && row < high; row += ROW_WARPS) {
        const float mean = a.center ? a.mean[row] : 0, rstd = a.rstd[row];
        float dy[TILE], x[TILE];
        tile_load(a.dy, a.dtype, row * a.rows.length + column, n, dy);
        tile_load(a.x, a.dtype, row * a.rows.length + column, n, x);
#pragma unroll
        for (int j = 0; j < TILE; j++) {
            dscale[j] += dy[j] * ((x[j] - mean) * rstd);
            dbias[j] += dy[j];
        }
    }
#pragma unroll
    for (int j = 0; j < TILE; j++) {
        slots[0][warp][lane + j * WARP] = dscale[j]; /* one bank per lane */
        slots[1][warp][lane + j * WARP] = dbias[j];
    }
    __syncthreads();
    const long long result = stripe + threadIdx.x; /* one column per thread */
    if (result >= a.rows.length) return;
    const int slot = threadIdx.x / TILE + threadIdx.x % TILE * WARP;
    for (int which = 0; which < 2; which++) {
        float sum = 0;
        for (int w = 0; w < ROW_WARPS; w++) sum += slots[which][w][slot];
        a.sums[(group * 2 + which) * a.rows.length + result] = sum;
    }
}
AMPC_KERNEL(layer_norm_group_sums)

/* Adds up the sums of all groups: one column per lane, every eighth group per warp. */
extern "C" __global__ void __launch_bounds__(ROW_BLOCK) layer_norm_sums(layer_norm_backward a)
{
    __shared__ float slots[ROW_BLOCK];
    const long long columns = 2 * a.rows.length; /* scale first, then bias */
    for (long long first = (long long)blockIdx.x * WARP; first < columns; first += (long long)gridDim.x * WARP) {
        const long long column = first + threadIdx.x % WARP;
        float sum = 0;
        for (int g = threadIdx.x / WARP; column < columns && g < a.groups; g += ROW_WARPS)
            sum += a.sums[g * columns + column];
        sum = lane_sum(sum, slots);
        if (threadIdx.x >= WARP || column >= columns) continue;
        if (column < a.rows.length && a.dscale) element_store(a.dscale, a.scale_dtype, column, sum);
        if (column >= a.rows.length && a.dbias) element_store(a.dbias, a.scale_dtype, column - a.rows.length, sum);
    }
}
AMPC_KERNEL(layer_norm_sums)
