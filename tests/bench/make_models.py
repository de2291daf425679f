#!/usr/bin/python3
"""Writes the models that tools/bench measures, NAME.onnx each; all with random weights.

resnet50   ResNet-50 v1.5 for 224 x 224 images, BatchNormalization in training form (98 MB)
chain      10,000 nodes: MatMul, Add, LayerNormalization, Relu on 16 features, again and again
mlp        the PyTorch AMP recipe's MLP: three Linear layers of 4096 features, ReLU between them (201 MB)
decoder    a transformer decoder of 200 layers, 7,800 nodes, 64 features (40 MB); norms written out, their nodes named *norm*
weights    16 products with 4096 x 4096 weights: 1 GiB
bert       BERT-base for sequences of 128 tokens, a class for each token (520 MB)
gpt2       GPT-2 124M for sequences of 1024 tokens, the next token from tied embeddings (500 MB)

bert and gpt2 are made only when named. With --zeros all weights are 0 and the files compress to nothing: whoever runs
them lets ampc draw the weights (--init).

usage: make_models.py [--zeros] FOLDER [MODEL..]
"""
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

OPSET = 17


class Network:
    def __init__(self, name, x_shape):
        self.name, self.random = name, np.random.default_rng(1)
        self.nodes, self.weights = [], []
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, x_shape)

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))
        return name

    def drawn(self, name, shape, fan_in):
        if ZEROS:
            return self.weight(name, np.zeros(shape, np.float32))
        values = self.random.random(shape, np.float32)
        return self.weight(name, (2 * values - 1) * np.float32(np.sqrt(3.0 / fan_in)))

    def node(self, op, inputs, name, results=("y",), **attributes):
        outputs = [f"{name}.{r}" for r in results]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def whole(self, name, values):
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def save(self, folder, y_shape):
        self.nodes[-1].output[0] = "y"
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, y_shape)
        graph = helper.make_graph(self.nodes, self.name, [self.input], [output], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="ampc")
        model.ir_version = 8
        save(model, str(folder / f"{self.name}.onnx"))


def conv_norm(net, x, name, channels_in, channels, kernel, stride=1):
    fan_in = channels_in * kernel * kernel
    x = net.node("Conv", [x, net.drawn(f"{name}.weight", [channels, channels_in, kernel, kernel], fan_in)], name,
                 kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)
    norm = f"{name}.bn"
    statistics = [net.weight(f"{norm}.{part}", np.full(channels, value))
                  for part, value in (("scale", 1), ("bias", 0), ("mean", 0), ("var", 1))]
    return net.node("BatchNormalization", [x, *statistics], norm, ("y", "mean_out", "var_out"), training_mode=1)


def bottleneck(net, x, name, channels_in, width, stride):
    y = net.node("Relu", [conv_norm(net, x, f"{name}.1", channels_in, width, 1)], f"{name}.relu1")
    y = net.node("Relu", [conv_norm(net, y, f"{name}.2", width, width, 3, stride)], f"{name}.relu2")
    y = conv_norm(net, y, f"{name}.3", width, 4 * width, 1)
    if stride > 1 or channels_in != 4 * width:
        x = conv_norm(net, x, f"{name}.down", channels_in, 4 * width, 1, stride)
    return net.node("Relu", [net.node("Add", [y, x], f"{name}.add")], f"{name}.relu3")


def resnet50(folder):
    net = Network("resnet50", ["N", 3, 224, 224])
    x = net.node("Relu", [conv_norm(net, "x", "stem", 3, 64, 7, 2)], "stem.relu")
    x = net.node("MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], 1):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 1 else 1
            x = bottleneck(net, x, f"layer{stage}.{block}", channels, width, stride)
            channels = 4 * width
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x], "pool")], "flatten", axis=1)
    weight = net.drawn("fc.weight", [1000, channels], channels)
    net.node("Gemm", [x, weight, net.weight("fc.bias", np.zeros(1000))], "fc", transB=1)
    net.save(folder, ["N", 1000])


def chain(folder, nodes=10_000, width=16):
    net, x = Network("chain", ["N", width]), "x"
    for i in range(nodes // 4):
        x = net.node("MatMul", [x, net.drawn(f"{i}.weight", [width, width], width)], f"{i}.matmul")
        x = net.node("Add", [x, net.weight(f"{i}.bias", np.zeros(width))], f"{i}.add")
        scale, bias = net.weight(f"{i}.scale", np.ones(width)), net.weight(f"{i}.shift", np.zeros(width))
        x = net.node("LayerNormalization", [x, scale, bias], f"{i}.norm")
        x = net.node("Relu", [x], f"{i}.relu")
    net.save(folder, ["N", width])


def mlp(folder, width=4096, layers=3):
    net, x = Network("mlp", ["N", width]), "x"
    for i in range(layers):
        weight = net.drawn(f"{i}.weight", [width, width], width)
        x = net.node("Gemm", [x, weight, net.weight(f"{i}.bias", np.zeros(width))], f"{i}.gemm", transB=1)
        if i < layers - 1:
            x = net.node("Relu", [x], f"{i}.relu")
    net.save(folder, ["N", width])


def layer_norm(net, x, name, width):
    """As exporters wrote it before there was an operator: 9 nodes."""
    mean = net.node("ReduceMean", [x], f"{name}.mean", axes=[-1])
    centred = net.node("Sub", [x, mean], f"{name}.centred")
    square = net.node("Pow", [centred, net.weight(f"{name}.two", np.array(2))], f"{name}.square")
    variance = net.node("ReduceMean", [square], f"{name}.variance", axes=[-1])
    guarded = net.node("Add", [variance, net.weight(f"{name}.eps", np.array(1e-5))], f"{name}.guarded")
    root = net.node("Sqrt", [guarded], f"{name}.root")
    y = net.node("Div", [centred, root], f"{name}.div")
    y = net.node("Mul", [y, net.weight(f"{name}.scale", np.ones(width))], f"{name}.mul")
    return net.node("Add", [y, net.weight(f"{name}.bias", np.zeros(width))], f"{name}.add")


def linear(net, x, name, fan_in, width):
    x = net.node("MatMul", [x, net.drawn(f"{name}.weight", [fan_in, width], fan_in)], f"{name}.matmul")
    return net.node("Add", [x, net.weight(f"{name}.bias", np.zeros(width))], f"{name}.add")


def decoder_layer(net, x, name, mask, width):
    """39 nodes."""
    h = layer_norm(net, x, f"{name}.norm1", width)
    q, k, v = (linear(net, h, f"{name}.{part}", width, width) for part in "qkv")
    k = net.node("Transpose", [k], f"{name}.transpose", perm=[0, 2, 1])
    scores = net.node("MatMul", [q, k], f"{name}.scores")
    root = net.weight(f"{name}.root", np.array(np.sqrt(width)))
    scores = net.node("Add", [net.node("Div", [scores, root], f"{name}.div"), mask], f"{name}.mask")
    weights = net.node("Softmax", [scores], f"{name}.softmax", axis=-1)
    h = linear(net, net.node("MatMul", [weights, v], f"{name}.mix"), f"{name}.out", width, width)
    x = net.node("Add", [x, h], f"{name}.sum1")
    h = linear(net, layer_norm(net, x, f"{name}.norm2", width), f"{name}.up", width, 4 * width)
    h = linear(net, net.node("Relu", [h], f"{name}.relu"), f"{name}.down", 4 * width, width)
    return net.node("Add", [x, h], f"{name}.sum2")


def decoder(folder, layers=200, width=64, length=8):
    net, x = Network("decoder", ["N", length, width]), "x"
    mask = net.weight("mask", np.triu(np.full((length, length), -1e4), 1))
    for i in range(layers):
        x = decoder_layer(net, x, str(i), mask, width)
    net.save(folder, ["N", length, width])


def weights(folder, width=4096, layers=16):
    net, x = Network("weights", ["N", width]), "x"
    for i in range(layers):
        x = net.node("MatMul", [x, net.drawn(f"{i}.weight", [width, width], width)], f"{i}.matmul")
    net.save(folder, ["N", width])


def norm(net, x, name, width):
    scale, bias = net.weight(f"{name}.scale", np.ones(width)), net.weight(f"{name}.bias", np.zeros(width))
    return net.node("LayerNormalization", [x, scale, bias], name, axis=-1)


def gelu(net, x, name):
    """The erf form, as exporters wrote it before there was an operator."""
    inner = net.node("Erf", [net.node("Div", [x, "gelu.root"], f"{name}.div")], f"{name}.erf")
    one = net.node("Mul", [x, net.node("Add", [inner, "gelu.one"], f"{name}.one")], f"{name}.mul")
    return net.node("Mul", [one, "gelu.half"], f"{name}.half")


def attention(net, x, name, width, heads, length, mask):
    parts = net.node("Split", [linear(net, x, f"{name}.qkv", width, 3 * width)], f"{name}.split", ("q", "k", "v"), axis=-1)
    q, k, v = (parts[:-1] + part for part in "qkv")
    q, k, v = (net.node("Reshape", [part, "heads"], f"{name}.heads.{i}") for i, part in enumerate((q, k, v)))
    q = net.node("Transpose", [q], f"{name}.q", perm=[0, 2, 1, 3])
    k = net.node("Transpose", [k], f"{name}.k", perm=[0, 2, 3, 1])
    v = net.node("Transpose", [v], f"{name}.v", perm=[0, 2, 1, 3])
    scores = net.node("Mul", [net.node("MatMul", [q, k], f"{name}.scores"), "scale"], f"{name}.scaled")
    if mask:
        scores = net.node("Add", [scores, mask], f"{name}.masked")
    y = net.node("MatMul", [net.node("Softmax", [scores], f"{name}.softmax", axis=-1), v], f"{name}.mix")
    y = net.node("Reshape", [net.node("Transpose", [y], f"{name}.y", perm=[0, 2, 1, 3]), "merged"], f"{name}.merge")
    return linear(net, y, f"{name}.out", width, width)


def transformer(net, length, vocabulary, width, layers, heads, causal):
    net.input = helper.make_tensor_value_info("x", TensorProto.INT64, ["N", length])
    net.whole("heads", [0, length, heads, width // heads])
    net.whole("merged", [0, length, width])
    net.weight("scale", np.array((width // heads) ** -0.5))
    for name, value in (("root", np.sqrt(2.0)), ("one", 1), ("half", 0.5)):
        net.weight(f"gelu.{name}", np.array(value))
    mask = net.weight("mask", np.triu(np.full((length, length), -1e4), 1)) if causal else None
    x = net.node("Gather", [net.drawn("tokens", [vocabulary, width], width), "x"], "embed")
    x = net.node("Add", [x, net.drawn("positions", [length, width], width)], "embed.sum")
    for i in range(layers):
        if causal:  # norms before
            h = attention(net, norm(net, x, f"{i}.norm1", width), f"{i}.attention", width, heads, length, mask)
            x = net.node("Add", [x, h], f"{i}.sum1")
            h = linear(net, norm(net, x, f"{i}.norm2", width), f"{i}.up", width, 4 * width)
            x = net.node("Add", [x, linear(net, gelu(net, h, f"{i}.gelu"), f"{i}.down", 4 * width, width)], f"{i}.sum2")
        else:  # norms after
            h = attention(net, x, f"{i}.attention", width, heads, length, mask)
            x = norm(net, net.node("Add", [x, h], f"{i}.sum1"), f"{i}.norm1", width)
            h = gelu(net, linear(net, x, f"{i}.up", width, 4 * width), f"{i}.gelu")
            h = linear(net, h, f"{i}.down", 4 * width, width)
            x = norm(net, net.node("Add", [x, h], f"{i}.sum2"), f"{i}.norm2", width)
    return norm(net, x, "norm", width) if causal else x


def bert(folder, length=128, vocabulary=30522, width=768):
    net = Network("bert", ["N", length])
    x = transformer(net, length, vocabulary, width, 12, 12, False)
    x = linear(net, x, "head", width, vocabulary)
    net.node("Reshape", [x, net.whole("tokens.first", [-1, vocabulary])], "logits")
    net.save(folder, ["M", vocabulary])


def gpt2(folder, length=1024, vocabulary=50257, width=768):
    net = Network("gpt2", ["N", length])
    x = transformer(net, length, vocabulary, width, 12, 12, True)
    x = net.node("Reshape", [x, net.whole("tokens.first", [-1, width])], "rows")
    net.node("MatMul", [x, net.node("Transpose", ["tokens"], "tied", perm=[1, 0])], "logits")
    net.save(folder, ["M", vocabulary])


MODELS = {"resnet50": resnet50, "chain": chain, "mlp": mlp, "decoder": decoder, "weights": weights}
LARGE = {"bert": bert, "gpt2": gpt2}
ZEROS = "--zeros" in sys.argv
arguments = [a for a in sys.argv[1:] if a != "--zeros"]
target = Path(arguments[0])
target.mkdir(parents=True, exist_ok=True)
for chosen in arguments[1:] or MODELS:
    {**MODELS, **LARGE}[chosen](target)
