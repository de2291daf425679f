/* formulas.c - tables from formulas.def: the formulas, and the formula of each op. */
#include "ir/ops/formulas.h"

enum { SHORT, LONG };

static const ir_formula_info infos[IR_FORMULA_COUNT] = {
#define FORMULA(name, size, result, operands, numbers, ...) \
    [IR_FORMULA_##name] = {#name, operands, IR_NUMBERS_##numbers, size == LONG},
#include "ir/ops/formulas.def"
};

static const ir_formula plain[IR_OP_COUNT] = {
#define FORMULA_OP(op) [IR_OP_##op] = IR_FORMULA_##op,
#include "ir/ops/formulas.def"
};

/* Ops that compute another formula if their first attribute is set. */
static const ir_formula flagged[IR_OP_COUNT] = {
#define FORMULA_FLAG(op, flag, name) [IR_OP_##op] = IR_FORMULA_##name,
#include "ir/ops/formulas.def"
};

#define FORMULA_FLAG(op, flag, name) _Static_assert(IR_ATTR(op, flag) == 0, "the flag is the first attribute");
#include "ir/ops/formulas.def"

ir_formula ir_formula_of(ir_op op, const ir_attr *attr) { return flagged[op] && attr[0].i ? flagged[op] : plain[op]; }

const ir_formula_info *ir_formula_get(ir_formula formula) { return &infos[formula]; }

static double number_of(ir_op op, const ir_attr *attr, int i)
{
    const ir_op_info *info = ir_op_get(op);
    if (i >= info->n_attr) return 0;
    return info->attr[i].kind == IR_SLOT_FLOAT ? attr[i].f : (double)attr[i].i;
}

ir_formula_params ir_formula_params_of(ir_op op, const ir_attr *attr)
{
    return (ir_formula_params){number_of(op, attr, 0), number_of(op, attr, 1)};
}
