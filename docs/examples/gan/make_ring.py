#!/usr/bin/env python3
"""Writes the models of ring.recipe into this folder: generator.onnx and discriminator.onnx."""
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

folder = Path(__file__).parent
random = np.random.default_rng(3)


def write(name, inputs, sizes, activation, **attributes):
    nodes, weights, value = [], [], inputs
    for i, (rows, columns) in enumerate(zip(sizes, sizes[1:])):
        last = i == len(sizes) - 2
        weight = random.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32)
        weights += [numpy_helper.from_array(weight, f"w{i}"),
                    numpy_helper.from_array(np.zeros(columns, np.float32), f"b{i}")]
        result = "y" if last else f"h{i}"
        nodes.append(helper.make_node("Gemm", [value, f"w{i}", f"b{i}"], [result], name=f"layer{i}"))
        value = result
        if not last:
            nodes.append(helper.make_node(activation, [value], [f"a{i}"], name=f"{activation}{i}", **attributes))
            value = f"a{i}"
    info = lambda n, columns: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", columns])
    graph = helper.make_graph(nodes, name, [info(inputs, sizes[0])], [info("y", sizes[-1])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())


write("generator", "z", (2, 32, 32, 2), "Relu")
write("discriminator", "point", (2, 32, 32, 1), "LeakyRelu", alpha=0.2)
