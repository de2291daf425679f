/* test_loss_relations.c - relations that each built-in loss has whatever its values: scores may be shifted, samples and
 * classes exchanged, batches regrouped, labels inverted, and the loss scaled. Also through softmax and log_softmax as
 * operators of the model. In f32, with gradients compared element by element: small ones count like large ones.
 *
 * All scores are multiples of 2^-8, so that a shift by 2^14 is exact. */
#include "tests/train/loss_net.h"

#include <math.h>

enum { ITEMS = 8, CLASSES = 6, STEPS = 4, SPOKEN = 2, CELLS = ITEMS * STEPS * CLASSES };

typedef enum labels {
    CLASS,    /* one per row of scores */
    NUMBERS,  /* one per score */
    SEQUENCE, /* SPOKEN classes per sample, which has STEPS rows of scores */
} labels;
typedef enum values { SCORES, PROBABILITIES } values;

static const struct loss {
    const char *name;
    ir_op network; /* of x; IR_OP_add: none */
    labels labels;
    bool shifts; /* the same number may be added to all scores of a row */
    values x;
    bool odd;       /* inverting x and labels inverts the gradient */
    int swaps;      /* exchanging x and labels: 1: keeps the loss, -1: and inverts the gradient */
    bool of_batch;  /* samples compete */
    bool orders;    /* classes differ by more than their scores and labels */
    double cancels; /* relative error of gradients that the definition itself loses; 0: none */
} losses[] = {
    {"ce", IR_OP_add, CLASS, true, SCORES, false, 0, false, false, 0},
    {"ce,label_smoothing=0.1", IR_OP_add, CLASS, true, SCORES, false, 0, false, false, 1e-4},
    {"ce,class_weights=1/2/3/1/2/0.5", IR_OP_add, CLASS, true, SCORES, false, 0, false, true, 0},
    {"ce,class_weights=1/2/3/1/2/0.5,label_smoothing=0.1", IR_OP_add, CLASS, true, SCORES, false, 0, false, true, 1e-4},
    {"ce,ignore_index=2", IR_OP_add, CLASS, true, SCORES, false, 0, false, true, 0},
    {"ce,ignore_index=2,label_smoothing=0.1", IR_OP_add, CLASS, true, SCORES, false, 0, false, true, 1e-4},
    {"nll", IR_OP_add, CLASS, false, SCORES, false, 0, false, false, 0},
    {"nll,class_weights=1/2/3/1/2/0.5", IR_OP_add, CLASS, false, SCORES, false, 0, false, true, 0},
    {"nll", IR_OP_log_softmax, CLASS, true, SCORES, false, 0, false, false, 1e-5},
    {"soft_ce", IR_OP_add, NUMBERS, true, SCORES, false, 0, false, false, 1e-1}, /* y - p */
    {"kl", IR_OP_add, NUMBERS, false, SCORES, false, 0, false, false, 0},
    {"kl", IR_OP_log_softmax, NUMBERS, true, SCORES, false, 0, false, false, 1e-1},
    {"mse", IR_OP_log_softmax, NUMBERS, true, SCORES, false, 0, false, false, 1e-4},
    {"mse", IR_OP_softmax, NUMBERS, true, SCORES, false, 0, false, false, 1e-2},
    {"bce_logits", IR_OP_add, NUMBERS, false, SCORES, true, 0, false, false, 0},
    {"focal,alpha=0.5", IR_OP_add, NUMBERS, false, SCORES, true, 0, false, false, 0},
    {"focal,alpha=-1,gamma=0", IR_OP_add, NUMBERS, false, SCORES, true, 0, false, false, 0},
    {"bce", IR_OP_add, NUMBERS, false, PROBABILITIES, true, 0, false, false, 0},
    {"mse", IR_OP_add, NUMBERS, false, SCORES, false, -1, false, false, 0},
    {"l1", IR_OP_add, NUMBERS, false, SCORES, false, -1, false, false, 0},
    {"huber", IR_OP_add, NUMBERS, false, SCORES, false, -1, false, false, 0},
    {"smooth_l1", IR_OP_add, NUMBERS, false, SCORES, false, -1, false, false, 0},
    {"cosine,axis=1", IR_OP_add, NUMBERS, false, SCORES, false, 1, false, false, 1e-2},
    {"contrastive,temperature=1:s,label", IR_OP_add, NUMBERS, false, SCORES, false, 1, true, false, 1e-2},
    {"ctc,batch_axis=0", IR_OP_add, SEQUENCE, true, SCORES, false, 0, false, true, 2e-1}, /* y - p */
};
enum { LOSSES = sizeof losses / sizeof *losses };

typedef struct batch {
    const struct loss *of;
    const char *loss;
    int items;
    double x[CELLS], label[CELLS];
} batch;

typedef struct outcome {
    double loss, gradient[CELLS];
} outcome;

/* ---- running ----------------------------------------------------------------------------------- */

static int cells_of(const struct loss *l) { return l->labels == SEQUENCE ? STEPS * CLASSES : CLASSES; }

static int labels_of(const struct loss *l) { return l->labels == CLASS ? 1 : l->labels == NUMBERS ? CLASSES : SPOKEN; }

static outcome evaluate_in(const batch *p, ir_dtype dtype)
{
    const bool spoken = p->of->labels == SEQUENCE;
    const int64_t rows[] = {p->items, CLASSES}, steps[] = {p->items, STEPS, CLASSES}, items[] = {p->items, SPOKEN};
    const loss_tensor x = {IR_f64, spoken ? 3 : 2, spoken ? steps : rows, p->x};
    const loss_tensor label = {p->of->labels == NUMBERS ? IR_f64 : IR_i64, p->of->labels == CLASS ? 1 : 2,
                               spoken ? items : rows, p->label};
    outcome r = {0};
    r.loss = loss_run(p->loss, p->of->network, &x, &label, dtype, r.gradient);
    return r;
}

static outcome evaluate(const batch *p) { return evaluate_in(p, IR_f32); }

/* ---- batches ----------------------------------------------------------------------------------- */

/* Probabilities of each row that add up to 1 and are not 0. */
static void set_shares(batch *p)
{
    for (int i = 0; i < ITEMS * CLASSES; i++) p->label[i] = (1 + (i * 7 + i / CLASSES * 3) % CLASSES) / 21.0;
}

/* Scores from -16 to 16, or probabilities, with hard labels; but soft ones for kl. */
static batch batch_of(const struct loss *l)
{
    batch p = {.of = l, .loss = l->name, .items = ITEMS};
    uint32_t seed = 12345;
    for (int i = 0; i < ITEMS * cells_of(l); i++) {
        seed = seed * 1664525 + 1013904223;
        p.x[i] = (double)(seed >> 19) / 256 - 16;
        if (l->x == PROBABILITIES) p.x[i] = ((double)(seed >> 19) + 0.5) / 8192;
        if (i >= ITEMS * labels_of(l)) continue;
        if (l->labels == CLASS) p.label[i] = (double)((seed >> 8) % CLASSES);
        if (l->labels == NUMBERS) p.label[i] = (double)(seed >> 8 & 1);
        if (l->labels == SEQUENCE) p.label[i] = 1 + (double)((seed >> 8) % (CLASSES - 1));
    }
    if (strncmp(l->name, "soft_ce", 7) == 0)
        for (int i = 0; i < ITEMS * CLASSES; i++) p.label[i] = i % CLASSES == i / CLASSES % CLASSES;
    if (strcmp(l->name, "kl") == 0) set_shares(&p);
    return p;
}

static void expect_near(const struct loss *l, const char *relation, int i, double got, double expected, double bound)
{
    if (!(fabs(got - expected) <= bound * fabs(expected) + 1e-37))
        fail_msg("%s of %s, %s: %s %d is %.9g, not %.9g", l->name, ir_op_infos[l->network].name, relation,
                 i < 0 ? "the loss" : "gradient", i, got, expected);
}

static void expect_same(const struct loss *l, const char *relation, const outcome *got, const outcome *expected,
                        double bound)
{
    expect_near(l, relation, -1, got->loss, expected->loss, bound);
    for (int i = 0; i < ITEMS * cells_of(l); i++)
        expect_near(l, relation, i, got->gradient[i], expected->gradient[i], bound + 1e-4 * l->cancels);
}

/* The elements of groups of `size`, in reverse order. */
static void reverse(double *to, const double *from, int groups, int size)
{
    for (int i = 0; i < groups * size; i++) to[i] = from[(groups - 1 - i / size) * size + i % size];
}

/* ---- relations --------------------------------------------------------------------------------- */

/* A test of each loss `l` and a batch `p` of it. */
#define RELATION(name) \
    static void name##_of(const struct loss *l, const batch p); \
    TEST(name) \
    { \
        for (int k = 0; k < LOSSES; k++) name##_of(&losses[k], batch_of(&losses[k])); \
    } \
    static void name##_of(const struct loss *l, const batch p)

RELATION(f32_has_the_gradients_of_f64)
{
    const outcome got = evaluate(&p), expected = evaluate_in(&p, IR_f64);
    expect_near(l, "f64", -1, got.loss, expected.loss, 1e-5);
    for (int i = 0; i < ITEMS * cells_of(l); i++)
        expect_near(l, "f64", i, got.gradient[i], expected.gradient[i], l->cancels > 0 ? l->cancels : 1e-5);
}

RELATION(scores_may_be_shifted)
{
    batch shifted = p;
    for (int i = 0; i < CELLS; i++) shifted.x[i] += i / CLASSES % 2 ? 0x1p14 : -0x1p14;
    if (!l->shifts) return;
    const outcome expected = evaluate(&p), got = evaluate(&shifted);
    expect_near(l, "shift", -1, got.loss, expected.loss, 1e-6);
    for (int i = 0; i < ITEMS * cells_of(l); i++)
        expect_near(l, "shift", i, got.gradient[i], expected.gradient[i], 1e-5 + l->cancels);
}

RELATION(samples_may_be_exchanged)
{
    batch turned = p;
    reverse(turned.x, p.x, ITEMS, cells_of(l));
    reverse(turned.label, p.label, ITEMS, labels_of(l));
    const outcome expected = evaluate(&p), got = evaluate(&turned);
    outcome back = got;
    reverse(back.gradient, got.gradient, ITEMS, cells_of(l));
    expect_same(l, "exchanged samples", &back, &expected, 1e-6);
}

RELATION(classes_may_be_exchanged)
{
    batch turned = p;
    if (l->orders) return;
    for (int i = 0; i < ITEMS; i++) {
        reverse(turned.x + i * CLASSES, p.x + i * CLASSES, CLASSES, 1);
        if (l->labels == NUMBERS) reverse(turned.label + i * CLASSES, p.label + i * CLASSES, CLASSES, 1);
        else turned.label[i] = CLASSES - 1 - p.label[i];
    }
    const outcome expected = evaluate(&p), got = evaluate(&turned);
    outcome back = got;
    for (int i = 0; i < ITEMS; i++) reverse(back.gradient + i * CLASSES, got.gradient + i * CLASSES, CLASSES, 1);
    expect_same(l, "exchanged classes", &back, &expected, 2e-6 + 1e-2 * l->cancels);
}

/* The mean over a batch is that of its halves, unless the numbers of labels or their weights differ. */
RELATION(batches_may_be_regrouped)
{
    const int cells = ITEMS / 2 * cells_of(l), count = ITEMS / 2 * labels_of(l);
    outcome sum = {0};
    if (l->of_batch || strstr(p.loss, "weights") || strstr(p.loss, "ignore")) return;
    for (int half = 0; half < 2; half++) {
        batch q = p;
        q.items = ITEMS / 2;
        memcpy(q.x, p.x + half * cells, (size_t)cells * sizeof *q.x);
        memcpy(q.label, p.label + half * count, (size_t)count * sizeof *q.label);
        const outcome part = evaluate(&q);
        sum.loss += part.loss / 2;
        for (int i = 0; i < cells; i++) sum.gradient[half * cells + i] = part.gradient[i] / 2;
    }
    const outcome expected = evaluate(&p);
    expect_same(l, "regrouped", &sum, &expected, 1e-6);
}

/* A power of two as the weight of the loss changes exponents only. */
RELATION(losses_may_be_scaled)
{
    char text[128];
    const struct loss exact = {.name = l->name, .network = l->network, .labels = l->labels};
    batch scaled = p;
    const int kind = (int)strcspn(p.loss, ":");
    snprintf(text, sizeof text, "%.*s,weight=0.0009765625%s", kind, p.loss, p.loss + kind);
    scaled.loss = text;
    outcome expected = evaluate(&p), got = evaluate(&scaled);
    got.loss *= 1024;
    for (int i = 0; i < CELLS; i++) got.gradient[i] *= 1024;
    expect_same(&exact, "scaled", &got, &expected, 0);
}

RELATION(binary_labels_may_be_inverted)
{
    batch inverse = p;
    if (!l->odd) return;
    for (int i = 0; i < CELLS; i++) {
        inverse.x[i] = l->x == PROBABILITIES ? 1 - p.x[i] : -p.x[i];
        inverse.label[i] = 1 - p.label[i];
    }
    const outcome expected = evaluate(&p);
    outcome got = evaluate(&inverse);
    for (int i = 0; i < CELLS; i++) got.gradient[i] = -got.gradient[i];
    expect_same(l, "inverted labels", &got, &expected, 2e-7);
}

/* Of a distance, exactly; of directions, the loss only. */
RELATION(pairs_may_be_exchanged)
{
    batch turned = p;
    if (!l->swaps) return;
    memcpy(turned.x, p.label, sizeof p.x);
    memcpy(turned.label, p.x, sizeof p.x);
    const outcome expected = evaluate(&p), got = evaluate(&turned);
    expect_near(l, "exchanged pairs", -1, got.loss, expected.loss, l->swaps < 0 ? 0 : 1e-6);
    for (int i = 0; l->swaps < 0 && i < ITEMS * CLASSES; i++)
        expect_near(l, "exchanged pairs", i, -got.gradient[i], expected.gradient[i], 0);
}

/* As in PyTorch: the loss is bounded, and the gradient is not zero where it is needed most. */
TEST(impossible_labels_have_a_gradient)
{
    const struct loss bce = {.name = "bce", .network = IR_OP_add, .labels = NUMBERS};
    const batch p = {
        .of = &bce, .loss = "bce", .items = 1, .x = {0, 1, 0, 1, 0.5, 0x1p-60}, .label = {1, 0, 0, 1, 1, 1}};
    const double expected[] = {-1e12, 1e12, 1, -1, -2, -1e12};
    const outcome r = evaluate(&p);
    expect_near(&bce, "certainty", -1, r.loss, (200 + log(2) + 60 * log(2)) / CLASSES, 1e-6);
    for (int i = 0; i < CLASSES; i++) expect_near(&bce, "certainty", i, r.gradient[i] * CLASSES, expected[i], 1e-6);
}
