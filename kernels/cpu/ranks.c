/* ranks.c - collective operations on the values of all ranks. */
#include "kernels/cpu/ranks.h"

#include <stdio.h>
#include <string.h>

static bool is_alone(const k_args *args)
{
    const k_ranks *r = args->ctx->ranks;
    return !r || r->count == 1 || r->muted;
}

static int64_t count_elements(const k_args *args)
{
    int64_t n = 0;
    for (int i = 0; i < args->n_in; i++) n += k_count(&args->in[i]);
    return n;
}

/* The elements that are reduced at a time. */
static int64_t piece_of(const k_args *args)
{
    const size_t piece = args->ctx->ranks->piece, size = ir_dtype_size(args->attr[IR_ATTR(all_reduce, wire)].dtype);
    const int64_t n = count_elements(args);
    return piece ? k_min(n, (int64_t)(piece / size)) : n;
}

static ampc_status prepare(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    if (!is_alone(args))
        *workspace = (size_t)piece_of(args) * ir_dtype_size(args->attr[IR_ATTR(all_reduce, wire)].dtype);
    return AMPC_OK;
}

void cpu_wire_pack(const k_args *args, const k_view *x, double factor, k_view *to)
{
    const ir_dtype carrier = cpu_carrier(x->dtype);
    const int64_t n = k_count(x), tiles = cpu_ceil_div(n, CPU_TILE);
    const k_view dense = {.data = to->data, .dtype = to->dtype, .rank = 1, .dims = {n}};
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        cpu_tile scratch, products;
        const int64_t first = t * CPU_TILE, count = k_min(CPU_TILE, n - first);
        const void *from = cpu_tile_load(x, first, count, carrier, &scratch);
        void *made = cpu_tile_target(&dense, first, carrier, &products);
        if (carrier == IR_f64)
            for (int64_t i = 0; i < count; i++) ((double *)made)[i] = ((const double *)from)[i] * factor;
        else
            for (int64_t i = 0; i < count; i++) ((float *)made)[i] = ((const float *)from)[i] * (float)factor;
        cpu_tile_store(&dense, first, count, carrier, made);
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

static void copy_operands(const k_args *args)
{
    for (int i = 0; i < args->n_in; i++)
        if (args->out[i].data && args->out[i].data != args->in[i].data)
            memcpy(args->out[i].data, args->in[i].data, k_bytes(&args->in[i]));
}

/* The elements first .. first+n-1 of a dense view. */
static k_view range_of(const k_view *v, int64_t first, int64_t n)
{
    return (k_view){.data = cpu_at(v, first), .dtype = v->dtype, .rank = 1, .dims = {n}};
}

/* Packs n elements from element `first` of all operands on, or unpacks them to the results. */
static void move_piece(const k_args *args, int64_t first, int64_t n, double factor, bool packs, k_view wire)
{
    for (int i = 0; i < args->n_in && n; i++) {
        const int64_t all = k_count(&args->in[i]), count = k_min(n, all - first);
        if (count <= 0) {
            first -= all;
            continue;
        }
        const k_view *v = packs ? &args->in[i] : &args->out[i];
        k_view range = v->data ? range_of(v, first, count) : *v;
        if (packs) cpu_wire_pack(args, &range, factor, &wire);
        else if (v->data) cpu_wire_unpack(args, &wire, &range);
        wire.data = (char *)wire.data + (size_t)count * ir_dtype_size(wire.dtype);
        first = 0;
        n -= count;
    }
}

static ampc_status run_all_reduce(const k_args *args)
{
    k_ranks *r = args->ctx->ranks;
    if (is_alone(args)) {
        copy_operands(args);
        return AMPC_OK;
    }
    const ir_dtype type = args->attr[IR_ATTR(all_reduce, wire)].dtype;
    const k_reduced by = (k_reduced)args->attr[IR_ATTR(all_reduce, by)].i;
    const bool mean = by == K_REDUCED_mean, tree = args->attr[IR_ATTR(all_reduce, tree)].i != 0;
    const int64_t n = count_elements(args), piece = piece_of(args);
    for (int64_t at = 0; at < n; at += piece) {
        const int64_t count = k_min(piece, n - at);
        void *staged = r->stage(r, (size_t)count * ir_dtype_size(type));
        const k_view wire = {.data = staged ? staged : args->workspace, .dtype = type};
        move_piece(args, at, count, mean ? r->share : 1, true, wire);
        r->continues = at + count < n;
        ampc_status status = r->all_reduce(r, wire.data, count, type, mean ? K_REDUCED_sum : by, tree);
        if (status != AMPC_OK) return cpu_ranks_failed(args, status);
        move_piece(args, at, count, 1, false, wire);
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
