#!/usr/bin/python3
"""Makes places.onnx, whose result has a size that depends on data, and three.onnx and three.npz: 100 samples, of which
rows 17, 42 and 77 each overflow fp16 at another place. With `check FILE.npz..`, compares its predictions with those of
fp32, in all rows that are finite."""
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


def make():
    rng = numpy.random.RandomState(3)
    def weight(name, rows, columns):
        return numpy_helper.from_array((rng.randn(rows, columns) / rows**0.5).astype("f4"), name)
    scalar = lambda name, x: numpy_helper.from_array(numpy.float32(x), name)
    nodes = [
        ("MatMul", "x eye", "big1", "product"), ("Mul", "big1 small", "s1", "down1"), ("MatMul", "s1 w1", "a", "dense1"),
        ("MatMul", "x2 eye", "p", "dense2"), ("Mul", "p p", "big2", "square"), ("Mul", "big2 small", "s2", "down2"),
        ("Add", "a s2", "b", "join"), ("MatMul", "b w1", "c", "dense3"),
        ("Exp", "x3", "big3", "exp"), ("MatMul", "big3 w2", "m3", "mix"), ("Mul", "m3 small", "s3", "down3"),
        ("Mul", "c s3", "d", "gated"), ("MatMul", "d w2", "y", "out")]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8])
    graph = helper.make_graph(
        [helper.make_node(op, i.split(), [o], name=name) for op, i, o, name in nodes], "three",
        [value("x"), value("x2"), value("x3")], [value("y")],
        [weight("w1", 8, 8), weight("w2", 8, 8), numpy_helper.from_array(numpy.eye(8, dtype="f4") * 2, "eye"),
         scalar("small", 1e-4)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "three.onnx")
    sized = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"], name="places")], "sized", [value("x")],
                              [helper.make_tensor_value_info("y", TensorProto.INT64, [2, "K"])])
    onnx.save(helper.make_model(sized, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "places.onnx")
    data = {name: rng.randn(100, 8).astype("f4") for name in ("x", "x2", "x3")}
    data["x"][17, 3] = 5e4
    data["x2"][42, 1] = 300
    data["x3"][77, 5] = 12.5
    numpy.savez("three.npz", **data)


def check():
    want = numpy.load("three.f32.npz")["output/y"]
    for path in sys.argv[2:]:
        got = numpy.load(path)["output/y"]
        rows = numpy.isfinite(got).all(axis=1)
        error = abs(got[rows] - want[rows]).max() / abs(want).max()
        print(path, ("finite" if rows.all() else "overflows") if error < 2e-3 else f"off by {error}")


check() if sys.argv[1:2] == ["check"] else make()
