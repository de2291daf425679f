/* api.h - the CUDA libraries behind one door: opened on demand, never linked.
 *
 * Only their headers are needed to build; a wrong signature cannot compile. Each library is opened by itself, when
 * something first needs it, so that a network without convolutions runs where there is no cuDNN. */
#ifndef AMPC_CUDA_API_H
#define AMPC_CUDA_API_H

#include "ir/ampc_status.h"

#include <stdbool.h>
#include <stddef.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <nvrtc.h>

typedef enum cuda_library {
#define CUDA_LIBRARY(id, name, major, title) CUDA_##id,
#include "kernels/cuda/api.def"
    CUDA_LIBRARIES
} cuda_library;

/* A field for each function, named like it: cuda.cudaMalloc(...). (Tests see it from C++, which wants to know that the
 * type is that of the function, not of the field.) */
#ifdef __cplusplus
#define CUDA_TYPE(function) decltype(&::function)
#else
#define CUDA_TYPE(function) __typeof__(&function)
#endif
typedef struct cuda_api {
#define CUDA_FUNCTION(id, function) CUDA_TYPE(function) function;
#include "kernels/cuda/api.def"
} cuda_api;
#undef CUDA_TYPE

extern cuda_api cuda; /* the functions of a library are valid after cuda_api_open(library) */

/* Opens a library; any number of times, from any thread. On failure AMPC_DEVICE and one line in `error`: the library
 * is not there, is of another major version or lacks a function; for CUDA_RT also: there is no usable device. */
ampc_status cuda_api_open(cuda_library library, char *error, size_t error_size);

/* Whether an error of the runtime only says that this machine has no CUDA (no driver, no device, the stub of a driver):
 * whoever chooses a device by himself may take another one. Every other error is a fault to report. */
bool cuda_error_is_absence(cudaError_t e);

/* The file name that a library is opened by: with its major version, "libcudart.so.13". */
void cuda_library_file(cuda_library library, char *out, size_t size);

/* Where libraries and their functions come from. */
typedef struct cuda_provider {
    /* A handle for `symbol`; NULL with one line in `error`. */
    void *(*open)(cuda_library library, char *error, size_t error_size);
    /* NULL: there is no such function. */
    void *(*symbol)(void *handle, cuda_library library, const char *name);
} cuda_provider;

/* The dynamic loader. A library is looked for in the folders of AMPC_CUDA_PATH (separated by colons; also in their
 * lib64, lib and nvidia/NAME/lib), then where the loader looks, in /usr/local/cuda/lib64, and among the nvidia wheels
 * of the active Python (VIRTUAL_ENV, CONDA_PREFIX, the python3 on PATH, the user's own packages). */
extern const cuda_provider cuda_system;

/* For tests: takes everything from `provider` from now on (NULL: cuda_system) and forgets what was opened. */
void cuda_api_provide(const cuda_provider *provider);

#endif
