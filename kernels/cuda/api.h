/* api.h - the CUDA libraries, loaded on demand and never linked.
 *
 * Building needs only their headers (of NCCL none), and the compiler checks every signature. Each library is loaded
 * separately on first use, so a network without convolutions runs on machines without cuDNN. */
#ifndef AMPC_CUDA_API_H
#define AMPC_CUDA_API_H

#include "ir/base/ampc_status.h"

#include "kernels/cuda/nccl.h"

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

/* One field per function, with the function's name: cuda.cudaMalloc(...). (Tests include this from C++, in which a
 * member may not hide a name used in its own declaration.) */
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

extern cuda_api cuda; /* functions of a library are valid after cuda_api_open(library) */

/* Loads a library. May be called repeatedly and from any thread. On failure returns AMPC_DEVICE and writes one line to
 * `error`: the library is missing, has another major version or lacks a function. For CUDA_RT it also fails if there is
 * no usable device. */
ampc_status cuda_api_open(cuda_library library, char *error, size_t error_size);

/* Returns whether a runtime error only means that this machine has no CUDA (no driver, no device, a stub driver).
 * Automatic device selection may then fall back to another device; all other errors have to be reported. */
bool cuda_error_is_absence(cudaError_t e);

/* Writes the file name of a library including its major version, such as "libcudart.so.13". */
void cuda_library_file(cuda_library library, char *out, size_t size);

/* The source of libraries and their functions. */
typedef struct cuda_provider {
    /* Returns a handle for `symbol`, or NULL with one line in `error`. */
    void *(*open)(cuda_library library, char *error, size_t error_size);
    /* Returns NULL if the function does not exist. */
    void *(*symbol)(void *handle, cuda_library library, const char *name);
} cuda_provider;

/* The dynamic loader. It searches for a library in the folders of AMPC_CUDA_PATH (separated by colons; also in their
 * subfolders lib64, lib and nvidia/NAME/lib), on the loader's default path, in /usr/local/cuda/lib64, and in the nvidia
 * wheels of the active Python (VIRTUAL_ENV, CONDA_PREFIX, the python3 on PATH, the user's site-packages). */
extern const cuda_provider cuda_system;

/* For tests: discards all loaded libraries and uses `provider` (NULL: cuda_system) from now on. */
void cuda_api_provide(const cuda_provider *provider);

#endif
