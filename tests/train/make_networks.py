#!/usr/bin/python3
"""Writes the networks that tests/train/equivalence and tests/train/accuracy train on Fashion-MNIST as FOLDER/NAME.onnx.

mlp          image - fc 256 - fc 128 - fc 10, ReLU
lenet        conv 5x5x6, pool, conv 5x5x16, pool, fc 120, fc 84, fc 10, ReLU
resnet       conv 3x3x16, pool, residual blocks of 16, 32 and 64 channels with BatchNormalization, mean, fc 10
transformer  the rows of the image as 28 tokens of width 48, two blocks (attention with 4 heads, GELU), mean, fc 10
resnet93     like resnet with 64, 96 and 128 channels: for accuracy rather than speed

Weights are zero: compile with --init=kaiming or xavier. Needs python3-onnx and python3-numpy.

usage: make_networks.py FOLDER [NAME..]
"""
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

nodes, weights = [], []


def weight(name, shape, value=0.0):
    weights.append(numpy_helper.from_array(np.full(shape, value, np.float32), name))
    return name


def integers(name, *values):
    weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
    return name


def node(op, inputs, name, results=("out",), **attributes):
    results = [f"{name}.{r}" for r in results]
    nodes.append(helper.make_node(op, inputs, results, name=name, **attributes))
    return results[0]


def linear(x, name, size_in, size):
    return node("Gemm", [x, weight(f"{name}.weight", [size, size_in]), weight(f"{name}.bias", [size])], name, transB=1)


def relu(x, name):
    return node("Relu", [x], f"{name}.relu")


def hidden(x, name, size_in, size):
    return relu(linear(x, name, size_in, size), name)


def conv(x, name, channels_in, channels, size, stride=1, pad=0, bias=False):
    inputs = [x, weight(f"{name}.weight", [channels, channels_in, size, size])]
    if bias:
        inputs.append(weight(f"{name}.bias", [channels]))
    return node("Conv", inputs, name, kernel_shape=[size, size], strides=[stride, stride], pads=[pad] * 4)


def conv_norm(x, name, channels_in, channels, size, stride=1):
    x = conv(x, name, channels_in, channels, size, stride, size // 2)
    norm = f"{name}.norm"
    state = [weight(f"{norm}.{key}", [channels], value)
             for key, value in (("scale", 1), ("bias", 0), ("mean", 0), ("var", 1))]
    return node("BatchNormalization", [x, *state], norm, ["out", "mean_out", "var_out"], training_mode=1)


def pool(x, name):
    return node("MaxPool", [x], name, kernel_shape=[2, 2], strides=[2, 2])


def mlp(x):
    x = node("Flatten", [x], "flatten")
    return linear(hidden(hidden(x, "fc1", 784, 256), "fc2", 256, 128), "fc3", 128, 10)


def lenet(x):
    x = pool(relu(conv(x, "conv1", 1, 6, 5, pad=2, bias=True), "conv1"), "pool1")
    x = pool(relu(conv(x, "conv2", 6, 16, 5, bias=True), "conv2"), "pool2")
    x = hidden(node("Flatten", [x], "flatten"), "fc1", 400, 120)
    return linear(hidden(x, "fc2", 120, 84), "fc3", 84, 10)


def residual(x, name, channels_in, channels):
    """Two convolutions, added to the identity, or to a 1x1 convolution where size and channels change."""
    stride = 1 if channels_in == channels else 2
    y = relu(conv_norm(x, f"{name}.conv1", channels_in, channels, 3, stride), f"{name}.conv1")
    y = conv_norm(y, f"{name}.conv2", channels, channels, 3)
    if stride == 2:
        x = conv_norm(x, f"{name}.shortcut", channels_in, channels, 1, 2)
    return relu(node("Add", [x, y], f"{name}.add"), name)


def residual_network(x, stem, channels, blocks):
    x = pool(relu(conv_norm(x, "stem", 1, stem, 3), "stem"), "pool")
    width = stem
    for stage, size in enumerate(channels, 1):
        for block in range(1, blocks + 1):
            x = residual(x, f"stage{stage}.block{block}", width, size)
            width = size
    x = node("Flatten", [node("GlobalAveragePool", [x], "mean")], "flatten")
    return linear(x, "fc", width, 10)


def resnet(x):
    return residual_network(x, 16, [16, 32, 64], 1)


def mirrored(x):
    """Mirrors half of the images in training: a Dropout of ones is 0 or 2 in training and 1 in evaluation."""
    constant("zero", 0.0)
    constant("one", 1.0)
    weights.append(numpy_helper.from_array(np.float32(0.5), "mirror.ratio"))
    weights.append(numpy_helper.from_array(np.True_, "mirror.training"))
    ones = node("Add", [node("Mul", [node("ReduceMean", [x], "pick.mean", axes=[1, 2, 3]), "zero"], "pick.zeros"), "one"],
                "pick.ones")
    pick = node("Dropout", [ones, "mirror.ratio", "mirror.training"], "pick", ["out"])
    keep = node("Min", [pick, "one"], "pick.keep")
    mirror = node("Slice", [x, integers("mirror.start", -1), integers("mirror.end", -29), integers("mirror.axis", 3),
                            integers("mirror.step", -1)], "mirror")
    return node("Add", [mirror, node("Mul", [node("Sub", [x, mirror], "mirror.sub"), keep], "mirror.keep")], "mirrored")


def resnet93(x):
    return residual_network(mirrored(x), 64, [64, 96, 128], 1)


WIDTH, HEADS = 48, 4


def tokens_linear(x, name, size_in, size):
    x = node("MatMul", [x, weight(f"{name}.weight", [size_in, size])], f"{name}.matmul")
    return node("Add", [x, weight(f"{name}.bias", [size])], name)


def norm(x, name):
    return node("LayerNormalization", [x, weight(f"{name}.scale", [WIDTH], 1), weight(f"{name}.bias", [WIDTH])], name)


def heads(x, name, order):
    x = node("Reshape", [x, "split"], f"{name}.split")
    return node("Transpose", [x], f"{name}.transpose", perm=order)


def attention(x, name):
    q, k, v = (tokens_linear(x, f"{name}.{part}", WIDTH, WIDTH) for part in "qkv")
    scores = node("MatMul", [heads(q, f"{name}.q", [0, 2, 1, 3]), heads(k, f"{name}.k", [0, 2, 3, 1])], f"{name}.scores")
    scores = node("Softmax", [node("Mul", [scores, "root"], f"{name}.scaled")], f"{name}.softmax", axis=-1)
    x = node("MatMul", [scores, heads(v, f"{name}.v", [0, 2, 1, 3])], f"{name}.mix")
    x = node("Reshape", [node("Transpose", [x], f"{name}.back", perm=[0, 2, 1, 3]), "join"], f"{name}.join")
    return tokens_linear(x, f"{name}.out", WIDTH, WIDTH)


def constant(name, value):
    nodes.append(helper.make_node("Constant", [], [name], name=name, value_float=value))


def gelu(x, name):
    y = node("Erf", [node("Mul", [x, "sqrt_half"], f"{name}.scaled")], f"{name}.erf")
    y = node("Mul", [x, node("Add", [y, "one"], f"{name}.plus")], f"{name}.gate")
    return node("Mul", [y, "half"], name)


def block(x, name):
    x = node("Add", [x, attention(norm(x, f"{name}.norm1"), f"{name}.attention")], f"{name}.add1")
    y = tokens_linear(norm(x, f"{name}.norm2"), f"{name}.fc1", WIDTH, 2 * WIDTH)
    y = tokens_linear(gelu(y, f"{name}.gelu"), f"{name}.fc2", 2 * WIDTH, WIDTH)
    return node("Add", [x, y], f"{name}.add2")


def transformer(x):
    integers("rows", 0, 28, 28)
    integers("split", 0, 28, HEADS, WIDTH // HEADS)
    integers("join", 0, 28, WIDTH)
    constant("root", (WIDTH // HEADS) ** -0.5)
    constant("sqrt_half", 0.5 ** 0.5)
    constant("one", 1.0)
    constant("half", 0.5)
    x = tokens_linear(node("Reshape", [x, "rows"], "rows.tokens"), "embed", 28, WIDTH)
    places = np.random.default_rng(1).normal(0, 0.02, [28, WIDTH]).astype(np.float32)
    weights.append(numpy_helper.from_array(places, "position"))
    x = node("Add", [x, "position"], "embed.position")
    x = norm(block(block(x, "block1"), "block2"), "norm")
    return linear(node("ReduceMean", [x], "mean", axes=[1], keepdims=0), "fc", WIDTH, 10)


def write(folder, build):
    nodes.clear()
    weights.clear()
    build("image")
    nodes[-1].output[0] = "logits"
    graph = helper.make_graph(
        nodes, build.__name__,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="ampc")
    checker.check_model(model, full_check=True)
    save(model, str(folder / f"{build.__name__}.onnx"))


NETWORKS = {build.__name__: build for build in (mlp, lenet, resnet, transformer, resnet93)}

if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(NETWORKS):
        sys.exit(__doc__)
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NETWORKS:
        write(Path(sys.argv[1]), NETWORKS[name])
