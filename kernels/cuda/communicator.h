/* communicator.h - what a device of one rank needs to reach the devices of the others, by NCCL.
 *
 * Collectives run on a stream of their own, in the order of the calls, which is the same on all ranks. Waiting for the
 * device always ends: cuda_communicator_wait polls, so that a rank that has ended or hangs is an error, after which the
 * communicator is aborted and every call fails. */
#ifndef AMPC_CUDA_COMMUNICATOR_H
#define AMPC_CUDA_COMMUNICATOR_H

#include "kernels/cuda/cuda.h"
#include "kernels/ranks.h"

typedef struct cuda_communicator {
    ncclComm_t comm;
    cudaStream_t stream; /* of collectives */
    cudaEvent_t fork;    /* what a collective waits for */
    float *share;        /* device memory: the share of this rank, read by the steps */
    double sent;         /* what is there, or will be when the enqueued work is done */
    cudaKernel_t set;
    bool failed; /* `comm` has been aborted */
} cuda_communicator;

/* For a context with more than one rank, when the rest of it has been opened, or has failed with `status`. Waits for
 * the other ranks, of which all fail if one cannot begin. */
ampc_status cuda_communicator_open(const k_context *ctx, ampc_status status);
void cuda_communicator_close(const k_context *ctx);
/* Waits for an event, or all work of the context's stream if it is NULL. */
ampc_status cuda_communicator_wait(const k_context *ctx, cudaEvent_t event);
/* Enqueues what changes between runs. Call before steps are issued, recorded or replayed; does nothing if nothing has
 * changed. Fails if the communicator has failed. */
ampc_status cuda_communicator_refresh(const k_context *ctx);
/* Converts the status of a call: waits until a call that is in progress is complete. */
ampc_status cuda_communicator_status(const k_context *ctx, ncclResult_t result, const char *call);
#define CUDA_NCCL_CALL(ctx, call) CUDA_FORWARD(cuda_communicator_status(ctx, cuda.call, #call))

#endif
