/* record.h - the parts of gpu-record; each writes one file. */
#ifndef TESTS_GPU_RECORD_H
#define TESTS_GPU_RECORD_H

#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

/* Captures launches with our largest arguments (update tables, 16 and 20 KiB) into CUDA graphs, replays them
 * and checks the results. Writes them to f. */
ampc_status record_arguments(const k_context *ctx, FILE *f);

#endif
