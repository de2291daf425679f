/* attention_dnn.h - attention through cuDNN. */
#ifndef AMPC_CUDA_ATTENTION_DNN_H
#define AMPC_CUDA_ATTENTION_DNN_H

#include "kernels/cuda/cuda.h"

/* Supports attention without a mask in low types; `prepare` returns AMPC_UNSUPPORTED for any other call, `run` if an
 * address is not aligned. */
extern const k_kernel cuda_attention_dnn;

/* Prepares that kernel in *graph if the context tunes and it is faster than own(), which runs a call in this state;
 * otherwise *graph stays NULL. *workspace: in, what own() needs; out, enough for either. */
ampc_status cuda_attention_choose(const k_args *args, ampc_status (*own)(const k_args *args), void *state, void **graph,
                                  size_t *workspace);

#endif
