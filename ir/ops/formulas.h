/* formulas.h - the formula that a pointwise op computes, and its operands (ir/ops/formulas.def). */
#ifndef AMPC_FORMULAS_H
#define AMPC_FORMULAS_H

#include "ir/ops/ops.h"

typedef enum ir_formula {
    IR_FORMULA_none,
#define FORMULA(name, ...) IR_FORMULA_##name,
#include "ir/ops/formulas.def"
    IR_FORMULA_COUNT
} ir_formula;

/* Scalars that a formula has besides its operands: none, the bounds in the following operands, a divisor from the
 * product of the first attribute, or the first two attributes. */
typedef enum ir_numbers { IR_NUMBERS_NONE, IR_NUMBERS_BOUNDS, IR_NUMBERS_COUNT, IR_NUMBERS_PARAMS } ir_numbers;

typedef struct ir_formula_info {
    const char *name;
    int operands;
    ir_numbers numbers;
    bool is_long; /* too much code for a GPU kernel to repeat per element of a tile */
} ir_formula_info;

/* The formula of an op with these attributes; IR_FORMULA_none if it is not pointwise. */
ir_formula ir_formula_of(ir_op op, const ir_attr *attr);
const ir_formula_info *ir_formula_get(ir_formula formula);

/* The scalars of a formula of IR_NUMBERS_PARAMS: the op's first two attributes that are FLOAT or BOOL (0 or 1). */
typedef struct ir_formula_params {
    double p, q;
} ir_formula_params;

ir_formula_params ir_formula_params_of(ir_op op, const ir_attr *attr);

/* The divisor of a formula of IR_NUMBERS_COUNT, from the product of the op's first attribute. */
static inline double ir_count_divisor(double count, const ir_attr *attr)
{
    const double less = (double)attr[IR_ATTR(div_count, less)].i;
    return less == 0 ? count : count - less > 1 ? count - less : 1;
}

/* A formula that states its slope; IR_WORD(function, name) is its index. */
typedef struct ir_function {
    ir_op op; /* which computes it */
    ir_formula value;
    ir_formula slope;
    ir_formula curvature; /* IR_FORMULA_none: 0 wherever it exists */
    bool of_result;       /* slope and curvature are formulas in the result */
} ir_function;

extern const ir_function ir_functions[];
/* The function that an op with these attributes computes, or NULL. Sets the attributes of its derivatives. */
enum { IR_DERIVATIVE_ATTRS = IR_ATTR(slope, q) + 1 };
const ir_function *ir_function_of(ir_op op, const ir_attr *attr, ir_attr *derivative);
/* The op whose colour and traits an op with these attributes has: a derivative has those of its function. */
ir_op ir_op_like(ir_op op, const ir_attr *attr);
/* For messages and plans: the name of an op with these attributes; of a derivative, that of its formula, such as
 * tanh_slope. */
const char *ir_op_label(ir_op op, const ir_attr *attr);

#endif
