/* amx.h - what own code in AMX tiles shares.
 *
 * A tile has 16 rows of 64 bytes. Two strips of 32 lanes, one of each operand, are multiplied into 2 x 2 tiles of sums;
 * lanes are in tiles of 16, and a tile has 32 terms. */
#ifndef AMPC_AMX_H
#define AMPC_AMX_H

#include "kernels/cpu/gemm.h"

enum { AMX_LANES = 16, AMX_STRIP = GEMM_PANEL, AMX_TERMS = 32, AMX_LINE = 64 /* bytes of a row */, AMX_TILE = 1024 };

#if defined(__x86_64__)
#include <immintrin.h>

/* Of functions that use the rest. */
#define AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")))
#define AMX_INLINE AMX CPU_INLINE

/* Tiles of full size, for this thread until _tile_release. */
AMX_INLINE void amx_configure(void)
{
    struct {
        uint8_t palette, start, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.bytes[i] = AMX_LINE, config.rows[i] = AMX_LANES;
    __asm__ volatile("" ::"r"(&config) : "memory"); /* gcc 12 knows only that 8 bytes are read */
    _tile_loadconfig(&config);
}

/* The first n of 16 or 32 elements; more are all. */
AMX_INLINE __mmask16 amx_mask_16(int64_t n) { return (__mmask16)((1u << k_min(n, 16)) - 1); }
AMX_INLINE __mmask32 amx_mask_32(int64_t n) { return (__mmask32)((UINT64_C(1) << k_min(n, 32)) - 1); }

AMX_INLINE __m512 amx_widen(__m256i bf16)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

/* Stores a row of a tile. If `low` is not 0, its 32 elements are f16: their high parts are stored, and `low` bytes
 * further their low parts, both as bf16. */
AMX_INLINE void amx_store_row(char *to, int64_t low, __m512i row)
{
    if (!low) {
        _mm512_storeu_si512(to, row);
        return;
    }
    const __m512 x = _mm512_cvtph_ps(_mm512_castsi512_si256(row));
    const __m512 y = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(row, 1));
    const __m512i high = (__m512i)_mm512_cvtne2ps_pbh(y, x);
    const __m512 rest_x = _mm512_sub_ps(x, amx_widen(_mm512_castsi512_si256(high)));
    const __m512 rest_y = _mm512_sub_ps(y, amx_widen(_mm512_extracti64x4_epi64(high, 1)));
    _mm512_storeu_si512(to, high);
    _mm512_storeu_si512(to + low, (__m512i)_mm512_cvtne2ps_pbh(rest_y, rest_x));
}

/* The product of two strips. Tiles 0 to 3 are sums, 4 and 5 are of the left strip, 6 and 7 of the right one. The sizes
 * of these in tiles are the constants `rows` and `columns`. */
#define AMX_MULTIPLY \
    do { \
        _tile_dpbf16ps(0, 4, 6); \
        if (columns > 1) _tile_dpbf16ps(1, 4, 7); \
        if (rows > 1) _tile_dpbf16ps(2, 5, 6); \
        if (rows > 1 && columns > 1) _tile_dpbf16ps(3, 5, 7); \
    } while (0)
#define AMX_EACH_SUM(DO) \
    do { \
        DO(0, 0, 0); \
        if (columns > 1) DO(1, 0, 1); \
        if (rows > 1) DO(2, 1, 0); \
        if (rows > 1 && columns > 1) DO(3, 1, 1); \
    } while (0)
#define AMX_ZERO(tile, i, j) _tile_zero(tile)
/* Stores to sums[32][32]. */
#define AMX_STORE(tile, i, j) \
    _tile_stored(tile, sums + (i)*AMX_LANES * AMX_STRIP + (j)*AMX_LANES, AMX_STRIP * (int)sizeof(float))
/* A strip of the packed format, in which the tiles of a part of the elements follow each other. */
#define AMX_LOAD(first, second, from, tiles, part) \
    do { \
        _tile_loadd(first, (from) + (part) * (tiles)*AMX_TILE, AMX_LINE); \
        if ((tiles) > 1) _tile_loadd(second, (from) + ((part) * (tiles) + 1) * AMX_TILE, AMX_LINE); \
    } while (0)

/* The products of a step: those of bf16, or of `used` parts of the elements. LOAD_A and LOAD_B load tiles of a part. */
#define AMX_STEP(used) \
    do { \
        LOAD_B(0); \
        if ((used) > 1) { \
            LOAD_A(1); \
            AMX_MULTIPLY; \
        } \
        LOAD_A(0); \
        AMX_MULTIPLY; \
        if ((used) > 1) { \
            LOAD_B(1); \
            AMX_MULTIPLY; \
        } \
    } while (0)

/* Functions multiply_ROWS_COLUMNS_PARTS_USED of always-inline `multiply` for all sizes, and their tables by sizes - 1:
 * an element has PARTS parts, of which USED are multiplied. */
#define AMX_DEFINE(type, rows, columns, parts, used) \
    AMX static void multiply_##rows##_##columns##_##parts##_##used(const type *s, float *sums) \
    { \
        multiply(s, sums, rows, columns, parts, used); \
    }
#define AMX_DEFINE_SIZES(type, parts, used) \
    AMX_DEFINE(type, 1, 1, parts, used) \
    AMX_DEFINE(type, 1, 2, parts, used) AMX_DEFINE(type, 2, 1, parts, used) AMX_DEFINE(type, 2, 2, parts, used)
#define AMX_NAME(rows, columns, parts, used) multiply_##rows##_##columns##_##parts##_##used
#define AMX_TABLE(parts, used) \
    { \
        {AMX_NAME(1, 1, parts, used), AMX_NAME(1, 2, parts, used)}, \
        { \
            AMX_NAME(2, 1, parts, used), AMX_NAME(2, 2, parts, used) \
        } \
    }
#define AMX_DEFINE_PRODUCTS(type) \
    AMX_DEFINE_SIZES(type, 1, 1) \
    AMX_DEFINE_SIZES(type, 2, 1) \
    AMX_DEFINE_SIZES(type, 2, 2) \
    typedef void multiply_fn(const type *s, float *sums); \
    static multiply_fn *const multiply_bf16[2][2] = AMX_TABLE(1, 1); \
    static multiply_fn *const multiply_high[2][2] = AMX_TABLE(2, 1); \
    static multiply_fn *const multiply_f16[2][2] = AMX_TABLE(2, 2);

#endif
#endif
