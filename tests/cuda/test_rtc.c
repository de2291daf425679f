/* test_rtc.c - the double of NVRTC: source becomes device code and a simulator kernel; errors of the device compiler are
 * reported. */

#include "kernels/cuda/cuda.h"
#include "tests/cuda/double/double.h"
#include "tests/test.h"

static char error[512];
static k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};

static const char header[] = "#pragma once\n"
                             "#ifndef CUDASIM_H\n"
                             "#define AMPC_KERNEL(name)\n"
                             "#endif\n";
static const char scale[] =
    "#include \"kernel.cuh\"\n"
    "extern \"C\" __global__ void __launch_bounds__(64) scaled(float *y, const float *x, int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) y[i] = FACTOR * x[i];\n"
    "}\n"
    "AMPC_KERNEL(scaled)\n";

static void must(ampc_status status)
{
    if (status != AMPC_OK) fail_msg("%s", error);
}

static int open_libraries(void **state)
{
    (void)state;
    must(cuda_context_open(&ctx, 0));
    must(cuda_api_open(CUDA_RTC, error, sizeof error));
    return 0;
}

static int close_libraries(void **state)
{
    char left[256];
    (void)state;
    cuda_context_close(&ctx);
    if (double_live(left, sizeof left)) fail_msg("left: %s", left);
    return 0;
}

static nvrtcResult build(const char *text, const char *option, nvrtcProgram *program)
{
    const char *headers[] = {header}, *names[] = {"kernel.cuh"}, *options[] = {"--gpu-architecture=sm_90", option};
    assert_int_equal(cuda.nvrtcCreateProgram(program, text, "kernel.cu", 1, headers, names), NVRTC_SUCCESS);
    return cuda.nvrtcCompileProgram(*program, 2, options);
}

/* Loads the device code as a library and returns its kernel. */
static cudaKernel_t load(nvrtcProgram program, cudaLibrary_t *library)
{
    size_t bytes = 0;
    cudaKernel_t kernel;
    assert_int_equal(cuda.nvrtcGetCUBINSize(program, &bytes), NVRTC_SUCCESS);
    assert_true(bytes > 1000);
    char *code = malloc(bytes);
    assert_int_equal(cuda.nvrtcGetCUBIN(program, code), NVRTC_SUCCESS);
    assert_memory_equal(code, "\177ELF", 4);
    assert_int_equal(cuda.cudaLibraryLoadData(library, code, NULL, NULL, 0, NULL, NULL, 0), cudaSuccess);
    free(code);
    assert_int_equal(cuda.cudaLibraryGetKernel(&kernel, *library, "scaled"), cudaSuccess);
    return kernel;
}

/* Computes y = FACTOR * x for 100 elements; returns y[99]. */
static float run(cudaKernel_t kernel)
{
    enum { N = 100 };
    int n = N;
    float *device, *host;
    cudaStream_t stream = cuda_of(&ctx)->stream;
    assert_int_equal(cuda.cudaMalloc((void **)&device, 2 * N * sizeof *device), cudaSuccess);
    assert_int_equal(cuda.cudaMallocHost((void **)&host, N * sizeof *host), cudaSuccess);
    for (int i = 0; i < N; i++) host[i] = (float)i;
    float *x = device + N, *y = device;
    void *arguments[] = {&y, &x, &n};
    cuda.cudaMemcpyAsync(x, host, N * sizeof *host, cudaMemcpyHostToDevice, stream);
    assert_int_equal(cuda.cudaLaunchKernel(kernel, (dim3){2, 1, 1}, (dim3){64, 1, 1}, arguments, 0, stream),
                     cudaSuccess);
    cuda.cudaMemcpyAsync(host, y, N * sizeof *host, cudaMemcpyDeviceToHost, stream);
    assert_int_equal(cuda.cudaStreamSynchronize(stream), cudaSuccess);
    float last = host[N - 1];
    cuda.cudaFree(device);
    cuda.cudaFreeHost(host);
    return last;
}

#define TEST_RTC(name) TEST_WITH(open_libraries, close_libraries, void *unused, name)

/* If kernels have the same name, the most recently compiled one is found. */
TEST_RTC(text_becomes_a_kernel)
{
    static const struct {
        const char *option;
        float result;
    } rows[] = {{"-DFACTOR=3.0f", 297}, {"--define-macro=FACTOR=0.5f", 49.5f}};
    for (int i = 0; i < 2; i++) {
        nvrtcProgram program;
        cudaLibrary_t library;
        assert_int_equal(build(scale, rows[i].option, &program), NVRTC_SUCCESS);
        assert_true(run(load(program, &library)) == rows[i].result);
        assert_int_equal(cuda.cudaLibraryUnload(library), cudaSuccess);
        assert_int_equal(cuda.nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
    }
}

TEST_RTC(an_error_has_its_log)
{
    nvrtcProgram program;
    size_t bytes = 0;
    assert_int_equal(build("extern \"C\" __global__ void broken(int *x) { y[0] = 1; }", "-DNOTHING", &program),
                     NVRTC_ERROR_COMPILATION);
    assert_int_equal(cuda.nvrtcGetProgramLogSize(program, &bytes), NVRTC_SUCCESS);
    char *log = malloc(bytes);
    assert_int_equal(cuda.nvrtcGetProgramLog(program, log), NVRTC_SUCCESS);
    assert_non_null(strstr(log, "\"y\" is undefined"));
    free(log);
    cuda.nvrtcDestroyProgram(&program);
}

TEST_RTC(a_warning_is_an_error)
{
    nvrtcProgram program;
    assert_int_equal(
        build("extern \"C\" __global__ void odd(int *x) { int unused = 1; x[0] = 1; }", "-DNOTHING", &program),
        NVRTC_ERROR_COMPILATION);
    assert_non_null(strstr(double_reason(), "unused"));
    cuda.nvrtcDestroyProgram(&program);
}
