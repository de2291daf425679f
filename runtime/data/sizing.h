/* sizing.h - how large the inputs of an entry graph are when they hold a batch of samples.
 *
 * One symbol counts the samples: that of the first dimension of the first input. All dimensions of all inputs are
 * evaluated with this symbol bound to the batch size, so a leading dimension may be any expression in it: labels of
 * 128 tokens a sample are i64[128*N]. The other symbols take their sizes from the data. */
#ifndef RT_SIZING_H
#define RT_SIZING_H

#include "runtime/data/data.h"
#include "runtime/session/batch.h"

typedef struct rt_sizing {
    const ir_graph *graph;
    int64_t *sizes; /* by symbol, -1: not known yet */
    size_t symbol;  /* that counts samples, or RT_NO_SYMBOL */
    int64_t batch;
    int64_t *trial; /* work space like `sizes` */
} rt_sizing;

/* `sizes`: given by the caller, NULL: none. `batch` 0: the fixed batch. AMPC_USAGE when the batch is missing or is not
 * the fixed one, AMPC_REJECTED when more than one symbol could count samples. Close in any case. */
ampc_status rt_sizing_open(rt_sizing *z, const ir_graph *g, const int64_t *sizes, int64_t batch, diag *d);
/* The same with every open symbol as 1 and, if the batch is not fixed, a batch of 1. */
ampc_status rt_sizing_open_smallest(rt_sizing *z, const ir_graph *g, const int64_t *sizes, diag *d);
void rt_sizing_close(rt_sizing *z);

/* Finds sizes of open symbols from one sample that is to feed the input; true when one was found. */
bool rt_sizing_learn(rt_sizing *z, const ir_value *v, const rt_field *f);
/* The shape of the input; false when a symbol is open or a size is too large or negative. */
bool rt_sizing_shape(const rt_sizing *z, const ir_value *v, int64_t *dims);
/* Whether `batch` samples fill the input exactly. AMPC_REJECTED, naming input, field and sizes, if not. */
ampc_status rt_sizing_check(const rt_sizing *z, const ir_value *v, const rt_field *f, diag *d);
/* Whether the input grows with the number of samples. */
bool rt_sizing_varies(const rt_sizing *z, const ir_value *v);

#endif
