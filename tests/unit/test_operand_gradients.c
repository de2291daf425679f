/* test_operand_gradients.c - every form of every operator in frontend/lower/onnx_ops.def and other_ops.def: a trainable
 * initializer in any differentiable operand position receives its gradient.
 *
 * All float operands of a node are initializers at once, to detect compile-time folding and reading of them: they
 * must still be parameters after compilation, and d(loss)/d(operand) must equal central differences. Then each of them
 * in turn is computed from a parameter (its negative), also operands that are settings if they are stored, such as
 * statistics and bounds. Which operands have a gradient is the table frontend/lower/gradients.def, which the kinds of
 * operands in the rows must agree with. A form without a row fails the first test, as does one whose rows omit an
 * operand. */
#include "frontend/onnx.h"
#include "frontend/read/tensor.h"
#include "passes/passes.h"
#include "tests/session.h"
#include "tests/compile.h"
#include "tests/gradients.h"
#include "tests/unit/model_writer.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { MAX_OPERANDS = 10, MAX_FORMS = 256, MAX_CELLS = 256 };

typedef enum kind {
    ABSENT,
    SKIPPED,  /* absent, before other operands */
    PARAM,    /* float, trained: of both signs, all distinct, none near 0 */
    POSITIVE, /* the same, all positive */
    FRACTION, /* PARAM halved: between -1 and 1 */
    ABOVE_ONE,
    SETTING, /* float, not trained, but differentiable if it is computed */
    NUMBERS, /* float, not differentiable */
    INTS,
    BOOLS
} kind;

typedef struct operand {
    kind kind;
    const char *dims;
    double values[8]; /* of the kinds that are not drawn */
} operand;

typedef struct row {
    const char *op; /* after "domain:" if it is in other_ops.def */
    int opset;
    operand in[MAX_OPERANDS];
    const char *attributes; /* "axis=1 mode=edge pads=1,1" : digits are an int, with a comma ints, letters text */
    const char *outputs;    /* NULL: one */
    bool flat;              /* the derivative is zero wherever it exists */
} row;

/* clang-format off */
#define P(dims) {PARAM, dims, {0}}
#define Q(dims) {POSITIVE, dims, {0}}
#define N(dims, ...) {NUMBERS, dims, {__VA_ARGS__}}
#define C(dims, ...) {SETTING, dims, {__VA_ARGS__}}
#define I(dims, ...) {INTS, dims, {__VA_ARGS__}}
#define B(dims, ...) {BOOLS, dims, {__VA_ARGS__}}
#define S {SKIPPED, "", {0}}
#define UNARY(op, opset) {op, opset, {P("2,3")}, NULL, NULL, false}
#define BINARY(op, opset) {op, opset, {P("2,3"), P("3")}, NULL, NULL, false}
/* clang-format on */

#define ML "ai.onnx.ml:"
#define MS "com.microsoft:"
#define NCHWC "com.microsoft.nchwc:"
static const row rows[] = {
    {":SimplifiedLayerNormalization", 17, {P("2,3"), P("3")}, "axis=1", "y,rstd", false},
    {MS "SkipLayerNormalization", 17, {P("1,2,3"), P("1,2,3"), P("3"), P("3"), P("3")}, NULL, "y,,,sum", false},
    {MS "SkipSimplifiedLayerNormalization", 17, {P("2,2,3"), P("2,3"), P("3"), P("3")}, NULL, NULL, false},
    {MS "EmbedLayerNormalization",
     17,
     {I("1,2", 0, 1), I("1,2", 1, 0), P("2,3"), P("2,3"), P("2,3"), P("3"), P("3"), I("1,2", 1, 1), I("1,2", 1, 0)},
     NULL,
     "y,index,sum",
     false},
    {ML "ArrayFeatureExtractor", 17, {P("2,3"), I("2", 2, 0)}, NULL, NULL, false},
    {ML "Scaler", 17, {P("2,3")}, "offset=0.5,0.25,1.0 scale=2.0,0.5,3.0", NULL, false},
    {ML "Normalizer", 17, {P("2,3")}, "norm=L2", NULL, false},
    {ML "LinearRegressor", 17, {P("2,2")}, "coefficients=1.0,0.5 intercepts=0.5,", NULL, false},
    {ML "LinearClassifier",
     17,
     {P("2,2")},
     "coefficients=1.0,0.5,2.0,1.5 intercepts=0.5,1.0 classlabels_ints=0,1",
     "label,y",
     false},
    {MS "Attention",
     17,
     {P("1,2,2"), P("2,6"), P("6"), I("1,2", 1, 1), S, P("1,1,2,2"), S},
     "num_heads=2",
     NULL,
     false},
    {MS "Attention", 17, {P("1,2,2"), P("2,6"), P("6"), S, P("2,1,2,1,1"), S, S}, "num_heads=2", NULL, false},
    {MS "MultiHeadAttention",
     17,
     {P("1,2,2"), P("1,3,2"), P("1,3,2"), P("6"), S, P("1,1,2,4"), P("1,2,1,1"), P("1,2,1,1"), S, S},
     "num_heads=2",
     NULL,
     false},
    {MS "Gelu", 17, {P("2,3")}, NULL, NULL, false},
    {MS "BiasGelu", 17, {P("2,3"), P("3")}, NULL, NULL, false},
    {MS "FastGelu", 17, {P("2,3"), P("3")}, NULL, NULL, false},
    {MS "QuickGelu", 17, {P("2,3")}, "alpha=1.5", NULL, false},
    {MS "FusedMatMul", 17, {P("3,2,2"), P("2,2,3")}, "transA=1 transBatchA=1 transB=1 alpha=0.5", NULL, false},
    {MS "TransposeMatMul", 17, {P("2,3"), P("2,2")}, "transA=1", NULL, false},
    {MS "FusedGemm", 17, {P("2,3"), P("3,2"), P("2")}, "activation=LeakyRelu activation_alpha=0.5", NULL, false},
    {MS "FusedConv",
     17,
     {P("1,2,3,3"), P("2,2,2,2"), P("2"), P("1,2,2,2")},
     "activation=HardSigmoid activation_params=0.02,0.5",
     NULL,
     false},
    {NCHWC "Conv",
     17,
     {P("1,16,2,2"), P("16,16,1,1"), P("16"), P("1,16,2,2")},
     "activation=LeakyRelu activation_params=0.5,",
     NULL,
     false},
    {NCHWC "ReorderInput", 17, {P("1,3,2,2")}, NULL, NULL, false},
    {NCHWC "ReorderOutput", 17, {P("1,8,2,2")}, "channels=3", NULL, false},
    {NCHWC "MaxPool", 17, {P("1,8,2,2")}, "kernel_shape=2,2", NULL, false},
    {NCHWC "AveragePool", 17, {P("1,8,2,2")}, "kernel_shape=2,2", NULL, false},
    {NCHWC "GlobalMaxPool", 17, {P("1,8,2,2")}, NULL, NULL, false},
    {NCHWC "GlobalAveragePool", 17, {P("1,8,2,2")}, NULL, NULL, false},
    {NCHWC "Upsample", 17, {P("1,8,2,2")}, "scales=1,1,2,2 mode=linear", NULL, false},
    {"Conv", 11, {P("1,2,4,4"), P("3,2,2,2"), P("3")}, NULL, NULL, false},
    {"Gemm", 9, {P("2,3"), P("3,2"), P("2")}, NULL, NULL, false},
    {"Gemm", 13, {P("2,3"), P("2,3"), P("1,2")}, "transB=1", NULL, false},
    {"MatMul", 13, {P("2,2,3"), P("3,2")}, NULL, NULL, false},
    {"MaxPool", 12, {P("1,2,4,4")}, "kernel_shape=2,2", NULL, false},
    {"AveragePool", 11, {P("1,2,4,4")}, "kernel_shape=2,2", NULL, false},
    {"GlobalAveragePool", 1, {P("1,2,3,3")}, NULL, NULL, false},
    {"ConvTranspose", 11, {P("1,2,3,3"), P("2,3,2,2"), P("3")}, "strides=2,2 output_padding=1,0", NULL, false},
    {"LpPool", 1, {P("1,2,4,4")}, "kernel_shape=2,2", NULL, false},
    {"LpPool", 18, {P("1,2,4,4")}, "kernel_shape=2,2 p=3", NULL, false},
    {"GlobalLpPool", 1, {P("1,2,4,4")}, NULL, NULL, false},
    {"GlobalLpPool", 2, {P("1,2,4,4")}, "p=1", NULL, false},
    {"Resize", 10, {P("1,1,3,2"), N("4", 1, 1, 2, 1.5)}, "mode=linear", NULL, false},
    {"Resize", 11, {P("1,1,3,2"), N("0", 0), N("0", 0), I("4", 1, 1, 5, 3)}, "mode=linear", NULL, false},
    {"Resize", 13, {P("1,1,3,2"), N("0", 0), N("4", 1, 1, 2, 2)}, "mode=cubic", NULL, false},
    {"Resize", 18, {P("1,1,3,2"), N("0", 0), N("0", 0), I("4", 1, 1, 2, 5)}, "mode=linear antialias=1", NULL, false},
    {"GridSample", 16, {P("1,2,3,4"), P("1,2,2,2")}, "padding_mode=border", NULL, false},
    {"GridSample", 20, {P("1,2,3,4"), P("1,2,2,2")}, "mode=cubic", NULL, false},
    {"AffineGrid", 20, {P("1,2,3"), I("4", 1, 1, 2, 3)}, NULL, NULL, false},
    {"RoiAlign", 10, {P("1,2,4,4"), N("1,4", 0.5, 0.3, 2.9, 2.2), I("1", 0)}, "output_width=2", NULL, false},
    {"RoiAlign", 16, {P("1,2,4,4"), N("1,4", 0.5, 0.3, 2.9, 2.2), I("1", 0)}, "mode=max sampling_ratio=2", NULL, false},
    {"DeformConv", 19, {P("1,2,3,3"), P("2,2,2,2"), P("1,8,2,2"), P("2"), P("1,4,2,2")}, NULL, NULL, false},
    {"DFT", 17, {P("1,5,2"), I("", 4)}, NULL, NULL, false},
    {"DFT", 20, {P("2,4,1"), I("", 5), I("", 0)}, "onesided=1", NULL, false},
    {"STFT", 17, {P("1,8,1"), I("", 2), P("4"), I("", 4)}, NULL, NULL, false},
    {"Upsample", 7, {P("1,1,3,2")}, "scales=1.0,1.0,2.0,2.0", NULL, false},
    {"Upsample", 9, {P("1,1,3,2"), N("4", 1, 1, 2, 3)}, "mode=linear", NULL, false},
    {"GlobalMaxPool", 1, {P("1,2,3,3")}, NULL, NULL, false},
    {"Einsum", 12, {P("2,3"), P("3,4")}, "equation=ij,jk->ki", NULL, false},
    {"Einsum", 12, {P("2,2,3"), P("2,3"), P("3")}, "equation=b...i,bi,i", NULL, false},
    {"Einsum", 12, {P("3,2,3"), P("2,1")}, "equation=iji,j...->...i", NULL, false},
    {"BatchNormalization", 9, {P("3,2,2"), P("2"), P("2"), C("2", 0.1, 0.2), C("2", 1.5, 0.7)}, NULL, NULL, false},
    {"BatchNormalization", 9, {P("3,2,2"), P("2"), P("2"), C("2", 0, 0), C("2", 1, 1)}, NULL, "y,m,v,s,t", false},
    {"BatchNormalization", 15, {P("3,2,2"), P("2"), P("2"), C("2", 0.1, 0.2), C("2", 1.5, 0.7)}, NULL, NULL, false},
    {"BatchNormalization",
     15,
     {P("3,2,2"), P("2"), P("2"), C("2", 0, 0), C("2", 1, 1)},
     "training_mode=1",
     "y,m,v",
     false},
    {"LayerNormalization", 17, {P("2,4"), P("4"), P("4")}, NULL, NULL, false},
    {"RMSNormalization", 23, {P("2,4"), P("4")}, NULL, NULL, false},
    {"InstanceNormalization", 6, {P("2,2,4"), P("2"), P("2")}, NULL, NULL, false},
    {"GroupNormalization", 18, {P("2,4,3"), P("2"), P("2")}, "num_groups=2", NULL, false},
    {"GroupNormalization", 21, {P("2,4,3"), P("4"), P("4")}, "num_groups=2", NULL, false},
    {"MeanVarianceNormalization", 13, {P("2,3,2,2")}, NULL, NULL, false},
    {"LpNormalization", 1, {P("2,3")}, NULL, NULL, false},
    {"LpNormalization", 1, {P("2,3")}, "p=1 axis=0", NULL, false},
    {"LRN", 13, {P("2,4,2,2")}, "size=3", NULL, false},
    {"Softmax", 11, {P("2,3")}, NULL, NULL, false},
    {"Softmax", 13, {P("2,3")}, NULL, NULL, false},
    {"LogSoftmax", 11, {P("2,2,2")}, "axis=1", NULL, false},
    {"LogSoftmax", 13, {P("2,3")}, NULL, NULL, false},
    {"Dropout", 10, {P("2,8")}, NULL, NULL, false},
    {"Dropout", 13, {P("2,8"), N("", 0.5), B("", 1)}, NULL, NULL, false},
    {"SoftmaxCrossEntropyLoss", 13, {P("2,3"), I("2", 0, 2), C("3", 1, 2, 0.5)}, NULL, NULL, false},
    {"NegativeLogLikelihoodLoss", 13, {P("2,3"), I("2", 0, 2), C("3", 1, 2, 0.5)}, NULL, NULL, false},
    UNARY("Abs", 13),
    UNARY("Cos", 7),
    UNARY("Erf", 13),
    UNARY("Exp", 13),
    UNARY("Neg", 13),
    UNARY("Reciprocal", 13),
    UNARY("Relu", 14),
    UNARY("Sigmoid", 13),
    UNARY("Sin", 7),
    UNARY("Softplus", 1),
    UNARY("Softsign", 1),
    UNARY("Tanh", 13),
    UNARY("Gelu", 20),
    UNARY("HardSigmoid", 6),
    UNARY("HardSwish", 14),
    UNARY("LeakyRelu", 16),
    UNARY("ThresholdedRelu", 10),
    UNARY("Elu", 6),
    UNARY("Selu", 6),
    UNARY("Celu", 12),
    UNARY("Mish", 18),
    UNARY("Swish", 24),
    UNARY("Shrink", 9),
    UNARY("Atan", 7),
    UNARY("Sinh", 9),
    UNARY("Cosh", 9),
    UNARY("Asinh", 9),
    {"Tan", 7, {{FRACTION, "2,3", {0}}}, NULL, NULL, false},
    {"Asin", 7, {{FRACTION, "2,3", {0}}}, NULL, NULL, false},
    {"Acos", 7, {{FRACTION, "2,3", {0}}}, NULL, NULL, false},
    {"Atanh", 9, {{FRACTION, "2,3", {0}}}, NULL, NULL, false},
    {"Acosh", 9, {{ABOVE_ONE, "2,3", {0}}}, NULL, NULL, false},
    BINARY("PRelu", 16),
    BINARY("Mean", 13),
    {"Log", 13, {Q("2,3")}, NULL, NULL, false},
    {"Sqrt", 13, {Q("2,3")}, NULL, NULL, false},
    {"Ceil", 13, {P("2,3")}, NULL, NULL, true},
    {"Floor", 13, {P("2,3")}, NULL, NULL, true},
    {"Round", 11, {P("2,3")}, NULL, NULL, true},
    {"Sign", 13, {P("2,3")}, NULL, NULL, true},
    BINARY("Add", 14),
    BINARY("Sub", 14),
    BINARY("Mul", 14),
    BINARY("Div", 14),
    BINARY("Sum", 13),
    BINARY("Min", 13),
    BINARY("Max", 13),
    {"Mod", 13, {P("2,3"), P("3")}, "fmod=1", NULL, false},
    {"Pow", 15, {Q("2,3"), P("3")}, NULL, NULL, false},
    {"Pow", 15, {Q("2,3"), P("")}, NULL, NULL, false},
    {"Clip", 6, {P("2,3")}, NULL, NULL, false},
    {"Clip", 13, {P("2,8"), C("", -0.55), C("", 1.13)}, NULL, NULL, false},
    {"Where", 16, {B("2,3", 1, 0, 0, 1, 1, 0), P("2,3"), P("3")}, NULL, NULL, false},
    {"Cast", 13, {P("2,3")}, "to=11", NULL, false},
    {"CastLike", 15, {P("2,3"), N("1", 1)}, NULL, NULL, false},
    UNARY("Identity", 14),
    {"Reshape", 14, {P("2,3"), I("2", 3, 2)}, NULL, NULL, false},
    UNARY("Flatten", 13),
    {"Squeeze", 13, {P("2,1,3"), I("1", 1)}, NULL, NULL, false},
    {"Unsqueeze", 13, {P("2,3"), I("1", 1)}, NULL, NULL, false},
    UNARY("Transpose", 13),
    {"Concat", 13, {P("2,3"), P("1,3")}, "axis=0", NULL, false},
    {"Split", 13, {P("4,3"), I("2", 1, 3)}, NULL, "y,z", false},
    {"Slice", 9, {P("4,3")}, "starts=1, ends=3,", NULL, false},
    {"Slice", 13, {P("4,3"), I("1", 1), I("1", 4), I("1", 0), I("1", 2)}, NULL, NULL, false},
    {"Pad", 10, {P("2,3")}, "pads=1,0,0,1 mode=edge", NULL, false},
    {"Pad", 18, {P("2,3"), I("2", 1, 1), C("", 0.3), I("1", 1)}, NULL, NULL, false},
    {"Expand", 13, {P("2,1"), I("3", 2, 2, 3)}, NULL, NULL, false},
    {"Tile", 13, {P("2,3"), I("2", 2, 1)}, NULL, NULL, false},
    {"Trilu", 14, {P("3,3"), I("", 1)}, NULL, NULL, false},
    {"Gather", 13, {P("4,3"), I("3", 1, 3, 1)}, NULL, NULL, false},
    {"ScatterND", 18, {P("4,3"), I("3,1", 1, 3, 1), P("3,3")}, NULL, NULL, false},
    {"ScatterND", 18, {P("2,3"), I("2,2", 1, 2, -2, 0), P("2")}, NULL, NULL, false},
    {"ScatterND", 13, {P("4,3"), I("3,1", 1, 3, 1), P("3,3")}, NULL, NULL, false},
    {"ScatterND", 16, {P("4,3"), I("3,1", 1, 3, 1), P("3,3")}, "reduction=mul", NULL, false},
    {"GatherElements", 13, {P("4,3"), I("3,2", 1, 3, 1, 0, -1, 2)}, NULL, NULL, false},
    {"GatherND", 13, {P("2,3"), I("2,1", 1, -1)}, "batch_dims=1", NULL, false},
    {"Scatter", 10, {P("4,3"), I("1,2", 1, 3), P("1,2")}, NULL, NULL, false},
    {"ScatterElements", 13, {P("4,3"), I("2,2", 1, 3, 1, 0), P("2,2")}, NULL, NULL, false},
    {"ScatterElements", 16, {P("4,3"), I("2,2", 1, 3, 1, 0), P("2,2")}, "reduction=add", NULL, false},
    {"ScatterElements", 18, {P("4,3"), I("2,2", 1, 3, 1, 0), P("2,2")}, "reduction=max", NULL, false},
    {"TensorScatter", 24, {P("2,2,4,3"), P("2,2,2,3"), I("2", 3, 1)}, "mode=circular", NULL, false},
    {"ReverseSequence", 10, {P("4,2,2"), I("2", 3, 1)}, NULL, NULL, false},
    {"ReverseSequence", 10, {P("2,4"), I("2", 3, 1)}, "batch_axis=0 time_axis=1", NULL, false},
    {"MaxUnpool",
     11,
     {P("1,1,2,2"), I("1,1,2,2", 1, 6, 8, 15), I("4", 1, 1, 5, 5)},
     "kernel_shape=2,2 strides=2,2",
     NULL,
     false},
    {"DepthToSpace", 13, {P("1,8,1,2")}, "blocksize=2 mode=CRD", NULL, false},
    {"SpaceToDepth", 13, {P("1,2,2,4")}, "blocksize=2", NULL, false},
    {"Col2Im", 18, {P("1,8,4"), I("2", 3, 3), I("2", 2, 2)}, NULL, NULL, false},
    {"CenterCropPad", 18, {P("4,3"), I("2", 3, 6)}, NULL, NULL, false},
    {"OneHot", 11, {I("3", 1, 5, -1), I("", 3), P("2")}, NULL, NULL, false},
    {"Compress", 11, {P("4,3"), B("3", 1, 0, 1)}, "axis=0", NULL, false},
    {"Attention",
     23,
     {P("1,2,2,2"), P("1,2,2,2"), P("1,2,2,2"), P("2,3"), P("1,2,1,2"), P("1,2,1,2")},
     "is_causal=1",
     NULL,
     false},
    {"Attention",
     24,
     {P("2,2,4"), P("2,3,2"), P("2,3,2"), P("2,3"), S, S, I("2", 3, 2)},
     "q_num_heads=2 kv_num_heads=1 is_causal=1",
     NULL,
     false},
    {"RotaryEmbedding", 23, {P("1,2,2,4"), P("3,2"), P("3,2"), I("1,2", 0, 2)}, NULL, NULL, false},
    {"RotaryEmbedding",
     23,
     {P("1,2,8"), P("1,2,1"), P("1,2,1")},
     "num_heads=2 rotary_embedding_dim=2 interleaved=1",
     NULL,
     false},
    {"ReduceMean", 13, {P("2,3")}, "axes=1,", NULL, false},
    {"ReduceMean", 18, {P("2,3"), I("1", 0)}, NULL, NULL, false},
    {"ReduceSum", 11, {P("2,3")}, "axes=1,", NULL, false},
    {"ReduceSum", 13, {P("2,3"), I("1", 0)}, NULL, NULL, false},
    {"ReduceL1", 13, {P("2,3")}, "axes=1,", NULL, false},
    {"ReduceL1", 18, {P("2,3"), I("1", 0)}, NULL, NULL, false},
    {"ReduceL2", 13, {P("2,3")}, "axes=1,", NULL, false},
    {"ReduceL2", 18, {P("2,3"), I("1", 0)}, NULL, NULL, false},
    {"ReduceLogSum", 13, {Q("2,3")}, "axes=1,", NULL, false},
    {"ReduceLogSum", 18, {Q("2,3"), I("1", 0)}, NULL, NULL, false},
    {"ReduceLogSumExp", 13, {P("2,3")}, "axes=1,", NULL, false},
    {"ReduceLogSumExp", 18, {P("2,3"), I("1", 0)}, NULL, NULL, false},
    {"ReduceMax", 13, {P("2,3")}, "axes=1,", NULL, false},
    {"ReduceMax", 18, {P("2,3"), I("1", 0)}, NULL, NULL, false},
    {"ReduceMin", 13, {P("2,3")}, "axes=1,", NULL, false},
    {"ReduceMin", 18, {P("2,3"), I("1", 0)}, NULL, NULL, false},
    {"ReduceProd", 13, {P("2,3")}, "axes=1,", NULL, false},
    {"ReduceProd", 18, {P("2,3"), I("1", 0)}, NULL, NULL, false},
    {"ReduceSumSquare", 13, {P("2,3")}, "axes=1,", NULL, false},
    {"ReduceSumSquare", 18, {P("2,3"), I("1", 0)}, NULL, NULL, false},
    {"TopK", 1, {P("2,5")}, "k=2", "y,i", false},
    {"TopK", 11, {P("5,2"), I("1", 3)}, "axis=0 largest=0", "y,i", false},
    {"CumSum", 11, {P("2,3"), I("", 1)}, "reverse=1", NULL, false},
    {"Det", 11, {P("2,3,3")}, NULL, NULL, false},
    {"RNN", 7, {P("3,2,2"), P("1,2,2"), P("1,2,2"), P("1,4"), I("2", 3, 2), P("1,2,2")}, NULL, "y,h", false},
    {"RNN",
     14,
     {P("2,3,2"), P("2,2,2"), P("2,2,2"), P("2,4"), I("2", 1, 3), P("2,2,2")},
     "direction=bidirectional layout=1",
     "y,h",
     false},
    {"GRU", 7, {P("3,2,2"), P("1,6,2"), P("1,6,2"), P("1,12"), I("2", 3, 2), P("1,2,2")}, NULL, "y,h", false},
    {"GRU",
     14,
     {P("2,3,2"), P("2,6,2"), P("2,6,2"), P("2,12"), I("2", 1, 3), P("2,2,2")},
     "direction=bidirectional layout=1 linear_before_reset=1",
     "y,h",
     false},
    {"LSTM",
     7,
     {P("3,2,2"), P("1,8,2"), P("1,8,2"), P("1,16"), I("2", 3, 2), P("1,2,2"), P("1,2,2"), P("1,6")},
     "direction=reverse",
     "y,h,c",
     false},
    {"LSTM",
     14,
     {P("2,3,2"), P("2,8,2"), P("2,8,2"), P("2,16"), I("2", 1, 3), P("2,2,2"), P("2,2,2"), P("2,6")},
     "direction=bidirectional layout=1",
     "y,h,c",
     false},
    {"If", 16, {B("", 1)}, NULL, NULL, false}, /* its branches capture a parameter, and so do the bodies of these: */
    {"Loop", 16, {I("", 2), B("", 1), P("2,3")}, NULL, NULL, false},
    {"Scan", 8, {S, P("1,2,3"), P("1,2,2,3")}, "num_scan_inputs=1", NULL, false},
    {"Scan", 16, {P("2,3"), P("2,2,3")}, "num_scan_inputs=1", NULL, false},
};

/* Operators without rows: their gradient goes straight through the rounding, unlike difference quotients, or they are of
 * other domains and return integers or read their operands at compile time. Those of ONNX without a gradient are in
 * frontend/lower/gradients.def. */
static const char *const without[] = {"QuantizeLinear",
                                      "DequantizeLinear",
                                      MS "QuantizeLinear",
                                      MS "DequantizeLinear",
                                      MS "QLinearAdd",
                                      MS "QLinearMul",
                                      MS "QLinearSigmoid",
                                      MS "QLinearLeakyRelu",
                                      MS "QLinearSoftmax",
                                      MS "QLinearAveragePool",
                                      MS "QLinearGlobalAveragePool",
                                      MS "QLinearConcat",
                                      MS "QGemm",
                                      MS "MatMulNBits",
                                      MS "MatMulIntegerToFloat",
                                      MS "DynamicQuantizeMatMul",
                                      MS "DynamicQuantizeLSTM",
                                      NULL};

/* Operators on sequences or with bodies, whose gradients tests/forms and test_bodies.c check. */
static const char *const elsewhere[] = {"SequenceConstruct",
                                        "SequenceEmpty",
                                        "SequenceLength",
                                        "SequenceAt",
                                        "SequenceInsert",
                                        "SequenceErase",
                                        "SplitToSequence",
                                        "ConcatFromSequence",
                                        "SequenceMap",
                                        "Optional",
                                        "OptionalGetElement",
                                        "OptionalHasElement",
                                        NULL};

/* ---- coverage ------------------------------------------------------------------------------------- */

static const struct {
    const char *op;
    int since, max;
    const char *letters; /* instead of max */
} forms[] = {
#define ROW(op, since, min_in, max_in, max_out, handler, arg) \
    {#op, since, (max_in) == ONNX_ANY ? 2 : (int)(max_in), NULL},
#include "frontend/lower/onnx_ops.def"
#define OTHER(domain, op, letters, handler, arg, limits) {domain ":" #op, 1, 0, letters},
#include "frontend/lower/other_ops.def"
};

enum { FORMS = sizeof forms / sizeof *forms, ROWS = sizeof rows / sizeof *rows };

static int count_operands(const row *r)
{
    int n = 0;
    while (n < MAX_OPERANDS && r->in[n].kind) n++;
    return n;
}

/* The number of operands of a form. */
static int max_of(int form)
{
    int n = forms[form].max;
    for (const char *at = forms[form].letters; at && *at != '>'; at++) n += isalpha((unsigned char)*at) != 0;
    return n;
}

static bool is_of(const row *r, int form)
{
    bool last = form + 1 == FORMS || strcmp(forms[form + 1].op, forms[form].op) != 0;
    return strcmp(r->op, forms[form].op) == 0 && r->opset >= forms[form].since &&
           (last || r->opset < forms[form + 1].since);
}

static bool has_subgraphs(const char *op) { return !strcmp(op, "If") || !strcmp(op, "Loop") || !strcmp(op, "Scan"); }

static void every_form_has_a_row(void **state)
{
    (void)state;
    for (int f = 0; f < FORMS; f++) {
        int max = 0;
        for (int i = 0; i < ROWS; i++)
            if (is_of(&rows[i], f) && count_operands(&rows[i]) > max) max = count_operands(&rows[i]);
        bool none = !forms[f].letters && !has_subgraphs(forms[f].op) && !gradient_of_any(forms[f].op), other = false;
        for (int i = 0; without[i]; i++) none |= strcmp(without[i], forms[f].op) == 0;
        for (int i = 0; elsewhere[i]; i++) other |= strcmp(elsewhere[i], forms[f].op) == 0;
        int expected = strcmp(forms[f].op, "Split") == 0 || has_subgraphs(forms[f].op) ? max : max_of(f);
        if (!other && (none ? max > 0 : !max || max < expected))
            fail_msg("%s of opset %d: rows for %d of %d operands", forms[f].op, forms[f].since, max, max_of(f));
    }
}

/* ---- models ---------------------------------------------------------------------------------------- */

static size_t count_cells(const char *dims)
{
    size_t n = 1;
    for (const char *p = dims; *p; p += strcspn(p, ","), p += *p == ',') n *= (size_t)atoi(p);
    return n;
}

static bool is_trained(const operand *o) { return o->kind >= PARAM && o->kind <= ABOVE_ONE; }

static float drawn(const operand *o, int number, size_t i)
{
    size_t k = i + 31 * (size_t)number;
    float size = 0.6f + 1.2f * (float)(k * 37 % 101) / 101;
    if (o->kind == FRACTION) size /= 2;
    if (o->kind == ABOVE_ONE) size += 0.5f;
    return (o->kind == PARAM || o->kind == FRACTION) && k % 3 == 1 ? -size : size;
}

static float value_of(const operand *o, int number, size_t i)
{
    return is_trained(o) ? drawn(o, number, i) : (float)o->values[i];
}

static wire initializer(const operand *o, int number)
{
    float floats[MAX_CELLS];
    int64_t ints[8];
    unsigned char bools[8];
    char name[8];
    size_t n = count_cells(o->dims);
    bool is_drawn = is_trained(o);
    assert_true(n <= (is_drawn ? MAX_CELLS : 8));
    snprintf(name, sizeof name, "a%d", number);
    for (size_t i = 0; i < n; i++) floats[i] = value_of(o, number, i);
    for (size_t i = 0; i < n && !is_drawn; i++) ints[i] = (int64_t)o->values[i], bools[i] = o->values[i] > 0;
    if (o->kind == INTS) return tensor_new(name, ONNX_int64, o->dims, ints, n * sizeof *ints);
    if (o->kind == BOOLS) return tensor_new(name, ONNX_bool, o->dims, bools, n);
    return tensor_new(name, ONNX_float32, o->dims, floats, n * sizeof *floats);
}

static void add_attributes(node *n, const char *text)
{
    while (text && *text) {
        char name[32], value[32];
        size_t length = strcspn(text, "="), end = strcspn(text, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, text);
        snprintf(value, sizeof value, "%.*s", (int)(end - length - 1), text + length + 1);
        bool number = isdigit((unsigned char)*value), list = number && strchr(value, ',') != NULL;
        bool real = strchr(value, '.') != NULL;
        if (list && value[strlen(value) - 1] == ',') value[strlen(value) - 1] = 0;
        if (list && real) node_floats(n, name, value);
        else if (number && real) node_float(n, name, strtof(value, NULL));
        else if (list) node_ints(n, name, value);
        else if (number) node_int(n, name, atoll(value));
        else node_text(n, name, value);
        text += end + (text[end] == ' ');
    }
}

static void add_branch(node *n, const char *name, const char *op)
{
    model subgraph = model_new(16);
    model_node(&subgraph, op, "a1", "inner");
    model_output(&subgraph, "inner", 0, NULL);
    node_graph(n, name, &subgraph);
}

/* The carried value s becomes sin(s) * a3, or sin(s) * a2 + x with the slice x. */
/* The body captures operand `captured`. */
static void add_body(node *n, bool scan, int captured)
{
    model body = model_new(16);
    char factors[16];
    snprintf(factors, sizeof factors, "s1,a%d", captured);
    if (!scan) model_input(&body, "i", ONNX_int64, "");
    if (!scan) model_input(&body, "go", ONNX_bool, "");
    model_input(&body, "s", ONNX_float32, "2,3");
    if (scan) model_input(&body, "x", ONNX_float32, "2,3");
    model_node(&body, "Sin", "s", "s1");
    model_node(&body, "Mul", factors, "s2");
    if (scan) model_node(&body, "Add", "s2,x", "s3");
    else model_output(&body, "go", ONNX_bool, "");
    model_output(&body, scan ? "s3" : "s2", ONNX_float32, "2,3");
    node_graph(n, "body", &body);
}

static const operand captured_by_body = P("2,3"); /* after the operands */

static bool is_computable(const operand *o) { return is_trained(o) || o->kind == SETTING; }

/* Operand `number` is the negative of a parameter, "minus". */
static void compute(model *m, const operand *o, int number)
{
    float negatives[MAX_CELLS];
    char name[8];
    size_t n = count_cells(o->dims);
    for (size_t i = 0; i < n; i++) negatives[i] = -value_of(o, number, i);
    snprintf(name, sizeof name, "a%d", number);
    model_tensor(m, tensor_new("minus", ONNX_float32, o->dims, negatives, n * sizeof *negatives));
    model_node(m, "Neg", "minus", name);
}

static model model_of(const row *r, int computed)
{
    model m = model_new(r->opset);
    char names[64] = "";
    int n = count_operands(r);
    for (int i = 0; i < n; i++) {
        const bool skipped = r->in[i].kind == SKIPPED;
        if (i == computed) compute(&m, &r->in[i], i);
        else if (!skipped) model_tensor(&m, initializer(&r->in[i], i));
        snprintf(names + strlen(names), sizeof names - strlen(names), skipped ? "%s" : "%sa%d", i ? "," : "", i);
    }
    const char *domain_end = strchr(r->op, ':');
    node made = node_new(domain_end ? domain_end + 1 : r->op, names, r->outputs ? r->outputs : "y");
    if (domain_end) wire_bytes(&made, 7, r->op, (size_t)(domain_end - r->op));
    add_attributes(&made, r->attributes);
    if (has_subgraphs(r->op)) model_tensor(&m, initializer(&captured_by_body, n));
    if (has_subgraphs(r->op) && strcmp(r->op, "If") != 0) add_body(&made, strcmp(r->op, "Scan") == 0, n);
    if (strcmp(r->op, "If") == 0) {
        add_branch(&made, "then_branch", "Sin");
        add_branch(&made, "else_branch", "Cos");
    }
    model_add(&m, &made);
    model_output(&m, "y", 0, NULL);
    return m;
}

/* ---- one row ----------------------------------------------------------------------------------------- */

typedef struct problem {
    scratch *t;
    const row *row;
    int computed; /* the operand that is computed from a parameter, or -1 */
    ir_module *module;
    rt_session *session;
    rt_tensor label;
    float labels[MAX_CELLS];
} problem;

#define FAIL(p, what, why) fail_row((p)->row, what, why)

static void fail_row(const row *r, const char *what, const char *why)
{
    fail_msg("%s of opset %d, row %d: %s: %s", r->op, r->opset, (int)(r - rows), what, why);
}

static void compile_problem(problem *p)
{
    model m = model_of(p->row, p->computed);
    wire file = model_finish(&m);
    compile_options o = compile_options_default();
    bool has_loss = strstr(p->row->op, "Loss") != NULL;
    o.level = PASS_O0;
    o.mode = PASS_MODE_FILE;
    o.loss = has_loss ? NULL : "mse:y";
    const rt_session_options device = {.device = "cpu", .threads = 1};
    ampc_status status = onnx_import_memory(file.bytes, file.size, "m.onnx", NULL, p->t->d, &p->module);
    wire_free(&file);
    if (status == AMPC_OK) status = test_compile(p->module, &o, p->t->d);
    if (status == AMPC_OK) status = rt_session_open(p->module, &device, p->t->d, &p->session);
    if (status != AMPC_OK) FAIL(p, "not compiled", diag_first_error(p->t->d));
    const ir_value *label = ir_graph_find_input(ir_graph_find(p->module, "grad"), "label");
    if (!label) return;
    p->label = (rt_tensor){.name = "label", .dtype = IR_f32, .rank = label->type.rank, .data = p->labels};
    memcpy(p->label.dims, label->type.dims, sizeof p->label.dims);
    for (int i = 0; i < MAX_CELLS; i++) p->labels[i] = 3 + 0.1f * (float)(i * 7 % 13);
}

static double loss_of(problem *p)
{
    if (rt_session_run(p->session, "grad", &p->label, p->label.data ? 1 : 0, p->t->d) != AMPC_OK)
        FAIL(p, "does not run", diag_first_error(p->t->d));
    const ir_node *output = ir_output_by_role(ir_graph_by_role(p->module, IR_GRAPH_grad), IR_OUTPUT_loss);
    const rt_tensor *loss = rt_session_output(p->session, ir_output_name(output));
    return ir_load_f64(loss->dtype, loss->data);
}

static double slope(problem *p, int storage, float *values, size_t i)
{
    const float at = values[i], h = 4e-3f;
    double loss[2];
    for (int side = 0; side < 2; side++) {
        values[i] = side ? at + h : at - h;
        assert_int_equal(rt_session_write(p->session, storage, values, p->t->d), AMPC_OK);
        loss[side] = loss_of(p);
    }
    values[i] = at;
    assert_int_equal(rt_session_write(p->session, storage, values, p->t->d), AMPC_OK);
    return (loss[1] - loss[0]) / (2 * (double)h);
}

/* In the training form, y does not depend on the running statistics. */
static bool is_flat(const row *r, const operand *o)
{
    return r->flat || (o->kind == SETTING && strcmp(r->op, "BatchNormalization") == 0 && r->outputs);
}

/* Compares the gradient of a parameter with central differences: operand `number`, or its negative. */
static void check_parameter(problem *p, const operand *o, int number, const char *name)
{
    char output[16];
    float values[MAX_CELLS], gradient[MAX_CELLS];
    size_t n = count_cells(o->dims);
    snprintf(output, sizeof output, "grad/%s", name);
    const ir_storage *s = ir_storage_find(p->module, name);
    if (!s || s->kind != IR_PARAM) FAIL(p, name, s ? "is not a parameter" : "was removed");
    loss_of(p);
    const rt_tensor *g = rt_session_output(p->session, output);
    if (!g) FAIL(p, name, "has no gradient");
    memcpy(gradient, g->data, n * sizeof *gradient);
    bool any = false;
    for (size_t i = 0; i < n; i++) values[i] = value_of(o, number, i) * (p->computed < 0 ? 1 : -1);
    for (size_t i = 0; i < n; i++) {
        double got = (double)gradient[i], want = slope(p, test_storage_find(p->session, name), values, i);
        char text[80];
        snprintf(text, sizeof text, "gradient %zu is %g, not %g", i, got, want);
        if (!(fabs(got - want) <= 1e-2 * fabs(want) + 2e-3)) FAIL(p, name, text);
        any |= fabs(want) > 1e-2;
    }
    if (any == is_flat(p->row, o)) FAIL(p, name, any ? "the gradient should be zero" : "the row tests nothing");
}

static void check_operand(problem *p, const operand *o, int number)
{
    char name[8];
    snprintf(name, sizeof name, "a%d", number);
    const ir_storage *s = ir_storage_find(p->module, name);
    if (is_trained(o)) check_parameter(p, o, number, name);
    else if (s && s->kind == IR_PARAM) FAIL(p, name, "is a parameter");
}

static void operands_get_their_gradients(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        problem p = {.t = *state, .row = &rows[i], .computed = -1};
        compile_problem(&p);
        for (int k = 0; k < count_operands(p.row); k++) check_operand(&p, &p.row->in[k], k);
        if (has_subgraphs(p.row->op)) check_operand(&p, &captured_by_body, count_operands(p.row));
        rt_session_close(p.session);
        ir_module_free(p.module);
    }
}

static void computed_operands_pass_their_gradients(void **state)
{
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < count_operands(&rows[i]); k++) {
            problem p = {.t = *state, .row = &rows[i], .computed = k};
            if (!is_computable(&rows[i].in[k])) continue;
            compile_problem(&p);
            check_parameter(&p, &rows[i].in[k], k, "minus");
            rt_session_close(p.session);
            ir_module_free(p.module);
        }
}

/* The kinds of the operands are those of the table, and every row of it has a row here. */
static void kinds_are_those_of_the_table(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < count_operands(&rows[i]) && !strchr(rows[i].op, ':'); k++) {
            const operand *o = &rows[i].in[k];
            const char mark = gradient_mark(rows[i].op, k), *op = rows[i].op;
            const bool fits = mark == '*' ? o->kind == SETTING : mark == ' ' ? is_trained(o) : !is_computable(o);
            if (o->kind != SKIPPED && !fits) fail_msg("%s, operand %d: mark '%c'", op, k, mark);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_has_a_row),
        cmocka_unit_test(kinds_are_those_of_the_table),
        SCRATCH_TEST(operands_get_their_gradients),
        SCRATCH_TEST(computed_operands_pass_their_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
