/* batch_norm_count.h - division by the number of elements per channel. */
#ifndef AMPC_BATCH_NORM_COUNT_H
#define AMPC_BATCH_NORM_COUNT_H

#include "ir/graph/ir.h"

/* v over the number of elements of x [N,C,..] per channel, or over this number less `less`, but at least 1. */
ir_value *batch_norm_share(ir_builder *b, ir_value *v, const ir_type *x, int64_t less);
/* Whether a node divides by such a number less 1. */
bool batch_norm_divides_by_less(const ir_node *n);

#endif
