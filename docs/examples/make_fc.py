#!/usr/bin/python3
"""Writes fc.onnx, the model of docs/tour.md: relu(x w + b)."""
import numpy
from onnx import TensorProto, helper, numpy_helper, save

w = numpy_helper.from_array(numpy.linspace(-1, 1, 32, dtype=numpy.float32).reshape(8, 4), "w")
b = numpy_helper.from_array(numpy.zeros(4, numpy.float32), "b")
nodes = [helper.make_node("MatMul", ["x", "w"], ["xw"], name="fc/MatMul"),
         helper.make_node("Add", ["xw", "b"], ["s"], name="fc/Add"),
         helper.make_node("Relu", ["s"], ["y"], name="relu")]
graph = helper.make_graph(nodes, "fc", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])], [w, b])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "fc.onnx")
