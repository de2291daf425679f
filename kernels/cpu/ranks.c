/* ranks.c - collective operations on the values of all ranks. */
#include "kernels/cpu/ranks.h"

#include <stdio.h>
#include <string.h>

static bool is_alone(const k_args *args) { return !args->ctx->ranks || args->ctx->ranks->count == 1; }

static int64_t count_elements(const k_args *args)
{
    int64_t n = 0;
    for (int i = 0; i < args->n_in; i++) n += k_count(&args->in[i]);
    return n;
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    if (!is_alone(args))
        *workspace = (size_t)count_elements(args) * ir_dtype_size(args->attr[IR_ATTR(all_reduce, wire)].dtype);
    return AMPC_OK;
}

void cpu_wire_pack(const k_args *args, const k_view *x, double factor, k_view *to)
{
    const ir_dtype carrier = cpu_carrier(x->dtype);
    const int64_t n = k_count(x), tiles = cpu_ceil_div(n, CPU_TILE);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        cpu_tile scratch, product;
        const int64_t first = t * CPU_TILE, count = k_min(CPU_TILE, n - first);
        const void *from = cpu_tile_load(x, first, count, carrier, &scratch);
        if (carrier == IR_f64)
            for (int64_t i = 0; i < count; i++) ((double *)&product)[i] = ((const double *)from)[i] * factor;
        else
            for (int64_t i = 0; i < count; i++) ((float *)&product)[i] = ((const float *)from)[i] * (float)factor;
        cpu_convert(to->dtype, (char *)to->data + (size_t)first * ir_dtype_size(to->dtype), carrier, &product, count);
    }
}

void cpu_wire_unpack(const k_args *args, const k_view *from, k_view *y)
{
    const int64_t n = k_count(y), tiles = cpu_ceil_div(n, CPU_TILE);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t first = t * CPU_TILE, count = k_min(CPU_TILE, n - first);
        cpu_convert(y->dtype, cpu_at(y, first), from->dtype,
                    (const char *)from->data + (size_t)first * ir_dtype_size(from->dtype), count);
    }
}

ampc_status cpu_ranks_failed(const k_args *args, ampc_status status)
{
    snprintf(args->ctx->error, args->ctx->error_size, "%s", args->ctx->ranks->error);
    return status;
}

static ampc_status run_all_reduce(const k_args *args)
{
    k_ranks *r = args->ctx->ranks;
    if (is_alone(args)) {
        for (int i = 0; i < args->n_in; i++)
            if (args->out[i].data && args->out[i].data != args->in[i].data)
                memcpy(args->out[i].data, args->in[i].data, k_bytes(&args->in[i]));
        return AMPC_OK;
    }
    const ir_dtype wire = args->attr[IR_ATTR(all_reduce, wire)].dtype;
    const k_reduced by = (k_reduced)args->attr[IR_ATTR(all_reduce, by)].i;
    const int64_t n = count_elements(args);
    void *staged = r->stage(r, (size_t)n * ir_dtype_size(wire)), *packed = staged ? staged : args->workspace;
    k_view part = {.data = packed, .dtype = wire};
    for (int i = 0; i < args->n_in; i++) {
        cpu_wire_pack(args, &args->in[i], by == K_REDUCED_mean ? r->share : 1, &part);
        part.data = (char *)part.data + (size_t)k_count(&args->in[i]) * ir_dtype_size(wire);
    }
    ampc_status status = r->all_reduce(r, packed, n, wire, by == K_REDUCED_mean ? K_REDUCED_sum : by,
                                       args->attr[IR_ATTR(all_reduce, tree)].i != 0);
    if (status != AMPC_OK) return cpu_ranks_failed(args, status);
    part.data = packed;
    for (int i = 0; i < args->n_in; i++) {
        if (args->out[i].data) cpu_wire_unpack(args, &part, &args->out[i]);
        part.data = (char *)part.data + (size_t)k_count(&args->in[i]) * ir_dtype_size(wire);
    }
    return AMPC_OK;
}

const k_kernel cpu_all_reduce = {.prepare = prepare, .run = run_all_reduce};

static ampc_status run_rank_number(const k_args *args)
{
    const k_ranks *r = args->ctx->ranks;
    const double numbers[] = {r ? r->index : 0, r ? r->count : 1, r ? r->share : 1};
    ir_store_f64(args->out[0].dtype, args->out[0].data, numbers[args->attr[IR_ATTR(rank_number, number)].i]);
    return AMPC_OK;
}

const k_kernel cpu_rank_number = {.run = run_rank_number};
