/* ranks.c - collective operations on the values of all ranks.
 *
 * The operands are packed in the type of the wire in one launch, reduced by NCCL in place, and unpacked in another.
 * All of it is on the stream of the communicator, so the steps that follow run at the same time, until the call is
 * joined. While a run is recorded, the streams become branches of its graph. */
#include "kernels/ranks.h"

#include "kernels/cuda/communicator.h"
#include "kernels/cuda/ranks.h"

#include <stdlib.h>

/* Bytes of the values of all ranks that are gathered at once, to be added in a fixed order; at least a tile of each. */
enum { GATHERED = 64 << 20 };

typedef struct reduce_state {
    cudaKernel_t pack, unpack, add;
    cudaEvent_t done; /* NULL: there is only one rank */
    int64_t packed;   /* elements, tensors begin at a multiple of a tile */
    int64_t chunk;    /* elements of each rank that are gathered at once; 0: NCCL adds */
    ranks_table table;
} reduce_state;

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static ir_dtype wire_of(const k_args *args) { return args->attr[IR_ATTR(all_reduce, wire)].dtype; }

static bool has_tree(const k_args *args)
{
    return args->attr[IR_ATTR(all_reduce, tree)].i && args->attr[IR_ATTR(all_reduce, by)].i != K_REDUCED_max;
}

static size_t aligned(size_t bytes) { return (bytes + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT; }

/* The workspace holds the packed operands, then the gathered values. */
static void plan_workspace(const k_args *args, reduce_state *s, size_t *workspace)
{
    const int64_t size = (int64_t)ir_dtype_size(wire_of(args)), count = args->ctx->ranks->count;
    *workspace = (size_t)(s->packed * size);
    if (!has_tree(args)) return;
    s->chunk = GATHERED / (size * count) / CUDA_TILE * CUDA_TILE;
    if (s->chunk < CUDA_TILE) s->chunk = CUDA_TILE;
    if (s->chunk > s->packed) s->chunk = s->packed;
    *workspace = aligned(*workspace) + (size_t)(s->chunk * size * count);
}

static ampc_status reduce_prepare(const k_args *args, void **state, size_t *workspace)
{
    const k_context *ctx = args->ctx;
    CUDA_FORWARD(cuda_new_state(args, sizeof(reduce_state), state));
    reduce_state *s = *state;
    if (wire_of(args) == IR_f64) return cuda_fail(ctx, AMPC_UNSUPPORTED, "float64 is not supported on CUDA");
    for (int i = 0; i < args->n_in; i++) s->packed += round_up(k_count(&args->in[i]), CUDA_TILE);
    if (s->packed / RANKS_UNIT > INT32_MAX - RANKS_SPANS)
        return cuda_fail(ctx, AMPC_UNSUPPORTED, "2^42 elements or more are reduced together");
    if (!ctx->ranks || ctx->ranks->count == 1) return AMPC_OK;
    plan_workspace(args, s, workspace);
    CUDA_FORWARD(cuda_find(ctx, CUDA_FAMILY_ranks, "ranks_pack", &s->pack));
    CUDA_FORWARD(cuda_find(ctx, CUDA_FAMILY_ranks, "ranks_unpack", &s->unpack));
    CUDA_FORWARD(cuda_find(ctx, CUDA_FAMILY_ranks, "ranks_add", &s->add));
    if (!ctx->plan_only && cuda_of(ctx)->communicator)
        CUDA_CALL(ctx, cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming));
    return AMPC_OK;
}

static void reduce_release(void *state)
{
    const reduce_state *s = state;
    if (s && s->done) cuda.cudaEventDestroy(s->done);
    free(state);
}

/* Launches the kernel for all operands, or all results, on the stream of the communicator. */
static ampc_status convert(const k_args *args, cudaKernel_t kernel, const k_view *views, const float *share)
{
    reduce_state *s = args->state;
    ranks_table *t = &s->table;
    t->wire = (int)wire_of(args);
    t->packed = args->workspace;
    t->share = share;
    for (int64_t i = 0, at = 0; i < args->n_in;) {
        t->spans = t->units = 0;
        for (; i < args->n_in && t->spans < RANKS_SPANS; i++) {
            const int64_t n = k_count(&views[i]);
            if (views[i].data && n > 0) {
                t->span[t->spans++] = (ranks_span){
                    .tensor = views[i].data, .at = at, .count = n, .dtype = (int)views[i].dtype, .first = t->units};
                t->units += (int)((n + RANKS_UNIT - 1) / RANKS_UNIT);
            }
            at += round_up(n, CUDA_TILE);
        }
        const int64_t blocks = cuda_grid(args, t->units, 1);
        CUDA_FORWARD(cuda_launch_on(args, cuda_of(args->ctx)->communicator->stream, kernel, blocks, RANKS_BLOCK, 0,
                                    (void *[]){t}));
    }
    return AMPC_OK;
}

static ncclDataType_t nccl_type(ir_dtype t)
{
    return t == IR_f16 ? ncclFloat16 : t == IR_bf16 ? ncclBfloat16 : ncclFloat32;
}

/* Gathers the packed values of all ranks, a chunk at a time, and adds them as one rank would. */
static ampc_status add_in_order(const k_args *args)
{
    const reduce_state *s = args->state;
    const cuda_communicator *c = cuda_of(args->ctx)->communicator;
    const ir_dtype wire = wire_of(args);
    int dtype = (int)wire, size = (int)ir_dtype_size(wire), count = args->ctx->ranks->count;
    char *rows = (char *)args->workspace + aligned((size_t)(s->packed * size));
    for (int64_t at = 0; at < s->packed; at += s->chunk) {
        char *part = (char *)args->workspace + at * size;
        long long n = s->chunk < s->packed - at ? s->chunk : s->packed - at;
        CUDA_NCCL_CALL(args->ctx, ncclAllGather(part, rows, (size_t)n, nccl_type(wire), c->comm, c->stream));
        CUDA_FORWARD(cuda_launch_on(args, c->stream, s->add, cuda_grid(args, n, RANKS_UNIT), RANKS_BLOCK, 0,
                                    (void *[]){&rows, &part, &count, &n, &dtype, &size}));
    }
    return AMPC_OK;
}

static ampc_status reduce_all(const k_args *args)
{
    const reduce_state *s = args->state;
    const cuda_communicator *c = cuda_of(args->ctx)->communicator;
    const k_reduced by = (k_reduced)args->attr[IR_ATTR(all_reduce, by)].i;
    CUDA_CALL(args->ctx, cudaEventRecord(c->fork, cuda_of(args->ctx)->stream));
    CUDA_CALL(args->ctx, cudaStreamWaitEvent(c->stream, c->fork, 0));
    CUDA_FORWARD(convert(args, s->pack, args->in, by == K_REDUCED_mean ? c->share : NULL));
    if (s->chunk) CUDA_FORWARD(add_in_order(args));
    else
        CUDA_NCCL_CALL(args->ctx,
                       ncclAllReduce(args->workspace, args->workspace, (size_t)s->packed, nccl_type(wire_of(args)),
                                     by == K_REDUCED_max ? ncclMax : ncclSum, c->comm, c->stream));
    CUDA_FORWARD(convert(args, s->unpack, args->out, NULL));
    CUDA_CALL(args->ctx, cudaEventRecord(s->done, c->stream));
    return AMPC_OK;
}

static ampc_status copy(const k_args *args, void *to, const void *from, size_t bytes)
{
    if (bytes == 0 || !to || to == from) return AMPC_OK;
    CUDA_CALL(args->ctx, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_of(args->ctx)->stream));
    return AMPC_OK;
}

static ampc_status reduce_run(const k_args *args)
{
    const reduce_state *s = args->state;
    CUDA_FORWARD(cuda_communicator_refresh(args->ctx));
    if (s->done && !args->ctx->ranks->muted) return reduce_all(args);
    for (int i = 0; i < args->n_in; i++)
        CUDA_FORWARD(copy(args, args->out[i].data, args->in[i].data, k_bytes(&args->in[i])));
    return AMPC_OK;
}

static ampc_status reduce_join(const k_args *args)
{
    const reduce_state *s = args->state;
    if (s->done) CUDA_CALL(args->ctx, cudaStreamWaitEvent(cuda_of(args->ctx)->stream, s->done, 0));
    return AMPC_OK;
}

const k_kernel cuda_all_reduce = {
    .prepare = reduce_prepare, .run = reduce_run, .join = reduce_join, .release = reduce_release};

static ampc_status number_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    return cuda_prepare_one(args, CUDA_FAMILY_ranks, "ranks_set", state);
}

/* The share may change between two replays of a step. */
static ampc_status number_run(const k_args *args)
{
    const cuda_one *state = args->state;
    const k_ranks *r = args->ctx->ranks;
    const cuda_communicator *c = cuda_of(args->ctx)->communicator;
    CUDA_FORWARD(cuda_communicator_refresh(args->ctx));
    const int64_t number = args->attr[IR_ATTR(rank_number, number)].i;
    if (number == K_NUMBER_share && c) return copy(args, args->out[0].data, c->share, sizeof(float));
    float value = number == K_NUMBER_index   ? (float)(r ? r->index : 0)
                  : number == K_NUMBER_count ? (float)(r ? r->count : 1)
                                             : 1;
    return cuda_launch(args, state->kernel, 1, 32, 0, (void *[]){&args->out[0].data, &value});
}

const k_kernel cuda_rank_number = {.prepare = number_prepare, .run = number_run, .release = cuda_release};
