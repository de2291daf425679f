/* inner.h - direct access to the double's functions and those of the installed libraries, without counting calls or injecting
 * failures. For the library doubles. */
#ifndef TESTS_CUDA_DOUBLE_INNER_H
#define TESTS_CUDA_DOUBLE_INNER_H

#include "tests/cuda/double/double.h"

#include <cublasLt.h>
#include <cudnn_graph.h>
#include <nvrtc.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/cuda/api.h"

extern cuda_api double_inner;               /* valid for libraries that were opened */
extern const cuda_provider double_provider; /* installed by double_install; reads the environment on first use */

#ifdef __cplusplus
}
#endif
#endif
