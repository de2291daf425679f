/* reductions.c - tables from reductions.def. */
#include "ir/ops/reductions.h"
#include "ir/ops/formulas.h"

#include <math.h>

static const ir_reduction reductions[IR_OP_COUNT] = {
#define REDUCTION(op, combine, finish) [IR_OP_##op] = {IR_COMBINE_##combine, IR_FINISH_##finish},
#include "ir/ops/reductions.def"
};

/* All reductions have their first attributes in common. */
#define REDUCTION(op, combine, finish) \
    _Static_assert(IR_ATTR(op, axes) == 0 && IR_ATTR(op, keepdims) == 1, "one rule for all reductions");
#include "ir/ops/reductions.def"

static const ir_formula joins[IR_COMBINE_COUNT] = {
#define COMBINE(name, join, ...) [IR_COMBINE_##name] = IR_FORMULA_##join,
#include "ir/ops/reductions.def"
};

#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
static const double starts[IR_COMBINE_COUNT] = {
#define COMBINE(name, join, start, ...) [IR_COMBINE_##name] = start,
#include "ir/ops/reductions.def"
};

ir_reduction ir_reduction_of(ir_op op) { return reductions[op]; }

ir_combine ir_combine_of_parts(ir_combine combine)
{
    int first = 0;
    while (joins[first] != joins[combine]) first++;
    return (ir_combine)first;
}

double ir_combine_start_float(ir_combine combine) { return starts[combine]; }

int64_t ir_combine_start_integer(ir_combine combine, ir_dtype t)
{
    unsigned char bytes[8];
    if (t == IR_bool) return starts[combine] > 0;
    ir_store_f64(t, bytes, starts[combine]); /* saturates */
    return ir_load_i64(t, bytes);
}
