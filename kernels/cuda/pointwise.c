/* pointwise.c - launches of elementwise ops, including cast. */
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/cuda.h"
#include "kernels/pointwise.h"

/* The kernels by carrier. */
static const char *const names[IR_FORMULA_COUNT][IR_DTYPE_COUNT] = {
#define FLOAT_FORMULA(name, ...) [IR_FORMULA_##name][IR_f32] = "pointwise_" #name "_float",
#define INTEGER_FORMULA(name, ...) [IR_FORMULA_##name][IR_i64] = "pointwise_" #name "_int64_t",
#define UNSIGNED_FORMULA(name, ...) [IR_FORMULA_##name][IR_u64] = "pointwise_" #name "_uint64_t",
#include "ir/ops/formulas.def"
};

static ampc_status pointwise_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    const ir_dtype dtype = args->in[0].dtype;
    const char *name = names[ir_formula_of(args->op, args->attr)][cuda_carrier(dtype)];
    if (!name) return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "not defined for %s", ir_dtype_name(dtype));
    return cuda_prepare_one(args, CUDA_FAMILY_pointwise, name, state);
}

static ampc_status pointwise_run(const k_args *args)
{
    const cuda_one *state = args->state;
    const k_view *y = &args->out[0];
    const ir_formula_info *formula = ir_formula_get(ir_formula_of(args->op, args->attr));
    const int operands = formula->operands;
    cuda_pointwise p = {.a = cuda_operand_of(&args->in[0], y),
                        .b = cuda_operand_of(&args->in[operands - 1], y),
                        .y = y->data,
                        .y_dtype = (int)y->dtype,
                        .count = k_count(y),
                        .low = cuda_data(args->in, operands, args->n_in),
                        .high = cuda_data(args->in, operands + 1, args->n_in)};
    if (formula->numbers == IR_NUMBERS_COUNT) p.p = (float)k_pointwise_count(args->attr);
    if (formula->numbers == IR_NUMBERS_PARAMS) {
        const ir_formula_params params = ir_formula_params_of(args->op, args->attr);
        p.p = (float)params.p;
        p.q = (float)params.q;
    }
    return cuda_launch(args, state->kernel, cuda_grid(args, p.count, POINTWISE_BLOCK * CUDA_TILE), POINTWISE_BLOCK, 0,
                       (void *[]){&p});
}

#define FORMULA_OP(op) \
    const k_kernel cuda_##op = {.prepare = pointwise_prepare, .run = pointwise_run, .release = cuda_release};
#include "ir/ops/formulas.def"

/* ---- cast ---- */

static ampc_status cast_prepare(const k_args *args, void **state, size_t *workspace)
{
    static const char *const casts[2][2] = {{"cast_int64_t_int64_t", "cast_int64_t_float"},
                                            {"cast_float_int64_t", "cast_float_float"}};
    (void)workspace;
    const bool from = ir_dtype_is_float(args->in[0].dtype), to = ir_dtype_is_float(args->out[0].dtype);
    return cuda_prepare_one(args, CUDA_FAMILY_pointwise, casts[from][to], state);
}

static ampc_status cast_run(const k_args *args)
{
    const cuda_one *state = args->state;
    const k_view *x = &args->in[0], *y = &args->out[0];
    int from = (int)x->dtype, to = (int)y->dtype;
    int64_t n = k_count(y);
    return cuda_launch(args, state->kernel, cuda_grid(args, n, POINTWISE_BLOCK * CUDA_TILE), POINTWISE_BLOCK, 0,
                       (void *[]){(void *)&x->data, &from, (void *)&y->data, &to, &n});
}

const k_kernel cuda_cast = {.prepare = cast_prepare, .run = cast_run, .release = cuda_release};
