/* program.h - several ops that work element by element as one step, for all devices.
 *
 * A program computes `count` elements at a time that lie one after the other: a straight line of instructions, each of
 * which gives one element from elements of operands and of earlier instructions at the same position. What an
 * instruction gives is rounded to its type as if it had been stored, and arithmetic is that of the op alone, so that a
 * program gives the bits that its ops give one by one. Within a tile everything is read before anything is written:
 * a result may lie over an operand that is dense, of its type and count.
 *
 *     relu(conv + bias) in f16, where bias is [C,1,1]:    operands  0: in 0, dense   1: in 1, walk {C, H*W} over N
 *                                                         code      0: add ~0 ~1 : f16      1: relu 0 : f16
 *                                                         results   0: from 1
 *
 * Ops: those of ir/formulas.def, cast, where, select, dropout_grad (operands as the op table has them) and dropout
 * with one operand, rng, which gives the mask; what the op dropout computes is that and dropout_grad(x, mask). The
 * bounds of clip, the exponent of pow and rng may be looked at once; where they have one element they are operands. */
#ifndef AMPC_PROGRAM_H
#define AMPC_PROGRAM_H

#include "kernels/pointwise.h"
#include "kernels/walk.h"

enum {
    K_MOST_CODE = 48,
    K_MOST_OPERANDS = 24,
    K_MOST_RESULTS = 8,
    K_MOST_ARGS = 4,
    K_NO_ARG = INT16_MAX,     /* an optional operand that is absent */
    K_OWN_RESULT = INT16_MIN, /* in the tail of another op: its result 0, not yet rounded */
};

/* An operand as one of the views that the step reads. */
typedef struct k_operand {
    int in;      /* of k_args.in, which has the dtype */
    bool dense;  /* position i is element i */
    k_walk walk; /* else: positions (dst, dense row major) and elements of the view (src) */
} k_operand;

typedef struct k_instruction {
    ir_op op;
    ir_dtype type;            /* of what it gives */
    const ir_attr *attr;      /* by slot of the op */
    int n_arg;
    int arg[K_MOST_ARGS];     /* i: what instruction i gave; ~i: operand i; K_NO_ARG, K_OWN_RESULT */
} k_instruction;

/* What an instruction does: computes a formula; the others as their ops say. */
typedef enum k_instruction_kind {
    K_COMPUTE,
    K_CAST,
    K_WHERE,
    K_SELECT,
    K_DRAW, /* the mask of dropout */
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

/* Each element, or one number a row of `row` of them: their sum (in f32, as reduce_sum) or mean. */
typedef enum k_fold { K_EACH, K_ROW_SUM, K_ROW_MEAN } k_fold;

typedef struct k_result {
    int from;    /* an instruction */
    k_fold fold;
} k_result;      /* k_args.out in order: of the instruction's type; a folded one may be of another float type */

struct k_program {
    int64_t count;
    int64_t row;  /* divides count; 0: no result is folded */
    bool commits; /* does nothing once the device has a fault (kernels/kernel.h): a result may be storage */
    int n_operands, n_code, n_results;
    k_operand operands[K_MOST_OPERANDS];
    k_instruction code[K_MOST_CODE];
    k_result results[K_MOST_RESULTS];
};

#endif
