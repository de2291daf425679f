/* generate.h - kernels whose text is made with a plan: compiled by NVRTC, all that are new at once.
 *
 * The code is remembered on disk by the text, the headers, the device's architecture and the version of the runtime,
 * with which NVRTC comes; where it is there, NVRTC is not even opened. Equal texts are one kernel of the device. */
#ifndef AMPC_CUDA_GENERATE_H
#define AMPC_CUDA_GENERATE_H

#include "kernels/cuda/cuda.h"

typedef struct cuda_generated {
    char name[32];
    char *text;          /* what stands behind the kernel's name */
    cudaKernel_t kernel; /* NULL until cuda_prepared */
    struct cuda_generated *next;
} cuda_generated;

/* The kernel of this text (malloc'ed; taken over), launched with at most CUDA_BLOCK threads a block; it belongs to the
 * context. Only in prepare. */
ampc_status cuda_generate(const k_context *ctx, char *text, const cuda_generated **out);

/* Forgets all kernels. */
void cuda_generate_close(cuda_context *c);

/* The headers that texts include, by the name that they include them by (generated from the tree). */
typedef struct cuda_header {
    const char *name, *text;
} cuda_header;
extern const cuda_header cuda_headers[];
extern const int cuda_header_count;

#endif
