/* samples.h - which values of a graph have an axis of samples, by the symbol that counts them. */
#ifndef AMPC_SAMPLES_H
#define AMPC_SAMPLES_H

#include "ir/graph/ir.h"

enum { SAMPLES_DATA = 1, SAMPLES_AXIS = 2 }; /* depends on inputs; has an axis of samples */

typedef struct samples {
    unsigned char *marks; /* by value id */
    ir_dim_table *dims;
    ir_dim batch;        /* the number of samples: a symbol, a number, or IR_DIM_NONE */
    const ir_dim *twice; /* all symbols, but twice the number of samples; NULL: it is a number */
} samples;

/* Renumbers the graph. */
samples samples_find(ir_graph *g, arena *a);
unsigned samples_mark(const samples *s, const ir_value *v);

#endif
