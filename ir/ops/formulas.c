/* formulas.c - tables from formulas.def: the formulas, and the formula of each op. */
#include "ir/ops/formulas.h"

enum { SHORT, LONG };
enum { OF_A, OF_Y };

static const ir_formula_info infos[IR_FORMULA_COUNT] = {
#define FORMULA(name, size, result, operands, numbers, ...) \
    [IR_FORMULA_##name] = {#name, operands, IR_NUMBERS_##numbers, size == LONG},
#include "ir/ops/formulas.def"
};

/* Those of the ops slope and curvature depend on the function. */
#define IR_FORMULA_slope IR_FORMULA_none
#define IR_FORMULA_curvature IR_FORMULA_none

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

#define BEND_ABSENT(name) IR_FORMULA_none
#define BEND_CURVED(name) IR_FORMULA_##name##_curvature
const ir_function ir_functions[] = {
    {.value = IR_FORMULA_none}, /* IR_WORD(function, none) */
#define FORMULA_SLOPE(op, name, variable, curved) \
    {IR_OP_##op, IR_FORMULA_##name, IR_FORMULA_##name##_slope, BEND_##curved(name), variable},
#include "ir/ops/formulas.def"
};

#define IS_SHARED(name) (IR_ATTR(slope, name) == IR_ATTR(curvature, name))
_Static_assert(IS_SHARED(of) && IS_SHARED(p) && IS_SHARED(q), "derivatives have the same attributes");

const ir_function *ir_function_of(ir_op op, const ir_attr *attr, ir_attr *derivative)
{
    const ir_formula value = ir_formula_of(op, attr);
    int i = 1;
    while (ir_words_function[i] && ir_functions[i].value != value) i++;
    if (!ir_words_function[i]) return NULL;
    const bool sets = infos[value].numbers == IR_NUMBERS_PARAMS;
    const ir_formula_params params = sets ? ir_formula_params_of(op, attr) : (ir_formula_params){0, 0};
    derivative[IR_ATTR(slope, of)].i = i;
    derivative[IR_ATTR(slope, p)].f = params.p;
    derivative[IR_ATTR(slope, q)].f = params.q;
    return &ir_functions[i];
}

/* NULL: not a derivative. */
static const ir_function *derived_from(ir_op op, const ir_attr *attr)
{
    const ir_op_info *info = ir_op_get(op);
    const int of = IR_ATTR(slope, of);
    return info->n_attr > of && info->attr[of].words == ir_words_function ? &ir_functions[attr[of].i] : NULL;
}

ir_op ir_op_like(ir_op op, const ir_attr *attr)
{
    const ir_function *f = derived_from(op, attr);
    return f ? f->op : op;
}

const char *ir_op_label(ir_op op, const ir_attr *attr)
{
    return derived_from(op, attr) ? infos[ir_formula_of(op, attr)].name : ir_op_get(op)->name;
}

ir_formula ir_formula_of(ir_op op, const ir_attr *attr)
{
    const ir_function *f = derived_from(op, attr);
    if (f) return op == IR_OP_slope ? f->slope : f->curvature;
    return flagged[op] && attr[0].i ? flagged[op] : plain[op];
}

const ir_formula_info *ir_formula_get(ir_formula formula) { return &infos[formula]; }

static double number_of(ir_op op, const ir_attr *attr, int i)
{
    const ir_op_info *info = ir_op_get(op);
    for (int k = 0; k < info->n_attr; k++) {
        const ir_slot_kind kind = info->attr[k].kind;
        if (kind != IR_SLOT_FLOAT && kind != IR_SLOT_BOOL) continue;
        if (i-- == 0) return kind == IR_SLOT_FLOAT ? attr[k].f : (double)attr[k].i;
    }
    return 0;
}

ir_formula_params ir_formula_params_of(ir_op op, const ir_attr *attr)
{
    return (ir_formula_params){number_of(op, attr, 0), number_of(op, attr, 1)};
}
