/* recurrent_backward.h - template over REAL and its dtype CARRIER, included by recurrent.c: the gradient, from the last
 * step to the first.
 *
 * dh and dc are the gradients of the states after the current step. A row passes them on at steps beyond its length. */

typedef struct R(backward_data) {
    const k_args *args;
    const recurrent_shape *s;
    const int64_t *lengths;
    const REAL *dy, *y, *cells, *gates, *h0, *c0, *peephole;
    products_run *products;
    REAL *dx, *dproduct, *previous, *reset; /* those after dx: NULL if unused */
    REAL *dh, *dc, *inner, *step, *zeros;   /* inner: of what the reset gate multiplies; step: a step of dproduct */
} R(backward_data);

static size_t R(backward_bytes)(const k_args *args, const recurrent_shape *s)
{
    (void)args;
    const size_t state = cpu_lines((size_t)(s->batch * s->hidden) * sizeof(REAL));
    return (size_t)(3 + s->gates) * state + cpu_lines((size_t)s->hidden * sizeof(REAL));
}

/* Row b of the states before step t, of y or cells. */
static const REAL *R(before)(const R(backward_data) * d, const REAL *states, const REAL *first, int64_t b, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t from = s->reverse ? t + 1 : t - 1;
    if (from >= 0 && from < s->steps && is_active(d->lengths, b, from))
        return states + (from * s->batch + b) * s->hidden;
    return first ? first + b * s->hidden : d->zeros;
}

/* ---- cells: a row of the batch; to: the gradients of the gates -------------------------------- */

CPU_INLINE void R(lstm_units_back)(const recurrent_shape *shape, int f, int g, int h, const REAL *p,
                                   const REAL *restrict x, const REAL *restrict before, const REAL *restrict c,
                                   const REAL *restrict dh, REAL *restrict dc, REAL *restrict to)
{
    const recurrent_shape s = *shape;
    const int64_t n = s.hidden;
    CPU_SIMD for (int64_t j = 0; j < n; j++)
    {
        const R(lstm_weights) w = {p ? p[j] : 0, p ? p[n + j] : 0, p ? p[2 * n + j] : 0};
        const R(lstm_gates) in = {x[j], x[n + j], x[2 * n + j], x[3 * n + j]};
        R(lstm_state) state = {dh[j], dc[j]};
        const R(lstm_gates) dx = R(lstm_back)(&s, f, g, h, &w, &in, before[j], c[j], &state);
        to[j] = dx.i, to[n + j] = dx.o, to[2 * n + j] = dx.f, to[3 * n + j] = dx.c;
        dc[j] = state.c;
    }
}

CPU_CLONES
static void R(lstm_row_back)(const recurrent_shape *s, const REAL *p, const REAL *x, const REAL *before, const REAL *c,
                             const REAL *dh, REAL *dc, REAL *to)
{
    if (is_usual(s) && !p) R(lstm_units_back)(s, SIGMOID, TANH, TANH, NULL, x, before, c, dh, dc, to);
    else R(lstm_units_back)(s, s->f.word, s->g.word, s->h.word, p, x, before, c, dh, dc, to);
}

CPU_INLINE void R(gru_units_back)(const recurrent_shape *shape, int f, int g, const REAL *restrict x,
                                  const REAL *restrict before, REAL *restrict dh, REAL *restrict to)
{
    const recurrent_shape s = *shape;
    const int64_t n = s.hidden;
    CPU_SIMD for (int64_t j = 0; j < n; j++)
    {
        const R(gru_gates) in = {x[j], x[n + j], x[2 * n + j], 0};
        REAL direct;
        const R(gru_gates) dx = R(gru_back)(&s, f, g, &in, before[j], dh[j], &direct);
        to[j] = dx.z, to[2 * n + j] = dx.n;
        dh[j] = direct;
    }
}

CPU_CLONES
static void R(gru_row_back)(const recurrent_shape *s, const REAL *x, const REAL *before, REAL *dh, REAL *to)
{
    if (is_usual(s)) R(gru_units_back)(s, SIGMOID, TANH, x, before, dh, to);
    else R(gru_units_back)(s, s->f.word, s->g.word, x, before, dh, to);
}

/* inner: the gradient of the product with the reset gate, becomes that of `factor`. */
CPU_CLONES
static void R(reset_row_back)(const recurrent_shape *shape, const REAL *restrict x, const REAL *restrict factor,
                              REAL *restrict inner, REAL *restrict dr)
{
    const recurrent_shape s = *shape;
    if (s.f.word == SIGMOID)
        CPU_SIMD for (int64_t j = 0; j < s.hidden; j++)
            dr[j] = R(gru_reset_back)(&s, SIGMOID, x[j], factor[j], &inner[j]);
    else
        for (int64_t j = 0; j < s.hidden; j++) dr[j] = R(gru_reset_back)(&s, s.f.word, x[j], factor[j], &inner[j]);
}

CPU_CLONES
static void R(rnn_row_back)(const recurrent_shape *shape, const REAL *restrict x, const REAL *restrict dh,
                            REAL *restrict to)
{
    const recurrent_shape s = *shape;
    if (s.f.word == TANH) CPU_SIMD for (int64_t j = 0; j < s.hidden; j++) to[j] = R(rnn_back)(&s, TANH, x[j], dh[j]);
    else
        for (int64_t j = 0; j < s.hidden; j++) to[j] = R(rnn_back)(&s, s.f.word, x[j], dh[j]);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The gradients of the products of step t; dx itself if they are the same. */
static REAL *R(products_at)(const R(backward_data) * d, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t width = s->batch * s->gates * s->hidden;
    if (!s->linear_before_reset) return d->dx + t * width;
    return d->dproduct ? d->dproduct + t * width : d->step;
}

/* Zeros for a step beyond the length of a row. */
static void R(skip_row)(const R(backward_data) * d, int64_t b, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden, width = s->gates * n, row = t * s->batch + b;
    R(start)(d->dx + row * width, NULL, width);
    R(start)(R(products_at)(d, t) + b * width, NULL, width);
    R(start)(d->inner + b * n, NULL, n);
    if (d->previous) R(start)(d->previous + row * n, NULL, n);
    if (d->reset) R(start)(d->reset + row * n, NULL, n);
}

/* Row b of step t of a GRU, the part without products. */
static void R(gru_step_back)(const R(backward_data) * d, const REAL *x, const REAL *before, int64_t b, REAL *to,
                             REAL *products)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden;
    R(gru_row_back)(s, x, before, d->dh + b * n, to);
    if (!s->linear_before_reset) return;
    memcpy(products + 2 * n, to + 2 * n, (size_t)n * sizeof *to);
    R(reset_row_back)(s, x + n, x + 3 * n, products + 2 * n, to + n);
    memcpy(products, to, (size_t)(2 * n) * sizeof *to);
}

static void R(backward_row)(const R(backward_data) * d, int64_t b, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden, width = s->gates * n, row = t * s->batch + b;
    const REAL *x = d->gates + row * s->saved * n, *before = R(before)(d, d->y, d->h0, b, t);
    REAL *to = d->dx + row * width, *dh = d->dh + b * n, *dc = d->dc + b * n;
    if (!is_active(d->lengths, b, t)) {
        R(skip_row)(d, b, t);
        return;
    }
    for (int64_t j = 0; d->dy && j < n; j++) dh[j] += d->dy[row * n + j];
    if (s->cell == IR_WORD(cell, lstm))
        R(lstm_row_back)(s, d->peephole, x, R(before)(d, d->cells, d->c0, b, t), d->cells + row * n, dh, dc, to);
    else if (s->cell == IR_WORD(cell, gru)) R(gru_step_back)(d, x, before, b, to, R(products_at)(d, t) + b * width);
    else R(rnn_row_back)(s, x, dh, to);
    if (s->cell != IR_WORD(cell, gru)) R(start)(dh, NULL, n);
    if (d->previous) memcpy(d->previous + row * n, before, (size_t)n * sizeof *dh);
    if (d->reset && (s->cell != IR_WORD(cell, gru) || s->linear_before_reset))
        memcpy(d->reset + row * n, before, (size_t)n * sizeof *dh);
}

/* Row b of step t of a GRU whose last products are of the state after the reset, once `inner` has their gradient. */
static void R(reset_step_back)(const R(backward_data) * d, int64_t b, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden, row = t * s->batch + b;
    const REAL *r = d->gates + (row * s->saved + 1) * n, *before = R(before)(d, d->y, d->h0, b, t);
    REAL *inner = d->inner + b * n, *dh = d->dh + b * n;
    if (!is_active(d->lengths, b, t)) return;
    R(reset_row_back)(s, r, before, inner, d->dx + (row * s->gates + 1) * n);
    for (int64_t j = 0; j < n; j++) dh[j] += inner[j];
    if (d->reset) R(reset_row)(s, r, before, NULL, d->reset + row * n);
}

static ampc_status R(backward_step)(const R(backward_data) * d, int64_t t)
{
    const recurrent_shape *s = d->s;
    const REAL *gradients = R(products_at)(d, t);
    const int threads = cpu_threads(d->args->ctx, 16 * s->batch * s->gates * s->hidden);
    ampc_status status = AMPC_OK;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < s->batch; b++) R(backward_row)(d, b, t);
    if (s->cell != IR_WORD(cell, gru) || s->linear_before_reset) return R(multiply)(d->products, 0, gradients, d->dh);
    status = R(multiply)(d->products, 0, gradients + 2 * s->hidden, d->inner);
    if (status != AMPC_OK) return status;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < s->batch; b++) R(reset_step_back)(d, b, t);
    return R(multiply)(d->products, 1, gradients, d->dh);
}

/* The gradients of the peepholes, summed over the steps in order. */
static void R(sum_peepholes)(const R(backward_data) * d, REAL *to)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden;
    R(start)(to, NULL, 3 * n);
    for (int64_t row = 0; row < s->steps * s->batch; row++) {
        const int64_t t = row / s->batch, b = row % s->batch;
        const REAL *dx = d->dx + row * 4 * n, *c = d->cells + row * n, *before = R(before)(d, d->cells, d->c0, b, t);
        if (!is_active(d->lengths, b, t)) continue;
        for (int64_t j = 0; j < n; j++) {
            to[j] += dx[j] * before[j];
            to[n + j] += dx[n + j] * c[j];
            to[2 * n + j] += dx[2 * n + j] * before[j];
        }
    }
}

/* The gradient that arrives at the last states; rows without steps have none. */
static void R(start_back)(const R(backward_data) * d, REAL *to, const REAL *from)
{
    const recurrent_shape *s = d->s;
    R(start)(to, s->steps ? from : NULL, s->batch * s->hidden);
    for (int64_t b = 0; b < s->batch; b++)
        if (!is_active(d->lengths, b, 0)) R(start)(to + b * s->hidden, NULL, s->hidden);
}

static void R(store_back)(const R(backward_data) * d)
{
    const k_args *args = d->args;
    const ir_dtype carrier = CARRIER;
    const k_view *dh0 = cpu_result(args, IR_OUT(recurrent_grad, dh0)),
                 *dc0 = cpu_result(args, IR_OUT(recurrent_grad, dc0)),
                 *dproduct = cpu_result(args, IR_OUT(recurrent_grad, dproduct)),
                 *dpeephole = cpu_result(args, IR_OUT(recurrent_grad, dpeephole));
    if (cpu_is_used(dh0)) cpu_convert(dh0->dtype, dh0->data, carrier, d->dh, k_count(dh0));
    if (cpu_is_used(dc0)) cpu_convert(dc0->dtype, dc0->data, carrier, d->dc, k_count(dc0));
    if (cpu_is_used(dpeephole) && d->s->cell == IR_WORD(cell, lstm)) R(sum_peepholes)(d, dpeephole->data);
    else if (cpu_is_used(dpeephole)) R(start)(dpeephole->data, NULL, k_count(dpeephole));
    if (d->dproduct && !d->s->linear_before_reset) memcpy(d->dproduct, d->dx, (size_t)k_count(dproduct) * sizeof(REAL));
    cpu_narrow(&args->out[IR_OUT(recurrent_grad, dx)], carrier, d->dx);
    cpu_narrow(dproduct, carrier, d->dproduct);
    cpu_narrow(cpu_result(args, IR_OUT(recurrent_grad, previous)), carrier, d->previous);
    cpu_narrow(cpu_result(args, IR_OUT(recurrent_grad, reset)), carrier, d->reset);
}

static ampc_status R(backward)(const k_args *args, const recurrent_shape *s, const int64_t *lengths, char *at)
{
    const ir_dtype carrier = CARRIER;
    const int64_t states = s->batch * s->hidden;
    const k_view *in = args->in, *out = args->out;
    products_run products = start_products(args, &in[IR_IN(recurrent_grad, r)], &at);
    R(backward_data) d = {.args = args, .s = s, .lengths = lengths, .products = &products};
    d.dy = cpu_widen(&in[IR_IN(recurrent_grad, dy)], carrier, &at);
    const REAL *dlast_h = cpu_widen(&in[IR_IN(recurrent_grad, dlast_h)], carrier, &at);
    d.y = cpu_widen(&in[IR_IN(recurrent_grad, y)], carrier, &at);
    d.gates = cpu_widen(&in[IR_IN(recurrent_grad, gates)], carrier, &at);
    d.h0 = cpu_widen(&in[IR_IN(recurrent_grad, h0)], carrier, &at);
    d.cells = in[IR_IN(recurrent_grad, cells)].data;
    d.c0 = in[IR_IN(recurrent_grad, c0)].data;
    d.peephole = in[IR_IN(recurrent_grad, peephole)].data;
    d.dx = cpu_wide_target(&out[IR_OUT(recurrent_grad, dx)], carrier, &at);
    d.dproduct = cpu_wide_target(cpu_result(args, IR_OUT(recurrent_grad, dproduct)), carrier, &at);
    d.previous = cpu_wide_target(cpu_result(args, IR_OUT(recurrent_grad, previous)), carrier, &at);
    d.reset = cpu_wide_target(cpu_result(args, IR_OUT(recurrent_grad, reset)), carrier, &at);
    d.dh = R(allot)(&at, states);
    d.dc = R(allot)(&at, states);
    d.inner = R(allot)(&at, states);
    d.step = R(allot)(&at, states * s->gates);
    d.zeros = R(allot)(&at, s->hidden);
    R(start)(d.zeros, NULL, s->hidden);
    R(start_back)(&d, d.dh, dlast_h);
    R(start_back)(&d, d.dc, in[IR_IN(recurrent_grad, dlast_c)].data);
    for (int64_t k = s->steps; k > 0 && states; k--) {
        const ampc_status status = R(backward_step)(&d, step_at(s, k - 1));
        if (status != AMPC_OK) return status;
    }
    R(store_back)(&d);
    return AMPC_OK;
}
