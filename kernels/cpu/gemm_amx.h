/* gemm_amx.h - products of a low type, for gemm.c. */
#ifndef AMPC_GEMM_AMX_H
#define AMPC_GEMM_AMX_H

#include "kernels/cpu/gemm.h"

/* See gemm_workspace and gemm_run. */
size_t gemm_amx_workspace(const gemm *g, const k_context *ctx);
void gemm_amx_run(const gemm *g, void *workspace, const k_context *ctx);

#endif
