/* tune.h - which of a library's algorithms is the fastest here: measured once, remembered on disk.
 *
 * Candidates are numbered by their position in the library's own list, which depends on its version and the device
 * alone (cuDNN's is reordered: dnn.h, DNN_RULES). A race runs when a kernel is prepared, on buffers of its own of the
 * sizes of the operands: nothing of a step is delayed or run twice. Where the context does not tune (k_context.tune),
 * what is remembered is not read either: the library's first proposal is taken. */
#ifndef AMPC_CUDA_TUNE_H
#define AMPC_CUDA_TUNE_H

#include "kernels/cuda/cuda.h"

/* The candidate of `library` (CUDA_LT, CUDA_DNN) that won the race `key` before, or -1. A key names op, shapes,
 * strides, dtypes and epilogue; the device and the library's version are added here. */
int cuda_tuned(const k_context *ctx, cuda_library library, const char *key);

/* Races n candidates: enqueue(user, i) runs the i-th once; one that fails is out. *best is the index of the fastest,
 * 0 when none ran; which[*best], its number, is remembered. AMPC_DEVICE only when the device itself fails. */
ampc_status cuda_tune(const k_context *ctx, cuda_library library, const char *key, int n, const int *which,
                      ampc_status (*enqueue)(void *user, int i), void *user, int *best);

/* Device memory for a race, filled with small positive numbers of whatever float type. AMPC_NO_MEMORY: no race. */
ampc_status cuda_tune_buffer(const k_context *ctx, size_t bytes, void **out);
void cuda_tune_free(void *buffer); /* NULL allowed */

/* Forgets what was read from disk. */
void cuda_tune_close(cuda_context *c);

#endif
