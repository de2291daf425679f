/* lanes_body.h - template over REAL, included by lanes.c: loops over floats, and the folds of all carriers. */
#ifdef REAL_IS_FLOAT

enum { R(LANES) = 32 };
typedef REAL R(lanes) __attribute__((vector_size(32 * sizeof(REAL))));

CPU_INLINE REAL R(combine)(const REAL *lane)
{
    REAL half[16];
    for (int j = 0; j < 16; j++) half[j] = lane[j] + lane[j + 16];
    for (int width = 8; width; width /= 2)
        for (int j = 0; j < width; j++) half[j] += half[j + width];
    return half[0];
}

/* `term` is an expression in x and y, which are vectors in the main loop and scalars in the rest of a tile. */
#define SUM(name, second, arguments, term) \
    CPU_CLONES double R(name) arguments \
    { \
        double total = 0; \
        REAL few = 0; /* short rows do not use lanes */ \
        for (int64_t i = 0; n < R(LANES) && i < n; i++) { \
            REAL x = px[i], y = second[i]; \
            (void)y; \
            few += term; \
        } \
        if (n < R(LANES)) return (double)few; \
        for (int64_t first = 0; first < n; first += CPU_TILE) { \
            const REAL *xs = px + first, *ys = second + first; \
            int64_t i = 0, m = k_min(CPU_TILE, n - first); \
            R(lanes) sum = {0}; \
            for (; i + R(LANES) <= m; i += R(LANES)) { \
                R(lanes) x, y; \
                memcpy(&x, xs + i, sizeof x); \
                memcpy(&y, ys + i, sizeof y); \
                (void)y; \
                sum += term; \
            } \
            REAL lane[R(LANES)]; \
            memcpy(lane, &sum, sizeof sum); \
            for (int64_t j = 0; i + j < m; j++) { \
                REAL x = xs[i + j], y = ys[i + j]; \
                (void)y; \
                lane[j] += term; \
            } \
            total += (double)R(combine)(lane); \
        } \
        return total; \
    }

/* clang-format off */
SUM(lanes_dot, py, (const REAL *px, const REAL *py, int64_t n), x * y)
SUM(lanes_squares, px, (const REAL *px, REAL mean, int64_t n), (x - mean) * (x - mean))
SUM(lanes_dot_centred, py, (const REAL *px, const REAL *py, REAL mean, int64_t n), x * (y - mean))
/* clang-format on */
#undef SUM

CPU_CLONES REAL R(lanes_max)(const REAL *x, int64_t n)
{
    REAL max = -INFINITY;
#pragma omp simd reduction(max : max)
    for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

CPU_CLONES void R(lanes_exp)(const REAL *x, REAL shift, REAL *y, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = R(m_exp)(x[i] - shift);
}

CPU_CLONES void R(lanes_shift)(const REAL *x, REAL a, REAL b, REAL *y, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = x[i] - a - b;
}

#endif

#include "kernels/cpu/lanes_fold.h"
