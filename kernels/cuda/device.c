/* device.c - an open device: errors, library handles, embedded kernels and launches.
 *
 * Libraries are opened when a kernel that needs them is prepared: a transformer never loads cuDNN, and a program that
 * only looks for a device loads only cudart. */
#include "kernels/cuda/dnn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- errors ---------------------------------------------------------------------------------- */

ampc_status cuda_fail(const k_context *ctx, ampc_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(ctx->error, ctx->error_size, format, list);
    va_end(list);
    return status;
}

/* Length of the function name in a stringified call. */
static int name_length(const char *call)
{
    int n = 0;
    while (call[n] && call[n] != '(') n++;
    return n;
}

ampc_status cuda_status(const k_context *ctx, cudaError_t error, const char *call)
{
    if (error == cudaSuccess) return AMPC_OK;
    return cuda_fail(ctx, error == cudaErrorMemoryAllocation ? AMPC_NO_MEMORY : AMPC_DEVICE, "%.*s: %s (CUDA error %d)",
                     name_length(call), call, cuda.cudaGetErrorString(error), (int)error);
}

ampc_status cuda_lt_status(const k_context *ctx, cublasStatus_t error, const char *call)
{
    if (error == CUBLAS_STATUS_SUCCESS) return AMPC_OK;
    return cuda_fail(ctx, error == CUBLAS_STATUS_ALLOC_FAILED ? AMPC_NO_MEMORY : AMPC_DEVICE, "%.*s: %s (%s)",
                     name_length(call), call, cuda.cublasLtGetStatusName(error), cuda.cublasLtGetStatusString(error));
}

void cuda_dnn_reason(cudnnStatus_t error, char out[CUDA_MAX_REASON])
{
    char last[CUDA_MAX_REASON / 2] = "";
    cuda.cudnnGetLastErrorString(last, sizeof last);
    snprintf(out, CUDA_MAX_REASON, "%s%s%s%s", cuda.cudnnGetErrorString(error), *last ? " (" : "", last,
             *last ? ")" : "");
}

ampc_status cuda_dnn_status(const k_context *ctx, cudnnStatus_t error, const char *call)
{
    if (error == CUDNN_STATUS_SUCCESS) return AMPC_OK;
    const bool memory = error == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                        error == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    char reason[CUDA_MAX_REASON];
    cuda_dnn_reason(error, reason);
    return cuda_fail(ctx, memory ? AMPC_NO_MEMORY : AMPC_DEVICE, "%.*s: %s", name_length(call), call, reason);
}

/* ---- libraries ------------------------------------------------------------------------------- */

ampc_status cuda_open_lt(const k_context *ctx)
{
    cuda_context *c = cuda_of(ctx);
    if (!c->lt) {
        CUDA_FORWARD(cuda_api_open(CUDA_LT, ctx->error, ctx->error_size));
        CUDA_LT_CALL(ctx, cublasLtCreate(&c->lt));
    }
    if (!c->lt_workspace) CUDA_CALL(ctx, cudaMalloc(&c->lt_workspace, CUDA_LT_WORKSPACE));
    return AMPC_OK;
}

ampc_status cuda_open_dnn(const k_context *ctx)
{
    const size_t oldest = 90800;
    char reason[256];
    cuda_context *c = cuda_of(ctx);
    if (c->dnn || (cuda_is_described(ctx) && c->dnn_device)) return AMPC_OK;
    if (cuda_is_described(ctx)) cuda_open_described_driver();
    CUDA_FORWARD(cuda_api_open(CUDA_DNN, ctx->error, ctx->error_size));
    if (cuda.cudnnGetVersion() < oldest)
        return cuda_fail(ctx, AMPC_DEVICE, "cuDNN %zu.%zu is too old: 9.8 or later is required",
                         cuda.cudnnGetVersion() / 10000, cuda.cudnnGetVersion() / 100 % 100);
    /* cuDNN uses NVRTC as well, and would load it again for each plan if it were not loaded here. */
    cuda_api_open(CUDA_RTC, reason, sizeof reason);
    if (cuda_is_described(ctx)) return AMPC_OK;
    CUDA_DNN_CALL(ctx, cudnnCreate(&c->dnn));
    CUDA_DNN_CALL(ctx, cudnnSetStream(c->dnn, c->stream));
    return AMPC_OK;
}

ampc_status cuda_open_optional_dnn(const k_context *ctx)
{
    const ampc_status status = cuda_open_dnn(ctx);
    return status == AMPC_DEVICE ? AMPC_UNSUPPORTED : status;
}

/* ---- commits --------------------------------------------------------------------------------- */

ampc_status cuda_commit(const k_context *ctx, void *dst, const void *src, size_t bytes)
{
    const cuda_context *c = cuda_of(ctx);
    const k_args args = {.ctx = ctx};
    int64_t n = (int64_t)bytes;
    void *arguments[] = {&dst, &src, &n, (void *)&c->fault};
    return cuda_launch(&args, c->commit, cuda_grid(&args, n, (int64_t)CUDA_BLOCK * 16), CUDA_BLOCK, 0, arguments);
}

/* ---- kernels --------------------------------------------------------------------------------- */

#define DECLARE(name) extern const unsigned char cuda_fatbin_##name[];
CUDA_FAMILY_MAP(DECLARE)
#undef DECLARE

static const unsigned char *const fatbins[] = {
#define LISTED(name) cuda_fatbin_##name,
    CUDA_FAMILY_MAP(LISTED)
#undef LISTED
};

ampc_status cuda_get_kernel(const k_context *ctx, cudaLibrary_t library, const char *name, cudaKernel_t *out)
{
    char call[128];
    const cudaError_t error = cuda.cudaLibraryGetKernel(out, library, name);
    if (error != cudaSuccess) *out = NULL;
    snprintf(call, sizeof call, "cudaLibraryGetKernel of '%s'", name); /* a kernel may have the name of its op */
    return cuda_status(ctx, error, call);
}

ampc_status cuda_find(const k_context *ctx, cuda_family family, const char *name, cudaKernel_t *out)
{
    cuda_context *c = cuda_of(ctx);
    if (c->described) {
        *out = (cudaKernel_t)c; /* a non-NULL placeholder that is never launched */
        return AMPC_OK;
    }
    if (!c->families[family])
        CUDA_CALL(ctx, cudaLibraryLoadData(&c->families[family], fatbins[family], NULL, NULL, 0, NULL, NULL, 0));
    return cuda_get_kernel(ctx, c->families[family], name, out);
}

ampc_status cuda_find_large(const k_context *ctx, cuda_family family, const char *name, size_t shared_bytes,
                            cudaKernel_t *out)
{
    CUDA_FORWARD(cuda_find(ctx, family, name, out));
    if (cuda_is_described(ctx)) return AMPC_OK;
    CUDA_CALL(ctx, cudaKernelSetAttributeForDevice(*out, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes,
                                                   cuda_of(ctx)->device));
    return AMPC_OK;
}

ampc_status cuda_launch_on(const k_args *args, cudaStream_t stream, cudaKernel_t kernel, int64_t blocks,
                           unsigned threads, size_t shared_bytes, void **arguments)
{
    if (blocks == 0) return AMPC_OK;
    if (blocks < 0 || blocks > INT32_MAX)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "the grid of %lld blocks is too large", (long long)blocks);
    const dim3 grid = {(unsigned)blocks, 1, 1}, block = {threads, 1, 1};
    CUDA_CALL(args->ctx, cudaLaunchKernel((const void *)kernel, grid, block, arguments, shared_bytes, stream));
    return AMPC_OK;
}

ampc_status cuda_launch(const k_args *args, cudaKernel_t kernel, int64_t blocks, unsigned threads, size_t shared_bytes,
                        void **arguments)
{
    return cuda_launch_on(args, cuda_of(args->ctx)->stream, kernel, blocks, threads, shared_bytes, arguments);
}

ampc_status cuda_new_state(const k_args *args, size_t bytes, void **state)
{
    CUDA_FORWARD(cuda_check_dtypes(args));
    *state = calloc(1, bytes);
    return *state ? AMPC_OK : cuda_fail(args->ctx, AMPC_NO_MEMORY, "out of memory");
}

ampc_status cuda_prepare_one(const k_args *args, cuda_family family, const char *name, void **state)
{
    CUDA_FORWARD(cuda_new_state(args, sizeof(cuda_one), state));
    return cuda_find(args->ctx, family, name, &((cuda_one *)*state)->kernel);
}

void cuda_release(void *state) { free(state); }

ampc_status cuda_check_dtypes(const k_args *args)
{
    bool has_f64 = false;
    for (int i = 0; i < args->n_in; i++) has_f64 |= args->in[i].dtype == IR_f64;
    for (int i = 0; i < args->n_out; i++) has_f64 |= args->out[i].dtype == IR_f64;
    return has_f64 ? cuda_fail(args->ctx, AMPC_UNSUPPORTED, "float64 is not supported on CUDA") : AMPC_OK;
}
