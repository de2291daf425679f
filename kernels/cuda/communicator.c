/* communicator.c - opens, watches and closes the connection between the devices of all ranks. */
#include "kernels/cuda/communicator.h"

#include "kernels/cuda/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    OLDEST = 21800,    /* ncclGetVersion of NCCL 2.18.0 */
    CLOSE_TIMEOUT = 5, /* seconds, for the others to close too */
    NAME_TIMEOUT = 1,  /* seconds, until the other ranks' end is noticed */
    PAUSE = 20000      /* nanoseconds between two looks at the device */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pause_briefly(void) { nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL); }

/* ---- failures -------------------------------------------------------------------------------- */

/* Stops the collectives that are running, so that the device can go on. */
static void abandon(const k_context *ctx)
{
    cuda_communicator *c = cuda_of(ctx)->communicator;
    if (c->comm) cuda.ncclCommAbort(c->comm);
    c->comm = NULL;
    c->failed = ctx->ranks->lost = true;
}

/* AMPC_DEVICE, naming the rank, if another rank has ended, or is late. */
static ampc_status check_ranks(const k_context *ctx, double waited)
{
    k_ranks *r = ctx->ranks;
    const ampc_status status = r->check(r, waited);
    return status == AMPC_OK ? AMPC_OK : cuda_fail(ctx, status, "%s", r->error);
}

/* The device notices that another one is gone before the host knows whose it was. */
static ampc_status fail(const k_context *ctx, ncclResult_t result, const char *call)
{
    const char *reason = cuda.ncclGetLastError(NULL);
    char text[CUDA_MAX_REASON];
    snprintf(text, sizeof text, "%.*s: %s%s%s", (int)strcspn(call, "("), call, cuda.ncclGetErrorString(result),
             reason && *reason ? ": " : "", reason && *reason ? reason : "");
    abandon(ctx);
    for (const double end = now() + NAME_TIMEOUT; now() < end; pause_briefly()) CUDA_FORWARD(check_ranks(ctx, 0));
    return cuda_fail(ctx, AMPC_DEVICE, "%s", text);
}

static ampc_status check(const k_context *ctx, double began)
{
    const cuda_communicator *c = cuda_of(ctx)->communicator;
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = cuda.ncclCommGetAsyncError(c->comm, &state);
    if (asked != ncclSuccess) return fail(ctx, asked, "ncclCommGetAsyncError");
    if (state != ncclSuccess && state != ncclInProgress) return fail(ctx, state, "NCCL");
    const ampc_status status = check_ranks(ctx, now() - began);
    if (status != AMPC_OK) abandon(ctx);
    return status;
}

static ampc_status has_failed(const k_context *ctx)
{
    return cuda_fail(ctx, AMPC_DEVICE, "the connection to the other ranks has failed before");
}

ampc_status cuda_communicator_status(const k_context *ctx, ncclResult_t result, const char *call)
{
    const cuda_communicator *c = cuda_of(ctx)->communicator;
    const double began = now();
    while (result == ncclInProgress) {
        CUDA_FORWARD(check(ctx, began));
        if (cuda.ncclCommGetAsyncError(c->comm, &result) != ncclSuccess) result = ncclInternalError;
        if (result == ncclInProgress) pause_briefly();
    }
    return result == ncclSuccess ? AMPC_OK : fail(ctx, result, call);
}

ampc_status cuda_communicator_wait(const k_context *ctx, cudaEvent_t event)
{
    const cuda_context *c = cuda_of(ctx);
    const double began = now();
    for (;;) {
        const cudaError_t e = event ? cuda.cudaEventQuery(event) : cuda.cudaStreamQuery(c->stream);
        if (e != cudaErrorNotReady) return cuda_status(ctx, e, event ? "cudaEventQuery" : "cudaStreamQuery");
        if (c->communicator->failed) return has_failed(ctx);
        CUDA_FORWARD(check(ctx, began));
        pause_briefly();
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What the ranks tell each other. */
typedef struct introduction {
    int version; /* of NCCL; 0: this rank cannot use it */
    ncclUniqueId id;
    cudaUUID_t device;
} introduction;

static ampc_status introduce(const k_context *ctx, introduction *mine)
{
    char reason[CUDA_MAX_REASON];
    if (cuda_api_open(CUDA_NCCL, reason, sizeof reason) != AMPC_OK)
        return cuda_fail(ctx, AMPC_DEVICE, "several ranks on GPUs need NCCL 2.18 or later: %s", reason);
    int version = 0;
    struct cudaDeviceProp device;
    CUDA_CALL(ctx, cudaGetDeviceProperties(&device, cuda_of(ctx)->device));
    ncclResult_t result = cuda.ncclGetVersion(&version);
    if (result == ncclSuccess && version < OLDEST)
        return cuda_fail(ctx, AMPC_DEVICE, "NCCL %d.%d is too old: 2.18 or later is required", version / 10000,
                         version / 100 % 100);
    if (result == ncclSuccess && ctx->ranks->index == 0) result = cuda.ncclGetUniqueId(&mine->id);
    if (result != ncclSuccess)
        return cuda_fail(ctx, AMPC_DEVICE, "NCCL: %s: %s", cuda.ncclGetErrorString(result),
                         cuda.ncclGetLastError(NULL));
    mine->version = version;
    mine->device = device.uuid;
    return AMPC_OK;
}

/* The first rank that has the same device as rank i, which may be i. */
static int first_with_device(const introduction *all, int i)
{
    int first = 0;
    while (memcmp(&all[first].device, &all[i].device, sizeof all[i].device) != 0) first++;
    return first;
}

static ampc_status check_devices(const k_context *ctx, const introduction *all)
{
    const int count = ctx->ranks->count;
    int devices = 0, shares = 0;
    for (int i = 0; i < count; i++) devices += first_with_device(all, i) == i;
    if (devices == count) return AMPC_OK;
    while (first_with_device(all, shares) == shares) shares++;
    return cuda_fail(ctx, AMPC_DEVICE,
                     "%d ranks have %d GPU%s: each needs one of its own, but ranks %d and %d have the same", count,
                     devices, devices == 1 ? "" : "s", first_with_device(all, shares), shares);
}

/* All ranks fail if one of them cannot begin, instead of waiting for it. */
static ampc_status agree(const k_context *ctx, ampc_status status, ncclUniqueId *id)
{
    k_ranks *r = ctx->ranks;
    introduction mine = {0}, *all = calloc((size_t)r->count, sizeof *all);
    if (status == AMPC_OK) status = introduce(ctx, &mine);
    if (!all) {
        r->lost = true;
        return cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory for the ranks");
    }
    const ampc_status gathered = r->all_gather(r, &mine, all, sizeof mine);
    if (status == AMPC_OK && gathered != AMPC_OK) status = cuda_fail(ctx, gathered, "%s", r->error);
    for (int i = 0; i < r->count && status == AMPC_OK; i++) {
        if (!all[i].version) status = cuda_fail(ctx, AMPC_DEVICE, "rank %d cannot use NCCL", i);
        else if (all[i].version != all[0].version)
            status = cuda_fail(ctx, AMPC_DEVICE, "NCCL's version is %d on rank %d, but %d on rank 0", all[i].version, i,
                               all[0].version);
    }
    if (status == AMPC_OK) status = check_devices(ctx, all);
    *id = all[0].id;
    free(all);
    return status;
}

static ampc_status connect(const k_context *ctx, ncclUniqueId id)
{
    cuda_communicator *c = cuda_of(ctx)->communicator;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    c->sent = -1;
    CUDA_CALL(ctx, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    CUDA_CALL(ctx, cudaEventCreateWithFlags(&c->fork, cudaEventDisableTiming));
    CUDA_CALL(ctx, cudaMalloc((void **)&c->share, sizeof *c->share));
    CUDA_FORWARD(cuda_find(ctx, CUDA_FAMILY_ranks, "ranks_set", &c->set));
    CUDA_NCCL_CALL(ctx, ncclCommInitRankConfig(&c->comm, ctx->ranks->count, id, ctx->ranks->index, &config));
    return AMPC_OK;
}

ampc_status cuda_communicator_open(const k_context *ctx, ampc_status status)
{
    ncclUniqueId id;
    CUDA_FORWARD(agree(ctx, status, &id));
    cuda_communicator *c = cuda_of(ctx)->communicator = calloc(1, sizeof *c);
    status = c ? connect(ctx, id) : cuda_fail(ctx, AMPC_NO_MEMORY, "out of memory for the ranks");
    if (status != AMPC_OK) ctx->ranks->lost = true;
    return status;
}

ampc_status cuda_communicator_refresh(const k_context *ctx)
{
    cuda_communicator *c = cuda_of(ctx)->communicator;
    const k_args args = {.ctx = ctx};
    if (!c) return AMPC_OK;
    if (c->failed) return has_failed(ctx);
    if (c->sent == ctx->ranks->share) return AMPC_OK;
    float share = (float)ctx->ranks->share;
    CUDA_FORWARD(cuda_launch(&args, c->set, 1, 32, 0, (void *[]){&c->share, &share}));
    c->sent = ctx->ranks->share;
    return AMPC_OK;
}

/* ---- closing --------------------------------------------------------------------------------- */

/* Other ranks may still need this one for what is complete here, so it waits for them, but not for long. */
static void leave(cuda_communicator *c)
{
    ncclResult_t state = cuda.ncclCommFinalize(c->comm);
    for (const double end = now() + CLOSE_TIMEOUT; state == ncclInProgress && now() < end; pause_briefly())
        if (cuda.ncclCommGetAsyncError(c->comm, &state) != ncclSuccess) state = ncclInternalError;
    if (state == ncclSuccess) cuda.ncclCommDestroy(c->comm);
    else cuda.ncclCommAbort(c->comm);
    c->comm = NULL;
}

/* Ignores errors, because the session no longer exists. */
void cuda_communicator_close(const k_context *ctx)
{
    cuda_communicator *c = cuda_of(ctx)->communicator;
    if (!c) return;
    if (c->comm && cuda_of(ctx)->stream && cuda_communicator_wait(ctx, NULL) != AMPC_OK) abandon(ctx);
    if (c->comm) leave(c);
    if (c->stream) cuda.cudaStreamSynchronize(c->stream);
    if (c->share) cuda.cudaFree(c->share);
    if (c->fork) cuda.cudaEventDestroy(c->fork);
    if (c->stream) cuda.cudaStreamDestroy(c->stream);
    free(c);
    cuda_of(ctx)->communicator = NULL;
}
