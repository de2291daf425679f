/* pointwise_tiles.h - one vector loop per formula. A template over REAL, included by pointwise.c;
 * the maps there say which formulas exist in which form. */

/* clang-format off */
#define TILE(name, result, expression)                                                             \
    CPU_CLONES static void R(tile_##name)(const void *a, const void *b, void *y, int64_t n,        \
                                          const cpu_numbers *p)                                    \
    {                                                                                              \
        const REAL *s = a, *t = b, lo = p->R(lo), hi = p->R(hi);                                   \
        result *d = y;                                                                             \
        (void)s, (void)t, (void)lo, (void)hi;                                                      \
        CPU_SIMD for (int64_t i = 0; i < n; i++) d[i] = expression;                                \
    }
#define UNARY(name)   TILE(name, REAL, R(f_##name)(s[i]))
#define BINARY(name)  TILE(name, REAL, R(f_##name)(s[i], t[i]))
#define COMPARE(name) TILE(name, uint8_t, R(f_##name)(s[i], t[i]))
#define BOUNDED(name) TILE(name, REAL, R(f_##name)(s[i], lo, hi))
#define BOUNDED_GRAD(name) TILE(name, REAL, R(f_##name)(s[i], t[i], lo, hi))
#define BY_NUMBER(name, formula) TILE(name, REAL, R(f_##formula)(s[i], lo))

FORMULAS_ALL(UNARY, BINARY, COMPARE, BOUNDED)
#ifdef REAL_IS_FLOAT
FORMULAS_FLOAT(UNARY, BINARY, BOUNDED_GRAD)
BY_NUMBER(div_count, div)
TILE(square, REAL, s[i] * s[i])
#else
FORMULAS_BOOL(UNARY, COMPARE)
#endif

#define ENTRY(name) [FORMULA_##name] = R(tile_##name),
static cpu_tile_fn *const R(tiles)[FORMULA_COUNT] = {
    FORMULAS_ALL(ENTRY, ENTRY, ENTRY, ENTRY)
#ifdef REAL_IS_FLOAT
    FORMULAS_FLOAT(ENTRY, ENTRY, ENTRY)
    ENTRY(div_count)
    ENTRY(square)
#else
    FORMULAS_BOOL(ENTRY, ENTRY)
#endif
};

/* clang-format on */
#undef TILE
#undef UNARY
#undef BINARY
#undef COMPARE
#undef BOUNDED
#undef BOUNDED_GRAD
#undef BY_NUMBER
#undef ENTRY
