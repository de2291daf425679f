/* ranks.h - what the collective kernels share. */
#ifndef AMPC_CPU_RANKS_H
#define AMPC_CPU_RANKS_H

#include "kernels/ranks.h"
#include "kernels/cpu/cpu.h"

/* Stores x times `factor` at to->data, in the type of `to`. */
void cpu_wire_pack(const k_args *args, const k_view *x, double factor, k_view *to);
/* The reverse: fills y from from->data. */
void cpu_wire_unpack(const k_args *args, const k_view *from, k_view *y);
/* Reports the error of the ranks. */
ampc_status cpu_ranks_failed(const k_args *args, ampc_status status);

#endif
