/* backend_cpu.c - the CPU backend: the reference, and the default. */
#include "kernels/update.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/backend.h"

#include <string.h>

static ampc_status open_cpu(k_context *ctx, int index)
{
    (void)index;
    ampc_status status = cpu_open(ctx->error, ctx->error_size);
    return status == AMPC_OK ? cpu_team_open(ctx) : status;
}

static ampc_status alloc(const k_context *ctx, size_t bytes, void **out)
{
    (void)ctx;
    *out = rt_alloc_block(bytes);
    return *out ? AMPC_OK : AMPC_NO_MEMORY;
}

static void release(const k_context *ctx, void *memory)
{
    (void)ctx;
    rt_free(memory);
}

static ampc_status copy(const k_context *ctx, void *dst, const void *src, size_t bytes)
{
    (void)ctx;
    if (bytes) memcpy(dst, src, bytes);
    return AMPC_OK;
}

static bool channels_last(ir_dtype t)
{
    (void)t;
    return true;
}

const rt_backend rt_backend_cpu = {
    .name = "cpu",
    .alignment = 64,
    .open = open_cpu,
    .notice = cpu_notice,
    .close = cpu_team_close,
    .before_run = cpu_team_check,
    .kernel = cpu_kernel,
    .fused = &cpu_fused,
    .tails = &cpu_tails,
    .grad_update = &cpu_grad_update,
    .joins_update = cpu_joins_update,
    .check_factors = &cpu_check_factors,
    .absorbs = cpu_supports_epilogue,
    .computes = cpu_computes,
    .speed = cpu_speed,
    .rounds = cpu_rounds,
    .channels_last = channels_last,
    .plain_weights = true,
    .alloc = alloc,
    .free = release,
    .copy = copy,
    .commit = copy,
};
