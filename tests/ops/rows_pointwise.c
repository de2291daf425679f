/* rows_pointwise.c - elementwise ops over shapes and broadcasts. */
#include "tests/ops/ops.h"

#include "ir/ops/formulas.h"

#include <math.h>

/* Shapes of the two operands; unary ops ignore the second. */
static const struct {
    int rank_a, rank_b, rank_y;
    int64_t a[4], b[4], y[4];
} shapes[] = {
    {0, 0, 0, {0}, {0}, {0}},
    {1, 1, 1, {1}, {1}, {1}},
    {1, 1, 1, {0}, {0}, {0}},
    {1, 1, 1, {7}, {7}, {7}},
#define EDGE(n) {1, 1, 1, {n}, {n}, {n}},
    OPS_EDGES(EDGE)
#undef EDGE
        {2, 1, 2, {3, 31}, {31}, {3, 31}},
    {2, 2, 2, {33, 1}, {1, 33}, {33, 33}},
    {2, 2, 2, {3, 5}, {3, 5}, {3, 5}},
    {1, 1, 1, {1500}, {1500}, {1500}},
    {2, 0, 2, {5, 131}, {0}, {5, 131}},
    {0, 2, 2, {0}, {9, 67}, {9, 67}},
    {2, 1, 2, {6, 133}, {133}, {6, 133}},
    {2, 2, 2, {6, 133}, {6, 1}, {6, 133}},
    {2, 2, 2, {1, 3}, {700, 1}, {700, 3}},
    {4, 3, 4, {2, 3, 4, 5}, {3, 1, 1}, {2, 3, 4, 5}},
    {4, 4, 4, {2, 1, 4, 1}, {1, 3, 1, 5}, {2, 3, 4, 5}},
    {2, 1, 2, {0, 3}, {3}, {0, 3}},
    {1, 1, 1, {40001}, {40001}, {40001}},
    {3, 2, 3, {2, 70, 300}, {70, 1}, {2, 70, 300}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static double (*scalar)(double a, double b);
static double P, Q; /* the first two attributes */

static void reference(ops_case *c)
{
    const ir_formula_params params = ir_formula_params_of(c->op, c->attr);
    P = params.p;
    Q = params.q;
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) {
        double a = c->x[0][case_broadcast(&c->in[0], &c->out[0], i)];
        double b = c->n_in > 1 && c->in[1].rank >= 0 && k_present(&c->in[1])
                       ? c->x[1][case_broadcast(&c->in[1], &c->out[0], i)]
                       : 0;
        c->expected[0][i] = scalar(a, b);
    }
}

static void salt(double *x, int64_t n, ir_dtype t) /* adds special values to the random ones */
{
    static const double special[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1, -1, 1e-7, 88, -88, 0.5, 1.5, -2.5};
    if (!ir_dtype_is_float(t)) return;
    for (int64_t i = 0; i < n && i < 13 && n > 500; i++) x[i * 31] = special[i];
}

static ir_dtype result_type(ir_op op, ir_dtype t) { return ir_op_get(op)->out[0].group == IR_GROUP_B ? IR_bool : t; }

static void finish(ops_case *c, const ops_row *row)
{
    c->units = row->units;
    c->size = row->size;
    scalar = row->scalar;
    case_finish(c, reference);
}

static void one(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < SHAPES; s++) {
        ops_case c = case_of(row->op);
        double *x = case_in(&c, t, shapes[s].rank_a, shapes[s].a, row->low, row->high);
        if (row->size == 0) salt(x, k_count(&c.in[0]), t);
        case_out(&c, result_type(row->op, t), shapes[s].rank_a, shapes[s].a);
        finish(&c, row);
    }
}

static void two(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < SHAPES; s++) {
        ops_case c = case_of(row->op);
        case_in(&c, t, shapes[s].rank_a, shapes[s].a, row->low, row->high);
        case_in(&c, t, shapes[s].rank_b, shapes[s].b, row->low, row->high);
        salt(c.x[0], k_count(&c.in[0]), t);
        case_out(&c, result_type(row->op, t), shapes[s].rank_y, shapes[s].y);
        finish(&c, row);
    }
}

static void flagged_one(const ops_row *row, ir_dtype t)
{
    int64_t dims[] = {3, 333};
    ops_case c = case_of(row->op);
    c.attr[0].i = 1;
    case_in(&c, t, 2, dims, row->low, row->high);
    if (row->op != IR_OP_gelu) case_in(&c, t, 2, dims, row->low, row->high);
    case_out(&c, t, 2, dims);
    finish(&c, row);
}

/* ---- with numeric attributes ---- */

/* With other attributes than the defaults. */
static void altered(const ops_row *row, ir_dtype t)
{
    const ir_op_info *info = ir_op_get(row->op);
    for (int s = 0; s < SHAPES; s++) {
        ops_case c = case_of(row->op);
        for (int i = 0; i < info->n_attr; i++) {
            if (info->attr[i].kind == IR_SLOT_FLOAT) c.attr[i].f = (double)(float)(0.75 * c.attr[i].f + 0.1 * (i + 1));
            else c.attr[i].i = (s >> i) & 1;
        }
        double *x = case_in(&c, t, shapes[s].rank_y, shapes[s].y, row->low, row->high);
        salt(x, k_count(&c.in[0]), t);
        case_out(&c, result_type(row->op, t), shapes[s].rank_y, shapes[s].y);
        finish(&c, row);
    }
}

static double bound_low, bound_high;

static double clip(double a, double b)
{
    (void)b;
    return isnan(a) ? a : a < bound_low ? bound_low : a > bound_high ? bound_high : a;
}

static void bounded_reference(ops_case *c)
{
    bound_low = k_present(&c->in[1]) ? c->x[1][0] : -INFINITY;
    bound_high = k_present(&c->in[2]) ? c->x[2][0] : INFINITY;
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) c->expected[0][i] = clip(c->x[0][i], 0);
}

static void bounded(const ops_row *row, ir_dtype t)
{
    for (int s = 0; s < 4 * SHAPES; s++) {
        ops_case c = case_of(row->op);
        const int64_t *dims = shapes[s / 4].y;
        int rank = shapes[s / 4].rank_y;
        case_in(&c, t, rank, dims, 0, 9);
        salt(c.x[0], k_count(&c.in[0]), t);
        if (s & 1) case_in(&c, t, 0, NULL, 2, 4);
        else case_absent(&c);
        if (s & 2) case_in(&c, t, 0, NULL, 5, 7);
        else case_absent(&c);
        case_out(&c, t, rank, dims);
        case_finish(&c, bounded_reference);
    }
}

static double divisor; /* of by_count */

static double by_count(double a, double b)
{
    (void)b;
    return a / divisor;
}

static void counted(const ops_row *row, ir_dtype t)
{
    static const int64_t count[] = {2, 3}, less[] = {0, 1, 6};
    for (int s = 0; s < SHAPES; s++) {
        ops_case c = case_of(row->op);
        case_in(&c, t, shapes[s].rank_y, shapes[s].y, -3, 3);
        case_list(&c, IR_ATTR(div_count, count), count, 2);
        c.attr[IR_ATTR(div_count, less)].i = less[s % 3];
        case_out(&c, t, shapes[s].rank_y, shapes[s].y);
        divisor = fmax(6 - (double)less[s % 3], 1);
        scalar = by_count;
        case_finish(&c, reference);
    }
}

/* ---- references ---- */

#define ONE(name, expression) \
    static double name(double a, double b) \
    { \
        (void)a, (void)b; \
        return expression; \
    }
/* clang-format off */
#define UNARY(op, groups, low, high, units, ...) ONE(r_##op, __VA_ARGS__)
#include "tests/ops/pointwise.def"
ONE(r_gelu, 0.5 * a * (1 + erf(a * M_SQRT1_2)))
ONE(r_gelu_tanh, 0.5 * a * (1 + tanh(sqrt(2 / M_PI) * (a + 0.044715 * a * a * a))))
ONE(r_add, a + b)
ONE(r_sub, a - b)
ONE(r_mul, a * b)
ONE(r_div, a / b)
ONE(r_div_whole, b == 0 ? 0 : trunc(a / b))
ONE(r_pow, pow(a, b))
ONE(r_min, isnan(a) ? a : isnan(b) ? b : fmin(a, b))
ONE(r_max, isnan(a) ? a : isnan(b) ? b : fmax(a, b))
ONE(r_mod_whole, b == 0 ? 0 : a - b * floor(a / b))
ONE(r_fmod_whole, b == 0 ? 0 : fmod(a, b))
ONE(r_fmod, fmod(a, b))
ONE(r_mod, fmod(a, b) + (fmod(a, b) != 0 && (fmod(a, b) < 0) != (b < 0) ? b : 0))
ONE(r_equal, a == b)
ONE(r_less, a < b)
ONE(r_less_or_equal, a <= b)
ONE(r_greater, a > b)
ONE(r_greater_or_equal, a >= b)
ONE(r_and, a != 0 && b != 0)
ONE(r_or, a != 0 || b != 0)
ONE(r_xor, (a != 0) != (b != 0))
ONE(r_bit_not, -1 - a)
ONE(r_bit_and, (double)((int64_t)a & (int64_t)b))
ONE(r_bit_or, (double)((int64_t)a | (int64_t)b))
ONE(r_bit_xor, (double)((int64_t)a ^ (int64_t)b))
ONE(r_shift, a * exp2(b))
ONE(r_shift_right, floor(a / exp2(b)))
ONE(r_prelu, a < 0 ? a * b : a)
ONE(r_hard_sigmoid, isnan(a) ? a : fmax(0, fmin(1, P * a + Q)))
ONE(r_hard_swish, isnan(a) ? a : a * fmax(0, fmin(1, (a + 3) / 6)))
/* clang-format on */

/* ---- derivatives: differences of the references ---- */

/* Slopes in the result y. */
ONE(s_relu, a > 0 ? 1 : 0)
ONE(s_sigmoid, (1 - a) * a)
ONE(s_tanh, 1 - a * a)
ONE(s_tan, 1 + a * a)

static const struct {
    ir_formula value;
    double low, high;
    double (*slope)(double y, double unused);
} slopes_of_y[] = {{IR_FORMULA_relu, -2, 2, s_relu},
                   {IR_FORMULA_sigmoid, 0, 0.9, s_sigmoid},
                   {IR_FORMULA_tanh, -0.9, 0.9, s_tanh},
                   {IR_FORMULA_tan, -3, 3, s_tan}};

/* What is differentiated, how often, and between which operands. */
typedef struct derived {
    double (*value)(double a, double b);
    int order;
    double low, high;
} derived;

static derived of_reference(const ir_function *f, int order)
{
    static const ir_attr plain[4];
    const bool flagged = ir_formula_of(f->op, plain) != f->value;
    for (const ops_row *r = pointwise_rows; r->make; r++) {
        const double margin = (r->high - r->low) / 20;
        if (r->op == f->op && r->scalar && flagged == (r->make == flagged_one))
            return (derived){r->scalar, order, r->low + margin, r->high - margin};
    }
    return (derived){clip, order, -2, 2};
}

static derived derived_of(const ir_function *f, int order)
{
    for (size_t i = 0; i < sizeof slopes_of_y / sizeof *slopes_of_y; i++)
        if (slopes_of_y[i].value == f->value)
            return (derived){slopes_of_y[i].slope, order - 1, slopes_of_y[i].low, slopes_of_y[i].high};
    return of_reference(f, order);
}

/* Differences of fourth order. */
static double derivative(const derived *d, double x)
{
    const double h = d->order == 2 ? 5e-3 : 1e-3, f = d->value(x, 0);
    const double near = d->value(x + h, 0), far = d->value(x + 2 * h, 0);
    const double back = d->value(x - h, 0), farther = d->value(x - 2 * h, 0);
    if (d->order == 0) return f;
    if (d->order == 1) return (8 * (near - back) - (far - farther)) / (12 * h);
    return (16 * (near + back) - (far + farther) - 30 * f) / (12 * h * h);
}

/* Whether the derivative or its own derivative jumps near x. */
static bool is_near_kink(const derived *d, double x)
{
    const double left = derivative(d, x - 0.02), right = derivative(d, x + 0.02);
    return fabs(left - right) > 0.25 || fabs(left - 2 * derivative(d, x) + right) > 0.005;
}

static const derived *current;

static void derivative_reference(ops_case *c)
{
    for (int64_t i = 0; i < k_count(&c->out[0]); i++) c->expected[0][i] = c->x[0][i] * derivative(current, c->x[1][i]);
}

/* With the default attributes of the function's op, or others. */
static void set_derivative(ops_case *c, const ir_function *f, bool others)
{
    const ir_op_info *info = ir_op_get(f->op);
    ir_attr attr[4] = {{{0}}};
    for (int i = 0; i < info->n_attr; i++) {
        attr[i] = info->attr[i].initial;
        if (info->attr[i].kind == IR_SLOT_FLOAT && others)
            attr[i].f = (double)(float)(0.75 * attr[i].f + 0.1 * (i + 1));
        if (info->attr[i].kind == IR_SLOT_BOOL) attr[i].i = ir_formula_of(f->op, attr) != f->value;
    }
    ir_function_of(f->op, attr, c->attr);
    const ir_formula_params params = ir_formula_params_of(c->op, c->attr);
    P = params.p;
    Q = params.q;
}

static void derive(const ops_row *row, const ir_function *f, ir_dtype t, int s)
{
    const derived d = derived_of(f, row->op == IR_OP_slope ? 1 : 2);
    const bool bounds = ir_formula_get(f->value)->numbers == IR_NUMBERS_BOUNDS;
    ops_case c = case_of(row->op);
    set_derivative(&c, f, s % 2);
    bound_low = s & 1 ? -1 : -INFINITY;
    bound_high = s & 2 ? 0.5 : INFINITY;
    case_in(&c, t, shapes[s].rank_y, shapes[s].y, -2, 2);
    double *x = case_in(&c, t, shapes[s].rank_y, shapes[s].y, d.low, d.high);
    for (int64_t i = 0; i < k_count(&c.in[1]); i++)
        for (int tries = 1; tries < 20 && is_near_kink(&d, x[i]); tries++)
            x[i] = d.low + (d.high - d.low) * fmod(0.618 * tries + 0.01 * (double)i, 1);
    for (int i = 0; i < 2 && bounds; i++)
        if (s >> i & 1) *case_in(&c, t, 0, NULL, 0, 0) = i ? bound_high : bound_low;
        else case_absent(&c);
    case_out(&c, t, shapes[s].rank_y, shapes[s].y);
    c.units = t == IR_f64 ? 3e8 : row->units; /* the differences have an error of 1e-8 */
    c.size = row->size;
    current = &d;
    case_finish(&c, derivative_reference);
}

static void derivatives(const ops_row *row, ir_dtype t)
{
    for (int i = 0; ir_words_function[i]; i++) {
        const bool has = row->op == IR_OP_slope ? ir_functions[i].slope : ir_functions[i].curvature;
        for (int s = i % 4; s < SHAPES && has; s += 4) derive(row, &ir_functions[i], t, s);
    }
}

/* clang-format off */
#define B(op, groups, low, high, units) {IR_OP_##op, groups, two, low, high, r_##op, units, 0}
#define A(op, low, high, units) {IR_OP_##op, "F", altered, low, high, r_##op, units, 0}

const ops_row pointwise_rows[] = {
#define UNARY(op, groups, low, high, units, ...) {IR_OP_##op, groups, one, low, high, r_##op, units, 0},
#include "tests/ops/pointwise.def"
    {IR_OP_gelu, "F", one, -9, 9, r_gelu, 8, 1},
    {IR_OP_gelu, "F", flagged_one, -9, 9, r_gelu_tanh, 8, 1},
    {IR_OP_clip, "FI", bounded, 0, 0, NULL, 0, 0},
    {IR_OP_div_count, "F", counted, 0, 0, NULL, 1, 0},
    B(add, "FI", -100, 100, 1),     B(sub, "FI", -100, 100, 1),   B(mul, "FI", -100, 100, 1),
    B(div, "F", 0.2, 9, 1),         {IR_OP_div, "I", two, -9, 9, r_div_whole, 0, 0},
    B(pow, "F", 0.5, 4, 2),         {IR_OP_pow, "I", two, 0, 6, r_pow, 0, 0},
    B(min, "FI", -100, 100, 0),     B(max, "FI", -100, 100, 0),
    B(mod, "F", 1, 9, 2),           {IR_OP_mod, "I", two, 0, 9, r_mod_whole, 0, 0},
    {IR_OP_mod, "I", flagged_one, 0, 9, r_fmod_whole, 0, 0},
    {IR_OP_mod, "F", flagged_one, 1, 9, r_fmod, 2, 0},
    B(equal, "FIB", 0, 3, 0),       B(less, "FI", 0, 5, 0),       B(less_or_equal, "FI", 0, 5, 0),
    B(greater, "FI", 0, 5, 0),      B(greater_or_equal, "FI", 0, 5, 0),
    B(and, "B", 0, 1, 0),           B(or, "B", 0, 1, 0),          B(xor, "B", 0, 1, 0),
    {IR_OP_hard_sigmoid, "F", one, -4, 4, r_hard_sigmoid, 2, 1}, {IR_OP_hard_sigmoid, "F", altered, -4, 4, r_hard_sigmoid, 2, 1},
    {IR_OP_hard_swish, "F", altered, -5, 5, r_hard_swish, 4, 1},
    A(leaky_relu, -9, 9, 1),
    A(thresholded_relu, -3, 3, 0),
    A(elu, -9, 9, 6),
    A(selu, -9, 9, 6),              A(celu, -9, 9, 6),
    {IR_OP_swish, "F", altered, -20, 20, r_swish, 8, 1},
    A(shrink, -3, 3, 1),
    A(is_inf, -3, 3, 0),
    {IR_OP_bit_not, "I", one, 0, 100, r_bit_not, 0, 0},
    B(bit_and, "I", 0, 100, 0),     B(bit_or, "I", 0, 100, 0),    B(bit_xor, "I", 0, 100, 0),
    B(shift, "I", 0, 3, 0),         {IR_OP_shift, "I", flagged_one, 0, 6, r_shift_right, 0, 0},
    B(prelu, "F", -3, 3, 1),        {IR_OP_prelu, "I", two, 0, 5, r_prelu, 0, 0},
    {IR_OP_slope, "F", derivatives, 0, 0, NULL, 24, 1}, {IR_OP_curvature, "F", derivatives, 0, 0, NULL, 128, 1},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
/* clang-format on */
