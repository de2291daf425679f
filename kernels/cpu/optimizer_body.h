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
/* Results may be the operands. */
#define UPDATE(op, n_states, rate, step, has_ratio, once, ...) \
    CPU_CLONES static void R(op)(const update_numbers *numbers, double tensor_ratio, double scale_inverse, \
                                 void *const *old, void *const *made, const void *gradient, int64_t n) \
    { \
        const R(numbers) k = R(round)(numbers); \
        const REAL ratio = (REAL)tensor_ratio, inverse = (REAL)scale_inverse; \
        (void)ratio; \
        const REAL *ps = old[0], *as = old[1], *bs = old[2], *cs = old[3], *gs = gradient; \
        REAL *new_p = made[0], *new_a = made[1], *new_b = made[2], *new_c = made[3]; \
        CPU_SIMD for (int64_t i = 0; i < n; i++) \
        { \
            REAL p = ps[i], a = n_states > 1 ? as[i] : 0, b = n_states > 2 ? bs[i] : 0, c = n_states > 3 ? cs[i] : 0; \
            const REAL g = gs[i] * inverse; \
            __VA_ARGS__ \
            new_p[i] = p; \
            if (n_states > 1) new_a[i] = a; \
            if (n_states > 2) new_b[i] = b; \
            if (n_states > 3) new_c[i] = c; \
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
