/* optimizer_body.h - template over REAL, included by optimizer.c: the update of one tile. */

/* The numbers of an update in the carrier. */
typedef struct R(numbers) {
#define FIELD(name) REAL name;
    UPDATE_NUMBERS(FIELD)
#undef FIELD
} R(numbers);

CPU_INLINE R(numbers) R(round)(const update_numbers *n)
{
#define FIELD(name) (REAL) n->name,
    return (R(numbers)){UPDATE_NUMBERS(FIELD)};
#undef FIELD
}

#define SQRT(x) R(m_sqrt)(x)
#define UPDATE(op, n_states, rate, step, has_ratio, once, ...) \
    CPU_CLONES static void R(op)(const update_numbers *numbers, double tensor_ratio, cpu_tile *states, \
                                 const void *gradient, int64_t n) \
    { \
        const R(numbers) k = R(round)(numbers); \
        const REAL ratio = (REAL)tensor_ratio; \
        (void)ratio; \
        REAL *ps = (REAL *)&states[0], *as = (REAL *)&states[1], *bs = (REAL *)&states[2], *cs = (REAL *)&states[3]; \
        const REAL *gs = gradient; \
        CPU_SIMD for (int64_t i = 0; i < n; i++) \
        { \
            REAL p = ps[i], a = n_states > 1 ? as[i] : 0, b = n_states > 2 ? bs[i] : 0, c = n_states > 3 ? cs[i] : 0; \
            const REAL g = gs[i]; \
            __VA_ARGS__ \
            ps[i] = p; \
            if (n_states > 1) as[i] = a; \
            if (n_states > 2) bs[i] = b; \
            if (n_states > 3) cs[i] = c; \
        } \
    }
#include "ir/ops/updates.def"
#undef SQRT

CPU_CLONES static int R(unscale)(const void *grad, REAL inverse, void *to, int64_t n)
{
    const REAL *g = grad;
    REAL *y = to;
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; i++) {
        REAL v = g[i] * inverse;
        bad |= !(g[i] - g[i] == 0) | !(v - v == 0); /* infinity and NaN minus themselves are NaN */
        y[i] = v;
    }
    return bad;
}
