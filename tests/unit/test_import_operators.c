/* test_import_operators.c - one case for each form of an operator that changed between opsets, and rejected nodes.
 *
 * Most cases are one row: a node and the expected line of IR. */
#include "tests/unit/import_fixture.h"

/* ---- running an import ----------------------------------------------------------------------- */

/* Returns the model x -> node -> y, with the operands of the rows below as initializers. */
static wire one_node(int opset, const char *dims, node *n)
{
    model m = model_new(opset);
    model_input(&m, "x", ONNX_float32, dims);
    model_tensor(&m, TENSOR_INTS("one", "1", 1));
    model_tensor(&m, TENSOR_INTS("two", "1", 2));
    model_tensor(&m, TENSOR_INTS("last", "1", -1));
    model_tensor(&m, TENSOR_INTS("zero_two", "2", 0, 2));
    model_tensor(&m, TENSOR_INTS("one_one", "2", 1, 1));
    model_tensor(&m, tensor_new("none", ONNX_int64, "0", NULL, 0));
    model_tensor(&m, TENSOR_INTS("pads", "4", 0, 1, 0, 2));
    model_tensor(&m, TENSOR_INTS("two_two", "3", -1, 2, 2));
    model_tensor(&m, TENSOR_INTS("huge", "2", 1 << 30, 1 << 30));
    model_tensor(&m, TENSOR_INTS("far", "1", INT64_MAX));
    model_tensor(&m, TENSOR_INTS("start", "1", INT64_MIN));
    model_tensor(&m, TENSOR_FLOATS("w", "3,2", 1, 2, 3, 4, 5, 6));
    model_tensor(&m, TENSOR_FLOATS("low", "", -1));
    model_tensor(&m, TENSOR_FLOATS("high", "", 6));
    float kernel[18];
    for (int i = 0; i < 18; i++) kernel[i] = (float)i;
    model_tensor(&m, tensor_new("wt", ONNX_float32, "2,1,3,3", kernel, sizeof kernel));
    model_tensor(&m, tensor_new("nothing", ONNX_float32, "0", NULL, 0));
    model_tensor(&m, TENSOR_FLOATS("twice", "4", 1, 1, 2, 2));
    model_tensor(&m, TENSOR_FLOATS("twice_row", "1,4", 1, 1, 2, 2));
    model_tensor(&m, TENSOR_FLOATS("places", "1,1,2,2", 0, 0, 0.5F, 0.5F));
    model_tensor(&m, TENSOR_INTS("four", "1", 4));
    model_tensor(&m, TENSOR_INTS("zero", "1", 0));
    model_tensor(&m, TENSOR_FLOATS("part", "4", 1, 1, 0.7F, 0.5F));
    model_tensor(&m, TENSOR_INTS("sizes", "4", 1, 2, 6, 9));
    model_tensor(&m, tensor_new("yes", ONNX_bool, "", "\1", 1));
    model_tensor(&m, tensor_new("mask", ONNX_bool, "2", "\0\1", 2));
    model_tensor(&m, TENSOR_INTS("pair", "2,1", 1, 0));
    model_tensor(&m, TENSOR_INTS("three", "1", 3));
    model_tensor(&m, TENSOR_INTS("twos", "2", 2, 2));
    model_tensor(&m, TENSOR_INTS("three_three", "2", 3, 3));
    model_tensor(&m, TENSOR_FLOATS("column", "2,1", 1, 2));
    model_tensor(&m, TENSOR_FLOATS("square", "2,2", 1, 2, 3, 4));
    model_tensor(&m, TENSOR_FLOATS("ends", "2", -1, 1));
    model_tensor(&m, TENSOR_FLOATS("inward", "1,1,2", 0.5F, 1));
    model_tensor(&m, TENSOR_FLOATS("again", "1,1,1", 0.5F));
    model_tensor(&m, TENSOR_FLOATS("ways", "2,3,1", 1, 2, 3, 4, 5, 6));
    model_add(&m, n);
    model_output(&m, "y", 0, NULL);
    return model_finish(&m);
}

/* ---- forms of operators ---------------------------------------------------------------------- */

typedef struct form {
    int opset;
    const char *dims; /* of x */
    const char *op, *inputs;
    const char *attributes; /* "name=1" int, "name=[1,2]" ints, "name='text'", "name=0.5f"; separated by blanks */
    const char *expect;
} form;

static void add_attribute(node *n, const char *text)
{
    char name[64], value[64];
    size_t k = strcspn(text, "=");
    snprintf(name, sizeof name, "%.*s", (int)k, text);
    snprintf(value, sizeof value, "%s", text + k + 1);
    size_t end = strlen(value) - 1;
    bool quoted = *value == '\'' || *value == '[';
    if (quoted) value[end] = 0;
    if (*value == '\'') node_text(n, name, value + 1);
    else if (*value == '[' && strchr(value, '.')) node_floats(n, name, value + 1);
    else if (*value == '[') node_ints(n, name, value + 1);
    else if (value[end] == 'f') node_float(n, name, strtof(value, NULL));
    else node_int(n, name, atoll(value));
}

static node form_node(const form *f)
{
    node n = node_new(f->op, f->inputs, "y");
    char copy[256], *save = NULL;
    snprintf(copy, sizeof copy, "%s", f->attributes);
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save)) add_attribute(&n, p);
    return n;
}

/* clang-format off */
static const form forms[] = {
    /* changes before opset 18 */
    {11, "2,3,4", "Softmax", "x", "", "softmax %reshape {axis=1} : f32[2,12]"},
    {13, "2,3,4", "Softmax", "x", "", "softmax @x {axis=2} : f32[2,3,4]"},
    {12, "2,3,4", "LogSoftmax", "x", "axis=2", "log_softmax @x {axis=2} : f32[2,3,4]"},
    {11, "2,1,4", "Squeeze", "x", "axes=[1]", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {13, "2,1,4", "Squeeze", "x,one", "", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {13, "2,1,4", "Squeeze", "x", "", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {11, "2,4", "Unsqueeze", "x", "axes=[-1]", "reshape @x {shape=[2,4,1]} : f32[2,4,1]"},
    {13, "2,4", "Unsqueeze", "x,one", "", "reshape @x {shape=[2,1,4]} : f32[2,1,4]"},
    {11, "2,4", "ReduceSum", "x", "axes=[-1] keepdims=0", "reduce_sum @x {axes=[1], keepdims=false} : f32[2]"},
    {13, "2,4", "ReduceSum", "x,one", "", "reduce_sum @x {axes=[1]} : f32[2,1]"},
    {13, "2,4", "ReduceSum", "x", "keepdims=0", "reduce_sum @x {axes=[0,1], keepdims=false} : f32[]"},
    {13, "2,4", "ReduceSum", "x,none", "noop_with_empty_axes=1", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {9, "5,6", "Slice", "x", "starts=[1] ends=[-1] axes=[0]",
     "slice @x {start=[1,0], size=[3,6], step=[1,1]} : f32[3,6]"},
    {10, "5,6", "Slice", "x,one,far,one,two", "", "slice @x {start=[0,1], size=[5,3], step=[1,2]} : f32[5,3]"},
    {13, "5,6", "Slice", "x,last,start,one,last", "", "slice @x {start=[0,5], size=[5,6], step=[1,-1]} : f32[5,6]"},
    {13, "N,3", "Slice", "x,last,far", "", "slice @x {start=[max(0,N-1),0], size=[N-max(0,N-1),3], step=[1,1]}"},
    {13, "N,3", "Slice", "x,one,two", "", "slice @x {start=[1,0], size=[-max(0,N-2)+max(0,N-1),3], step=[1,1]}"},
    {13, "N,3", "Slice", "x,last,start,,last", "", "slice @x {start=[N-1,0], size=[N,3], step=[-1,1]} : f32[N,3]"},
    {10, "2,3", "Pad", "x", "pads=[0,1,0,2] mode='edge'",
     "pad @x {before=[0,1], after=[0,2], mode=\"edge\"} : f32[2,6]"},
    {11, "2,3", "Pad", "x,pads,low", "", "pad @x, @low {before=[0,1], after=[0,2]} : f32[2,6]"},
    {10, "2,3", "Clip", "x", "min=0.0f max=6.0f", "clip @x, @c.f32.0, @c.f32.40c00000 : f32[2,3]"},
    {11, "2,3", "Clip", "x,,high", "", "clip @x, _, @high : f32[2,3]"},
    {11, "4,2", "Split", "x", "axis=0 split=[4]", "split @x {sizes=[4]} : f32[4,2]"},
    {11, "2,3", "Gemm", "x,w", "", "matmul @x, @w : f32[2,2]"},
    {11, "2,3", "Dropout", "x", "ratio=0.25f", "dropout @x, @rng {ratio=0.25} : f32[2,3], bool[2,3]"},
    {11, "2,3", "Dropout", "x", "ratio=0.0f", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {13, "2,3", "Dropout", "x", "", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {13, "N,3", "Reshape", "x,last", "", "reshape @x {shape=[3*N]} : f32[3*N]"},
    {15, "N,3", "Shape", "x", "start=1", "output \"y\" = @"},
    {15, "N,3", "Shape", "x", "end=1", "dims {value=[N]} : i64[1]"},
    {15, "2,3", "CastLike", "x,one", "", "cast @x {to=i64} : i64[2,3]"},
    {9, "2,3", "Flatten", "x", "axis=0", "reshape @x {shape=[1,6]} : f32[1,6]"},
    {9, "N,1,5,5", "MaxPool", "x", "kernel_shape=[2,2] strides=[2,2] auto_pad='SAME_LOWER'",
     "max_pool @x {kernel=[2,2], strides=[2,2], pads=[1,1,0,0]"},
    {10, "N,1,5,5", "AveragePool", "x", "kernel_shape=[2,2] ceil_mode=1 count_include_pad=1",
     "ceil=true, count_pad=true"},
    {14, "2,3", "Trilu", "x", "upper=0", "trilu @x {upper=false} : f32[2,3]"},
    {13, "2,3", "Tile", "x,one_one", "", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {11, "2,3", "Concat", "x,x", "axis=-1", "concat @x, @x {axis=1} : f32[2,6]"},
    {7, "1,2,4,6", "Upsample", "x", "scales=[1.0,1.0,2.0,2.0]",
     "resize @x {shape=[1,2,8,12], axes=[2,3], scales=[2,1,2,1], coordinates=\"asymmetric\", rounding=\"floor\"}"},
    {9, "N,2,H,6", "Upsample", "x,twice", "mode='linear'", "method=\"linear\", coordinates=\"asymmetric\""},
    {10, "1,2,4,6", "Resize", "x,part", "", "axes=[2,3], scales=[11744051,16777216,1,2], coordinates=\"asymmetric\""},
    {11, "1,2,4,6", "Resize", "x,nothing,nothing,sizes", "mode='cubic' cubic_coeff_a=-0.5f",
     "resize @x {shape=[1,2,6,9], axes=[2,3], method=\"cubic\", cubic=-0.5} : f32[1,2,6,9]"},
    {13, "N,2,H,W", "Resize", "x,,twice", "", "resize @x {shape=[N,2,2*H,2*W], axes=[2,3], scales=[2,1,2,1]}"},
    {13, "1,2,6,9", "Resize", "x,,,sizes", "", "reshape @x {shape=[1,2,6,9]} : f32[1,2,6,9]"},
    {11, "1,2,3,3", "ConvTranspose", "x,wt", "strides=[2,2] pads=[1,1,1,1] output_padding=[1,1]",
     "conv_grad_input @x, @wt {shape=[1,1,6,6], strides=[2,2], pads=[1,1,0,0], dilations=[1,1]} : f32[1,1,6,6]"},
    {11, "N,2,H,W", "ConvTranspose", "x,wt", "strides=[2,2] auto_pad='SAME_UPPER'",
     "{shape=[N,1,2*H,2*W], strides=[2,2], pads=[0,0,1,1], dilations=[1,1]} : f32[N,1,2*H,2*W]"},
    {11, "1,2,3,3", "ConvTranspose", "x,wt", "strides=[2,2] output_shape=[6,5]",
     "{shape=[1,1,6,5], strides=[2,2], pads=[1,1,0,1], dilations=[1,1]} : f32[1,1,6,5]"},
    {11, "1,2,3,3", "ConvTranspose", "x,wt", "output_padding=[2,0] dilations=[3,1]", "pad %conv_grad_input"},
    {18, "1,2,4,4", "LpPool", "x", "kernel_shape=[2,2] p=1", "avg_pool %abs {kernel=[2,2], strides=[1,1]"},
    {2, "1,2,4,4", "GlobalLpPool", "x", "", "reduce_sum %mul {axes=[2,3]} : f32[1,2,1,1]"},
    {16, "1,2,4,4", "GridSample", "x,places", "mode='bicubic'", "grid_sample @x, @places {method=\"cubic\"} : f32[1,2,1,2]"},
    {10, "1,2,4,4", "RoiAlign", "x,twice_row,zero", "output_width=3",
     "roi_align @x, @twice_row, @zero {size=[1,3], half_pixel=false} : f32[1,2,1,3]"},
    {16, "1,2,4,4", "RoiAlign", "x,twice_row,zero", "mode='max'", "{size=[1,1], max=true} : f32[1,2,1,1]"},
    {20, "1,2,3", "AffineGrid", "x,sizes", "", "matmul @affine_grid, @x {trans_b=true} : f32[1,54,2]"},
    {17, "2,3", "HannWindow", "four", "", "const @hann_window : f32[4] = [0, 0.5, 1, 0.5]"},
    {17, "2,3", "HannWindow", "four", "periodic=0 output_datatype=11", "const @hann_window : f64[4] = [0, 0.74999999999999"},
    {17, "2,6,1", "DFT", "x", "onesided=1", "f32[2,4,2]"},
    {20, "2,6,2", "DFT", "x,four,zero", "inverse=1", "f32[4,6,2]"},
    {17, "N,8,1", "STFT", "x,two,,four", "", "f32[N,3,3,2]"},
    /* changes in opsets 18 to 23 */
    {18, "2,4", "ReduceMean", "x,one", "keepdims=0", "reduce_mean @x {axes=[1], keepdims=false} : f32[2]"},
    {18, "2,4", "ReduceMean", "x", "noop_with_empty_axes=1", "reshape @x {shape=[2,4]} : f32[2,4]"},
    {18, "2,4", "ReduceMean", "x", "", "reduce_mean @x {axes=[0,1]} : f32[1,1]"},
    {18, "2,3", "Pad", "x,one_one,,last", "", "pad @x {before=[0,1], after=[0,1]} : f32[2,5]"},
    {19, "2,3", "Pad", "x,one_one,,one", "mode='wrap'",
     "pad @x {before=[0,1], after=[0,1], mode=\"wrap\"} : f32[2,5]"},
    {19, "2,3", "Cast", "x", "to=10 saturate=1", "cast @x {to=f16} : f16[2,3]"},
    {19, "2,3", "CastLike", "x,one", "saturate=0", "cast @x {to=i64} : i64[2,3]"},
    {19, "2,3", "Reshape", "x,last", "allowzero=1", "reshape @x {shape=[6]} : f32[6]"},
    {19, "N,1,8,8", "AveragePool", "x", "kernel_shape=[2,2] dilations=[2,2]", "dilations=[2,2]} : f32[N,1,6,6]"},
    {19, "2,3", "Equal", "x,x", "", "equal @x, @x : bool[2,3]"},
    {19, "2,N", "Size", "x", "", "dims {value=[2*N]} : i64[1]"},
    {20, "2,3", "Gelu", "x", "", "gelu @x : f32[2,3]"},
    {20, "2,3", "Gelu", "x", "approximate='tanh'", "gelu @x {tanh=true} : f32[2,3]"},
    {21, "2,3", "Transpose", "x", "perm=[1,0]", "transpose @x {perm=[1,0]} : f32[3,2]"},
    {21, "2,1", "Squeeze", "x,one", "", "reshape @x {shape=[2]} : f32[2]"},
    {21, "2,3", "Unsqueeze", "x,last", "", "reshape @x {shape=[2,3,1]} : f32[2,3,1]"},
    {21, "2,3", "Flatten", "x", "axis=-1", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {21, "2,3", "Identity", "x", "", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {22, "2,3", "Round", "x", "", "round @x : f32[2,3]"},
    {20, "2,3", "ConstantOfShape", "two", "", "const @y : f32[2] = [0, 0]"},
    {21, "N,3", "Shape", "x", "start=-2 end=-1", "dims {value=[N]} : i64[1]"},
    {22, "2,3", "Softplus", "x", "", "softplus @x : f32[2,3]"},
    {22, "2,3", "Softsign", "x", "", "softsign @x : f32[2,3]"},
    {7, "2,3", "Elu", "x", "alpha=0.5f", "elu @x {alpha=0.5} : f32[2,3]"},
    {7, "2,3", "Selu", "x", "gamma=2.0f", "selu @x {gamma=2} : f32[2,3]"},
    {10, "2,3", "IsInf", "x", "detect_negative=0", "is_inf @x {detect_negative=false} : bool[2,3]"},
    {20, "2,3", "IsInf", "x", "", "is_inf @x : bool[2,3]"},
    {13, "2,3", "Mean", "x", "", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {13, "2,3", "Mean", "x,x,x", "", "div %add.1, @c.f32.40400000 : f32[2,3]"},
    {9, "2,3", "RandomNormal", "", "shape=[2,5] mean=1.0f scale=0.5f",
     "random @rng {shape=[2,5], normal=true, offset=1, scale=0.5} : f32[2,5]"},
    {9, "N,3", "RandomUniformLike", "x", "low=-1.0f dtype=11",
     "random @rng {shape=[N,3], offset=-1, scale=2, type=f64} : f64[N,3]"},
    {15, "2,3", "Bernoulli", "x", "dtype=9", "less %random, @x : bool[2,3]"},
    {24, "2,3", "Swish", "x", "alpha=1.5f", "swish @x {alpha=1.5} : f32[2,3]"},
    {22, "2,3", "Cos", "x", "", "cos @x : f32[2,3]"},
    {22, "1,1,9", "AveragePool", "x", "kernel_shape=[3] strides=[3]", "avg_pool @x {kernel=[3], strides=[3]"},
    {22, "2,3", "Dropout", "x", "seed=7", "reshape @x {shape=[2,3]} : f32[2,3]"},
    {22, "1,1,N", "MaxPool", "x", "kernel_shape=[3] strides=[2] pads=[1,1] ceil_mode=1",
     "ceil=true} : f32[1,1,floor(N/2)+1]"},
    {18, "N,3", "Split", "x", "num_outputs=1", "split @x {sizes=[N]}"},
    {22, "N,1,5,5", "MaxPool", "x", "kernel_shape=[3,3]", "max_pool @x {kernel=[3,3], strides=[1,1]"},
    {22, "N,1,5,5", "GlobalAveragePool", "x", "", "reduce_mean @x {axes=[2,3]} : f32[N,1,1,1]"},
    {22, "N,1,5,5", "GlobalMaxPool", "x", "", "reduce_max @x {axes=[2,3]} : f32[N,1,1,1]"},
    {11, "2,4", "ReduceMax", "x", "axes=[-1] keepdims=0", "reduce_max @x {axes=[1], keepdims=false} : f32[2]"},
    {18, "2,4", "ReduceProd", "x,one", "", "reduce_prod @x {axes=[1]} : f32[2,1]"},
    {18, "2,4", "ReduceL2", "x", "", "reduce_l2 @x {axes=[0,1]} : f32[1,1]"},
    {18, "2,4", "ReduceL2", "x", "noop_with_empty_axes=1", "abs @x : f32[2,4]"},
    {18, "2,4", "ReduceSumSquare", "x,none", "noop_with_empty_axes=1", "mul @x, @x : f32[2,4]"},
    {18, "2,N", "ReduceLogSumExp", "x,one", "keepdims=0", "reduce_sum %exp {axes=[1]} : f32[2,1]"},
    {23, "3,2", "RMSNormalization", "x,w", "axis=0", "layer_norm @x, @w {axis=0, center=false}"},
    {11, "2,3,4", "Hardmax", "x", "", "arg_max %reshape {axis=1} : i64[2,1]"},
    {13, "2,3,4", "Hardmax", "x", "", "arg_max @x {axis=2} : i64[2,3,1]"},
    {12, "2,3", "ArgMin", "x", "select_last_index=1 keepdims=0",
     "arg_max @x {keepdims=false, largest=false, last=true} : i64[3]"},
    {9, "2,3", "TopK", "x", "k=2", "top_k @x {axis=1, count=[2]} : f32[2,2], i64[2,2]"},
    {11, "2,3", "TopK", "x,one", "axis=0 largest=0 sorted=0", "top_k @x {axis=0, count=[1], largest=false}"},
    {11, "2,N", "TopK", "x,two", "", "top_k @x {axis=1, count=[2]} : f32[2,2]"},
    {14, "2,3", "CumSum", "x,last", "exclusive=1 reverse=1", "cum_sum @x {axis=1, exclusive=true, reverse=true}"},
    {13, "N,4,5", "MeanVarianceNormalization", "x", "axes=[1,2]", "layer_norm @x {axis=1, eps=1e-18}"},
    {13, "N,4,5", "LRN", "x", "size=3", "avg_pool %reshape {kernel=[3,1], strides=[1,1], pads=[1,0,1,0]"},
    {12, "3,2", "Einsum", "x,w", "equation='ij,kj'", "matmul @x, @w {trans_b=true} : f32[3,3]"},
    {12, "3,2", "Einsum", "x,w", "equation='ij,ij->j'", "mul @x, @w : f32[3,2]"},
    {12, "N,N", "Einsum", "x", "equation='ii'", "where %equal, @x"},
    {12, "N,M,3", "Einsum", "x,w", "equation='...i,ij->...j'", "matmul %reshape, @w : f32[M*N,2]"},
    {23, "2,3", "Cast", "x", "to=16", "cast @x {to=bf16} : bf16[2,3]"},
    {13, "N,1,3", "Squeeze", "x,one", "", "reshape @x {shape=[N,3]} : f32[N,3]"},
    {10, "6", "Pad", "x", "pads=[-1,2] mode='wrap'", "pad %pad {before=[0], after=[2], mode=\"wrap\"} : f32[7]"},
    {28, "2,3", "Mod", "x,high", "", "mod @x, @high : f32[2,3]"},
    /* indices and blocks */
    {11, "4,N", "GatherND", "x,one", "", "gather_nd @x, @one : f32[N]"},
    {12, "2,3,N", "GatherND", "x,pair", "batch_dims=1", "gather_nd @x, @pair {batch=1} : f32[2,N]"},
    {11, "2,3", "GatherElements", "x,pair", "axis=-1", "gather_elements @x, @pair {axis=1} : f32[2,1]"},
    {10, "2,3", "Scatter", "x,pair,column", "axis=1", "scatter_elements @x, @pair, @column {axis=1} : f32[2,3]"},
    {16, "2,3", "ScatterElements", "x,pair,column", "reduction='add'", "reduction=\"add\"} : f32[2,3]"},
    {17, "2,3", "ScatterElements", "x,pair,column", "reduction='max'", "reduction=\"max\"} : f32[2,3]"},
    {16, "2,2", "ScatterND", "x,pair,square", "reduction='min'", "scatter_nd @x, @pair, @square {reduction=\"min\"}"},
    {10, "N,12,2,2", "DepthToSpace", "x", "blocksize=2", "transpose %reshape {perm=[0,3,4,1,5,2]}"},
    {13, "N,12,2,2", "DepthToSpace", "x", "blocksize=2 mode='CRD'", "transpose %reshape {perm=[0,1,4,2,5,3]}"},
    {13, "N,3,4,2", "SpaceToDepth", "x", "blocksize=2", "transpose %reshape {perm=[0,3,5,1,2,4]}"},
    {28, "N,3,4,2", "SpaceToDepth", "x", "blocksize=2 mode='CRD'", "transpose %reshape {perm=[0,1,3,5,2,4]}"},
    {18, "4,7", "CenterCropPad", "x,zero_two", "axes=[0,1]", "pad @x {before=[-2,-2], after=[-2,-3]} : f32[0,2]"},
    {11, "N,3", "Compress", "x,mask", "axis=1", "const @y : i64[1] = [1]"},
    /* sizes that depend on data */
    {13, "N,3", "NonZero", "x", "", "trim %nonzero, %nonzero.count {size=[y_dim1]} : i64[y_dim1,2]"},
    {13, "N,3", "Unique", "x", "axis=1", "gather @x, %trim {axis=1} : f32[N,y_dim1]"},
    {13, "N,3", "Unique", "x", "sorted=0", "unique %reshape {sorted=false} : i64[3*N], i64[3*N], i64[3*N], i64[]"},
    {13, "N,4,4", "NonMaxSuppression", "x,x", "", "nms @x, @x {limit=[0]} : i64[0,3], i64[]"},
    {13, "N,4,4", "NonMaxSuppression", "x,x,one", "center_point_box=1", "{limit=[1], center=true} : i64[4*N,3], i64[]"},
    {18, "N,4,4", "Col2Im", "x,three_three,twos", "", ": f32[N,1,3,3]"},
    {9, "N", "OneHot", "x,three,ends", "", ": f32[N,3]"},
    {26, "2,3", "BitCast", "x", "to=6", "bit_cast @x {to=i32} : i32[2,3]"},
    {7, "3,N,2", "RNN", "x,inward,again", "direction='reverse' clip=2.0f", "cell=\"rnn\", reverse=true"},
    {14, "N,3,2", "RNN", "x,inward,again", "layout=1", "transpose %reshape.2 {perm=[1,0,2,3]} : f32[N,3,1,1]"},
    {7, "3,N,1", "GRU", "x,ways,ways", "direction='bidirectional'", "{cell=\"gru\", reverse=true} : "},
};
/* clang-format on */

static void operator_forms(void **state)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        node n = form_node(&forms[i]);
        wire file = one_node(forms[i].opset, forms[i].dims, &n);
        expect_import(*state, file, forms[i].expect);
    }
}

/* ---- rejected nodes -------------------------------------------------------------------------- */

typedef struct refusal {
    form form; /* `expect` is a part of the message */
    ampc_status status;
} refusal;

/* clang-format off */
static const refusal refusals[] = {
    {{13, "N,1,3", "Squeeze", "x", "", "dimension 0 is removed if N is 1: bind it with --dim N=SIZE"}, AMPC_UNSUPPORTED},
    {{27, "2,3", "Mod", "x,high", "", "before opset 28, fmod must be 1 for floating point operands"}, AMPC_REJECTED},
    {{13, "2,3", "Softmax", "x", "axis=2", "axis 2 is out of range for rank 2"}, AMPC_REJECTED},
    {{13, "2,3", "Softmax", "x", "axis=0 axis=1", "duplicate attribute 'axis'"}, AMPC_REJECTED},
    {{13, "2,3", "Softmax", "x", "axis=[0]", "attribute 'axis' has type INTS, not INT"}, AMPC_REJECTED},
    {{13, "2,3", "Softmax", "x", "axes=0", "unknown attribute 'axes' in opset 13"}, AMPC_REJECTED},
    {{13, "2,3", "Softmax", "x,one", "", "has 2 inputs"}, AMPC_REJECTED},
    {{13, "2,3", "Add", "x,", "", "has 1 inputs"}, AMPC_REJECTED},
    {{13, "2,3", "Where", ",x,x", "", "input 0 is missing"}, AMPC_REJECTED},
    {{13, "2,3", "Transpose", "x", "perm=[0]", "perm has 1 elements"}, AMPC_REJECTED},
    {{13, "2,3", "Transpose", "x", "perm=[1,1]", "duplicate axis 1"}, AMPC_REJECTED},
    {{13, "2,3", "Cast", "x", "", "attribute 'to' is missing"}, AMPC_REJECTED},
    {{13, "2,3", "Cast", "x", "to=8", "cast to string"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "Cast", "x", "to=99", "cast to unknown"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "Concat", "x", "", "attribute 'axis' is missing"}, AMPC_REJECTED},
    {{13, "2,3", "Dropout", "x,high,yes", "", "ratio is 6"}, AMPC_REJECTED},
    {{11, "2,3", "Dropout", "x", "ratio=1.5f", "ratio is 1.5"}, AMPC_REJECTED},
    {{13, "2,3", "Reshape", "x,two", "", "node 'Reshape_0' (Reshape)"}, AMPC_REJECTED},
    {{13, "N,3", "Reshape", "x,two_two", "", "cannot divide 3*N elements by 4"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "Squeeze", "x,one", "", "dimension 1 is 3, not 1"}, AMPC_REJECTED},
    {{13, "2,3", "Tile", "x,one", "", "1 repeats for rank 2"}, AMPC_REJECTED},
    {{18, "2,3", "Pad", "x,two,,one", "", "1 padding amounts for 1 axes"}, AMPC_REJECTED},
    {{18, "2,3", "Pad", "x,x", "", "computed at run time"}, AMPC_UNSUPPORTED},
    {{13, "1,1,9", "MaxPool", "x", "", "attribute 'kernel_shape' is missing"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[0]", "kernel_shape[0] = 0"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[2] strides=[0]", "strides[0] = 0"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[2] pads=[1]", "pads has 1 elements, not 2"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[2] dilations=[1,1]", "dilations has 2"}, AMPC_REJECTED},
    {{13, "1,1,9", "MaxPool", "x", "kernel_shape=[2] auto_pad='MAYBE'", "unknown auto_pad 'MAYBE'"}, AMPC_REJECTED},
    {{13, "1,1,N", "MaxPool", "x", "kernel_shape=[2] strides=[2] auto_pad='SAME_UPPER'", "bind"}, AMPC_UNSUPPORTED},
    {{13, "1,2,3,3", "ConvTranspose", "x,wt", "output_shape=[1]", "output_shape has 1 elements, not 2"}, AMPC_REJECTED},
    {{13, "1,2,3,3", "ConvTranspose", "x,wt", "pads=[9,9,9,9]", "shape"}, AMPC_REJECTED},
    {{13, "1,2,3,3", "ConvTranspose", "x,wt", "group=0", "invalid group 0"}, AMPC_REJECTED},
    {{13, "1,2,3,3", "ConvTranspose", "x,wt,one_one", "", "the bias must have one element"}, AMPC_REJECTED},
    {{13, "1,2,3,3", "ConvTranspose", "x,wt", "output_padding=[-1,0]", "output_padding[0] = -1"}, AMPC_REJECTED},
    {{13, "1,2,H,3", "ConvTranspose", "x,wt", "output_shape=[6,6]", "bind"}, AMPC_UNSUPPORTED},
    {{13, "1,2,4,4", "LpPool", "x", "kernel_shape=[2,2] p=0", "p = 0 is out of range"}, AMPC_REJECTED},
    {{13, "1,2,4,6", "Resize", "x", "", "either scales or sizes"}, AMPC_REJECTED},
    {{13, "1,2,4,6", "Resize", "x,,twice,sizes", "", "either scales or sizes"}, AMPC_REJECTED},
    {{13, "1,2,4,6", "Resize", "x,,low", "", "must have 4 numbers"}, AMPC_REJECTED},
    {{13, "1,2,4,6", "Resize", "x,,,two", "", "1 sizes for 4 axes"}, AMPC_REJECTED},
    {{13, "1,2,4,6", "Resize", "x,,twice", "mode='bilinear'", "unknown mode 'bilinear'"}, AMPC_REJECTED},
    {{13, "1,2,4,6", "Resize", "x,,twice", "nearest_mode='round'", "unknown nearest_mode 'round'"}, AMPC_REJECTED},
    {{13, "1,2,4,6", "Resize", "x,,twice", "coordinate_transformation_mode='half_pixel_symmetric'",
      "unknown coordinate_transformation_mode"}, AMPC_REJECTED},
    {{13, "1,2,4,6", "Resize", "x,,twice", "coordinate_transformation_mode='tf_crop_and_resize'", "needs input 'roi'"},
     AMPC_REJECTED},
    {{13, "1,2,0,6", "Resize", "x,,,sizes", "", "axis 2 has no elements to resize"}, AMPC_REJECTED},
    {{13, "1,2,H,6", "Resize", "x,,part", "", "dimension H: bind it with --dim H=SIZE"}, AMPC_UNSUPPORTED},
    {{18, "1,2,4,6", "Resize", "x,,,one_one", "axes=[2,-2]", "duplicate axis 2"}, AMPC_REJECTED},
    {{18, "1,2,4,6", "Resize", "x,,twice", "antialias=1", "antialias needs mode linear or cubic"}, AMPC_REJECTED},
    {{20, "1,2,4,4", "GridSample", "x,places", "mode='bilinear'", "unknown mode 'bilinear'"}, AMPC_REJECTED},
    {{20, "1,2,4,4", "GridSample", "x,places", "padding_mode='wrap'", "unknown padding_mode 'wrap'"}, AMPC_REJECTED},
    {{20, "3,2,4,4", "GridSample", "x,places", "", "does not hold positions"}, AMPC_REJECTED},
    {{16, "1,2,4,4", "RoiAlign", "x,twice_row,zero", "mode='sum'", "unknown mode 'sum'"}, AMPC_REJECTED},
    {{16, "1,2,4,4", "RoiAlign", "x,twice_row,zero", "output_height=0", "size 0 is out of range"}, AMPC_REJECTED},
    {{16, "1,2,4,4", "RoiAlign", "x,twice_row,zero_two", "", "batch must be"}, AMPC_REJECTED},
    {{20, "2,2,3", "AffineGrid", "x,sizes", "", "theta and size do not fit"}, AMPC_REJECTED},
    {{19, "1,2,4,4", "DeformConv", "x,wt,x", "", "the offset must have"}, AMPC_REJECTED},
    {{17, "2,6,3", "DFT", "x", "", "the last dimension of the input must be 1 or 2"}, AMPC_REJECTED},
    {{17, "2,6,1", "DFT", "x", "axis=2", "holds the parts"}, AMPC_REJECTED},
    {{17, "2,6,1", "DFT", "x,x", "", "computed at run time"}, AMPC_UNSUPPORTED},
    {{17, "2,6,1", "STFT", "x,two", "", "needs a window or frame_length"}, AMPC_REJECTED},
    {{17, "2,3,1", "STFT", "x,two,,four", "", "frames of 4 samples do not fit"}, AMPC_REJECTED},
    {{17, "2,3", "HannWindow", "last", "", "size -1 is out of range"}, AMPC_REJECTED},
    {{17, "2,3", "MelWeightMatrix", "four,four,zero,low,high", "", "an operand is out of range"}, AMPC_REJECTED},
    {{10, "1,2,4,6", "Upsample", "x,twice", "", "deprecated"}, AMPC_REJECTED},
    {{7, "1,2,4,6", "Upsample", "x", "scales=[1.0,2.0]", "needs 4 scales, has 2"}, AMPC_REJECTED},
    {{18, "2,3", "Split", "x", "num_outputs=2", "num_outputs is 2, but there are 1"}, AMPC_REJECTED},
    {{20, "2,3", "Gelu", "x", "approximate='sigmoid'", "unknown approximate 'sigmoid'"}, AMPC_REJECTED},
    {{17, "2,3", "Gelu", "x", "", "operator Gelu needs opset 20 or later, the model has 17"}, AMPC_UNSUPPORTED},
    {{11, "2,3", "BitShift", "one,two", "", "direction is ''"}, AMPC_REJECTED},
    {{11, "2,3", "BitShift", "one,two", "direction='LEFT'", "unsigned integer type"}, AMPC_REJECTED},
    {{18, "2,3", "BitwiseAnd", "x,x", "", "a must be an integer type, is f32"}, AMPC_REJECTED},
    {{16, "2,3", "PRelu", "x,w", "", "the slope does not broadcast"}, AMPC_REJECTED},
    {{16, "3", "PRelu", "x,w", "", "the slope does not broadcast"}, AMPC_REJECTED},
    {{7, "2,3", "Elu", "x", "alpha=inff", "alpha must be finite"}, AMPC_REJECTED},
    {{9, "2,3", "RandomNormal", "", "", "attribute 'shape' is missing"}, AMPC_REJECTED},
    {{9, "2,3", "RandomNormal", "", "shape=[-1]", "shape[0] is -1"}, AMPC_REJECTED},
    {{9, "2,3", "RandomUniformLike", "x", "dtype=6", "random numbers of type i32"}, AMPC_UNSUPPORTED},
    {{9, "2,3", "RandomNormalLike", "x", "dtype=99", "element type unknown"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "QuantizeLinear", "x,w", "", "does not fit axis 1"}, AMPC_REJECTED},
    {{13, "2,3", "QuantizeLinear", "x,high,one", "", "quantisation to i64"}, AMPC_UNSUPPORTED},
    {{21, "2,3", "QuantizeLinear", "x,high", "output_dtype=23", "output_dtype float4e2m1"}, AMPC_UNSUPPORTED},
    {{21, "4,3", "QuantizeLinear", "x,w", "axis=0 block_size=-1", "block_size is -1"}, AMPC_REJECTED},
    {{21, "4,2", "QuantizeLinear", "x,w", "axis=0 block_size=4", "3 blocks of 4 elements do not cover 4"}, AMPC_REJECTED},
    {{13, "2,3", "DequantizeLinear", "x,high", "", "values of type f32"}, AMPC_UNSUPPORTED},
    {{10, "2,3", "MatMulInteger", "x,w", "", "is f32, not int8 or uint8"}, AMPC_REJECTED},
    {{13, "2,3", "ConstantOfShape", "x", "", "computed at run time"}, AMPC_UNSUPPORTED},
    {{13, "2,3", "ConstantOfShape", "last", "", "dimension 0 is negative (-1)"}, AMPC_REJECTED},
    {{13, "1,1", "Expand", "x,huge", "", "too large"}, AMPC_REJECTED},
    {{13, "3", "GatherElements", "x,pair", "", "indices must have 1 dimensions, is i64[2,1]"}, AMPC_REJECTED},
    {{13, "2,2", "ScatterND", "x,pair,square", "reduction='add'", "unknown attribute 'reduction'"}, AMPC_REJECTED},
    {{13, "2,3", "Compress", "x,x", "", "condition must be a list of bool"}, AMPC_REJECTED},
    {{13, "2,3", "NonMaxSuppression", "x,x", "", "input 0 must have 3 dimensions"}, AMPC_REJECTED},
    {{13, "1,2,3", "NonMaxSuppression", "x,x", "", "boxes must be [batch,N,4], are f32[1,2,3]"}, AMPC_REJECTED},
    {{13, "1,2,4", "NonMaxSuppression", "x,x", "", "scores must be [batch,class,N] for boxes"}, AMPC_REJECTED},
    {{13, "1,4,4", "NonMaxSuppression", "x,x", "center_point_box=2", "center_point_box is 2"}, AMPC_REJECTED},
    {{13, "1,4,4", "NonMaxSuppression", "x,x,zero_two,x", "", "must be a scalar"}, AMPC_REJECTED},
    {{13, "2,3", "TopK", "x,x", "", "K must be an integer"}, AMPC_REJECTED},
    {{13, "2,3", "Unique", "x", "axis=2", "axis 2 is out of range"}, AMPC_REJECTED},
    {{13, "1,3", "Compress", "x,mask", "axis=0", "condition selects element 1 of 1"}, AMPC_REJECTED},
    {{13, "N,10,2,2", "DepthToSpace", "x", "blocksize=2", "dimension 10 is not a multiple of 4"}, AMPC_REJECTED},
    {{13, "N,4,2,2", "DepthToSpace", "x", "", "blocksize is 0"}, AMPC_REJECTED},
    {{13, "1,4,N,2", "SpaceToDepth", "x", "blocksize=2", "cannot divide N by 2"}, AMPC_UNSUPPORTED},
    {{18, "N,4,5", "Col2Im", "x,three_three,twos", "", "there are 5 blocks, but the image has 4"}, AMPC_REJECTED},
    {{18, "N,3,4", "Col2Im", "x,three_three,twos", "", "dimension 3 is not a multiple of 4"}, AMPC_REJECTED},
    {{10, "2,3", "ReverseSequence", "x,one", "", "must have one element per sequence"}, AMPC_REJECTED},
    {{10, "2,3", "ReverseSequence", "x,one", "time_axis=1", "batch_axis and time_axis must be"}, AMPC_REJECTED},
    {{11, "1,1,2", "MaxUnpool", "x,pair", "kernel_shape=[2]", "X and I differ in shape"}, AMPC_REJECTED},
    {{24, "2,3", "TensorScatter", "x,w", "axis=0", "the axis must not be 0"}, AMPC_REJECTED},
    {{11, "2,3", "OneHot", "x,last,ends", "", "depth is -1"}, AMPC_REJECTED},
    {{26, "2,3", "BitCast", "x", "to=7", "f32 cannot be reinterpreted as i64"}, AMPC_REJECTED},
    {{18, "2,3", "ReduceMax", "x,two", "", "axis 2 is out of range"}, AMPC_REJECTED},
    {{11, "2,3", "ReduceL1", "x", "axes=[0,-2]", "duplicate axis 0"}, AMPC_REJECTED},
    {{13, "0,3", "ArgMax", "x", "", "has size 0"}, AMPC_REJECTED},
    {{11, "2,3", "TopK", "x,last", "", "K is -1"}, AMPC_REJECTED},
    {{11, "2,1", "TopK", "x,two", "", "count is 2, but axis 1 has size 1"}, AMPC_REJECTED},
    {{11, "2,3", "TopK", "x,zero_two", "", "K has 2 elements"}, AMPC_REJECTED},
    {{9, "2,3", "TopK", "x", "", "attribute 'k' is missing"}, AMPC_REJECTED},
    {{11, "2,3", "CumSum", "x,two", "", "axis 2 is out of range"}, AMPC_REJECTED},
    {{11, "2,3", "Det", "x", "", "x must be square matrices"}, AMPC_REJECTED},
    {{13, "2,3,4", "LRN", "x", "", "size is 0"}, AMPC_REJECTED},
    {{13, "2,3,4", "LRN", "x", "size=100000", "size is 100000"}, AMPC_REJECTED},
    {{13, "2,3", "LpNormalization", "x", "p=3", "p is 3"}, AMPC_REJECTED},
    {{17, "2,3,4", "InstanceNormalization", "x,one,one", "", "scale must be a vector of 3"}, AMPC_REJECTED},
    {{21, "2,1,4", "GroupNormalization", "x,low,low", "num_groups=2", "num_groups is 2"}, AMPC_REJECTED},
    {{21, "2,N,4", "GroupNormalization", "x,low,low", "num_groups=1", "the channel axis"}, AMPC_UNSUPPORTED},
    {{12, "3,2", "Einsum", "x,w", "equation='ij'", "has 1 operands, but the node has 2"}, AMPC_REJECTED},
    {{12, "3,2", "Einsum", "x,w", "equation='ij,jk'", "index 'j' has sizes 2 and 3"}, AMPC_REJECTED},
    {{12, "3,2", "Einsum", "x", "equation='ijk'", "has 3 indices for operand 0"}, AMPC_REJECTED},
    {{12, "3,2", "Einsum", "x", "equation='ij->k'", "index 'k' of the result is in no operand"}, AMPC_REJECTED},
    {{12, "3,2", "Einsum", "x", "equation='ij->ii'", "index 'i' is twice in the result"}, AMPC_REJECTED},
    {{12, "3,2", "Einsum", "x", "equation='i1'", "malformed at '1'"}, AMPC_REJECTED},
    {{12, "3,2", "Einsum", "x", "equation='ij->j-'", "malformed at '-'"}, AMPC_REJECTED},
    {{12, "3,2", "Einsum", "x", "equation='...->i'", "no ellipsis"}, AMPC_REJECTED},
    {{12, "3,2", "Einsum", "x", "", "attribute 'equation' is missing"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,again", "direction='up'", "direction"}, AMPC_REJECTED},
    {{13, "3,2,2", "RNN", "x,inward,again", "layout=1", "unknown attribute 'layout'"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,again", "layout=2", "layout is 2, not 0 or 1"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,again", "clip=0.0f", "clip is 0, not above 0"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,again", "hidden_size=2", "hidden_size is 2, but R has another"}, AMPC_REJECTED},
    {{14, "3,2", "RNN", "x,inward,again", "", "X has 2 dimensions, not 3"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,w", "", "R has 2 dimensions, not 3"}, AMPC_REJECTED},
    {{14, "3,2,5", "RNN", "x,inward,again", "", "W must be f32[1,1,5], is f32[1,1,2]"}, AMPC_REJECTED},
    {{14, "3,2,2", "GRU", "x,inward,again", "", "W must be f32[1,3,2], is f32[1,1,2]"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,again", "direction='bidirectional'", "W must be f32[2,1,2]"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,again,again", "", "B must be f32[1,2], is f32[1,1,1]"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,again,,three", "", "sequence_lens must be i64[2], is i64[1]"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,again,,,again", "", "initial_h must be f32[1,2,1]"}, AMPC_REJECTED},
    {{14, "3,2,2", "RNN", "x,inward,again", "input_forget=1", "unknown attribute 'input_forget'"}, AMPC_REJECTED},
    {{13, "2,3", "Nonsense", "x", "", "operator Nonsense is not supported (1 node)"}, AMPC_UNSUPPORTED},
};
/* clang-format on */

static void refused_forms(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        node n = form_node(&refusals[i].form);
        wire file = one_node(refusals[i].form.opset, refusals[i].form.dims, &n);
        expect_refusal(*state, file, refusals[i].status, refusals[i].form.expect);
    }
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void losses(void **state)
{
    static const struct {
        int opset;
        const char *op, *expect;
        bool ignores_none;
    } rows[] = {
        {12, "SoftmaxCrossEntropyLoss", "softmax_cross_entropy @x, @label, @weight {ignore_index=-1", false},
        {13, "SoftmaxCrossEntropyLoss", "reduction=\"sum\"} : f32[]", false},
        {12, "NegativeLogLikelihoodLoss", "nll_loss @x, @label, @weight {ignore_index=-1", false},
        {22, "NegativeLogLikelihoodLoss", "reduction=\"sum\"} : f32[]", false},
        {22, "NegativeLogLikelihoodLoss", "@label, @weight {reduction=\"sum\"} : f32[]", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = model_new(rows[i].opset);
        model_input(&m, "x", ONNX_float32, "N,3");
        model_input(&m, "label", ONNX_int64, "N");
        model_tensor(&m, TENSOR_FLOATS("weight", "3", 1, 2, 3));
        node n = node_new(rows[i].op, "x,label,weight", "y");
        node_text(&n, "reduction", "sum");
        if (!rows[i].ignores_none) node_int(&n, "ignore_index", -1);
        model_add(&m, &n);
        model_output(&m, "y", 0, NULL);
        expect_import(*state, model_finish(&m), rows[i].expect);
    }
}

/* Convolution and forms shared by opsets that only added types. */
static void convolutions(void **state)
{
    static const struct {
        int opset;
        const char *attribute, *value, *expect;
    } rows[] = {
        {7, "pads", "1,1", "pads=[1,1], dilations=[1]} : f32[N,1,9]"},
        {11, "strides", "2", "strides=[2], pads=[0,0]"},
        {22, "dilations", "2", "dilations=[2]} : f32[N,1,5]"},
        {22, "kernel_shape", "3", ": f32[N,1,7]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model m = model_new(rows[i].opset);
        model_input(&m, "x", ONNX_float32, "N,1,9");
        model_tensor(&m, TENSOR_FLOATS("w", "1,1,3", 1, 2, 3));
        node n = node_new("Conv", "x,w", "y");
        node_ints(&n, rows[i].attribute, rows[i].value);
        model_add(&m, &n);
        model_output(&m, "y", 0, NULL);
        expect_import(*state, model_finish(&m), rows[i].expect);
    }
}

static void uneven_split(void **state)
{
    model m = model_new(18);
    model_input(&m, "x", ONNX_float32, "7,2");
    node n = node_new("Split", "x", "a,b,c");
    node_int(&n, "num_outputs", 3);
    model_add(&m, &n);
    model_output(&m, "c", 0, NULL);
    expect_import(*state, model_finish(&m), "split @x {sizes=[3,3,1]} : f32[3,2], f32[3,2], f32[1,2]");
}

/* With duplicate indices the last one wins. With constant operands the result is a constant. */
static void scatter_with_known_operands(void **state)
{
    for (int constant = 0; constant < 2; constant++) {
        model m = model_new(18);
        model_input(&m, "x", ONNX_float32, "3");
        model_tensor(&m, TENSOR_INTS("at", "3,1", 2, 0, -3));
        node n = node_new("Constant", "", "updates");
        node_tensor(&n, "value", TENSOR_FLOATS("", "3", 5, 6, 7));
        model_add(&m, &n);
        n = node_new("Constant", "", "data");
        node_tensor(&n, "value", TENSOR_FLOATS("", "3", 1, 2, 3));
        model_add(&m, &n);
        model_node(&m, "ScatterND", constant ? "data,at,updates" : "x,at,updates", "z");
        model_node(&m, "Add", "x,z", "y");
        model_output(&m, "y", 0, NULL);
        expect_import(*state, model_finish(&m),
                      constant ? "const @z : f32[3] = [7, 2, 5]" : "scatter_nd @x, @at, @updates");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(operator_forms), SCRATCH_TEST(refused_forms), SCRATCH_TEST(losses),
        SCRATCH_TEST(convolutions),   SCRATCH_TEST(uneven_split),  SCRATCH_TEST(scatter_with_known_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
