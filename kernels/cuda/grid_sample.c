/* grid_sample.c - launches of grid_sample and its gradient. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/grid_sample.h"

typedef struct state {
    cudaKernel_t sample, spread, slopes;
} state;

static ampc_status prepare(const k_args *args, void **out, size_t *workspace)
{
    (void)workspace;
    CUDA_FORWARD(cuda_new_state(args, sizeof(state), out));
    state *s = *out;
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_grid_sample, "grid_sample", &s->sample));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_grid_sample, "grid_sample_spread", &s->spread));
    return cuda_find(args->ctx, CUDA_FAMILY_grid_sample, "grid_sample_slopes", &s->slopes);
}

static grid_args arguments(const k_args *args, const k_view *x, const k_view *grid)
{
    grid_args a = {.shape = grid_shape_of(args, x, grid),
                   .x = x->data,
                   .grid = grid->data,
                   .dtype = (int)x->dtype,
                   .grid_dtype = (int)grid->dtype};
    a.span = a.shape.plane < GRID_SEGMENT ? (int)a.shape.plane : GRID_SEGMENT;
    return a;
}

static ampc_status launch(const k_args *args, cudaKernel_t kernel, int64_t blocks, grid_args *a)
{
    return cuda_launch(args, kernel, blocks, GRID_BLOCK, 0, (void *[]){a});
}

static ampc_status sample_run(const k_args *args)
{
    const state *s = args->state;
    grid_args a = arguments(args, &args->in[IR_IN(grid_sample, x)], &args->in[IR_IN(grid_sample, grid)]);
    a.to = args->out[0].data;
    return launch(args, s->sample, cuda_grid(args, k_count(&args->out[0]), GRID_BLOCK), &a);
}

static ampc_status grad_run(const k_args *args)
{
    const state *s = args->state;
    const k_view *grid = &args->in[IR_IN(grid_sample_grad, grid)];
    grid_args a = arguments(args, &args->in[IR_IN(grid_sample_grad, x)], grid);
    void *dx = args->out[0].data, *dgrid = cuda_data(args->out, IR_OUT(grid_sample_grad, dgrid), args->n_out);
    a.dy = args->in[IR_IN(grid_sample_grad, dy)].data;
    a.to = dx;
    if (dx && a.span) {
        const int64_t segments = (a.shape.plane + a.span - 1) / a.span;
        CUDA_FORWARD(launch(args, s->spread, cuda_blocks(a.shape.images * a.shape.channels * segments, 1), &a));
    }
    a.to = dgrid;
    if (!dgrid) return AMPC_OK;
    return launch(args, s->slopes, cuda_grid(args, a.shape.images * a.shape.points, GRID_BLOCK), &a);
}

const k_kernel cuda_grid_sample = {.prepare = prepare, .run = sample_run, .release = cuda_release};
const k_kernel cuda_grid_sample_grad = {.prepare = prepare, .run = grad_run, .release = cuda_release};
