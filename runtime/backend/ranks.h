/* ranks.h - the ranks of a program that mpirun or srun has started: opening the collectives of kernels/ranks.h.
 *
 * Messages go through a plug-in (runtime/mpi/plugin.h) of the MPI library that the launcher belongs to. Ranks that
 * run on one host exchange tensors in memory that they share. */
#ifndef RT_RANKS_H
#define RT_RANKS_H

#include "ir/base/diag.h"
#include "kernels/ranks.h"

typedef struct rt_ranks_options {
    double timeout; /* seconds that a rank may be waited for */
} rt_ranks_options;

/* Whether the environment says that a launcher has started more than one process of this program. */
bool rt_ranks_launched(void);
/* Opens the ranks if this program was launched on more than one; otherwise *out is NULL. All ranks call it.
 * AMPC_DEVICE if the plug-in is missing, or belongs to another MPI than the launcher. The share of a rank is 1/count
 * until the caller sets it. */
ampc_status rt_ranks_open(const rt_ranks_options *options, diag *d, k_ranks **out);
/* Ends the ranks; NULL allowed. AMPC_OK: all ranks call it. Another status: only this one ends, before the others do:
 * they find out, and the program, which has reported its error, must end without calling exit, because MPI would wait
 * for them there (rt_ranks_failed). */
void rt_ranks_close(k_ranks *r, ampc_status status);
/* Whether a rank was closed with another status than AMPC_OK: then the program ends with _exit. */
bool rt_ranks_failed(void);
/* The host of a rank. */
const char *rt_ranks_host(const k_ranks *r, int index);

#endif
