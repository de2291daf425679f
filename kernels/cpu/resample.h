/* resample.h - tables of resized axes on the CPU. */
#ifndef AMPC_CPU_RESAMPLE_H
#define AMPC_CPU_RESAMPLE_H

#include "kernels/cpu/cpu.h"
#include "kernels/resizing.h"

/* Element o of the result is the sum of weight * element `index` over its first counts[o] of `taps` taps. The other
 * taps repeat the last one and share its weight, so loops over all results need no branch. Both lists are
 * [taps][out]. */
typedef struct cpu_taps {
    int64_t in, out;
    int taps;
    bool clears;    /* some counts are 0 in the forward direction: the value is the attribute `outside` */
    int64_t factor; /* index = o / factor, or 0 */
    int32_t *counts, *index;
    void *weights; /* carriers */
} cpu_taps;

/* The table of an axis, or of its transpose in the backward direction. False: out of memory. */
bool cpu_taps_make(const resample_axis *a, bool backward, ir_dtype carrier, cpu_taps *out);
void cpu_taps_free(cpu_taps *t);
/* Copies the block of `block` bytes that each result selects; one that selects none repeats the `size` bytes at
 * `outside`. */
void cpu_select_row(const cpu_taps *t, size_t block, const void *x, void *y, const void *outside, size_t size);

#endif
