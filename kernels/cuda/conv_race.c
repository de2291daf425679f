/* conv_race.c - finds whether a convolution that sums its result (kernels/statistics.h) saves time.
 *
 * The sums save a pass over the result, but cuDNN has fewer engines for such a convolution, and cuBLASLt multiplies 1x1
 * convolutions faster. So two pairs of steps race on buffers of their own: the convolution and the normalisation that
 * reads its sums; the convolution, or its matmul, and the normalisation that sums. */
#include "kernels/cuda/conv_race.h"
#include "ir/base/text_buffer.h"
#include "kernels/convolution.h"
#include "kernels/cuda/tune.h"
#include "kernels/statistics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WITH_SUMS, SEPARATE, PAIRS, IN = IR_IN(batch_norm, var) + 1 + K_SLOT(statistics, n_in), OUT = 5, ATTRS = 6 };
enum { X, W, Y, VECTOR, SUM, SQUARES, SCRATCH, BUFFERS };

extern const k_kernel cuda_conv, cuda_matmul, cuda_batch_norm;

typedef struct entry {
    const k_kernel *kernel;
    k_args args;
    k_view in[IN], out[OUT];
    ir_attr attr[ATTRS];
    size_t workspace;
} entry;

typedef struct conv_race {
    const k_args *conv;
    k_view views[SCRATCH];
    void *data[BUFFERS];
    entry steps[PAIRS][2];
} conv_race;

/* ---- the steps ------------------------------------------------------------------------------------- */

static entry *begin_step(conv_race *r, int pair, int i, ir_op op, const k_kernel *kernel)
{
    entry *e = &r->steps[pair][i];
    e->kernel = kernel;
    e->args = (k_args){.op = op, .in = e->in, .out = e->out, .attr = e->attr, .ctx = r->conv->ctx};
    for (int k = 0; k < IN; k++) e->in[k].dtype = IR_NO_DTYPE;
    for (int k = 0; k < OUT; k++) e->out[k].dtype = IR_NO_DTYPE;
    return e;
}

static void add_convolution(conv_race *r, int pair)
{
    entry *e = begin_step(r, pair, 0, IR_OP_conv, &cuda_conv);
    memcpy(e->attr, r->conv->attr, (size_t)ir_op_get(IR_OP_conv)->n_attr * sizeof *e->attr);
    e->in[IR_IN(conv, x)] = r->views[X];
    e->in[IR_IN(conv, w)] = r->views[W];
    e->out[IR_OUT(conv, y)] = r->views[Y];
    e->args.n_in = IR_IN(conv, bias) + 1;
    e->args.n_out = 1;
    if (pair == SEPARATE) return;
    e->out[e->args.n_out++] = r->views[SUM];
    e->out[e->args.n_out++] = r->views[SQUARES];
}

/* Returns an image in NHWC as a matrix with one row per position. */
static k_view matrix_of(const k_view *image)
{
    return (k_view){.dtype = image->dtype,
                    .rank = 2,
                    .dims = {k_count(image) / image->dims[1], image->dims[1]},
                    .data = image->data};
}

static void add_matmul(conv_race *r)
{
    entry *e = begin_step(r, SEPARATE, 0, IR_OP_matmul, &cuda_matmul);
    e->attr[IR_ATTR(matmul, trans_b)].i = true;
    e->attr[IR_ATTR(matmul, out)].dtype = r->views[Y].dtype;
    e->in[IR_IN(matmul, a)] = matrix_of(&r->views[X]);
    e->in[IR_IN(matmul, b)] = matrix_of(&r->views[W]);
    e->out[IR_OUT(matmul, y)] = matrix_of(&r->views[Y]);
    e->args.n_in = IR_IN(matmul, bias) + 1;
    e->args.n_out = 1;
}

static void add_norm(conv_race *r, int pair)
{
    const int y = IR_OUT(batch_norm, y);
    entry *e = begin_step(r, pair, 1, IR_OP_batch_norm, &cuda_batch_norm);
    e->attr[IR_ATTR(batch_norm, training)].i = true;
    e->attr[IR_ATTR(batch_norm, eps)].f = 1;
    e->args.n_in = ir_op_get(IR_OP_batch_norm)->n_in;
    e->args.n_out = OUT;
    for (int i = 0; i < e->args.n_in; i++) e->in[i] = r->views[i == IR_IN(batch_norm, x) ? Y : VECTOR];
    for (int i = 0; i < OUT; i++) e->out[i] = r->views[VECTOR];
    e->out[y] = (k_view){.dtype = IR_NO_DTYPE};
    if (pair == SEPARATE) return;
    e->in[e->args.n_in++] = r->views[SUM];
    e->in[e->args.n_in++] = r->views[SQUARES];
}

/* ---- the race -------------------------------------------------------------------------------------- */

static ampc_status make_buffers(conv_race *r)
{
    const k_context *ctx = r->conv->ctx;
    const k_view *y = &r->conv->out[IR_OUT(conv, y)];
    const k_view vector = {.dtype = IR_f32, .rank = 1, .dims = {y->dims[1]}};
    const k_view views[SCRATCH] = {
        r->conv->in[IR_IN(conv, x)], r->conv->in[IR_IN(conv, w)], *y, vector, vector, vector};
    for (int i = 0; i < SCRATCH; i++) {
        r->views[i] = views[i];
        CUDA_FORWARD(cuda_tune_buffer(ctx, k_bytes(&views[i]), &r->data[i]));
        r->views[i].data = r->data[i];
    }
    return AMPC_OK;
}

/* Prepares the steps and allocates the workspace that they share. */
static ampc_status prepare_steps(conv_race *r)
{
    size_t bytes = 1;
    for (int i = 0; i < 2 * PAIRS; i++) {
        entry *e = &r->steps[i / 2][i % 2];
        CUDA_FORWARD(e->kernel->prepare(&e->args, &e->args.state, &e->workspace));
        if (e->workspace > bytes) bytes = e->workspace;
    }
    CUDA_FORWARD(cuda_tune_buffer(r->conv->ctx, bytes, &r->data[SCRATCH]));
    for (int i = 0; i < 2 * PAIRS; i++) r->steps[i / 2][i % 2].args.workspace = r->data[SCRATCH];
    return AMPC_OK;
}

static ampc_status run_pair(void *race, int pair)
{
    conv_race *r = race;
    for (int i = 0; i < 2; i++) CUDA_FORWARD(r->steps[pair][i].kernel->run(&r->steps[pair][i].args));
    return AMPC_OK;
}

/* Whether the plan makes the separate convolution a matmul. */
static bool is_product(const conv_geometry *g)
{
    for (int i = 0; i < g->spatial; i++)
        if (g->k[i] != 1 || g->stride[i] != 1 || g->before[i] || g->after[i]) return false;
    return g->groups == 1;
}

static ampc_status race(conv_race *r, const conv *c, const char *key, int *best)
{
    CUDA_FORWARD(make_buffers(r));
    add_convolution(r, WITH_SUMS);
    if (is_product(&c->g)) add_matmul(r);
    else add_convolution(r, SEPARATE);
    for (int pair = 0; pair < PAIRS; pair++) add_norm(r, pair);
    CUDA_FORWARD(prepare_steps(r));
    return cuda_tune(r->conv->ctx, CUDA_DNN, key, PAIRS, (const int[]){WITH_SUMS, SEPARATE}, run_pair, r, best);
}

static void end(conv_race *r)
{
    for (int i = 0; i < 2 * PAIRS; i++) {
        entry *e = &r->steps[i / 2][i % 2];
        if (e->kernel) e->kernel->release(e->args.state);
    }
    for (int i = 0; i < BUFFERS; i++) cuda_tune_free(r->data[i]);
    free(r);
}

/* Names the race by all that it depends on. */
static void write_key(text_buffer *key, const conv *c)
{
    const conv_geometry *g = &c->g;
    text_add(key, "conv with or without sums %s n%" PRId64 " g%" PRId64 " %" PRId64 " to %" PRId64,
             ir_dtype_name(c->y->dtype), g->n, g->groups, g->c, g->m);
    for (int i = 0; i < g->spatial; i++)
        text_add(key, ", %" PRId64 " by %" PRId64 " step %" PRId64 " dilation %" PRId64 " pads %" PRId64 " %" PRId64,
                 g->x[i], g->k[i], g->stride[i], g->dilation[i], g->before[i], g->after[i]);
}

/* Sets *best to the faster pair; WITH_SUMS if there is not enough memory for a race. */
static ampc_status find_best(const k_args *args, const char *key, int *best)
{
    const conv c = conv_of(args);
    *best = cuda_tuned(args->ctx, CUDA_DNN, key);
    if (*best >= 0) return AMPC_OK;
    conv_race *r = calloc(1, sizeof *r);
    *best = WITH_SUMS;
    if (!r) return AMPC_OK;
    r->conv = args;
    const ampc_status status = race(r, &c, key, best);
    end(r);
    return status == AMPC_NO_MEMORY ? AMPC_OK : status;
}

ampc_status cuda_race_statistics(const k_args *args)
{
    const conv c = conv_of(args);
    text_buffer key = {0};
    int best = WITH_SUMS;
    write_key(&key, &c);
    char *name = text_finish(&key);
    const ampc_status status = name ? find_best(args, name, &best) : AMPC_OK;
    free(name);
    return status == AMPC_OK && best != WITH_SUMS ? AMPC_UNSUPPORTED : status;
}
