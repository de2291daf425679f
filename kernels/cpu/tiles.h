/* tiles.h - the computations on one tile that single ops and fused kernels share.
 *
 * Operands and results are contiguous, numbers in their carrier and booleans as bool. A result may alias an operand of
 * the same type. */
#ifndef AMPC_CPU_TILES_H
#define AMPC_CPU_TILES_H

#include "kernels/cpu/cpu.h"
#include "kernels/pointwise.h"

/* Scalar parameters in each carrier: the bounds of clip; lo is also the divisor of div_count, lo and hi
 * the attributes of a formula of IR_NUMBERS_PARAMS. */
typedef struct cpu_numbers {
    float lo_float, hi_float;
    double lo_double, hi_double;
    int64_t lo_int64_t, hi_int64_t;
    uint64_t lo_uint64_t, hi_uint64_t;
} cpu_numbers;

/* ---- pointwise.c ---- */

/* y = formula(a) or formula(a, b), with parameters p. */
typedef void cpu_tile_fn(const void *a, const void *b, void *y, int64_t n, const cpu_numbers *p);
/* The loop of a formula for operands of type `dtype`, or NULL if it is not defined for them.
 * The result is bool for formulas with result TRUTH, otherwise of the carrier's type. */
cpu_tile_fn *cpu_formula_tile(ir_formula formula, ir_dtype dtype);
/* The loop of pow for an operand of float type `dtype` and this exponent of all its elements. */
cpu_tile_fn *cpu_power_tile(double exponent, ir_dtype dtype);
/* The parameters of a pointwise op. */
cpu_numbers cpu_numbers_of(const k_args *args);
/* Positions [first, first + n) of an operand, in order along `walk` (NULL: dense), as `type`: the operand's own type or
 * its carrier. Fills `scratch`, or returns v's own data if v is dense and has that type. */
const void *cpu_operand_tile(const k_view *v, const k_walk *walk, int64_t first, int64_t n, ir_dtype type,
                             void *scratch);

/* ---- dropout.c ---- */

typedef struct cpu_draw {
    uint64_t key, stream, threshold;
} cpu_draw;

cpu_draw cpu_draw_of(const k_view *rng, double ratio, int64_t stream);
/* keep[i]: element first + i is kept */
void cpu_draw_tile(const cpu_draw *d, int64_t first, int64_t n, uint8_t *keep);
/* y = x / (1 - ratio) for kept elements, else 0; f32 or f64 */
void cpu_mask_tile(ir_dtype carrier, const void *x, const uint8_t *keep, double ratio, void *y, int64_t n);

/* ---- movement.c ---- */

/* y = cond ? a : b, for elements of `size` bytes */
void cpu_choose_tile(size_t size, void *y, const uint8_t *cond, const void *a, const void *b, int64_t n);

#endif
