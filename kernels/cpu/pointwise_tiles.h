/* pointwise_tiles.h - template over REAL, included by pointwise.c: one vector loop per formula of a carrier. */

#define OPERAND_1 s[i]
#define OPERAND_2 t[i]
#define MADE_SAME REAL
#define MADE_TRUTH uint8_t
#define TILE(name, size, result, operands, numbers, ...) \
    CPU_CLONES static void R(tile_##name)(const void *a, const void *b, void *y, int64_t n, const cpu_numbers *p) \
    { \
        const REAL *s = a, *t = b, lo = p->R(lo), hi = p->R(hi); \
        MADE_##result *d = y; \
        (void)t; \
        CPU_SIMD for (int64_t i = 0; i < n; i++) d[i] = R(f_##name)(s[i], OPERAND_##operands, lo, hi); \
    }
#define ENTRY(name, ...) [IR_FORMULA_##name] = R(tile_##name),

#ifdef REAL_IS_FLOAT
#define FLOAT_FORMULA TILE
#elif defined REAL_IS_UNSIGNED
#define UNSIGNED_FORMULA TILE
#else
#define INTEGER_FORMULA TILE
#endif
#include "ir/ops/formulas.def"

static cpu_tile_fn *const R(tiles)[IR_FORMULA_COUNT] = {
#ifdef REAL_IS_FLOAT
#define FLOAT_FORMULA ENTRY
#elif defined REAL_IS_UNSIGNED
#define UNSIGNED_FORMULA ENTRY
#else
#define INTEGER_FORMULA ENTRY
#endif
#include "ir/ops/formulas.def"
};

#undef OPERAND_1
#undef OPERAND_2
#undef MADE_SAME
#undef MADE_TRUTH
#undef TILE
#undef ENTRY
