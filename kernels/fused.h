/* fused.h - fused kernels: several elementwise ops as one step, for all devices.
 *
 * A fused kernel computes `count` consecutive elements. It is straight-line code: each instruction computes one element
 * from elements of operands and of earlier instructions at the same position. An instruction's result is rounded to its
 * type as if it had been stored, and its arithmetic is that of the op, so a fused kernel produces the same bits as its
 * ops run one by one. Each tile is read completely before any of it is written, so a result may alias a dense operand
 * of the same type and count.
 *
 *     relu(conv + bias) in f16, where bias is [C,1,1]:    operands  0: in 0, dense   1: in 1, walk {C, H*W} over N
 *                                                         code      0: add ~0 ~1 : f16      1: relu 0 : f16
 *                                                         results   0: from 1
 *
 * Supported ops are those of formulas.def, cast, where, select, and dropout_grad, with the operands of the op table.
 * dropout has one operand, rng, and produces only the mask; dropout_grad(x, mask) computes its other result. The bounds
 * of clip, the exponent of pow, and rng have one element and may be read once per run. */
#ifndef AMPC_FUSED_H
#define AMPC_FUSED_H

#include "kernels/pointwise.h"
#include "kernels/walk.h"

enum {
    K_MAX_CODE = 48,
    K_MAX_OPERANDS = 24,
    K_MAX_RESULTS = 8,
    K_MAX_ARGS = 4,
    K_NO_ARG = INT16_MAX,      /* absent optional operand */
    K_ACCUMULATOR = INT16_MIN, /* in an epilogue: result 0 of the op, not yet rounded */
};

struct ir_value;

/* An operand, backed by one of the views that the step reads. */
typedef struct k_operand {
    int in;      /* index into k_args.in, which has the dtype */
    bool dense;  /* element i belongs to position i */
    k_walk walk; /* if not dense: maps positions (dst, dense row major) to elements of the view (src) */
    const struct ir_value *counted; /* whose elements, of f32, are counted (k_context.count); NULL: none */
} k_operand;

typedef struct k_instruction {
    ir_op op;
    ir_dtype type;       /* of the result */
    const ir_attr *attr; /* by slot of the op */
    int n_arg;
    int arg[K_MAX_ARGS];            /* i: result of instruction i; ~i: operand i; or K_NO_ARG, K_ACCUMULATOR */
    const struct ir_value *counted; /* as in k_operand: the result */
} k_instruction;

/* How an instruction is executed: K_COMPUTE evaluates a formula, each other kind is one op. */
typedef enum k_instruction_kind {
    K_COMPUTE,
    K_CAST,
    K_WHERE,
    K_SELECT,
    K_DRAW, /* dropout: draws the mask */
    K_MASK, /* dropout_grad */
    K_KIND_COUNT
} k_instruction_kind;

static inline k_instruction_kind k_kind_of(const k_instruction *c)
{
    static const struct {
        ir_op op;
        k_instruction_kind kind;
    } rows[] = {{IR_OP_cast, K_CAST},
                {IR_OP_where, K_WHERE},
                {IR_OP_select, K_SELECT},
                {IR_OP_dropout, K_DRAW},
                {IR_OP_dropout_grad, K_MASK}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == c->op) return rows[i].kind;
    return K_COMPUTE;
}

/* What is stored: each element, or per row of `row` elements their sum (in f32, as reduce_sum) or mean. */
typedef enum k_fold { K_EACH, K_ROW_SUM, K_ROW_MEAN } k_fold;

typedef struct k_result {
    int from; /* index of an instruction */
    k_fold fold;
} k_result; /* the views are k_args.out, in order, of the instruction's type; folded ones of any float type */

struct k_fused {
    int64_t count;
    int64_t row; /* elements per row, divides count; 0: no result is folded */
    /* Writes nothing after a device fault (kernels/kernel.h), so a result may be storage. */
    bool commits;
    ir_dtype of; /* in an epilogue: the type of result 0 of the op alone */
    int n_operands, n_code, n_results;
    k_operand operands[K_MAX_OPERANDS];
    k_instruction code[K_MAX_CODE];
    k_result results[K_MAX_RESULTS];
};

#endif
