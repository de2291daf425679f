/* gather.c - launches of gather and its gradient. */
#include "kernels/cuda/row_sums.h"
#include "kernels/walk.h"

#include <stdio.h>

/* ---- gather ---- */

typedef struct gather_state {
    cudaKernel_t kernels[GATHER_SIZES]; /* by log2 of the element size */
} gather_state;

static ampc_status gather_prepare(const k_args *args, void **out, size_t *workspace)
{
    (void)workspace;
    CUDA_FORWARD(cuda_new_state(args, sizeof(gather_state), out));
    gather_state *s = *out;
    for (int i = 0; i < GATHER_SIZES; i++) {
        char name[32];
        snprintf(name, sizeof name, "gather_%d", 1 << i);
        CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_gather, name, &s->kernels[i]));
    }
    return AMPC_OK;
}

static ampc_status gather_run(const k_args *args)
{
    const gather_state *s = args->state;
    const k_view *x = &args->in[0], *indices = &args->in[1], *y = &args->out[0];
    const k_axis axis = k_axis_of(x, args->attr[IR_ATTR(gather, axis)].i);
    const size_t size = ir_dtype_size(x->dtype);
    /* copy rows in the widest elements, at most 16 bytes, that length and addresses allow */
    const uint64_t all = (uint64_t)axis.inner * size | (uint64_t)(uintptr_t)x->data | (uint64_t)(uintptr_t)y->data | 16;
    int wide = 0;
    while (!(all >> wide & 1)) wide++;
    gather_rows g = {.table = x->data,
                     .indices = indices->data,
                     .y = y->data,
                     .dtype = (int)indices->dtype,
                     .step = args->step,
                     .fault = cuda_of(args->ctx)->fault,
                     .outer = axis.outer,
                     .entries = axis.length,
                     .inner = axis.inner * (int64_t)size >> wide,
                     .count = k_count(indices)};
    const int64_t blocks = cuda_grid(args, g.outer * g.count * g.inner, GATHER_BLOCK);
    return cuda_launch(args, s->kernels[wide], blocks, GATHER_BLOCK, 0, (void *[]){&g});
}

/* ---- gradient ---- */

static row_sums_plan grad_plan_of(const k_args *args)
{
    const k_axis axis = k_axis_of(&args->out[0], args->attr[IR_ATTR(gather_grad, axis)].i);
    return row_sums_plan_of(axis.outer, axis.length, axis.inner, k_count(&args->in[1]), sizeof(float));
}

/* The sums are added to the addend, if there is one, by the kernels of scatter. */
static ampc_status gather_grad_prepare(const k_args *args, void **out, size_t *workspace)
{
    const row_sums_plan p = grad_plan_of(args);
    CUDA_FORWARD(cuda_new_state(args, sizeof(row_sums_kernels), out));
    *workspace = p.bytes;
    if (k_extra_in(args, K_SLOT(epilogue, addend)))
        return row_sums_find(args, &p, (const char *[]){"scatter_sum_float", "scatter_join_float"}, CUDA_FAMILY_scatter,
                             *out);
    return row_sums_find(args, &p, (const char *[]){"gather_sum", "gather_join"}, CUDA_FAMILY_gather, *out);
}

/* Fills the result with what the sums are added to: the addend, which it may overwrite, or 0. */
static ampc_status fill(const k_args *args)
{
    const k_view *addend = k_extra_in(args, K_SLOT(epilogue, addend)), *dx = &args->out[0];
    const cudaStream_t stream = cuda_of(args->ctx)->stream;
    if (k_count(dx) == 0 || (addend && addend->data == dx->data)) return AMPC_OK;
    if (addend)
        CUDA_CALL(args->ctx, cudaMemcpyAsync(dx->data, addend->data, k_bytes(dx), cudaMemcpyDeviceToDevice, stream));
    else CUDA_CALL(args->ctx, cudaMemsetAsync(dx->data, 0, k_bytes(dx), stream));
    return AMPC_OK;
}

static ampc_status gather_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *indices = &args->in[1];
    const row_sums_plan p = grad_plan_of(args);
    const cuda_places places = {.indices = indices->data,
                                .dtype = (int)indices->dtype,
                                .step = args->step,
                                .fault = cuda_of(args->ctx)->fault,
                                .rank = 1,
                                .depth = 1,
                                .dims = {p.count},
                                .size = {p.entries},
                                .stride = {1},
                                .count = p.count,
                                .rows = p.entries,
                                .inner = p.inner};
    CUDA_FORWARD(fill(args));
    return row_sums_run(args, args->state, &p, &places, dy, IR_WORD(scatter, add));
}

const k_kernel cuda_gather = {.prepare = gather_prepare, .run = gather_run, .release = cuda_release};
const k_kernel cuda_gather_grad = {
    .prepare = gather_grad_prepare, .run = gather_grad_run, .release = cuda_release, .adds = true};
