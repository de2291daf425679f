#!/usr/bin/env python3
"""Judges converted ONNX models by comparison with their original, for tools/bench.

Prints a list of JSON objects, one per converted file: whether onnx's full checker accepts it, the float casts added (Cast
nodes from or to a float type, less those of the original), and the error of the outputs in onnxruntime on the CPU against
the original: the largest difference relative to the largest value, over all samples of MODEL's .npz but the first, which
a converter may have seen. A file that is missing or does not run has null.

usage: judge_conversion.py MODEL.onnx CONVERTED.onnx..
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, shape_inference

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}


def float_casts(path):
    """Cast nodes of all graphs and functions whose operand or result is a float."""
    model = shape_inference.infer_shapes(onnx.load(path))
    count = 0
    graphs = [model.graph, *model.functions]
    types = {}
    while graphs:
        g = graphs.pop()
        for v in [*getattr(g, "input", []), *getattr(g, "value_info", []), *getattr(g, "output", [])]:
            if not isinstance(v, str):
                types[v.name] = v.type.tensor_type.elem_type
        types.update((t.name, t.data_type) for t in getattr(g, "initializer", []))
        for n in g.node:
            graphs += [a.g for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]
            if n.op_type == "Cast":
                to = next(a.i for a in n.attribute if a.name == "to")
                count += to in FLOATS or types.get(n.input[0], TensorProto.FLOAT) in FLOATS
    return count


def is_valid(path):
    try:
        onnx.checker.check_model(path, full_check=True)
        return True
    except (onnx.checker.ValidationError, shape_inference.InferenceError):
        return False


def outputs(path, samples):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [[np.float64(y) for y in session.run(None, s)] for s in samples]


def error_of(wanted, got):
    pairs = [(w, g) for ws, gs in zip(wanted, got) for w, g in zip(ws, gs)]
    return max(float(np.abs(w - g).max() / np.abs(w).max()) for w, g in pairs)


def judge(model, converted, samples, wanted):
    if not Path(converted).exists():
        return {"valid": None, "casts_added": None, "error": None}
    try:
        error = error_of(wanted, outputs(converted, samples))
    except Exception as e:  # onnxruntime has many types of exceptions
        print(f"{converted}: {e}", file=sys.stderr)
        error = None
    return {"valid": is_valid(converted), "casts_added": float_casts(converted) - float_casts(model), "error": error}


model, *files = sys.argv[1:]
data = np.load(Path(model).with_suffix(".npz"))
drawn = [{k: data[k][i] for k in data} for i in range(1, len(next(iter(data.values()))))]
reference = outputs(model, drawn)
print(json.dumps([judge(model, f, drawn, reference) for f in files]))
