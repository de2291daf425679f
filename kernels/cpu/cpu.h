/* cpu.h - what the CPU kernels share: kernel table, tiles, carriers, strided walks, errors.
 *
 * Storage may have any dtype; arithmetic is in a *carrier* type: float, double (f64 views) or int64_t (integers and
 * bool). A kernel loads a tile of a view into the carrier, computes, and stores the tile. Tiles fit into the
 * first-level cache, so conversions cause no memory traffic and no loop has to be written per dtype. */
#ifndef AMPC_CPU_H
#define AMPC_CPU_H

#include "kernels/kernel.h"
#include "kernels/walk.h"

/* Declares cpu_WORD for each word of the kernel column. */
#define OP(name, amp, traits, infer, fold, grad, kernel) extern const k_kernel cpu_##kernel;
#include "ir/ops/ops.def"

#define CPU_CLONES IR_CLONES
#define CPU_INLINE static inline __attribute__((always_inline))
#define K_FORMULA CPU_INLINE

/* Asserts that iterations are independent, even if the result overwrites an operand at the same position. */
#define CPU_SIMD _Pragma("omp simd")

enum {
    CPU_TILE = 512,    /* elements */
    CPU_SERIAL = 32768 /* loops over fewer elements run on one thread */
};

/* A tile in any carrier. */
typedef union cpu_tile {
    float f32[CPU_TILE];
    double f64[CPU_TILE];
    int64_t i64[CPU_TILE];
} cpu_tile;

/* The number of threads for a loop over `elements` elements whose result does not depend on it. */
static inline int cpu_threads(const k_context *ctx, int64_t elements)
{
    return elements < CPU_SERIAL || ctx->oversubscribed ? 1 : ctx->threads;
}

static inline int64_t k_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t k_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t cpu_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Writes the reason into ctx->error and returns `status`. */
ampc_status cpu_fail(const k_context *ctx, ampc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool cpu_is_used(const k_view *v) { return k_present(v) && v->data; }

/* The carrier of dtype t: f32, f64 or i64. */
static inline ir_dtype cpu_carrier(ir_dtype t) { return t == IR_f64 ? IR_f64 : ir_dtype_is_float(t) ? IR_f32 : IR_i64; }
/* The carrier of formulas, which order and divide: u64 has its own. */
static inline ir_dtype cpu_formula_carrier(ir_dtype t) { return t == IR_u64 ? IR_u64 : cpu_carrier(t); }

static inline void *cpu_at(const k_view *v, int64_t element)
{
    return (char *)v->data + element * (int64_t)ir_dtype_size(v->dtype);
}

/* Result i, or an absent view if the op has fewer. */
static inline const k_view *cpu_result(const k_args *args, int i)
{
    static const k_view absent = {.dtype = IR_NO_DTYPE};
    return i < args->n_out ? &args->out[i] : &absent;
}

/* The bytes of whole cache lines that hold `bytes` bytes. */
static inline size_t cpu_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* ---- cast.c ---- */

/* Same results as ir_convert, but faster. src and dst must be equal or disjoint. */
void cpu_convert(ir_dtype to, void *dst, ir_dtype from, const void *src, int64_t n);
/* Rounds n values in the carrier to dtype t, as a store and a load would. */
void cpu_as_stored(ir_dtype t, ir_dtype carrier, void *values, int64_t n);
/* Elements [first, first + n) of v in the carrier. Fills `scratch`, or returns v's own data if v has the carrier's
 * type. */
const void *cpu_tile_load(const k_view *v, int64_t first, int64_t n, ir_dtype carrier, void *scratch);
/* The buffer in which to compute elements of v from `first` on: v's own data or `scratch`. Pass it to cpu_tile_store
 * afterwards. */
void *cpu_tile_target(const k_view *v, int64_t first, ir_dtype carrier, void *scratch);
void cpu_tile_store(const k_view *v, int64_t first, int64_t n, ir_dtype carrier, const void *values);
/* Element i of v as a number. cpu_store_number does nothing if the result is unused. */
double cpu_number(const k_view *v, int64_t i);
void cpu_store_number(const k_view *v, int64_t i, double value);
/* The first element of v as a number, or `absent` if v is absent. */
double cpu_scalar(const k_view *v, double absent);
/* The factor that unscales gradients, 1 / scale, rounded to f32 unless the scale is f64. */
double cpu_inverse(const k_view *scale);

/* ---- walk.c: strided copies ---- */

/* Copies positions [first, first + n) of the index space to consecutive elements of dst. */
void cpu_walk_gather(const k_walk *w, size_t size, const void *src, int64_t first, int64_t n, void *dst);
/* Copies the whole index space in parallel. Destinations must be distinct. */
void cpu_walk_copy(const k_walk *w, size_t size, const void *src, void *dst, const k_context *ctx);

/* ---- reduce.c ---- */

enum { CPU_GROUP_TERMS = 16384 }; /* minimum terms per partial sum; a multiple of CPU_TILE */

/* The sum of squares of n values in the carrier. */
double cpu_squares(ir_dtype carrier, const void *x, int64_t n);
/* The number of partial sums, of CPU_GROUP_TERMS squares each, that the largest of these tensors needs. */
size_t cpu_partial_squares(const k_view *gradients, int n);
/* The number of groups into which a sum of `terms` contiguous elements is divided when there are `outputs` such sums.
 * Group g, and its first tile, starts at term terms * g / groups; tiles are added in order (f64), then groups. */
int64_t cpu_sum_groups(int64_t outputs, int64_t terms);

/* ---- lanes.c: vector loops over contiguous carriers ----
 *
 * A tile is summed in 32 lanes of the carrier's type, then the lanes pairwise, then the tiles in f64. The order is
 * fixed and the error is that of a pairwise sum. Functions are lanes_NAME_float and lanes_NAME_double. */
#define LANES_FUNCTIONS(T) \
    double lanes_dot_##T(const T *x, const T *y, int64_t n); \
    double lanes_squares_##T(const T *x, T mean, int64_t n);                 /* sum of (x - mean)^2 */ \
    double lanes_dot_centred_##T(const T *x, const T *y, T mean, int64_t n); /* sum x(y - mean) */ \
    T lanes_max_##T(const T *x, int64_t n);                                  /* -infinity if n is 0 */ \
    double lanes_exp_sum_##T(const T *x, T shift, T *y, int64_t n); /* y = exp(x - shift), x <= shift + 44; sum y */ \
    void lanes_shift_##T(const T *x, T a, T b, T *y, int64_t n);    /* y = x - a - b */
LANES_FUNCTIONS(float)
LANES_FUNCTIONS(double)
/* The folds of ir/ops/reductions.def in the same order, also for integers; 0 if n is 0. */
#define COMBINE(name, ...) \
    double lanes_##name##_float(const float *x, int64_t n); \
    double lanes_##name##_double(const double *x, int64_t n); \
    int64_t lanes_##name##_int64_t(const int64_t *x, int64_t n); \
    uint64_t lanes_##name##_uint64_t(const uint64_t *x, int64_t n);
#include "ir/ops/reductions.def"

/* ---- rows.c: the vectors along one axis ----
 *
 * A view [outer, length, inner] has outer * inner rows of `length` elements; row r is (r / inner, :, r % inner).
 * Interleaved rows (inner > 1) are processed in blocks to use whole cache lines. */
typedef struct cpu_rows {
    int64_t outer, length, inner;
    int64_t blocks, per_outer; /* total number of blocks, blocks per outer index */
} cpu_rows;

enum { CPU_ROW_BLOCK = 16 }; /* maximum number of rows per block */

cpu_rows cpu_rows_of(const k_view *v, int64_t axis);
/* The size of the scratch buffer for a block of rows, in carriers. */
int64_t cpu_rows_scratch(const cpu_rows *s);
/* The position of element a of the row. */
int64_t cpu_rows_element(const cpu_rows *s, int64_t row, int64_t a);
/* Returns the number of rows of block b and stores the first one in *first. */
int64_t cpu_rows_block(const cpu_rows *s, int64_t b, int64_t *first);
/* `count` consecutive rows from `first` on in the carrier. Fills `scratch`, or returns v's own data if it is contiguous
 * and has the carrier's type. */
const void *cpu_rows_load(const k_view *v, const cpu_rows *s, int64_t first, int64_t count, ir_dtype carrier,
                          void *scratch);
/* The buffer in which to compute the rows. Pass it to cpu_rows_store afterwards. */
void *cpu_rows_target(const k_view *v, const cpu_rows *s, int64_t first, ir_dtype carrier, void *scratch);
void cpu_rows_store(const k_view *v, const cpu_rows *s, int64_t first, int64_t count, ir_dtype carrier,
                    const void *values);

#endif
