/* conv_race.h - whether a convolution should sum its result (conv_race.c). */
#ifndef AMPC_CUDA_CONV_RACE_H
#define AMPC_CUDA_CONV_RACE_H

#include "kernels/cuda/cuda.h"

/* Races a convolution with sums, which the device supports, against separate steps, unless that was done before.
 * AMPC_UNSUPPORTED: these are faster. */
ampc_status cuda_race_statistics(const k_args *args);

#endif
