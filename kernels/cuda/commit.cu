/* commit.cu - the copy at the end of a step: writes new values to storage unless an earlier kernel set a fault. */
#include "kernels/cuda/device.cuh"

/* 16 bytes per thread; both addresses are 256-byte aligned. */
extern "C" __global__ void __launch_bounds__(256) commit(char *dst, const char *src, long long n, const int *fault)
{
    if (!fault_none(fault)) return;
    for (long long at = grid_first() * 16; at < n; at += grid_step() * 16) {
        if (n - at >= 16) {
            *reinterpret_cast<uint4 *>(dst + at) = *reinterpret_cast<const uint4 *>(src + at);
        } else {
            for (long long i = at; i < n; i++) dst[i] = src[i];
        }
    }
}
AMPC_KERNEL(commit)
