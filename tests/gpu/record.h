/* record.h - the parts of gpu-record; each writes one file. */
#ifndef TESTS_GPU_RECORD_H
#define TESTS_GPU_RECORD_H

#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

/* Captures launches with the largest arguments that we have (update tables, 16 and 20 KiB) into CUDA graphs, replays
 * them and checks what they computed. */
ampc_status record_arguments(const k_context *ctx, FILE *f);

#endif
