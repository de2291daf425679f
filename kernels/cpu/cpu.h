/* cpu.h - what the CPU kernels share: their table, tiles, carriers, strided walks, errors.
 *
 * Storage may be any dtype; arithmetic is in a *carrier* type: float, double (f64 views) or
 * int64_t (integers and bool). A kernel reads a tile of a view into the carrier, computes, and
 * stores the tile; the tile is small enough to stay in the first-level cache, so the conversions
 * cost no memory traffic, and no loop exists per dtype. */
#ifndef AMPC_CPU_H
#define AMPC_CPU_H

#include "kernels/kernel.h"
#include "kernels/walk.h"

/* cpu_WORD for each word of the kernel column; table.c refers to all of them. */
#define OP(name, amp, traits, infer, fold, grad, kernel) extern const k_kernel cpu_##kernel;
#include "ir/ops.def"

#define CPU_CLONES IR_CLONES
#define CPU_INLINE static inline __attribute__((always_inline))
#define K_FORMULA CPU_INLINE

/* Iterations are independent, also when the result is written over an operand at the same
 * position. */
#define CPU_SIMD _Pragma("omp simd")

enum {
    CPU_TILE = 512,    /* elements */
    CPU_SERIAL = 32768 /* loops over fewer elements than this run on one thread */
};

/* Scratch for a tile of any carrier. */
typedef union cpu_tile {
    float f32[CPU_TILE];
    double f64[CPU_TILE];
    int64_t i64[CPU_TILE];
} cpu_tile;

/* Threads for a loop that touches `elements` elements and whose result is the same on any number of them. */
static inline int cpu_threads(const k_context *ctx, int64_t elements)
{
    return elements < CPU_SERIAL || ctx->crowded ? 1 : ctx->threads;
}

static inline int64_t k_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t k_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t cpu_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Writes the reason into ctx->error and returns the status. */
ampc_status cpu_fail(const k_context *ctx, ampc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool cpu_wanted(const k_view *v) { return k_present(v) && v->data; }

/* Type of the arithmetic on values of dtype t: f32, f64 or i64. */
static inline ir_dtype cpu_carrier(ir_dtype t)
{
    return t == IR_f64 ? IR_f64 : ir_dtype_is_float(t) ? IR_f32 : IR_i64;
}

static inline void *cpu_at(const k_view *v, int64_t element)
{
    return (char *)v->data + element * (int64_t)ir_dtype_size(v->dtype);
}

/* ---- cast.c ---- */

/* Like ir_convert, with the same results, faster. src and dst are equal or do not overlap. */
void cpu_convert(ir_dtype to, void *dst, ir_dtype from, const void *src, int64_t n);
/* Values in a carrier become what type t holds of them: those that a store and a load give. */
void cpu_as_stored(ir_dtype t, ir_dtype carrier, void *values, int64_t n);
/* Elements [first, first + n) of v in the carrier: `scratch` filled, or v itself when it has that
 * type. */
const void *cpu_tile_load(const k_view *v, int64_t first, int64_t n, ir_dtype carrier,
                          void *scratch);
/* Where to compute elements [first, ...) of v in the carrier: v itself or `scratch`; then
 * cpu_tile_store. */
void *cpu_tile_target(const k_view *v, int64_t first, ir_dtype carrier, void *scratch);
void cpu_tile_store(const k_view *v, int64_t first, int64_t n, ir_dtype carrier,
                    const void *values);
/* First element of v as a number; `absent` when v is. */
double cpu_scalar(const k_view *v, double absent);
/* What gradients of a loss of this scale are multiplied with: rounded to f32 unless the scale is f64. */
double cpu_inverse(const k_view *scale);

/* ---- walk.c: strided copies ---- */

/* Copies positions [first, first + n) of the index space; the first goes to dst itself. */
void cpu_walk_gather(const k_walk *w, size_t size, const void *src, int64_t first, int64_t n,
                     void *dst);
/* Copies the whole index space, in parallel; no two positions share a destination. */
void cpu_walk_copy(const k_walk *w, size_t size, const void *src, void *dst, const k_context *ctx);

/* ---- reduce.c ---- */

enum { CPU_GROUP_TERMS = 16384 }; /* terms of a partial sum of many, at least; a multiple of a tile */

/* Sum of the squares of n values in the carrier. */
double cpu_squares(ir_dtype carrier, const void *x, int64_t n);
/* How many partial sums, of CPU_GROUP_TERMS squares each, the largest of these tensors has. */
size_t cpu_partial_squares(const k_view *gradients, int n);
/* Into how many groups the sum of each of `outputs` rows of `terms` contiguous elements is cut. Group
 * g begins with term terms * g / groups, and its first tile does; tiles are added in order (f64),
 * then groups. */
int64_t cpu_sum_groups(int64_t outputs, int64_t terms);

/* ---- lanes.c: vector loops over contiguous carriers ----
 *
 * A tile is summed in 32 lanes of the carrier's type, the lanes pairwise, the tiles in f64: a fixed
 * order, with the error of a pairwise sum. lanes_NAME_float and lanes_NAME_double. */
#define LANES_FUNCTIONS(T)                                                                         \
    double lanes_sum_##T(const T *x, int64_t n);                                                   \
    double lanes_dot_##T(const T *x, const T *y, int64_t n);                                       \
    double lanes_squares_##T(const T *x, T mean, int64_t n); /* sum of (x - mean)^2 */             \
    double lanes_dot_centred_##T(const T *x, const T *y, T mean, int64_t n); /* of x (y - mean) */ \
    T lanes_max_##T(const T *x, int64_t n);                      /* -infinity when empty */        \
    void lanes_exp_##T(const T *x, T shift, T *y, int64_t n);    /* y = exp(x - shift) */          \
    void lanes_shift_##T(const T *x, T a, T b, T *y, int64_t n); /* y = x - a - b */
LANES_FUNCTIONS(float)
LANES_FUNCTIONS(double)
uint64_t lanes_sum_uint64_t(const uint64_t *x, int64_t n); /* wraps */

/* ---- rows.c: the vectors along one axis ----
 *
 * A view [outer, length, inner] has outer * inner rows of `length` elements; row r is
 * (r / inner, :, r % inner). Interleaved rows (inner > 1) are handled in blocks, so that whole cache
 * lines are read. */
typedef struct cpu_rows {
    int64_t outer, length, inner;
    int64_t blocks, per_outer; /* blocks in all, blocks per outer index */
} cpu_rows;

enum { CPU_ROW_BLOCK = 16 }; /* most rows in a block */

cpu_rows cpu_rows_of(const k_view *v, int64_t axis);
/* Carriers that a block of rows needs as scratch. */
int64_t cpu_rows_scratch(const cpu_rows *s);
/* Rows of block b: *first and how many. */
int64_t cpu_rows_block(const cpu_rows *s, int64_t b, int64_t *first);
/* `count` rows from `first` on in the carrier, one after the other: `scratch` filled, or v
 * itself. */
const void *cpu_rows_load(const k_view *v, const cpu_rows *s, int64_t first, int64_t count,
                          ir_dtype carrier, void *scratch);
/* Where to compute the rows; then cpu_rows_store. */
void *cpu_rows_target(const k_view *v, const cpu_rows *s, int64_t first, ir_dtype carrier,
                      void *scratch);
void cpu_rows_store(const k_view *v, const cpu_rows *s, int64_t first, int64_t count,
                    ir_dtype carrier, const void *values);

#endif
