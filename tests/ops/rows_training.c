/* rows_training.c - dropout, optimizers and the loss scaler. */
#include "tests/ops/ops.h"
#include "ir/ops/words.h"

#include "ir/base/philox.h"
#include "ir/ops/updates.h"
#include "kernels/update.h"
#include "tests/test.h"

#include <math.h>

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
        ops_case c = case_of(row->op);
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
        ops_case c = case_of(row->op);
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
        ops_case c = case_of(row->op);
        case_in(&c, t, 1, &sizes[s], -9, 9);
        case_in(&c, IR_bool, 1, &sizes[s], 0, 1);
        c.attr[IR_ATTR(dropout_grad, ratio)].f = 0.3;
        case_out(&c, t, 1, &sizes[s]);
        case_finish(&c, dropout_grad_reference);
    }
}

/* ---- optimizers: bit 0 of a variant sets flags, and numbers that are usually 0, then weight decay, skip present, skip
 * set. In low types the gradient belongs to a scaled loss, and there is a low-precision copy of the parameter
 * (kernels/update.h) ---- */

/* One element: the old states, which the function replaces by the new ones, and the ratio and the gradient. The formulas
 * themselves are compared with PyTorch, in whole trainings (tests/train/optimizers). */
#define SQRT sqrt
#define REAL double
#define UPDATE(op, n, rate, step, has_ratio, once, ...) \
    static void op##_element(const update_numbers *numbers, double ratio, double g, double s[UPDATE_STATES]) \
    { \
        const update_numbers k = *numbers; \
        double p = s[0], a = s[1], b = s[2], c = s[3]; \
        (void)ratio, (void)k; \
        __VA_ARGS__ \
        s[0] = p, s[1] = a, s[2] = b, s[3] = c; \
    }
#include "ir/ops/updates.def"
#undef SQRT
#undef REAL

static const struct formula {
    void (*once)(update_numbers *k, const double *attr, double rate, double t);
    void (*element)(const update_numbers *k, double ratio, double g, double s[UPDATE_STATES]);
} update_formulas[IR_OP_COUNT] = {
#define UPDATE(op, ...) [IR_OP_##op] = {update_once_##op, op##_element},
#include "ir/ops/updates.def"
};

static void optimizer_reference(ops_case *c)
{
    const k_update_slots *at = k_update_slots_of(c->op);
    const int scale = k_extra_in_at(c->op, 0, K_SLOT(update, scale));
    const bool skip = k_present(&c->in[at->skip]) && c->x[at->skip][0] != 0;
    const struct formula *formula = &update_formulas[c->op];
    double attr[UPDATE_ATTRS];
    update_numbers k;
    k_update_attributes(c->op, c->attr, attr);
    formula->once(&k, attr, at->lr < 0 ? 0 : c->x[at->lr][0], at->step < 0 ? 0 : c->x[at->step][0] + 1);
    for (int64_t i = 0; i < k_count(&c->in[0]); i++) {
        const double g = c->x[at->grad][i] / (scale < c->n_in ? c->x[scale][0] : 1);
        double s[UPDATE_STATES] = {0};
        for (int n = 0; n < at->states; n++) s[n] = c->x[n][i];
        if (!skip) formula->element(&k, at->ratio < 0 ? 1 : c->x[at->ratio][0], g, s);
        for (int n = 0; n < at->states; n++) c->expected[n][i] = s[n];
        if (c->n_out > at->states) c->expected[at->states][i] = s[0];
    }
}

/* The range of a state, by its name: what the optimizers add up from squares or sizes, means below them, and any sign. */
static void state_in(ops_case *c, ir_dtype t, const int64_t *size, int k)
{
    static const char *const squares[] = {"v", "u", "sum", "square", "delta", "moment"};
    const char *name = ir_op_get(c->op)->in[k].name;
    double low = -1, high = 1;
    if (strcmp(name, "mean") == 0) low = -0.1, high = 0.1;
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++)
        if (strcmp(name, squares[i]) == 0) low = 0.1;
    case_in(c, t, 1, size, low, high);
}

static void set_attributes(ops_case *c, bool variant, bool decay)
{
    const ir_op_info *info = ir_op_get(c->op);
    for (int i = 0; i < info->n_attr; i++) {
        const bool is_decay = strcmp(info->attr[i].name, "weight_decay") == 0;
        if (info->attr[i].kind == IR_SLOT_BOOL) c->attr[i].i = variant;
        else if (is_decay) c->attr[i].f = decay ? 0.1 : 0;
        else if (info->attr[i].initial.f == 0) c->attr[i].f = variant ? 0.25 : 0;
    }
}

static void optimizer_case(const ops_row *row, ir_dtype t, const int64_t *size, int variant)
{
    const k_update_slots *at = k_update_slots_of(row->op);
    const bool low = ir_dtype_is_low(t), skip = (variant & 12) == 12;
    const ir_dtype master = low ? IR_f32 : t;
    const double scale = low ? 1000 : 1;
    ops_case c = case_of(row->op);
    for (int k = 0; k < at->states; k++) state_in(&c, master, size, k);
    case_in(&c, t, 1, size, -scale, scale);
    if (at->step >= 0) case_in(&c, IR_i64, 0, NULL, 0, 3);
    if (at->ratio >= 0) case_in(&c, master, 1, (int64_t[]){1}, 0.5, 2);
    if (at->lr >= 0) case_in(&c, master, 0, NULL, 0.01, row->op == IR_OP_adafactor ? 2 : 0.1);
    if (variant & 4) case_in(&c, IR_bool, 0, NULL, skip, skip);
    else case_absent(&c);
    if (low) case_in(&c, master, 0, NULL, scale, scale);
    set_attributes(&c, variant & 1, variant & 2);
    for (int k = 0; k < at->states; k++) case_out(&c, master, 1, size);
    if (low && !skip) case_out(&c, t, 1, size); /* with skip, aliasing matters: test_ops_update.c */
    c.size = 1;                                 /* a step may cancel the value */
    c.units = skip ? -1 : 8;                    /* skipped: unchanged bits */
    case_finish(&c, optimizer_reference);
}

static void optimizer(const ops_row *row, ir_dtype t)
{
    const int stride = ops_brief ? 8 : 4; /* each size has some variants */
    for (int s = 0; s < 16 * SIZES; s++)
        if ((s / 16 + s) % stride == 0) optimizer_case(row, t, &sizes[s / 16], s % 16);
}

/* ---- ratios of norms ---- */

static void norm_parts_reference(ops_case *c)
{
    const int64_t n = k_count(&c->in[0]), length = k_norm_part_length(n);
    for (int64_t i = 0; i < 2 * IR_NORM_PARTS; i++) {
        const int64_t first = i % IR_NORM_PARTS * length;
        double sum = 0;
        for (int64_t k = first; k < n && k < first + length; k++) sum += pow(c->x[i / IR_NORM_PARTS][k], 2);
        c->expected[0][i] = sqrt(c->attr[IR_ATTR(norm_parts, mean)].i && n ? sum / (double)n : sum);
    }
}

static void norm_parts(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < 2 * SIZES && !ir_dtype_is_low(t); s++) {
        ops_case c = case_of(row->op);
        case_in(&c, t, 1, &sizes[s / 2], -1, 1);
        case_in(&c, t, 1, &sizes[s / 2], -100, 100);
        c.attr[IR_ATTR(norm_parts, mean)].i = s % 2;
        case_out(&c, t, 2, (int64_t[]){2, IR_NORM_PARTS});
        c.units = t == IR_f64 ? 64 : 8; /* sums are f64 */
        case_finish(&c, norm_parts_reference);
    }
}

/* ---- slices, of one rank: the tensor itself; several ranks are in tests/unit/test_shard.c ---- */

static void slice_reference(ops_case *c)
{
    for (int i = 0; i < c->n_in; i++)
        for (int64_t k = 0; k < k_count(&c->in[i]); k++) c->expected[i][k] = c->x[i][k];
}

static void slices(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s + 1 < SIZES; s++) {
        const int64_t matrix[] = {sizes[s], 2}, count = 2 * sizes[s], shapes[] = {2, sizes[s], 2, 1, sizes[s + 1]};
        const bool gathers = row->op == IR_OP_all_gather;
        ops_case c = case_of(row->op);
        gathers ? (void)case_in(&c, t, 1, &count, -9, 9) : (void)case_in(&c, t, 2, matrix, -9, 9);
        case_in(&c, t, 1, &sizes[s + 1], -9, 9);
        if (gathers) case_list(&c, IR_ATTR(all_gather, shapes), shapes, 5);
        if (gathers) c.attr[IR_ATTR(all_gather, wire)].dtype = t;
        gathers ? case_out(&c, t, 2, matrix) : case_out(&c, t, 1, &count);
        case_out(&c, t, 1, &sizes[s + 1]);
        c.units = 0;
        case_finish(&c, slice_reference);
    }
}

static void trust_ratio_reference(ops_case *c)
{
    double norm[2] = {0, 0};
    for (int i = 0; i < 2 * IR_NORM_PARTS; i++) norm[i / IR_NORM_PARTS] += c->x[0][i] * c->x[0][i];
    const double a = sqrt(norm[0]), b = sqrt(norm[1]);
    const double below = b + c->attr[IR_ATTR(trust_ratio, weight_decay)].f * a + c->attr[IR_ATTR(trust_ratio, eps)].f;
    c->expected[0][0] = a == 0 || b == 0 ? 1 : c->attr[IR_ATTR(trust_ratio, coefficient)].f * a / below;
}

static void trust_ratio(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < 8 && !ir_dtype_is_low(t); s++) {
        ops_case c = case_of(row->op);
        double *parts = case_in(&c, t, 2, (int64_t[]){2, IR_NORM_PARTS}, 0, s & 1 ? 1 : 1e-3);
        for (int i = 0; s >= 6 && i < IR_NORM_PARTS; i++) parts[i + (s & 1) * IR_NORM_PARTS] = 0;
        c.attr[IR_ATTR(trust_ratio, coefficient)].f = s & 2 ? 0.001 : 1;
        c.attr[IR_ATTR(trust_ratio, weight_decay)].f = s & 4 ? 0.1 : 0;
        c.attr[IR_ATTR(trust_ratio, eps)].f = s & 1 ? 1e-3 : 0;
        case_out(&c, t, 1, (int64_t[]){1});
        case_finish(&c, trust_ratio_reference);
    }
}

static void clipped_ratio_reference(ops_case *c)
{
    double norm[2] = {0, 0};
    for (int i = 0; i < 2 * IR_NORM_PARTS; i++) norm[i / IR_NORM_PARTS] += c->x[0][i] * c->x[0][i];
    c->expected[0][0] = fmax(c->attr[IR_ATTR(clipped_ratio, least)].f, sqrt(norm[0])) /
                        fmax(1, sqrt(norm[1]) / c->attr[IR_ATTR(clipped_ratio, clip)].f);
}

/* Each of the two limits applies or not. */
static void clipped_ratio(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < 4 && !ir_dtype_is_low(t); s++) {
        ops_case c = case_of(row->op);
        case_in(&c, t, 2, (int64_t[]){2, IR_NORM_PARTS}, 0.1, 1);
        c.attr[IR_ATTR(clipped_ratio, least)].f = s & 1 ? 0.001 : 10;
        c.attr[IR_ATTR(clipped_ratio, clip)].f = s & 2 ? 1.5 : 20;
        case_out(&c, t, 1, (int64_t[]){1});
        case_finish(&c, clipped_ratio_reference);
    }
}

/* ---- values of all ranks, of which there is one; tests/train/test_ranks.c has more ---- */

static void all_reduce_reference(ops_case *c)
{
    for (int i = 0; i < c->n_in; i++)
        for (int64_t k = 0; k < k_count(&c->in[i]); k++) c->expected[i][k] = c->x[i][k];
}

/* The type of the wire rounds nothing. */
static void all_reduce(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < SIZES; s++) {
        ops_case c = case_of(row->op);
        c.attr[IR_ATTR(all_reduce, by)].i = s % 3;
        c.attr[IR_ATTR(all_reduce, tree)].i = s % 2;
        c.attr[IR_ATTR(all_reduce, wire)].dtype = s % 2 ? IR_bf16 : IR_f16;
        for (int i = 0; i < 2; i++) case_in(&c, t, 1, &sizes[s], -100, 100);
        for (int i = 0; i < 2; i++) case_out(&c, t, 1, &sizes[s]);
        c.units = 0;
        case_finish(&c, all_reduce_reference);
    }
}

static void rank_number_reference(ops_case *c)
{
    c->expected[0][0] = c->attr[IR_ATTR(rank_number, number)].i != IR_WORD(rank_number, index);
}

static void rank_number(const ops_row *row, ir_dtype t)
{
    (void)t;
    for (int s = 0; s < 3; s++) {
        ops_case c = case_of(row->op);
        c.attr[IR_ATTR(rank_number, number)].i = s;
        case_out(&c, IR_f32, 0, NULL);
        c.units = 0;
        case_finish(&c, rank_number_reference);
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
        ops_case c = case_of(row->op);
        static const int64_t dims[] = {5, 1, 40003}, one = 1;
        int where = cases[s % CASES].where;
        double scale = cases[s % CASES].scale;
        for (int i = 0; i < 3; i++) case_in(&c, t, 1, &dims[i], -9, 9);
        if (where >= 0) c.x[where][dims[where] - 1] = cases[s % CASES].bad;
        case_in(&c, wide, 0, NULL, scale, scale);
        if (s >= 3 * CASES) {
            case_in(&c, IR_bool, 0, NULL, s % 2, s % 2);
            case_in(&c, IR_f64, 1, &one, 100, 200);
            c.n_extra = 2;
        }
        for (int i = 0; i < 3; i++) case_out(&c, s < CASES ? wide : IR_NO_DTYPE, 1, &dims[i]);
        case_out(&c, IR_bool, 0, NULL);
        if (s >= 2 * CASES) case_out(&c, IR_f64, 1, &one);
        if (s >= 2 * CASES) c.units = 32; /* thousands of terms */
        case_finish(&c, unscale_reference);
    }
}

enum { AT_N, LATE, HYSTERESIS }; /* when a counter triggers */

static void one_step(int rule, const int *every, bool found, double *state, double floor_of_scale)
{
    ops_case c = case_of(IR_OP_update_loss_scaling);
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
    for (int i = 0; i < 3; i++) state[i] = ir_load_f64(c.out[i].dtype, c.out[i].data);
    case_end(&c);
}

/* clang-format off */
/* Flags and states, which are the scale, the good and the bad steps after each step. The first two are of PaddlePaddle 3 and
 * 1.8; the third has a floor of 2 and a ceiling of 16. tests/train/test_scaler.c has random sequences. */
static const struct {
    const char *flags;
    double states[10][3];
} traces[] = {
    [AT_N] = {"FFFTTTFTFF", {{8, 1, 0}, {16, 0, 0}, {16, 1, 0}, {16, 0, 1}, {8, 0, 0}, {8, 0, 1}, {8, 1, 0}, {8, 0, 1},
               {8, 1, 0}, {16, 0, 0}}},
    [LATE] = {"FFFTTTFTFF", {{8, 1, 0}, {8, 2, 0}, {16, 0, 0}, {16, 0, 1}, {16, 0, 2}, {8, 0, 0}, {8, 1, 0}, {8, 0, 1},
               {8, 1, 0}, {8, 2, 0}}},
    [HYSTERESIS] = {"FFFFTTTTTF", {{8, 1, 0}, {16, 0, 0}, {16, 1, 0}, {16, 0, 0}, {16, 0, 1}, {8, 0, 2}, {4, 0, 2}, {2, 0, 2},
                     {2, 0, 2}, {2, 1, 0}}},
};
/* clang-format on */

/* The limits, and a scaler that is switched off, besides the traces. */
static void loss_scaling(const ops_row *row, ir_dtype t)
{
    (void)row, (void)t;
    static const int every[] = {2, 2}, one[] = {1, 1};
    for (int rule = AT_N; rule <= HYSTERESIS; rule++) {
        double state[3] = {8, 0, 0}, off[3] = {1, -1, 0};
        for (int k = 0; k < 10; k++) {
            one_step(rule, every, traces[rule].flags[k] == 'T', state, rule == HYSTERESIS ? 2 : 1);
            one_step(rule, every, traces[rule].flags[k] == 'T', off, 2);
            for (int i = 0; i < 3; i++) assert_true(state[i] == traces[rule].states[k][i]);
            assert_true(off[0] == 1 && off[1] == -1 && off[2] == 0);
        }
    }
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
#define UPDATE(op, ...) ROW(op, "F", optimizer),
#include "ir/ops/updates.def"
    ROW(norm_parts, "F", norm_parts),
    ROW(rank_part, "F", slices),
    ROW(reduce_scatter, "F", slices),
    ROW(all_gather, "F", slices),
    ROW(trust_ratio, "F", trust_ratio),
    ROW(clipped_ratio, "F", clipped_ratio),
    ROW(all_reduce, "F", all_reduce),
    ROW(rank_number, "1", rank_number),
    ROW(check_finite_and_unscale, "F", unscale),
    ROW(update_loss_scaling, "1", loss_scaling),
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
