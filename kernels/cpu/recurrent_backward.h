/* recurrent_backward.h - template over REAL and its dtype CARRIER, included by recurrent.c: the gradient, from the last
 * step to the first.
 *
 * dh and dc are the gradients of the states after the current step. A row passes them on at steps beyond its length. */

typedef struct R(backward_data) {
    const k_args *args;
    const recurrent_shape *s;
    const int64_t *lengths;
    const k_view *dy, *y, *gates, *h0, *dx, *dproduct, *previous, *reset;
    const REAL *cells, *c0, *peephole;
    products_run *products;
    REAL *dh, *dc, *inner, *zeros, *dpeephole; /* inner: of what the reset gate multiplies; dpeephole: NULL if unused */
    REAL *dx_step, *product_step;              /* steps of dx and dproduct unless they are in place */
    REAL *x_step, *h_step;                     /* of gates, and of a state or its gradient, likewise */
} R(backward_data);

static size_t R(backward_bytes)(const k_args *args, const recurrent_shape *s)
{
    (void)args;
    const size_t state = cpu_lines((size_t)(s->batch * s->hidden) * sizeof(REAL));
    return (size_t)(4 + 2 * s->gates + s->saved) * state + cpu_lines((size_t)s->hidden * sizeof(REAL));
}

/* The step of row b before step t, or -1. */
static int64_t R(step_before)(const R(backward_data) * d, int64_t b, int64_t t)
{
    const int64_t from = d->s->reverse ? t + 1 : t - 1;
    return from < d->s->steps && from >= 0 && is_active(d->lengths, b, from) ? from : -1;
}

/* Row b of the cells before step t. */
static const REAL *R(cells_before)(const R(backward_data) * d, int64_t b, int64_t t)
{
    const int64_t n = d->s->hidden, from = R(step_before)(d, b, t);
    if (from >= 0) return d->cells + (from * d->s->batch + b) * n;
    return d->c0 ? d->c0 + b * n : d->zeros;
}

/* Row b of y before step t. */
static const REAL *R(before)(const R(backward_data) * d, int64_t b, int64_t t)
{
    const int64_t n = d->s->hidden, from = R(step_before)(d, b, t);
    REAL *scratch = d->h_step + b * n;
    if (from >= 0) return cpu_tile_load(d->y, (from * d->s->batch + b) * n, n, CARRIER, scratch);
    return cpu_is_used(d->h0) ? cpu_tile_load(d->h0, b * n, n, CARRIER, scratch) : d->zeros;
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

/* Where the gradients of step t are computed. */
static REAL *R(dx_at)(const R(backward_data) * d, int64_t t)
{
    return cpu_tile_target(d->dx, t * d->s->batch * d->s->gates * d->s->hidden, CARRIER, d->dx_step);
}

/* The gradients of the products of step t; those of dx if they are the same. */
static REAL *R(products_at)(const R(backward_data) * d, int64_t t)
{
    const recurrent_shape *s = d->s;
    if (!s->linear_before_reset) return R(dx_at)(d, t);
    if (!cpu_is_used(d->dproduct)) return d->product_step;
    return cpu_tile_target(d->dproduct, t * s->batch * s->gates * s->hidden, CARRIER, d->product_step);
}

/* Zeros for a step beyond the length of a row. */
static void R(skip_row)(const R(backward_data) * d, int64_t b, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden, width = s->gates * n, row = t * s->batch + b;
    R(start)(R(dx_at)(d, t) + b * width, NULL, width);
    R(start)(R(products_at)(d, t) + b * width, NULL, width);
    R(start)(d->inner + b * n, NULL, n);
    R(clear)(d->previous, row * n, n);
    R(clear)(d->reset, row * n, n);
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

/* Adds row number `row` of dy to the gradient of the state. */
static void R(add_dy)(const R(backward_data) * d, int64_t row, REAL *restrict dh, REAL *scratch)
{
    const int64_t n = d->s->hidden;
    if (!cpu_is_used(d->dy)) return;
    const REAL *dy = cpu_tile_load(d->dy, row * n, n, CARRIER, scratch);
    for (int64_t j = 0; j < n; j++) dh[j] += dy[j];
}

static void R(backward_row)(const R(backward_data) * d, int64_t b, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden, width = s->gates * n, saved = s->saved * n, row = t * s->batch + b;
    REAL *to = R(dx_at)(d, t) + b * width, *dh = d->dh + b * n, *dc = d->dc + b * n;
    if (!is_active(d->lengths, b, t)) {
        R(skip_row)(d, b, t);
        return;
    }
    R(add_dy)(d, row, dh, d->h_step + b * n);
    const REAL *x = cpu_tile_load(d->gates, row * saved, saved, CARRIER, d->x_step + b * saved);
    const REAL *before = R(before)(d, b, t);
    if (s->cell == IR_WORD(cell, lstm))
        R(lstm_row_back)(s, d->peephole, x, R(cells_before)(d, b, t), d->cells + row * n, dh, dc, to);
    else if (s->cell == IR_WORD(cell, gru)) R(gru_step_back)(d, x, before, b, to, R(products_at)(d, t) + b * width);
    else R(rnn_row_back)(s, x, dh, to);
    if (s->cell != IR_WORD(cell, gru)) R(start)(dh, NULL, n);
    R(store)(d->previous, row * n, n, before);
    if (s->cell != IR_WORD(cell, gru) || s->linear_before_reset) R(store)(d->reset, row * n, n, before);
}

/* Row b of step t of a GRU whose last products are of the state after the reset, once `inner` has their gradient. */
static void R(reset_step_back)(const R(backward_data) * d, int64_t b, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden, row = t * s->batch + b;
    REAL *inner = d->inner + b * n, *dh = d->dh + b * n, *scratch = d->x_step + b * s->saved * n;
    if (!is_active(d->lengths, b, t)) return;
    const REAL *r = cpu_tile_load(d->gates, (row * s->saved + 1) * n, n, CARRIER, scratch),
               *before = R(before)(d, b, t);
    R(reset_row_back)(s, r, before, inner, R(dx_at)(d, t) + (b * s->gates + 1) * n);
    for (int64_t j = 0; j < n; j++) dh[j] += inner[j];
    if (!cpu_is_used(d->reset)) return;
    R(reset_row)(s, r, before, NULL, scratch + n);
    R(store)(d->reset, row * n, n, scratch + n);
}

/* Adds the gradients of the peepholes in step t. */
static void R(add_peepholes)(const R(backward_data) * d, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int64_t n = s->hidden;
    REAL *restrict to = d->dpeephole;
    for (int64_t b = 0; b < s->batch; b++) {
        const REAL *dx = R(dx_at)(d, t) + b * 4 * n, *c = d->cells + (t * s->batch + b) * n;
        const REAL *before = R(cells_before)(d, b, t);
        if (!is_active(d->lengths, b, t)) continue;
        for (int64_t j = 0; j < n; j++) {
            to[j] += dx[j] * before[j];
            to[n + j] += dx[n + j] * c[j];
            to[2 * n + j] += dx[2 * n + j] * before[j];
        }
    }
}

/* Stores what step t has computed outside of its place. */
static void R(store_step)(const R(backward_data) * d, int64_t t)
{
    const int64_t width = d->s->batch * d->s->gates * d->s->hidden;
    if (d->dpeephole) R(add_peepholes)(d, t);
    R(store)(d->dx, t * width, width, R(dx_at)(d, t));
    R(store)(d->dproduct, t * width, width, R(products_at)(d, t));
}

static ampc_status R(multiply_back)(const R(backward_data) * d, int64_t t, int threads)
{
    const recurrent_shape *s = d->s;
    const REAL *gradients = R(products_at)(d, t);
    if (s->cell != IR_WORD(cell, gru) || s->linear_before_reset) return R(multiply)(d->products, 0, gradients, d->dh);
    const ampc_status status = R(multiply)(d->products, 0, gradients + 2 * s->hidden, d->inner);
    if (status != AMPC_OK) return status;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < s->batch; b++) R(reset_step_back)(d, b, t);
    return R(multiply)(d->products, 1, gradients, d->dh);
}

static ampc_status R(backward_step)(const R(backward_data) * d, int64_t t)
{
    const recurrent_shape *s = d->s;
    const int threads = cpu_threads(d->args->ctx, 16 * s->batch * s->gates * s->hidden);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < s->batch; b++) R(backward_row)(d, b, t);
    const ampc_status status = R(multiply_back)(d, t, threads);
    if (status == AMPC_OK) R(store_step)(d, t);
    return status;
}

/* The gradient that arrives at the last states; rows without steps have none. */
static void R(start_back)(const R(backward_data) * d, REAL *to, const k_view *from)
{
    const recurrent_shape *s = d->s;
    if (s->steps) R(load)(to, from, 0, s->batch * s->hidden);
    else R(start)(to, NULL, s->batch * s->hidden);
    for (int64_t b = 0; b < s->batch; b++)
        if (!is_active(d->lengths, b, 0)) R(start)(to + b * s->hidden, NULL, s->hidden);
}

static ampc_status R(backward)(const k_args *args, const recurrent_shape *s, const int64_t *lengths, char *at)
{
    const int64_t states = s->batch * s->hidden;
    const k_view *in = args->in, *dpeephole = cpu_result(args, IR_OUT(recurrent_grad, dpeephole));
    products_run products = start_products(args, &in[IR_IN(recurrent_grad, r)], &at);
    R(backward_data) d = {.args = args, .s = s, .lengths = lengths, .products = &products};
    d.dy = &in[IR_IN(recurrent_grad, dy)];
    d.y = &in[IR_IN(recurrent_grad, y)];
    d.gates = &in[IR_IN(recurrent_grad, gates)];
    d.h0 = &in[IR_IN(recurrent_grad, h0)];
    d.cells = in[IR_IN(recurrent_grad, cells)].data;
    d.c0 = in[IR_IN(recurrent_grad, c0)].data;
    d.peephole = in[IR_IN(recurrent_grad, peephole)].data;
    d.dx = &args->out[IR_OUT(recurrent_grad, dx)];
    d.dproduct = cpu_result(args, IR_OUT(recurrent_grad, dproduct));
    d.previous = cpu_result(args, IR_OUT(recurrent_grad, previous));
    d.reset = cpu_result(args, IR_OUT(recurrent_grad, reset));
    d.dh = R(allot)(&at, states);
    d.dc = R(allot)(&at, states);
    d.inner = R(allot)(&at, states);
    d.h_step = R(allot)(&at, states);
    d.x_step = R(allot)(&at, states * s->saved);
    d.dx_step = R(allot)(&at, states * s->gates);
    d.product_step = R(allot)(&at, states * s->gates);
    d.zeros = R(allot)(&at, s->hidden);
    R(start)(d.zeros, NULL, s->hidden);
    R(start_back)(&d, d.dh, &in[IR_IN(recurrent_grad, dlast_h)]);
    R(start_back)(&d, d.dc, &in[IR_IN(recurrent_grad, dlast_c)]);
    R(clear)(dpeephole, 0, k_count(dpeephole));
    if (cpu_is_used(dpeephole) && s->cell == IR_WORD(cell, lstm)) d.dpeephole = dpeephole->data;
    for (int64_t k = s->steps; k > 0 && states; k--) {
        const ampc_status status = R(backward_step)(&d, step_at(s, k - 1));
        if (status != AMPC_OK) return status;
    }
    R(store)(cpu_result(args, IR_OUT(recurrent_grad, dh0)), 0, states, d.dh);
    R(store)(cpu_result(args, IR_OUT(recurrent_grad, dc0)), 0, states, d.dc);
    return AMPC_OK;
}
