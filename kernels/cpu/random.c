/* random.c - uniform and normal random numbers from Philox.
 *
 * Element i uses word i of the stream that dropout would use. Two adjacent words w, v become two normal numbers
 * r cos(2 pi v) and r sin(2 pi v), r = sqrt(-2 log(1 - w)) (G. Box, M. Muller, 1958). */
#include "kernels/cpu/math.h"
#include "kernels/cpu/tiles.h"

#include "ir/base/philox.h"

enum { WORDS = 4 }; /* per Philox block */

typedef struct distribution {
    bool normal;
    float offset, scale;
} distribution;

static void make_normal(const philox_words *w, float *v)
{
    for (int i = 0; i < WORDS; i += 2) {
        const float radius = sqrtf(-2 * m_log_float(1 - philox_unit(w->v[i])));
        const float angle = 6.28318530718f * philox_unit(w->v[i + 1]);
        v[i] = radius * cosf(angle);
        v[i + 1] = radius * sinf(angle);
    }
}

/* `first` and n are multiples of WORDS. */
static void draw_tile(const cpu_draw *d, const distribution *to, int64_t first, int64_t n, float *v)
{
    for (int64_t i = 0; i < n; i += WORDS) {
        const philox_words w = philox_block(d->key, d->stream, (uint64_t)(first + i) / WORDS);
        for (int j = 0; j < WORDS && !to->normal; j++) v[i + j] = philox_unit(w.v[j]);
        if (to->normal) make_normal(&w, v + i);
        for (int j = 0; j < WORDS; j++) v[i + j] = to->offset + to->scale * v[i + j];
    }
}

static ampc_status random_run(const k_args *args)
{
    const k_view *y = &args->out[0];
    const cpu_draw d = cpu_draw_of(&args->in[IR_IN(random, rng)], 0, args->attr[IR_ATTR(random, stream)].i);
    const distribution to = {args->attr[IR_ATTR(random, normal)].i, (float)args->attr[IR_ATTR(random, offset)].f,
                             (float)args->attr[IR_ATTR(random, scale)].f};
    int64_t n = k_count(y), tiles = cpu_ceil_div(n, CPU_TILE);
#pragma omp parallel for num_threads(cpu_threads(args->ctx, n)) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        cpu_tile values;
        int64_t first = t * CPU_TILE, m = k_min(CPU_TILE, n - first);
        draw_tile(&d, &to, first, (m + WORDS - 1) / WORDS * WORDS, values.f32);
        cpu_tile_store(y, first, m, IR_f32, values.f32);
    }
    return AMPC_OK;
}

const k_kernel cpu_random = {.run = random_run};
