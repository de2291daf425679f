/* custom.h - kernels of custom operators on any device: they call the functions that the operator has registered. */
#ifndef AMPC_KERNELS_CUSTOM_H
#define AMPC_KERNELS_CUSTOM_H

#include "kernels/kernel.h"

/* A device's functions in the table of an operator. */
typedef struct custom_device {
    const char *name;
    ampc_forward *(*forward)(const ampc_operator *table);
    ampc_forward *(*gradient)(const ampc_operator *table);
} custom_device;

/* As in k_kernel, for the ops custom and custom_grad. `prepare` looks up the operator and calls its inference, whose
 * results must be those of the node. */
ampc_status custom_prepare(const k_args *args, const custom_device *device, void **state, size_t *workspace);
ampc_status custom_run(const k_args *args, void *stream);
void custom_release(void *state);

#endif
