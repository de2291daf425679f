/* attention_low.c - products of bf16 blocks of attention in AMX tiles, with f32 sums.
 *
 * The left operand has its rows in memory; 32 of its columns are a row of a tile. The right one consists of pairs: a
 * 32-bit number has the elements of two rows of it. So rows, transposed as 32-bit numbers, are the pairs of the
 * transposed matrix, and the other way round. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/attention.h"

#include <string.h>

bool attention_is_low(ir_dtype type) { return type == IR_bf16 && gemm_has(IR_bf16); }

const uint16_t *attention_load_low(const attention_rows *m, int64_t first, int64_t n, uint16_t *copy, int64_t *row)
{
    const uint16_t *from = (const uint16_t *)(const void *)m->data + first * m->row;
    const int64_t rows = cpu_ceil_div(n, ATTENTION_TERMS) * ATTENTION_TERMS,
                  columns = cpu_ceil_div(m->columns, ATTENTION_TERMS) * ATTENTION_TERMS;
    *row = m->row;
    if (rows == n && columns == m->columns && m->row % 2 == 0 && (uintptr_t)from % 4 == 0) return from;
    *row = columns;
    memset(copy, 0, (size_t)(rows * columns) * sizeof *copy);
    for (int64_t i = 0; i < n; i++) memcpy(copy + i * columns, from + i * m->row, (size_t)m->columns * sizeof *copy);
    return copy;
}

void attention_cross_low(uint32_t *to, int64_t to_row, const void *from, int64_t from_row, int64_t rows,
                         int64_t columns)
{
    gemm_transpose((float *)(void *)to, to_row, from, from_row, columns, rows); /* moves bits */
}

#if defined(__x86_64__)

AMX void attention_begin_low(void) { amx_configure(); }

AMX void attention_end_low(void) { _tile_release(); }

AMX void attention_pairs_low(uint32_t *to, const uint16_t *from, int64_t row, int64_t n, int64_t columns)
{
    for (int64_t i = 0; i < n; i += 2, from += 2 * row, to += columns)
        for (int64_t j = 0; j < columns; j += 16) {
            const __m256i even = _mm256_loadu_si256((const void *)(from + j)),
                          odd = _mm256_loadu_si256((const void *)(from + row + j));
            _mm512_storeu_si512(to + j, _mm512_or_si512(_mm512_cvtepu16_epi32(even),
                                                        _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16)));
        }
}

AMX void attention_round_pairs(uint32_t *to, const float *from, int64_t n, int64_t columns)
{
    for (int64_t i = 0; i < n; i += 2, from += 2 * columns, to += columns)
        for (int64_t j = 0; j < columns; j += 16) {
            const __m256i even = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + j)),
                          odd = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + columns + j));
            _mm512_storeu_si512(to + j, _mm512_or_si512(_mm512_cvtepu16_epi32(even),
                                                        _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16)));
        }
}

AMX void attention_round_rows(uint16_t *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        _mm256_storeu_si256((void *)(to + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + i)));
}

/* 32 x 32 elements of c. */
AMX static void multiply_tiles(const attention_low_product *p, const uint16_t *a, const uint32_t *b, float *c)
{
    const int64_t a_bytes = p->a_row * 2, b_bytes = p->b_row * 4, c_bytes = p->c_row * 4;
    float *below = c + AMX_LANES * p->c_row;
    __asm__ volatile("" ::: "memory"); /* the instructions read memory, which gcc does not know */
    if (p->adds) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        _tile_loadd(2, below, c_bytes);
        _tile_loadd(3, below + 16, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t l = 0; l < p->k; l += ATTENTION_TERMS, a += ATTENTION_TERMS, b += ATTENTION_TERMS / 2 * p->b_row) {
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(6, b, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 16, b_bytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + AMX_LANES * p->a_row, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    _tile_stored(2, below, c_bytes);
    _tile_stored(3, below + 16, c_bytes);
    __asm__ volatile("" ::: "memory");
}

AMX void attention_multiply_low(const attention_low_product *p)
{
    for (int64_t i = 0; i < p->m; i += ATTENTION_TERMS)
        for (int64_t j = 0; j < p->n; j += ATTENTION_TERMS)
            multiply_tiles(p, p->a + i * p->a_row, p->b + j, p->c + i * p->c_row + j);
}
#else
/* Never called: gemm_has(IR_bf16) is false. */
void attention_begin_low(void) {}
void attention_end_low(void) {}
void attention_pairs_low(uint32_t *to, const uint16_t *from, int64_t row, int64_t n, int64_t columns)
{
    (void)to, (void)from, (void)row, (void)n, (void)columns;
}
void attention_round_pairs(uint32_t *to, const float *from, int64_t n, int64_t columns)
{
    (void)to, (void)from, (void)n, (void)columns;
}
void attention_round_rows(uint16_t *to, const float *from, int64_t n) { (void)to, (void)from, (void)n; }
void attention_multiply_low(const attention_low_product *p) { (void)p; }
#endif
