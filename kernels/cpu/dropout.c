/* dropout.c - dropout with masks from Philox. An element is kept if its 32 random bits, as an integer, are not below
 * ratio * 2^32.
 *
 * Element i of stream s at step c with seed k uses word i of the Philox stream (s + 1, c) with key k. So the mask does
 * not depend on threads or on the shapes of other tensors, and the same step always draws the same mask. */
#include "kernels/cpu/tiles.h"

#include "ir/base/philox.h"

enum { WORDS = 4 }; /* per Philox block */

cpu_draw cpu_draw_of(const k_view *rng, double ratio, int64_t stream)
{
    const uint64_t step = (uint64_t)ir_load_i64(rng->dtype, cpu_at(rng, 1));
    return (cpu_draw){.key = (uint64_t)ir_load_i64(rng->dtype, rng->data) ^ step >> 32,
                      .stream = ((uint64_t)stream + 1) << 32 | (uint32_t)step,
                      .threshold = (uint64_t)(ratio * 0x1p32)};
}

/* `first` and n are multiples of WORDS. */
CPU_CLONES static void draw_blocks(const cpu_draw *d, int64_t first, int64_t n, uint8_t *keep)
{
    uint64_t key = d->key, stream = d->stream, threshold = d->threshold, block = (uint64_t)first / WORDS;
    for (int64_t i = 0; i < n / WORDS; i++) {
        philox_words w = philox_block(key, stream, block + (uint64_t)i);
        for (int j = 0; j < WORDS; j++) keep[i * WORDS + j] = w.v[j] >= threshold;
    }
}

void cpu_draw_tile(const cpu_draw *d, int64_t first, int64_t n, uint8_t *keep)
{
    int64_t before = first % WORDS, full = (before + n + WORDS - 1) / WORDS * WORDS;
    if (full == n) {
        draw_blocks(d, first, n, keep);
        return;
    }
    uint8_t blocks[CPU_TILE + 2 * WORDS];
    assert(n <= CPU_TILE); /* callers pass at most one tile */
    draw_blocks(d, first - before, full, blocks);
    memcpy(keep, blocks + before, (size_t)n);
}

CPU_CLONES static void mask_float(const float *x, const uint8_t *keep, double scale, float *y, int64_t n)
{
    float s = (float)scale;
    CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = keep[i] ? x[i] * s : 0;
}

CPU_CLONES static void mask_double(const double *x, const uint8_t *keep, double scale, double *y, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) y[i] = keep[i] ? x[i] * scale : 0;
}

void cpu_mask_tile(ir_dtype carrier, const void *x, const uint8_t *keep, double ratio, void *y, int64_t n)
{
    if (carrier == IR_f64) mask_double(x, keep, 1 / (1 - ratio), y, n);
    else mask_float(x, keep, 1 / (1 - ratio), y, n);
}

static void apply(const k_view *x, const uint8_t *keep, double ratio, const k_view *y, int64_t first, int64_t n)
{
    cpu_tile in, out;
    ir_dtype carrier = cpu_carrier(x->dtype);
    const void *from = cpu_tile_load(x, first, n, carrier, &in);
    void *to = cpu_tile_target(y, first, carrier, &out);
    cpu_mask_tile(carrier, from, keep, ratio, to, n);
    cpu_tile_store(y, first, n, carrier, to);
}

static ampc_status dropout_run(const k_args *args)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    uint8_t *mask = args->n_out > 1 && cpu_is_used(&args->out[1]) ? args->out[1].data : NULL;
    const double ratio = args->attr[IR_ATTR(dropout, ratio)].f;
    const cpu_draw d = cpu_draw_of(&args->in[1], ratio, args->attr[IR_ATTR(dropout, stream)].i);
    int64_t n = k_count(x), tiles = cpu_ceil_div(n, CPU_TILE);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        uint8_t keep[CPU_TILE];
        int64_t first = t * CPU_TILE, m = k_min(CPU_TILE, n - first);
        cpu_draw_tile(&d, first, m, keep);
        if (y->data) apply(x, keep, ratio, y, first, m);
        if (mask) memcpy(mask + first, keep, (size_t)m);
    }
    return AMPC_OK;
}

static ampc_status dropout_grad_run(const k_args *args)
{
    const k_view *dy = &args->in[0], *dx = &args->out[0];
    const uint8_t *mask = args->in[1].data;
    const double ratio = args->attr[IR_ATTR(dropout_grad, ratio)].f;
    int64_t n = k_count(dy), tiles = cpu_ceil_div(n, CPU_TILE);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < tiles; t++)
        apply(dy, mask + t * CPU_TILE, ratio, dx, t * CPU_TILE, k_min(CPU_TILE, n - t * CPU_TILE));
    return AMPC_OK;
}

const k_kernel cpu_dropout = {.run = dropout_run};
const k_kernel cpu_dropout_grad = {.run = dropout_grad_run};
