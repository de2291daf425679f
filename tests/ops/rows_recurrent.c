/* rows_recurrent.c - recurrent networks. The references go through one row of the batch after another; derivatives of
 * the cells are difference quotients of fourth order. */
#include "tests/ops/ops.h"
#include "tests/test.h"

#include <math.h>

enum { RNN = IR_WORD(cell, rnn), GRU = IR_WORD(cell, gru), LSTM = IR_WORD(cell, lstm) };
enum { FORWARD, REVERSE, LATE = 2, COUPLED = 4, LENGTHS = 8, STATES = 16, PEEPHOLES = 32, CLIPPED = 64, BIASED = 128 };

typedef struct network {
    int cell, how; /* FORWARD or REVERSE, plus others */
    int64_t steps, batch, hidden;
    const char *f, *g, *h; /* NULL: the default */
} network;

static const network networks[] = {
    {LSTM, STATES, 3, 2, 5, NULL, NULL, NULL},
    {LSTM, REVERSE | PEEPHOLES | STATES | LENGTHS, 4, 5, 3, NULL, NULL, NULL},
    {LSTM, COUPLED | CLIPPED | PEEPHOLES, 3, 2, 4, "hard_sigmoid", "softplus", "scaled_tanh"},
    {LSTM, LENGTHS, 3, 17, 33, NULL, NULL, NULL},
    {LSTM, REVERSE, 2, 33, 257, NULL, NULL, NULL},
    {LSTM, STATES, 0, 3, 4, NULL, NULL, NULL},
    {LSTM, LENGTHS, 1, 1, 1, "affine", "leaky_relu", "elu"},
    {LSTM, FORWARD, 2, 0, 3, NULL, NULL, NULL},
    {GRU, STATES, 3, 2, 5, NULL, NULL, NULL},
    {GRU, REVERSE | LATE | STATES | LENGTHS | BIASED, 4, 5, 3, NULL, NULL, NULL},
    {GRU, LATE | CLIPPED, 3, 17, 33, "softplus", "relu", NULL},
    {GRU, LENGTHS | REVERSE, 3, 17, 33, "hard_sigmoid", "thresholded_relu", NULL},
    {GRU, LATE | BIASED, 2, 33, 129, NULL, NULL, NULL},
    {GRU, STATES, 2, 33, 129, NULL, NULL, NULL},
    {GRU, FORWARD, 2, 3, 0, NULL, NULL, NULL},
    {RNN, STATES, 5, 2, 7, NULL, NULL, NULL},
    {RNN, REVERSE | LENGTHS | CLIPPED, 4, 5, 16, "relu", NULL, NULL},
    {RNN, LENGTHS | STATES, 3, 18, 31, "elu", NULL, NULL},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

/* The networks, then one for each activation. */
static bool find_network(int i, network *w)
{
    const char *word = i < NETWORKS ? NULL : ir_words_activation[i - NETWORKS];
    if (i < NETWORKS) *w = networks[i];
    else *w = (network){RNN, FORWARD, 2, 2, 3, word, NULL, NULL};
    return i < NETWORKS || word;
}

static const network *now;
static const double alpha = 0.75, beta = 0.375, clip = 1.25;

/* ---- cells ----------------------------------------------------------------------------------- */

static double activation(const char *word, double a)
{
    const double P = alpha, Q = beta;
    if (!strcmp(word, "affine")) return P * a + Q;
    if (!strcmp(word, "scaled_tanh")) return P * tanh(Q * a);
    if (!strcmp(word, "hard_sigmoid")) return fmin(fmax(P * a + Q, 0), 1);
#define UNARY(op, groups, low, high, units, ...) \
    if (!strcmp(word, #op)) return __VA_ARGS__;
#include "tests/ops/pointwise.def"
    fail_msg("no activation %s", word);
    return 0;
}

static double gate(const char *word, double x)
{
    return activation(word, now->how & CLIPPED ? fmin(fmax(x, -clip), clip) : x);
}
static double gate_f(const double *v) { return gate(now->f ? now->f : now->cell == RNN ? "tanh" : "sigmoid", v[0]); }
static double gate_g(double x) { return gate(now->g ? now->g : "tanh", x); }

/* v: i, f, c, the cell state before */
static double lstm_cell(const double *v)
{
    const double in = gate_f(&v[0]);
    return (now->how & COUPLED ? 1 - in : gate_f(&v[1])) * v[3] + in * gate_g(v[2]);
}
/* v: o, the cell state */
static double lstm_hidden(const double *v) { return gate_f(v) * activation(now->h ? now->h : "tanh", v[1]); }
/* v: z, n, h before */
static double gru_hidden(const double *v) { return (1 - gate_f(v)) * gate_g(v[1]) + gate_f(v) * v[2]; }

/* The derivative of f by v[i]. */
static double slope(double (*f)(const double *v), const double *v, int n, int i)
{
    const double h = 1e-3;
    double at[4], sum = 0;
    static const double weights[] = {1, -8, 8, -1};
    for (int k = 0; k < 4; k++) {
        memcpy(at, v, (size_t)n * sizeof *v);
        at[i] += h * (k < 2 ? k - 2 : k - 1);
        sum += weights[k] * f(at);
    }
    return sum / (12 * h);
}

/* ---- forward --------------------------------------------------------------------------------- */

static int gates_of(const network *w) { return w->cell == RNN ? 1 : w->cell == GRU ? 3 : 4; }
static int saved_of(const network *w) { return gates_of(w) + ((w->how & LATE) != 0); }
static bool is_active(const double *lengths, int64_t b, int64_t t) { return !lengths || (double)t < lengths[b]; }

static double rounded(ir_dtype t, double v)
{
    unsigned char bytes[8];
    ir_store_f64(t, bytes, v);
    return ir_load_f64(t, bytes);
}

/* Row j of gate g of R times h. */
static double product(const double *r, int g, int64_t j, const double *h)
{
    double sum = 0;
    for (int64_t k = 0; k < now->hidden; k++) sum += r[(g * now->hidden + j) * now->hidden + k] * h[k];
    return sum;
}

/* Steps unit j; gates: its saved[..] values of this step, apart by the hidden size. */
static void step_unit(ops_case *c, const double *x, double *gates, const double *h, double *cell, int64_t j, double *to)
{
    const double *r = c->x[1], *p = c->x[5];
    const int64_t n = now->hidden;
    for (int g = 0; g < gates_of(now); g++) gates[g * n + j] = x[g * n + j];
    if (now->cell == RNN) {
        gates[j] += product(r, 0, j, h);
        to[j] = gate_f(&gates[j]);
        return;
    }
    if (now->cell == LSTM) {
        for (int g = 0; g < 4; g++) gates[g * n + j] += product(r, g, j, h);
        if (p) gates[j] += p[j] * cell[j], gates[2 * n + j] += p[2 * n + j] * cell[j];
        cell[j] = lstm_cell((double[]){gates[j], gates[2 * n + j], gates[3 * n + j], cell[j]});
        if (p) gates[n + j] += p[n + j] * cell[j];
        to[j] = lstm_hidden((double[]){gates[n + j], cell[j]});
        return;
    }
    for (int g = 0; g < 2; g++) gates[g * n + j] += product(r, g, j, h);
    if (now->how & LATE) {
        gates[3 * n + j] = product(r, 2, j, h) + (c->x[2] ? c->x[2][j] : 0);
        gates[2 * n + j] += gate_f(&gates[n + j]) * gates[3 * n + j];
    } else {
        double reset[512];
        for (int64_t k = 0; k < n; k++) {
            const double at = x[n + k] + product(r, 1, k, h);
            reset[k] = gate_f(&at) * h[k];
        }
        gates[2 * n + j] += product(r, 2, j, reset);
    }
    to[j] = gru_hidden((double[]){gates[j], gates[2 * n + j], h[j]});
}

static void run_row(ops_case *c, int64_t b)
{
    const int64_t n = now->hidden, width = gates_of(now) * n, kept = saved_of(now) * n;
    double h[512] = {0}, cell[512] = {0}, to[512], gates[4 * 512];
    for (int64_t j = 0; j < n; j++) {
        if (c->x[3]) h[j] = c->x[3][b * n + j];
        if (c->x[4]) cell[j] = c->x[4][b * n + j];
    }
    for (int64_t k = 0; k < now->steps; k++) {
        const int64_t t = now->how & REVERSE ? now->steps - 1 - k : k, row = t * now->batch + b;
        const bool active = is_active(c->x[6], b, t);
        double before[512];
        memcpy(before, cell, sizeof before);
        for (int64_t j = 0; j < n; j++) step_unit(c, c->x[0] + row * width, gates, h, cell, j, to);
        if (!active) memcpy(cell, before, sizeof before);
        for (int64_t j = 0; j < n; j++) {
            c->expected[0][row * n + j] = active ? to[j] : 0;
            c->expected[3][row * n + j] = cell[j];
            if (active) h[j] = rounded(c->out[0].dtype, to[j]);
        }
        for (int64_t i = 0; i < kept; i++) c->expected[4][row * kept + i] = active ? gates[i] : 0;
    }
    const bool any = now->steps > 0 && is_active(c->x[6], b, 0);
    for (int64_t j = 0; j < n; j++) {
        c->expected[1][b * n + j] = any ? h[j] : 0;
        c->expected[2][b * n + j] = any && now->cell == LSTM ? cell[j] : 0;
    }
}

static void forward(ops_case *c)
{
    for (int64_t b = 0; b < now->batch; b++) run_row(c, b);
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct back {
    const double *dy, *dlast_h, *dlast_c, *r, *y, *cells, *gates, *h0, *c0, *p, *lengths;
    double *dx, *products, *previous, *reset, *dp;
    double dh[512], dc[512], direct[512];
} back;

/* The gradients of the gates of unit j of an LSTM. */
static void lstm_unit(back *w, const double *x, double *to, double *dp, int64_t j, double before, double c)
{
    const int64_t n = now->hidden;
    const double hidden[] = {x[n + j], c}, cell[] = {x[j], x[2 * n + j], x[3 * n + j], before};
    const double peephole[] = {w->p ? w->p[j] : 0, w->p ? w->p[n + j] : 0, w->p ? w->p[2 * n + j] : 0};
    to[n + j] = w->dh[j] * slope(lstm_hidden, hidden, 2, 0);
    const double dc = w->dc[j] + w->dh[j] * slope(lstm_hidden, hidden, 2, 1) + to[n + j] * peephole[1];
    to[j] = dc * slope(lstm_cell, cell, 4, 0);
    to[2 * n + j] = dc * slope(lstm_cell, cell, 4, 1);
    to[3 * n + j] = dc * slope(lstm_cell, cell, 4, 2);
    w->dc[j] = dc * slope(lstm_cell, cell, 4, 3) + to[j] * peephole[0] + to[2 * n + j] * peephole[2];
    w->direct[j] = 0;
    dp[j] += to[j] * before;
    dp[n + j] += to[n + j] * c;
    dp[2 * n + j] += to[2 * n + j] * before;
}

/* products: the gradients of the products with R. */
static void gru_units(back *w, const double *x, double *to, double *products, const double *h, double *reset)
{
    const int64_t n = now->hidden;
    double inner[512];
    for (int64_t j = 0; j < n; j++) {
        const double v[] = {x[j], x[2 * n + j], h[j]};
        to[j] = products[j] = w->dh[j] * slope(gru_hidden, v, 3, 0);
        to[2 * n + j] = w->dh[j] * slope(gru_hidden, v, 3, 1);
        w->direct[j] = w->dh[j] * slope(gru_hidden, v, 3, 2);
    }
    for (int64_t j = 0; j < n; j++) {
        const double *r = &x[n + j];
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += to[2 * n + k] * w->r[(2 * n + k) * n + j];
        inner[j] = now->how & LATE ? to[2 * n + j] : sum;
        const double factor = now->how & LATE ? x[3 * n + j] : h[j];
        to[n + j] = products[n + j] = inner[j] * factor * slope(gate_f, r, 1, 0);
        products[2 * n + j] = now->how & LATE ? inner[j] * gate_f(r) : to[2 * n + j];
        if (!(now->how & LATE)) w->direct[j] += inner[j] * gate_f(r);
        reset[j] = now->how & LATE ? h[j] : gate_f(r) * h[j];
    }
}

static void step_back(back *w, int64_t b, int64_t t)
{
    const int64_t n = now->hidden, width = gates_of(now) * n, row = t * now->batch + b;
    const int64_t from = now->how & REVERSE ? t + 1 : t - 1, last = from * now->batch + b;
    const bool begun = from >= 0 && from < now->steps && is_active(w->lengths, b, from);
    const double *x = w->gates + row * saved_of(now) * n;
    double *to = w->dx + row * width, *products = w->products + row * width, *reset = w->reset + row * n;
    double *h = w->previous + row * n;
    for (int64_t j = 0; j < n; j++) {
        w->dh[j] += w->dy ? w->dy[row * n + j] : 0;
        h[j] = reset[j] = begun ? w->y[last * n + j] : w->h0 ? w->h0[b * n + j] : 0;
    }
    if (now->cell == GRU) gru_units(w, x, to, products, h, reset);
    for (int64_t j = 0; j < n && now->cell != GRU; j++) {
        const double before = begun ? w->cells[last * n + j] : w->c0 ? w->c0[b * n + j] : 0;
        w->direct[j] = 0;
        if (now->cell == RNN) to[j] = w->dh[j] * slope(gate_f, x + j, 1, 0);
        else lstm_unit(w, x, to, w->dp, j, before, w->cells[row * n + j]);
    }
    if (now->cell != GRU) memcpy(products, to, (size_t)width * sizeof *to);
    const int64_t direct = now->cell == GRU && !(now->how & LATE) ? 2 * n : width;
    for (int64_t j = 0; j < n; j++) {
        w->dh[j] = w->direct[j];
        for (int64_t k = 0; k < direct; k++) w->dh[j] += products[k] * w->r[k * n + j];
    }
}

static void backward(ops_case *c)
{
    double *const *x = c->x, *const *to = c->expected;
    back w = {x[0],  x[1],  x[2],  x[3],  x[4],  x[5],  x[6], x[7], x[8], x[9],
              x[10], to[0], to[1], to[2], to[3], to[6], {0},  {0},  {0}};
    const int64_t n = now->hidden;
    for (int i = 0; i < c->n_out; i++) memset(to[i], 0, (size_t)case_count(&c->out[i]) * sizeof(double));
    for (int64_t b = 0; b < now->batch; b++) {
        const bool any = now->steps > 0 && is_active(w.lengths, b, 0);
        for (int64_t j = 0; j < n; j++) {
            w.dh[j] = any && w.dlast_h ? w.dlast_h[b * n + j] : 0;
            w.dc[j] = any && w.dlast_c ? w.dlast_c[b * n + j] : 0;
        }
        for (int64_t k = now->steps; k > 0; k--) {
            const int64_t t = now->how & REVERSE ? now->steps - k : k - 1;
            if (is_active(w.lengths, b, t)) step_back(&w, b, t);
        }
        for (int64_t j = 0; j < n; j++) {
            to[4][b * n + j] = w.dh[j];
            to[5][b * n + j] = w.dc[j];
        }
    }
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void set_activation(ops_case *c, int attr, const char *word, const char *usual)
{
    c->attr[attr].i = ir_words_find(ir_words_activation, word ? word : usual);
    c->attr[attr + 1].f = alpha;
    c->attr[attr + 2].f = beta;
}

static void set_attributes(ops_case *c)
{
    c->attr[IR_ATTR(recurrent, cell)].i = now->cell;
    c->attr[IR_ATTR(recurrent, reverse)].i = (now->how & REVERSE) != 0;
    c->attr[IR_ATTR(recurrent, input_forget)].i = (now->how & COUPLED) != 0;
    c->attr[IR_ATTR(recurrent, linear_before_reset)].i = (now->how & LATE) != 0;
    c->attr[IR_ATTR(recurrent, clip)].f = now->how & CLIPPED ? clip : 0;
    set_activation(c, IR_ATTR(recurrent, f), now->f, now->cell == RNN ? "tanh" : "sigmoid");
    set_activation(c, IR_ATTR(recurrent, g), now->g, "tanh");
    set_activation(c, IR_ATTR(recurrent, h), now->h, "tanh");
}

static void operand_if(ops_case *c, bool exists, ir_dtype t, int rank, const int64_t *dims, double bound)
{
    if (exists) case_in(c, t, rank, dims, -bound, bound);
    else case_absent(c);
}

/* The operands that both ops have in this order. */
static void common_operands(ops_case *c, ir_dtype t, const int64_t *states)
{
    const int64_t n = now->hidden;
    const bool lstm = now->cell == LSTM;
    operand_if(c, now->how & STATES, t, 2, states + 1, 1);
    operand_if(c, lstm && now->how & STATES, t == IR_f64 ? IR_f64 : IR_f32, 2, states + 1, 1);
    operand_if(c, now->how & PEEPHOLES, t == IR_f64 ? IR_f64 : IR_f32, 2, (int64_t[]){3, n}, 1);
    if (now->how & LENGTHS) case_in(c, IR_i32, 1, states + 1, 0, (double)now->steps);
    else case_absent(c);
}

/* Rounded states differ by a unit in their last place, which the next steps carry on. */
static void check(ops_case *c, ir_dtype t, ops_reference *reference)
{
    c->units = t == IR_f64 ? 1e5 : t == IR_f32 ? 400 : t == IR_f16 ? 1e5 : 8e5;
    c->size = 1;
    case_check(c, reference);
    case_end(c);
}

/* Moves values off the points where an activation or its bound has no derivative. */
static void leave_kinks(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (floor(x[i] * 16) + 0.5) / 16;
}

static void recurrent(const ops_row *row, ir_dtype t)
{
    const ir_dtype wide = t == IR_f64 ? IR_f64 : IR_f32;
    network w;
    now = &w;
    for (int i = 0; find_network(i, &w); i++) {
        ops_case c = case_of(row->op);
        const int64_t n = now->hidden, states[] = {now->steps, now->batch, n}, width = gates_of(now) * n;
        const double bound = 1 / sqrt((double)(n + 1));
        case_in(&c, t, 3, (int64_t[]){now->steps, now->batch, width}, -2, 2);
        case_in(&c, t, 2, (int64_t[]){width, n}, -bound, bound);
        operand_if(&c, now->how & BIASED, t, 1, &n, 1);
        common_operands(&c, t, states);
        set_attributes(&c);
        case_out(&c, t, 3, states);
        case_out(&c, t, 2, states + 1);
        case_out(&c, wide, 2, states + 1);
        case_out(&c, wide, 3, states);
        case_out(&c, t, 3, (int64_t[]){now->steps, now->batch, saved_of(now) * n});
        check(&c, t, forward);
    }
}

static void recurrent_grad(const ops_row *row, ir_dtype t)
{
    const ir_dtype wide = t == IR_f64 ? IR_f64 : IR_f32;
    network w;
    now = &w;
    for (int i = 0; find_network(i, &w); i++) {
        ops_case c = case_of(row->op);
        const int64_t n = now->hidden, states[] = {now->steps, now->batch, n}, width = gates_of(now) * n;
        const double bound = 1 / sqrt((double)(n + 1));
        operand_if(&c, i % 4 != 3, t, 3, states, 1);
        operand_if(&c, i % 3 != 0, t, 2, states + 1, 1);
        operand_if(&c, now->cell == LSTM && i % 2, wide, 2, states + 1, 1);
        case_in(&c, t, 2, (int64_t[]){width, n}, -bound, bound);
        case_in(&c, t, 3, states, -1, 1);
        double *cells = case_in(&c, wide, 3, states, -1, 1);
        double *gates = case_in(&c, t, 3, (int64_t[]){now->steps, now->batch, saved_of(now) * n}, -2, 2);
        leave_kinks(cells, case_count(&c.in[5]));
        leave_kinks(gates, case_count(&c.in[6]));
        common_operands(&c, t, states);
        set_attributes(&c);
        for (int k = 0; k < 2; k++) case_out(&c, t, 3, (int64_t[]){now->steps, now->batch, width});
        for (int k = 0; k < 2; k++) case_out(&c, t, 3, states);
        case_out(&c, t, 2, states + 1);
        case_out(&c, wide, 2, states + 1);
        case_out(&c, wide, 2, (int64_t[]){3, n});
        check(&c, t, backward);
    }
}

/* Lengths beyond the number of steps, and negative ones. */
static void bad_lengths(const ops_row *row, ir_dtype t)
{
    static const network small = {RNN, LENGTHS, 3, 2, 4, NULL, NULL, NULL};
    static const double bad[] = {4, -1};
    now = &small;
    for (int i = 0; i < 2; i++) {
        ops_case c = case_of(row->op);
        const int64_t states[] = {3, 2, 4};
        case_in(&c, t, 3, states, -1, 1);
        case_in(&c, t, 2, (int64_t[]){4, 4}, -1, 1);
        case_absent(&c);
        common_operands(&c, t, states);
        set_attributes(&c);
        case_out(&c, t, 3, states);
        for (int k = 0; k < 4; k++) case_out(&c, IR_NO_DTYPE, 0, NULL);
        c.x[6][0] = 3, c.x[6][1] = 0;
        assert_int_equal(case_run(&c), AMPC_OK);
        c.x[6][1] = bad[i];
        assert_int_equal(case_run(&c), AMPC_REJECTED);
        case_end(&c);
    }
}

const ops_row recurrent_rows[] = {
    {IR_OP_recurrent, "F", bad_lengths, 0, 0, NULL, 0, 0},
    {IR_OP_recurrent, "F", recurrent, 0, 0, NULL, 0, 0},
    {IR_OP_recurrent_grad, "F", recurrent_grad, 0, 0, NULL, 0, 0},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
