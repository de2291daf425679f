/* scatter.c - launches of gathers and scatters by coordinates. */
#include "kernels/cuda/scatter.h"
#include "kernels/cuda/row_sums.h"
#include "kernels/places.h"

#include <stdio.h>

_Static_assert((int)PLACES_RANK == (int)IR_MAX_RANK, "one limit");

/* The rows in `data` that the indices address. */
static cuda_places places_of(const k_args *args, const k_view *data)
{
    const k_places p = k_places_of(args, data);
    const k_view *indices = &args->in[1];
    cuda_places c = {.indices = indices->data,
                     .dtype = (int)indices->dtype,
                     .step = args->step,
                     .fault = cuda_of(args->ctx)->fault,
                     .rank = p.items.rank,
                     .depth = p.depth,
                     .count = p.count,
                     .rows = p.rows,
                     .inner = p.inner};
    for (int i = 0; i < p.items.rank; i++) {
        c.dims[i] = p.items.dims[i];
        c.base[i] = p.items.src[i];
    }
    for (int k = 0; k < p.depth; k++) {
        c.size[k] = p.size[k];
        c.stride[k] = p.stride[k];
    }
    return c;
}

/* Moves rows with the kernel for the widest element that divides a row and the addresses. */
static ampc_status move_rows(const k_args *args, const cudaKernel_t *kernels, scatter_rows s, size_t size)
{
    const uint64_t bytes = (uint64_t)s.places.inner * size;
    const uint64_t all = bytes | (uint64_t)(uintptr_t)s.from | (uint64_t)(uintptr_t)s.to | 16;
    int wide = 0;
    while (!(all >> wide & 1)) wide++;
    s.places.inner = (int64_t)(bytes >> wide);
    return cuda_launch(args, kernels[wide], cuda_grid(args, s.places.count * s.places.inner, GATHER_BLOCK),
                       GATHER_BLOCK, 0, (void *[]){&s});
}

/* Looks up a kernel for each element size. */
static ampc_status find_rows(const k_args *args, const char *prefix, cudaKernel_t *kernels)
{
    for (int i = 0; i < GATHER_SIZES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_%d", prefix, 1 << i);
        CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_scatter, name, &kernels[i]));
    }
    return AMPC_OK;
}

/* ---- gather ---- */

typedef struct gather_state {
    cudaKernel_t claim, kernels[GATHER_SIZES]; /* by log2 of the element size */
} gather_state;

static ampc_status gather_prepare(const k_args *args, void **out, size_t *workspace)
{
    (void)workspace;
    CUDA_FORWARD(cuda_new_state(args, sizeof(gather_state), out));
    gather_state *s = *out;
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_scatter, "scatter_claim", &s->claim));
    return find_rows(args, "scatter_read", s->kernels);
}

/* Checks the indices of a call that moves nothing. */
static ampc_status check_indices(const k_args *args, cudaKernel_t claim, const cuda_places *p, int *winners)
{
    scatter_rows s = {.places = *p, .winners = winners};
    return cuda_launch(args, claim, cuda_grid(args, p->count, GATHER_BLOCK), GATHER_BLOCK, 0, (void *[]){&s});
}

static ampc_status gather_run(const k_args *args)
{
    const gather_state *state = args->state;
    const k_view *x = &args->in[0], *y = &args->out[0];
    const scatter_rows s = {.places = places_of(args, x), .from = x->data, .to = y->data};
    if (k_count(y) == 0) return check_indices(args, state->claim, &s.places, NULL);
    return move_rows(args, state->kernels, s, ir_dtype_size(x->dtype));
}

/* ---- scatter ---- */

typedef struct scatter_state {
    cudaKernel_t claim, kernels[GATHER_SIZES];
    row_sums_kernels sums;
} scatter_state;

static row_sums_plan scatter_plan_of(const k_args *args)
{
    const k_places p = k_places_of(args, &args->out[0]);
    return row_sums_plan_of(1, p.rows, p.inner, p.count, ir_dtype_size(cuda_carrier(args->out[0].dtype)));
}

static ampc_status scatter_prepare(const k_args *args, void **out, size_t *workspace)
{
    static const char *const names[IR_DTYPE_COUNT][2] = {
        [IR_f32] = {"scatter_sum_float", "scatter_join_float"},
        [IR_i64] = {"scatter_sum_integer", "scatter_join_integer"},
        [IR_u64] = {"scatter_sum_unsigned", "scatter_join_unsigned"},
    };
    const row_sums_plan p = scatter_plan_of(args);
    CUDA_FORWARD(cuda_new_state(args, sizeof(scatter_state), out));
    scatter_state *s = *out;
    CUDA_FORWARD(row_sums_find(args, &p, names[cuda_carrier(args->out[0].dtype)], CUDA_FAMILY_scatter, &s->sums));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_scatter, "scatter_claim", &s->claim));
    *workspace = args->attr[IR_ATTR(scatter_nd, reduction)].i == IR_WORD(scatter, none)
                     ? (size_t)p.entries * sizeof(int)
                     : p.bytes;
    return find_rows(args, "scatter_write", s->kernels);
}

static ampc_status scatter_run(const k_args *args)
{
    const scatter_state *state = args->state;
    const k_view *x = &args->in[0], *updates = &args->in[IR_IN(scatter_nd, updates)], *y = &args->out[0];
    const enum ir_words_scatter mode = args->attr[IR_ATTR(scatter_nd, reduction)].i;
    const cudaStream_t stream = cuda_of(args->ctx)->stream;
    const cuda_places places = places_of(args, y);
    const row_sums_plan p = scatter_plan_of(args);
    if (k_count(y) == 0) return check_indices(args, state->claim, &places, NULL);
    CUDA_CALL(args->ctx, cudaMemcpyAsync(y->data, x->data, k_bytes(y), cudaMemcpyDeviceToDevice, stream));
    if (places.count == 0) return AMPC_OK;
    if (mode != IR_WORD(scatter, none)) return row_sums_run(args, &state->sums, &p, &places, updates, mode);
    int *winners = args->workspace;
    CUDA_CALL(args->ctx, cudaMemsetAsync(winners, 0xff, (size_t)places.rows * sizeof *winners, stream));
    CUDA_FORWARD(check_indices(args, state->claim, &places, winners));
    const scatter_rows s = {.places = places, .from = updates->data, .to = y->data, .winners = winners};
    return move_rows(args, state->kernels, s, ir_dtype_size(y->dtype));
}

/* ---- bits ---- */

static ampc_status bit_cast_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    (void)workspace;
    return cuda_check_dtypes(args);
}

static ampc_status bit_cast_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    if (k_count(y) == 0) return AMPC_OK;
    CUDA_CALL(args->ctx,
              cudaMemcpyAsync(y->data, x->data, k_bytes(y), cudaMemcpyDeviceToDevice, cuda_of(args->ctx)->stream));
    return AMPC_OK;
}

const k_kernel cuda_gather_at = {.prepare = gather_prepare, .run = gather_run, .release = cuda_release};
const k_kernel cuda_scatter_at = {.prepare = scatter_prepare, .run = scatter_run, .release = cuda_release};
const k_kernel cuda_bit_cast = {.prepare = bit_cast_prepare, .run = bit_cast_run};
