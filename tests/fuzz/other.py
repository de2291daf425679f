"""Compares random uses of the operators that onnxruntime adds to ONNX's (frontend/lower/other_ops.def) with onnxruntime.

usage: python tests/fuzz/other.py BUILD [--count N] [--seed N] [--op OPERATOR] [--write DIR]

Needs current onnx, onnxruntime and numpy. Each operator has a function that draws a node: attributes, absent operands,
sizes of 0 and 1 among others. onnxruntime runs the model with its optimisations off; a drawing that it refuses is drawn
again. BUILD/ampc-run runs the same model; then the model is converted by BUILD/ampc, which must keep the node, and the
result must be what onnxruntime computes. An output differs if an element is off by more than 1e-4 of the largest, or, of a
quantised output, by more than one step in more than one of 200 elements.

--write stores one model for each form of each operator in DIR, whose operands are initializers and whose output is the
largest difference from what onnxruntime computes; tests/models/test_other.c runs these.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MS, ML, ONNX, NCHWC = "com.microsoft", "ai.onnx.ml", "", "com.microsoft.nchwc"
DRAWINGS = {}
onnxruntime.set_default_logger_severity(4)


class Refused(Exception):
    """onnxruntime cannot run the drawing."""


class Draw:
    """One node: operands by name, attributes, results."""

    def __init__(self, seed, small):
        self.r = np.random.default_rng(seed)
        self.small = small  # no empty sizes: the models that are stored
        self.inputs, self.outputs, self.attributes = [], ["y"], {}
        self.quantised = False
        self.enter, self.leave = None, None  # operators, with attributes, that make operand 0 and read result 0
        self.opset = int(self.r.choice([13, 15, 17, 18, 21]))

    def chance(self, p=0.5):
        return bool(self.r.random() < p)

    def pick(self, *items):
        return items[int(self.r.integers(len(items)))]

    def size(self, most=5):
        """A size: mostly small numbers, sometimes 1 or 0."""
        if not self.small and self.chance(0.04):
            return 0
        return 1 if self.chance(0.15) else int(self.r.integers(2, most + 1))

    def floats(self, *dims, scale=1.0):
        return (self.r.standard_normal(dims) * scale).astype(np.float32)

    def add(self, array):
        """Adds an operand; None: an absent one."""
        self.inputs.append(array)
        return array

    def maybe(self, array, p=0.5):
        return self.add(array if self.chance(p) else None)

    def set(self, **attributes):
        self.attributes.update(attributes)

    def sometimes(self, **attributes):
        for name, value in attributes.items():
            if self.chance():
                self.attributes[name] = value


def draws(domain, *operators):
    def register(function):
        for operator in operators:
            DRAWINGS[(domain, operator)] = function
        return function
    return register


# ---- what optimisers fuse -----------------------------------------------------------------------------------------


@draws(MS, "Gelu")
@draws(MS, "QuickGelu")
def gelu(d, operator):
    d.add(d.floats(*[d.size() for _ in range(d.pick(1, 2, 3))], scale=3))
    if operator == "QuickGelu":
        d.sometimes(alpha=float(d.pick(1.0, 1.702, 0.5)))


@draws(MS, "BiasGelu", "FastGelu")
def bias_gelu(d, operator):
    dims = [d.size() for _ in range(d.pick(1, 2, 3))]
    d.add(d.floats(*dims, scale=3))
    bias = d.floats(dims[-1])
    if operator == "BiasGelu":
        d.add(bias)
    else:
        d.maybe(bias)


@draws(ONNX, "SimplifiedLayerNormalization")
def simplified(d, operator):
    dims = [d.size() for _ in range(d.pick(2, 3, 4))]
    axis = d.pick(-1, -1, len(dims) - 1, 1)
    d.add(d.floats(*dims))
    d.add(d.floats(*dims[axis:]))
    d.sometimes(axis=axis, epsilon=float(d.pick(1e-5, 1e-2)), stash_type=1)
    if "axis" not in d.attributes:
        d.inputs[1] = d.floats(dims[-1])
    if d.chance(0.3):
        d.outputs.append("inv")


@draws(MS, "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(d, operator):
    batch, length, hidden = d.size(), d.size(), d.size(8)
    flat = d.chance(0.2)
    d.add(d.floats(*([length, hidden] if flat else [batch, length, hidden])))
    d.add(d.floats(*([length, hidden] if flat else d.pick([batch, length, hidden], [1, length, hidden], [length, hidden]))))
    d.add(d.floats(hidden))
    if operator == "SkipLayerNormalization":
        d.maybe(d.floats(hidden), 0.8)
    d.maybe(d.floats(hidden))
    d.sometimes(epsilon=float(d.pick(1e-5, 1e-2)))
    if d.chance(0.4):
        d.outputs += ["", "", "sum"]


@draws(MS, "EmbedLayerNormalization")
def embed(d, operator):
    batch, length, hidden = d.size(), d.size(), d.size(8)
    ids = lambda most: d.r.integers(0, most, (batch, length)).astype(np.int32)
    segments = d.chance()
    d.add(ids(6))
    d.add(ids(2) if segments else None)
    d.add(d.floats(6, hidden))
    d.add(d.floats(length + d.size(), hidden))
    d.add(d.floats(2, hidden) if segments else None)
    d.add(d.floats(hidden))
    d.add(d.floats(hidden))
    d.maybe(ids(2))
    if d.chance(0.3):
        d.add(d.r.integers(0, max(length, 1), (d.pick(1, batch), length)).astype(np.int32))
    d.sometimes(epsilon=1e-5, mask_index_type=0)
    d.outputs.append("index")
    if d.chance():
        d.outputs.append("sum")


@draws(MS, "FusedMatMul", "TransposeMatMul")
def fused_matmul(d, operator):
    m, k, n = d.size(), d.size(), d.size()
    batch = [d.size() for _ in range(d.pick(0, 1, 2))]
    flags = {name: int(d.chance()) for name in ("transA", "transB", "transBatchA", "transBatchB")}
    if operator == "TransposeMatMul" or not batch:
        flags["transBatchA"] = flags["transBatchB"] = 0

    def operand(rows, columns, transposed, batched, own):
        matrix = [columns, rows] if transposed else [rows, columns]
        return [matrix[0]] + own + [matrix[1]] if batched and own else own + matrix
    if d.chance(0.1):
        d.add(d.floats(k))
        d.add(d.floats(k, n))
        flags = {}
    else:
        short = d.chance(0.2) and not flags["transBatchB"]
        d.add(d.floats(*operand(m, k, flags["transA"], flags["transBatchA"], batch)))
        d.add(d.floats(*operand(k, n, flags["transB"], flags["transBatchB"], [] if short else batch)))
    d.set(**{name: value for name, value in flags.items() if value or d.chance()})
    d.sometimes(alpha=float(d.pick(0.5, 2.0)))


@draws(MS, "FusedGemm")
def fused_gemm(d, operator):
    m, k, n = d.size(), d.size(), d.size()
    a, b = int(d.chance()), int(d.chance())
    d.add(d.floats(*([k, m] if a else [m, k])))
    d.add(d.floats(*([n, k] if b else [k, n])))
    d.maybe(d.floats(*d.pick([n], [1, n], [m, n], [m, 1])))
    d.set(transA=a, transB=b)
    d.sometimes(alpha=0.5, beta=2.0)
    name = d.pick("", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Elu", "Softplus", "Selu", "ThresholdedRelu")
    d.set(activation=name)
    if name in ("LeakyRelu", "HardSigmoid", "Elu", "ThresholdedRelu"):
        d.set(activation_alpha=0.3)
    if name == "HardSigmoid":
        d.set(activation_beta=0.4)


@draws(MS, "FusedConv")
def fused_conv(d, operator):
    axes, group = d.pick(1, 2, 2, 2), d.pick(1, 1, 2)
    spatial = [int(d.r.integers(3, 7)) for _ in range(axes)]
    kernel = [int(d.r.integers(1, 4)) for _ in range(axes)]
    channels, maps = d.size(3) * group, max(1, d.size(3)) * group
    batch = d.size(2)
    x = d.floats(batch, channels, *spatial)
    d.add(x)
    d.add(d.floats(maps, channels // group, *kernel))
    d.set(group=group, kernel_shape=kernel)
    d.sometimes(pads=[1] * (2 * axes), strides=[2] * axes)
    with_bias, with_sum = d.chance(), d.chance(0.3)
    if with_bias or with_sum:
        d.add(d.floats(maps) if with_bias else None)
    if with_sum:
        pads, stride = (2 if "pads" in d.attributes else 0), (2 if "strides" in d.attributes else 1)
        out = [(s + pads - k) // stride + 1 for s, k in zip(spatial, kernel)]
        d.add(d.floats(batch, maps, *out))
    name = d.pick("", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip")
    if name:
        d.set(activation=name)
    parameters = {"LeakyRelu": [0.2], "HardSigmoid": [0.3, 0.4], "Clip": [-0.5, 0.7]}.get(name)
    if parameters:
        d.set(activation_params=parameters)


@draws(MS, "Attention")
def attention(d, operator):
    batch, length, heads, size, value = max(1, d.size()), max(1, d.size()), d.pick(1, 2), max(1, d.size()), max(1, d.size())
    value, past = (value if d.chance(0.3) else size), d.pick(0, 0, 2)
    if past:
        value = size
    width = max(1, d.size())
    d.add(d.floats(batch, length, width))
    d.add(d.floats(width, heads * (2 * size + value)))
    d.maybe(d.floats(heads * (2 * size + value)), 0.8)
    kind = d.pick(None, "ends", 2, 3)
    keys = length + past
    mask = {None: None, "ends": lambda: d.r.integers(1, keys + 1, batch), 2: lambda: d.r.integers(0, 2, (batch, keys)),
            3: lambda: d.r.integers(0, 2, (batch, length, keys))}[kind]
    mask = mask and mask().astype(np.int32)
    if mask is not None and mask.ndim > 1:
        mask[..., 0] = 1  # without any key, the rounding of the masks decides
    d.add(mask)
    d.add(d.floats(2, batch, heads, past, size) if past else None)
    d.maybe(d.floats(d.pick(1, batch), d.pick(1, heads), length, keys), 0.3)
    d.set(num_heads=heads)
    if value != size:
        d.set(qkv_hidden_sizes=[heads * size, heads * size, heads * value])
    d.sometimes(unidirectional=1, scale=0.3)
    if d.chance(0.3):
        d.set(mask_filter_value=-50.0)
    if past:
        d.outputs.append("present")


@draws(MS, "MultiHeadAttention")
def multi_head(d, operator):
    batch, queries, keys, heads = max(1, d.size()), max(1, d.size()), max(1, d.size()), d.pick(1, 2)
    keys = d.pick(keys, queries)
    size = max(1, d.size())
    value = max(1, d.size()) if d.chance(0.3) else size
    past = d.pick(0, 0, 2)
    d.add(d.floats(batch, queries, heads * size))
    d.add(d.floats(batch, keys, heads * size))
    d.add(d.floats(batch, keys, heads * value))
    d.maybe(d.floats(heads * (2 * size + value)))
    total = keys + past
    mask = d.r.integers(0, 2, d.pick([batch, total], [batch, queries, total])).astype(np.int32)
    mask[..., 0] = 1  # without any key, the rounding of the masks decides
    d.add(mask if d.chance() else None)
    d.maybe(d.floats(d.pick(1, batch), d.pick(1, heads), queries, total), 0.3)
    d.add(d.floats(batch, heads, past, size) if past else None)
    d.add(d.floats(batch, heads, past, value) if past else None)
    d.set(num_heads=heads)
    d.sometimes(scale=0.3)
    if queries == keys and d.chance():
        d.set(unidirectional=1)
    if past:
        d.outputs += ["present_k", "present_v"]


@draws(MS, "MatMulNBits")
def nbits(d, operator):
    bits, block = d.pick(4, 4, 8), d.pick(16, 32)
    rows, columns = max(1, d.size(8)), int(d.pick(16, 24, 32, 40, 64))
    blocks = -(-columns // block)
    d.add(d.floats(*d.pick([2], [1], [2, 3]), columns))
    d.add(d.r.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8))
    d.add(d.r.uniform(0.01, 0.1, d.pick([rows * blocks], [rows, blocks])).astype(np.float32))
    packed = -(-blocks * bits // 8)
    zeros = d.r.integers(0, 256, d.pick([rows * packed], [rows, packed])).astype(np.uint8)
    d.maybe(zeros)
    if d.chance(0.3):
        while len(d.inputs) < 5:
            d.add(None)
        d.add(d.floats(rows))
    d.set(K=columns, N=rows, bits=bits, block_size=block)


# ---- blocks of channels --------------------------------------------------------------------------------------------


def block():
    """Of onnxruntime on this processor."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        text = f.read()
    return 16 if "avx512f" in text or "aarch64" in os.uname().machine else 8


@draws(NCHWC, "ReorderInput", "ReorderOutput", "Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool",
       "Upsample")
def blocked(d, operator):
    size, last = block(), int(d.chance())
    up = lambda channels: -(-channels // size) * size
    batch, height, width = max(1, d.size(3)), int(d.r.integers(3, 6)), int(d.r.integers(3, 6))
    # multiples of 4, as onnxruntime has them; their padding shows the size of a block
    padded = 24 if size == 16 else 12
    channels = maps = int(d.pick(4, padded) if d.small else d.pick(4, size, padded, 2 * size))
    d.enter = ("ReorderInput", {})
    if operator in ("ReorderInput", "ReorderOutput"):
        d.set(channels_last=last)
        if operator == "ReorderOutput":
            d.set(channels=channels)
            last = 0
        else:
            d.enter = None
    else:
        last = 0
    d.add(d.floats(*([batch, height, width, channels] if last else [batch, channels, height, width])))
    if operator == "Conv":
        kind = d.pick("whole", "whole", "depthwise", "plain")
        kernel = [int(d.r.integers(1, 4)) for _ in range(2)]
        maps = int(d.pick(*range(4, size // 2 + 1), size + 4))
        if kind == "plain":  # fewer channels than a block: the input is not in blocks
            channels, d.enter = int(d.r.integers(1, size)), None
            d.inputs[0] = d.floats(batch, channels, height, width)
            d.add(d.floats(up(maps), channels, *kernel))
        elif kind == "depthwise":
            maps = channels
            d.add(d.floats(up(maps), 1, *kernel))
            d.set(group=up(maps))
        else:
            d.add(d.floats(up(maps), up(channels), *kernel, scale=0.3))
        d.set(kernel_shape=kernel)
        d.sometimes(pads=[1, 0, 1, 1], strides=[2, 1], dilations=[1, 2])
        if d.chance():
            d.maybe(d.floats(up(maps)))
        name = d.pick("", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip", "HardSwish")
        if name:
            d.set(activation=name)
        parameters = {"LeakyRelu": [0.2], "HardSigmoid": [0.3, 0.4], "Clip": [-0.5, 0.7]}.get(name)
        if parameters:
            d.set(activation_params=parameters)
    elif operator in ("MaxPool", "AveragePool"):
        d.set(kernel_shape=[2, 3])
        d.sometimes(strides=[2, 2], pads=[1, 1, 0, 1])
        d.sometimes(**d.pick({"ceil_mode": 1}, {"count_include_pad": 1} if operator == "AveragePool" else {}))
    elif operator == "Upsample":
        d.set(scales=[1, 1, int(d.pick(1, 2, 3)), int(d.pick(1, 2, 4))], mode=d.pick("nearest", "linear"))
        if d.attributes["mode"] == "linear":
            d.sometimes(coordinate_transformation_mode=d.pick("asymmetric", "align_corners", "half_pixel"))
    if operator != "ReorderOutput":
        d.leave = ("ReorderOutput", {"channels": maps})


def in_blocks(w, size, inner):
    """Weights [O,I,H,W], with channels of zeros, in the order of the domain."""
    o, i = (-(-w.shape[0] // size) * size, -(-w.shape[1] // size) * size if inner else w.shape[1])
    w = np.pad(w, [(0, o - w.shape[0]), (0, i - w.shape[1]), (0, 0), (0, 0)])
    if inner:
        parts = w.reshape(o // size, size, i // size, size, *w.shape[2:]).transpose(0, 2, 4, 5, 3, 1)
    else:
        parts = w.reshape(o // size, size, i, *w.shape[2:]).transpose(0, 2, 3, 4, 1)
    return np.ascontiguousarray(parts).reshape(o, i, *w.shape[2:])


def blocked_model(size):
    """A chain of convolutions in blocks of this size: plain input, whole blocks, a group per channel. The output is the
    difference from ONNX's Conv."""
    r = np.random.default_rng(size)
    weights = [r.standard_normal(s).astype(np.float32) for s in ((20, 3, 2, 3), (20, 20, 1, 2), (20, 1, 3, 2))]
    tensors, nodes = [], []
    plain = blocks = "x"
    for k, w in enumerate(weights):
        whole = 32 if size == 16 else 24
        group = 20 if k == 2 else 1
        tensors += [numpy_helper.from_array(w, f"w{k}"), numpy_helper.from_array(in_blocks(w, size, k == 1), f"b{k}")]
        nodes += [helper.make_node("Conv", [plain, f"w{k}"], [f"p{k}"], group=group),
                  helper.make_node("Conv", [blocks, f"b{k}"], [f"q{k}"], group=whole if k == 2 else 1, domain=NCHWC)]
        plain, blocks = f"p{k}", f"q{k}"
    nodes += [helper.make_node("ReorderOutput", [blocks], ["y"], channels=20, domain=NCHWC),
              helper.make_node("Sub", ["y", plain], ["d"]), helper.make_node("Abs", ["d"], ["a"]),
              helper.make_node("ReduceMax", ["a"], ["difference"], keepdims=0)]
    tensors.append(numpy_helper.from_array(r.standard_normal((1, 3, 7, 8)).astype(np.float32), "x"))
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("difference", TensorProto.FLOAT, [])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid(NCHWC, 1)], ir_version=8)


# ---- quantised tensors ---------------------------------------------------------------------------------------------


def byte_tensor(d, kind, *dims):
    low = -128 if kind == np.int8 else 0
    return d.add(d.r.integers(low, low + 256, dims).astype(kind))


def scale_and_zero(d, kind, must=True, scale=None, columns=None):
    shape = [columns] if columns else []
    spread = d.r.uniform(0.005, 0.05, shape) if scale is None else np.full(shape, scale)
    d.add(np.asarray(spread, np.float32))
    low = -128 if kind == np.int8 else 0
    zero = np.asarray(d.r.integers(low + 64, low + 192, shape)).astype(kind)
    return d.add(zero if must or d.chance(0.8) else None)


@draws(MS, "QuantizeLinear", "DequantizeLinear")
def quantize_linear(d, operator):
    kind = d.pick(np.uint8, np.int8)
    dims = [d.size() for _ in range(d.pick(1, 2, 3))]
    axis = int(d.r.integers(len(dims)))
    columns = dims[axis] if d.chance(0.4) and dims[axis] else None
    if operator == "QuantizeLinear":
        d.add(d.floats(*dims))
    else:
        byte_tensor(d, kind, *dims)
    scale_and_zero(d, kind, must=kind == np.int8 or operator != "QuantizeLinear" or columns, columns=columns)
    if columns:
        d.set(axis=axis)
    d.quantised = True


@draws(MS, "QLinearAdd", "QLinearMul")
def qlinear_binary(d, operator):
    kind = d.pick(np.uint8, np.int8)
    dims = [d.size() for _ in range(d.pick(1, 2, 3))]
    for shape in (dims, d.pick(dims, dims[-1:], [1])):
        byte_tensor(d, kind, *shape)
        scale_and_zero(d, kind, must=False)
    scale_and_zero(d, kind, must=False)
    d.quantised = True


@draws(MS, "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearAveragePool", "QLinearGlobalAveragePool")
def qlinear_unary(d, operator):
    kind = d.pick(np.uint8, np.int8)
    pool = "Pool" in operator
    byte_tensor(d, kind, *([d.size(), d.size(), 4, 6] if pool else [d.size() for _ in range(d.pick(2, 3))]))
    scale_and_zero(d, kind)  # onnxruntime aborts if it is absent
    if operator == "QLinearSoftmax":
        d.add(np.asarray(1 / d.pick(256, int(d.r.integers(90, 255)) + 0.95), np.float32))
        d.add(np.asarray(-128 if kind == np.int8 else 0).astype(kind))
    else:
        scale_and_zero(d, kind)
    d.quantised = True
    if operator == "QLinearLeakyRelu":
        d.sometimes(alpha=0.3)
    elif operator == "QLinearSoftmax":
        d.set(opset=int(d.pick(11, 13)))
        d.sometimes(axis=int(d.pick(-1, 1)))
    elif operator == "QLinearAveragePool":
        d.set(kernel_shape=[2, 3])
        d.sometimes(strides=[2, 2], pads=[1, 1, 0, 1], channels_last=1)
        d.sometimes(**d.pick({"ceil_mode": 1}, {"count_include_pad": 1}))
    elif operator == "QLinearGlobalAveragePool":
        d.sometimes(channels_last=1)


@draws(MS, "QLinearConcat")
def qlinear_concat(d, operator):
    kind = d.pick(np.uint8, np.int8)
    dims = [d.size() for _ in range(3)]
    axis = int(d.r.integers(3))
    scale_and_zero(d, kind)
    for _ in range(d.pick(1, 2, 3)):
        byte_tensor(d, kind, *[d.size() if i == axis else s for i, s in enumerate(dims)])
        scale_and_zero(d, kind)
    d.set(axis=d.pick(axis, axis - 3))
    d.quantised = True


@draws(MS, "QGemm")
def qgemm(d, operator):
    kind, weight = d.pick(np.uint8, np.int8), np.int8
    kind = d.pick((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8))
    kind, weight = kind
    m, k, n = d.size(), d.size(40), d.size()
    a, b = int(d.chance()), int(d.chance())
    byte_tensor(d, kind, *([k, m] if a else [m, k]))
    scale_and_zero(d, kind)
    byte_tensor(d, weight, *([n, k] if b else [k, n]))
    scale_and_zero(d, weight, columns=n if d.chance(0.3) and n else None)
    d.maybe(d.r.integers(-999, 999, d.pick([n], [m, n], [1, n])).astype(np.int32))
    if d.chance(0.6):
        scale_and_zero(d, kind, scale=0.3)
    d.set(transA=a, transB=b)
    d.sometimes(alpha=0.5)
    d.quantised = True


@draws(MS, "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
def integer_product(d, operator):
    kind, weight = d.pick(np.uint8, np.int8), d.pick(np.uint8, np.int8)
    m, k, n = max(1, d.size()), max(1, d.size(300)), max(1, d.size())
    batch = d.pick([], [d.size()])
    columns = n if d.chance(0.4) else None
    if operator == "DynamicQuantizeMatMul":
        d.add(d.floats(*batch, m, k))
        byte_tensor(d, weight, k, n)
        scale_and_zero(d, weight, must=False, columns=columns)
    else:
        if d.chance():
            kind, weight = np.uint8, np.int8
        byte_tensor(d, kind, *batch, m, k)
        byte_tensor(d, weight, k, n)
        a = Draw(d.r.integers(1 << 30), d.small)
        scale_and_zero(a, kind)
        scale_and_zero(a, weight, must=False, columns=columns)
        for i in (0, 2, 1, 3):
            d.add(a.inputs[i])
    d.maybe(d.floats(n))


@draws(MS, "DynamicQuantizeLSTM")
def quantised_lstm(d, operator):
    kind = d.pick(np.uint8, np.int8)
    steps, batch, size, hidden = max(1, d.size()), max(1, d.size()), max(1, d.size(8)), max(1, d.size())
    direction = d.pick("forward", "reverse", "bidirectional")
    directions = 2 if direction == "bidirectional" else 1
    shape = [directions] + ([4 * hidden] if d.chance() else [])
    d.add(d.floats(steps, batch, size))
    tensors = Draw(d.r.integers(1 << 30), d.small)
    for i, rows in enumerate((size, hidden)):
        w = byte_tensor(tensors, kind, directions, rows, 4 * hidden)
        w = d.add(w // 2)
        zero = 0 if kind == np.int8 or i else int(d.r.integers(0, 100))
        tensors.add(np.asarray(d.r.uniform(0.005, 0.02, shape), np.float32))
        tensors.add(np.full(shape, zero).astype(kind))
    d.maybe(d.floats(directions, 8 * hidden))
    d.maybe(d.r.integers(1, steps + 1, [batch]).astype(np.int32), 0.3)
    d.add(None)
    d.maybe(d.floats(directions, batch, hidden))
    d.maybe(d.floats(directions, 3 * hidden), 0.3)
    for i in (1, 2, 4, 5):
        d.add(tensors.inputs[i])
    d.set(direction=direction, hidden_size=hidden)
    if d.chance(0.3):
        d.set(activations=["HardSigmoid", d.pick("Tanh", "LeakyRelu"), "Softplus"] * directions)
        d.sometimes(activation_alpha=[0.3, 0.2, 0.4, 0.1])
    d.sometimes(clip=2.0, input_forget=1)
    d.outputs = ["y", "h", "c"] if d.chance(0.8) else ["", "h", "c"]


# ---- linear models -------------------------------------------------------------------------------------------------------


@draws(ML, "ArrayFeatureExtractor")
def feature_extractor(d, operator):
    dims = [max(1, d.size()) for _ in range(d.pick(1, 2, 3))]
    d.add(d.floats(*dims))
    d.add(d.r.integers(0, dims[-1], d.pick([3], [1, 2])))


@draws(ML, "Scaler", "Normalizer")
def scaler(d, operator):
    dims = [max(1, d.size()) for _ in range(d.pick(1, 2))]
    x = d.floats(*dims)
    if d.chance(0.2):
        x = x * 0
    d.add((x * 5).astype(np.int64) if d.chance(0.2) else x)
    if operator == "Normalizer":
        d.sometimes(norm=d.pick("MAX", "L1", "L2"))
    else:
        count = d.pick(1, dims[-1])
        d.set(offset=d.floats(count).tolist(), scale=d.floats(count).tolist())


@draws(ML, "LinearRegressor", "LinearClassifier")
def linear(d, operator):
    rows, features, outputs = max(1, d.size()), max(1, d.size()), d.pick(1, 2, 3)
    x = d.floats(rows, features)
    d.add((x * 5).astype(np.int64) if d.chance(0.2) else x)
    d.set(coefficients=d.floats(outputs, features).ravel().tolist())
    if outputs > 1:  # onnxruntime ignores that of a single score
        d.sometimes(post_transform=d.pick("NONE", "SOFTMAX", "LOGISTIC"))
    elif operator == "LinearClassifier":
        d.sometimes(post_transform="LOGISTIC")
    if operator == "LinearRegressor":
        d.set(targets=outputs)
        d.sometimes(intercepts=d.floats(outputs).tolist())
    else:
        d.set(intercepts=d.floats(outputs).tolist(), classlabels_ints=[7, 3, 5][:max(2, outputs)])
        d.sometimes(multi_class=1)
        d.outputs = ["label", "y"]


# ---- running ---------------------------------------------------------------------------------------------------------


def tensor_type(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def model_of(d, domain, operator, as_inputs):
    while d.inputs and d.inputs[-1] is None:
        d.inputs.pop()
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(d.inputs)]
    outer, results = list(names), list(d.outputs)
    nodes = []
    if d.enter:
        nodes.append(helper.make_node(d.enter[0], names[:1], ["entered"], domain=domain, **d.enter[1]))
        outer[0] = "entered"
    if d.leave:
        results[0] = "left"
    nodes.append(helper.make_node(operator, outer, results, name="node", domain=domain, **d.attributes))
    if d.leave:
        nodes.append(helper.make_node(d.leave[0], ["left"], d.outputs[:1], domain=domain, **d.leave[1]))
    inputs = [helper.make_tensor_value_info(n, tensor_type(a), a.shape) for n, a in zip(names, d.inputs) if n]
    outputs = [onnx.ValueInfoProto(name=o) for o in d.outputs if o]
    held = set() if as_inputs else set(names)
    if operator in CONSTANT:
        held |= {names[k] for k in CONSTANT[operator] if k < len(names)}
    tensors = [numpy_helper.from_array(a, n) for n, a in zip(names, d.inputs) if n and n in held]
    graph = helper.make_graph(nodes, "g", [i for i in inputs if i.name not in held], outputs, tensors)
    imports = [helper.make_opsetid("", d.opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


CONSTANT = {}  # operands that onnxruntime wants as initializers, by operator


def run_theirs(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 8  # DynamicQuantizeLSTM has as many ranges, at most one per sequence
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})
    except Exception as e:
        raise Refused(str(e)) from e


def command(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def run_ours(build, work, model, feeds):
    path, out = os.path.join(work, "m.onnx"), os.path.join(work, "out.npz")
    onnx.save(model, path)
    names = {i.name for i in model.graph.input}
    np.savez(os.path.join(work, "in.npz"), **{n: a for n, a in feeds.items() if n in names})
    inputs = ["--inputs", os.path.join(work, "in.npz")] if names else []
    command(f"{build}/ampc-run", "infer", path, "-q", "--amp=O0", "--threads=1", *inputs, "-o", out)
    with np.load(out) as z:
        return {n.removeprefix("output/"): z[n] for n in z.files}


def difference(want, got, quantised):
    if want.shape != got.shape:
        return f"shape {got.shape}, not {want.shape}"
    if want.dtype != got.dtype:
        return f"type {got.dtype}, not {want.dtype}"
    if not want.size:
        return None
    if quantised and want.dtype.itemsize == 1:
        off = np.abs(want.astype(int) - got.astype(int))
        many = (off > 0).sum() > max(1, want.size // 200)
        return f"{(off > 0).sum()} of {want.size} differ, by up to {off.max()}" if off.max() > 1 or many else None
    if not np.issubdtype(want.dtype, np.floating):
        return None if (want == got).all() else "integers differ"
    same = (want == got) | (np.isnan(want) & np.isnan(got))
    finite = np.abs(want[np.isfinite(want)])
    scale = max(float(finite.max()) if finite.size else 0, 1e-3)
    with np.errstate(invalid="ignore"):
        worst = np.where(same, 0, np.abs(want - got)).max()
    return None if worst <= 1e-4 * scale else f"off by {worst:.3g} of {scale:.3g}"


def compare(d, model, want, got):
    for value, result in zip(model.graph.output, want):
        text = difference(result, got[value.name], d.quantised)
        if text:
            return f"{value.name}: {text}"
    return None


def check(build, work, d, domain, operator):
    model = model_of(d, domain, operator, True)
    feeds = {f"i{k}": a for k, a in enumerate(d.inputs) if a is not None}
    want = run_theirs(model, feeds)
    problem = compare(d, model, want, run_ours(build, work, model, feeds))
    if problem:
        return problem
    kept = os.path.join(work, "kept.onnx")
    command(f"{build}/ampc", os.path.join(work, "m.onnx"), "-q", "--amp=O0", "-o", kept)
    converted = onnx.load(kept)
    if [n.op_type for n in converted.graph.node] != [n.op_type for n in model.graph.node]:
        return f"converted to {[n.op_type for n in converted.graph.node]}"
    again = run_theirs(converted, feeds)
    problem = compare(d, model, want, {o.name: v for o, v in zip(converted.graph.output, again)})
    return problem and "converted: " + problem


def draw(seed, domain, operator, small=False):
    d = Draw(seed, small)
    DRAWINGS[(domain, operator)](d, operator)
    return d


# ---- stored models --------------------------------------------------------------------------------------------------------


def stored(d, domain, operator):
    """The model whose output is the largest difference from the results of onnxruntime."""
    model = model_of(d, domain, operator, True)
    feeds = {f"i{k}": a for k, a in enumerate(d.inputs) if a is not None}
    want = run_theirs(model, feeds)
    model = model_of(d, domain, operator, False)
    g = model.graph
    totals = []
    for value, result in zip(list(g.output), want):
        n = value.name
        g.initializer.append(numpy_helper.from_array(result, "want_" + n))
        wide = {"to": TensorProto.FLOAT}
        g.node.append(helper.make_node("Cast", [n], [n + "_f"], **wide))
        g.node.append(helper.make_node("Cast", ["want_" + n], [n + "_w"], **wide))
        g.node.append(helper.make_node("Sub", [n + "_f", n + "_w"], [n + "_d"]))
        g.node.append(helper.make_node("Abs", [n + "_d"], [n + "_a"]))
        g.node.append(helper.make_node("ReduceMax", [n + "_a"], [n + "_m"], keepdims=0))
        totals.append(n + "_m")
    g.node.append(helper.make_node("Max", totals, ["difference"]))
    del g.output[:]
    g.output.append(helper.make_tensor_value_info("difference", TensorProto.FLOAT, []))
    return model


def write(folder, count):
    os.makedirs(folder, exist_ok=True)
    for domain, operator in DRAWINGS:
        made = 0
        for seed in range(1000):
            d = draw(seed, domain, operator, True)
            d.opset = 13 if operator not in STORED_OPSET else STORED_OPSET[operator]
            try:
                model = stored(d, domain, operator)
            except Refused:
                continue
            if not any(a is not None and a.dtype == np.float32 for a in d.inputs):
                continue  # it would fold
            if d.quantised and any(a is not None and a.dtype.itemsize == 1 and a.size > 600 for a in d.inputs):
                continue
            onnx.save(model, os.path.join(folder, f"{domain.split('.')[-1] or 'onnx'}-{operator}-{made}.onnx"))
            made += 1
            if made == count:
                break
        if made < count:
            sys.exit(f"{operator}: onnxruntime refuses what is drawn")
    for size in (8, 16):
        onnx.save(blocked_model(size), os.path.join(folder, f"nchwc-Conv-blocks{size}.onnx"))


STORED_OPSET = {}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", nargs="?")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--op", default="")
    parser.add_argument("--write")
    o = parser.parse_args()
    with open(os.path.join(ROOT, "frontend/lower/other_ops.def"), encoding="utf-8") as f:
        rows = set(re.findall(r'^OTHER\("([^"]*)", *(\w+),', f.read(), re.M))
    missing = {r for r in rows if r not in DRAWINGS}
    if missing:
        sys.exit(f"no drawing of {sorted(missing)}")
    if o.write:
        write(o.write, 2)
        return
    findings = ran = refused = 0
    with tempfile.TemporaryDirectory() as work:
        for domain, operator in DRAWINGS:
            if o.op not in ("", operator):
                continue
            for seed in range(o.seed, o.seed + o.count):
                d = draw(seed, domain, operator)
                try:
                    problem = check(o.build, work, d, domain, operator)
                except Refused as e:
                    refused += 1
                    if o.op:
                        print(f"{operator} --seed {seed}: refused: {e}"[:300])
                    continue
                except RuntimeError as e:
                    problem = str(e)
                ran += 1
                if problem:
                    findings += 1
                    shapes = [None if a is None else f"{a.dtype}{list(a.shape)}" for a in d.inputs]
                    print(f"{operator} --seed {seed}: {problem}\n    {shapes} {d.attributes} {d.outputs}")
    print(f"{ran} compared, {refused} refused by onnxruntime, {findings} findings")
    sys.exit(findings > 0)


if __name__ == "__main__":
    main()
