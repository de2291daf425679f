/* formulas.h - which formula a pointwise op computes, and what it takes (ir/formulas.def). */
#ifndef AMPC_FORMULAS_H
#define AMPC_FORMULAS_H

#include "ir/ops.h"

typedef enum ir_formula {
    IR_FORMULA_none,
#define FORMULA(name, ...) IR_FORMULA_##name,
#include "ir/formulas.def"
    IR_FORMULA_COUNT
} ir_formula;

/* Numbers beside the operands: none, the bounds that follow the operands, the product of the first attribute. */
typedef enum ir_numbers { IR_NUMBERS_NONE, IR_NUMBERS_BOUNDS, IR_NUMBERS_COUNT } ir_numbers;

typedef struct ir_formula_info {
    const char *name;
    int operands;
    ir_numbers numbers;
    bool is_long; /* code that a GPU kernel should not repeat for each element of a tile */
} ir_formula_info;

/* The formula of an op with these attributes; IR_FORMULA_none: it is not pointwise. */
ir_formula ir_formula_of(ir_op op, const ir_attr *attr);
const ir_formula_info *ir_formula_get(ir_formula formula);

#endif
