/* test_operators.c - every ONNX operator has a colour in the default profile, which equals that of the table below, a
 * merge of the lists in common mixed-precision converters. A row: operators, colour for fp16, colour for bf16. */
#include "frontend/onnx.h"
#include "passes/amp/list.h"
#include "tests/unit/scratch.h"

#include <string.h>

typedef struct row {
    const char *operators;
    ir_colour fp16, bf16;
    const char *fields; /* attributes of the operator; NULL: none */
} row;

static const row rows[] = {
    {"MatMul Gemm Conv ConvTranspose Einsum Attention", IR_WHITE, IR_WHITE, NULL},
    {"LSTM GRU RNN LinearAttention CausalConvWithState DeformConv", IR_WHITE, IR_WHITE, NULL},
    {"Add Sub Mul Sum Mean Div", IR_GRAY, IR_GRAY, NULL},
    {"Neg Abs Sign Ceil Floor Round", IR_CLEAR, IR_CLEAR, NULL},
    {"Mod", IR_GRAY, IR_BLACK, NULL}, /* integers above 256 */
    {"Relu LeakyRelu PRelu ThresholdedRelu Clip Shrink", IR_CLEAR, IR_CLEAR, NULL},
    {"Sigmoid Tanh HardSigmoid HardSwish Swish SwiGLU Softsign Elu Selu Gelu Erf", IR_GRAY, IR_GRAY, NULL},
    {"Celu IsNaN IsInf Range", IR_BLACK, IR_BLACK, NULL}, /* fixed f32 */
    {"BlackmanWindow HannWindow HammingWindow MelWeightMatrix BitCast", IR_BLACK, IR_BLACK, NULL},
    {"Mish Softplus Exp Log Pow", IR_BLACK, IR_BLACK, NULL},
    {"Sqrt Reciprocal", IR_BLACK, IR_GRAY, NULL}, /* an epsilon below 6.1e-5 */
    {"Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Det", IR_BLACK, IR_BLACK, NULL},
    {"Softmax LogSoftmax LayerNormalization RMSNormalization GroupNormalization InstanceNormalization", IR_BLACK,
     IR_BLACK, NULL},
    {"MeanVarianceNormalization LpNormalization LRN", IR_BLACK, IR_BLACK, NULL},
    {"Hardmax ArgMax ArgMin TopK", IR_CLEAR, IR_CLEAR, NULL},
    {"BatchNormalization", IR_GRAY, IR_GRAY, NULL},
    {"ReduceSum ReduceMean ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceProd", IR_BLACK,
     IR_BLACK, NULL},
    {"ReduceMax ReduceMin Max Min", IR_CLEAR, IR_CLEAR, NULL},
    {"CumSum CumProd GlobalAveragePool GlobalLpPool MaxRoiPool RoiAlign AffineGrid", IR_BLACK, IR_BLACK, NULL},
    {"AveragePool LpPool Col2Im Resize GridSample Upsample Dropout", IR_GRAY, IR_GRAY, NULL},
    {"MaxPool GlobalMaxPool MaxUnpool", IR_CLEAR, IR_CLEAR, NULL},
    {"DepthToSpace SpaceToDepth Reshape Flatten Squeeze Unsqueeze Transpose", IR_CLEAR, IR_CLEAR, NULL},
    {"Identity Expand Tile Concat Split Slice Pad", IR_CLEAR, IR_CLEAR, NULL},
    {"Trilu CenterCropPad ReverseSequence Compress Gather GatherElements GatherND TensorScatter Where", IR_CLEAR,
     IR_CLEAR, NULL},
    {"ScatterElements ScatterND Scatter", IR_CLEAR, IR_CLEAR, NULL},
    {"ScatterElements ScatterND", IR_CLEAR, IR_CLEAR, "i64 \"axis\"=0, \"reduction\"=\"max\""},
    {"ScatterElements ScatterND", IR_BLACK, IR_BLACK, "i64 \"axis\"=0, \"reduction\"=\"add\""},
    {"ScatterElements ScatterND", IR_BLACK, IR_BLACK, "\"reduction\"=\"mul\""},
    {"Unique NonZero Equal Less LessOrEqual Greater GreaterOrEqual OneHot", IR_CLEAR, IR_CLEAR, NULL},
    {"EyeLike ConstantOfShape Constant RandomNormal", IR_CLEAR, IR_CLEAR, NULL},
    {"RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial", IR_CLEAR, IR_CLEAR, NULL},
    {"DFT STFT RotaryEmbedding SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", IR_BLACK, IR_BLACK, NULL},
    {"DynamicQuantizeLinear NonMaxSuppression QLinearConv TfIdfVectorizer", IR_BLACK, IR_BLACK, NULL},
    {"QuantizeLinear DequantizeLinear QLinearMatMul", IR_GRAY, IR_GRAY, NULL},
    {"ConvInteger MatMulInteger BitShift BitwiseAnd BitwiseOr BitwiseXor", IR_CLEAR, IR_CLEAR, NULL},
    {"BitwiseNot And Or Xor Not Shape Size", IR_CLEAR, IR_CLEAR, NULL},
    {"StringConcat StringSplit StringNormalizer RegexFullMatch ImageDecoder", IR_CLEAR, IR_CLEAR, NULL},
    {"Cast CastLike If Loop Scan SequenceMap", IR_CLEAR, IR_CLEAR, NULL}, /* by special rules */
    {"SequenceConstruct SequenceAt SequenceInsert SequenceErase SequenceEmpty SequenceLength", IR_CLEAR, IR_CLEAR,
     NULL},
    {"SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement", IR_CLEAR, IR_CLEAR, NULL},
    {"Adam Adagrad Momentum", IR_BLACK, IR_BLACK, NULL},
};

/* Returns the colour of operator `op` in a module that contains only this operator. */
static ir_colour colour_of(scratch *t, const char *op, const char *fields, ir_dtype low)
{
    char text[512];
    ir_module *m;
    amp_list *l;
    compile_options o = compile_options_default();
    o.low = low;
    int n = snprintf(text, sizeof text,
                     "ampc-ir 3\ngraph @infer(@x : f32[4]) as infer {\n  %%y = opaque @x [t:t] {"
                     "fields={%s}} : f32[4] !%s \"n\"\n  output \"y\" = %%y\n}\n",
                     fields ? fields : "", op);
    if (ir_parse(text, (size_t)n, "m.ir", t->d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    arena *a = arena_new(0);
    assert_int_equal(amp_list_load(&o, a, t->d, &l), AMPC_OK);
    const list_entry *line = amp_list_find(l, op, m->graphs.items[0]->first, low);
    if (!line) fail_msg("%s has no colour", op);
    ir_colour colour = line->colour;
    arena_free(a);
    ir_module_free(m);
    return colour;
}

static void check_row(scratch *t, const row *r, char *seen)
{
    char names[256];
    snprintf(names, sizeof names, "%s", r->operators);
    for (char *at = names, *op; (op = strtok_r(at, " ", &at));) {
        const onnx_operator *schema = onnx_operator_find(op);
        if (schema) seen[schema - onnx_operators] = 1;
        if (colour_of(t, op, r->fields, IR_f16) != r->fp16) fail_msg("%s in fp16", op);
        if (colour_of(t, op, r->fields, IR_bf16) != r->bf16) fail_msg("%s in bf16", op);
    }
}

TEST_SCRATCH(test_merged_table)
{
    char seen[512] = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_row(t, &rows[i], seen);
    for (size_t i = 0; onnx_operators[i].name; i++)
        if (!seen[i]) fail_msg("%s is in no row", onnx_operators[i].name);
}

TEST_SCRATCH(test_every_operator_has_a_colour)
{
    for (size_t i = 0; onnx_operators[i].name; i++) {
        colour_of(t, onnx_operators[i].name, NULL, IR_f16);
        assert_ptr_equal(onnx_operator_find(onnx_operators[i].name), &onnx_operators[i]);
        assert_non_null(strchr(onnx_operators[i].types, '>'));
        assert_true(!onnx_operators[i].bf16 || onnx_operators[i].bf16 >= onnx_operators[i].since);
    }
    assert_null(onnx_operator_find("Convolution"));
}
