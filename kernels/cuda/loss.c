/* loss.c - launches of softmax cross entropy, negative log likelihood and their gradients. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/loss.h"
#include "kernels/loss.h"

#include <stdio.h>
#include <stdlib.h>

/* The ops share their attributes; only their operands differ in position. */
#define SAME_ATTRIBUTES(op) _Static_assert(IR_ATTR(op, ignore_index) == 0 && IR_ATTR(op, reduction) == 1, "one driver")
SAME_ATTRIBUTES(softmax_cross_entropy);
SAME_ATTRIBUTES(softmax_cross_entropy_grad);
SAME_ATTRIBUTES(nll_loss);
SAME_ATTRIBUTES(nll_loss_grad);
_Static_assert(IR_ATTR(softmax_cross_entropy, classes) == IR_ATTR(softmax_cross_entropy_grad, classes), "one driver");
_Static_assert((int)LOSS_TOTAL_BLOCKS <= (int)ROW_BLOCK, "a thread reads the sums of a block");

typedef struct loss_state {
    cudaKernel_t items;  /* processes items or their rows */
    cudaKernel_t total;  /* forward: adds up the blocks' sums; backward: sums the weights */
    cudaKernel_t finish; /* of a loss and its gradient: adds up the blocks' sums */
} loss_state;

/* The classes of operand x; for all ops but those of cross entropy, without padding. */
static long long classes_of(const k_args *args, int x)
{
    const bool pads = args->op == IR_OP_softmax_cross_entropy || args->op == IR_OP_softmax_cross_entropy_grad;
    const int64_t classes = pads ? args->attr[IR_ATTR(softmax_cross_entropy, classes)].i : 0;
    return classes ? classes : args->in[x].dims[1];
}

static loss_labels labels_of(const k_args *args, int x, int label, int weight)
{
    return (loss_labels){.label = args->in[label].data,
                         .weight = cuda_data(args->in, weight, args->n_in),
                         .label_dtype = (int)args->in[label].dtype,
                         .weight_dtype = weight < args->n_in ? (int)args->in[weight].dtype : 0,
                         .ignore = args->attr[0].i,
                         .classes = classes_of(args, x),
                         .step = args->step,
                         .fault = cuda_of(args->ctx)->fault};
}

/* Finds the kernels; `rows` NULL: `items` is the full name. */
static ampc_status find_kernels(const k_args *args, const char *items, const cuda_rows *rows, const char *total,
                                void **state)
{
    CUDA_FORWARD(cuda_new_state(args, sizeof(loss_state), state));
    loss_state *s = *state;
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", items, rows ? "_" : "", rows ? cuda_rows_kernel(rows) : "");
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_loss, name, &s->items));
    return cuda_find(args->ctx, CUDA_FAMILY_loss, total, &s->total);
}

/* ---- forward: the items, then one block that adds up the blocks' sums ---- */

static int64_t nll_blocks(const cuda_rows *r) { return cuda_blocks(r->outer * r->inner, ROW_BLOCK); }

static ampc_status cross_entropy_prepare(const k_args *args, void **state, size_t *workspace)
{
    const cuda_rows rows = cuda_rows_of(&args->in[0], 1);
    *workspace = (size_t)cuda_rows_blocks(&rows) * sizeof(loss_sums);
    return find_kernels(args, "cross_entropy", &rows, "loss_finish", state);
}

static ampc_status nll_prepare(const k_args *args, void **state, size_t *workspace)
{
    const cuda_rows rows = cuda_rows_of(&args->in[0], 1);
    *workspace = (size_t)nll_blocks(&rows) * sizeof(loss_sums);
    return find_kernels(args, "nll", NULL, "loss_finish", state);
}

/* Computes the loss from the sums of the blocks. */
static ampc_status launch_finish(const k_args *args, cudaKernel_t kernel, loss_sums *sums, int64_t blocks,
                                 int reduction, float *loss)
{
    int count = (int)blocks;
    if (!loss || reduction == IR_WORD(loss, none)) return AMPC_OK;
    return cuda_launch(args, kernel, 1, ROW_BLOCK, 0, (void *[]){&sums, &count, &reduction, &loss});
}

static ampc_status launch_forward(const k_args *args, loss_forward *a, int64_t blocks)
{
    const loss_state *state = args->state;
    a->loss = cuda_data(args->out, 0, args->n_out);
    a->sums = args->workspace;
    CUDA_FORWARD(cuda_launch(args, state->items, blocks, ROW_BLOCK, 0, (void *[]){a}));
    return launch_finish(args, state->total, a->sums, blocks, a->reduction, a->loss);
}

static loss_forward forward_of(const k_args *args, loss_labels labels)
{
    return (loss_forward){.rows = cuda_rows_of(&args->in[0], 1),
                          .labels = labels,
                          .x = args->in[0].data,
                          .dtype = (int)args->in[0].dtype,
                          .reduction = (int)args->attr[IR_ATTR(nll_loss, reduction)].i};
}

static ampc_status cross_entropy_run(const k_args *args)
{
    loss_forward a = forward_of(args,
                                labels_of(args, IR_IN(softmax_cross_entropy, x), IR_IN(softmax_cross_entropy, label),
                                          IR_IN(softmax_cross_entropy, weight)));
    a.lse = cuda_data(args->out, IR_OUT(softmax_cross_entropy, lse), args->n_out);
    a.log_prob = cuda_data(args->out, IR_OUT(softmax_cross_entropy, log_prob), args->n_out);
    return launch_forward(args, &a, cuda_rows_blocks(&a.rows));
}

static ampc_status nll_run(const k_args *args)
{
    loss_forward a = forward_of(args,
                                labels_of(args, IR_IN(nll_loss, x), IR_IN(nll_loss, label), IR_IN(nll_loss, weight)));
    return launch_forward(args, &a, nll_blocks(&a.rows));
}

/* ---- backward: the sum of weights, if a mean cannot derive it from the shapes; then the rows ---- */

static bool adds_weights(const loss_backward *a)
{
    return a->reduction == IR_WORD(loss, mean) && (a->labels.weight || a->labels.ignore != LOSS_IGNORES_NONE);
}

static loss_backward backward_of(const k_args *args, int x, int label, int weight)
{
    loss_backward a = {.rows = cuda_rows_of(&args->in[x], 1),
                       .labels = labels_of(args, x, label, weight),
                       .dloss = args->in[0].data,
                       .x = args->in[x].data,
                       .dx = args->out[0].data,
                       .dtype = (int)args->in[x].dtype,
                       .reduction = (int)args->attr[IR_ATTR(nll_loss, reduction)].i,
                       .sums = args->workspace};
    const int64_t blocks = cuda_blocks(a.rows.outer * a.rows.inner, ROW_BLOCK);
    if (adds_weights(&a)) a.blocks = (int)(blocks < LOSS_TOTAL_BLOCKS ? blocks : LOSS_TOTAL_BLOCKS);
    return a;
}

static loss_backward cross_entropy_backward(const k_args *args)
{
    loss_backward a = backward_of(args, IR_IN(softmax_cross_entropy_grad, x), IR_IN(softmax_cross_entropy_grad, label),
                                  IR_IN(softmax_cross_entropy_grad, weight));
    const k_view *loss = k_loss_result(args);
    a.lse = args->in[IR_IN(softmax_cross_entropy_grad, lse)].data;
    a.loss = loss ? loss->data : NULL;
    return a;
}

static loss_backward nll_backward(const k_args *args)
{
    return backward_of(args, IR_IN(nll_loss_grad, x), IR_IN(nll_loss_grad, label), IR_IN(nll_loss_grad, weight));
}

static ampc_status prepare_backward(const k_args *args, const loss_backward *a, const char *items, void **state,
                                    size_t *workspace)
{
    *workspace = (size_t)a->blocks * sizeof(loss_sums);
    return find_kernels(args, items, &a->rows, "loss_weights", state);
}

static ampc_status cross_entropy_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    const loss_backward a = cross_entropy_backward(args);
    if (!k_computes_lse(args)) return prepare_backward(args, &a, "cross_entropy_grad", state, workspace);
    CUDA_FORWARD(prepare_backward(args, &a, "cross_entropy_both", state, workspace));
    *workspace += (size_t)cuda_rows_blocks(&a.rows) * sizeof(loss_sums);
    loss_state *s = *state;
    return cuda_find(args->ctx, CUDA_FAMILY_loss, "loss_finish", &s->finish);
}

static ampc_status nll_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    const loss_backward a = nll_backward(args);
    return prepare_backward(args, &a, "nll_grad", state, workspace);
}

static ampc_status launch_backward(const k_args *args, loss_backward *a, unsigned threads)
{
    const loss_state *state = args->state;
    long long items = a->rows.outer * a->rows.inner;
    void *weights[] = {&a->labels, &items, (void *)&a->sums};
    CUDA_FORWARD(cuda_launch(args, state->total, a->blocks, ROW_BLOCK, 0, weights));
    return cuda_launch(args, state->items, cuda_rows_blocks(&a->rows), threads, 0, (void *[]){a});
}

static ampc_status cross_entropy_grad_run(const k_args *args)
{
    const loss_state *state = args->state;
    loss_backward a = cross_entropy_backward(args);
    a.items = (loss_sums *)args->workspace + a.blocks;
    const bool is_wide = k_computes_lse(args) && a.rows.inner == 1 && a.rows.length > ROW_IN_WARP;
    CUDA_FORWARD(launch_backward(args, &a, is_wide ? LOSS_WIDE_BLOCK : ROW_BLOCK));
    return launch_finish(args, state->finish, a.items, cuda_rows_blocks(&a.rows), a.reduction, a.loss);
}

static ampc_status nll_grad_run(const k_args *args)
{
    loss_backward a = nll_backward(args);
    return launch_backward(args, &a, ROW_BLOCK);
}

const k_kernel cuda_softmax_cross_entropy = {
    .prepare = cross_entropy_prepare, .run = cross_entropy_run, .release = cuda_release};
const k_kernel cuda_softmax_cross_entropy_grad = {
    .prepare = cross_entropy_grad_prepare, .run = cross_entropy_grad_run, .release = cuda_release};
const k_kernel cuda_nll_loss = {.prepare = nll_prepare, .run = nll_run, .release = cuda_release};
const k_kernel cuda_nll_loss_grad = {.prepare = nll_grad_prepare, .run = nll_grad_run, .release = cuda_release};
