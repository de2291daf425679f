#!/usr/bin/python3
"""Tiny models that overflow fp16 in one way each, for one sample of 20; `calibrate` must heal each with the number of
lines in the table: in a run, and in models for any runtime and for TensorRT. In the default tier a third of them, which
rotates. With -v, also what overflows without the list. `overflow_places.py FOLDER [CASE..] [-v]`."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS, BIG_ROW, PARTS = 20, 17, 3
LEVEL = "--amp=O2"  # so that all operators are fp16
rng = np.random.RandomState(5)
f32 = lambda a: np.asarray(a, "f4")
weight = lambda *shape: f32(rng.randn(*shape) / shape[0]**0.5)
SMALL = {"small": f32(1e-5)}


def data(*shape, big=None, scale=1):
    x = f32(rng.randn(ROWS, *shape) * scale)
    if big is not None: x[BIG_ROW] = big * np.sign(x[BIG_ROW])
    return {"x": x}


def body(nodes, inputs, outputs):
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    make = helper.make_graph([make_node(n) for n in nodes], "body", [], [value(o) for o in outputs])
    for name, type in inputs: make.input.append(helper.make_tensor_value_info(name, type, None if type == 1 else []))
    return make


def make_node(n):
    op, inputs, outputs, *attributes = n
    inputs, outputs = inputs.split(), outputs.split()
    return helper.make_node(op, ["" if i == "-" else i for i in inputs], outputs, name="n_" + outputs[0],
                            **(attributes[0] if attributes else {}))


down = lambda x: ("Mul", x + " small", "y")
W = {"w": weight(8, 8)}
NORM = [("ReduceMean", "x", "mean", {"axes": [-1]}), ("Sub", "x mean", "d"), ("Pow", "d two", "sq"),
        ("ReduceMean", "sq", "var", {"axes": [-1]}), ("Add", "var eps", "ve"), ("Sqrt", "ve", "sd"),
        ("Div", "d sd", "y0"), ("Mul", "y0 gain", "y")]
NORMS = {"two": f32(2), "eps": f32(1e-5), "gain": f32(np.ones(8)), "one": f32(1), "half": f32(0.5)}
BN = {"s": f32(np.ones(4)), "b": f32(np.zeros(4)), "m": f32(np.zeros(4)), "v": f32(np.full(4, 1e9))}
IF = [("ReduceMax", "x", "top", {"keepdims": 0}), ("Less", "low top", "c")]

# name: lines, nodes, constants, data
CASES = {
    "mul": (1, [("Mul", "x k", "big"), down("big")], {"k": f32(1e4)}, data(8, big=20)),
    "matmul": (1, [("MatMul", "x w", "big"), down("big")], {"w": np.abs(weight(8, 8))}, data(8, big=6e4)),
    "gemm": (1, [("Gemm", "x w b", "big"), down("big")], {"w": np.abs(weight(8, 8)), "b": f32(np.ones(8))},
             data(8, big=6e4)),
    "exp": (1, [("Exp", "x", "big"), down("big")], {}, data(8, big=13)),
    "pow": (1, [("Pow", "x two", "big"), down("big")], {"two": f32(2)}, data(8, big=300)),
    "negative": (1, [("Abs", "x", "a"), ("Neg", "a", "n"), ("Mul", "n k", "big"), down("big")], {"k": f32(1e4)},
                 data(8, big=20)),
    "div": (1, [("Div", "x k", "big"), down("big")], {"k": f32(1e-4)}, data(8, big=20)),
    "sum": (1, [("ReduceSum", "x axes", "big"), down("big")], {"axes": np.array([-1])},
            {"x": np.abs(data(2, 500, big=300)["x"])}),
    "l2": (0, [("ReduceL2", "x", "n", {"axes": [-1]}), ("Div", "x n", "y")], {}, data(64, big=1e3)),
    "pool": (1, [("Mul", "x k", "big"), ("GlobalAveragePool", "big", "p"), down("p")], {"k": f32(1e4)},
             data(4, 8, 8, big=20)),
    "conv": (1, [("Conv", "x w", "big"), down("big")], {"w": np.abs(weight(4, 3, 3, 3)) * 30}, 
             {"x": np.abs(data(3, 6, 6, big=600)["x"])}),
    "conv_norm": (1, [("Conv", "x w", "big"), ("BatchNormalization", "big s b m v", "n"), ("Relu", "n", "y")],
                  {"w": np.abs(weight(4, 3, 3, 3)) * 30, **BN}, {"x": np.abs(data(3, 6, 6, big=600)["x"])}),
    "conv_relu": (2, [("Conv", "x w b", "big"), ("Relu", "big", "r"), ("MaxPool", "r", "p", {"kernel_shape": [2, 2]}),
                      down("p")], {"w": np.abs(weight(4, 3, 3, 3)) * 30, "b": f32(np.ones(4))},
                  {"x": np.abs(data(3, 6, 6, big=600)["x"])}),
    "norm": (1, NORM, NORMS, data(8, big=1e3)),
    "rms": (1, [("Mul", "x x", "sq"), ("ReduceMean", "sq", "ms", {"axes": [-1]}), ("Add", "ms eps", "e"),
                ("Sqrt", "e", "r"), ("Div", "x r", "n"), ("Mul", "n gain", "y")], NORMS, data(8, big=1e3)),
    "gelu": (1, [("Pow", "x three", "cube"), ("Mul", "cube c", "m"), ("Add", "x m", "a"), ("Mul", "a k", "t0"),
                 ("Tanh", "t0", "t"), ("Add", "t one", "t1"), ("Mul", "x t1", "p"), ("Mul", "p half", "y")],
             {**NORMS, "three": f32(3), "c": f32(0.044715), "k": f32(0.7978846)}, data(8, big=60)),
    "chain": (2, [("Mul", "x k", "big"), ("Relu", "big", "r"), ("Reshape", "r s", "v"),
                  ("Transpose", "v", "t", {"perm": [0, 2, 1]}), ("Concat", "t t", "cc", {"axis": 1}),
                  ("MaxPool", "cc", "p", {"kernel_shape": [2]}), down("p")],
              {"k": f32(1e4), "s": np.array([0, 2, 4])}, data(8, big=20)),
    "mask": (0, [("MatMul", "x w", "s"), ("Add", "s mask", "sm"), ("Softmax", "sm", "y", {"axis": -1})],
             {"mask": f32([0, 0, 0, 0, 0, 0, -1e9, -1e9]), **W}, data(8)),
    "mask_big": (2, [("MatMul", "x w", "s"), ("Add", "s mask", "sm"), ("Softmax", "sm", "a", {"axis": -1}),
                     ("Mul", "x k", "big"), ("Mul", "big a", "ba"), down("ba")],
                 {"mask": f32([0, 0, 0, 0, 0, 0, -1e9, -1e9]), "k": f32(1e4), **W}, data(8, big=20)),
    "residual": (2, [("Mul", "x k", "r0"), ("LayerNormalization", "r0 gain", "n0"), ("MatMul", "n0 w", "f0"),
                        ("Add", "r0 f0", "r1"), ("LayerNormalization", "r1 gain", "n1"), ("MatMul", "n1 w", "f1"),
                        ("Add", "r1 f1", "r2"), ("LayerNormalization", "r2 gain", "y")],
                 {"k": f32(1e4), "gain": f32(np.ones(8)), **W}, data(8, big=20)),
    "two": (2, [("Mul", "x k", "big1"), ("Exp", "x", "big2"), ("Sub", "big1 big2", "big"), down("big")],
            {"k": f32(1e4)}, data(8, big=13)),
    "if": (1, IF + [("If", "c", "y", {"then_branch": body([("Mul", "x k", "big"), ("Mul", "big small", "z")], [], ["z"]),
                                      "else_branch": body([("Identity", "x", "z2")], [], ["z2"])})],
           {"low": f32(-1), "k": f32(1e4)}, data(8, big=20)),
    "if_out": (2, IF + [("If", "c", "big", {"then_branch": body([("Mul", "x k", "z")], [], ["z"]),
                                            "else_branch": body([("Identity", "x", "z2")], [], ["z2"])}), down("big")],
               {"low": f32(-1), "k": f32(1e4)}, data(8, big=20)),
    "loop": (1, [("ReduceMax", "x", "top", {"keepdims": 0}), ("Cast", "top", "n0", {"to": 7}), ("Clip", "n0 n n", "n1"),
                     ("Loop", "n1 - x", "y", {"body": body(
        [("Identity", "ci", "co"), ("Mul", "v k", "big"), ("Mul", "big down", "vo")],
        [("i", TensorProto.INT64), ("ci", TensorProto.BOOL), ("v", TensorProto.FLOAT)], ["co", "vo"])})],
                 {"n": np.array(3), "k": f32(1e4), "down": f32(1e-4)}, data(8, big=20)),
    "loop_known": (4, [("Loop", "n - x", "y", {"body": body(
        [("Identity", "ci", "co"), ("Mul", "v k", "big"), ("Mul", "big down", "vo")],
        [("i", TensorProto.INT64), ("ci", TensorProto.BOOL), ("v", TensorProto.FLOAT)], ["co", "vo"])})],
                   {"n": np.array(3), "k": f32(1e4), "down": f32(1e-4)}, data(8, big=20)),
    "input": (1, [down("x")], {}, data(8, big=2e5)),
    "output": (1, [("Mul", "x k", "y")], {"k": f32(1e4)}, data(8, big=20)),
}


def make(name):
    lines, nodes, constants, values = CASES[name]
    graph = helper.make_graph([make_node(n) for n in nodes], name,
                              [helper.make_tensor_value_info(k, 1, ["N", *v.shape[1:]]) for k, v in values.items()],
                              [helper.make_tensor_value_info("y", 1, None)],
                              [numpy_helper.from_array(a, k) for k, a in {**constants, **SMALL}.items()])
    for g in [graph] + [a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]:
        for n in g.node:
            if n.op_type == "Identity" and n.input[0] == "ci":
                g.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, f"{name}.onnx")
    np.savez(f"{name}.npz", **values)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode: sys.exit(f"{' '.join(command)}: {done.stdout}")
    return done.stdout



def predict(model, name, *options):
    run("ampc-run", "predict", model, "-q", "--no-fuse", "--data", f"npz:{name}.npz", "-o", "p.npz", "--force", *options)
    return np.load("p.npz")["output/y"]


def problem(got, want):
    if not np.isfinite(got).all(): return "overflows"
    rows = (range(ROWS), BIG_ROW)
    for r in rows:
        error = abs(got[r] - want[r]).max() / (abs(want[r]).max() + 1e-3)
        if error > 1e-2: return f"off by {error:.2g}"
    return ""


def check(name, verbose):
    make(name)
    run("ampc-run", "calibrate", f"{name}.onnx", "--data", f"npz:{name}.npz", "-o", "l.amplist", "--force", "-q", LEVEL)
    lines = [l for l in Path("l.amplist").read_text().splitlines() if "exceeds" in l and l[0] != "#"]
    want = predict(f"{name}.onnx", name, "--amp=O0")
    found = [] if CASES[name][0] == len(lines) else [f"{len(lines)} lines: {lines}"]
    for use in ([], ["--list=l.amplist"]) if verbose else (["--list=l.amplist"],):
        bad = {"run": problem(predict(f"{name}.onnx", name, "--dtype=fp16", LEVEL, *use), want)}
        for consumer in "none", "tensorrt":
            out = f"{name}.{consumer}{len(use)}.onnx"
            run("ampc", f"{name}.onnx", "-q", "-o", out, "--force", LEVEL, *use,
                *([] if consumer == "none" else ["--consumer=" + consumer]))
            bad[consumer] = problem(predict(out, name, "--amp=O0"), want)
        if use: found += [f"{k} {v}" for k, v in bad.items() if v]
        else: print(f"{name} without a list:", bad)
    print(name, "ok" if not found else f"FAILS: {'; '.join(found)}")
    return not found


def main():
    os.chdir(sys.argv[1])
    named, part = [a for a in sys.argv[2:] if a != "-v"], int(os.environ.get("AMPC_SEED", 0)) % PARTS
    rotating = [c for i, c in enumerate(CASES) if os.environ.get("AMPC_TIER") != "default" or i % PARTS == part]
    sys.exit(not all([check(name, "-v" in sys.argv) for name in named or rotating]))


main()
