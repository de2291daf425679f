#!/usr/bin/python3
"""Writes files for the programs in docs/examples/: 512 samples, and weights as another program saves them.

usage: make_inputs.py FOLDER
"""
import functools
import json
import random
import struct
import sys
from pathlib import Path

from onnx import TensorProto, helper, save

folder = Path(sys.argv[1])
random.seed(3)


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def write_npy(name, descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    (folder / name).write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + data)


# A model that does not declare the type of a custom operator's result.
value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=["N", 4])
nodes = [helper.make_node("ScaledTanh", ["x"], ["a"], domain="com.example"), helper.make_node("Relu", ["a"], ["y"])]
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "undeclared.onnx")

# The sign of the first coordinate decides the class.
rows = [[random.uniform(-1, 1) for _ in range(4)] for _ in range(512)]
write_npy("x.npy", "<f4", (512, 4), b"".join(floats(row) for row in rows))
write_npy("label.npy", "<i8", (512,), struct.pack("<512q", *(row[0] > 0 for row in rows)))

# The parameters of tests/models/mlp.onnx, with a head for 7 classes, as in a file of PyTorch's safetensors.
shapes = {"fc1.weight": [4, 8], "fc1.bias": [8], "bn.scale": [8], "bn.bias": [8], "bn.mean": [8], "bn.var": [8],
          "fc2.weight": [8, 7], "fc2.bias": [7]}
header, data = {"__metadata__": {"format": "pt"}}, b""
for name, shape in shapes.items():
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    ones = name in ("bn.scale", "bn.var")
    part = floats([1 if ones else random.uniform(-0.8, 0.8) if len(shape) == 2 else 0 for _ in range(count)])
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
    data += part
text = json.dumps(header).encode()
(folder / "foreign.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
