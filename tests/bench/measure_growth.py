#!/usr/bin/python3
"""How the time of compiling and planning grows with a graph, for tools/bench: graphs of n and 4n nodes in many shapes.

Processor time of processes, the minimum of ROUNDS: `ampc` (inference, and training if the graph has a gradient) and
`ampc-run plan` of its output. The ratio of linear work is 4.

usage: measure_growth.py BUILD MODELS THREADS ROUNDS
"""
import resource
import subprocess
import sys
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

build, models, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[4])
SIZE = 8000


class Drawing:
    def __init__(self, shape=("N", 4)):
        self.nodes, self.weights, self.outputs = [], [], []
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]

    def add(self, op, inputs, output, **attributes):
        outputs = output if isinstance(output, list) else [output]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return output

    def weight(self, name, *shape):
        self.weights.append(numpy_helper.from_array(numpy.ones(shape, numpy.float32), name))
        return name

    def give(self, name):
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))


def chain(n, step):
    d, last = Drawing(), "x"
    for i in range(n):
        last = step(d, last, i)
    d.give(last)
    return d


def split(n):
    d = Drawing(("N", n))
    parts = d.add("Split", ["x"], [f"p{i}" for i in range(n)], axis=1, num_outputs=n)
    d.give(d.add("Concat", parts, "y", axis=1))
    return d


def together(n, op, inputs):
    d = Drawing()
    d.weight("w", 4, 4)
    d.give(d.add("Sum", [d.add(op, inputs, f"v{i}") for i in range(n)], "y"))
    return d


def outputs(n):
    d = Drawing()
    for i in range(n):
        d.give(d.add("Tanh" if i % 2 else "Relu", ["x"], f"y{i}"))
    return d


def skips(n):
    d = Drawing()
    values = ["x"]
    for i in range(n):
        values.append(d.add("Tanh", [values[-1]], f"v{i}"))
    d.give(d.add("Sum", values, "y"))
    return d


def norm(d, x, i):
    return d.add("BatchNormalization", [x] + [d.weight(f"{k}{i}", 4) for k in "sbmv"], f"y{i}")


def branch(x, node, name):
    """A branch with this node, or with Relu."""
    node = node or helper.make_node("Relu", [x], [name])
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, ("N", 4))])


def branches(n, depth):
    """n Ifs, of which every `depth` are nested. protobuf nests messages at most 100 deep: 3 for each If."""
    d, last = Drawing(), "x"
    d.inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
    for i in range(n // depth):
        node = None
        for k in range(depth):
            then, other = branch(last, node, f"t{i}.{k}"), branch(last, None, f"e{i}.{k}")
            node = helper.make_node("If", ["c"], [f"v{i}.{k}"], then_branch=then, else_branch=other)
        d.nodes.append(node)
        last = node.output[0]
    d.give(last)
    return d


SHAPES = [
    ("chain of Relu", lambda n: chain(n, lambda d, x, i: d.add("Relu", [x], f"v{i}"))),
    ("n products, one after the other", lambda n: chain(n, lambda d, x, i: d.add("MatMul", [x, d.weight(f"w{i}", 4, 4)], f"v{i}"))),
    ("n products of one input", lambda n: together(n, "MatMul", ["x", "w"])),
    ("n batch normalisations", lambda n: chain(n // 4, norm)),
    ("residual", lambda n: chain(n // 2, lambda d, x, i: d.add("Add", [x, d.add("Tanh", [x], f"a{i}")], f"v{i}"))),
    ("skips to the end", skips),
    ("Split and Concat of n parts", split),
    ("n outputs", outputs),
    ("n/4 Ifs, one after the other", lambda n: branches(n // 4, 1)),
    ("n/4 Ifs, 25 nested", lambda n: branches(n // 4, 25)),
]


def seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(model, options):
    written = models / "growth.amp.ir"
    compiled = min(seconds([build / "ampc", model, "-q", "-o", written, *options]) for _ in range(rounds))
    planned = min(seconds([build / "ampc-run", "plan", written, "--dim", "N=2"]) for _ in range(rounds))
    return compiled, planned


print(f"| graph of n nodes, n = {SIZE} | for | compile, s | 4n | ratio | plan, s | 4n | ratio |")
print("|---|---|--:|--:|--:|--:|--:|--:|")
models.mkdir(parents=True, exist_ok=True)
for name, draw in SHAPES:
    for purpose, options in (("inference", []), ("training", ["--loss=mse"])):
        times = []
        for n in (SIZE, 4 * SIZE):
            d = draw(n)
            graph = helper.make_graph(d.nodes, "g", d.inputs, d.outputs, d.weights)
            model = models / "growth.onnx"
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), model)
            times.append(measure(model, options))
        row = [f"{a:.2f} | {b:.2f} | {b / a:.1f}" for a, b in zip(*times)]
        print(f"| {name} | {purpose} | {row[0]} | {row[1]} |", flush=True)
