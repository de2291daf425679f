/* pointwise.c - all elementwise ops: one driver and a table of formulas.
 *
 * The result is divided into tiles. For each tile the operands are loaded in the carrier type (in place if they have
 * that type and shape, otherwise broadcast and converted into scratch), the formula's loop runs over contiguous memory,
 * and the result is stored. Thus the loops are independent of broadcasting and storage types. */
#include "kernels/cpu/math.h"
#include "kernels/cpu/tiles.h"

#define WITH_FLOAT
#define WITH_DOUBLE
#define CARRIER_BODY "kernels/cpu/pointwise_tiles.h"
#include "ir/ops/formulas_each.h"

cpu_tile_fn *cpu_formula_tile(ir_formula formula, ir_dtype dtype)
{
    switch (cpu_formula_carrier(dtype)) {
    case IR_f32: return tiles_float[formula];
    case IR_f64: return tiles_double[formula];
    case IR_u64: return tiles_uint64_t[formula];
    default: return tiles_int64_t[formula];
    }
}

cpu_tile_fn *cpu_power_tile(double exponent, ir_dtype dtype)
{
    static const struct {
        double exponent;
        ir_formula formula;
    } powers[] = {{2, IR_FORMULA_square},   {1, IR_FORMULA_first_power}, {3, IR_FORMULA_cube},
                  {-1, IR_FORMULA_inverse}, {0.5, IR_FORMULA_root},      {-0.5, IR_FORMULA_inverse_root}};
    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++)
        if (powers[i].exponent == exponent) return cpu_formula_tile(powers[i].formula, dtype);
    return cpu_formula_tile(IR_FORMULA_pow, dtype);
}

static cpu_tile_fn *tile_of(const k_args *args, ir_formula formula)
{
    const bool is_power = formula == IR_FORMULA_pow && ir_dtype_is_float(args->in[0].dtype) &&
                          k_count(&args->in[1]) == 1;
    return is_power ? cpu_power_tile(cpu_scalar(&args->in[1], 0), args->in[0].dtype)
                    : cpu_formula_tile(formula, args->in[0].dtype);
}

static void read_bounds(const k_view *lo, const k_view *hi, cpu_numbers *p)
{
    p->lo_double = cpu_scalar(lo, p->lo_double);
    p->hi_double = cpu_scalar(hi, p->hi_double);
    if (k_present(lo)) p->lo_uint64_t = (uint64_t)(p->lo_int64_t = ir_load_i64(lo->dtype, lo->data));
    if (k_present(hi)) p->hi_uint64_t = (uint64_t)(p->hi_int64_t = ir_load_i64(hi->dtype, hi->data));
}

cpu_numbers cpu_numbers_of(const k_args *args)
{
    const ir_formula_info *formula = ir_formula_get(ir_formula_of(args->op, args->attr));
    const int operands = formula->operands;
    cpu_numbers p = {0, 0, -INFINITY, INFINITY, INT64_MIN, INT64_MAX, 0, UINT64_MAX};
    if (formula->numbers == IR_NUMBERS_COUNT) {
        p.lo_double = k_pointwise_count(args->attr);
    } else if (formula->numbers == IR_NUMBERS_PARAMS) {
        const ir_formula_params params = ir_formula_params_of(args->op, args->attr);
        p.lo_double = params.p;
        p.hi_double = params.q;
    } else if (args->n_in > operands) { /* scalar parameters follow the operands */
        const k_view none = {.dtype = IR_NO_DTYPE}, *bounds = args->in + operands;
        read_bounds(&bounds[0], args->n_in > operands + 1 ? &bounds[1] : &none, &p);
    }
    p.lo_float = (float)p.lo_double;
    p.hi_float = (float)p.hi_double;
    return p;
}

const void *cpu_operand_tile(const k_view *v, const k_walk *walk, int64_t first, int64_t n, ir_dtype type,
                             void *scratch)
{
    if (!walk) return cpu_tile_load(v, first, n, type, scratch);
    if (v->dtype == type) {
        cpu_walk_gather(walk, ir_dtype_size(type), v->data, first, n, scratch);
        return scratch;
    }
    cpu_tile raw;
    cpu_walk_gather(walk, ir_dtype_size(v->dtype), v->data, first, n, &raw);
    cpu_convert(type, scratch, v->dtype, &raw, n);
    return scratch;
}

static ampc_status pointwise_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    ir_dtype carrier = cpu_formula_carrier(args->in[0].dtype);
    ir_dtype made = y->dtype == IR_bool ? IR_bool : carrier;
    const ir_formula formula = ir_formula_of(args->op, args->attr);
    cpu_tile_fn *tile = tile_of(args, formula);
    if (!tile) return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "not defined for %s", ir_dtype_name(args->in[0].dtype));
    const int operands = ir_formula_get(formula)->operands;
    const cpu_numbers p = cpu_numbers_of(args);
    const k_view *a = &args->in[0], *b = &args->in[operands - 1];
    const k_walk walk_a = k_walk_broadcast(a, y), walk_b = k_walk_broadcast(b, y);
    int64_t n = k_count(y), count = cpu_ceil_div(n, CPU_TILE);
    const k_walk *to_a = k_count(a) == n ? NULL : &walk_a, *to_b = k_count(b) == n ? NULL : &walk_b;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < count; t++) {
        cpu_tile sa, sb, sy;
        int64_t first = t * CPU_TILE, m = k_min(CPU_TILE, n - first);
        const void *pa = cpu_operand_tile(a, to_a, first, m, carrier, &sa);
        const void *pb = operands == 2 ? cpu_operand_tile(b, to_b, first, m, carrier, &sb) : pa;
        void *py = cpu_tile_target(y, first, made, &sy);
        tile(pa, pb, py, m, &p);
        cpu_tile_store(y, first, m, made, py);
    }
    return AMPC_OK;
}

#define FORMULA_OP(op) const k_kernel cpu_##op = {.run = pointwise_run};
#include "ir/ops/formulas.def"
