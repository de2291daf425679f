/* double_fixture.h - streams, events, memory and kernels on the double of the CUDA runtime, for its tests. */
#ifndef TESTS_CUDA_DOUBLE_FIXTURE_H
#define TESTS_CUDA_DOUBLE_FIXTURE_H

#include "kernels/cuda/api.h"
#include "tests/cuda/double/double.h"
#include "tests/test.h"

enum { COUNT = 1000, BYTES = COUNT * 4, MODES = 7 };

static const long modes[MODES] = {DOUBLE_EAGER, DOUBLE_LAZY, 1, 2, 3, 4, 5};

static inline int setup(void **state)
{
    char error[256];
    (void)state;
    double_install();
    double_reset();
    double_mode(DOUBLE_EAGER);
    ampc_status status = cuda_api_open(CUDA_RT, error, sizeof error);
    if (status) print_error("%s\n", error);
    return status;
}

static inline int teardown(void **state)
{
    (void)state;
    double_reset();
    return 0;
}

static inline cudaError_t launch_scale(cudaKernel_t kernel, float *x, float factor, float term, cudaStream_t stream)
{
    long long n = COUNT;
    void *arguments[] = {&x, &n, &factor, &term};
    return cuda.cudaLaunchKernel((const void *)kernel, (dim3){4, 1, 1}, (dim3){256, 1, 1}, arguments, 0, stream);
}

typedef struct fixture {
    cudaStream_t a, b;
    cudaEvent_t event, other;
    cudaLibrary_t library;
    cudaKernel_t scale, add;
    float *x, *y, *z; /* on the device */
    float *host;      /* pinned */
} fixture;

static inline void must(cudaError_t e)
{
    if (e) fail_msg("error %d: %s", (int)e, double_reason());
}

static inline fixture begin(long mode)
{
    fixture f;
    double_reset();
    double_mode(mode);
    must(cuda.cudaStreamCreateWithFlags(&f.a, cudaStreamNonBlocking));
    must(cuda.cudaStreamCreateWithFlags(&f.b, cudaStreamNonBlocking));
    must(cuda.cudaEventCreateWithFlags(&f.event, cudaEventDisableTiming));
    must(cuda.cudaEventCreateWithFlags(&f.other, cudaEventDisableTiming));
    must(cuda.cudaLibraryLoadData(&f.library, "code", NULL, NULL, 0, NULL, NULL, 0));
    must(cuda.cudaLibraryGetKernel(&f.scale, f.library, "double_test_scale"));
    must(cuda.cudaLibraryGetKernel(&f.add, f.library, "double_test_add"));
    must(cuda.cudaMalloc((void **)&f.x, BYTES));
    must(cuda.cudaMalloc((void **)&f.y, BYTES));
    must(cuda.cudaMalloc((void **)&f.z, BYTES));
    must(cuda.cudaMallocHost((void **)&f.host, BYTES));
    must(cuda.cudaMemsetAsync(f.x, 0, BYTES, f.a));
    must(launch_scale(f.scale, f.x, 1, 0, f.a));
    must(cuda.cudaStreamSynchronize(f.a));
    return f;
}

static inline float first_of(const fixture *f, const float *x)
{
    must(cuda.cudaMemcpyAsync(f->host, x, BYTES, cudaMemcpyDeviceToHost, f->a));
    must(cuda.cudaStreamSynchronize(f->a));
    return f->host[0];
}

#endif
