/* recurrent.c - launches of recurrent networks and their gradients: a start, one or two kernels per step, an end. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/recurrent.h"

/* The kernels of a cell; `rest`: the second one of a step, or NULL. */
typedef struct kernels {
    cudaKernel_t start, step, rest, end;
} kernels;

typedef struct names {
    const char *start, *step, *rest, *end;
} names;

static names forward_names(const recurrent_shape *s)
{
    names n = {"recurrent_start", "recurrent_lstm", NULL, "recurrent_last"};
    if (s->cell == IR_WORD(cell, rnn)) n.step = "recurrent_rnn";
    if (s->cell != IR_WORD(cell, gru)) return n;
    n.step = s->linear_before_reset ? "recurrent_gru" : "recurrent_gru_reset";
    if (!s->linear_before_reset) n.rest = "recurrent_gru_rest";
    return n;
}

static names backward_names(const recurrent_shape *s)
{
    names n = {"recurrent_back_start", "recurrent_lstm_back", NULL, "recurrent_peepholes"};
    if (s->cell == IR_WORD(cell, rnn)) n.step = "recurrent_rnn_back";
    if (s->cell != IR_WORD(cell, gru)) return n;
    n.step = "recurrent_gru_back";
    if (!s->linear_before_reset) n.rest = "recurrent_reset_back";
    return n;
}

static ampc_status find_kernels(const k_args *args, names n, void **state)
{
    CUDA_FORWARD(cuda_new_state(args, sizeof(kernels), state));
    kernels *k = *state;
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_recurrent, n.start, &k->start));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_recurrent, n.step, &k->step));
    if (n.rest) CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_recurrent, n.rest, &k->rest));
    return cuda_find(args->ctx, CUDA_FAMILY_recurrent, n.end, &k->end);
}

static int64_t aligned(int64_t count) { return (count + 63) / 64 * 64; }

/* Allocates `count` floats at *at, which is advanced. */
static float *allot(float **at, int64_t count)
{
    float *to = *at;
    *at += aligned(count);
    return to;
}

static ampc_status forward_prepare(const k_args *args, void **state, size_t *workspace)
{
    const recurrent_shape s = recurrent_shape_of(args, &args->out[0]);
    *workspace = 5 * (size_t)aligned(s.batch * s.hidden) * sizeof(float);
    return find_kernels(args, forward_names(&s), state);
}

static ampc_status backward_prepare(const k_args *args, void **state, size_t *workspace)
{
    const recurrent_shape s = recurrent_shape_of(args, &args->in[IR_IN(recurrent_grad, y)]);
    const int64_t units = s.batch * s.hidden;
    *workspace = 2 * (size_t)(aligned(units) + aligned(s.gates * units)) * sizeof(float);
    return find_kernels(args, backward_names(&s), state);
}

static int64_t ceil_tiles(int64_t n) { return (n + RECURRENT_TILE - 1) / RECURRENT_TILE; }

/* One thread per unit, in tiles. */
static ampc_status launch_tiles(const k_args *args, cudaKernel_t kernel, recurrent_args *a)
{
    const int64_t tiles = ceil_tiles(a->shape.batch) * ceil_tiles(a->shape.hidden);
    return cuda_launch(args, kernel, cuda_grid(args, tiles, 1), RECURRENT_BLOCK, 0, (void *[]){a});
}

static ampc_status launch_each(const k_args *args, cudaKernel_t kernel, recurrent_args *a, int64_t n)
{
    return cuda_launch(args, kernel, cuda_grid(args, n, RECURRENT_BLOCK), RECURRENT_BLOCK, 0, (void *[]){a});
}

static recurrent_args forward_arguments(const k_args *args)
{
    const k_view *in = args->in;
    const int n = args->n_out;
    return (recurrent_args){.shape = recurrent_shape_of(args, &args->out[0]),
                            .x = in[IR_IN(recurrent, x)].data,
                            .r = in[IR_IN(recurrent, r)].data,
                            .bias = in[IR_IN(recurrent, bias)].data,
                            .h0 = in[IR_IN(recurrent, h0)].data,
                            .c0 = in[IR_IN(recurrent, c0)].data,
                            .peephole = in[IR_IN(recurrent, peephole)].data,
                            .lengths = in[IR_IN(recurrent, lengths)].data,
                            .y = args->out[0].data,
                            .last_h = cuda_data(args->out, IR_OUT(recurrent, last_h), n),
                            .last_c = cuda_data(args->out, IR_OUT(recurrent, last_c), n),
                            .cells = cuda_data(args->out, IR_OUT(recurrent, cells), n),
                            .gates = cuda_data(args->out, IR_OUT(recurrent, gates), n),
                            .dtype = (int)args->out[0].dtype,
                            .lengths_dtype = (int)in[IR_IN(recurrent, lengths)].dtype,
                            .step = args->step,
                            .fault = cuda_of(args->ctx)->fault};
}

static ampc_status forward_run(const k_args *args)
{
    const kernels *k = args->state;
    recurrent_args a = forward_arguments(args);
    const int64_t units = a.shape.batch * a.shape.hidden;
    float *at = args->workspace;
    if (units == 0) return AMPC_OK;
    a.h = allot(&at, units);
    a.next_h = allot(&at, units);
    a.c = allot(&at, units);
    a.factor = allot(&at, units);
    a.z = allot(&at, units);
    CUDA_FORWARD(launch_each(args, k->start, &a, units));
    for (int64_t i = 0; i < a.shape.steps; i++) {
        a.t = a.shape.reverse ? a.shape.steps - 1 - i : i;
        CUDA_FORWARD(launch_tiles(args, k->step, &a));
        if (k->rest) CUDA_FORWARD(launch_tiles(args, k->rest, &a));
        float *h = a.h;
        a.h = a.next_h;
        a.next_h = h;
    }
    return launch_each(args, k->end, &a, units);
}

static recurrent_args backward_arguments(const k_args *args)
{
    const k_view *in = args->in;
    const int n = args->n_out;
    return (recurrent_args){.shape = recurrent_shape_of(args, &in[IR_IN(recurrent_grad, y)]),
                            .dy = in[IR_IN(recurrent_grad, dy)].data,
                            .dlast_h = in[IR_IN(recurrent_grad, dlast_h)].data,
                            .dlast_c = in[IR_IN(recurrent_grad, dlast_c)].data,
                            .r = in[IR_IN(recurrent_grad, r)].data,
                            .y = in[IR_IN(recurrent_grad, y)].data,
                            .cells = in[IR_IN(recurrent_grad, cells)].data,
                            .gates = in[IR_IN(recurrent_grad, gates)].data,
                            .h0 = in[IR_IN(recurrent_grad, h0)].data,
                            .c0 = in[IR_IN(recurrent_grad, c0)].data,
                            .peephole = in[IR_IN(recurrent_grad, peephole)].data,
                            .lengths = in[IR_IN(recurrent_grad, lengths)].data,
                            .dx = args->out[0].data,
                            .dproduct = cuda_data(args->out, IR_OUT(recurrent_grad, dproduct), n),
                            .previous = cuda_data(args->out, IR_OUT(recurrent_grad, previous), n),
                            .reset = cuda_data(args->out, IR_OUT(recurrent_grad, reset), n),
                            .dh0 = cuda_data(args->out, IR_OUT(recurrent_grad, dh0), n),
                            .dc0 = cuda_data(args->out, IR_OUT(recurrent_grad, dc0), n),
                            .dpeephole = cuda_data(args->out, IR_OUT(recurrent_grad, dpeephole), n),
                            .dtype = (int)args->out[0].dtype,
                            .lengths_dtype = (int)in[IR_IN(recurrent_grad, lengths)].dtype,
                            .step = args->step,
                            .fault = cuda_of(args->ctx)->fault};
}

static ampc_status launch_back(const k_args *args, const kernels *k, recurrent_args *a)
{
    CUDA_FORWARD(launch_tiles(args, k->step, a));
    if (k->rest && a->t >= 0) CUDA_FORWARD(launch_tiles(args, k->rest, a));
    float *products = a->products;
    a->products = a->later;
    a->later = products;
    a->is_first = 0;
    return AMPC_OK;
}

static ampc_status backward_run(const k_args *args)
{
    const kernels *k = args->state;
    recurrent_args a = backward_arguments(args);
    const recurrent_shape *s = &a.shape;
    const int64_t units = s->batch * s->hidden;
    float *at = args->workspace;
    a.direct = allot(&at, units);
    a.dc = allot(&at, units);
    a.products = allot(&at, s->gates * units);
    a.later = allot(&at, s->gates * units);
    a.is_first = 1;
    if (units) CUDA_FORWARD(launch_each(args, k->start, &a, units));
    for (int64_t i = s->steps; i > 0 && units; i--) {
        a.t = s->reverse ? s->steps - i : i - 1;
        CUDA_FORWARD(launch_back(args, k, &a));
    }
    a.t = -1;
    if (units && (a.dh0 || a.dc0)) CUDA_FORWARD(launch_back(args, k, &a));
    return a.dpeephole ? launch_each(args, k->end, &a, 3 * s->hidden) : AMPC_OK;
}

const k_kernel cuda_recurrent = {.prepare = forward_prepare, .run = forward_run, .release = cuda_release};
const k_kernel cuda_recurrent_grad = {.prepare = backward_prepare, .run = backward_run, .release = cuda_release};
