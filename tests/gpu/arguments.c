/* arguments.c - implements record_arguments (see record.h). */
#include "tests/gpu/record.h"

#include "kernels/cuda/optimizer.h"
#include "kernels/fault.h"

enum { COUNT = 1000, REPLAYS = 2, RUNS = 1 + REPLAYS }; /* elements per tensor; runs per launch */

static const float RATE = 0.5f, SCALE = 4;

/* Operands of both launches: tensor i of `values` initially holds i + RUNS; all gradients are SCALE. */
typedef struct tensors {
    float *values, *gradients, *rate, *scale; /* device memory */
    unsigned char *found;
    float *host; /* pinned, SPANS * COUNT */
} tensors;

enum { SPANS = UNSCALE_SPANS > UPDATE_SPANS ? UNSCALE_SPANS : UPDATE_SPANS };

static ampc_status upload(const k_context *ctx, void *to, const void *pinned, size_t bytes)
{
    const cuda_context *c = cuda_of(ctx);
    CUDA_CALL(ctx, cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, c->stream));
    CUDA_CALL(ctx, cudaStreamSynchronize(c->stream));
    return AMPC_OK;
}

static ampc_status fill(const k_context *ctx, const tensors *t)
{
    const size_t bytes = sizeof(float) * SPANS * COUNT;
    for (int i = 0; i < SPANS * COUNT; i++) t->host[i] = (float)(i / COUNT + RUNS);
    CUDA_FORWARD(upload(ctx, t->values, t->host, bytes));
    for (int i = 0; i < SPANS * COUNT; i++) t->host[i] = SCALE;
    CUDA_FORWARD(upload(ctx, t->gradients, t->host, bytes));
    CUDA_FORWARD(upload(ctx, t->scale, t->host, sizeof(float)));
    t->host[0] = RATE;
    return upload(ctx, t->rate, t->host, sizeof(float));
}

static ampc_status make_tensors(const k_context *ctx, tensors *t)
{
    const size_t bytes = sizeof(float) * SPANS * COUNT;
    CUDA_CALL(ctx, cudaMalloc((void **)&t->values, bytes));
    CUDA_CALL(ctx, cudaMalloc((void **)&t->gradients, bytes));
    CUDA_CALL(ctx, cudaMalloc((void **)&t->rate, sizeof(float)));
    CUDA_CALL(ctx, cudaMalloc((void **)&t->scale, sizeof(float)));
    CUDA_CALL(ctx, cudaMalloc((void **)&t->found, 1));
    CUDA_CALL(ctx, cudaMallocHost((void **)&t->host, bytes));
    return fill(ctx, t);
}

static void free_tensors(const tensors *t)
{
    void *const memory[] = {t->values, t->gradients, t->rate, t->scale, t->found};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) cuda.cudaFree(memory[i]);
    if (t->host) cuda.cudaFreeHost(t->host);
}

/* ---- one launch, captured and replayed ------------------------------------------------------- */

/* Launches once directly, as a session runs a step before recording it, then captures. Overwrites the
 * argument after the capture to verify that the graph has its own copy. */
static ampc_status capture(const k_context *ctx, const char *kernel, void *argument, size_t bytes, int units,
                           cudaGraph_t *graph)
{
    const cuda_context *c = cuda_of(ctx);
    const k_args args = {.ctx = ctx};
    cudaKernel_t function;
    CUDA_FORWARD(cuda_find(ctx, CUDA_FAMILY_optimizer, kernel, &function));
    CUDA_FORWARD(cuda_launch(&args, function, units, OPTIMIZER_BLOCK, 0, (void *[]){argument}));
    CUDA_CALL(ctx, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
    ampc_status status = cuda_launch(&args, function, units, OPTIMIZER_BLOCK, 0, (void *[]){argument});
    ampc_status end = cuda_status(ctx, cuda.cudaStreamEndCapture(c->stream, graph), "cudaStreamEndCapture");
    memset(argument, 0xff, bytes);
    return status ? status : end;
}

static ampc_status replay(const k_context *ctx, cudaGraph_t graph)
{
    const cuda_context *c = cuda_of(ctx);
    cudaGraphExec_t exec;
    cudaGraphInstantiateParams params = {0};
    CUDA_CALL(ctx, cudaGraphInstantiateWithParams(&exec, graph, &params));
    ampc_status status = AMPC_OK;
    for (int i = 0; i < REPLAYS && !status; i++)
        status = cuda_status(ctx, cuda.cudaGraphLaunch(exec, c->stream), "cudaGraphLaunch");
    if (!status) status = cuda_status(ctx, cuda.cudaStreamSynchronize(c->stream), "cudaStreamSynchronize");
    cuda.cudaGraphExecDestroy(exec);
    return status;
}

static ampc_status run_captured(const k_context *ctx, const char *kernel, void *argument, size_t bytes, int units)
{
    cudaGraph_t graph = NULL;
    ampc_status status = capture(ctx, kernel, argument, bytes, units, &graph);
    if (!status) status = replay(ctx, graph);
    if (graph) cuda.cudaGraphDestroy(graph);
    return status;
}

/* Counts the elements of the first `spans` tensors that differ from first + step * (index of the tensor). */
static ampc_status count_wrong(const k_context *ctx, const tensors *t, const float *memory, int spans, float first,
                               float step, int *wrong)
{
    const cuda_context *c = cuda_of(ctx);
    CUDA_CALL(ctx, cudaMemcpyAsync(t->host, memory, sizeof(float) * (size_t)spans * COUNT, cudaMemcpyDeviceToHost,
                                   c->stream));
    CUDA_CALL(ctx, cudaStreamSynchronize(c->stream));
    *wrong = 0;
    for (int i = 0; i < spans * COUNT; i++) *wrong += t->host[i] != first + step * (float)(i / COUNT);
    return AMPC_OK;
}

/* ---- the two tables -------------------------------------------------------------------------- */

/* Each run divides the gradients by SCALE. */
static ampc_status run_unscale(const k_context *ctx, const tensors *t, int *wrong)
{
    static unscale_table table;
    table = (unscale_table){
        .spans = UNSCALE_SPANS, .units = UNSCALE_SPANS, .dtype = IR_f32, .scale = t->scale, .found = t->found};
    for (int i = 0; i < UNSCALE_SPANS; i++) {
        float *tensor = t->gradients + (size_t)i * COUNT;
        table.span[i] = (unscale_span){.grad = tensor, .to = tensor, .count = COUNT, .first = i};
    }
    CUDA_FORWARD(run_captured(ctx, "unscale", &table, sizeof table, UNSCALE_SPANS));
    return count_wrong(ctx, t, t->gradients, UNSCALE_SPANS, SCALE / (SCALE * SCALE * SCALE), 0, wrong);
}

/* Each run changes all values by the learning rate, since the gradients are SCALE. */
static ampc_status run_sgd(const k_context *ctx, const tensors *t, int *wrong)
{
    static update_table table;
    table = (update_table){.spans = UPDATE_SPANS,
                           .units = UPDATE_SPANS,
                           .grad_dtype = IR_f32,
                           .lr = t->rate,
                           .scale = t->scale,
                           .fault = cuda_of(ctx)->fault};
    for (int i = 0; i < UPDATE_SPANS; i++) {
        float *tensor = t->values + (size_t)i * COUNT;
        table.span[i] = (update_span){
            .old = {tensor}, .made = {tensor}, .grad = t->gradients + (size_t)i * COUNT, .count = COUNT, .first = i};
    }
    CUDA_FORWARD(run_captured(ctx, "sgd", &table, sizeof table, UPDATE_SPANS));
    return count_wrong(ctx, t, t->values, UPDATE_SPANS, RUNS - RUNS * RATE, 1, wrong);
}

static ampc_status run_both(const k_context *ctx, FILE *f, const tensors *t)
{
    int wrong_sgd, wrong_unscale;
    CUDA_CALL(ctx, cudaMemsetAsync(cuda_of(ctx)->fault, K_NO_FAULT & 0xff, sizeof(int), cuda_of(ctx)->stream));
    CUDA_FORWARD(run_sgd(ctx, t, &wrong_sgd));
    CUDA_FORWARD(run_unscale(ctx, t, &wrong_unscale));
    fprintf(f,
            "{\"launches\": [{\"kernel\": \"sgd\", \"argument_bytes\": %zu, \"wrong\": %d},\n"
            " {\"kernel\": \"unscale\", \"argument_bytes\": %zu, \"wrong\": %d}]}\n",
            sizeof(update_table), wrong_sgd, sizeof(unscale_table), wrong_unscale);
    if (wrong_sgd || wrong_unscale)
        return cuda_fail(ctx, AMPC_NUMERIC, "captured launches computed wrong elements: sgd %d, unscale %d", wrong_sgd,
                         wrong_unscale);
    return AMPC_OK;
}

ampc_status record_arguments(const k_context *ctx, FILE *f)
{
    tensors t = {0};
    ampc_status status = make_tensors(ctx, &t);
    if (!status) status = run_both(ctx, f, &t);
    free_tensors(&t);
    return status;
}
