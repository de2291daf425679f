/* visit.h - gradients of weights that are used part by part instead of being stored, for updates (optimizer.c). */
#ifndef AMPC_VISIT_H
#define AMPC_VISIT_H

#include "kernels/cpu/gemm.h"

/* Whether own code computes result 0 of args->op, a conv_grad_weight or matmul, without an epilogue. */
bool cpu_conv_can_be_visited(const k_args *args);
bool cpu_matmul_can_be_visited(const k_args *args);
/* The workspace size in bytes, and the computation, which cannot fail. args->out[0].data is not NULL, but not used. */
size_t cpu_conv_visit_workspace(const k_args *args, gemm_visit *visit);
size_t cpu_matmul_visit_workspace(const k_args *args, gemm_visit *visit);
void cpu_conv_visit(const k_args *args, gemm_visit *visit, void *user);
void cpu_matmul_visit(const k_args *args, gemm_visit *visit, void *user);

#endif
