/* context.c - opens, describes and closes the context of a device. */
#include "kernels/cuda/communicator.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/generate.h"
#include "kernels/cuda/tune.h"

#include <stdlib.h>
#include <string.h>

int cuda_device_count(void)
{
    char error[CUDA_MAX_REASON];
    int count;
    return cuda_api_open(CUDA_RT, error, sizeof error) || cuda.cudaGetDeviceCount(&count) ? 0 : count;
}

static ampc_status open_device(const k_context *ctx, cuda_context *c)
{
    int count = 0;
    CUDA_FORWARD(cuda_api_open(CUDA_RT, ctx->error, ctx->error_size));
    CUDA_CALL(ctx, cudaGetDeviceCount(&count));
    if (c->device >= count) return cuda_fail(ctx, AMPC_DEVICE, "no CUDA device %d: %d visible", c->device, count);
    CUDA_CALL(ctx, cudaSetDevice(c->device));
    CUDA_CALL(ctx, cudaDeviceGetAttribute(&c->multiprocessors, cudaDevAttrMultiProcessorCount, c->device));
    CUDA_CALL(ctx, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    CUDA_CALL(ctx, cudaStreamCreateWithFlags(&c->copies, cudaStreamNonBlocking));
    CUDA_CALL(ctx, cudaEventCreateWithFlags(&c->copied, cudaEventDisableTiming));
    CUDA_CALL(ctx, cudaMalloc((void **)&c->fault, sizeof *c->fault));
    return cuda_find(ctx, CUDA_FAMILY_commit, "commit", &c->commit);
}

ampc_status cuda_context_open(k_context *ctx, int index)
{
    cuda_context *c = calloc(1, sizeof *c);
    if (!c) return cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory for the device's state");
    c->device = index;
    ctx->device = c;
    ampc_status status = open_device(ctx, c);
    if (ctx->ranks && ctx->ranks->count > 1) status = cuda_communicator_open(ctx, status);
    if (status != AMPC_OK) cuda_context_close(ctx);
    return status;
}

ampc_status cuda_context_describe(k_context *ctx, const char *text, int multiprocessors)
{
    cuda_context *c = calloc(1, sizeof *c);
    ctx->device = c;
    if (c) c->described = strdup(text);
    if (!c || !c->described) {
        cuda_context_close(ctx);
        return cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory for the device's state");
    }
    c->multiprocessors = multiprocessors;
    return AMPC_OK;
}

/* Ignores errors, because the session no longer exists. */
void cuda_context_close(k_context *ctx)
{
    cuda_context *c = cuda_of(ctx);
    if (!c) return;
    cuda_communicator_close(ctx);
    if (c->stream) cuda.cudaStreamSynchronize(c->stream);
    cuda_tune_close(c);
    dnn_close(c);
    cuda_generate_close(c);
    if (c->dnn) cuda.cudnnDestroy(c->dnn);
    if (c->lt) cuda.cublasLtDestroy(c->lt);
    for (int i = 0; i < CUDA_FAMILY_COUNT; i++)
        if (c->families[i]) cuda.cudaLibraryUnload(c->families[i]);
    if (c->lt_workspace) cuda.cudaFree(c->lt_workspace);
    if (c->fault) cuda.cudaFree(c->fault);
    if (c->copied) cuda.cudaEventDestroy(c->copied);
    if (c->copies) cuda.cudaStreamDestroy(c->copies);
    if (c->stream) cuda.cudaStreamDestroy(c->stream);
    free(c->described);
    free(c);
    ctx->device = NULL;
}
