/* loss.c - softmax cross entropy and negative log likelihood on class labels, and their gradients.
 *
 * x [N,C,...] has one row of C classes per item, and the label selects a class. Item losses and weights are f64, in the
 * workspace, and are added pairwise in a fixed order, so the result depends only on shapes. An ignored item has weight
 * 0. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "kernels/loss.h"
#include "ir/ops/real.h"

#include <omp.h>

typedef struct problem {
    const k_view *label, *weight; /* weight: NULL if absent */
    cpu_rows rows;
    int64_t items, ignore, classes; /* classes: of each row; the rest of it is padding */
    enum ir_words_loss reduction;
    ir_dtype carrier;
} problem;

/* The ops share their attributes; the positions of x and weight differ. */
#define SAME_ATTRIBUTES(op) _Static_assert(IR_ATTR(op, ignore_index) == 0 && IR_ATTR(op, reduction) == 1, "one driver")
SAME_ATTRIBUTES(softmax_cross_entropy);
SAME_ATTRIBUTES(softmax_cross_entropy_grad);
SAME_ATTRIBUTES(nll_loss);
SAME_ATTRIBUTES(nll_loss_grad);
_Static_assert(IR_ATTR(softmax_cross_entropy, classes) == IR_ATTR(softmax_cross_entropy_grad, classes), "one driver");

static problem problem_of(const k_args *args, int x, int label, int weight)
{
    problem p = {.label = &args->in[label], .rows = cpu_rows_of(&args->in[x], 1), .ignore = args->attr[0].i};
    if (weight < args->n_in && k_present(&args->in[weight])) p.weight = &args->in[weight];
    p.items = p.rows.outer * p.rows.inner;
    p.reduction = (enum ir_words_loss)args->attr[IR_ATTR(nll_loss, reduction)].i;
    p.carrier = cpu_carrier(args->in[x].dtype);
    p.classes = p.rows.length;
    return p;
}

static problem entropy_of(const k_args *args, int x, int label, int weight)
{
    problem p = problem_of(args, x, label, weight);
    const int64_t classes = args->attr[IR_ATTR(softmax_cross_entropy, classes)].i;
    if (classes) p.classes = classes;
    return p;
}

static int64_t label_of(const problem *p, int64_t item)
{
    return p->label->dtype == IR_i64 ? ((const int64_t *)p->label->data)[item]
                                     : ir_load_i64(p->label->dtype, cpu_at(p->label, item));
}

/* If the index to ignore is INT64_MIN, no label is ignored, not even INT64_MIN, which is then out of range. */
static bool is_ignored(const problem *p, int64_t label) { return label == p->ignore && label != INT64_MIN; }

static ampc_status check_labels(const k_args *args, const problem *p)
{
    for (int64_t i = 0; i < p->items; i++) {
        int64_t label = label_of(p, i);
        if (is_ignored(p, label) || (label >= 0 && label < p->classes)) continue;
        return cpu_fail(args->ctx, AMPC_REJECTED, "label %lld at position %lld is outside of [0,%lld)",
                        (long long)label, (long long)i, (long long)p->classes);
    }
    return AMPC_OK;
}

/* The weight of a class, 0 for an ignored item. */
static double weight_of(const problem *p, int64_t label)
{
    if (is_ignored(p, label)) return 0;
    return p->weight ? cpu_number(p->weight, label) : 1;
}

static size_t buffer_bytes(const problem *p)
{
    return cpu_lines((size_t)cpu_rows_scratch(&p->rows) * ir_dtype_size(p->carrier));
}

static size_t item_bytes(const problem *p) { return cpu_lines((size_t)p->items * sizeof(double)); }

static double *item_losses(const k_args *args) { return args->workspace; }

static char *thread_buffer(const k_args *args, const problem *p)
{
    return (char *)args->workspace + item_bytes(p) + (size_t)omp_get_thread_num() * 2 * buffer_bytes(p);
}

static ampc_status prepare_workspace(const k_args *args, const problem *p, size_t *workspace)
{
    *workspace = item_bytes(p) + (size_t)args->ctx->threads * 2 * buffer_bytes(p);
    return AMPC_OK;
}

static double total_weight(const problem *p)
{
    double sum = 0;
    for (int64_t i = 0; i < p->items; i++) sum += weight_of(p, label_of(p, i));
    return sum;
}

/* Reduces the weighted item losses to the result. */
static void reduce_items(const problem *p, const double *losses, const k_view *loss)
{
    if (p->reduction == IR_WORD(loss, none)) {
        if (cpu_is_used(loss)) cpu_tile_store(loss, 0, p->items, IR_f64, losses);
        return;
    }
    double sum = lanes_sum_double(losses, p->items);
    if (p->reduction == IR_WORD(loss, mean)) sum /= total_weight(p);
    cpu_store_number(loss, 0, sum);
}

/* The factor by which item i's gradient is multiplied. */
static double item_slope(const problem *p, const k_view *dloss, double scale, int64_t i)
{
    double w = weight_of(p, label_of(p, i));
    if (w == 0) return 0;
    return w * (p->reduction == IR_WORD(loss, none) ? cpu_number(dloss, i) : scale);
}

/* dloss, divided by the total weight for reduction `mean`; unused for `none`. */
static double common_slope(const problem *p, const k_view *dloss)
{
    if (p->reduction == IR_WORD(loss, none)) return 0;
    double d = cpu_scalar(dloss, 0);
    return p->reduction == IR_WORD(loss, mean) ? d / total_weight(p) : d;
}

#define REAL float
#include "kernels/cpu/loss_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/loss_body.h"
#undef REAL

/* ---- softmax cross entropy ---- */

static problem cross_entropy(const k_args *args)
{
    return entropy_of(args, IR_IN(softmax_cross_entropy, x), IR_IN(softmax_cross_entropy, label),
                      IR_IN(softmax_cross_entropy, weight));
}

static ampc_status cross_entropy_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    problem p = cross_entropy(args);
    return prepare_workspace(args, &p, workspace);
}

/* Computes losses[item] from its row of scores and returns its lse. `spare` becomes log_prob, if it `is_read`. */
static double item_loss(const problem *p, int64_t item, const void *x, void *spare, bool is_read, double *losses)
{
    const int64_t label = label_of(p, item), n = p->classes, picked = is_ignored(p, label) ? -1 : label;
    double at_label = 0;
    const double e = p->carrier == IR_f64 ? log_prob_row_double(x, spare, is_read, n, picked, &at_label)
                                          : log_prob_row_float(x, spare, is_read, n, picked, &at_label);
    losses[item] = picked < 0 ? 0 : -at_label * weight_of(p, label);
    for (int64_t i = n; is_read && i < p->rows.length; i++)
        p->carrier == IR_f64 ? (((double *)spare)[i] = -INFINITY) : (((float *)spare)[i] = -INFINITY);
    return e;
}

static ampc_status cross_entropy_run(const k_args *args)
{
    const problem p = cross_entropy(args);
    const k_view *x = &args->in[0], *lse = cpu_result(args, IR_OUT(softmax_cross_entropy, lse));
    const k_view *log_prob = cpu_result(args, IR_OUT(softmax_cross_entropy, log_prob));
    ampc_status status = check_labels(args, &p);
    if (status) return status;
    double *losses = item_losses(args);
    const bool is_read = cpu_is_used(log_prob);
    int64_t stride = p.rows.length * (int64_t)ir_dtype_size(p.carrier), blocks = p.items ? p.rows.blocks : 0;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        char *buffer = thread_buffer(args, &p), *spare = buffer + buffer_bytes(&p);
        int64_t first, n = cpu_rows_block(&p.rows, block, &first);
        const char *a = cpu_rows_load(x, &p.rows, first, n, p.carrier, buffer);
        for (int64_t r = 0; r < n; r++) {
            const double e = item_loss(&p, first + r, a + r * stride, spare + r * stride, is_read, losses);
            cpu_store_number(lse, first + r, e);
        }
        if (is_read) cpu_rows_store(log_prob, &p.rows, first, n, p.carrier, spare);
    }
    reduce_items(&p, losses, &args->out[0]);
    return AMPC_OK;
}

static problem cross_entropy_slope(const k_args *args)
{
    return entropy_of(args, IR_IN(softmax_cross_entropy_grad, x), IR_IN(softmax_cross_entropy_grad, label),
                      IR_IN(softmax_cross_entropy_grad, weight));
}

static ampc_status cross_entropy_grad_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    problem p = cross_entropy_slope(args);
    return prepare_workspace(args, &p, workspace);
}

static ampc_status cross_entropy_grad_run(const k_args *args)
{
    const problem p = cross_entropy_slope(args);
    const k_view *x = &args->in[IR_IN(softmax_cross_entropy_grad, x)], *dx = &args->out[0];
    const k_view *lse = &args->in[IR_IN(softmax_cross_entropy_grad, lse)], *dloss = &args->in[0];
    const k_view *loss = k_loss_result(args);
    const bool computes_lse = k_computes_lse(args);
    ampc_status status = check_labels(args, &p);
    if (status) return status;
    double *losses = item_losses(args);
    const double scale = common_slope(&p, dloss);
    const int64_t size = (int64_t)ir_dtype_size(p.carrier), stride = p.rows.length * size;
    const int64_t blocks = p.items ? p.rows.blocks : 0;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        char *buffer = thread_buffer(args, &p), *spare = buffer + buffer_bytes(&p);
        int64_t first, n = cpu_rows_block(&p.rows, block, &first);
        const char *a = cpu_rows_load(x, &p.rows, first, n, p.carrier, buffer);
        char *d = cpu_rows_target(dx, &p.rows, first, p.carrier, spare);
        for (int64_t r = 0; r < n; r++) {
            int64_t item = first + r, label = label_of(&p, item);
            double slope = item_slope(&p, dloss, scale, item);
            double e = computes_lse ? item_loss(&p, item, a + r * stride, spare + r * stride, false, losses)
                                    : cpu_number(lse, item);
            if (p.carrier == IR_f64)
                slope_row_double((const double *)(a + r * stride), e, slope, (double *)(d + r * stride), p.classes,
                                 label);
            else
                slope_row_float((const float *)(a + r * stride), (float)e, slope, (float *)(d + r * stride), p.classes,
                                label);
            memset(d + r * stride + p.classes * size, 0, (size_t)((p.rows.length - p.classes) * size));
        }
        cpu_rows_store(dx, &p.rows, first, n, p.carrier, d);
    }
    if (loss) reduce_items(&p, losses, loss);
    return AMPC_OK;
}

/* ---- negative log likelihood ---- */

static problem nll(const k_args *args)
{
    return problem_of(args, IR_IN(nll_loss, x), IR_IN(nll_loss, label), IR_IN(nll_loss, weight));
}

static ampc_status nll_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    problem p = nll(args);
    *workspace = item_bytes(&p);
    return AMPC_OK;
}

static ampc_status nll_run(const k_args *args)
{
    const problem p = nll(args);
    const k_view *x = &args->in[0];
    ampc_status status = check_labels(args, &p);
    if (status) return status;
    double *losses = item_losses(args);
    for (int64_t i = 0; i < p.items; i++) {
        int64_t label = label_of(&p, i);
        losses[i] = is_ignored(&p, label) ? 0
                                          : -weight_of(&p, label) * cpu_number(x, cpu_rows_element(&p.rows, i, label));
    }
    reduce_items(&p, losses, &args->out[0]);
    return AMPC_OK;
}

static ampc_status nll_grad_run(const k_args *args)
{
    const problem p = problem_of(args, IR_IN(nll_loss_grad, x), IR_IN(nll_loss_grad, label),
                                 IR_IN(nll_loss_grad, weight));
    const k_view *dx = &args->out[0], *dloss = &args->in[0];
    ampc_status status = check_labels(args, &p);
    if (status) return status;
    const double scale = common_slope(&p, dloss);
    if (k_count(dx)) memset(dx->data, 0, k_bytes(dx));
    for (int64_t i = 0; i < p.items; i++) {
        int64_t label = label_of(&p, i);
        if (is_ignored(&p, label)) continue;
        double slope = -item_slope(&p, dloss, scale, i);
        cpu_store_number(dx, cpu_rows_element(&p.rows, i, label), p.carrier == IR_f64 ? slope : (double)(float)slope);
    }
    return AMPC_OK;
}

const k_kernel cpu_softmax_cross_entropy = {.prepare = cross_entropy_prepare, .run = cross_entropy_run};
const k_kernel cpu_softmax_cross_entropy_grad = {.prepare = cross_entropy_grad_prepare, .run = cross_entropy_grad_run};
const k_kernel cpu_nll_loss = {.prepare = nll_prepare, .run = nll_run};
const k_kernel cpu_nll_loss_grad = {.run = nll_grad_run};
