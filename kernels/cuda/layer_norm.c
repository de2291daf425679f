/* layer_norm.c - launches of layer_norm and its gradient. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/walk.h"

#include <stdio.h>
#include <stdlib.h>

/* Treats the axes from `axis` on as one row. */
static cuda_rows rows_of(const k_view *x, int64_t axis)
{
    cuda_rows r = {1, 1, 1};
    int first = k_axis_number(axis, x->rank);
    for (int i = 0; i < x->rank; i++) *(i < first ? &r.outer : &r.length) *= x->dims[i];
    return r;
}

/* ---- forward ---- */

static ampc_status layer_norm_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    const cuda_rows rows = rows_of(&args->in[0], args->attr[IR_ATTR(layer_norm, axis)].i);
    char name[64];
    snprintf(name, sizeof name, "layer_norm_%s", cuda_rows_kernel(&rows));
    return cuda_prepare_one(args, CUDA_FAMILY_layer_norm, name, state);
}

/* The type that scale and bias share. */
static ir_dtype affine_dtype(const k_args *args)
{
    const k_view *scale = &args->in[IR_IN(layer_norm, scale)];
    return k_present(scale) ? scale->dtype : args->in[IR_IN(layer_norm, bias)].dtype;
}

static ampc_status layer_norm_run(const k_args *args)
{
    const cuda_one *state = args->state;
    const k_view *x = &args->in[0];
    layer_norm_forward a = {.rows = rows_of(x, args->attr[IR_ATTR(layer_norm, axis)].i),
                            .x = x->data,
                            .scale = cuda_data(args->in, IR_IN(layer_norm, scale), args->n_in),
                            .bias = cuda_data(args->in, IR_IN(layer_norm, bias), args->n_in),
                            .y = args->out[0].data,
                            .mean = cuda_data(args->out, IR_OUT(layer_norm, mean), args->n_out),
                            .rstd = cuda_data(args->out, IR_OUT(layer_norm, rstd), args->n_out),
                            .x_dtype = (int)x->dtype,
                            .y_dtype = (int)args->out[0].dtype,
                            .scale_dtype = (int)affine_dtype(args),
                            .center = (int)args->attr[IR_ATTR(layer_norm, center)].i,
                            .eps = (float)args->attr[IR_ATTR(layer_norm, eps)].f};
    if (a.rows.length == 0 && !a.mean && !a.rstd) return AMPC_OK;
    return cuda_launch(args, state->kernel, cuda_rows_blocks(&a.rows), ROW_BLOCK, 0, (void *[]){&a});
}

/* ---- backward: dx per row; dscale and dbias per group of rows, then over groups ---- */

typedef struct gradient_state {
    cudaKernel_t dx, group_sums, sums;
} gradient_state;

static int64_t stripes_of(const layer_norm_backward *a) { return (a->rows.length + COLUMN_TILE - 1) / COLUMN_TILE; }

/* Returns enough groups to keep a device busy, none of them small. */
static int groups_of(const layer_norm_backward *a)
{
    const int64_t stripes = stripes_of(a),
                  max_groups = stripes < COLUMN_BLOCKS ? COLUMN_BLOCKS / (stripes ? stripes : 1) : 1;
    const int64_t groups = a->rows.outer / COLUMN_GROUP_ROWS;
    return (int)(groups < 1 ? 1 : groups < max_groups ? groups : max_groups);
}

static layer_norm_backward backward_of(const k_args *args)
{
    const k_view *dy = &args->in[0], *scale = &args->in[IR_IN(layer_norm_grad, scale)],
                 *addend = k_extra_in(args, K_SLOT(epilogue, addend));
    if (!k_present(scale)) scale = &args->out[IR_OUT(layer_norm_grad, dscale)]; /* only for its type */
    if (!k_present(scale)) scale = &args->out[IR_OUT(layer_norm_grad, dbias)];
    layer_norm_backward a = {.rows = rows_of(dy, args->attr[IR_ATTR(layer_norm_grad, axis)].i),
                             .dy = dy->data,
                             .x = args->in[IR_IN(layer_norm_grad, x)].data,
                             .scale = cuda_data(args->in, IR_IN(layer_norm_grad, scale), args->n_in),
                             .addend = addend ? addend->data : NULL,
                             .mean = args->in[IR_IN(layer_norm_grad, mean)].data,
                             .rstd = args->in[IR_IN(layer_norm_grad, rstd)].data,
                             .dx = cuda_data(args->out, IR_OUT(layer_norm_grad, dx), args->n_out),
                             .dscale = cuda_data(args->out, IR_OUT(layer_norm_grad, dscale), args->n_out),
                             .dbias = cuda_data(args->out, IR_OUT(layer_norm_grad, dbias), args->n_out),
                             .dtype = (int)dy->dtype,
                             .scale_dtype = (int)scale->dtype,
                             .center = (int)args->attr[IR_ATTR(layer_norm_grad, center)].i,
                             .sums = args->workspace};
    a.groups = groups_of(&a);
    return a;
}

static ampc_status layer_norm_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    CUDA_FORWARD(cuda_new_state(args, sizeof(gradient_state), state));
    gradient_state *s = *state;
    layer_norm_backward a = backward_of(args);
    if (a.dscale || a.dbias) *workspace = (size_t)a.groups * 2 * (size_t)a.rows.length * sizeof(float);
    char name[64];
    snprintf(name, sizeof name, "layer_norm_grad_%s", cuda_rows_kernel(&a.rows));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_layer_norm, name, &s->dx));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_layer_norm, "layer_norm_group_sums", &s->group_sums));
    return cuda_find(args->ctx, CUDA_FAMILY_layer_norm, "layer_norm_sums", &s->sums);
}

static ampc_status layer_norm_grad_run(const k_args *args)
{
    const gradient_state *state = args->state;
    layer_norm_backward a = backward_of(args);
    void *arguments[] = {&a};
    if (a.rows.length == 0) return AMPC_OK;
    if (a.dx) CUDA_FORWARD(cuda_launch(args, state->dx, cuda_rows_blocks(&a.rows), ROW_BLOCK, 0, arguments));
    if (!a.dscale && !a.dbias) return AMPC_OK;
    CUDA_FORWARD(cuda_launch(args, state->group_sums, a.groups * stripes_of(&a), ROW_BLOCK, 0, arguments));
    return cuda_launch(args, state->sums, cuda_blocks(2 * a.rows.length, 32), ROW_BLOCK, 0, arguments);
}

const k_kernel cuda_layer_norm = {.prepare = layer_norm_prepare, .run = layer_norm_run, .release = cuda_release};
const k_kernel cuda_layer_norm_grad = {
    .prepare = layer_norm_grad_prepare, .run = layer_norm_grad_run, .release = cuda_release, .adds = true};
