/* pointwise.c - every op that works element by element: one driver, one table of formulas.
 *
 * The flat result is cut into tiles. For each tile the operands are brought into the carrier type
 * (directly, when they have that type and shape; else broadcast and converted into scratch), the
 * formula's loop runs over contiguous memory, and the result is stored. So no loop knows
 * broadcasting or storage types. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "kernels/pointwise.h"

#define K_FORMULA CPU_INLINE

/* The numbers of clip and clip_grad (bounds) and div_count (lo: the count), in each carrier. */
typedef struct numbers {
    float lo_float, hi_float;
    double lo_double, hi_double;
    int64_t lo_int64_t, hi_int64_t;
} numbers;

typedef void tile_fn(const void *a, const void *b, void *y, int64_t n, const numbers *p);

#define REAL_IS_FLOAT
#define REAL float
#include "kernels/formulas.h"
#include "kernels/cpu/pointwise_tiles.h"
#undef REAL
#define REAL double
#include "kernels/formulas.h"
#include "kernels/cpu/pointwise_tiles.h"
#undef REAL
#undef REAL_IS_FLOAT
#include "kernels/formulas.h"
#define REAL int64_t
#include "kernels/cpu/pointwise_tiles.h"
#undef REAL

static k_pointwise pointwise_of(const k_args *args)
{
    k_pointwise p = k_pointwise_of(args);
    if (p.formula == FORMULA_pow && ir_dtype_is_float(args->in[1].dtype) &&
        k_count(&args->in[1]) == 1 && cpu_scalar(&args->in[1], 0) == 2)
        p.formula = FORMULA_square;
    return p;
}

static int64_t integer_scalar(const k_view *v, int64_t absent)
{
    return k_present(v) ? ir_load_i64(v->dtype, v->data) : absent;
}

static numbers numbers_of(const k_args *args, int operands)
{
    numbers p = {0};
    if (args->op == IR_OP_div_count) {
        p.lo_double = k_pointwise_count(args);
    } else if (args->n_in > operands) { /* bounds follow the operands */
        const k_view none = {.dtype = IR_NO_DTYPE}, *bounds = args->in + operands;
        const k_view *hi = args->n_in > operands + 1 ? &bounds[1] : &none;
        bool whole = cpu_carrier(args->in[0].dtype) == IR_i64;
        p.lo_int64_t = whole ? integer_scalar(&bounds[0], INT64_MIN) : 0;
        p.hi_int64_t = whole ? integer_scalar(hi, INT64_MAX) : 0;
        p.lo_double = cpu_scalar(&bounds[0], -INFINITY);
        p.hi_double = cpu_scalar(hi, INFINITY);
    } else {
        p = (numbers){0, 0, -INFINITY, INFINITY, INT64_MIN, INT64_MAX};
    }
    p.lo_float = (float)p.lo_double;
    p.hi_float = (float)p.hi_double;
    return p;
}

/* An operand seen in the shape of the result. */
typedef struct operand {
    const k_view *view;
    k_walk walk;
    bool dense; /* same shape: no walk needed */
} operand;

static operand operand_of(const k_view *v, const k_view *y)
{
    return (operand){v, k_walk_broadcast(v, y), k_count(v) == k_count(y)};
}

static const void *operand_tile(const operand *o, int64_t first, int64_t n, ir_dtype carrier,
                                void *scratch)
{
    if (o->dense) return cpu_tile_load(o->view, first, n, carrier, scratch);
    if (o->view->dtype == carrier) {
        cpu_walk_gather(&o->walk, ir_dtype_size(carrier), o->view->data, first, n, scratch);
        return scratch;
    }
    cpu_tile raw;
    cpu_walk_gather(&o->walk, ir_dtype_size(o->view->dtype), o->view->data, first, n, &raw);
    cpu_convert(carrier, scratch, o->view->dtype, &raw, n);
    return scratch;
}

static ampc_status pointwise_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    ir_dtype carrier = cpu_carrier(args->in[0].dtype);
    bool predicate = y->dtype == IR_bool && args->op != IR_OP_not; /* the loop writes bool itself */
    ir_dtype made = predicate ? IR_bool : carrier;
    tile_fn *const *tiles = carrier == IR_f32   ? tiles_float
                            : carrier == IR_f64 ? tiles_double
                                                : tiles_int64_t;
    const k_pointwise form = pointwise_of(args);
    tile_fn *tile = tiles[form.formula];
    if (!tile)
        return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "%s is not defined for %s",
                        ir_op_get(args->op)->name, ir_dtype_name(args->in[0].dtype));
    int operands = form.operands;
    const numbers p = numbers_of(args, operands);
    const operand a = operand_of(&args->in[0], y), b = operand_of(&args->in[operands - 1], y);
    int64_t n = k_count(y), count = cpu_ceil_div(n, CPU_TILE);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < count; t++) {
        cpu_tile sa, sb, sy;
        int64_t first = t * CPU_TILE, m = k_min(CPU_TILE, n - first);
        const void *pa = operand_tile(&a, first, m, carrier, &sa);
        const void *pb = operands == 2 ? operand_tile(&b, first, m, carrier, &sb) : pa;
        void *py = cpu_tile_target(y, first, made, &sy);
        tile(pa, pb, py, m, &p);
        cpu_tile_store(y, first, m, made, py);
    }
    return AMPC_OK;
}

#define KERNEL(op, operands, formula, flagged)                                                     \
    const k_kernel cpu_##op = {#op, NULL, pointwise_run, NULL};
POINTWISE_MAP(KERNEL)
