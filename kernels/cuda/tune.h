/* tune.h - algorithm autotuning and its on-disk cache.
 *
 * Candidates are numbered by their position in the library's list, which depends only on its version and the device
 * (cuDNN's list is reordered, see DNN_RULES in dnn.h). A race runs while a kernel is prepared, on its own buffers with
 * the sizes of the operands, so it neither delays nor repeats work of a step. If the context does not tune
 * (k_context.tune), cached results are ignored too and the library's first proposal is used. */
#ifndef AMPC_CUDA_TUNE_H
#define AMPC_CUDA_TUNE_H

#include "kernels/cuda/cuda.h"

/* Returns the candidate of `library` (CUDA_LT or CUDA_DNN) that won race `key` before, or -1. The key names op, shapes,
 * strides, dtypes and epilogue; this function adds the device and the library's version. */
int cuda_tuned(const k_context *ctx, cuda_library library, const char *key);

/* Races n candidates. enqueue(user, i) runs candidate i once; candidates that fail are dropped. Sets *best to the index
 * of the fastest, or 0 if none ran, and caches its number which[*best]. Returns AMPC_DEVICE only if the device itself
 * fails. */
ampc_status cuda_tune(const k_context *ctx, cuda_library library, const char *key, int n, const int *which,
                      ampc_status (*enqueue)(void *user, int i), void *user, int *best);

/* Allocates device memory for a race, filled with bytes that are small positive numbers in every float type.
 * AMPC_NO_MEMORY: skip the race. */
ampc_status cuda_tune_buffer(const k_context *ctx, size_t bytes, void **out);
void cuda_tune_free(void *buffer); /* NULL allowed */

/* Frees the tuning results read from disk. */
void cuda_tune_close(cuda_context *c);

#endif
