/* pool_body.h - template over REAL, included by pool.c: the maximum over the windows of a plane or, in NHWC, of a
 * row. */

static void R(max_begin)(REAL *y, int32_t *position, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = LOWEST;
        position[i] = -1;
    }
}

/* The maximum over the taps of a slice of x, which starts at position `base` of the plane. The first of equal maxima
 * wins and NaN counts as a maximum. An output without taps keeps its value. */
CPU_CLONES static void R(max_slice)(const REAL *x, const int32_t *taps, int64_t count, int32_t base, REAL *best,
                                    int32_t *position, int64_t n)
{
    for (int64_t k = 0; k < count; k++, taps += n) CPU_SIMD for (int64_t i = 0; i < n; i++)
        {
            int32_t at = taps[i] < 0 ? 0 : taps[i];
            REAL v = x[at];
            bool wins = ((v > best[i]) | IS_NAN(v) | (position[i] < 0)) & (taps[i] >= 0);
            best[i] = wins ? v : best[i];
            position[i] = wins ? base + at : position[i];
        }
}

static void R(max_plane)(const geometry *g, const REAL *x, REAL *y, int32_t *position)
{
    R(max_begin)(y, position, g->out_plane);
    for (int64_t o = 0; o < g->a[0].out; o++)
        for (int64_t k = 0; k < g->a[0].kernel; k++) {
            int64_t base = position_of(&g->a[0], o, k) * g->in_slice, to = o * g->out_slice;
            if (base < 0) continue;
            R(max_slice)(x + base, g->taps, g->slice_taps, (int32_t)base, y + to, position + to, g->out_slice);
        }
}

/* NHWC: the same for a row of outputs and the taps in one row of x, which starts at position `base` of the plane. */
CPU_CLONES static void R(max_points)(const REAL *x, const pool_axis *a, int64_t channels, int32_t base, REAL *y,
                                     int32_t *position)
{
    for (int64_t k = 0; k < a->kernel; k++)
        for (int64_t o = 0; o < a->out; o++) {
            int64_t i = o * a->stride - a->before + k * a->dilation;
            if (i < 0 || i >= a->in) continue;
            const REAL *from = x + i * channels;
            REAL *best = y + o * channels;
            int32_t *of = position + o * channels, at = base + (int32_t)i;
            CPU_SIMD for (int64_t c = 0; c < channels; c++)
            {
                bool wins = (from[c] > best[c]) | IS_NAN(from[c]) | (of[c] < 0);
                best[c] = wins ? from[c] : best[c];
                of[c] = wins ? at : of[c];
            }
        }
}

static void R(max_row)(const geometry *g, const k_view *x, int64_t row, REAL *scratch, REAL *y, int32_t *position)
{
    R(max_begin)(y, position, g->narrow);
    for (int64_t k = 0; k < g->a[0].kernel * g->a[1].kernel; k++) {
        int64_t in_row = input_row(g, row, k);
        if (in_row < 0) continue;
        const REAL *from = cpu_tile_load(x, in_row * g->wide, g->wide, cpu_carrier(x->dtype), scratch);
        int64_t base = in_row % (g->a[0].in * g->a[1].in) * g->a[2].in;
        R(max_points)(from, &g->a[2], g->channels, (int32_t)base, y, position);
    }
}

static void R(max_pool)(const k_args *args, const geometry *g, int64_t i)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const buffers b = thread_buffers(g, args);
    const ir_dtype carrier = cpu_carrier(x->dtype);
    REAL *to = cpu_tile_target(y, i * g->narrow, carrier, b.narrow);
    if (g->last) R(max_row)(g, x, i, b.wide, to, b.extra);
    else R(max_plane)(g, cpu_tile_load(x, i * g->wide, g->wide, carrier, b.wide), to, b.extra);
    cpu_tile_store(y, i * g->narrow, g->narrow, carrier, to);
    store_indices(args, g, i, b.extra);
}
