/* gather.c - launches of gather and its gradient. */
#include "kernels/cuda/gather.h"
#include "kernels/cuda/cuda.h"
#include "kernels/walk.h"

#include <stdio.h>
#include <stdlib.h>

_Static_assert((int)GATHER_BLOCK == (int)SORT_DIGITS, "a thread for each digit");

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

typedef struct grad_state {
    cudaKernel_t count, places, place, sum, join;
} grad_state;

/* Sort and summation parameters, and the offsets of the pieces of workspace in bytes. */
typedef struct grad_plan {
    k_axis axis; /* of dx */
    int64_t indices, runs;
    int passes; /* of the sort */
    int64_t each, blocks;
    size_t keys[2], positions[2], counts, partial, bytes;
} grad_plan;

static size_t reserve(grad_plan *p, int64_t count, size_t size)
{
    const size_t at = p->bytes;
    p->bytes += ((size_t)count * size + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
    return at;
}

static grad_plan grad_plan_of(const k_args *args)
{
    grad_plan p = {.axis = k_axis_of(&args->out[0], args->attr[IR_ATTR(gather_grad, axis)].i),
                   .indices = k_count(&args->in[1]),
                   .passes = 1};
    while (p.passes < 4 && p.axis.length > (int64_t)1 << 8 * p.passes) p.passes++;
    const int64_t turns = (p.indices + SORT_TURN - 1) / SORT_TURN;
    const int64_t turns_each = (turns + SORT_BLOCKS - 1) / SORT_BLOCKS;
    p.each = SORT_TURN * (turns_each < SORT_TURNS ? SORT_TURNS : turns_each);
    p.blocks = (p.indices + p.each - 1) / p.each;
    p.runs = (p.indices + GATHER_RUN - 1) / GATHER_RUN;
    for (int i = 0; i < 2; i++) {
        p.keys[i] = reserve(&p, p.indices, sizeof(unsigned));
        p.positions[i] = reserve(&p, p.indices, sizeof(unsigned));
    }
    p.counts = reserve(&p, SORT_DIGITS * p.blocks, sizeof(unsigned));
    p.partial = reserve(&p, p.axis.outer * p.runs * 2 * p.axis.inner, sizeof(float));
    return p;
}

static ampc_status gather_grad_prepare(const k_args *args, void **out, size_t *workspace)
{
    const grad_plan p = grad_plan_of(args);
    const struct {
        const char *name;
        size_t offset;
    } kernels[] = {{"gather_count", offsetof(grad_state, count)},
                   {"gather_places", offsetof(grad_state, places)},
                   {"gather_place", offsetof(grad_state, place)},
                   {"gather_sum", offsetof(grad_state, sum)},
                   {"gather_join", offsetof(grad_state, join)}};
    if (p.indices > INT32_MAX || p.axis.length > UINT32_MAX)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "%lld indices into %lld entries are too many for this device",
                         (long long)p.indices, (long long)p.axis.length);
    CUDA_FORWARD(cuda_new_state(args, sizeof(grad_state), out));
    grad_state *s = *out;
    for (int i = 0; i < (int)(sizeof kernels / sizeof *kernels); i++)
        CUDA_FORWARD(
            cuda_find(args->ctx, CUDA_FAMILY_gather, kernels[i].name, (cudaKernel_t *)((char *)s + kernels[i].offset)));
    *workspace = p.bytes;
    return AMPC_OK;
}

/* Sorts the indices into keys[passes % 2] and positions[passes % 2]. */
static ampc_status sort(const k_args *args, const grad_plan *p)
{
    const grad_state *s = args->state;
    const k_view *indices = &args->in[1];
    char *base = args->workspace;
    gather_sort g = {.dtype = (int)indices->dtype,
                     .step = args->step,
                     .fault = cuda_of(args->ctx)->fault,
                     .counts = (unsigned *)(base + p->counts),
                     .entries = p->axis.length,
                     .count = p->indices,
                     .each = p->each,
                     .blocks = (int)p->blocks};
    for (int pass = 0; pass < p->passes; pass++) {
        const int from = pass % 2, to = !from;
        g.indices = pass == 0 ? indices->data : NULL;
        g.keys = (unsigned *)(base + p->keys[from]);
        g.positions = (unsigned *)(base + p->positions[from]);
        g.sorted_keys = (unsigned *)(base + p->keys[to]);
        g.sorted_positions = (unsigned *)(base + p->positions[to]);
        g.shift = 8 * pass;
        CUDA_FORWARD(cuda_launch(args, s->count, p->blocks, GATHER_BLOCK, 0, (void *[]){&g}));
        CUDA_FORWARD(cuda_launch(args, s->places, 1, GATHER_BLOCK, 0, (void *[]){&g.counts, &g.blocks}));
        CUDA_FORWARD(cuda_launch(args, s->place, p->blocks, GATHER_BLOCK, 0, (void *[]){&g}));
    }
    return AMPC_OK;
}

static ampc_status gather_grad_run(const k_args *args)
{
    const grad_state *s = args->state;
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    const grad_plan p = grad_plan_of(args);
    char *base = args->workspace;
    if (k_count(dx)) CUDA_CALL(args->ctx, cudaMemsetAsync(dx->data, 0, k_bytes(dx), cuda_of(args->ctx)->stream));
    if (p.indices == 0) return AMPC_OK;
    CUDA_FORWARD(sort(args, &p)); /* also reports bad indices if there is nothing to add */
    gather_sums g = {.dy = dy->data,
                     .dx = dx->data,
                     .dy_dtype = (int)dy->dtype,
                     .dx_dtype = (int)dx->dtype,
                     .keys = (const unsigned *)(base + p.keys[p.passes % 2]),
                     .positions = (const unsigned *)(base + p.positions[p.passes % 2]),
                     .partial = (float *)(base + p.partial),
                     .outer = p.axis.outer,
                     .entries = p.axis.length,
                     .inner = p.axis.inner,
                     .count = p.indices,
                     .runs = p.runs,
                     .lanes = 1};
    const int64_t tiles = (g.inner + CUDA_TILE - 1) / CUDA_TILE;
    while (g.lanes < tiles && g.lanes < GATHER_BLOCK) g.lanes *= 2;
    const int64_t units = g.outer * g.runs * ((tiles + g.lanes - 1) / g.lanes),
                  blocks = cuda_blocks(units, GATHER_BLOCK / g.lanes);
    if (k_count(dx) == 0) return AMPC_OK;
    CUDA_FORWARD(cuda_launch(args, s->sum, blocks, GATHER_BLOCK, 0, (void *[]){&g}));
    return cuda_launch(args, s->join, blocks, GATHER_BLOCK, 0, (void *[]){&g});
}

const k_kernel cuda_gather = {.prepare = gather_prepare, .run = gather_run, .release = cuda_release};
const k_kernel cuda_gather_grad = {.prepare = gather_grad_prepare, .run = gather_grad_run, .release = cuda_release};
