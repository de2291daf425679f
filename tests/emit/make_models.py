#!/usr/bin/python3
"""Writes models that ampc converts but does not run: control flow, quantised models, detectors. Needs python3-onnx.

usage: make_models.py FOLDER

x is the input; every model has products or convolutions, so that mixed precision has something to do. Types of results are not
declared, as by exporters that do not infer them."""
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto as T
from onnx import checker, defs, helper, numpy_helper, save

FLOAT, INT64, BOOL, INT8, UINT8 = T.FLOAT, T.INT64, T.BOOL, T.INT8, T.UINT8
random = np.random.default_rng(7)


def drawn(name, *shape):
    return numpy_helper.from_array((random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32), name)


def constant(name, value, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def node(op, inputs, outputs, name="", **attributes):
    return helper.make_node(op, inputs.split(","), outputs.split(","), name or f"{outputs.split(',')[0]}/{op}", **attributes)


def value(name, shape=None, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(nodes, inputs, outputs, weights=(), name="g"):
    return helper.make_graph(nodes, name, inputs, outputs, list(weights))


# ---- control flow ----------------------------------------------------------------------------------

def branches():
    """If: a weight of both branches and outside, one of a branch alone, a captured product, a capture as result, two results."""
    yes = graph([node("MatMul", "h,w", "a"), node("Add", "a,b", "yes"), node("Softmax", "yes", "yes2", axis=-1)], [],
                [value("yes", ["N", 8]), value("yes2", ["N", 8])], name="yes")
    no = graph([node("Gemm", "h,w.no,b", "g1"), node("Relu", "g1", "no"), node("Identity", "h", "no2")], [],
               [value("no", ["N", 8]), value("no2", ["N", 8])], [drawn("w.no", 8, 8)], name="no")
    return graph([node("MatMul", "x,w", "h"), node("ReduceMean", "h", "m", keepdims=0), node("Greater", "m,zero", "c"),
                  node("If", "c", "p,q", "if", then_branch=yes, else_branch=no), node("MatMul", "p,w", "r"),
                  node("Add", "r,q", "y")],
                 [value("x", ["N", 8])], [value("y", ["N", 8])],
                 [drawn("w", 8, 8), drawn("b", 8), constant("zero", 0)])


def loop():
    """Loop: a carried state, a result stacked, the state's own size unknown; a weight of body and model, a user's casts."""
    body = graph([node("MatMul", "s,w", "a"), node("Add", "a,h", "a2"), node("Tanh", "a2", "s.next"),
                  node("Cast", "s.next", "exact", to=T.DOUBLE), node("Cast", "exact", "back", to=FLOAT),
                  node("Gemm", "back,w.out", "each"), node("Identity", "go", "go.next")],
                 [value("i", [], INT64), value("go", [], BOOL), value("s")],
                 [value("go.next", [], BOOL), value("s.next"), value("each")], [drawn("w.out", 8, 4)], name="body")
    return graph([node("MatMul", "x,w", "h"), node("Loop", "trips,,x", "last,all", "loop", body=body), node("MatMul", "all,w2", "y")],
                 [value("x", ["N", 8])], [value("y", [None, "N", 4]), value("last", ["N", 8])],
                 [drawn("w", 8, 8), drawn("w2", 4, 4), constant("trips", 3, np.int64)])


def growing():
    """Loop whose state grows from run to run, and ends by its condition."""
    body = graph([node("Gemm", "x,w", "a", "body/gemm"), node("Concat", "s,a", "s.next", axis=0), node("Less", "i,two", "go.next")],
                 [value("i", [], INT64), value("go", [], BOOL), value("s")], [value("go.next", [], BOOL), value("s.next")], name="body")
    return graph([node("Loop", ",yes,x", "all", "loop", body=body), node("Gemm", "all,w", "y")], [value("x", [2, 8])],
                 [value("y", [None, 8])], [drawn("w", 8, 8), constant("two", 2, np.int64), constant("yes", True, np.bool_)])


def scan():
    body = graph([node("MatMul", "each,w", "a"), node("Add", "a,s", "s.next"), node("Sigmoid", "s.next", "o")],
                 [value("s", ["N", 8]), value("each", ["N", 8])], [value("s.next", ["N", 8]), value("o", ["N", 8])], name="body")
    return graph([node("MatMul", "first,w", "start"), node("Scan", "start,x", "last,all", "scan", body=body, num_scan_inputs=1),
                  node("MatMul", "all,w", "y")],
                 [value("x", ["S", "N", 8]), value("first", ["N", 8])], [value("y", ["S", "N", 8]), value("last", ["N", 8])],
                 [drawn("w", 8, 8)])


def nested():
    """If in a Loop in an If; the innermost graphs read values of all graphs around them."""
    yes = graph([node("MatMul", "s,w", "yes")], [], [value("yes", ["N", 8])], name="yes")
    no = graph([node("MatMul", "outer,w", "n1"), node("Sub", "n1,h", "n2"), node("Mul", "n2,s", "no")], [], [value("no", ["N", 8])], name="no")
    body = graph([node("Mod", "i,two", "odd"), node("Cast", "odd", "is.odd", to=BOOL),
                  node("If", "is.odd", "q", "inner", then_branch=yes, else_branch=no), node("Tanh", "q", "s.next"),
                  node("Identity", "go", "go.next")],
                 [value("i", [], INT64), value("go", [], BOOL), value("s", ["N", 8])],
                 [value("go.next", [], BOOL), value("s.next", ["N", 8])], name="body")
    runs = graph([node("MatMul", "h,w", "outer"), node("Loop", "trips,,outer", "runs", "loop", body=body)], [], [value("runs", ["N", 8])],
                 name="runs")
    plain = graph([node("MatMul", "h,w", "plain")], [], [value("plain", ["N", 8])], name="plain")
    return graph([node("MatMul", "x,w", "h"), node("ReduceSum", "h", "sum", keepdims=0), node("Less", "sum,zero", "c"),
                  node("If", "c", "y", "outermost", then_branch=runs, else_branch=plain)],
                 [value("x", ["N", 8])], [value("y", ["N", 8])],
                 [drawn("w", 8, 8), constant("two", 2, np.int64), constant("trips", 3, np.int64), constant("zero", 0)])


# ---- quantized models ------------------------------------------------------------------------------

def quantised(name, *shape):
    return numpy_helper.from_array(random.integers(-100, 100, shape).astype(np.int8), name)


def fake(of, to, scale, zero):
    """QuantizeLinear and DequantizeLinear."""
    return [node("QuantizeLinear", f"{of},{scale},{zero}", f"{to}.q"), node("DequantizeLinear", f"{to}.q,{scale},{zero}", to)]


def qdq():
    """Weights per channel, activations per tensor, around Conv, MatMul and Gemm."""
    scales = [constant(f"{w}.scale", random.uniform(0.002, 0.01, n)) for w, n in (("conv.w", 4), ("mat.w", 8))]
    zeros = [constant(f"{w}.zero", np.zeros(n), np.int8) for w, n in (("conv.w", 4), ("mat.w", 8))]
    weights = [quantised("conv.q", 4, 3, 3, 3), quantised("mat.q", 16, 8), quantised("gemm.q", 8, 5), drawn("conv.b", 4),
               constant("s", 0.02), constant("z", 128, np.uint8), constant("z8", 0, np.int8), constant("gemm.s", 0.004),
               *scales, *zeros]
    return graph([*fake("x", "x.f", "s", "z"), node("DequantizeLinear", "conv.q,conv.w.scale,conv.w.zero", "conv.f", axis=0),
                  node("Conv", "x.f,conv.f,conv.b", "c", strides=[2, 2], pads=[1, 1, 1, 1]), node("Relu", "c", "r"),
                  *fake("r", "r.f", "s", "z"), node("GlobalAveragePool", "r.f", "p"), node("Concat", "p,p,p,p", "cat", axis=1),
                  node("Flatten", "cat", "f"), node("DequantizeLinear", "mat.q,mat.w.scale,mat.w.zero", "mat.f", axis=1),
                  node("MatMul", "f,mat.f", "m"), *fake("m", "m.f", "s", "z"),
                  node("DequantizeLinear", "gemm.q,gemm.s,z8", "gemm.f"), node("Gemm", "m.f,gemm.f", "y")],
                 [value("x", ["N", 3, 8, 8])], [value("y", ["N", 5])], weights)


def qlinear():
    """QLinearConv and QLinearMatMul, and a float head."""
    weights = [quantised("w", 4, 3, 3, 3), quantised("w2", 4, 6), constant("s", 0.02), constant("z", 128, np.uint8), drawn("head", 6, 5),
               constant("ws", random.uniform(0.002, 0.01, 4)), constant("wz", np.zeros(4), np.int8), constant("s2", 0.01),
               constant("z8", 0, np.int8)]
    return graph([node("QuantizeLinear", "x,s,z", "q"), node("QLinearConv", "q,s,z,w,ws,wz,s,z", "c", pads=[1, 1, 1, 1]),
                  node("DequantizeLinear", "c,s,z", "d"), node("GlobalAveragePool", "d", "p"), node("Flatten", "p", "f"),
                  node("QuantizeLinear", "f,s,z", "fq"), node("QLinearMatMul", "fq,s,z,w2,s2,z8,s,z", "m"),
                  node("DequantizeLinear", "m,s,z", "md"), node("MatMul", "md,head", "y")],
                 [value("x", ["N", 3, 8, 8])], [value("y", ["N", 5])], weights)


def dynamic():
    """DynamicQuantizeLinear with ConvInteger and MatMulInteger, scaled back; a float product between."""
    weights = [quantised("w", 4, 3, 3, 3), quantised("w2", 4, 6), constant("ws", 0.01), constant("w2s", 0.01), drawn("mid", 4, 4)]
    return graph([node("DynamicQuantizeLinear", "x", "q,qs,qz"), node("ConvInteger", "q,w,qz", "ci"), node("Cast", "ci", "cf", to=FLOAT),
                  node("Mul", "qs,ws", "cs"), node("Mul", "cf,cs", "c"), node("GlobalAveragePool", "c", "p"), node("Flatten", "p", "f"),
                  node("MatMul", "f,mid", "f2"), node("DynamicQuantizeLinear", "f2", "fq,fs,fz"), node("MatMulInteger", "fq,w2,fz", "mi"),
                  node("Cast", "mi", "mf", to=FLOAT), node("Mul", "fs,w2s", "ms"), node("Mul", "mf,ms", "y")],
                 [value("x", ["N", 3, 8, 8])], [value("y", ["N", 6])], weights)


# ---- a detector ------------------------------------------------------------------------------------

def detector():
    """Two scales of features, joined; boxes and scores; TopK, Gather, NonMaxSuppression, the boxes that are left."""
    anchors = constant("anchors", random.uniform(0, 16, (1, 320, 4)))
    weights = [drawn("c1", 8, 3, 3, 3), drawn("c2", 8, 8, 3, 3), drawn("c3", 8, 16, 1, 1), drawn("box.w", 4, 8, 1, 1), drawn("cls.w", 2, 8, 1, 1),
               drawn("box2.w", 4, 8, 1, 1), drawn("cls2.w", 2, 8, 1, 1), drawn("b1", 8), anchors, constant("scales", [1, 1, 2, 2]),
               constant("boxes.shape", [1, 4, -1], np.int64), constant("cls.shape", [1, 2, -1], np.int64), constant("k", [100], np.int64),
               constant("max", [10], np.int64), constant("iou", [0.5]), constant("score", [0.1]), constant("two", [2], np.int64),
               constant("three", [3], np.int64), constant("ax1", [1], np.int64), constant("rank1", [-1], np.int64), constant("zero", [0], np.int64),
               constant("one.axis", [0], np.int64)]
    nodes = [node("Conv", "x,c1,b1", "f1", pads=[1, 1, 1, 1]), node("Relu", "f1", "r1"),
             node("Conv", "r1,c2", "f2", strides=[2, 2], pads=[1, 1, 1, 1]), node("Relu", "f2", "r2"),
             node("Resize", "r2,,scales", "up", mode="nearest"), node("Concat", "up,r1", "cat", axis=1), node("Conv", "cat,c3", "f3")]
    for of, s in (("f3", ""), ("r2", "2")):
        nodes += [node("Conv", f"{of},box{s}.w", f"box{s}"), node("Reshape", f"box{s},boxes.shape", f"box{s}.r"),
                  node("Transpose", f"box{s}.r", f"box{s}.t", perm=[0, 2, 1]), node("Conv", f"{of},cls{s}.w", f"cls{s}"),
                  node("Reshape", f"cls{s},cls.shape", f"cls{s}.r")]
    nodes += [node("Concat", "box.t,box2.t", "deltas", axis=1), node("Concat", "cls.r,cls2.r", "logits", axis=2),
              node("Add", "deltas,anchors", "boxes"), node("Sigmoid", "logits", "scores"),
              node("ReduceMax", "scores", "best", axes=[1], keepdims=0), node("TopK", "best,k", "top,where", axis=1),
              node("Squeeze", "where,one.axis", "where.1"), node("Gather", "boxes,where.1", "top.boxes", axis=1),
              node("Gather", "scores,where.1", "top.scores", axis=2),
              node("NonMaxSuppression", "top.boxes,top.scores,max,iou,score", "picked", center_point_box=0),
              node("Gather", "picked,two.0", "index.2d", axis=1), node("Squeeze", "top.boxes,one.axis", "flat.boxes"),
              node("Gather", "flat.boxes,index.2d", "y", axis=0)]
    return graph(nodes, [value("x", [1, 3, 16, 16])], [value("y", [None, 4]), value("picked", [None, 3], INT64)],
                 [w for w in weights if w.name not in ("two", "three", "ax1", "rank1", "zero")] + [constant("two.0", 2, np.int64)])


# ---- results that nothing reads ------------------------------------------------------------------------

# Operands of every operator that must have several results; h is a product, k a constant, n an input.
SEVERAL = {"TopK": ("h,k", "h,n"), "DynamicQuantizeLinear": ("h",)}


def unread():
    """Every such operator, once for each of its results, which alone is read."""
    schemas = {s.name: s for s in defs.get_all_schemas() if not s.domain and s.min_output > 1}
    assert set(SEVERAL) == set(schemas), f"operators with several results: {sorted(schemas)}"
    nodes, outputs = [node("MatMul", "x,w", "h")], []
    for operator, forms in SEVERAL.items():
        count = schemas[operator].min_output
        for form, operands in enumerate(forms):
            for read in range(count):
                results = [f"{operator}.{form}.{read}.{i}" for i in range(count)]
                nodes += [node(operator, operands, ",".join(results)),
                          node("Cast", results[read], f"{results[read]}.y", to=FLOAT)]
                scalar = operator == "DynamicQuantizeLinear" and read > 0
                outputs.append(value(f"{results[read]}.y", [] if scalar else [4, None]))
    return graph(nodes, [value("x", [4, 8]), value("n", [1], INT64)], outputs,
                 [drawn("w", 8, 8), constant("k", [2], np.int64)])


MODELS = (branches, loop, growing, scan, nested, qdq, qlinear, dynamic, detector, unread)


def write(folder):
    for make in MODELS:
        model = helper.make_model(make(), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        checker.check_model(model, full_check=True)
        save(model, str(Path(folder) / f"{make.__name__}.onnx"))


if __name__ == "__main__":
    write(sys.argv[1])
