/* inner.h - what stands behind the doors of the double: its own functions and those of the installed libraries,
 * uncounted and never failing by order. For the doubles of libraries. */
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

extern cuda_api double_inner; /* valid for libraries that were opened */
extern const cuda_provider double_provider; /* what double_install provides; it reads the environment when first used */

#ifdef __cplusplus
}
#endif
#endif
