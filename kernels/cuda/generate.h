/* generate.h - kernels whose source is generated during planning. NVRTC compiles all new ones together.
 *
 * Compiled code is cached on disk. The key covers the source, the embedded headers, the device architecture and the
 * version of the CUDA runtime, which NVRTC shares. If all kernels are cached, NVRTC is not even loaded. Equal sources
 * share one kernel. */
#ifndef AMPC_CUDA_GENERATE_H
#define AMPC_CUDA_GENERATE_H

#include "kernels/cuda/cuda.h"

typedef struct cuda_generated {
    char name[32];
    char *text;          /* source code after the kernel's name */
    cudaKernel_t kernel; /* NULL until cuda_prepared */
    struct cuda_generated *next;
} cuda_generated;

/* Returns the kernel with this source, to be launched with at most CUDA_BLOCK threads per block. Frees `text`
 * (malloc'ed) or keeps it in the context, which owns *out. Call only from prepare. */
ampc_status cuda_generate(const k_context *ctx, char *text, const cuda_generated **out);

/* Frees all generated kernels. */
void cuda_generate_close(cuda_context *c);

/* Embedded headers, with the names by which generated sources include them (generated from the tree). */
typedef struct cuda_header {
    const char *name, *text;
} cuda_header;
extern const cuda_header cuda_headers[];
extern const int cuda_header_count;

#endif
