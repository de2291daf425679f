/* lanes_body.h - template over REAL, included by lanes.c: loops over floats, and the folds of all carriers. */
#ifdef REAL_IS_FLOAT

enum { R(LANES) = 32 };
typedef REAL R(lanes) __attribute__((vector_size(32 * sizeof(REAL))));
typedef REAL R(lanes_16) __attribute__((vector_size(16 * sizeof(REAL))));
typedef REAL R(lanes_8) __attribute__((vector_size(8 * sizeof(REAL))));
typedef REAL R(lanes_4) __attribute__((vector_size(4 * sizeof(REAL))));

CPU_INLINE REAL R(combine)(const REAL *lane)
{
    R(lanes_16) a, b;
    memcpy(&a, lane, sizeof a);
    memcpy(&b, lane + 16, sizeof b);
    a += b;
    R(lanes_8) c, d;
    memcpy(&c, &a, sizeof c);
    memcpy(&d, (const char *)&a + sizeof c, sizeof d);
    c += d;
    R(lanes_4) e, f;
    memcpy(&e, &c, sizeof e);
    memcpy(&f, (const char *)&c + sizeof e, sizeof f);
    e += f;
    return (e[0] + e[2]) + (e[1] + e[3]);
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

CPU_CLONES double R(lanes_exp_sum)(const REAL *x, REAL shift, REAL *y, int64_t n)
{
    double total = 0;
    for (int64_t first = 0; first < n; first += CPU_TILE) {
        REAL lane[32] = {0}, few = 0;
        const int64_t m = k_min(CPU_TILE, n - first);
        const REAL *xs = x + first;
        REAL *ys = y + first;
        int64_t i = 0;
        for (; i + R(LANES) <= m; i += R(LANES)) CPU_SIMD for (int j = 0; j < R(LANES); j++)
            {
                const REAL e = R(m_decay)(xs[i + j] - shift);
                ys[i + j] = e;
                lane[j] += e;
            }
        CPU_SIMD for (int64_t j = i; j < m; j++) ys[j] = R(m_decay)(xs[j] - shift);
        for (int64_t j = i; j < m; j++) *(m < R(LANES) ? &few : &lane[j - i]) += ys[j];
        total += (double)(m < R(LANES) ? few : R(combine)(lane));
    }
    return total;
}

CPU_CLONES void R(lanes_shift)(const REAL *x, REAL a, REAL b, REAL *y, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = x[i] - a - b;
}

#endif

#include "kernels/cpu/lanes_fold.h"
