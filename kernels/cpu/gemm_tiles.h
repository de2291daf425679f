/* gemm_tiles.h - the innermost loops of gemm.c for one instruction set; included once for each.
 *
 * Parameters: GEMM_NAME(name); GEMM_TARGET, an attribute; GEMM_VECTOR, a vector of GEMM_LANES floats of any alignment;
 * GEMM_FMA(x, b, c) = x * b + c for a number and two vectors; GEMM_EACH(X), X(rows) for each height of a tile, the last
 * of which is GEMM_ROWS. */

enum { GEMM_NAME(WIDE) = 2 /* vectors per row of a tile; half as many in the last panel if the width is GEMM_HALF */ };

/* Sums of one tile. All that follows `t` is constant. */
GEMM_TARGET static inline __attribute__((always_inline)) void GEMM_NAME(tile)(const gemm_tile *t, const int rows,
                                                                              const int vectors, const bool crossed)
{
    typedef GEMM_VECTOR vector;
    enum { GROUP = 3, GROUPS = (GEMM_ROWS + GROUP - 1) / GROUP };
    vector sums[GEMM_ROWS][GEMM_NAME(WIDE)] = {{{0}}};
    const float *at[GROUPS], *b = t->b; /* at: one address per three rows, because an instruction can scale an index */
    const int64_t row = t->row, ahead = t->ahead;
    GEMM_UNROLL for (int g = 0; g < GROUPS; g++)
    {
        at[g] = t->a + (crossed || g * GROUP >= rows ? 0 : g * GROUP * row);
        GEMM_KEEP(at[g]);
    }
    if (t->adds)
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < vectors * GEMM_LANES; v += 16) __builtin_prefetch(t->c + i * t->ldc + v);
    for (int64_t l = 0; l < t->depth; l++) {
        vector column[GEMM_NAME(WIDE)];
        for (int v = 0; v < vectors * GEMM_LANES; v += 16) __builtin_prefetch(b + v + ahead);
        GEMM_UNROLL for (int v = 0; v < vectors; v++) column[v] = *(const vector *)(b + v * GEMM_LANES);
        GEMM_UNROLL for (int i = 0; i < rows; i++)
        {
            const float x = crossed ? at[0][i] : at[i / GROUP][i % GROUP * row];
            GEMM_UNROLL for (int v = 0; v < vectors; v++) sums[i][v] = GEMM_FMA(x, column[v], sums[i][v]);
        }
        b += t->width;
        if (crossed) at[0] += row;
        else GEMM_UNROLL for (int g = 0; g < (rows + GROUP - 1) / GROUP; g++) at[g]++;
    }
    GEMM_UNROLL for (int i = 0; i < rows; i++) GEMM_UNROLL for (int v = 0; v < vectors; v++)
    {
        vector *c = (vector *)(t->c + i * t->ldc + v * GEMM_LANES);
        if (t->adds) sums[i][v] += *c;
        *c = sums[i][v];
    }
}

#define DEFINE(rows, vectors, crossed) \
    GEMM_TARGET static void GEMM_NAME(tile_##rows##_##vectors##_##crossed)(const gemm_tile *t) \
    { \
        GEMM_NAME(tile)(t, rows, vectors, crossed); \
    }
#define DEFINE_ALL(rows) DEFINE(rows, 1, 0) DEFINE(rows, 1, 1) DEFINE(rows, 2, 0) DEFINE(rows, 2, 1)
#define NAME_1_0(rows) GEMM_NAME(tile_##rows##_1_0),
#define NAME_1_1(rows) GEMM_NAME(tile_##rows##_1_1),
#define NAME_2_0(rows) GEMM_NAME(tile_##rows##_2_0),
#define NAME_2_1(rows) GEMM_NAME(tile_##rows##_2_1),
GEMM_EACH(DEFINE_ALL)
/* By vectors - 1, crossed, rows - 1. */
static gemm_tile_fn *const GEMM_NAME(tiles)[2][2][GEMM_ROWS] = {{{GEMM_EACH(NAME_1_0)}, {GEMM_EACH(NAME_1_1)}},
                                                                {{GEMM_EACH(NAME_2_0)}, {GEMM_EACH(NAME_2_1)}}};
#undef DEFINE
#undef DEFINE_ALL
#undef NAME_1_0
#undef NAME_1_1
#undef NAME_2_0
#undef NAME_2_1
#undef GEMM_NAME
#undef GEMM_TARGET
#undef GEMM_VECTOR
#undef GEMM_LANES
#undef GEMM_ROWS
#undef GEMM_EACH
#undef GEMM_FMA
