/* backend_cuda.c - the CUDA backend: memory, copies, marks (events) and recordings (graphs) on one stream.
 *
 * Inputs are copied on a second stream while the previous step is computed; events order the two. */
#include "runtime/backend/backend.h"

#include "kernels/cuda/communicator.h"

#include <nvtx3/nvToolsExt.h>

static ampc_status open_cuda(k_context *ctx, int index) { return cuda_context_open(ctx, index); }

/* ---- memory ---------------------------------------------------------------------------------- */

/* Clears an error that is reported here, because the next call would report it again. */
static ampc_status allocated(const k_context *ctx, cudaError_t error, const char *call, void **out)
{
    if (error == cudaSuccess) return AMPC_OK;
    *out = NULL;
    cuda.cudaGetLastError();
    return cuda_status(ctx, error, call);
}

static ampc_status alloc(const k_context *ctx, size_t bytes, void **out)
{
    return allocated(ctx, cuda.cudaMalloc(out, bytes ? bytes : 1), "cudaMalloc", out);
}

static void release(const k_context *ctx, void *memory)
{
    (void)ctx;
    cuda.cudaFree(memory);
}

static ampc_status alloc_host(const k_context *ctx, size_t bytes, void **out)
{
    return allocated(ctx, cuda.cudaMallocHost(out, bytes ? bytes : 1), "cudaMallocHost", out);
}

static void free_host(const k_context *ctx, void *memory)
{
    (void)ctx;
    cuda.cudaFreeHost(memory);
}

static int64_t free_bytes(const k_context *ctx)
{
    size_t unused = 0, total = 0;
    (void)ctx;
    if (cuda.cudaMemGetInfo(&unused, &total) == cudaSuccess) return (int64_t)unused;
    cuda.cudaGetLastError();
    return 0;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static ampc_status enqueue(const k_context *ctx, void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    if (bytes) CUDA_CALL(ctx, cudaMemcpyAsync(dst, src, bytes, kind, cuda_of(ctx)->stream));
    return AMPC_OK;
}

static ampc_status copy(const k_context *ctx, void *dst, const void *src, size_t bytes)
{
    return enqueue(ctx, dst, src, bytes, cudaMemcpyDeviceToDevice);
}
static ampc_status upload(const k_context *ctx, void *dst, const void *src, size_t bytes)
{
    return enqueue(ctx, dst, src, bytes, cudaMemcpyHostToDevice);
}
static ampc_status download(const k_context *ctx, void *dst, const void *src, size_t bytes)
{
    return enqueue(ctx, dst, src, bytes, cudaMemcpyDeviceToHost);
}

static ampc_status clear_fault(const k_context *ctx)
{
    const cuda_context *c = cuda_of(ctx);
    CUDA_CALL(ctx, cudaMemsetAsync(c->fault, K_NO_FAULT & 0xff, sizeof *c->fault, c->stream));
    return AMPC_OK;
}
static ampc_status download_fault(const k_context *ctx, int *dst)
{
    return download(ctx, dst, cuda_of(ctx)->fault, sizeof *dst);
}

static ampc_status prefetch(const k_context *ctx, void *dst, const void *src, size_t bytes)
{
    const cuda_context *c = cuda_of(ctx);
    if (bytes) CUDA_CALL(ctx, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, c->copies));
    return AMPC_OK;
}

static ampc_status join_prefetches(const k_context *ctx)
{
    const cuda_context *c = cuda_of(ctx);
    CUDA_CALL(ctx, cudaEventRecord(c->copied, c->copies));
    CUDA_CALL(ctx, cudaStreamWaitEvent(c->stream, c->copied, 0));
    return AMPC_OK;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static ampc_status mark(const k_context *ctx, void **mark)
{
    cudaEvent_t event = *mark;
    if (!event) CUDA_CALL(ctx, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    *mark = event;
    CUDA_CALL(ctx, cudaEventRecord(event, cuda_of(ctx)->stream));
    return AMPC_OK;
}

static bool passed(const k_context *ctx, void *mark)
{
    (void)ctx;
    return cuda.cudaEventQuery(mark) == cudaSuccess;
}

static ampc_status wait(const k_context *ctx, void *mark)
{
    if (cuda_of(ctx)->communicator && !ctx->ranks->muted) return cuda_communicator_wait(ctx, mark);
    if (mark) CUDA_CALL(ctx, cudaEventSynchronize(mark));
    else CUDA_CALL(ctx, cudaStreamSynchronize(cuda_of(ctx)->stream));
    return AMPC_OK;
}

static void unmark(const k_context *ctx, void *mark)
{
    (void)ctx;
    if (mark) cuda.cudaEventDestroy(mark);
}

/* While the stream is capturing, an event becomes a node of the graph only if it is recorded as external; outside a
 * capture CUDA does not allow that flag. */
static ampc_status mark_time(const k_context *ctx, void **mark)
{
    const cudaStream_t stream = cuda_of(ctx)->stream;
    enum cudaStreamCaptureStatus capture;
    cudaEvent_t event = *mark;
    if (!event) CUDA_CALL(ctx, cudaEventCreateWithFlags(&event, cudaEventDefault));
    *mark = event;
    CUDA_CALL(ctx, cudaStreamIsCapturing(stream, &capture));
    const unsigned how = capture == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
    CUDA_CALL(ctx, cudaEventRecordWithFlags(event, stream, how));
    return AMPC_OK;
}

static ampc_status elapsed(const k_context *ctx, void *first, void *last, double *milliseconds)
{
    float time;
    CUDA_CALL(ctx, cudaEventElapsedTime(&time, first, last));
    *milliseconds = (double)time;
    return AMPC_OK;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* NVTX calls into an attached profiler; without one it does nothing. */
static void begin_range(const k_context *ctx, const char *name)
{
    (void)ctx;
    nvtxRangePushA(name);
}

static void end_range(const k_context *ctx)
{
    (void)ctx;
    nvtxRangePop();
}

/* ---- recordings ------------------------------------------------------------------------------ */

static ampc_status record(const k_context *ctx)
{
    CUDA_FORWARD(cuda_communicator_refresh(ctx));
    CUDA_CALL(ctx, cudaStreamBeginCapture(cuda_of(ctx)->stream, cudaStreamCaptureModeRelaxed));
    return AMPC_OK;
}

static ampc_status finish(const k_context *ctx, void **recording)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaGraphInstantiateParams params = {.flags = cudaGraphInstantiateFlagUpload, .uploadStream = cuda_of(ctx)->stream};
    *recording = NULL;
    CUDA_CALL(ctx, cudaStreamEndCapture(cuda_of(ctx)->stream, &graph));
    cudaError_t error = cuda.cudaGraphInstantiateWithParams(&exec, graph, &params);
    cuda.cudaGraphDestroy(graph);
    CUDA_FORWARD(cuda_status(ctx, error, "cudaGraphInstantiateWithParams"));
    *recording = exec;
    return AMPC_OK;
}

static ampc_status replay(const k_context *ctx, void *recording)
{
    CUDA_FORWARD(cuda_communicator_refresh(ctx));
    CUDA_CALL(ctx, cudaGraphLaunch(recording, cuda_of(ctx)->stream));
    return AMPC_OK;
}

static void forget(const k_context *ctx, void *recording)
{
    (void)ctx;
    if (recording) cuda.cudaGraphExecDestroy(recording);
}

static const rt_device_ops device_ops = {
    .prepared = cuda_prepared,
    .alloc_host = alloc_host,
    .free_host = free_host,
    .free_bytes = free_bytes,
    .upload = upload,
    .download = download,
    .clear_fault = clear_fault,
    .download_fault = download_fault,
    .prefetch = prefetch,
    .join_prefetches = join_prefetches,
    .mark = mark,
    .passed = passed,
    .wait = wait,
    .unmark = unmark,
    .mark_time = mark_time,
    .elapsed = elapsed,
    .begin_range = begin_range,
    .end_range = end_range,
    .record = record,
    .finish = finish,
    .replay = replay,
    .forget = forget,
};

/* Without TF32, cuDNN's f32 engines use NCHW. */
static bool channels_last(ir_dtype t) { return t != IR_f32; }

const rt_backend rt_backend_cuda = {
    .name = "cuda",
    .alignment = CUDA_ALIGNMENT,
    .open = open_cuda,
    .count = cuda_device_count,
    .describe = cuda_context_describe,
    .close = cuda_context_close,
    .kernel = cuda_kernel,
    .fused = &cuda_fused,
    .absorbs = cuda_supports_epilogue,
    .channels_last = channels_last,
    .pads = true,
    .low_gradients = true,
    .alloc = alloc,
    .free = release,
    .copy = copy,
    .commit = cuda_commit,
    .device_ops = &device_ops,
};
