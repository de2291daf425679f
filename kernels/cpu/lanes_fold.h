/* lanes_fold.h - template over REAL and TOTAL, included by lanes.c: the folds of reductions.def.
 *
 * A tile is folded in 32 lanes of type REAL, then the lanes pairwise, then the tiles in TOTAL. */

#ifdef REAL_IS_FLOAT
#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
#elif defined REAL_IS_UNSIGNED
#define LOWEST 0
#define HIGHEST UINT64_MAX
#else
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#endif
#define LANE_COUNT 32
/* Loops of constant length become one vector operation each. */
#define LANES_HALVED(width, name) \
    CPU_SIMD for (int j = 0; j < (width); j++) lane[j] = R(join_##name)(lane[j], lane[j + (width)]);
#define JOIN_TOTAL(name) REAL_PASTE(join_##name, TOTAL)

#define COMBINE(name, join, start, ...) \
    CPU_CLONES static REAL R(few_##name)(const REAL *x, int64_t n) \
    { \
        REAL s = start; \
        for (int64_t i = 0; i < n; i++) s = R(join_##name)(s, R(map_##name)(x[i])); \
        return s; \
    } \
    CPU_CLONES static REAL R(tile_##name)(const REAL *x, int64_t n) \
    { \
        REAL lane[LANE_COUNT]; \
        int64_t i = 0; \
        for (int j = 0; j < LANE_COUNT; j++) lane[j] = start; \
        for (; i + LANE_COUNT <= n; i += LANE_COUNT) \
            CPU_SIMD for (int j = 0; j < LANE_COUNT; j++) lane[j] = R(join_##name)(lane[j], R(map_##name)(x[i + j])); \
        for (int64_t j = 0; i + j < n; j++) lane[j] = R(join_##name)(lane[j], R(map_##name)(x[i + j])); \
        LANES_HALVED(16, name) \
        LANES_HALVED(8, name) \
        LANES_HALVED(4, name) \
        LANES_HALVED(2, name) \
        return R(join_##name)(lane[0], lane[1]); \
    } \
    TOTAL R(lanes_##name)(const REAL *x, int64_t n) \
    { \
        TOTAL total = 0; \
        for (int64_t first = 0; first < n; first += CPU_TILE) { \
            const int64_t m = k_min(CPU_TILE, n - first); \
            TOTAL tile = (TOTAL)(m < LANE_COUNT ? R(few_##name)(x + first, m) : R(tile_##name)(x + first, m)); \
            total = first ? JOIN_TOTAL(name)(total, tile) : tile; \
        } \
        return total; \
    }
#include "ir/ops/reductions.def"
#undef LANE_COUNT
#undef LANES_HALVED
#undef JOIN_TOTAL
#undef LOWEST
#undef HIGHEST
