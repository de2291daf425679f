/* optimizer.c - the optimizer steps and the loss scaler.
 *
 * Each is a single pass over memory that may run in place, with the extra operands and results of kernels/update.h. If
 * `skip` is set, the results are the old values bit for bit. The formulas are in updates.def; bias corrections and
 * step sizes are computed in f64, once per tensor. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/visit.h"
#include "ir/ops/real.h"
#include "ir/ops/updates.h"
#include "kernels/update.h"

#define REAL float
#include "kernels/cpu/optimizer_body.h"
#undef REAL
#define REAL double
#include "kernels/cpu/optimizer_body.h"
#undef REAL

/* Updates a tile of the parameter and its slots; g is the gradient, which is multiplied by `inverse`. */
typedef void update_fn(const update_numbers *numbers, double ratio, double inverse, void *const *old, void *const *made,
                       const void *g, int64_t n);
typedef void once_fn(update_numbers *numbers, const double *attr, double rate, double t);

/* Old and new views of the parameter and its slots, the gradient, and the extra operand and result. */
typedef struct update {
    const k_view *old, *grad;
    k_view *made, *low;
    int n;
    double inverse; /* of the loss scale; 1: the gradient is not scaled */
    double ratio;
    update_numbers numbers;
    update_fn *fn;
} update;

static bool skipped(const k_args *args, int skip)
{
    return skip < args->n_in && k_present(&args->in[skip]) && *(const uint8_t *)args->in[skip].data;
}

static bool in_place(const update *u, int i) { return u->made[i].data == u->old[i].data; }

static void copy_old(const update *u)
{
    for (int i = 0; i < u->n; i++)
        if (cpu_is_used(&u->made[i]) && !in_place(u, i) && k_count(&u->old[i]))
            memcpy(u->made[i].data, u->old[i].data, k_bytes(&u->old[i]));
    if (u->low && !in_place(u, 0))
        cpu_convert(u->low->dtype, u->low->data, u->old[0].dtype, u->old[0].data, k_count(u->low));
}

/* `g`: the gradient of these elements. They are read and written where they are: through a copy in the nearest cache,
 * the memory would wait for the arithmetic. */
static void update_elements(const update *u, int64_t first, int64_t n, const void *g)
{
    cpu_tile unread[UPDATE_STATES];
    void *old[UPDATE_STATES] = {NULL}, *made[UPDATE_STATES] = {NULL};
    for (int i = 0; i < u->n; i++) {
        old[i] = cpu_at(&u->old[i], first);
        made[i] = cpu_is_used(&u->made[i]) ? cpu_at(&u->made[i], first) : &unread[i];
    }
    u->fn(&u->numbers, u->ratio, u->inverse, old, made, g, n);
    if (u->low) cpu_tile_store(u->low, first, n, cpu_carrier(u->old[0].dtype), made[0]);
}

static update_numbers compute_numbers(const k_args *args, const k_update_slots *at, once_fn *once)
{
    double attr[UPDATE_ATTRS], rate = at->lr < 0 ? 0 : cpu_scalar(&args->in[at->lr], 0), t = 1;
    update_numbers numbers = {0};
    if (at->step >= 0) t += (double)ir_load_i64(args->in[at->step].dtype, args->in[at->step].data);
    k_update_attributes(args->op, args->attr, attr);
    once(&numbers, attr, rate, t);
    return numbers;
}

static void update_tile(const update *u, int64_t first, int64_t n)
{
    const ir_dtype carrier = cpu_carrier(u->old[0].dtype);
    cpu_tile scratch;
    update_elements(u, first, n, cpu_tile_load(u->grad, first, n, carrier, &scratch));
}

/* Computes all but the elements; false: the update is skipped. */
static bool begin_update(const k_args *args, once_fn *once, update *u)
{
    const k_update_slots *at = k_update_slots_of(args->op);
    const k_view *scale = k_extra_in(args, K_SLOT(update, scale));
    *u = (update){.old = args->in,
                  .grad = &args->in[at->grad],
                  .made = args->out,
                  .low = k_extra_out(args, K_SLOT(update, low)),
                  .n = at->states,
                  .inverse = scale ? cpu_inverse(scale) : 1,
                  .ratio = at->ratio < 0 ? 1 : cpu_scalar(&args->in[at->ratio], 1)};
    if (skipped(args, at->skip)) {
        copy_old(u);
        return false;
    }
    u->numbers = compute_numbers(args, at, once);
    return true;
}

static ampc_status run_update(const k_args *args, once_fn *once, update_fn *f32, update_fn *f64)
{
    update u;
    if (!begin_update(args, once, &u)) return AMPC_OK;
    u.fn = args->in[0].dtype == IR_f64 ? f64 : f32;
    int64_t n = k_count(&args->in[0]), tiles = cpu_ceil_div(n, CPU_TILE);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < tiles; t++) update_tile(&u, t * CPU_TILE, k_min(CPU_TILE, n - t * CPU_TILE));
    return AMPC_OK;
}

/* ---- updates that compute their gradient ---- */

static const struct {
    ir_op op;
    once_fn *once;
    update_fn *f32;
} rows[] = {
#define UPDATE(op, ...) {IR_OP_##op, update_once_##op, op##_float},
#include "ir/ops/updates.def"
};

static void update_part(void *user, int64_t first, const float *values, int64_t n, int64_t next)
{
    enum { LINE = 16 };
    const update *u = user;
    for (int i = 0; i < u->n; i++)
        for (int64_t j = 0; j < n; j += LINE) __builtin_prefetch(cpu_at(&u->old[i], next + j), 1);
    update_elements(u, first, n, values);
}

bool cpu_joins_update(const k_args *args)
{
    return args->op == IR_OP_matmul ? cpu_matmul_can_be_visited(args) : cpu_conv_can_be_visited(args);
}

static ampc_status grad_update_prepare(const k_args *args, void **state, size_t *workspace)
{
    k_gradient g;
    (void)state;
    if (!k_update_computes(args, &g)) return AMPC_UNSUPPORTED;
    *workspace = g.args.op == IR_OP_matmul ? cpu_matmul_visit_workspace(&g.args, update_part)
                                           : cpu_conv_visit_workspace(&g.args, update_part);
    return AMPC_OK;
}

static ampc_status grad_update_run(const k_args *args)
{
    k_gradient g;
    update u;
    size_t i = 0;
    while (rows[i].op != args->op) i++;
    if (!k_update_computes(args, &g) || !begin_update(args, rows[i].once, &u)) return AMPC_OK;
    u.fn = rows[i].f32;
    if (g.args.op == IR_OP_matmul) cpu_matmul_visit(&g.args, update_part, &u);
    else cpu_conv_visit(&g.args, update_part, &u);
    return AMPC_OK;
}

const k_kernel cpu_grad_update = {.prepare = grad_update_prepare, .run = grad_update_run};

/* ---- the loss scaler ---- */

/* to = grad * inverse, if `to` is used; true if an element of either is not finite. */
static bool unscale(const k_view *grad, const k_view *to, double inverse, const k_context *ctx)
{
    int64_t n = k_count(grad), tiles = cpu_ceil_div(n, CPU_TILE);
    ir_dtype carrier = cpu_carrier(grad->dtype);
    bool writes = cpu_is_used(to);
    int found = 0;
#pragma omp parallel for num_threads(cpu_threads(ctx, n)) schedule(static) reduction(| : found)
    for (int64_t t = 0; t < tiles; t++) {
        cpu_tile in, out;
        int64_t first = t * CPU_TILE, m = k_min(CPU_TILE, n - first);
        const void *g = cpu_tile_load(grad, first, m, carrier, &in);
        void *y = writes ? cpu_tile_target(to, first, carrier, &out) : &out;
        found |= carrier == IR_f64 ? unscale_double(g, inverse, y, m) : unscale_float(g, (float)inverse, y, m);
        if (writes) cpu_tile_store(to, first, m, carrier, y);
    }
    return found;
}

/* Like unscale, without storing the result; adds the squares of the unscaled gradient to *total, group by group. */
static bool unscale_and_square(const k_view *grad, double inverse, const k_context *ctx, double *partial, double *total)
{
    int64_t n = k_count(grad), groups = cpu_ceil_div(n, CPU_GROUP_TERMS);
    ir_dtype carrier = cpu_carrier(grad->dtype);
    int found = 0;
#pragma omp parallel for num_threads(cpu_threads(ctx, n)) schedule(static) reduction(| : found)
    for (int64_t g = 0; g < groups; g++) {
        partial[g] = 0;
        for (int64_t i = g * CPU_GROUP_TERMS, end = k_min(n, i + CPU_GROUP_TERMS); i < end; i += CPU_TILE) {
            cpu_tile in, out;
            int64_t m = k_min(CPU_TILE, end - i);
            const void *x = cpu_tile_load(grad, i, m, carrier, &in);
            found |= carrier == IR_f64 ? unscale_double(x, inverse, &out, m)
                                       : unscale_float(x, (float)inverse, &out, m);
            partial[g] += cpu_squares(carrier, &out, m);
        }
    }
    for (int64_t g = 0; g < groups; g++) *total += partial[g];
    return found;
}

static ampc_status unscale_prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    if (k_extra_out(args, K_SLOT(check, squares)))
        *workspace = cpu_partial_squares(args->in, args->listed) * sizeof(double);
    return AMPC_OK;
}

/* Initializes the sums with those of earlier calls or 0. This call adds to the first of them. */
static double *begin_squares(const k_args *args)
{
    const k_view *before = k_extra_in(args, K_SLOT(check, squares_before));
    const k_view *squares = k_extra_out(args, K_SLOT(check, squares));
    if (!squares) return NULL;
    if (before) memmove(squares->data, before->data, k_bytes(squares));
    else memset(squares->data, 0, k_bytes(squares));
    return squares->data;
}

static ampc_status unscale_run(const k_args *args)
{
    const k_view *before = k_extra_in(args, K_SLOT(check, found_before)), *flag = k_check_found(args);
    const double inverse = cpu_inverse(k_check_scale(args));
    bool found = before && *(const uint8_t *)before->data;
    double *total = begin_squares(args);
    for (int i = 0; i < args->listed; i++)
        found |= total ? unscale_and_square(&args->in[i], inverse, args->ctx, args->workspace, total)
                       : unscale(&args->in[i], &args->out[i], inverse, args->ctx);
    if (cpu_is_used(flag)) *(uint8_t *)flag->data = found;
    return AMPC_OK;
}

/* Whether an element is NaN or greater than the limit in magnitude. */
CPU_CLONES static int exceeds(const float *x, float limit, int64_t n)
{
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; i++) bad |= !(fabsf(x[i]) <= limit);
    return bad;
}

static bool factor_exceeds(const k_view *factor, float limit, const k_context *ctx)
{
    const int64_t n = k_count(factor), tiles = cpu_ceil_div(n, CPU_TILE);
    int found = 0;
#pragma omp parallel for num_threads(cpu_threads(ctx, n)) schedule(static) reduction(| : found)
    for (int64_t t = 0; t < tiles; t++) {
        cpu_tile scratch;
        const int64_t m = k_min(CPU_TILE, n - t * CPU_TILE);
        found |= exceeds(cpu_tile_load(factor, t * CPU_TILE, m, IR_f32, &scratch), limit, m);
    }
    return found;
}

static ampc_status check_factors_run(const k_args *args)
{
    const k_view *before = k_extra_in(args, K_SLOT(check, found_before)), *flag = k_check_found(args);
    bool found = before && *(const uint8_t *)before->data;
    for (int i = 0; i < args->listed; i++) found |= factor_exceeds(&args->in[i], (float)args->attr[0].f, args->ctx);
    *(uint8_t *)flag->data = found;
    return AMPC_OK;
}

/* Increments the counter. If it fires, resets it and returns true. */
static bool count_up(int64_t *counter, int64_t every, bool late)
{
    *counter += 1;
    if (late ? *counter <= every : *counter != every) return false;
    *counter = 0;
    return true;
}

/* Counts a bad step. With hysteresis the counter stays at its limit until a good step resets it. */
static bool count_bad(int64_t *counter, const ir_attr *attr)
{
    const int64_t every = attr[IR_ATTR(update_loss_scaling, decr_every)].i;
    if (!attr[IR_ATTR(update_loss_scaling, hysteresis)].i)
        return count_up(counter, every, attr[IR_ATTR(update_loss_scaling, late)].i);
    *counter += *counter < every;
    return *counter == every;
}

/* The rule of PaddlePaddle 3, or 1.8 if `late`: a good step resets the counter of bad steps and vice versa. */
static ampc_status update_loss_scaling_run(const k_args *args)
{
    const k_view *in = args->in;
    const ir_attr *attr = args->attr;
    bool late = attr[IR_ATTR(update_loss_scaling, late)].i;
    double scale = cpu_scalar(&in[1], 1);
    int64_t good = ir_load_i64(in[2].dtype, in[2].data), bad = ir_load_i64(in[3].dtype, in[3].data);
    if (good < 0) { /* switched off */
    } else if (*(const uint8_t *)in[0].data) {
        good = 0;
        if (count_bad(&bad, attr))
            scale = fmax(attr[IR_ATTR(update_loss_scaling, min)].f,
                         scale * attr[IR_ATTR(update_loss_scaling, decr_ratio)].f);
    } else {
        bad = 0;
        if (count_up(&good, attr[IR_ATTR(update_loss_scaling, incr_every)].i, late)) {
            double grown = scale * attr[IR_ATTR(update_loss_scaling, incr_ratio)].f;
            if (isfinite(in[1].dtype == IR_f64 ? grown : (double)(float)grown))
                scale = fmin(attr[IR_ATTR(update_loss_scaling, max)].f, grown);
        }
    }
    const k_view *out = args->out;
    if (cpu_is_used(&out[0])) ir_store_f64(out[0].dtype, out[0].data, scale);
    if (cpu_is_used(&out[1])) ir_store_i64(out[1].dtype, out[1].data, good);
    if (cpu_is_used(&out[2])) ir_store_i64(out[2].dtype, out[2].data, bad);
    return AMPC_OK;
}

#define UPDATE(op, ...) \
    static ampc_status op##_run(const k_args *args) \
    { \
        return run_update(args, update_once_##op, op##_float, op##_double); \
    } \
    const k_kernel cpu_##op = {.run = op##_run};
#include "ir/ops/updates.def"

const k_kernel cpu_check_finite_and_unscale = {.prepare = unscale_prepare, .run = unscale_run};
const k_kernel cpu_check_factors = {.run = check_factors_run};
const k_kernel cpu_update_loss_scaling = {.run = update_loss_scaling_run};
