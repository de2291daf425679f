/* penalty_nets.h - networks with losses and penalties, for tests of penalties of the gradient. */
#ifndef TESTS_TRAIN_PENALTY_NETS_H
#define TESTS_TRAIN_PENALTY_NETS_H

#include "tests/train/numbers.h"

/* clang-format off */
static const char perceptron[] =
    "ampc-ir 3\n"
    "param @w1 : f64[4,6] = zero\n"
    "param @b1 : f64[6] = zero\n"
    "param @w2 : f64[6,5] = zero\n"
    "param @w3 : f64[5,3] = zero\n"
    "state @rng : i64[2] = [7, 0] as rng\n"
    "graph @forward(@x : f64[5,4]) as forward {\n"
    "  %h = matmul @x, @w1, @b1 : f64[5,6] !Gemm \"fc1\"\n"
    "  %r = gelu %h : f64[5,6] !Gelu \"gelu\"\n"
    "  %d, %k = dropout %r, @rng {ratio=0.25} : f64[5,6], bool[5,6] !Dropout \"drop\"\n"
    "  %g = matmul %d, @w2 : f64[5,5] !MatMul \"fc2\"\n"
    "  %s = swish %g : f64[5,5] !Swish \"swish\"\n"
    "  %y = matmul %s, @w3 : f64[5,3] !MatMul \"fc3\"\n"
    "  output \"y\" = %y\n"
    "}\n";

#define CONVOLUTIONAL(training) \
    "ampc-ir 3\n" \
    "param @w1 : f64[4,2,3,3] = zero\n" \
    "param @b1 : f64[4] = zero\n" \
    "param @scale : f64[4] = zero\n" \
    "param @shift : f64[4] = zero\n" \
    "param @w2 : f64[4,2,2,2] = zero\n" \
    "param @w3 : f64[2,1,3,3] = zero\n" \
    "param @w4 : f64[18,3] = zero\n" \
    "state @mean : f64[4] = [0.1, 0.2, -0.1, 0.3]\n" \
    "state @var : f64[4] = [1, 0.5, 2, 1.5]\n" \
    "graph @forward(@x : f64[3,2,6,6]) as forward {\n" \
    "  %c = conv @x, @w1, @b1 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} : f64[3,4,6,6] !Conv \"conv\"\n" \
    "  %n, %m, %v, %sm, %sr = batch_norm %c, @scale, @shift, @mean, @var {training=" training "} : f64[3,4,6,6], " \
    "f64[4], f64[4], f64[4], f64[4] !BatchNormalization \"bn\"\n" \
    "  %r = leaky_relu %n {alpha=0.25} : f64[3,4,6,6] !LeakyRelu \"leaky\"\n" \
    "  %p, %i = max_pool %r {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} : f64[3,4,3,3], " \
    "i64[3,4,3,3] !MaxPool \"max\"\n" \
    "  %u = conv_grad_input %p, @w2 {shape=[3,2,6,6], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} : " \
    "f64[3,2,6,6] !ConvTranspose \"up\"\n" \
    "  %t = softplus %u : f64[3,2,6,6] !Softplus \"softplus\"\n" \
    "  %g = conv %t, @w3 {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=2} : f64[3,2,6,6] !Conv \"group\"\n" \
    "  %e = relu %g : f64[3,2,6,6] !Relu \"relu\"\n" \
    "  %a = avg_pool %e {kernel=[3,3], strides=[2,2], pads=[1,1,1,1], dilations=[1,1]} : f64[3,2,3,3] " \
    "!AveragePool \"avg\"\n" \
    "  %f = reshape %a {shape=[3,18]} : f64[3,18] !Flatten \"flatten\"\n" \
    "  %y = matmul %f, @w4 : f64[3,3] !MatMul \"fc\"\n" \
    "  output \"y\" = %y\n" \
    "}\n"

static const char convolutional[] = CONVOLUTIONAL("true"), with_running_statistics[] = CONVOLUTIONAL("false");

/* Two tokens streams of length 4, one head, a causal mask, tied embeddings. */
static const char transformer[] =
    "ampc-ir 3\n"
    "param @table : f64[7,6] = zero\n"
    "param @place : f64[4,6] = zero\n"
    "param @g1 : f64[6] = zero\n"
    "param @b1 : f64[6] = zero\n"
    "param @wq : f64[6,6] = zero\n"
    "param @wk : f64[6,6] = zero\n"
    "param @wv : f64[6,6] = zero\n"
    "param @g2 : f64[6] = zero\n"
    "param @w1 : f64[6,8] = zero\n"
    "param @w2 : f64[8,6] = zero\n"
    "const @mask : f64[4,4] = [0, -1e9, -1e9, -1e9, 0, 0, -1e9, -1e9, 0, 0, 0, -1e9, 0, 0, 0, 0]\n"
    "const @root : f64[] = 2.449489742783178\n"
    "graph @forward(@ids : i64[2,4]) as forward {\n"
    "  %e = gather @table, @ids : f64[2,4,6] !Gather \"embed\"\n"
    "  %x = add %e, @place : f64[2,4,6] !Add \"place\"\n"
    "  %n, %m1, %r1 = layer_norm %x, @g1, @b1 : f64[2,4,6], f64[2,4,1], f64[2,4,1] !LayerNormalization \"ln1\"\n"
    "  %q = matmul %n, @wq : f64[2,4,6] !MatMul \"q\"\n"
    "  %k = matmul %n, @wk : f64[2,4,6] !MatMul \"k\"\n"
    "  %v = matmul %n, @wv : f64[2,4,6] !MatMul \"v\"\n"
    "  %qk = matmul %q, %k {trans_b=true} : f64[2,4,4] !MatMul \"qk\"\n"
    "  %sc = div %qk, @root : f64[2,4,4] !Div \"scale\"\n"
    "  %mk = add %sc, @mask : f64[2,4,4] !Add \"mask\"\n"
    "  %p = softmax %mk : f64[2,4,4] !Softmax \"softmax\"\n"
    "  %a = matmul %p, %v : f64[2,4,6] !MatMul \"pv\"\n"
    "  %h = add %x, %a : f64[2,4,6] !Add \"residual1\"\n"
    "  %o, %m2, %r2 = layer_norm %h, @g2 {center=false} : f64[2,4,6], f64[2,4,1], f64[2,4,1] "
    "!RMSNormalization \"ln2\"\n"
    "  %f = matmul %o, @w1 : f64[2,4,8] !MatMul \"fc1\"\n"
    "  %t = gelu %f {tanh=true} : f64[2,4,8] !Gelu \"gelu\"\n"
    "  %w = matmul %t, @w2 : f64[2,4,6] !MatMul \"fc2\"\n"
    "  %z = add %h, %w : f64[2,4,6] !Add \"residual2\"\n"
    "  %l = matmul %z, @table {trans_b=true} : f64[2,4,7] !MatMul \"head\"\n"
    "  %y = reshape %l {shape=[8,7]} : f64[8,7] !Reshape \"rows\"\n"
    "  output \"y\" = %y\n"
    "}\n";
/* clang-format on */

typedef struct subject {
    const char *name, *text, *loss, *penalty;
    double weight, target; /* of the option; target < 0: none */
} subject;

static const subject subjects[] = {
    {"mlp, mse, parameters", perceptron, "mse", "L2:params,1", 1, -1},
    {"mlp, mse, input", perceptron, "mse", "L2:input,0.5", 0.5, -1},
    {"mlp, ce, target", perceptron, "ce", "L2:input,10,target=1", 10, 1},
    {"mlp, bce_logits, some parameters", perceptron, "bce_logits", "L2:params=w*,0.1", 0.1, -1},
    {"mlp, l1", perceptron, "l1", "L2:params=w1,2", 2, -1},
    {"cnn, ce, parameters", convolutional, "ce", "L2:params,1", 1, -1},
    {"cnn, mse, input", convolutional, "mse", "L2:input=x,3,target=0.5", 3, 0.5},
    {"cnn, running statistics", with_running_statistics, "ce", "L2:params,1", 1, -1},
    {"cnn, running statistics, input", with_running_statistics, "ce", "L2:input,1", 1, -1},
    {"transformer, ce", transformer, "ce", "L2:params,1", 1, -1},
    {"transformer, nll, target", transformer, "nll", "L2:params,0.5,target=2", 0.5, 2},
};

#endif
