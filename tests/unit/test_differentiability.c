/* test_differentiability.c - the operands with a gradient (frontend/onnx.def) are those that ONNX declares
 * differentiable, or may be floats and have no declaration (differentiability.def). `deviations` are all others, each
 * with its reason. */
#include "tests/gradients.h"
#include "tests/test.h"

static const struct schema {
    const char *op;
    int since;
    const char *operands;
} schemas[] = {
#define SCHEMA(op, since, operands) {#op, since, operands},
#include "tests/unit/differentiability.def"
};

static const char *const imported[] = {
#define FORM(op, ...) #op,
#include "frontend/onnx.def"
};

enum {
    SCHEMAS = sizeof schemas / sizeof *schemas,
    ROWS = sizeof gradient_table / sizeof *gradient_table,
    IMPORTED = sizeof imported / sizeof *imported,
    MAX_OPERANDS = 10,
    NAME = 40,
};

/* ---- deviations ------------------------------------------------------------------------------------------------ */

#define PYTORCH "ONNX: no; PyTorch: yes"
#define STEPS "PyTorch has a derivative, zero"
#define POSITIONS "the result is positions or a permutation of the operand, and PyTorch has no derivative"
#define RANDOM "the result is drawn"
#define SHAPE "only the shape or type is read"
#define COUNT "the result is a number of elements, or whether there is one"
#define QUANTISED "the result is integers without a straight-through derivative"
static const struct deviation {
    const char *op, *operand, *reason;
    bool has_gradient;
} deviations[] = {
    {"AffineGrid", "theta", PYTORCH, true},
    {"Ceil", "X", STEPS, true},
    {"Clip", "min", PYTORCH, true},
    {"Clip", "max", PYTORCH, true},
    {"DFT", "input", PYTORCH, true},
    {"Floor", "X", STEPS, true},
    {"GRU", "initial_h", PYTORCH, true},
    {"GridSample", "grid", PYTORCH, true},
    {"LSTM", "initial_c", PYTORCH, true},
    {"LSTM", "initial_h", PYTORCH, true},
    {"Mod", "B", PYTORCH, true},
    {"NegativeLogLikelihoodLoss", "weight", PYTORCH, true},
    {"OneHot", "values", "ONNX: no; the result is a selection of them", true},
    {"Pad", "constant_value", "ONNX: no; the result contains it", true},
    {"RNN", "initial_h", PYTORCH, true},
    {"Round", "X", STEPS, true},
    {"STFT", "signal", PYTORCH, true},
    {"STFT", "window", PYTORCH, true},
    {"Sign", "input", STEPS, true},
    {"SoftmaxCrossEntropyLoss", "weights", PYTORCH, true},
    {"Bernoulli", "input", RANDOM, false},
    {"DynamicQuantizeLinear", "x", QUANTISED, false},
    {"EyeLike", "input", SHAPE, false},
    {"Hardmax", "input", "ONNX: yes; the result is one-hot, a position", false},
    {"NonMaxSuppression", "boxes", POSITIONS, false},
    {"NonMaxSuppression", "iou_threshold", POSITIONS, false},
    {"NonMaxSuppression", "score_threshold", POSITIONS, false},
    {"NonMaxSuppression", "scores", POSITIONS, false},
    {"OptionalHasElement", "input", COUNT, false},
    {"QLinearConv", "w_scale", QUANTISED, false},
    {"QLinearConv", "x_scale", QUANTISED, false},
    {"QLinearConv", "y_scale", QUANTISED, false},
    {"RandomNormalLike", "input", SHAPE, false},
    {"RandomUniformLike", "input", SHAPE, false},
    {"Range", "delta", "the operands decide the shape", false},
    {"Range", "limit", "the operands decide the shape", false},
    {"Range", "start", "the operands decide the shape", false},
    {"RoiAlign", "rois", "torchvision has no derivative", false},
    {"SequenceLength", "input_sequence", COUNT, false},
    {"Upsample", "scales", "the operand decides the shape", false},
};
enum { DEVIATIONS = sizeof deviations / sizeof *deviations };

/* ---- operands -------------------------------------------------------------------------------------------------- */

typedef struct operand {
    char mark, name[NAME]; /* mark ' ': none */
} operand;

/* Returns the number of operands. */
static int split(const char *text, operand out[MAX_OPERANDS])
{
    int n = 0;
    for (size_t length; *text; text += length + (text[length] == ' ')) {
        length = strcspn(text, " ");
        const bool marked = strchr("*+-#?", *text) != NULL;
        assert_true(n < MAX_OPERANDS && length < NAME);
        out[n].mark = marked ? *text : ' ';
        snprintf(out[n++].name, NAME, "%.*s", (int)length - marked, text + marked);
    }
    return n;
}

static const struct deviation *find_deviation(const char *op, const char *name)
{
    for (int i = 0; i < DEVIATIONS; i++)
        if (!strcmp(deviations[i].op, op) && !strcmp(deviations[i].operand, name)) return &deviations[i];
    return NULL;
}

static bool has_gradient(const operand *o) { return o->mark == ' ' || o->mark == '*'; }
static bool may_have_one(const operand *declared) { return declared->mark == '+' || declared->mark == '?'; }

static void compare(const char *op, const operand *ours, const operand *declared)
{
    const struct deviation *d = find_deviation(op, declared->name);
    const bool expected = d ? d->has_gradient : may_have_one(declared);
    if (strcmp(ours->name, declared->name) != 0)
        fail_msg("%s: operand \"%s\" is called \"%s\" in ONNX", op, ours->name, declared->name);
    if (declared->mark == '#' && ours->mark != '#')
        fail_msg("%s: %s is never a float, and its mark is '%c', not '#'", op, ours->name, ours->mark);
    if (has_gradient(ours) != expected)
        fail_msg("%s: %s has %s, unlike in ONNX", op, ours->name, expected ? "no gradient" : "a gradient");
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static const struct schema *find_schema(const char *op)
{
    for (int i = 0; i < SCHEMAS; i++)
        if (strcmp(schemas[i].op, op) == 0) return &schemas[i];
    return NULL;
}

TEST(every_imported_operator_has_one_row)
{
    for (int i = 0; i < IMPORTED; i++) {
        int rows = 0;
        for (int k = 0; k < ROWS; k++) rows += strcmp(gradient_table[k].op, imported[i]) == 0;
        if (rows != 1) fail_msg("%s has %d rows in frontend/onnx.def", imported[i], rows);
        if (!find_schema(imported[i]))
            fail_msg("%s is not in differentiability.def: run tests/unit/make_differentiability.py", imported[i]);
    }
    for (int k = 0; k < ROWS; k++) {
        bool known = false;
        for (int i = 0; i < IMPORTED; i++) known |= strcmp(gradient_table[k].op, imported[i]) == 0;
        if (!known) fail_msg("%s is not imported, but has a row in frontend/onnx.def", gradient_table[k].op);
    }
}

TEST(operands_differ_from_onnx_with_a_reason)
{
    for (int k = 0; k < ROWS; k++) {
        operand ours[MAX_OPERANDS], declared[MAX_OPERANDS];
        const char *op = gradient_table[k].op;
        const int n = split(gradient_table[k].operands, ours), m = split(find_schema(op)->operands, declared);
        if (n != m) fail_msg("%s: %d operands, but %d in ONNX", op, n, m);
        for (int i = 0; i < n; i++) compare(op, &ours[i], &declared[i]);
    }
}

TEST(deviations_deviate)
{
    for (int i = 0; i < DEVIATIONS; i++) {
        operand declared[MAX_OPERANDS];
        const struct schema *s = find_schema(deviations[i].op);
        bool deviates = false;
        assert_non_null(s);
        for (int k = split(s->operands, declared); k-- > 0;)
            deviates |= strcmp(declared[k].name, deviations[i].operand) == 0 &&
                        may_have_one(&declared[k]) != deviations[i].has_gradient;
        if (!deviates) fail_msg("%s, %s: as in ONNX", deviations[i].op, deviations[i].operand);
    }
}
