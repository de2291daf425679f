#!/usr/bin/python3
"""Writes custom.onnx, the model of custom.c: y = ScaledTanh(x w), where ScaledTanh is not an operator of ONNX."""
import numpy
from onnx import TensorProto, helper, numpy_helper, save

w = numpy_helper.from_array(numpy.linspace(-1, 1, 8, dtype=numpy.float32).reshape(4, 2), "w")
nodes = [helper.make_node("MatMul", ["x", "w"], ["s"], name="fc"),
         helper.make_node("ScaledTanh", ["s"], ["y"], name="activation", domain="com.example", alpha=1.5)]
graph = helper.make_graph(nodes, "custom", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])], [w])
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "custom.onnx")
