/* trust.c - the ratios of norms that scale the updates of LAMB, LARS and Adafactor. */
#include "kernels/cpu/cpu.h"
#include "kernels/update.h"

#include <math.h>

static double part_norm(const k_view *v, int64_t first, int64_t end)
{
    const ir_dtype carrier = cpu_carrier(v->dtype);
    double sum = 0;
    for (int64_t i = first; i < end; i += CPU_TILE) {
        cpu_tile scratch;
        const int64_t n = k_min(CPU_TILE, end - i);
        sum += cpu_squares(carrier, cpu_tile_load(v, i, n, carrier, &scratch), n);
    }
    return sqrt(sum);
}

static ampc_status norm_parts_run(const k_args *args)
{
    const int64_t n = k_count(&args->in[0]), length = k_norm_part_length(n);
    const double root = k_norm_root(args);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, 2 * n)) schedule(static)
    for (int64_t i = 0; i < 2 * IR_NORM_PARTS; i++) {
        const int64_t first = i % IR_NORM_PARTS * length;
        const double norm = part_norm(&args->in[i / IR_NORM_PARTS], first, k_min(n, first + length));
        cpu_store_number(&args->out[0], i, norm / root);
    }
    return AMPC_OK;
}

static double norm_of(const k_view *parts, int64_t first)
{
    double sum = 0;
    for (int64_t i = first; i < first + IR_NORM_PARTS; i++) sum += cpu_number(parts, i) * cpu_number(parts, i);
    return sqrt(sum);
}

static ampc_status trust_ratio_run(const k_args *args)
{
    const ir_attr *attr = args->attr;
    const double a = norm_of(&args->in[0], 0), b = norm_of(&args->in[0], IR_NORM_PARTS);
    const double below = b + attr[IR_ATTR(trust_ratio, weight_decay)].f * a + attr[IR_ATTR(trust_ratio, eps)].f;
    const bool zero = a == 0 || b == 0;
    cpu_store_number(&args->out[0], 0, zero ? 1 : attr[IR_ATTR(trust_ratio, coefficient)].f * a / below);
    return AMPC_OK;
}

static ampc_status clipped_ratio_run(const k_args *args)
{
    const ir_attr *attr = args->attr;
    const double a = norm_of(&args->in[0], 0), b = norm_of(&args->in[0], IR_NORM_PARTS);
    const double above = fmax(attr[IR_ATTR(clipped_ratio, least)].f, a);
    cpu_store_number(&args->out[0], 0, above / fmax(1, b / attr[IR_ATTR(clipped_ratio, clip)].f));
    return AMPC_OK;
}

const k_kernel cpu_norm_parts = {.run = norm_parts_run};
const k_kernel cpu_trust_ratio = {.run = trust_ratio_run};
const k_kernel cpu_clipped_ratio = {.run = clipped_ratio_run};
