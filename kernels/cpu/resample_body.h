/* resample_body.h - template over REAL, included by resample.c: weighted sums along one axis. */

/* Results [from, to) of a row; x starts at element `base` of the row. */
CPU_CLONES static void R(sum_row)(const cpu_taps *t, int64_t from, int64_t to, int64_t base, const REAL *x, REAL *y)
{
    const int64_t n = to - from;
    const int32_t *first = t->index + from, *second = first + (t->taps > 1 ? t->out : 0);
    const REAL *w0 = (const REAL *)t->weights + from, *w1 = w0 + (t->taps > 1 ? t->out : 0);
    if (t->taps == 1) CPU_SIMD for (int64_t o = 0; o < n; o++) y[o] = w0[o] * x[first[o] - base];
    else CPU_SIMD for (int64_t o = 0; o < n; o++) y[o] = w0[o] * x[first[o] - base] + w1[o] * x[second[o] - base];
    for (int k = 2; k < t->taps; k++) {
        const int32_t *index = first + k * t->out;
        const REAL *w = w0 + k * t->out;
        CPU_SIMD for (int64_t o = 0; o < n; o++) y[o] += w[o] * x[index[o] - base];
    }
}

/* Result o of an axis whose elements are `inner` numbers; x starts at element `base`. */
CPU_CLONES static void R(sum_block)(const cpu_taps *t, int64_t o, int64_t base, int64_t inner, const REAL *x, REAL *y)
{
    const REAL *w = (const REAL *)t->weights + o;
    const int64_t next = t->taps > 1 ? t->out : 0;
    const REAL *a = x + (t->index[o] - base) * inner, *b = x + (t->index[o + next] - base) * inner;
    const REAL wa = w[0], wb = w[next];
    if (t->taps == 1) CPU_SIMD for (int64_t i = 0; i < inner; i++) y[i] = wa * a[i];
    else CPU_SIMD for (int64_t i = 0; i < inner; i++) y[i] = wa * a[i] + wb * b[i];
    for (int k = 2; k < t->taps; k++) {
        const REAL *from = x + (t->index[o + k * t->out] - base) * inner;
        const REAL wk = w[k * t->out];
        CPU_SIMD for (int64_t i = 0; i < inner; i++) y[i] += wk * from[i];
    }
}

static void R(clear_block)(REAL value, int64_t n, REAL *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = value;
}

/* Results [from, to) of an axis; x starts at element `base`. */
static void R(sum_axis)(const cpu_taps *t, int64_t from, int64_t to, int64_t base, int64_t inner, REAL outside,
                        const REAL *x, REAL *y)
{
    if (inner == 1) R(sum_row)(t, from, to, base, x, y);
    else
        for (int64_t o = from; o < to; o++) R(sum_block)(t, o, base, inner, x, y + (o - from) * inner);
    for (int64_t o = from; o < to && t->clears; o++)
        if (!t->counts[o]) R(clear_block)(outside, inner, y + (o - from) * inner);
}

/* Band `task`: all inner axes of the slices that it needs, then its results along the outermost resized axis. */
static void R(resize_band)(const k_args *args, const state *s, int64_t task, char *scratch)
{
    const k_view *x = &args->in[0], *y = &args->out[0];
    const ir_dtype carrier = cpu_carrier(y->dtype);
    const cpu_taps *outer = &s->taps[s->first];
    const REAL outside = s->r.backward ? 0 : (REAL)args->attr[IR_ATTR(resize, outside)].f;
    const int64_t plane = task / s->bands, from = task % s->bands * s->band, to = k_min(from + s->band, outer->out);
    const slices part = slices_of(outer, from, to);
    REAL *buffers[2] = {(REAL *)scratch, (REAL *)scratch + s->buffer};
    const REAL *now = cpu_tile_load(x, (plane * outer->in + part.low) * s->rest_in, part.n * s->rest_in, carrier,
                                    buffers[0]);
    int next = 1;
    int64_t rows = part.n * s->rest_in, inner = 1;
    for (int i = s->r.rank - 1; i > s->first; i--) {
        const resizing_axis *a = &s->r.axes[i];
        rows /= a->in;
        if (a->resized) {
            for (int64_t k = 0; k < rows; k++) R(sum_axis)
            (&s->taps[i], 0, a->out, 0, inner, outside, now + k * a->in * inner, buffers[next] + k * a->out * inner);
            now = buffers[next];
            next = !next;
        }
        inner *= a->out;
    }
    const int64_t at = (plane * outer->out + from) * s->rest_out, n = (to - from) * s->rest_out;
    REAL *target = cpu_tile_target(y, at, carrier, buffers[next]);
    R(sum_axis)(outer, from, to, part.low, s->rest_out, outside, now, target);
    cpu_tile_store(y, at, n, carrier, target);
}
