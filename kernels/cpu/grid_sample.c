/* grid_sample.c - samples of images at the positions of a grid, and their gradients.
 *
 * The taps of a point are computed once for all channels. Operands of low precision are converted as a whole, and sums
 * of results are kept in the carrier type. The gradient of x is computed for a block of channels of one image at a
 * time, over the points in order, so it does not depend on the number of threads. */
#include "kernels/cpu/wide.h"
#include "kernels/grid.h"
#include "ir/ops/real.h"

enum { CHANNEL_BLOCK = 8 };

/* Operands and results in the carrier type. */
typedef struct wide {
    const void *x, *grid, *dy;
    void *y, *dx, *dgrid;
} wide;

#define REAL float
#include "kernels/grid_body.h"
#include "kernels/cpu/grid_sample_body.h"
#undef REAL
#define REAL double
#include "kernels/grid_body.h"
#include "kernels/cpu/grid_sample_body.h"
#undef REAL

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    *workspace = cpu_wide_bytes(args, cpu_carrier(args->in[0].dtype));
    return AMPC_OK;
}

static ampc_status sample_run(const k_args *args)
{
    const k_view *x = &args->in[IR_IN(grid_sample, x)], *grid = &args->in[IR_IN(grid_sample, grid)], *y = &args->out[0];
    const grid_shape s = grid_shape_of(args, x, grid);
    const ir_dtype carrier = cpu_carrier(x->dtype);
    char *at = args->workspace;
    const wide w = {
        .x = cpu_widen(x, carrier, &at), .grid = cpu_widen(grid, carrier, &at), .y = cpu_wide_target(y, carrier, &at)};
    if (k_count(y) == 0) return AMPC_OK;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(y))) schedule(static)
    for (int64_t i = 0; i < s.images * s.points; i++) {
        if (carrier == IR_f64) sample_point_double(&s, &w, i);
        else sample_point_float(&s, &w, i);
    }
    cpu_narrow(y, carrier, w.y);
    return AMPC_OK;
}

static void gradient_of_images(const k_args *args, const grid_shape *s, const wide *w, ir_dtype carrier)
{
    const int64_t blocks = cpu_ceil_div(s->channels, CHANNEL_BLOCK);
    const int threads = cpu_threads(args->ctx, s->images * s->channels * (s->points + s->plane));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < s->images * blocks; i++) {
        if (carrier == IR_f64) spread_channels_double(s, w, i / blocks, i % blocks * CHANNEL_BLOCK);
        else spread_channels_float(s, w, i / blocks, i % blocks * CHANNEL_BLOCK);
    }
}

static void gradient_of_points(const k_args *args, const grid_shape *s, const wide *w, ir_dtype carrier)
{
#pragma omp parallel for num_threads(cpu_threads(args->ctx, s->images * s->channels * s->points)) schedule(static)
    for (int64_t i = 0; i < s->images * s->points; i++) {
        if (carrier == IR_f64) slope_point_double(s, w, i);
        else slope_point_float(s, w, i);
    }
}

static ampc_status grad_run(const k_args *args)
{
    const k_view *dy = &args->in[IR_IN(grid_sample_grad, dy)], *x = &args->in[IR_IN(grid_sample_grad, x)],
                 *grid = &args->in[IR_IN(grid_sample_grad, grid)], *dx = &args->out[0], *dgrid = cpu_result(args, 1);
    const grid_shape s = grid_shape_of(args, x, grid);
    const ir_dtype carrier = cpu_carrier(x->dtype);
    char *at = args->workspace;
    const wide w = {.dy = cpu_widen(dy, carrier, &at),
                    .x = cpu_widen(x, carrier, &at),
                    .grid = cpu_widen(grid, carrier, &at),
                    .dx = cpu_wide_target(dx, carrier, &at),
                    .dgrid = cpu_wide_target(dgrid, carrier, &at)};
    if (cpu_is_used(dx)) gradient_of_images(args, &s, &w, carrier);
    if (cpu_is_used(dgrid)) gradient_of_points(args, &s, &w, carrier);
    cpu_narrow(dx, carrier, w.dx);
    cpu_narrow(dgrid, carrier, w.dgrid);
    return AMPC_OK;
}

const k_kernel cpu_grid_sample = {.prepare = prepare, .run = sample_run};
const k_kernel cpu_grid_sample_grad = {.prepare = prepare, .run = grad_run};
