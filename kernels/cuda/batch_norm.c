/* batch_norm.c - launches of batch_norm and its gradient. */
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/cuda.h"
#include "kernels/norm_grad.h"
#include "kernels/statistics.h"

#include <stdlib.h>

typedef struct norm_state {
    cudaKernel_t sums, factors, apply;
} norm_state;

/* What a block sums: a strip of tiles of channels, 32 channels, or one channel. With a relu, small images do not have a
 * form of their own. */
typedef enum norm_form { STRIPS, LANES, CHANNEL } norm_form;

static norm_form form_of(const norm_shape *s)
{
    return s->size == 1 ? STRIPS : s->size < NORM_INTERLEAVED && !s->relu ? LANES : CHANNEL;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Number of channel groups that blocks sum; rounds() returns the iterations of one block over a group. */
static int64_t group_count(const norm_shape *s)
{
    switch (form_of(s)) {
    case STRIPS: return ceil_div(s->channels * s->pack, (int64_t)CUDA_TILE * s->lanes);
    case LANES: return ceil_div(s->channels, 32);
    default: return s->channels;
    }
}

static int64_t rounds(const norm_shape *s)
{
    switch (form_of(s)) {
    case STRIPS: return s->batch / s->pack * s->lanes / (CUDA_TILE * ROW_BLOCK);
    case LANES: return s->batch * s->size / (CUDA_TILE * ROW_WARPS);
    default: return s->batch * ceil_div(s->size, CUDA_TILE) / ROW_BLOCK;
    }
}

/* Returns enough splits to keep a device busy, each with several rounds. */
static int splits_of(const norm_shape *s)
{
    const bool strips = form_of(s) == STRIPS;
    const int64_t groups = group_count(s);
    const int64_t busy = groups ? (strips ? NORM_STRIP_BLOCKS : CUDA_MAX_BLOCKS) / groups : 1;
    const int64_t splits = min64(min64(rounds(s) / 2, busy), strips ? busy : NORM_SPLITS);
    return (int)(splits < 1 ? 1 : splits);
}

static norm_shape shape_of(const k_view *x, bool relu)
{
    norm_shape s = {.batch = x->dims[0], .channels = x->dims[1], .size = 1, .pack = 1, .lanes = 1, .relu = relu};
    for (int i = 2; i < x->rank; i++) *(x->channels_last ? &s.batch : &s.size) *= x->dims[i];
    if (form_of(&s) == STRIPS) {
        while (s.channels * s.pack % CUDA_TILE != 0) s.pack *= 2;
        while (s.lanes < 32 && s.lanes * CUDA_TILE < s.channels * s.pack) s.lanes *= 2;
    }
    s.splits = splits_of(&s);
    return s;
}

static size_t sums_bytes(const norm_shape *s)
{
    return (size_t)s->channels * (size_t)s->pack * (size_t)s->splits * sizeof(norm_sums);
}

/* Workspace: the sums, then the factors. */
static norm_input input_of(const k_args *args, int x, bool relu)
{
    return (norm_input){.shape = shape_of(&args->in[x], relu),
                        .x = args->in[x].data,
                        .dtype = (int)args->in[x].dtype,
                        .sums = args->workspace};
}

static norm_factors *factors_of(const k_args *args, const norm_shape *s)
{
    return (norm_factors *)((uintptr_t)args->workspace + sums_bytes(s));
}

/* Kernel names of an op, by form. */
typedef struct norm_names {
    const char *sums[3], *apply[3], *factors;
} norm_names;
/* clang-format off */
#define NORM_NAMES(op) \
    {.sums = {op "_sums_strips", op "_sums_lanes", op "_sums_channel"}, \
     .apply = {op "_apply_strips", op "_apply", op "_apply"}, .factors = op "_factors"}
#define RELU_NAMES(op, strips) \
    {.sums = {op "_grad_sums_strips", NULL, "batch_norm_relu_grad_sums_channel"}, \
     .apply = {strips, NULL, "batch_norm_relu_grad_apply"}, .factors = "batch_norm_grad_factors"}
/* clang-format on */
static const norm_names forward_names = NORM_NAMES("batch_norm"), backward_names = NORM_NAMES("batch_norm_grad"),
                        relu_x_names = RELU_NAMES("batch_norm_relu_x", "batch_norm_relu_x_grad_apply_strips"),
                        relu_y_names = RELU_NAMES("batch_norm_relu_y", "batch_norm_relu_grad_apply");

/* names: of the sums; last: of the other kernels. */
static ampc_status find_kernels(const k_args *args, const norm_names *names, const norm_names *last, void **state,
                                size_t *workspace)
{
    CUDA_FORWARD(cuda_new_state(args, sizeof(norm_state), state));
    norm_state *s = *state;
    const norm_shape shape = shape_of(&args->in[0], !names->sums[LANES]);
    const norm_form form = form_of(&shape);
    *workspace = sums_bytes(&shape) + (size_t)shape.channels * sizeof(norm_factors);
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_batch_norm, names->sums[form], &s->sums));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_batch_norm, last->factors, &s->factors));
    return cuda_find(args->ctx, CUDA_FAMILY_batch_norm, last->apply[form], &s->apply);
}

static ampc_status launch_sums(const k_args *args, norm_input *in, norm_relu *relu)
{
    const norm_state *state = args->state;
    const int64_t elements = in->shape.batch * in->shape.size;
    if (elements == 0) in->shape.splits = 0;
    return cuda_launch(args, state->sums, group_count(&in->shape) * in->shape.splits, ROW_BLOCK, 0,
                       (void *[]){in, relu});
}

static ampc_status launch_apply(const k_args *args, norm_input *in, norm_factors *factors, norm_relu *relu, void *to)
{
    const norm_state *state = args->state;
    const norm_shape *s = &in->shape;
    int64_t blocks = cuda_grid(args, s->batch * s->channels * s->size, ROW_BLOCK * CUDA_TILE);
    if (!to) return AMPC_OK;
    if (form_of(s) == STRIPS && blocks) blocks = ceil_div(blocks, group_count(s)) * group_count(s);
    return cuda_launch(args, state->apply, blocks, ROW_BLOCK, 0, (void *[]){in, &factors, relu, &to});
}

static int64_t factor_blocks(const norm_shape *s) { return cuda_blocks(s->channels, ROW_WARPS); }

/* ---- forward ---- */

static ampc_status batch_norm_prepare(const k_args *args, void **state, size_t *workspace)
{
    return find_kernels(args, &forward_names, &forward_names, state, workspace);
}

static ampc_status batch_norm_run(const k_args *args)
{
    const norm_state *state = args->state;
    const k_view *in = args->in;
    const k_statistics known = k_statistics_of(args);
    norm_forward a = {.in = input_of(args, IR_IN(batch_norm, x), false),
                      .scale = in[IR_IN(batch_norm, scale)].data,
                      .bias = in[IR_IN(batch_norm, bias)].data,
                      .mean = in[IR_IN(batch_norm, mean)].data,
                      .var = in[IR_IN(batch_norm, var)].data,
                      .sum = known.sum ? known.sum->data : NULL,
                      .squares = known.squares ? known.squares->data : NULL,
                      .mean_out = cuda_data(args->out, IR_OUT(batch_norm, mean_out), args->n_out),
                      .var_out = cuda_data(args->out, IR_OUT(batch_norm, var_out), args->n_out),
                      .saved_mean = cuda_data(args->out, IR_OUT(batch_norm, saved_mean), args->n_out),
                      .saved_rstd = cuda_data(args->out, IR_OUT(batch_norm, saved_rstd), args->n_out),
                      .dtype = (int)in[IR_IN(batch_norm, scale)].dtype,
                      .training = args->attr[IR_ATTR(batch_norm, training)].i != 0,
                      .eps = args->attr[IR_ATTR(batch_norm, eps)].f,
                      .momentum = args->attr[IR_ATTR(batch_norm, momentum)].f};
    norm_relu none = {NULL};
    a.factors = factors_of(args, &a.in.shape);
    if (a.sum) a.in.shape.splits = 0; /* nothing is left to sum */
    if (a.training) CUDA_FORWARD(launch_sums(args, &a.in, &none));
    else a.in.shape.splits = 0;
    CUDA_FORWARD(cuda_launch(args, state->factors, factor_blocks(&a.in.shape), ROW_BLOCK, 0, (void *[]){&a}));
    return launch_apply(args, &a.in, a.factors, &none, cuda_data(args->out, 0, args->n_out));
}

/* ---- backward ---- */

static ampc_status batch_norm_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    const k_norm_relu r = k_norm_relu_of(args);
    if (r.masked && !r.y)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "the gradient of a recomputed relu is not stored");
    const norm_names *names = r.bias ? &relu_x_names : r.y ? &relu_y_names : &backward_names;
    /* If the gradient of the relu is stored, only the sums compute it. */
    return find_kernels(args, names, r.masked ? &backward_names : names, state, workspace);
}

static norm_relu relu_of(const k_args *args)
{
    const k_norm_relu r = k_norm_relu_of(args);
    const k_view *scale = &args->in[IR_IN(batch_norm_grad, scale)];
    return (norm_relu){.addend = r.addend ? r.addend->data : NULL,
                       .y = r.y ? r.y->data : NULL,
                       .masked = r.masked ? r.masked->data : NULL,
                       .rstd = args->in[IR_IN(batch_norm_grad, saved_rstd)].data,
                       .scale = scale->data,
                       .bias = r.bias ? r.bias->data : NULL,
                       .dtype = (int)scale->dtype};
}

static ampc_status batch_norm_grad_run(const k_args *args)
{
    const norm_state *state = args->state;
    const k_view *in = args->in;
    norm_relu relu = relu_of(args);
    norm_backward a = {.in = input_of(args, IR_IN(batch_norm_grad, x), relu.bias || relu.y),
                       .scale = in[IR_IN(batch_norm_grad, scale)].data,
                       .rstd = relu.rstd,
                       .dscale = cuda_data(args->out, IR_OUT(batch_norm_grad, dscale), args->n_out),
                       .dbias = cuda_data(args->out, IR_OUT(batch_norm_grad, dbias), args->n_out),
                       .dtype = relu.dtype,
                       .training = args->attr[IR_ATTR(batch_norm_grad, training)].i != 0};
    a.in.dy = in[IR_IN(batch_norm_grad, dy)].data;
    a.in.mean = in[IR_IN(batch_norm_grad, saved_mean)].data;
    a.factors = factors_of(args, &a.in.shape);
    if (a.training || a.dscale || a.dbias || relu.masked) CUDA_FORWARD(launch_sums(args, &a.in, &relu));
    else a.in.shape.splits = 0;
    CUDA_FORWARD(cuda_launch(args, state->factors, factor_blocks(&a.in.shape), ROW_BLOCK, 0, (void *[]){&a}));
    if (relu.masked) a.in.dy = relu.masked;
    return launch_apply(args, &a.in, a.factors, &relu, cuda_data(args->out, 0, args->n_out));
}

const k_kernel cuda_batch_norm = {.prepare = batch_norm_prepare, .run = batch_norm_run, .release = cuda_release};
const k_kernel cuda_batch_norm_grad = {
    .prepare = batch_norm_grad_prepare, .run = batch_norm_grad_run, .release = cuda_release};
