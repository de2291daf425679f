/* shards.c - tensors of which each rank has a slice (ir_type_shard).
 *
 * On the wire, the slices of one rank follow each other: those of all tensors that rank 0 has, then those of rank 1. */
#include "kernels/cpu/ranks.h"
#include "ir/base/diag.h"

#include <stdio.h>
#include <string.h>

/* The attribute of any of these ops. */
static int64_t ranks_of(const k_args *args) { return args->attr[ir_op_find_attr(args->op, "ranks")].i; }

static ir_dtype wire_of(const k_args *args) { return args->attr[ir_op_find_attr(args->op, "wire")].dtype; }

static int rank_index(const k_args *args) { return args->ctx->ranks ? args->ctx->ranks->index : 0; }

static bool is_empty(const k_view *v) { return k_count(v) == 0; }

/* The elements of a slice of a tensor with these. */
static int64_t slice_length(int64_t count, int64_t ranks) { return count / ranks + (count % ranks != 0); }

/* The part of a tensor that the slice of a rank holds: it ends before the padding. */
static k_view part_of(const k_view *whole, int64_t ranks, int64_t rank)
{
    const int64_t count = k_count(whole), length = slice_length(count, ranks);
    const int64_t first = k_min(count, rank * length);
    k_view part = {.dtype = whole->dtype, .as = whole->as, .rank = 1, .dims = {k_min(length, count - first)}};
    part.data = cpu_at(whole, first);
    return part;
}

/* Of all tensors. */
static int64_t slice_elements(const k_view *wholes, int n, int64_t ranks)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += slice_length(k_count(&wholes[i]), ranks);
    return sum;
}

static ampc_status check_ranks(const k_args *args)
{
    const int count = args->ctx->ranks ? args->ctx->ranks->count : 1;
    if (args->ctx->plan_only || count == ranks_of(args)) return AMPC_OK;
    snprintf(args->ctx->error, args->ctx->error_size, "the module is for %lld ranks, not for %d",
             (long long)ranks_of(args), count);
    return AMPC_UNSUPPORTED;
}

/* ---- rank_part ---- */

static ampc_status prepare_part(const k_args *args, void **state, size_t *workspace)
{
    (void)state, (void)workspace;
    return check_ranks(args);
}

static void fill_with_zeros(k_view *slice, int64_t from)
{
    const int64_t rest = k_count(slice) - from;
    if (rest > 0) memset(cpu_at(slice, from), 0, (size_t)rest * ir_dtype_size(slice->dtype));
}

static ampc_status run_part(const k_args *args)
{
    for (int i = 0; i < args->n_in; i++) {
        const k_view part = part_of(&args->in[i], ranks_of(args), rank_index(args));
        if (!args->out[i].data) continue;
        if (!is_empty(&part)) memcpy(args->out[i].data, part.data, k_bytes(&part));
        fill_with_zeros(&args->out[i], k_count(&part));
    }
    return AMPC_OK;
}

const k_kernel cpu_rank_part = {.prepare = prepare_part, .run = run_part};

/* ---- reduce_scatter ---- */

static ampc_status prepare_scatter(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const int64_t ranks = ranks_of(args);
    TRY(check_ranks(args));
    if (ranks > 1)
        *workspace = (size_t)(ranks * slice_elements(args->in, args->n_in, ranks)) * ir_dtype_size(wire_of(args));
    return AMPC_OK;
}

static void advance(k_view *at, int64_t elements)
{
    at->data = (char *)at->data + (size_t)elements * ir_dtype_size(at->dtype);
}

static void pack_slices(const k_args *args, double factor, k_view at)
{
    const int64_t ranks = ranks_of(args);
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int i = 0; i < args->n_in; i++) {
            const k_view part = part_of(&args->in[i], ranks, rank);
            const int64_t count = k_count(&part), length = slice_length(k_count(&args->in[i]), ranks);
            if (count) cpu_wire_pack(args, &part, factor, &at);
            advance(&at, count);
            memset(at.data, 0, (size_t)(length - count) * ir_dtype_size(at.dtype));
            advance(&at, length - count);
        }
}

static ampc_status run_scatter(const k_args *args)
{
    k_ranks *r = args->ctx->ranks;
    const int64_t ranks = ranks_of(args), each = slice_elements(args->in, args->n_in, ranks);
    if (ranks == 1) return run_part(args);
    const ir_dtype wire = wire_of(args);
    const k_reduced by = (k_reduced)args->attr[IR_ATTR(reduce_scatter, by)].i;
    void *staged = r->stage(r, (size_t)(ranks * each) * ir_dtype_size(wire));
    k_view packed = {.data = staged ? staged : args->workspace, .dtype = wire};
    pack_slices(args, by == K_REDUCED_mean ? r->share : 1, packed);
    ampc_status status = r->all_reduce(r, packed.data, ranks * each, wire, by == K_REDUCED_mean ? K_REDUCED_sum : by,
                                       args->attr[IR_ATTR(reduce_scatter, tree)].i != 0);
    if (status != AMPC_OK) return cpu_ranks_failed(args, status);
    advance(&packed, r->index * each);
    for (int i = 0; i < args->n_in; i++) {
        if (args->out[i].data && !is_empty(&args->out[i])) cpu_wire_unpack(args, &packed, &args->out[i]);
        advance(&packed, slice_length(k_count(&args->in[i]), ranks));
    }
    return AMPC_OK;
}

const k_kernel cpu_reduce_scatter = {.prepare = prepare_scatter, .run = run_scatter};

/* ---- all_gather ---- */

/* The slices of this rank, then those of all ranks. */
static ampc_status prepare_gather(const k_args *args, void **state, size_t *workspace)
{
    (void)state;
    const int64_t ranks = ranks_of(args);
    TRY(check_ranks(args));
    *workspace = (size_t)((ranks + 1) * slice_elements(args->out, args->n_out, ranks)) * ir_dtype_size(wire_of(args));
    return AMPC_OK;
}

static ampc_status gather(const k_args *args, const void *mine, void *all, size_t bytes)
{
    k_ranks *r = args->ctx->ranks;
    if (ranks_of(args) > 1) {
        const ampc_status status = r->all_gather(r, mine, all, bytes);
        return status == AMPC_OK ? AMPC_OK : cpu_ranks_failed(args, status);
    }
    memcpy(all, mine, bytes);
    return AMPC_OK;
}

static ampc_status run_gather(const k_args *args)
{
    const int64_t ranks = ranks_of(args), each = slice_elements(args->out, args->n_out, ranks);
    const k_view mine = {.data = args->workspace, .dtype = wire_of(args)};
    const size_t bytes = (size_t)each * ir_dtype_size(mine.dtype);
    k_view at = mine, all = mine;
    for (int i = 0; i < args->n_in; i++) {
        if (!is_empty(&args->in[i])) cpu_wire_pack(args, &args->in[i], 1, &at);
        advance(&at, k_count(&args->in[i]));
    }
    advance(&all, each);
    TRY(gather(args, mine.data, all.data, bytes));
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int i = 0; i < args->n_out; i++) {
            k_view part = part_of(&args->out[i], ranks, rank);
            if (args->out[i].data && !is_empty(&part)) cpu_wire_unpack(args, &all, &part);
            advance(&all, slice_length(k_count(&args->out[i]), ranks));
        }
    return AMPC_OK;
}

const k_kernel cpu_all_gather = {.prepare = prepare_gather, .run = run_gather};
