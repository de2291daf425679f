/* sizing.h - computes the shapes of the inputs of an entry graph for a batch of samples.
 *
 * The symbol of the first dimension of the first input counts the samples. All dimensions of all inputs are evaluated
 * with this symbol bound to the batch size, so a leading dimension may be any expression in it, such as i64[128*N]
 * for labels of 128 tokens per sample. The data determine the sizes of all other symbols. An exporter may use a symbol
 * of its own for each input: the first dimension of an input whose samples have all its other dimensions counts them,
 * too.
 *
 * The sample axis of an input is the only dimension that depends on the batch, such as the second one of a state
 * f32[layers,N,units], or the first one if none or several do. If the batch is fixed, it is the first dimension if that
 * is a multiple of the batch, otherwise the first one that equals it. An input without a sample axis, such as a scalar
 * or f32[2,4,32] in a fixed batch of 9, is the same for every batch. */
#ifndef RT_SIZING_H
#define RT_SIZING_H

#include "runtime/data/data.h"
#include "runtime/session/batch.h"

typedef struct rt_sizing {
    const ir_graph *graph;
    int64_t *sizes; /* by symbol; -1: not known yet */
    bool *counts;   /* by symbol: whether it counts samples */
    size_t symbol;  /* the first one of them, or RT_NO_SYMBOL */
    int64_t batch;
    int64_t *trial; /* scratch array like `sizes` */
} rt_sizing;

/* `sizes`: symbol sizes set by the caller, or NULL. `batch` 0: the fixed batch. Fails with AMPC_USAGE if the batch is
 * missing or differs from the fixed one, AMPC_REJECTED if more than one symbol could count samples. The caller closes
 * `z` also on failure. */
ampc_status rt_sizing_open(rt_sizing *z, const ir_graph *g, const int64_t *sizes, int64_t batch, diag *d);
/* The same for a batch of one sample if the batch is not fixed; rt_sizing_set_unbound then sets the size
 * of every unbound symbol to 1. */
ampc_status rt_sizing_open_smallest(rt_sizing *z, const ir_graph *g, const int64_t *sizes, diag *d);
void rt_sizing_set_unbound(rt_sizing *z);
void rt_sizing_close(rt_sizing *z);

/* The sample axis of input `v`; -1: it has none. */
int rt_sizing_axis(const rt_sizing *z, const ir_value *v);

/* Derives sizes of unbound symbols from the shape of field `f` for input `v`; true if it found any. */
bool rt_sizing_learn(rt_sizing *z, const ir_value *v, const rt_field *f);
/* Sets the number of samples. */
void rt_sizing_set_batch(rt_sizing *z, int64_t batch);
/* Reports all symbols of the inputs of the graph that are not known, at once (AMPC_REJECTED). */
ampc_status rt_sizing_check_open(const rt_sizing *z, diag *d);
/* Computes the shape of the input; false if a symbol is unbound or a size is too large or negative. */
bool rt_sizing_shape(const rt_sizing *z, const ir_value *v, int64_t *dims);
/* Checks that `batch` samples, or a whole field, fill the input, whose symbols are known, exactly. Fails with
 * AMPC_REJECTED, naming input, field and sizes. */
ampc_status rt_sizing_check(const rt_sizing *z, const ir_value *v, const rt_field *f, diag *d);
/* True if the input grows with the number of samples. */
bool rt_sizing_varies(const rt_sizing *z, const ir_value *v);

#endif
