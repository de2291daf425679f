/* recurrent_forward.h - template over REAL and its dtype CARRIER, included by recurrent.c: the steps of a recurrent
 * network. */

typedef struct R(forward_data) {
    const k_args *args;
    const recurrent_shape *s;
    const int64_t *lengths;
    const k_view *x, *bias, *y, *gates;
    const REAL *peephole;
    products_run *products;
    REAL *cells;                       /* NULL if unused */
    REAL *h, *c, *factor, *out, *step; /* the states, r times h, and y and gates of a step unless they are in place */
} R(forward_data);

static size_t R(forward_bytes)(const k_args *args, const recurrent_shape *s)
{
    (void)args;
    return (size_t)(4 + s->saved) * cpu_lines((size_t)(s->batch * s->hidden) * sizeof(REAL));
}

static REAL *R(allot)(char **at, int64_t count)
{
    REAL *to = (REAL *)(void *)*at;
    *at += cpu_lines((size_t)count * sizeof(REAL));
    return to;
}

/* `count` elements of v from `first` on in the carrier type, or zeros if v is absent. */
static void R(load)(REAL *to, const k_view *v, int64_t first, int64_t count)
{
    if (cpu_is_used(v)) cpu_convert(CARRIER, to, v->dtype, cpu_at(v, first), count);
    else memset(to, 0, (size_t)count * sizeof *to);
}

/* Stores elements that may have been computed in place. */
static void R(store)(const k_view *v, int64_t first, int64_t count, const REAL *from)
{
    if (cpu_is_used(v) && from != cpu_at(v, first)) cpu_tile_store(v, first, count, CARRIER, from);
}

static void R(clear)(const k_view *v, int64_t first, int64_t count)
{
    if (cpu_is_used(v)) memset(cpu_at(v, first), 0, (size_t)count * ir_dtype_size(v->dtype));
}

/* A copy of an initial state, or zeros. */
static void R(start)(REAL *to, const REAL *from, int64_t count)
{
    if (from) memcpy(to, from, (size_t)count * sizeof *to);
    else memset(to, 0, (size_t)count * sizeof *to);
}

/* ---- cells: a row of the batch --------------------------------------------------------------- */

CPU_INLINE void R(lstm_units)(const recurrent_shape *shape, int f, int g, int h, const REAL *p, REAL *restrict x,
                              REAL *restrict c, REAL *restrict y)
{
    const recurrent_shape s = *shape;
    const int64_t n = s.hidden;
    CPU_SIMD for (int64_t j = 0; j < n; j++)
    {
        const R(lstm_weights) w = {p ? p[j] : 0, p ? p[n + j] : 0, p ? p[2 * n + j] : 0};
        R(lstm_gates) to = {x[j], x[n + j], x[2 * n + j], x[3 * n + j]};
        const R(lstm_state) state = R(lstm_step)(&s, f, g, h, &w, &to, c[j]);
        if (p) x[j] = to.i, x[n + j] = to.o, x[2 * n + j] = to.f;
        c[j] = state.c;
        y[j] = state.h;
    }
}

CPU_CLONES
static void R(lstm_row)(const recurrent_shape *s, const REAL *p, REAL *x, REAL *c, REAL *y)
{
    if (is_usual(s) && !p) R(lstm_units)(s, SIGMOID, TANH, TANH, NULL, x, c, y);
    else R(lstm_units)(s, s->f.word, s->g.word, s->h.word, p, x, c, y);
}

CPU_INLINE void R(gru_units)(const recurrent_shape *shape, int f, int g, const REAL *restrict x, const REAL *restrict h,
                             REAL *restrict y)
{
    const recurrent_shape s = *shape;
    const int64_t n = s.hidden;
    CPU_SIMD for (int64_t j = 0; j < n; j++)
    {
        const R(gru_gates) in = {x[j], x[n + j], x[2 * n + j], 0};
        y[j] = R(gru_step)(&s, f, g, &in, h[j]);
    }
}

/* to = add + gate(r) * factor */
CPU_INLINE void R(reset_units)(const recurrent_shape *shape, int f, const REAL *restrict r, const REAL *restrict factor,
                               const REAL *add, REAL *to)
{
    const recurrent_shape s = *shape;
    CPU_SIMD for (int64_t j = 0; j < s.hidden; j++) to[j] = (add ? add[j] : 0) + R(gate)(&s, s.f, f, r[j]) * factor[j];
}

CPU_CLONES
static void R(reset_row)(const recurrent_shape *s, const REAL *r, const REAL *factor, const REAL *add, REAL *to)
{
    if (s->f.word == SIGMOID) R(reset_units)(s, SIGMOID, r, factor, add, to);
    else R(reset_units)(s, s->f.word, r, factor, add, to);
}

CPU_CLONES
static void R(gru_row)(const recurrent_shape *s, const REAL *x, const REAL *h, REAL *y)
{
    if (is_usual(s)) R(gru_units)(s, SIGMOID, TANH, x, h, y);
    else R(gru_units)(s, s->f.word, s->g.word, x, h, y);
}

CPU_INLINE void R(rnn_units)(const recurrent_shape *shape, int f, const REAL *restrict x, REAL *restrict y)
{
    const recurrent_shape s = *shape;
    CPU_SIMD for (int64_t j = 0; j < s.hidden; j++) y[j] = R(rnn_step)(&s, f, x[j]);
}

CPU_CLONES
static void R(rnn_row)(const recurrent_shape *s, const REAL *x, REAL *y)
{
    if (s->f.word == TANH) R(rnn_units)(s, TANH, x, y);
    else R(rnn_units)(s, s->f.word, x, y);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Row b at step t: completes its gates and steps, or yields zeros. */
static void R(forward_row)(const R(forward_data) * d, REAL *gates, int64_t b, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden, row = t * s->batch + b;
    REAL *x = gates + b * s->saved * n, *h = d->h + b * n, *c = d->c + b * n;
    REAL *y = cpu_tile_target(d->y, row * n, CARRIER, d->out + b * n);
    if (!is_active(d->lengths, b, t)) {
        R(clear)(d->y, row * n, n);
        memset(x, 0, (size_t)(s->saved * n) * sizeof *x);
    } else {
        if (s->linear_before_reset) R(reset_row)(s, x + n, x + 3 * n, x + 2 * n, x + 2 * n);
        if (s->cell == IR_WORD(cell, lstm)) R(lstm_row)(s, d->peephole, x, c, y);
        else if (s->cell == IR_WORD(cell, gru)) R(gru_row)(s, x, h, y);
        else R(rnn_row)(s, x, y);
        R(store)(d->y, row * n, n, y);
        R(load)(h, d->y, row * n, n);
    }
    R(store)(d->gates, row * s->saved * n, s->saved * n, x);
    if (d->cells) memcpy(d->cells + row * n, c, (size_t)n * sizeof *c);
}

/* Copies the operand x, and the bias of the products that the reset gate multiplies, to the gates. */
static void R(load_gates)(const R(forward_data) * d, REAL *gates, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden, width = s->gates * n;
    for (int64_t b = 0; b < s->batch; b++) {
        REAL *to = gates + b * s->saved * n;
        R(load)(to, d->x, (t * s->batch + b) * width, width);
        if (s->linear_before_reset) R(load)(to + 3 * n, d->bias, 0, n);
    }
}

/* Adds the products of the states with R to the gates. */
static ampc_status R(multiply_gates)(const R(forward_data) * d, REAL *gates)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden;
    const ampc_status status = R(multiply)(d->products, 0, d->h, gates);
    if (status != AMPC_OK || s->cell != IR_WORD(cell, gru)) return status;
    if (s->linear_before_reset) return R(multiply)(d->products, 1, d->h, gates + 3 * n);
    for (int64_t b = 0; b < s->batch; b++)
        R(reset_row)(s, gates + (b * s->saved + 1) * n, d->h + b * n, NULL, d->factor + b * n);
    return R(multiply)(d->products, 1, d->factor, gates + 2 * n);
}

static ampc_status R(forward_steps)(const R(forward_data) * d)
{
    const recurrent_shape *s = d->s;
    const int64_t work = s->batch * s->saved * s->hidden;
    for (int64_t k = 0; k < s->steps; k++) {
        const int64_t t = step_at(s, k);
        REAL *gates = cpu_is_used(d->gates) ? cpu_tile_target(d->gates, t * work, CARRIER, d->step) : d->step;
        R(load_gates)(d, gates, t);
        const ampc_status status = R(multiply_gates)(d, gates);
        if (status != AMPC_OK) return status;
#pragma omp parallel for num_threads(cpu_threads(d->args->ctx, 8 * work)) schedule(static)
        for (int64_t b = 0; b < s->batch; b++) R(forward_row)(d, gates, b, t);
    }
    return AMPC_OK;
}

/* Stores the states after the last step; zeros for rows without steps. */
static void R(store_last)(const R(forward_data) * d, REAL *states, const k_view *to)
{
    const recurrent_shape *s = d->s;
    for (int64_t b = 0; b < s->batch; b++)
        if (s->steps == 0 || !is_active(d->lengths, b, 0)) R(start)(states + b * s->hidden, NULL, s->hidden);
    if (cpu_is_used(to)) cpu_convert(to->dtype, to->data, CARRIER, states, s->batch * s->hidden);
}

static ampc_status R(forward)(const k_args *args, const recurrent_shape *s, const int64_t *lengths, char *at)
{
    const int64_t states = s->batch * s->hidden;
    const k_view *in = args->in;
    if (states == 0) return AMPC_OK;
    products_run products = start_products(args, &in[IR_IN(recurrent, r)], &at);
    R(forward_data) d = {.args = args, .s = s, .lengths = lengths, .products = &products};
    d.x = &in[IR_IN(recurrent, x)];
    d.bias = &in[IR_IN(recurrent, bias)];
    d.peephole = in[IR_IN(recurrent, peephole)].data;
    d.y = &args->out[IR_OUT(recurrent, y)];
    d.cells = cpu_result(args, IR_OUT(recurrent, cells))->data;
    d.gates = cpu_result(args, IR_OUT(recurrent, gates));
    d.h = R(allot)(&at, states);
    d.c = R(allot)(&at, states);
    d.factor = R(allot)(&at, states);
    d.out = R(allot)(&at, states);
    d.step = R(allot)(&at, states * s->saved);
    R(load)(d.h, &in[IR_IN(recurrent, h0)], 0, states);
    R(start)(d.c, in[IR_IN(recurrent, c0)].data, states);
    const ampc_status status = R(forward_steps)(&d);
    if (status != AMPC_OK) return status;
    R(store_last)(&d, d.h, cpu_result(args, IR_OUT(recurrent, last_h)));
    R(store_last)(&d, d.c, cpu_result(args, IR_OUT(recurrent, last_c)));
    return AMPC_OK;
}
