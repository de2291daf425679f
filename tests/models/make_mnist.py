#!/usr/bin/python3
"""Writes mnist.onnx: the MNIST network of PaddlePaddle's AMP guide, to be trained.

image [N,1,28,28] - conv 5x5x16, BN, ReLU, max pool 2x2 - conv 5x5x64, BN, ReLU, max pool 2x2 - fc 64, ReLU - fc 10.
There is no padding, BatchNormalization is in training form (three outputs), weights are random by fan-in with
a fixed seed. Needs python3-onnx and python3-numpy.

usage: make_mnist.py [FILE]
"""
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

random = np.random.default_rng(1)
nodes, weights = [], []


def weight(name, array):
    weights.append(numpy_helper.from_array(array.astype(np.float32), name))
    return name


def drawn(name, shape, fan_in):
    bound = np.sqrt(6.0 / fan_in)
    return weight(name, random.uniform(-bound, bound, shape))


def node(op, inputs, name, outputs=("out",), **attributes):
    outputs = [f"{name}.{o}" if o else "" for o in outputs]
    nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
    return outputs[0]


def conv_block(x, index, channels_in, channels):
    shape = [channels, channels_in, 5, 5]
    x = node("Conv", [x, drawn(f"conv{index}.weight", shape, channels_in * 25),
                      weight(f"conv{index}.bias", np.zeros(channels))],
             f"conv{index}", kernel_shape=[5, 5])
    bn = f"bn{index}"
    x = node("BatchNormalization",
             [x, weight(f"{bn}.scale", np.ones(channels)), weight(f"{bn}.bias", np.zeros(channels)),
              weight(f"{bn}.mean", np.zeros(channels)), weight(f"{bn}.var", np.ones(channels))],
             bn, ["out", "mean_out", "var_out"], training_mode=1, momentum=0.9, epsilon=1e-5)
    x = node("Relu", [x], f"relu{index}")
    return node("MaxPool", [x], f"pool{index}", kernel_shape=[2, 2], strides=[2, 2])


def fully_connected(x, name, size_in, size):
    return node("Gemm", [x, drawn(f"{name}.weight", [size, size_in], size_in), weight(f"{name}.bias", np.zeros(size))],
                name, transB=1)


x = conv_block("image", 1, 1, 16)
x = conv_block(x, 2, 16, 64)
x = node("Flatten", [x], "flatten", axis=1)
x = node("Relu", [fully_connected(x, "fc1", 64 * 4 * 4, 64)], "relu3")
x = fully_connected(x, "fc2", 64, 10)
nodes[-1].output[0] = "logits"

graph = helper.make_graph(
    nodes, "mnist",
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 28, 28])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="ampc")
model.ir_version = 8
checker.check_model(model, full_check=True)
target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("mnist.onnx")
save(model, str(target))
