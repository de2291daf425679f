/* pool.c - launches of max and average pooling and their gradients. */
#include "kernels/cuda/inner.h"
#include "kernels/cuda/pool.h"
#include "kernels/pooling.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct pool_state {
    cudaKernel_t kernel;
    cuda_inner mean; /* replaces the kernel if each window covers a whole plane */
} pool_state;

static void release(void *state)
{
    pool_state *s = state;
    if (s) cuda_inner_release(&s->mean);
    free(s);
}

static int channels_of(const k_view *v) { return v->channels_last ? (int)v->dims[1] : 1; }

static int64_t planes_of(const k_view *v) { return v->channels_last ? v->dims[0] : v->dims[0] * v->dims[1]; }

/* Channels per thread, or per block of the max pooling gradient. */
static int width_of(const k_view *v) { return v->channels_last ? CUDA_TILE : 1; }

static pool_shape shape_of(const k_view *wide, const k_view *narrow, const ir_attr *attr)
{
    pool_axis axes[POOL_AXES];
    pool_axes_of(wide, narrow, attr, axes);
    pool_shape s = {.planes = planes_of(wide),
                    .channels = channels_of(wide),
                    .wide = (int)pool_plane(wide),
                    .narrow = (int)pool_plane(narrow)};
    for (int i = 0; i < POOL_AXES; i++)
        s.axis[i] = (pool_span){(int)axes[i].in,       (int)axes[i].out,    (int)axes[i].kernel, (int)axes[i].stride,
                                (int)axes[i].dilation, (int)axes[i].before, (int)axes[i].after};
    return s;
}

/* Finds kernel `name` for the layout of the operands. Positions in a plane must fit into 32 bits. */
static ampc_status prepare_one(const k_args *args, const char *name, void **state)
{
    const k_view *x = pool_plane(&args->in[0]) > pool_plane(&args->out[0]) ? &args->in[0] : &args->out[0];
    char full[64];
    if (pool_plane(x) >= 1 << 30) return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "an image has 2^30 elements or more");
    CUDA_FORWARD(cuda_new_state(args, sizeof(pool_state), state));
    snprintf(full, sizeof full, "%s%s", name, x->channels_last ? "_last" : "");
    return cuda_find(args->ctx, CUDA_FAMILY_pool, full, &((pool_state *)*state)->kernel);
}

/* Launches one thread per element or tile of channels. */
static ampc_status launch_elements(const k_args *args, pool_args *a, const k_view *to)
{
    const pool_state *state = args->state;
    const int64_t width = width_of(to), tiles = (a->shape.channels + width - 1) / width;
    return cuda_launch(args, state->kernel, cuda_grid(args, planes_of(to) * pool_plane(to) * tiles, POOL_BLOCK),
                       POOL_BLOCK, 0, (void *[]){a});
}

/* ---- maximum ---- */

static ampc_status max_pool_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    return prepare_one(args, ir_dtype_is_float(args->in[0].dtype) ? "max_pool_float" : "max_pool_integer", state);
}

_Static_assert((int)POOL_NO_TAP == (int)POOL_MAX_TAPS, "one number");

static ampc_status max_pool_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const int at = IR_OUT(max_pool, indices);
    void *indices = cuda_data(args->out, at, args->n_out);
    const bool taps = indices && args->out[at].dtype == IR_u8;
    pool_args a = {.shape = shape_of(x, y, &args->attr[IR_ATTR(max_pool, kernel)]),
                   .from = x->data,
                   .to = y->data,
                   .dtype = (int)x->dtype,
                   .indices = taps ? NULL : indices,
                   .taps = taps ? indices : NULL,
                   .column_major = args->attr[IR_ATTR(max_pool, column_major)].i != 0};
    return launch_elements(args, &a, y);
}

static ampc_status max_pool_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    const ir_dtype t = args->in[IR_IN(max_pool_grad, indices)].dtype;
    (void)workspace;
    if (t == IR_u8) return prepare_one(args, "max_pool_spread", state);
    if (t != IR_i64) return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "indices must be i64");
    return prepare_one(args, "max_pool_scatter", state);
}

/* From tap numbers, each element gathers its gradients. */
static ampc_status max_pool_spread(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    const ir_attr *attr = args->attr + ir_op_get(args->op)->n_attr + IR_ATTR(max_pool, kernel);
    pool_args a = {.shape = shape_of(dx, dy, attr),
                   .from = dy->data,
                   .to = dx->data,
                   .dtype = (int)dx->dtype,
                   .taps = args->in[IR_IN(max_pool_grad, indices)].data};
    return launch_elements(args, &a, dx);
}

/* Returns the planes per block: as many as fit into shared memory, but few enough to keep all multiprocessors busy. */
static int block_planes(const pool_scatter *a, int width)
{
    const int64_t tiles = (a->channels + width - 1) / width;
    const int64_t capacity = a->wide ? POOL_SEGMENT / width / a->wide : 1,
                  share = a->planes * tiles / (CUDA_MAX_BLOCKS / 4), planes = share < capacity ? share : capacity;
    return planes < 1 ? 1 : (int)planes;
}

static ampc_status max_pool_grad_run(const k_args *args)
{
    const pool_state *state = args->state;
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    const int width = width_of(dx), max_span = POOL_SEGMENT / width;
    pool_scatter a = {.dy = dy->data,
                      .indices = args->in[IR_IN(max_pool_grad, indices)].data,
                      .dx = dx->data,
                      .dtype = (int)dx->dtype,
                      .planes = planes_of(dx),
                      .wide = pool_plane(dx),
                      .narrow = pool_plane(dy),
                      .channels = channels_of(dx)};
    a.block_planes = block_planes(&a, width);
    a.span = a.wide < max_span ? (int)a.wide : max_span;
    if (k_count(dx) == 0) return AMPC_OK;
    if (args->in[IR_IN(max_pool_grad, indices)].dtype == IR_u8) return max_pool_spread(args);
    const int64_t ranges = (a.planes + a.block_planes - 1) / a.block_planes, tiles = (a.channels + width - 1) / width;
    const int64_t segments = (a.wide + a.span - 1) / a.span;
    return cuda_launch(args, state->kernel, cuda_blocks(ranges * tiles * segments, 1), POOL_BLOCK, 0, (void *[]){&a});
}

/* ---- average ---- */

/* Whether each window covers a whole plane. */
static bool is_global(const pool_shape *s)
{
    bool global = s->narrow == 1;
    for (int i = 0; i < POOL_AXES; i++) {
        const pool_span *a = &s->axis[i];
        global &= a->kernel == a->in && a->before == 0 && a->dilation == 1;
    }
    return global;
}

static pool_args average_of(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    return (pool_args){.shape = shape_of(x, y, &args->attr[IR_ATTR(avg_pool, kernel)]),
                       .from = x->data,
                       .to = y->data,
                       .dtype = (int)x->dtype,
                       .padded = args->attr[IR_ATTR(avg_pool, count_pad)].i != 0,
                       .sum = args->attr[IR_ATTR(avg_pool, sum)].i != 0};
}

static ampc_status prepare_mean(const k_args *args, cuda_inner *mean)
{
    static const int64_t axes[2][POOL_AXES] = {{2, 3, 4}, {1, 2, 3}};
    const k_view *x = &args->in[0];
    *mean = (cuda_inner){
        .op = IR_OP_reduce_mean, .kernel = &cuda_reduce_mean, .in = cuda_dense(x), .out = cuda_dense(&args->out[0])};
    mean->attr[IR_ATTR(reduce_mean, axes)].list.items = axes[x->channels_last];
    mean->attr[IR_ATTR(reduce_mean, axes)].list.count = x->rank - 2;
    mean->attr[IR_ATTR(reduce_mean, keepdims)].i = 1;
    mean->attr[IR_ATTR(reduce_mean, out)].dtype = args->out[0].dtype;
    return cuda_inner_prepare(args, mean);
}

static ampc_status avg_pool_prepare(const k_args *args, void **state, size_t *workspace)
{
    const pool_args a = average_of(args);
    if (a.sum || !is_global(&a.shape)) return prepare_one(args, "avg_pool_windows", state);
    CUDA_FORWARD(cuda_new_state(args, sizeof(pool_state), state));
    pool_state *s = *state;
    CUDA_FORWARD(prepare_mean(args, &s->mean));
    *workspace = s->mean.workspace;
    return AMPC_OK;
}

static ampc_status avg_pool_run(const k_args *args)
{
    const pool_state *state = args->state;
    pool_args a = average_of(args);
    if (state->mean.kernel)
        return cuda_inner_run(args, &state->mean, args->in[0].data, args->out[0].data, args->workspace);
    return launch_elements(args, &a, &args->out[0]);
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
                   .padded = args->attr[IR_ATTR(avg_pool_grad, count_pad)].i != 0,
                   .sum = args->attr[IR_ATTR(avg_pool_grad, sum)].i != 0};
    return launch_elements(args, &a, dx);
}

const k_kernel cuda_max_pool = {.prepare = max_pool_prepare, .run = max_pool_run, .release = release};
const k_kernel cuda_max_pool_grad = {.prepare = max_pool_grad_prepare, .run = max_pool_grad_run, .release = release};
const k_kernel cuda_avg_pool = {.prepare = avg_pool_prepare, .run = avg_pool_run, .release = release};
const k_kernel cuda_avg_pool_grad = {.prepare = avg_pool_grad_prepare, .run = avg_pool_grad_run, .release = release};
