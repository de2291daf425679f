/* pool.c - launches of maximum and average pooling and of their gradients. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/pool.h"
#include "kernels/pooling.h"

#include <stdio.h>

static pool_shape shape_of(const k_view *wide, const k_view *narrow, const ir_attr *attr)
{
    pool_axis axes[POOL_AXES];
    pool_axes_of(wide, narrow, attr, axes);
    pool_shape s = {.planes = wide->dims[0] * wide->dims[1],
                    .wide = (int)pool_plane(wide),
                    .narrow = (int)pool_plane(narrow)};
    for (int i = 0; i < POOL_AXES; i++)
        s.axis[i] = (pool_span){(int)axes[i].in,       (int)axes[i].out,    (int)axes[i].kernel, (int)axes[i].stride,
                                (int)axes[i].dilation, (int)axes[i].before, (int)axes[i].after};
    return s;
}

/* One thread for each element: positions in a plane are 32 bits wide. */
static ampc_status prepare_one(const k_args *args, const char *name, void **state)
{
    const k_view *x = pool_plane(&args->in[0]) > pool_plane(&args->out[0]) ? &args->in[0] : &args->out[0];
    if (pool_plane(x) >= 1 << 30)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "an image has 2^30 elements or more");
    return cuda_prepare_one(args, CUDA_FAMILY_pool, name, state);
}

static ampc_status launch_elements(const k_args *args, pool_args *a, const k_view *to)
{
    const cuda_one *state = args->state;
    return cuda_launch(args, state->kernel, cuda_blocks(k_count(to), POOL_BLOCK), POOL_BLOCK, 0, (void *[]){a});
}

/* ---- maximum ---- */

static ampc_status max_pool_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    return prepare_one(args, ir_dtype_is_float(args->in[0].dtype) ? "max_pool_float" : "max_pool_integer", state);
}

static ampc_status max_pool_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    pool_args a = {.shape = shape_of(x, y, &args->attr[IR_ATTR(max_pool, kernel)]),
                   .from = x->data,
                   .to = y->data,
                   .dtype = (int)x->dtype,
                   .indices = cuda_data(args->out, IR_OUT(max_pool, indices), args->n_out),
                   .column_major = args->attr[IR_ATTR(max_pool, column_major)].i != 0};
    return launch_elements(args, &a, y);
}

static ampc_status max_pool_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    if (args->in[IR_IN(max_pool_grad, indices)].dtype != IR_i64)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "indices must be i64");
    return prepare_one(args, "max_pool_scatter", state);
}

/* As many planes as a block has room for, but so few that all multiprocessors have work. */
static int block_planes(const pool_scatter *a)
{
    int64_t room = a->wide ? POOL_SEGMENT / a->wide : 1, share = a->planes / (CUDA_MOST_BLOCKS / 4);
    int64_t planes = share < room ? share : room;
    return planes < 1 ? 1 : (int)planes;
}

static ampc_status max_pool_grad_run(const k_args *args)
{
    const cuda_one *state = args->state;
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    pool_scatter a = {.dy = dy->data,
                      .indices = args->in[IR_IN(max_pool_grad, indices)].data,
                      .dx = dx->data,
                      .dtype = (int)dx->dtype,
                      .planes = dx->dims[0] * dx->dims[1],
                      .wide = pool_plane(dx),
                      .narrow = pool_plane(dy)};
    a.block_planes = block_planes(&a);
    a.segments = (a.wide + POOL_SEGMENT - 1) / POOL_SEGMENT;
    const int64_t ranges = (a.planes + a.block_planes - 1) / a.block_planes;
    return cuda_launch(args, state->kernel, cuda_blocks(ranges * a.segments, 1), POOL_BLOCK, 0, (void *[]){&a});
}

/* ---- average ---- */

/* Each window is a whole plane: the planes are rows. */
static bool whole_planes(const pool_shape *s)
{
    bool whole = s->narrow == 1;
    for (int i = 0; i < POOL_AXES; i++) {
        const pool_span *a = &s->axis[i];
        whole &= a->kernel == a->in && a->before == 0 && a->dilation == 1;
    }
    return whole;
}

static cuda_rows plane_rows(const pool_shape *s)
{
    return (cuda_rows){s->planes, s->wide, 1};
}

static pool_args average_of(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    return (pool_args){.shape = shape_of(x, y, &args->attr[IR_ATTR(avg_pool, kernel)]),
                       .from = x->data,
                       .to = y->data,
                       .dtype = (int)x->dtype,
                       .padded = args->attr[IR_ATTR(avg_pool, count_pad)].i != 0};
}

static ampc_status avg_pool_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    const pool_args a = average_of(args);
    const cuda_rows rows = plane_rows(&a.shape);
    char name[64];
    snprintf(name, sizeof name, "avg_pool_%s", whole_planes(&a.shape) ? cuda_rows_kernel(&rows) : "windows");
    return prepare_one(args, name, state);
}

static ampc_status avg_pool_run(const k_args *args)
{
    const cuda_one *state = args->state;
    pool_args a = average_of(args);
    const cuda_rows rows = plane_rows(&a.shape);
    if (!whole_planes(&a.shape)) return launch_elements(args, &a, &args->out[0]);
    return cuda_launch(args, state->kernel, cuda_rows_blocks(&rows), ROW_BLOCK, 0, (void *[]){&a});
}

static ampc_status avg_pool_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    return prepare_one(args, "avg_pool_spread", state);
}

static ampc_status avg_pool_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    pool_args a = {.shape = shape_of(dx, dy, &args->attr[IR_ATTR(avg_pool_grad, kernel)]),
                   .from = dy->data,
                   .to = dx->data,
                   .dtype = (int)dx->dtype,
                   .padded = args->attr[IR_ATTR(avg_pool_grad, count_pad)].i != 0};
    return launch_elements(args, &a, dx);
}

const k_kernel cuda_max_pool = {"max_pool", max_pool_prepare, max_pool_run, cuda_release};
const k_kernel cuda_max_pool_grad = {"max_pool_grad", max_pool_grad_prepare, max_pool_grad_run, cuda_release};
const k_kernel cuda_avg_pool = {"avg_pool", avg_pool_prepare, avg_pool_run, cuda_release};
const k_kernel cuda_avg_pool_grad = {"avg_pool_grad", avg_pool_grad_prepare, avg_pool_grad_run, cuda_release};
