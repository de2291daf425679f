#!/usr/bin/python3
"""Writes mlp.onnx: a small classifier with every kind of training state.

x [N,4] - fc 8 - BatchNormalization in training form - ReLU - Dropout 0.25 - fc 2. Needs python3-onnx and python3-numpy.

usage: make_mlp.py [FILE]
"""
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

random = np.random.default_rng(1)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def vector(name, value, size):
    return constant(name, np.full(size, value, np.float32))


def drawn(name, rows, columns):
    return constant(name, random.uniform(-0.8, 0.8, [rows, columns]).astype(np.float32))


weights = [
    drawn("fc1.weight", 4, 8), vector("fc1.bias", 0, 8),
    vector("bn.scale", 1, 8), vector("bn.bias", 0, 8), vector("bn.mean", 0, 8), vector("bn.var", 1, 8),
    drawn("fc2.weight", 8, 2), vector("fc2.bias", 0, 2),
    constant("drop.ratio", np.float32(0.25)), constant("drop.training", np.True_),
]
nodes = [
    helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["fc1.out"], name="fc1"),
    helper.make_node("BatchNormalization", ["fc1.out", "bn.scale", "bn.bias", "bn.mean", "bn.var"],
                     ["bn.out", "bn.mean_out", "bn.var_out"], name="bn", training_mode=1),
    helper.make_node("Relu", ["bn.out"], ["relu.out"], name="relu"),
    helper.make_node("Dropout", ["relu.out", "drop.ratio", "drop.training"], ["drop.out"], name="drop"),
    helper.make_node("Gemm", ["drop.out", "fc2.weight", "fc2.bias"], ["scores"], name="fc2"),
]
graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
                          [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 2])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="ampc")
checker.check_model(model, full_check=True)
save(model, sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("mlp.onnx"))
