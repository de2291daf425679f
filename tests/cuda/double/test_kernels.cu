/* test_kernels.cu - kernels for the tests of the double. */
#include "kernels/cuda/device.cuh"

/* x[i] = x[i] * factor + term */
extern "C" __global__ void __launch_bounds__(256) double_test_scale(float *x, long long n, float factor, float term)
{
    for (long long i = grid_first(); i < n; i += grid_step()) x[i] = x[i] * factor + term;
}
AMPC_KERNEL(double_test_scale)

/* z[i] = x[i] + y[i] */
extern "C" __global__ void __launch_bounds__(256) double_test_add(float *z, const float *x, const float *y, long long n)
{
    for (long long i = grid_first(); i < n; i += grid_step()) z[i] = x[i] + y[i];
}
AMPC_KERNEL(double_test_add)
