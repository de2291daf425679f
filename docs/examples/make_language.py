#!/usr/bin/python3
"""Writes language.onnx, the model of language.c: a transformer block over 32 characters of 32 kinds.

tokens [N,32] - embeddings of characters and positions - causal attention with 2 heads - 2 linear layers - scores [N,32,32]
Needs python3-onnx and python3-numpy."""
import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

KINDS, LENGTH, WIDTH, HEADS, INNER = 32, 32, 24, 2, 64
random = np.random.default_rng(1)
nodes, weights = [], []


def weight(name, *shape, value=None):
    drawn = random.normal(0, 0.02 if value is None else 0, shape) + (value or 0)
    weights.append(numpy_helper.from_array(drawn.astype(np.float32), name))
    return name


def node(op, inputs, name, **attributes):
    nodes.append(helper.make_node(op, inputs, [f"{name}.y"], name=name, **attributes))
    return f"{name}.y"


def constant(name, array):
    return node("Constant", [], name, value=numpy_helper.from_array(array))


def linear(x, name, rows, columns):
    x = node("MatMul", [x, weight(f"{name}.weight", rows, columns)], name)
    return node("Add", [x, weight(f"{name}.bias", columns, value=0.0)], f"{name}.add")


def norm(x, name):
    scale, bias = weight(f"{name}.weight", WIDTH, value=1.0), weight(f"{name}.bias", WIDTH, value=0.0)
    return node("LayerNormalization", [x, scale, bias], name)


def heads(x, name, perm):
    shape = constant(f"{name}.shape", np.array([0, 0, HEADS, WIDTH // HEADS]))
    return node("Transpose", [node("Reshape", [x, shape], f"{name}.reshape")], name, perm=perm)


def attention(x):
    q, k, v = (linear(x, name, WIDTH, WIDTH) for name in ("query", "key", "value"))
    scores = node("MatMul", [heads(q, "q", [0, 2, 1, 3]), heads(k, "k", [0, 2, 3, 1])], "scores")
    scores = node("Div", [scores, constant("root", np.float32((WIDTH // HEADS) ** 0.5))], "scaled")
    mask = np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1)
    p = node("Softmax", [node("Add", [scores, constant("mask", mask)], "masked")], "softmax", axis=-1)
    y = node("Transpose", [node("MatMul", [p, heads(v, "v", [0, 2, 1, 3])], "mixed")], "joined", perm=[0, 2, 1, 3])
    y = node("Reshape", [y, constant("joined.shape", np.array([0, 0, WIDTH]))], "joined.reshape")
    return linear(y, "out", WIDTH, WIDTH)


x = node("Gather", [weight("characters", KINDS, WIDTH), "tokens"], "embed")
x = node("Add", [x, weight("positions", LENGTH, WIDTH)], "place")
x = node("Add", [x, attention(norm(x, "norm1"))], "residual1")
y = node("Relu", [linear(norm(x, "norm2"), "up", WIDTH, INNER)], "relu")
x = node("Add", [x, linear(y, "down", INNER, WIDTH)], "residual2")
nodes.append(helper.make_node("MatMul", [norm(x, "norm3"), weight("head", WIDTH, KINDS)], ["scores"], name="head"))
tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["N", LENGTH])
scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", LENGTH, KINDS])
graph = helper.make_graph(nodes, "language", [tokens], [scores], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
checker.check_model(model, full_check=True)
save(model, "language.onnx")
