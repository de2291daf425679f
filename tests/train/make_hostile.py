#!/usr/bin/python3
"""Appends a loss times FACTOR to the MNIST network: a gradient that fp16 cannot represent without loss scaling.

usage: make_hostile.py FACTOR FILE
"""
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, load, numpy_helper, save

model = load(str(Path(__file__).parents[1] / "models" / "mnist.onnx"))
graph = model.graph
graph.input.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]))
factor = numpy_helper.from_array(np.array(sys.argv[1], np.float32), "factor")  # an initializer would be trained
graph.node.append(helper.make_node("Constant", [], ["factor"], name="factor", value=factor))
graph.node.append(helper.make_node("SoftmaxCrossEntropyLoss", ["logits", "label"], ["entropy"], name="entropy"))
graph.node.append(helper.make_node("Mul", ["entropy", "factor"], ["cost"], name="hostile"))
graph.output.append(helper.make_tensor_value_info("cost", TensorProto.FLOAT, []))
save(model, sys.argv[2])
