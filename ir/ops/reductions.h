/* reductions.h - what a reduction computes (ir/ops/reductions.def). */
#ifndef AMPC_REDUCTIONS_H
#define AMPC_REDUCTIONS_H

#include "ir/ops/ops.h"

typedef enum ir_combine {
#define COMBINE(name, ...) IR_COMBINE_##name,
#include "ir/ops/reductions.def"
    IR_COMBINE_COUNT
} ir_combine;

typedef enum ir_finish {
#define FINISH(name, ...) IR_FINISH_##name,
#include "ir/ops/reductions.def"
    IR_FINISH_COUNT
} ir_finish;

typedef struct ir_reduction {
    ir_combine combine;
    ir_finish finish;
} ir_reduction;

/* The row of a reduction op. */
ir_reduction ir_reduction_of(ir_op op);
/* The row that combines partial results. */
ir_combine ir_combine_of_parts(ir_combine combine);
/* The combination of no elements: as a float, and as an integer or bool of type t. */
double ir_combine_start_float(ir_combine combine);
int64_t ir_combine_start_integer(ir_combine combine, ir_dtype t);

#endif
