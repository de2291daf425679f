/* panels.h - products of operands that the processor does not multiply as they are (cpu_computes), for matmul.c. */
#ifndef AMPC_PANELS_H
#define AMPC_PANELS_H

#include "kernels/cpu/tiles.h"
#include "kernels/product.h"

/* args->op is matmul, p its product: no batch dimensions, not empty. Operands of any type but f64. */
size_t cpu_panels_workspace(const k_args *args, const product *p);
/* `tail`: computed from the sums and the bias before these are rounded; NULL: none. */
ampc_status cpu_panels_run(const k_args *args, const product *p, cpu_tile_fn *tail);

#endif
