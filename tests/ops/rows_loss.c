/* rows_loss.c - losses on class labels and their gradients. */
#include "tests/ops/ops.h"
#include "tests/rows.h"

#include <math.h>
#include <string.h>

static const struct {
    int rank;
    int64_t dims[4]; /* of x [N, C, ...] */
} shapes[] = {{2, {5, 7}},        {2, {1, 1}},    {2, {0, 4}},   {2, {40, 1000}}, {3, {3, 5, 9}},
              {4, {2, 6, 3, 19}}, {2, {300, 10}}, {2, {257, 3}}, {2, {2, 4097}},
#define EDGE(n) {2, {2, n}},
              OPS_EDGES(EDGE)
#undef EDGE
};
enum { SHAPES = sizeof shapes / sizeof *shapes, VARIANTS = 3 * 2 * 2 }; /* reduction, weights, ignored labels */

static int64_t inner(const k_view *x)
{
    int64_t n = 1;
    for (int d = 2; d < x->rank; d++) n *= x->dims[d];
    return n;
}

typedef struct item {
    int64_t start, stride, classes, label; /* label -1: ignored */
    double weight, total;                  /* total: divisor of dloss */
} item;

static double weight(const ops_case *c, int label, int weights, int64_t i)
{
    if (c->x[label][i] == (double)c->attr[0].i) return 0;
    bool given = weights < c->n_in && k_present(&c->in[weights]);
    return given ? c->x[weights][(int64_t)c->x[label][i]] : 1;
}

static item item_of(const ops_case *c, int x, int label, int weights, int64_t i)
{
    int64_t stride = inner(&c->in[x]), columns = c->in[x].dims[1], classes = c->attr[2].i ? c->attr[2].i : columns;
    item m = {i / stride * stride * columns + i % stride, stride, classes, -1, weight(c, label, weights, i), 1};
    if (c->x[label][i] != (double)c->attr[0].i) m.label = (int64_t)c->x[label][i];
    if (c->attr[1].i != IR_WORD(loss, mean)) return m;
    m.total = 0;
    for (int64_t k = 0; k < k_count(&c->in[label]); k++) m.total += weight(c, label, weights, k);
    return m;
}

static double log_sum(const double *x, const item *m)
{
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < m->classes; k++) most = fmax(most, x[m->start + k * m->stride]);
    for (int64_t k = 0; k < m->classes; k++) sum += exp(x[m->start + k * m->stride] - most);
    return most + log(sum);
}

/* Computes result `to`, the loss of the scores in operand x. */
static void add_loss(ops_case *c, int to, int x, int label, bool entropy)
{
    double sum = 0, total = 0;
    for (int64_t i = 0; i < k_count(&c->in[label]); i++) {
        item m = item_of(c, x, label, label + 1, i);
        double e = entropy && m.label >= 0 ? log_sum(c->x[x], &m) : 0;
        double loss = m.label < 0 ? 0 : m.weight * (e - c->x[x][m.start + m.label * m.stride]);
        if (c->attr[1].i == IR_WORD(loss, none)) c->expected[to][i] = loss;
        sum += loss;
        total += m.weight;
    }
    if (c->attr[1].i != IR_WORD(loss, none))
        c->expected[to][0] = c->attr[1].i == IR_WORD(loss, sum) ? sum : sum / total;
}

static void loss_reference(ops_case *c)
{
    bool entropy = c->op == IR_OP_softmax_cross_entropy;
    add_loss(c, 0, 0, 1, entropy);
    for (int64_t i = 0; entropy && i < k_count(&c->in[1]); i++) {
        item m = item_of(c, 0, 1, 2, i);
        double e = log_sum(c->x[0], &m);
        if (k_present(&c->out[1])) c->expected[1][i] = e;
        for (int64_t k = 0; k_present(&c->out[2]) && k < c->in[0].dims[1]; k++)
            c->expected[2][m.start + k * m.stride] = k < m.classes ? c->x[0][m.start + k * m.stride] - e : -INFINITY;
    }
}

static void loss_grad_reference(ops_case *c)
{
    bool entropy = c->op == IR_OP_softmax_cross_entropy_grad;
    int x = 1, label = entropy ? 3 : 2;
    if (k_present(&c->out[1])) add_loss(c, 1, x, label, true);
    for (int64_t i = 0; i < k_count(&c->in[label]); i++) {
        item m = item_of(c, x, label, label + 1, i);
        double dloss = c->x[0][c->attr[1].i == IR_WORD(loss, none) ? i : 0] * m.weight / m.total;
        double e = entropy ? log_sum(c->x[x], &m) : 0;
        for (int64_t k = 0; k < c->in[x].dims[1]; k++) {
            int64_t at = m.start + k * m.stride;
            double slope = (entropy ? exp(c->x[x][at] - e) : 0) - (k == m.label);
            c->expected[0][at] = m.weight == 0 || k >= m.classes ? 0 : dloss * slope;
        }
    }
}

/* Adds labels and weights; some labels are ignored if the variant has the `ignore` bit. */
static void labels_in(ops_case *c, ir_dtype group, int s, int variant)
{
    int64_t dims[3] = {shapes[s].dims[0], shapes[s].dims[2], shapes[s].dims[3]};
    double *label = case_in(c, variant & 1 ? IR_i32 : IR_i64, shapes[s].rank - 1, dims, 0,
                            (double)shapes[s].dims[1] - 1);
    int64_t n = k_count(&c->in[c->n_in - 1]);
    c->attr[0].i = variant & 1 ? -100 : INT64_MIN;
    for (int64_t i = 1; variant & 1 && i < n; i += 3) label[i] = -100;
    if (variant & 2) case_in(c, group, 1, shapes[s].dims + 1, 0.5, 2);
    else case_absent(c);
}

/* Adds x [N, C + padding, ...]. */
static void scores_in(ops_case *c, ir_dtype t, int s, int64_t padding, double low, double high)
{
    int64_t dims[4];
    memcpy(dims, shapes[s].dims, sizeof dims);
    dims[1] += padding;
    if (padding) c->attr[2].i = shapes[s].dims[1];
    case_in(c, t, shapes[s].rank, dims, low, high);
}

static void losses(const ops_row *row, ir_dtype t, int64_t padding)
{
    bool entropy = row->op == IR_OP_softmax_cross_entropy;
    for (int k = 0; k < SHAPES * VARIANTS; k++) {
        ops_case c = case_of(row->op);
        int s = k / VARIANTS, variant = k % VARIANTS;
        int64_t items[3] = {shapes[s].dims[0], shapes[s].dims[2], shapes[s].dims[3]};
        ir_dtype wide = t == IR_f64 ? t : IR_f32;
        c.attr[1].i = variant / 4;
        scores_in(&c, t, s, padding, entropy ? -5 : -9, entropy ? 5 : 0);
        labels_in(&c, variant & 1 ? wide : t, s, variant);
        case_out(&c, wide, variant / 4 ? 0 : shapes[s].rank - 1, items);
        if (entropy) {
            case_out(&c, variant & 1 ? wide : IR_NO_DTYPE, shapes[s].rank - 1, items);
            case_out(&c, variant & 2 ? t : IR_NO_DTYPE, shapes[s].rank, c.in[0].dims);
        }
        c.floor = 1;
        c.units = 12 + (variant / 4 ? (double)items[0] / 32 : 0); /* sums of positive terms: items, and their weights */
        case_finish(&c, loss_reference);
    }
}

/* `joined`: with the loss (kernels/loss.h), which every other case does not want. Its low scores need their lse. */
static void gradients(const ops_row *row, ir_dtype t, bool joined, int64_t padding)
{
    bool entropy = row->op == IR_OP_softmax_cross_entropy_grad;
    for (int k = 0; k < SHAPES * VARIANTS; k++) {
        ops_case c = case_of(row->op);
        int s = k / VARIANTS, variant = k % VARIANTS;
        int64_t items[3] = {shapes[s].dims[0], shapes[s].dims[2], shapes[s].dims[3]};
        ir_dtype wide = t == IR_f64 ? t : IR_f32;
        const bool is_wanted = !joined || k % 2;
        const double middle = is_wanted || t == IR_f64 ? 0 : -500; /* the reference is f64 */
        c.attr[1].i = variant / 4;
        case_in(&c, wide, variant / 4 ? 0 : shapes[s].rank - 1, items, 0.5, 2);
        scores_in(&c, t, s, padding, middle - 5, middle + 5);
        if (joined) case_absent(&c);
        else if (entropy) case_in(&c, wide, shapes[s].rank - 1, items, 4, 9); /* rounded: it is not that of x */
        labels_in(&c, wide, s, variant);
        case_out(&c, t, shapes[s].rank, c.in[1].dims);
        if (joined) case_out(&c, is_wanted ? wide : IR_NO_DTYPE, variant / 4 ? 0 : shapes[s].rank - 1, items);
        c.floor = 1;
        c.units = 12 + (joined && variant / 4 ? (double)items[0] / 32 : 0);
        case_finish(&c, loss_grad_reference);
    }
}

static void loss_grad(const ops_row *row, ir_dtype t) { gradients(row, t, false, 0); }
static void joined_grad(const ops_row *row, ir_dtype t) { gradients(row, t, true, 0); }
static void loss(const ops_row *row, ir_dtype t) { losses(row, t, 0); }
static void padded(const ops_row *row, ir_dtype t) { losses(row, t, 3); }
static void padded_grad(const ops_row *row, ir_dtype t) { gradients(row, t, false, 3); }
static void padded_joined_grad(const ops_row *row, ir_dtype t) { gradients(row, t, true, 3); }

/* Scores that are infinite or NaN: their rows have the loss and gradient NaN, except where the gradient of the loss is 0. */
static void not_finite_reference(ops_case *c)
{
    loss_grad_reference(c);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++) c->expected[0][3 * i + k] = i < 3 ? NAN : 0;
}

static void not_finite(const ops_row *row, ir_dtype t)
{
    const int64_t scores[] = {4, 3}, items[] = {4};
    static const double x[] = {INFINITY, 1, 2, NAN, 1, 2, -INFINITY, -INFINITY, -INFINITY, NAN, INFINITY, 1};
    ops_case c = case_of(row->op);
    c.attr[0].i = -1;
    c.attr[1].i = IR_WORD(loss, none);
    case_in(&c, t == IR_f64 ? t : IR_f32, 1, items, 1, 1);
    memcpy(case_in(&c, t, 2, scores, 0, 0), x, sizeof x);
    case_absent(&c);
    double *label = case_in(&c, IR_i64, 1, items, 1, 1);
    label[3] = -1;
    case_absent(&c);
    case_out(&c, t, 2, scores);
    case_out(&c, t == IR_f64 ? t : IR_f32, 1, items);
    c.units = 12;
    case_finish(&c, not_finite_reference);
}

/* A label outside the classes, including the ignore index that means "none". */
static void outside(const ops_row *row, ir_dtype t)
{
    static const double bad[] = {3, -1, -0x1p63};
    const bool entropy = row->op == IR_OP_softmax_cross_entropy;
    const int64_t scores[] = {40, entropy ? 5 : 3}, items[] = {40};
    for (int i = 0; i < 3; i++) {
        ops_case c = case_of(row->op);
        c.attr[2].i = entropy ? 3 : 0; /* the rest is padding */
        case_in(&c, t, 2, scores, -5, 5);
        double *label = case_in(&c, IR_i64, 1, items, 0, 2);
        case_absent(&c);
        case_out(&c, t == IR_f64 ? t : IR_f32, 0, NULL);
        assert_int_equal(case_run(&c), AMPC_OK);
        label[33] = bad[i];
        assert_int_equal(case_run(&c), AMPC_REJECTED);
        case_end(&c);
    }
}

const ops_row loss_rows[] = {
    {IR_OP_softmax_cross_entropy, "F", loss, 0, 0, NULL, 0, 0},
    {IR_OP_softmax_cross_entropy_grad, "F", loss_grad, 0, 0, NULL, 0, 0},
    {IR_OP_softmax_cross_entropy_grad, "F", joined_grad, 0, 0, NULL, 0, 0},
    {IR_OP_softmax_cross_entropy_grad, "F", not_finite, 0, 0, NULL, 0, 0},
    {IR_OP_softmax_cross_entropy, "F", padded, 0, 0, NULL, 0, 0},
    {IR_OP_softmax_cross_entropy_grad, "F", padded_grad, 0, 0, NULL, 0, 0},
    {IR_OP_softmax_cross_entropy_grad, "F", padded_joined_grad, 0, 0, NULL, 0, 0},
    {IR_OP_nll_loss, "F", loss, 0, 0, NULL, 0, 0},
    {IR_OP_nll_loss_grad, "F", loss_grad, 0, 0, NULL, 0, 0},
    {IR_OP_softmax_cross_entropy, "F", outside, 0, 0, NULL, 0, 0},
    {IR_OP_nll_loss, "F", outside, 0, 0, NULL, 0, 0},
    {0, NULL, NULL, 0, 0, NULL, 0, 0},
};
