/* matmul_dnn.h - matmuls whose epilogue only cuDNN has. */
#ifndef AMPC_CUDA_MATMUL_DNN_H
#define AMPC_CUDA_MATMUL_DNN_H

#include "kernels/cuda/cuda.h"

/* Supports large products of low types with exact GELU or its gradient; `prepare` returns AMPC_UNSUPPORTED for any
 * other call. */
extern const k_kernel cuda_matmul_dnn;

#endif
