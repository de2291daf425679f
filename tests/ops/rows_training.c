/* rows_training.c - dropout, optimizers and the loss scaler. */
#include "tests/ops/ops.h"

#include "ir/philox.h"
#include "kernels/update.h"

#include <math.h>

/* clang-format off: the headers that cmocka needs come before it */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
/* clang-format on */

#define EDGE(n) n,
static const int64_t sizes[] = {0, 1, 7, 513, 40003, OPS_EDGES(EDGE)};
#undef EDGE
enum { SIZES = sizeof sizes / sizeof *sizes };

/* ---- dropout ---- */

static void dropout_reference(ops_case *c)
{
    double ratio = c->attr[IR_ATTR(dropout, ratio)].f;
    uint64_t stream = ((uint64_t)c->attr[IR_ATTR(dropout, stream)].i + 1) << 32 | (uint32_t)c->x[1][1];
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        uint32_t word = philox_word((uint64_t)c->x[1][0], stream, (uint64_t)i);
        c->expected[1][i] = (double)word >= ratio * 0x1p32;
        c->expected[0][i] = c->expected[1][i] != 0 ? c->x[0][i] / (1 - ratio) : 0;
    }
}

static void dropout(const ops_row *row, ir_dtype t)
{
    static const double ratios[] = {0, 0.5, 0.1, 0.999};
    static const int64_t two[] = {2};
    for (int s = 0; s < 4 * SIZES; s++) {
        ops_case c;
        case_begin(&c, row->op);
        case_in(&c, t, 1, &sizes[s / 4], -9, 9);
        case_in(&c, IR_i64, 1, two, 0, 1000000);
        c.attr[IR_ATTR(dropout, ratio)].f = ratios[s % 4];
        c.attr[IR_ATTR(dropout, stream)].i = s;
        case_out(&c, t, 1, &sizes[s / 4]);
        case_out(&c, IR_bool, 1, &sizes[s / 4]);
        if (s % 4 == 0) c.units = 0;
        case_check(&c, dropout_reference);
        double kept = 0;
        for (int64_t i = 0; i < sizes[s / 4]; i++) kept += c.expected[1][i];
        if (sizes[s / 4] > 10000) assert_true(fabs(kept / (double)sizes[s / 4] - (1 - ratios[s % 4])) < 0.01);
        case_end(&c);
    }
}

static void random_reference(ops_case *c)
{
    const uint64_t key = (uint64_t)c->x[0][0];
    const uint64_t stream = ((uint64_t)c->attr[IR_ATTR(random, stream)].i + 1) << 32 | (uint32_t)c->x[0][1];
    const double offset = c->attr[IR_ATTR(random, offset)].f, scale = c->attr[IR_ATTR(random, scale)].f;
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        double u = floor(philox_word(key, stream, (uint64_t)i) / 256.0) * 0x1p-24;
        if (c->attr[IR_ATTR(random, normal)].i) {
            double v = floor(philox_word(key, stream, (uint64_t)i ^ 1) / 256.0) * 0x1p-24;
            double radius = sqrt(-2 * log(1 - (i % 2 ? v : u))), angle = 2 * M_PI * (i % 2 ? u : v);
            u = radius * (i % 2 ? sin(angle) : cos(angle));
        }
        c->expected[0][i] = offset + scale * u;
    }
}

/* Mean and variance of many numbers are within 5 standard errors. */
static void check_moments(const double *x, int64_t n, double mean, double deviation)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    for (int64_t i = 0; i < n; i++) squares += (x[i] - sum / (double)n) * (x[i] - sum / (double)n);
    const double error = 5 * deviation / sqrt((double)n);
    assert_true(fabs(sum / (double)n - mean) < error);
    assert_true(fabs(sqrt(squares / (double)n) - deviation) < error);
}

static void random_numbers(const ops_row *row, ir_dtype t)
{
    static const int64_t two[] = {2};
    for (int s = 0; s < 2 * SIZES; s++) {
        const bool normal = s % 2;
        ops_case c;
        case_begin(&c, row->op);
        case_in(&c, IR_i64, 1, two, 0, 1000000);
        c.attr[IR_ATTR(random, normal)].i = normal;
        c.attr[IR_ATTR(random, offset)].f = s % 4 < 2 ? 0 : -1.5;
        c.attr[IR_ATTR(random, scale)].f = s % 4 < 2 ? 1 : 0.75;
        c.attr[IR_ATTR(random, stream)].i = s;
        c.attr[IR_ATTR(random, type)].dtype = t;
        case_list(&c, IR_ATTR(random, shape), &sizes[s / 2], 1);
        case_out(&c, t, 1, &sizes[s / 2]);
        c.units = t == IR_f64 ? 0x1p35 : 64; /* computed in f32 */
        c.size = 1;
        case_check(&c, random_reference);
        const double scale = c.attr[IR_ATTR(random, scale)].f, offset = c.attr[IR_ATTR(random, offset)].f;
        if (sizes[s / 2] > 10000)
            check_moments(c.expected[0], sizes[s / 2], normal ? offset : offset + scale / 2,
                          normal ? scale : scale / sqrt(12));
        case_end(&c);
    }
}

static void dropout_grad_reference(ops_case *c)
{
    double ratio = c->attr[IR_ATTR(dropout_grad, ratio)].f;
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) c->expected[0][i] = c->x[1][i] != 0 ? c->x[0][i] / (1 - ratio) : 0;
}

static void dropout_grad(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < SIZES; s++) {
        ops_case c;
        case_begin(&c, row->op);
        case_in(&c, t, 1, &sizes[s], -9, 9);
        case_in(&c, IR_bool, 1, &sizes[s], 0, 1);
        c.attr[IR_ATTR(dropout_grad, ratio)].f = 0.3;
        case_out(&c, t, 1, &sizes[s]);
        case_check(&c, dropout_grad_reference);
        case_end(&c);
    }
}

/* ---- optimizers: bit 0 of a variant is nesterov or decoupled, then weight decay, skip present, skip set. In low types
 * the gradient belongs to a scaled loss, and there is a low-precision copy of the parameter (kernels/update.h) ---- */

static bool skipped(const ops_case *c, int skip) { return k_present(&c->in[skip]) && c->x[skip][0] != 0; }

static double gradient(const ops_case *c, int grad, int64_t i)
{
    int scale = ir_op_get(c->op)->n_in + K_UPDATE_SCALE;
    return c->x[grad][i] / (scale < c->n_in ? c->x[scale][0] : 1);
}

static void sgd_reference(ops_case *c)
{
    double decay = c->attr[0].f, lr = c->x[IR_IN(sgd, lr)][0];
    bool skip = skipped(c, IR_IN(sgd, skip));
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        double p = c->x[0][i], g = gradient(c, 1, i) + decay * p;
        c->expected[0][i] = skip ? p : p - lr * g;
    }
}

static void momentum_reference(ops_case *c)
{
    double decay = c->attr[IR_ATTR(momentum, weight_decay)].f, mu = c->attr[IR_ATTR(momentum, mu)].f;
    double lr = c->x[IR_IN(momentum, lr)][0];
    bool skip = skipped(c, IR_IN(momentum, skip)), nesterov = c->attr[IR_ATTR(momentum, nesterov)].i;
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        double p = c->x[0][i], g = gradient(c, 2, i) + decay * p, v = mu * c->x[1][i] + g;
        c->expected[0][i] = skip ? p : p - lr * (nesterov ? g + mu * v : v);
        c->expected[1][i] = skip ? c->x[1][i] : v;
    }
}

static void adamw_reference(ops_case *c)
{
    const ir_attr *a = c->attr;
    double decay = a[IR_ATTR(adamw, weight_decay)].f, b1 = a[IR_ATTR(adamw, beta1)].f, b2 = a[IR_ATTR(adamw, beta2)].f;
    double eps = a[IR_ATTR(adamw, eps)].f, lr = c->x[IR_IN(adamw, lr)][0], t = c->x[IR_IN(adamw, step)][0] + 1;
    bool skip = skipped(c, IR_IN(adamw, skip)), decoupled = a[IR_ATTR(adamw, decoupled)].i;
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        double p = c->x[0][i], g = gradient(c, 3, i) + (decoupled ? 0 : decay * p);
        double m = b1 * c->x[1][i] + (1 - b1) * g, v = b2 * c->x[2][i] + (1 - b2) * g * g;
        double kept = decoupled ? p - lr * decay * p : p;
        double step = lr * (m / (1 - pow(b1, t))) / (sqrt(v / (1 - pow(b2, t))) + eps);
        c->expected[0][i] = skip ? p : kept - step;
        c->expected[1][i] = skip ? c->x[1][i] : m;
        c->expected[2][i] = skip ? c->x[2][i] : v;
    }
}

static void optimizer_reference(ops_case *c)
{
    int states = ir_op_get(c->op)->n_out;
    if (states == 1) sgd_reference(c);
    if (states == 2) momentum_reference(c);
    if (states == 3) adamw_reference(c);
    for (int64_t i = 0; c->n_out > states && i < k_count(&c->in[0]); i++) c->expected[states][i] = c->expected[0][i];
}

static int weight_decay_of(ir_op op)
{
    return op == IR_OP_sgd        ? IR_ATTR(sgd, weight_decay)
           : op == IR_OP_momentum ? IR_ATTR(momentum, weight_decay)
                                  : IR_ATTR(adamw, weight_decay);
}

static void optimizer(const ops_row *row, ir_dtype t)
{
    int states = ir_op_get(row->op)->n_out;
    bool low = ir_dtype_is_low(t);
    ir_dtype master = low ? IR_f32 : t;
    double scale = low ? 1000 : 1;
    for (int s = 0; s < 16 * SIZES; s++) {
        if (low && (s / 16 + s) % 4) continue; /* each size covers some of the variants */
        ops_case c;
        const int64_t *size = &sizes[s / 16];
        bool skip = (s & 12) == 12;
        case_begin(&c, row->op);
        for (int k = 0; k < states; k++) case_in(&c, master, 1, size, k == 2 ? 0 : -1, 1);
        case_in(&c, t, 1, size, -scale, scale);
        if (states == 3) case_in(&c, IR_i64, 0, NULL, 0, 3);
        case_in(&c, master, 0, NULL, 0.01, 0.1);
        if (s & 4) case_in(&c, IR_bool, 0, NULL, skip, skip);
        else case_absent(&c);
        if (low) case_in(&c, master, 0, NULL, scale, scale);
        if (states == 2) c.attr[IR_ATTR(momentum, nesterov)].i = s & 1;
        if (states == 3) c.attr[IR_ATTR(adamw, decoupled)].i = s & 1;
        c.attr[weight_decay_of(row->op)].f = s & 2 ? 0.1 : 0;
        for (int k = 0; k < states; k++) case_out(&c, master, 1, size);
        if (low && !skip) case_out(&c, t, 1, size); /* with skip, aliasing matters: test_ops_update.c */
        c.size = 1;                                 /* a step may cancel the value */
        c.units = skip ? -1 : 8;                    /* skipped: unchanged bits */
        case_check(&c, optimizer_reference);
        case_end(&c);
    }
}

/* ---- the loss scaler ---- */

static double as_stored(ir_dtype t, double value)
{
    uint64_t raw = 0;
    ir_store_f64(t, &raw, value);
    return ir_load_f64(t, &raw);
}

/* Operands: three gradients, the scale, and optionally the results of earlier calls: a flag and sums of squares. */
static void unscale_reference(ops_case *c)
{
    enum { N = 3 };
    ir_dtype wide = c->in[N].dtype;
    double inverse = wide == IR_f64 ? 1 / c->x[N][0] : (double)(1 / (float)c->x[N][0]);
    long double squares = 0;
    bool found = c->n_in > N + 1 && c->x[N + 1][0] != 0;
    for (int i = 0; i < N; i++)
        for (int64_t k = 0; k < k_count(&c->in[i]); k++) {
            double y = c->x[i][k] * inverse, unscaled = as_stored(wide, y);
            if (k_present(&c->out[i])) c->expected[i][k] = y;
            found |= !isfinite(c->x[i][k]) || !isfinite(unscaled);
            squares += (long double)as_stored(wide, unscaled * unscaled);
        }
    c->expected[N][0] = found;
    if (c->n_out > N + 1) c->expected[N + 1][0] = (double)squares + (c->n_in > N + 2 ? c->x[N + 2][0] : 0);
}

/* With results, then with found_inf alone, then also with the sum of squares, then accumulating into an
 * existing one. */
static void unscale(const ops_row *row, ir_dtype t)
{
    static const struct {
        double scale, bad;
        int where; /* tensor with the bad value, -1: none */
    } cases[] = {{65536, 0, -1},   {1024, INFINITY, 0}, {3, NAN, 2},       {0, 0, -1},
                 {1e-30, 1e20, 1}, {2, -INFINITY, 2},   {1e-36, -2000, 2}, {1e-36, 8, 2}};
    enum { CASES = sizeof cases / sizeof *cases, FORMS = 4 };
    ir_dtype wide = t == IR_f64 ? t : IR_f32;
    for (int s = 0; s < FORMS * CASES; s++) {
        ops_case c;
        static const int64_t dims[] = {5, 1, 40003}, one = 1;
        int where = cases[s % CASES].where;
        double scale = cases[s % CASES].scale;
        case_begin(&c, row->op);
        for (int i = 0; i < 3; i++) case_in(&c, t, 1, &dims[i], -9, 9);
        if (where >= 0) c.x[where][dims[where] - 1] = cases[s % CASES].bad;
        case_in(&c, wide, 0, NULL, scale, scale);
        if (s >= 3 * CASES) case_in(&c, IR_bool, 0, NULL, s % 2, s % 2);
        if (s >= 3 * CASES) case_in(&c, IR_f64, 1, &one, 100, 200);
        for (int i = 0; i < 3; i++) case_out(&c, s < CASES ? wide : IR_NO_DTYPE, 1, &dims[i]);
        case_out(&c, IR_bool, 0, NULL);
        if (s >= 2 * CASES) case_out(&c, IR_f64, 1, &one);
        if (s >= 2 * CASES) c.units = 32; /* thousands of terms */
        case_check(&c, unscale_reference);
        case_end(&c);
    }
}

static void nothing(ops_case *c) { (void)c; }

enum { AT_N, LATE, HYSTERESIS }; /* when a counter triggers */

static void one_step(int rule, const int *every, bool found, double *state, double floor_of_scale)
{
    ops_case c;
    case_begin(&c, IR_OP_update_loss_scaling);
    case_in(&c, IR_bool, 0, NULL, found, found);
    case_in(&c, IR_f32, 0, NULL, state[0], state[0]);
    case_in(&c, IR_i64, 0, NULL, state[1], state[1]);
    case_in(&c, IR_i64, 0, NULL, state[2], state[2]);
    c.attr[IR_ATTR(update_loss_scaling, incr_every)].i = every[0];
    c.attr[IR_ATTR(update_loss_scaling, decr_every)].i = every[1];
    c.attr[IR_ATTR(update_loss_scaling, min)].f = floor_of_scale;
    c.attr[IR_ATTR(update_loss_scaling, max)].f = rule == HYSTERESIS ? 16 : 3.4e38;
    c.attr[IR_ATTR(update_loss_scaling, late)].i = rule == LATE;
    c.attr[IR_ATTR(update_loss_scaling, hysteresis)].i = rule == HYSTERESIS;
    case_out(&c, IR_f32, 0, NULL);
    case_out(&c, IR_i64, 0, NULL);
    case_out(&c, IR_i64, 0, NULL);
    assert_int_equal(case_run(&c), AMPC_OK);
    nothing(&c);
    for (int i = 0; i < 3; i++) state[i] = ir_load_f64(c.out[i].dtype, c.out[i].data);
    case_end(&c);
}

/* With a floor of 2 and a ceiling of 16; then switched off. */
static void hysteresis(void)
{
    static const int every[] = {2, 2};
    static const char flags[] = "FFFFTTTTTF";
    static const double trace[10][3] = {{8, 1, 0}, {16, 0, 0}, {16, 1, 0}, {16, 0, 0}, {16, 0, 1},
                                        {8, 0, 2}, {4, 0, 2},  {2, 0, 2},  {2, 0, 2},  {2, 1, 0}};
    double state[3] = {8, 0, 0}, off[3] = {1, -1, 0};
    for (int k = 0; k < 10; k++) {
        one_step(HYSTERESIS, every, flags[k] == 'T', state, 2);
        one_step(k % 3, every, flags[k] == 'T', off, 2);
        for (int i = 0; i < 3; i++) assert_true(state[i] == trace[k][i]);
        assert_true(off[0] == 1 && off[1] == -1 && off[2] == 0);
    }
}

/* State traces of PaddlePaddle 3 and 1.8 for the same flags: scale, good steps, bad steps after each step. */
static void loss_scaling(const ops_row *row, ir_dtype t)
{
    (void)row, (void)t;
    static const int every[] = {2, 2};
    static const char flags[] = "FFFTTTFTFF";
    static const double traces[2][10][3] = {
        {{8, 1, 0},
         {16, 0, 0},
         {16, 1, 0},
         {16, 0, 1},
         {8, 0, 0},
         {8, 0, 1},
         {8, 1, 0},
         {8, 0, 1},
         {8, 1, 0},
         {16, 0, 0}},
        {{8, 1, 0},
         {8, 2, 0},
         {16, 0, 0},
         {16, 0, 1},
         {16, 0, 2},
         {8, 0, 0},
         {8, 1, 0},
         {8, 0, 1},
         {8, 1, 0},
         {8, 2, 0}},
    };
    hysteresis();
    for (int late = AT_N; late <= LATE; late++) {
        double state[3] = {8, 0, 0};
        for (int k = 0; k < 10; k++) {
            one_step(late, every, flags[k] == 'T', state, 1);
            for (int i = 0; i < 3; i++) assert_true(state[i] == traces[late][k][i]);
        }
    }
    static const int one[] = {1, 1};
    double low[3] = {1.5, 0, 0}, below[3] = {0.25, 0, 0}, high[3] = {0x1p127, 0, 0}, past[3] = {4, 7, 0};
    one_step(AT_N, one, true, low, 1);
    assert_true(low[0] == 1);
    one_step(AT_N, one, true, below, 1); /* a scale below the floor is raised to it */
    assert_true(below[0] == 1);
    one_step(AT_N, one, false, high, 1); /* never grows to infinity */
    assert_true(high[0] == 0x1p127 && high[1] == 0);
    one_step(AT_N, every, false, past, 1); /* a counter beyond its limit never triggers */
    assert_true(past[0] == 4 && past[1] == 8);
}

/* clang-format off */
#define ROW(op, groups, make) {IR_OP_##op, groups, make, 0, 0, NULL, 0, 0}
/* clang-format on */
const ops_row training_rows[] = {
    ROW(dropout, "F", dropout),
    ROW(random, "F", random_numbers),
    ROW(dropout_grad, "F", dropout_grad),
    ROW(sgd, "F", optimizer),
    ROW(momentum, "F", optimizer),
    ROW(adamw, "F", optimizer),
    ROW(check_finite_and_unscale, "F", unscale),
    ROW(update_loss_scaling, "1", loss_scaling),
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
