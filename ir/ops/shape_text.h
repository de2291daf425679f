/* shape_text.h - element types and shapes as text: "f32[N,784]". */
#ifndef AMPC_SHAPE_TEXT_H
#define AMPC_SHAPE_TEXT_H

#include "ir/ops/dim.h"
#include "ir/ops/ops.h"

enum { IR_SHAPE_TEXT = 64 + 21 * IR_MAX_RANK };

/* `dtype` is the name of the element type, usually of ir_dtype_name; `table` is NULL if all dimensions are numbers. */
void ir_shape_add(text_buffer *t, const char *dtype, const ir_dim_table *table, int rank, const int64_t *dims);
/* Prints a shape of numbers to `out` and returns it. */
const char *ir_shape_text(char out[IR_SHAPE_TEXT], const char *dtype, int rank, const int64_t *dims);

#endif
