/* program.h - runs a part of a fused kernel (fused.c), for the kernels that run one over their own results. */
#ifndef AMPC_CPU_PROGRAM_H
#define AMPC_CPU_PROGRAM_H

#include "kernels/cpu/cpu.h"
#include "kernels/fused.h"

/* Positions [first, end) of a kernel. The dense operand args->in[hot], -1: none, is still in the caches and begins with
 * the element of position `base`. */
typedef struct cpu_part {
    int64_t first, end;
    int hot;
    int64_t base;
} cpu_part;

/* args, with state and workspace, are those of cpu_fused. A kernel that folds rows has only one part. */
void cpu_program_run(const k_args *args, cpu_part part);

#endif
