/* normalization.h - what --normalize does to an input, as an entry of the module's metadata, from which exports of the
 * model file repeat it. */
#ifndef AMPC_NORMALIZATION_H
#define AMPC_NORMALIZATION_H

#include "ir/graph/ir.h"

#define IR_NORMALIZATION "normalize" /* the key of the entry */

/* The graph reads (x - shift) / scale instead of input x. The arrays have `count` elements, one per channel, or one for
 * all; `after` dimensions follow that of the channels. */
typedef struct ir_normalization {
    const char *input;
    int count, after;
    float *shift, *scale;
} ir_normalization;

void ir_normalization_set(ir_module *m, const ir_normalization *n);
/* Parses the entry; allocates in the arena. Fails with AMPC_REJECTED if it is malformed. */
ampc_status ir_normalization_parse(const char *text, arena *a, diag *d, ir_normalization *out);

/* The dimensions of the two constants, [IR_MAX_RANK]; returns their number. */
int ir_normalization_dims(const ir_normalization *n, int64_t *dims);

#endif
