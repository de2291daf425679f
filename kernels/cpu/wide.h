/* wide.h - whole operands and results in the carrier type: their own data, or copies in the workspace. */
#ifndef AMPC_CPU_WIDE_H
#define AMPC_CPU_WIDE_H

#include "kernels/cpu/cpu.h"

/* The bytes of the copies of all operands and results that are floats of another type. */
size_t cpu_wide_bytes(const k_args *args, ir_dtype carrier);
/* An operand in the carrier type; a copy is placed at *at, which is advanced. */
const void *cpu_widen(const k_view *v, ir_dtype carrier, char **at);
/* The buffer in which to compute a result. Pass it to cpu_narrow afterwards. */
void *cpu_wide_target(const k_view *v, ir_dtype carrier, char **at);
void cpu_narrow(const k_view *v, ir_dtype carrier, const void *from);

#endif
