/* optimizer.c - launches of optimizer updates, select and the loss scaler. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/update.h"

#include <stdlib.h>

_Static_assert(OPTIMIZER_UNIT == OPTIMIZER_BLOCK * CUDA_TILE, "a thread processes one tile per unit");

static int64_t units_of(const k_view *v) { return (k_count(v) + OPTIMIZER_UNIT - 1) / OPTIMIZER_UNIT; }

static int64_t select_units(const k_view *v) { return ((int64_t)k_bytes(v) + SELECT_UNIT - 1) / SELECT_UNIT; }

/* ---- updates ---- */

static update_span span_of(const k_args *args, const k_update_slots *at, int first)
{
    const k_view *low = k_extra_out(args, K_SLOT(update, low));
    update_span s = {
        .grad = args->in[at->grad].data, .low = low ? low->data : NULL, .count = k_count(&args->in[0]), .first = first};
    if (at->ratio >= 0) s.ratio = args->in[at->ratio].data;
    for (int i = 0; i < at->states; i++) {
        s.old[i] = args->in[i].data;
        s.made[i] = cuda_data(args->out, i, args->n_out);
    }
    return s;
}

static ampc_status update_all(const k_args *args, int n)
{
    const cuda_one *state = args->state;
    const k_update_slots *at = k_update_slots_of(args->op);
    const k_view *scale = k_extra_in(args, K_SLOT(update, scale)), *low = k_extra_out(args, K_SLOT(update, low));
    update_table t = {.spans = n,
                      .grad_dtype = (int)args->in[at->grad].dtype,
                      .low_dtype = low ? (int)low->dtype : 0,
                      .scale = scale ? scale->data : NULL,
                      .skip = cuda_data(args->in, at->skip, args->n_in),
                      .fault = cuda_of(args->ctx)->fault};
    if (at->lr >= 0) t.lr = args->in[at->lr].data;
    if (at->step >= 0) {
        t.step = args->in[at->step].data;
        t.step_dtype = (int)args->in[at->step].dtype;
    }
    k_update_attributes(args->op, args->attr, t.attr);
    for (int i = 0; i < n; i++) {
        t.span[i] = span_of(&args[i], at, t.units);
        t.units += (int)units_of(&args[i].in[0]);
    }
    return cuda_launch(args, state->kernel, cuda_blocks(t.units, 1), OPTIMIZER_BLOCK, 0, (void *[]){&t});
}

/* Rejects tensors whose units would overflow 32 bits in a launch. */
static ampc_status update_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    if (units_of(&args->in[0]) > INT32_MAX / UPDATE_SPANS)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "a parameter has 2^34 elements or more");
    return cuda_prepare_one(args, CUDA_FAMILY_optimizer, ir_op_get(args->op)->name, state);
}

static ampc_status update_run(const k_args *args) { return update_all(args, 1); }

/* ---- select ---- */

static ampc_status select_all(const k_args *args, int n)
{
    const cuda_one *state = args->state;
    select_table t = {.spans = n, .cond = args->in[IR_IN(select, cond)].data, .fault = cuda_of(args->ctx)->fault};
    for (int i = 0; i < n; i++) {
        const k_view *in = args[i].in, *y = &args[i].out[0];
        t.span[i] = (select_span){.a = in[IR_IN(select, a)].data,
                                  .b = in[IR_IN(select, b)].data,
                                  .y = y->data,
                                  .count = (int64_t)k_bytes(y),
                                  .first = t.units};
        t.units += (int)select_units(y);
    }
    return cuda_launch(args, state->kernel, cuda_blocks(t.units, 1), OPTIMIZER_BLOCK, 0, (void *[]){&t});
}

static ampc_status select_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    if (select_units(&args->out[0]) > INT32_MAX / SELECT_SPANS)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "a tensor has 2^35 bytes or more");
    return cuda_prepare_one(args, CUDA_FAMILY_optimizer, "select_tensors", state);
}

static ampc_status select_run(const k_args *args) { return select_all(args, 1); }

/* ---- check_finite_and_unscale: one launch per table of gradients, nearly always one. found_inf is first set to its
 * previous value (or 0); launches can only set it to 1 ---- */

typedef struct unscale_state {
    cudaKernel_t kernel;
    int64_t unit; /* elements per block and iteration */
    unscale_table table;
} unscale_state;

/* Fills the table with gradients starting at `first`; returns the first gradient of the next table. */
static int fill_table(const k_args *args, int first, unscale_state *s)
{
    unscale_table *t = &s->table;
    int gradients = args->listed;
    t->spans = t->units = 0;
    while (first + t->spans < gradients && t->spans < UNSCALE_SPANS) {
        int i = first + t->spans;
        t->span[t->spans++] = (unscale_span){.grad = args->in[i].data,
                                             .to = cuda_data(args->out, i, args->n_out),
                                             .count = k_count(&args->in[i]),
                                             .first = t->units};
        t->units += (int)((k_count(&args->in[i]) + s->unit - 1) / s->unit);
    }
    return first + t->spans;
}

static ampc_status unscale_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    k_args floats = *args; /* excludes the sums of squares, which are f64 */
    floats.n_in = k_extra_in_at(args->op, args->listed, 0);
    floats.n_out = k_extra_out_at(args->op, args->listed, 0);
    CUDA_FORWARD(cuda_new_state(&floats, sizeof(unscale_state), state));
    unscale_state *s = *state;
    bool writes = false;
    int64_t elements = 0;
    for (int i = 0; i < args->listed; i++) {
        writes |= cuda_is_used(&args->out[i]);
        elements += k_count(&args->in[i]);
    }
    if (elements >= (int64_t)1 << 42) return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "2^42 gradient elements or more");
    s->unit = writes ? OPTIMIZER_UNIT : CHECK_UNIT / (int64_t)ir_dtype_size(args->in[0].dtype);
    const bool squares = k_extra_out(args, K_SLOT(check, squares)) != NULL;
    const char *name = writes ? "unscale" : squares ? "check_and_square" : "check_finite";
    return cuda_find(args->ctx, CUDA_FAMILY_optimizer, name, &s->kernel);
}

static ampc_status set_found(const k_args *args)
{
    const k_view *before = k_extra_in(args, K_SLOT(check, found_before));
    void *found = k_check_found(args)->data;
    cudaStream_t stream = cuda_of(args->ctx)->stream;
    if (!before) CUDA_CALL(args->ctx, cudaMemsetAsync(found, 0, 1, stream));
    else if (before->data != found)
        CUDA_CALL(args->ctx, cudaMemcpyAsync(found, before->data, 1, cudaMemcpyDeviceToDevice, stream));
    return AMPC_OK;
}

/* Even a launch without units has to write the sums of squares. There are at most as many blocks as sums. */
static int64_t check_blocks(const unscale_table *t)
{
    if (!t->squares) return cuda_blocks(t->units, 1);
    return t->units < 1 ? 1 : t->units < t->sums ? t->units : t->sums;
}

/* Later launches add to the sums of the first one. */
static void set_squares(const k_args *args, bool is_first, unscale_table *t)
{
    const k_view *squares = k_extra_out(args, K_SLOT(check, squares));
    const k_view *before = k_extra_in(args, K_SLOT(check, squares_before));
    t->squares = squares ? squares->data : NULL;
    t->sums = squares ? (int)k_count(squares) : 0;
    t->before = is_first ? (before ? before->data : NULL) : t->squares;
}

static ampc_status unscale_run(const k_args *args)
{
    unscale_state *s = args->state;
    unscale_table *t = &s->table;
    t->scale = k_check_scale(args)->data;
    t->dtype = (int)args->in[0].dtype;
    t->found = cuda_is_used(k_check_found(args)) ? k_check_found(args)->data : NULL;
    if (t->found) CUDA_FORWARD(set_found(args));
    for (int first = 0; first < args->listed;) {
        set_squares(args, first == 0, t);
        first = fill_table(args, first, s);
        CUDA_FORWARD(cuda_launch(args, s->kernel, check_blocks(t), OPTIMIZER_BLOCK, 0, (void *[]){t}));
    }
    return AMPC_OK;
}

/* ---- update_loss_scaling ---- */

static ampc_status scaling_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)workspace;
    return cuda_prepare_one(args, CUDA_FAMILY_optimizer, "update_loss_scaling", state);
}

static ampc_status scaling_run(const k_args *args)
{
    const cuda_one *state = args->state;
    const k_view *in = args->in;
    const ir_attr *attr = args->attr;
    loss_scaling a = {.found = in[IR_IN(update_loss_scaling, found_inf)].data,
                      .scale = in[IR_IN(update_loss_scaling, scale)].data,
                      .good = in[IR_IN(update_loss_scaling, good)].data,
                      .bad = in[IR_IN(update_loss_scaling, bad)].data,
                      .scale_out = cuda_data(args->out, IR_OUT(update_loss_scaling, scale_out), args->n_out),
                      .good_out = cuda_data(args->out, IR_OUT(update_loss_scaling, good_out), args->n_out),
                      .bad_out = cuda_data(args->out, IR_OUT(update_loss_scaling, bad_out), args->n_out),
                      .good_dtype = (int)in[IR_IN(update_loss_scaling, good)].dtype,
                      .bad_dtype = (int)in[IR_IN(update_loss_scaling, bad)].dtype,
                      .incr_every = attr[IR_ATTR(update_loss_scaling, incr_every)].i,
                      .decr_every = attr[IR_ATTR(update_loss_scaling, decr_every)].i,
                      .incr_ratio = attr[IR_ATTR(update_loss_scaling, incr_ratio)].f,
                      .decr_ratio = attr[IR_ATTR(update_loss_scaling, decr_ratio)].f,
                      .min = attr[IR_ATTR(update_loss_scaling, min)].f,
                      .max = attr[IR_ATTR(update_loss_scaling, max)].f,
                      .hysteresis = attr[IR_ATTR(update_loss_scaling, hysteresis)].i != 0,
                      .late = attr[IR_ATTR(update_loss_scaling, late)].i != 0,
                      .fault = cuda_of(args->ctx)->fault};
    return cuda_launch(args, state->kernel, 1, 32, 0, (void *[]){&a});
}

#define UPDATE(op, ...) \
    const k_kernel cuda_##op = {.prepare = update_prepare, \
                                .run = update_run, \
                                .release = cuda_release, \
                                .max_batch = UPDATE_SPANS, \
                                .run_batch = update_all};
#include "ir/ops/updates.def"

const k_kernel cuda_select = {.prepare = select_prepare,
                              .run = select_run,
                              .release = cuda_release,
                              .max_batch = SELECT_SPANS,
                              .run_batch = select_all};
const k_kernel cuda_check_finite_and_unscale = {
    .prepare = unscale_prepare, .run = unscale_run, .release = cuda_release};
const k_kernel cuda_update_loss_scaling = {.prepare = scaling_prepare, .run = scaling_run, .release = cuda_release};
