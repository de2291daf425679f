/* fused_text.h - generates the source of a fused kernel. */
#ifndef AMPC_CUDA_FUSED_TEXT_H
#define AMPC_CUDA_FUSED_TEXT_H

#include "kernels/cuda/reduce.h"
#include "kernels/fused.h"

/* Types of the kernel's operands and results. */
typedef struct fused_types {
    const ir_dtype *in;  /* by operand */
    const ir_dtype *out; /* by result */
} fused_types;

/* Number of rows that are summed; 0 without folded results. */
static inline int64_t fused_rows(const k_fused *p)
{
    for (int r = 0; r < p->n_results; r++)
        if (p->results[r].fold) return p->count / p->row;
    return 0;
}

/* Returns the source after the kernel's name, starting with its parameters; malloc'ed, NULL if out of memory. It uses
 * the functions of fused.cuh. *tile: elements per thread and iteration. `cut`: how rows are summed if a result is
 * folded. Equal inputs give equal sources. Requires count > 0, no f64 and no K_ACCUMULATOR. */
char *fused_text(const k_fused *fused, const fused_types *types, const cuda_row_cut *cut, int *tile);

#endif
