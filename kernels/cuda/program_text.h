/* program_text.h - the text of the kernel that computes a program. */
#ifndef AMPC_CUDA_PROGRAM_TEXT_H
#define AMPC_CUDA_PROGRAM_TEXT_H

#include "kernels/cuda/reduce.h"
#include "kernels/program.h"

/* What the kernel reads and writes. */
typedef struct program_types {
    const ir_dtype *in;  /* by operand */
    const ir_dtype *out; /* by result */
} program_types;

/* How many rows are summed. */
static inline int64_t program_rows(const k_program *p)
{
    for (int r = 0; r < p->n_results; r++)
        if (p->results[r].fold) return p->count / p->row;
    return 0;
}

/* Everything behind the kernel's name, from its arguments on (program.cuh has the words); malloc'ed, NULL: no memory.
 * *tile: elements of a thread at a time. `cut`: how the rows are summed, where a result is folded. Equal programs on
 * equal types have equal texts; count > 0, no f64, no own result. */
char *program_text(const k_program *program, const program_types *types, const cuda_row_cut *cut, int *tile);

#endif
