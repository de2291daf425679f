/* tiles.h - what single ops and programs compute on a tile.
 *
 * Operands and results are contiguous; numbers are in their carriers, truth values are bool. A result may be an
 * operand of the same type. */
#ifndef AMPC_CPU_TILES_H
#define AMPC_CPU_TILES_H

#include "kernels/cpu/cpu.h"
#include "kernels/pointwise.h"

/* The numbers of clip and clip_grad (bounds) and div_count (lo: the count), in each carrier. */
typedef struct cpu_numbers {
    float lo_float, hi_float;
    double lo_double, hi_double;
    int64_t lo_int64_t, hi_int64_t;
} cpu_numbers;

/* ---- pointwise.c ---- */

/* y = formula(a), formula(a, b), or either with numbers. */
typedef void cpu_tile_fn(const void *a, const void *b, void *y, int64_t n, const cpu_numbers *p);
/* The loop of a formula on operands of type `dtype`, bool among them as i64; NULL: it is not defined for them. A
 * formula with result TRUTH gives bool, all others the carrier. */
cpu_tile_fn *cpu_formula_tile(ir_formula formula, ir_dtype dtype);
/* Those of a pointwise op. */
cpu_numbers cpu_numbers_of(const k_args *args);
/* Positions [first, first + n) of an operand in its own type or its carrier, along `walk` or as it lies (NULL):
 * `scratch` filled, or v itself where it has that type. */
const void *cpu_operand_tile(const k_view *v, const k_walk *walk, int64_t first, int64_t n, ir_dtype type,
                             void *scratch);

/* ---- dropout.c ---- */

typedef struct cpu_draw {
    uint64_t key, stream, threshold;
} cpu_draw;

cpu_draw cpu_draw_of(const k_view *rng, double ratio, int64_t stream);
/* keep[i] = element first + i stays */
void cpu_draw_tile(const cpu_draw *d, int64_t first, int64_t n, uint8_t *keep);
/* y = x / (1 - ratio) where it is kept, else 0; f32 or f64 */
void cpu_mask_tile(ir_dtype carrier, const void *x, const uint8_t *keep, double ratio, void *y, int64_t n);

/* ---- movement.c ---- */

/* y = cond ? a : b, elements of `size` bytes */
void cpu_choose_tile(size_t size, void *y, const uint8_t *cond, const void *a, const void *b, int64_t n);

#endif
