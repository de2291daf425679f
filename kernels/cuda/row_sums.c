/* row_sums.c - launches of the sort in gather.cu and of the reductions of row_sums.cuh. */
#include "kernels/cuda/row_sums.h"

_Static_assert((int)GATHER_BLOCK == (int)SORT_DIGITS, "a thread for each digit");

static size_t reserve(row_sums_plan *p, int64_t count, size_t size)
{
    const size_t at = p->bytes;
    p->bytes += ((size_t)count * size + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
    return at;
}

row_sums_plan row_sums_plan_of(int64_t outer, int64_t entries, int64_t inner, int64_t count, size_t carrier_size)
{
    row_sums_plan p = {.outer = outer, .entries = entries, .inner = inner, .count = count, .passes = 1};
    while (p.passes < 4 && p.entries > (int64_t)1 << 8 * p.passes) p.passes++;
    const int64_t turns = (p.count + SORT_TURN - 1) / SORT_TURN;
    const int64_t turns_each = (turns + SORT_BLOCKS - 1) / SORT_BLOCKS;
    p.each = SORT_TURN * (turns_each < SORT_TURNS ? SORT_TURNS : turns_each);
    p.blocks = (p.count + p.each - 1) / p.each;
    p.runs = (p.count + GATHER_RUN - 1) / GATHER_RUN;
    for (int i = 0; i < 2; i++) {
        p.keys[i] = reserve(&p, p.count, sizeof(unsigned));
        p.positions[i] = reserve(&p, p.count, sizeof(unsigned));
    }
    p.counts = reserve(&p, SORT_DIGITS * p.blocks, sizeof(unsigned));
    p.partial = reserve(&p, p.outer * p.runs * 2 * p.inner, carrier_size);
    return p;
}

ampc_status row_sums_find(const k_args *args, const row_sums_plan *p, const char *const *sums, cuda_family family,
                          row_sums_kernels *out)
{
    if (p->count > INT32_MAX || p->entries > UINT32_MAX)
        return cuda_fail(args->ctx, AMPC_UNSUPPORTED, "%lld indices into %lld entries are too many for this device",
                         (long long)p->count, (long long)p->entries);
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_gather, "gather_count", &out->count));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_gather, "gather_places", &out->places));
    CUDA_FORWARD(cuda_find(args->ctx, CUDA_FAMILY_gather, "gather_place", &out->place));
    CUDA_FORWARD(cuda_find(args->ctx, family, sums[0], &out->sum));
    return cuda_find(args->ctx, family, sums[1], &out->join);
}

/* Sorts the rows of the items into keys[passes % 2] and positions[passes % 2]. */
static ampc_status sort(const k_args *args, const row_sums_kernels *kernels, const row_sums_plan *p,
                        const cuda_places *places)
{
    char *base = args->workspace;
    gather_sort g = {.places = *places,
                     .counts = (unsigned *)(base + p->counts),
                     .count = p->count,
                     .each = p->each,
                     .blocks = (int)p->blocks};
    for (int pass = 0; pass < p->passes; pass++) {
        const int from = pass % 2, to = !from;
        g.is_first = pass == 0;
        g.keys = (unsigned *)(base + p->keys[from]);
        g.positions = (unsigned *)(base + p->positions[from]);
        g.sorted_keys = (unsigned *)(base + p->keys[to]);
        g.sorted_positions = (unsigned *)(base + p->positions[to]);
        g.shift = 8 * pass;
        CUDA_FORWARD(cuda_launch(args, kernels->count, p->blocks, GATHER_BLOCK, 0, (void *[]){&g}));
        CUDA_FORWARD(cuda_launch(args, kernels->places, 1, GATHER_BLOCK, 0, (void *[]){&g.counts, &g.blocks}));
        CUDA_FORWARD(cuda_launch(args, kernels->place, p->blocks, GATHER_BLOCK, 0, (void *[]){&g}));
    }
    return AMPC_OK;
}

ampc_status row_sums_run(const k_args *args, const row_sums_kernels *kernels, const row_sums_plan *p,
                         const cuda_places *places, const k_view *from, int mode)
{
    const k_view *to = &args->out[0];
    char *base = args->workspace;
    if (p->count == 0) return AMPC_OK;
    CUDA_FORWARD(sort(args, kernels, p, places));
    row_sums g = {.dy = from->data,
                  .dx = to->data,
                  .dy_dtype = (int)from->dtype,
                  .dx_dtype = (int)to->dtype,
                  .keys = (const unsigned *)(base + p->keys[p->passes % 2]),
                  .positions = (const unsigned *)(base + p->positions[p->passes % 2]),
                  .partial = base + p->partial,
                  .mode = mode,
                  .outer = p->outer,
                  .entries = p->entries,
                  .inner = p->inner,
                  .count = p->count,
                  .runs = p->runs,
                  .lanes = 1};
    const int64_t tiles = (g.inner + CUDA_TILE - 1) / CUDA_TILE;
    while (g.lanes < tiles && g.lanes < GATHER_BLOCK) g.lanes *= 2;
    const int64_t units = g.outer * g.runs * ((tiles + g.lanes - 1) / g.lanes),
                  blocks = cuda_blocks(units, GATHER_BLOCK / g.lanes);
    if (k_count(to) == 0) return AMPC_OK;
    CUDA_FORWARD(cuda_launch(args, kernels->sum, blocks, GATHER_BLOCK, 0, (void *[]){&g}));
    return cuda_launch(args, kernels->join, blocks, GATHER_BLOCK, 0, (void *[]){&g});
}
