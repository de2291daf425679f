/* det.cu - determinants of matrices and their gradient, in f64: one thread per matrix, which it copies to the
 * workspace. */
#include "kernels/cuda/det.h"
#include "kernels/cuda/tile.cuh"
#include "kernels/determinant.h"

static __device__ __forceinline__ double *load_matrix(const det_batch &b, long long m)
{
    double *a = b.space + m * b.each;
    for (long long i = 0; i < b.size * b.size; i++)
        a[i] = (double)element_load<float>(b.x, b.dtype, m * b.size * b.size + i);
    return a;
}

extern "C" __global__ void __launch_bounds__(DET_BLOCK) det(det_batch b)
{
    for (long long m = grid_first(); m < b.count; m += grid_step())
        element_store<float>(b.y, b.dtype, m, (float)det_factor(load_matrix(b, m), b.size, nullptr, nullptr));
}
AMPC_KERNEL(det)

extern "C" __global__ void __launch_bounds__(DET_BLOCK) det_grad(det_batch b)
{
    for (long long m = grid_first(); m < b.count; m += grid_step()) {
        double *a = load_matrix(b, m);
        const double d = (double)element_load<float>(b.dy, b.dtype, m);
        det_cofactors(a, b.size, a + b.size * b.size);
        for (long long i = 0; i < b.size * b.size; i++)
            element_store<float>(b.y, b.dtype, m * b.size * b.size + i, (float)(d * a[i]));
    }
}
AMPC_KERNEL(det_grad)
