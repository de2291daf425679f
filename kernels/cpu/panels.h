/* panels.h - matmul by own code, for matmul.c. */
#ifndef AMPC_PANELS_H
#define AMPC_PANELS_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tiles.h"
#include "kernels/matmul.h"

/* The type in which the operands are multiplied: a low one if both have it and the processor can, else f32. */
ir_dtype cpu_panels_type(const k_args *args);
/* args->op is matmul, p its product, not empty. Operands may have any type but f64. The workspace size is in bytes. */
size_t cpu_panels_workspace(const k_args *args, const product *p);
/* `tail` is applied to sums plus bias before they are rounded; NULL: no activation. */
void cpu_panels_run(const k_args *args, const product *p, cpu_tile_fn *tail);
/* The same for a product without batch dimensions, of which nothing is stored. */
size_t cpu_panels_visit_workspace(const k_args *args, const product *p, gemm_visit *visit);
void cpu_panels_visit(const k_args *args, const product *p, gemm_visit *visit, void *user);

#endif
