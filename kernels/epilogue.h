/* epilogue.h - epilogues of matmuls and convolutions.
 *
 * Programs, on the CPU only: a fused kernel reads the result of the op as K_ACCUMULATOR and may read further operands,
 * which follow those of the op. Its results replace that of the op; result 0 has the same number of elements. Where
 * that costs nothing the accumulator is not rounded to its type, which is `of`.
 *
 *     relu(conv x, w + r):   operands  conv: x, w, _   program: r
 *                            code      0: add accumulator ~0 : f32     1: relu 0 : f32
 *
 * Epilogues of libraries, of matmuls only, on all devices: the activation (k_args.fused) is applied to result 0 before
 * it is rounded and replaces it. The results equal those of the separate ops except that they are rounded once instead
 * of twice. An epilogue may also have, in K_SLOT(epilogue, ..),
 *
 *     operands  x      input of the gelu whose slope is the activation
 *               addend added to the product and the bias
 *     results   aux    the pre-activation, rounded
 *               sum_a  [m]: op(a) summed over k
 *               sum_b  [n]: op(b) summed over k
 *
 * All of them have the type of result 0; the first three also have its shape. Sums are accumulated in f32. If the
 * operand is the gradient of a layer's output and the product is its weight gradient, the sum is its bias gradient.
 * Without an activation, result 0 may overwrite the addend; apart from that, no result may alias an operand. Kernels of
 * other ops may also have an addend (k_kernel.adds), and nothing else of an epilogue.
 * cpu_supports_epilogue and cuda_supports_epilogue tell which epilogues a device supports. */
#ifndef AMPC_EPILOGUE_H
#define AMPC_EPILOGUE_H

#include "kernels/fused.h"

typedef enum k_activation {
    K_ACTIVATION_NONE,
    K_ACTIVATION_RELU,
    K_ACTIVATION_GELU, /* exact, with erf */
    K_ACTIVATION_GELU_TANH,
    K_ACTIVATION_GELU_GRAD, /* at x, times the product */
    K_ACTIVATION_GELU_TANH_GRAD,
    K_ACTIVATION_OTHER
} k_activation;

/* What a step has in addition to a, b and y, one bit each. */
enum {
    K_PART_BIAS = 1,
    K_PART_X = 2,
    K_PART_ADDEND = 4,
    K_PART_AUX = 8,
    K_PART_SUM_A = 16,
    K_PART_SUM_B = 32,
    K_PART_OTHER = 64
};

/* Whether the activation is a single instruction that reads the pre-activation and writes result 0. */
static inline bool k_activation_is_single(const k_args *args)
{
    const k_fused *p = args->fused;
    const k_instruction *c = &p->code[0];
    return !p->commits && p->n_code == 1 && p->n_results == 1 && p->results[0].from == 0 &&
           p->results[0].fold == K_EACH && p->count == k_count(&args->out[0]) && c->type == args->out[0].dtype &&
           c->arg[0] == K_ACCUMULATOR;
}

static inline bool k_activation_reads_x(const k_args *args)
{
    const k_fused *p = args->fused;
    const int arg = p->code[0].arg[1];
    return arg < 0 && ~arg < p->n_operands && p->operands[~arg].dense &&
           p->operands[~arg].in == k_extra_in_at(args->op, args->listed, K_SLOT(epilogue, x));
}

/* The activation of a step; K_ACTIVATION_OTHER if it has no other name here. */
static inline k_activation k_activation_of(const k_args *args)
{
    if (!args->fused) return K_ACTIVATION_NONE;
    if (!k_activation_is_single(args)) return K_ACTIVATION_OTHER;
    const k_instruction *c = &args->fused->code[0];
    switch (ir_formula_of(c->op, c->attr)) {
    case IR_FORMULA_relu: return K_ACTIVATION_RELU;
    case IR_FORMULA_gelu: return K_ACTIVATION_GELU;
    case IR_FORMULA_gelu_tanh: return K_ACTIVATION_GELU_TANH;
    case IR_FORMULA_gelu_slope: return k_activation_reads_x(args) ? K_ACTIVATION_GELU_GRAD : K_ACTIVATION_OTHER;
    case IR_FORMULA_gelu_tanh_slope:
        return k_activation_reads_x(args) ? K_ACTIVATION_GELU_TANH_GRAD : K_ACTIVATION_OTHER;
    default: return K_ACTIVATION_OTHER;
    }
}

static inline unsigned k_part_of(const k_view *v, ir_dtype t, int64_t count, unsigned part)
{
    if (!v) return 0;
    return v->dtype == t && k_count(v) == count ? part : K_PART_OTHER;
}

/* The parts of a matmul; K_PART_OTHER is set if any of them is not as described above. */
static inline unsigned k_parts_of(const k_args *args)
{
    const k_view *y = &args->out[0];
    const int64_t count = k_count(y), m = y->dims[y->rank - 2], n = y->dims[y->rank - 1];
    const int end_in = k_extra_in_at(args->op, args->listed, K_SLOT(epilogue, n_in));
    const int end_out = k_extra_out_at(args->op, args->listed, K_SLOT(epilogue, n_out));
    const bool one = count == m * n, beyond = args->n_in > end_in || args->n_out > end_out;
    return (k_present(&args->in[IR_IN(matmul, bias)]) ? K_PART_BIAS : 0) | (beyond ? K_PART_OTHER : 0) |
           k_part_of(k_extra_in(args, K_SLOT(epilogue, x)), y->dtype, count, K_PART_X) |
           k_part_of(k_extra_in(args, K_SLOT(epilogue, addend)), y->dtype, count, K_PART_ADDEND) |
           k_part_of(k_extra_out(args, K_SLOT(epilogue, aux)), y->dtype, count, K_PART_AUX) |
           k_part_of(k_extra_out(args, K_SLOT(epilogue, sum_a)), y->dtype, m, one ? K_PART_SUM_A : K_PART_OTHER) |
           k_part_of(k_extra_out(args, K_SLOT(epilogue, sum_b)), y->dtype, n, one ? K_PART_SUM_B : K_PART_OTHER);
}

#endif
