"""Compares random graphs with onnxruntime; needs current onnx, onnxruntime and numpy.

usage: python tests/fuzz/differential.py BUILD [--first N] [--count N] [--op OPERATOR | --bodies] [--jobs N] [--verbose]

BUILD/tests/differential draws the graphs and runs them (differential.c). onnxruntime, its graph optimisations off, runs the
same models with the same inputs; what it refuses is run by onnx.reference. An output differs if an element differs by more
than TOLERANCE of its type, relative to the largest element of the output: a few units in the last place of f16 and bf16,
sums of up to 2,000 products in f32 and f64. The error of a single sum or mean is relative to its largest term.

Rounding can grow along a graph. If an output differs, each node is therefore run alone on the operands that ampc computed,
by onnxruntime, by onnx.reference, and by onnxruntime with f32 operands. A node that differs from all of
them is a finding, reported with seed, node and operands. If none does, but the outputs of the graph differ from those of the
graph whose every result is an output, that is a finding; otherwise the graph only magnifies rounding. With --bodies, whose
nodes have bodies or sequences, the graph is judged as a whole: it must agree with onnxruntime or onnx.reference. EXCEPTIONS lists what
the specification leaves undefined, and where the others depart from it.

Prints each finding, the counts of refusals and exceptions by reason, and a last line with the totals. Exit status 1 with
findings.
"""
import argparse
import collections
import multiprocessing
import multiprocessing.pool
import os
import re
import struct
import subprocess
import sys
import warnings

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
         10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64, 16: ml_dtypes.bfloat16}
TOLERANCE = {np.float64: 1e-9, np.float32: 1e-4, np.float16: 6e-3, ml_dtypes.bfloat16: 5e-2}
BATCH = 250
DRAWING = 60  # seconds for our runs of a batch
PATIENCE = 75  # seconds for one graph; the first one of a batch comes after all of our runs

Tensor = collections.namedtuple("Tensor", "name type random array")
Graph = collections.namedtuple("Graph", "seed opset refusal model inputs outputs results")


# ---- reading ---------------------------------------------------------------------------------------------------------


class Reader:
    """Reads what differential.c writes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        value, = struct.unpack_from("<q", self.data, self.at)
        self.at += 8
        return value

    def bytes(self):
        n = self.number()
        self.at += n
        return self.data[self.at - n:self.at]

    def tensor(self):
        name, code = self.bytes().decode(), self.number()
        dims = [self.number() for _ in range(self.number())]
        random = self.number()
        return Tensor(name, code, bool(random), np.frombuffer(self.bytes(), TYPES[code]).reshape(dims))

    def graph(self):
        seed, opset, refusal, model = self.number(), self.number(), self.bytes().decode(), self.bytes()
        lists = [[self.tensor() for _ in range(self.number())] for _ in range(3)]
        return Graph(seed, opset, refusal, model, *lists)


def run_ours(command):
    """What the command writes, and how it failed if it did."""
    try:
        done = subprocess.run(command, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=DRAWING)
        return done.stdout, f"crash: {done.stderr.decode()[-300:]}"
    except subprocess.TimeoutExpired as late:
        return late.stdout or b"", f"no end within {DRAWING} s"


def draw(build, first, count, *options):
    """Yields graphs; a crash, or a run without end, is a graph whose model is None, and the following seeds are drawn
    again."""
    end = first + count
    while first < end:
        written, trouble = run_ours([f"{build}/tests/differential", str(first), str(end - first), *options])
        reader = Reader(written)
        while reader.at < len(written):
            try:
                graph = reader.graph()
            except struct.error:
                break
            first = graph.seed + 1
            yield graph
        if first < end:
            yield Graph(first, 0, trouble, None, [], [], [])
            first += 1


# ---- the other runtimes ----------------------------------------------------------------------------------------------


def run_onnxruntime(model, feeds):
    """Arrays by name, or a text that says why there are none."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if any(a.dtype == ml_dtypes.bfloat16 for a in feeds.values()):
        return "bfloat16"
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        wanted = {i.name for i in session.get_inputs()}
        return dict(zip(names, session.run(names, {n: a for n, a in feeds.items() if n in wanted})))
    except Exception as error:  # onnxruntime's exceptions have no common type
        return str(error)


def run_reference(model, feeds):
    """The same from the reference implementation of onnx."""
    try:
        runner = ReferenceEvaluator(onnx.load_model_from_string(model))
        wanted = set(runner.input_names)
        results = runner.run(None, {n: a for n, a in feeds.items() if n in wanted})
        return dict(zip(runner.output_names, results))
    except Exception as error:  # the reference raises whatever numpy raises
        return f"{type(error).__name__}: {error}"


# ---- comparing -------------------------------------------------------------------------------------------------------


def difference(got, want, coarse=False, least=1e-5):
    """What is wrong with `got`; None: nothing. coarse: `want` was computed in f32. least: of what errors are relative to."""
    want = np.asarray(want)
    tolerance = max(TOLERANCE.get(got.dtype.type, 0), TOLERANCE[np.float32] if coarse else 0)
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, not {list(want.shape)}"
    if got.dtype != want.dtype:
        return f"type {got.dtype}, not {want.dtype}"
    if got.dtype.type not in TOLERANCE:
        wrong = got != want
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        scale = np.abs(b[np.isfinite(b)]).max(initial=least)
        with np.errstate(all="ignore"):
            wrong = np.where(finite, np.abs(a - b) > tolerance * scale,
                             ~((a == b) | (np.isnan(a) & np.isnan(b))))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements, {list(at)} is {got[at]}, not {want[at]}"


def differences(outputs, wanted, *how):
    """Name -> what is wrong, for the outputs that are not random. how: as of difference."""
    found = {t.name: difference(t.array, wanted[t.name], *how) for t in outputs if not t.random and t.name in wanted}
    return {name: text for name, text in found.items() if text}


# ---- exceptions ------------------------------------------------------------------------------------------------------


def attributes(node):
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def is_float(array):
    return array.dtype.type in TOLERANCE


def has_special(array):
    """Whether the elements include NaN or infinity."""
    return is_float(array) and not np.isfinite(array.astype(np.float64)).all()


def is_out_of_range(node, operands):
    code = attributes(node).get("to")
    target = TYPES[code] if code in TYPES else operands[1].dtype.type
    if not is_float(operands[0]) or not np.issubdtype(target, np.integer):
        return False
    x = operands[0].astype(np.float64)
    return bool((~np.isfinite(x) | (x < np.iinfo(target).min) | (x > np.iinfo(target).max)).any())


def is_double(node, operands):
    return operands[0].dtype == np.float64


def is_dilated_same(node, operands):
    a = attributes(node)
    return a.get("auto_pad", b"").startswith(b"SAME") and any(d > 1 for d in a.get("dilations", []))


def is_cropped_same(node, operands):
    """auto_pad where strides are so large that the padding would be negative."""
    a, sizes = attributes(node), operands[0].shape[2:]
    if not a.get("auto_pad", b"").startswith(b"SAME"):
        return False
    kernel = a.get("kernel_shape") or operands[1].shape[2:]
    strides, dilations = (a.get(k) or [1] * len(sizes) for k in ("strides", "dilations"))
    return any((-(-n // s) - 1) * s + (k - 1) * d + 1 < n for n, k, s, d in zip(sizes, kernel, strides, dilations))


def any_special(node, operands):
    return any(has_special(o) for o in operands)


def any_huge(node, operands):
    """Whether a product of two elements may exceed the range of f16."""
    return any(not (np.abs(o.astype(np.float64)) < 1e4).all() for o in operands if is_float(o))


def is_extreme(node, operands):
    """NaN, infinity, or elements whose squares are infinite in f32."""
    with np.errstate(invalid="ignore"):
        return any_special(node, operands) or any(
            is_float(o) and np.abs(o.astype(np.float64)).max(initial=0) > 1e18 for o in operands)


def is_uncropped_axis(node, operands):
    """A region of an axis whose scale is 1."""
    region, scales = operands[1], operands[-1]
    if attributes(node).get("coordinate_transformation_mode") != b"tf_crop_and_resize":
        return False
    if not is_float(scales):
        scales = scales / operands[0].shape
    half = len(region) // 2
    return any(s == 1 and (a, b) != (0, 1) for a, b, s in zip(region[:half], region[half:], scales))


def quantised_nan(node, operands):
    """NaN from x or from 0 / 0."""
    return any_special(node, operands) or not (operands[1].astype(np.float64) > 0).all()


def is_stretched_same(node, operands):
    """auto_pad where in * stride is larger than what the window reaches, so that the padding would be negative."""
    a, sizes = attributes(node), operands[0].shape[2:]
    if not a.get("auto_pad", b"").startswith(b"SAME"):
        return False
    kernel = operands[1].shape[2:]
    strides, dilations = (a.get(k) or [1] * len(sizes) for k in ("strides", "dilations"))
    extra = a.get("output_padding") or [0] * len(sizes)
    return any((k - 1) * d + 1 + e < s for k, s, d, e in zip(kernel, strides, dilations, extra))


def is_unit_grid(node, operands):
    """align_corners where an axis has one point."""
    return bool(attributes(node).get("align_corners")) and 1 in operands[1][2:]


def is_off_axis(node, operands):
    return (attributes(node).get("axis") or 0) % max(operands[0].ndim, 1) != 0


def is_uneven_window(node, operands):
    """A window of even size, which onnxruntime refuses, or a type that it refuses, and more channels than images."""
    a, shape = attributes(node), operands[0].shape
    return (a["size"] % 2 == 0 or operands[0].dtype != np.float32) and shape[1] > shape[0]


def is_beyond_f32(node, operands):
    """Elements whose powers are representable in f64 only."""
    x = operands[0].astype(np.float64)
    with np.errstate(all="ignore"):
        powers = np.abs(x) ** attributes(node).get("p", 2)
    return x.size > 0 and bool((powers[np.isfinite(x)] > 1e36).any())


def sum_of_squares_overflows(node, operands):
    x = operands[0]
    if is_float(x):
        return False
    total = sum(int(v) ** 2 for v in x.ravel())
    return x.dtype == np.uint32 or total > np.iinfo(x.dtype).max


def has_padding_only(node, operands):
    """A window that is entirely in the padding along an axis."""
    a, sizes = attributes(node), operands[0].shape[2:]
    pads = a.get("pads") or [0] * 2 * len(sizes)
    strides, dilations = (a.get(k) or [1] * len(sizes) for k in ("strides", "dilations"))
    for i, (n, k, s, d) in enumerate(zip(sizes, a["kernel_shape"], strides, dilations)):
        first = range(-pads[i], n + pads[i + len(sizes)] + (s if a.get("ceil_mode") else 0), s)
        if any(all(not 0 <= at + j * d < n for j in range(k)) for at in first):
            return True
    return False


def is_cancelling(node, operands):
    """Groups whose variance is small against their mean square, or 0."""
    x = operands[0].astype(np.float64)
    if not x.size:
        return False
    if node.op_type == "GroupNormalization":
        x, axes = x.reshape(x.shape[0], attributes(node)["num_groups"], -1), (2,)
    else:
        axes = tuple(attributes(node).get("axes") or [0, 2, 3])
    with np.errstate(all="ignore"):
        return bool((x.var(axes) <= 1e-2 * (x**2).mean(axes)).any())


def is_inexact_size(node, operands):
    """A mode that depends on the size of the result, where that is 1 or not the product of size and scale."""
    mode, numbers = attributes(node).get("coordinate_transformation_mode"), operands[-1]
    sizes = operands[0].shape * numbers if is_float(numbers) else numbers
    if mode == b"tf_crop_and_resize":
        return bool((sizes != np.floor(sizes)).any())
    return mode == b"pytorch_half_pixel" and bool((np.floor(sizes) == 1).any())


def cancels_out(node, operands):
    """A sum along the axes that is small compared with its terms."""
    x = operands[0].astype(np.float64)
    axes = attributes(node).get("axes", operands[1] if len(operands) > 1 else None)
    axes = None if axes is None or len(axes) == 0 else tuple(int(a) for a in axes)
    with np.errstate(all="ignore"):
        return bool((np.abs(x.sum(axes)) < 1e-4 * np.abs(x).sum(axes)).any())


def rounds_between(node, operands):
    """Three or more operands, the products of the first of which may overflow."""
    return len(operands) > 2 and any_huge(node, operands)


# Differences that are not findings: (operators, reason, function of node and operands).
UNDEFINED = "the specification does not define "
EXCEPTIONS = [
    ("Cast CastLike", UNDEFINED + "a float outside the range of the integer", is_out_of_range),
    ("LayerNormalization", UNDEFINED + "the mean of no elements", lambda n, o: o[0].size == 0),
    ("LSTM GRU RNN", UNDEFINED + "NaN: here it stays, and onnxruntime bounds the operands of activations", any_special),
    ("ReduceLogSum", "the logarithm of a sum that cancels out", cancels_out),
    ("LSTM GRU RNN", UNDEFINED + "the last states without any steps", lambda n, o: o[0].size == 0),
    ("LSTM GRU RNN", "Softplus of onnxruntime overflows, and Affine lets states grow without bound",
     lambda n, o: {b"Softplus", b"Affine"} & set(attributes(n).get("activations", []))),
    ("MaxPool", UNDEFINED + "NaN and -infinity: here NaN is the largest value, as in PyTorch", any_special),
    ("MaxPool", "onnxruntime refuses tensors without elements, and onnx.reference confuses axes in pads",
     lambda n, o: o[0].size == 0),
    ("MaxPool", "onnx.reference pads integers with a cast of -infinity", lambda n, o: not is_float(o[0])),
    ("Loop", "onnxruntime returns a list of rank 1 if there is no iteration", lambda n, o: o[0].size == 1 and o[0].item() <= 0),
    ("Loop", "onnx.reference joins the results of the iterations instead of stacking them",
     lambda n, o: o[-1].dtype == ml_dtypes.bfloat16),
    ("Mean Shrink", "64-bit integers beyond 2^53 are rounded in floats", lambda n, o: o[0].dtype.itemsize == 8),
    ("AveragePool", UNDEFINED + "NaN, which onnx.reference leaves out", any_special),
    ("Conv", UNDEFINED + "0 * infinity in the padding, which is not computed here", any_special),
    ("BatchNormalization", UNDEFINED + "the order of operations, which decides about infinity - infinity", any_special),
    ("LogSoftmax Softmax SoftmaxCrossEntropyLoss", "infinity - infinity is NaN, as in PyTorch; onnxruntime differs with f64",
     any_special),
    ("Attention", UNDEFINED + "infinite scores: here a key that may not be seen counts nothing, and infinity - infinity is NaN",
     any_huge),
    ("Attention", "scale is rounded once, to f64; by the others to f32 before and after the root, and a softmax in f32 rounds",
     lambda n, o: is_double(n, o) and {"scale", "softmax_precision"} & set(attributes(n))),
    ("Attention", "onnx.reference caps the scores of qk_matmul_output_mode 0",
     lambda n, o: "softcap" in attributes(n) and len(n.output) == 4 and not attributes(n).get("qk_matmul_output_mode")),
    ("LRN", "onnx.reference computes as many channels as there are samples", lambda n, o: o[0].shape[0] < o[0].shape[1]),
    ("Clip", "an absent bound is no bound, as in PyTorch; by the specification it makes infinity finite", any_special),
    ("Gelu", "the constants are f64; those of the others are f32", is_double),
    ("MaxPool AveragePool", "onnxruntime ignores dilations in the size with auto_pad", is_dilated_same),
    ("MaxPool AveragePool Conv", "onnxruntime crops with auto_pad if strides are larger than the window", is_cropped_same),
    ("QuantizeLinear", UNDEFINED + "the integer of NaN: here 0", quantised_nan),
    ("DynamicQuantizeLinear", UNDEFINED + "the range of NaN and infinity", any_special),
    ("GridSample", UNDEFINED + "the sample at NaN or infinity, and 0 * infinity in taps without weight", any_special),
    ("Resize Upsample", UNDEFINED + "0 * infinity in taps without weight; onnx.reference makes infinity finite", any_special),
    ("Resize", "onnxruntime ignores the region where the scale is 1, and onnx.reference rounds outwards at its end",
     is_uncropped_axis),
    ("Resize", "onnxruntime refuses cubic f64, and onnx.reference computes the weights in f32",
     lambda n, o: is_double(n, o) and attributes(n).get("mode") == b"cubic"),
    ("Resize", "onnxruntime refuses it, and onnx.reference takes a fractional length, and position -0.5 if the length is 1",
     is_inexact_size),
    ("RoiAlign", UNDEFINED + "regions with NaN or infinity", lambda n, o: has_special(o[1])),
    ("RoiAlign", UNDEFINED + "NaN: here the largest value, as in MaxPool", any_special),
    ("DeformConv", UNDEFINED + "offsets of NaN or infinity: here 0 is read, as in torchvision", lambda n, o: has_special(o[2])),
    ("OneHot", "onnx.reference computes 0 * infinity", lambda n, o: has_special(o[2])),
    ("Einsum", "the product of the first operands is rounded to the type, and may overflow", rounds_between),
    ("Det DFT STFT", UNDEFINED + "the order of operations, which decides about infinity - infinity", any_special),
    ("GroupNormalization", UNDEFINED + "the order of operations on an infinite variance", is_extreme),
    ("GroupNormalization MeanVarianceNormalization",
     "the variance is a mean of squares of differences; the others expand a function that subtracts means of squares",
     lambda n, o: is_extreme(n, o) or is_cancelling(n, o)),
    ("ConvTranspose", UNDEFINED + "padding below 0: here 0 at the start and zeros at the end, as in TensorFlow",
     is_stretched_same),
    ("AffineGrid", UNDEFINED + "the corners of one point: here the centre, as in PyTorch", is_unit_grid),
    ("Hardmax", UNDEFINED + "NaN: here the largest value, as in PyTorch", any_special),
    ("GlobalMaxPool", UNDEFINED + "NaN: here the largest value, as in PyTorch", any_special),
    ("GlobalMaxPool", "onnxruntime refuses tensors without elements, and onnx.reference reduces the wrong axes",
     lambda n, o: o[0].size == 0 and o[0].ndim != 4),
    ("MaxPool", UNDEFINED + "the largest of no elements: here -infinity", has_padding_only),
    ("LRN", "onnxruntime subtracts the squares that leave the window, which keeps the rounding errors of large ones",
     lambda n, o: is_extreme(n, o) or np.abs(o[0]).max(initial=0) > 1000),
    ("LRN", "onnxruntime refuses it, and onnx.reference confuses channels and images", is_uneven_window),
    ("LpPool", "onnxruntime refuses f64, and onnx.reference leaves out NaN",
     lambda n, o: is_double(n, o) and any_special(n, o)),
    ("LpPool", "onnxruntime refuses f64, and f32 is too small", lambda n, o: is_double(n, o) and is_beyond_f32(n, o)),
    ("ReduceSumSquare", "integers wrap; onnxruntime saturates, onnx.reference returns 64 bits", sum_of_squares_overflows),
    ("Unique", UNDEFINED + "NaN: here equal to NaN and above all numbers, as in NumPy", any_special),
    ("NonMaxSuppression", UNDEFINED + "the order of NaN, and boxes with NaN or infinity", any_special),
    ("Unique", "onnxruntime refuses the type, and onnx.reference takes along axis 0", is_off_axis),
    ("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "the mean of no items is 0/0, as in PyTorch",
     lambda n, o: o[0].size == 0),
]


def excepted(node, operands):
    for operators, reason, function in EXCEPTIONS:
        if node.op_type in operators.split() and function(node, operands):
            return f"{node.op_type}: {reason}"
    return None


# ---- one node --------------------------------------------------------------------------------------------------------


def single(model, node, values):
    """A model of one node whose operands are inputs, except constants, which stay constants."""
    constants = {t.name for t in model.graph.initializer}
    constants.update(n.output[0] for n in model.graph.node if n.op_type == "Constant")
    captured = [i for a in node.attribute if a.HasField("g") for n in a.g.node for i in n.input]
    names = [n for n in dict.fromkeys([*node.input, *captured]) if n in values]
    inputs = [n for n in names if n not in constants]
    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info(n, values[n].type, values[n].array.shape) for n in inputs],
        [helper.make_tensor_value_info(o, values[o].type, None) for o in node.output if o in values],
        [numpy_helper.from_array(values[n].array, n) for n in names if n in constants])
    one = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return one.SerializeToString(), {n: values[n].array for n in inputs}


def constant_value(node):
    a = attributes(node)
    if "value" in a:
        return numpy_helper.to_array(a["value"])
    return np.array(next(iter(a.values())), np.float32 if "float" in next(iter(a)) else np.int64)


def values_of(graph, model):
    """Tensors by name: inputs, constants and results."""
    values = {t.name: t for t in [*graph.inputs, *graph.results]}
    for t in model.graph.initializer:
        values[t.name] = Tensor(t.name, t.data_type, False, numpy_helper.to_array(t))
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] not in values:
            array = constant_value(node)
            values[node.output[0]] = Tensor(node.output[0], helper.np_dtype_to_tensor_dtype(array.dtype), False, array)
    return values


def in_f32(values):
    """The same tensors, all floats as f32."""
    return {n: t._replace(type=1, array=t.array.astype(np.float32)) if is_float(t.array) else t for n, t in values.items()}


def run_single(model, node, values):
    return run_onnxruntime(*single(model, node, values))


def run_without_layout(model, node, values):
    """The results of a recurrent node by onnxruntime, which has layout 0 only."""
    other = onnx.NodeProto()
    other.CopyFrom(node)
    next(a for a in other.attribute if a.name == "layout").i = 0
    turned = dict(values)
    for i, name in enumerate(node.input):
        if name and i in (0, 5, 6):
            turned[name] = values[name]._replace(array=np.ascontiguousarray(values[name].array.swapaxes(0, 1)))
    results = run_single(model, other, turned)
    if isinstance(results, str):
        return results
    orders = {node.output[0]: (2, 0, 1, 3)}
    return {n: a.transpose(orders.get(n, (1, 0, 2))) for n, a in results.items()}


def judgements(model, node, values):
    """Yields (name, results by name) of those that run the node."""
    one, feeds = single(model, node, values)
    yield "onnxruntime", run_onnxruntime(one, feeds)
    yield "onnx.reference", run_reference(one, feeds)
    if node.op_type not in ("Cast", "CastLike", "Constant", "ConstantOfShape"):
        run = run_without_layout if attributes(node).get("layout") else run_single
        results = run(model, node, in_f32(values))
        if not isinstance(results, str):
            results = {n: a.astype(values[n].array.dtype) for n, a in results.items()}
        yield "onnxruntime in f32", results


def largest_term(node, operands):
    """What the error of a sum is relative to, if it may cancel out to 0."""
    x = operands[0].astype(np.float64) if operands else np.zeros(0)
    if node.op_type in ("LSTM", "GRU", "RNN") and operands[0].dtype.itemsize == 2:
        return 0.05
    sums = node.op_type in "GlobalAveragePool NegativeLogLikelihoodLoss ReduceLogSumExp ReduceMean ReduceSum".split()
    return np.abs(x[np.isfinite(x)]).max(initial=1e-5) if sums else 1e-5


def check_node(model, node, values):
    """(finding, exception) of a node that ampc has run: texts or None."""
    got = [values[o] for o in node.output if o in values]
    operands = [values[i].array for i in node.input if i in values]
    texts = {}
    for name, wanted in judgements(model, node, values):
        if isinstance(wanted, str):
            continue
        found = differences(got, wanted, name.endswith("f32"), largest_term(node, operands))
        if not found:
            return None, f"{node.op_type}: {', '.join(texts)} and {name} differ" if texts else None
        texts[name] = "; ".join(found.values())
    if not texts:
        return None, None
    reason = excepted(node, operands)
    if reason:
        return None, reason
    shapes = ", ".join(f"{values[i].array.dtype}{list(values[i].array.shape)}" if i else "-" for i in node.input)
    return f"{node.op_type}({shapes}) {attributes_text(node)}: {' | '.join(f'{k}: {v}' for k, v in texts.items())}", None


def attributes_text(node):
    return " ".join(f"{k}={v}" for k, v in attributes(node).items() if not isinstance(v, (onnx.TensorProto, onnx.GraphProto)))


def examine(graph):
    """Findings and exceptions of a graph with a difference."""
    model = onnx.load_model_from_string(graph.model)
    values = values_of(graph, model)
    checked = [check_node(model, node, values) for node in model.graph.node if node.op_type != "Constant"]
    findings, reasons = [f for f, _ in checked if f], [r for _, r in checked if r]
    apart = {t.name: difference(t.array, values[t.name].array) for t in graph.outputs if not t.random}
    apart = {name: text for name, text in apart.items() if text}
    if not findings and apart:
        findings.append(f"differs from itself with all results as outputs: {apart}")
    return findings, reasons


def examine_whole(graph):
    """Findings and exceptions of a graph whose nodes cannot run alone."""
    feeds = {t.name: t.array for t in graph.inputs}
    texts = []
    for name, run in (("onnxruntime", run_onnxruntime), ("onnx.reference", run_reference)):
        wanted = run(graph.model, feeds)
        found = wanted if isinstance(wanted, str) else differences(graph.outputs, wanted)
        if not found:
            return [], [f"graph: {', '.join(texts)} and {name} differ"]
        texts.append(f"{name}: {found if isinstance(found, str) else '; '.join(found.values())}")
    return [" | ".join(texts)], []


# ---- graphs ----------------------------------------------------------------------------------------------------------


def short(text):
    """The reason without names and numbers."""
    text = re.sub(r".*?error: ", "", text.split("\n")[0])
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : ", "", text)
    text = re.sub(r"'[^']*'|t\d+|Node ?:? ?\([^)]*\)|\b[A-Z]\b|[fi]\d+\[[^]]*\]", "_", text)
    return re.sub(r"-?\d+(\.\d+)?", "#", text)[:110]


def check_batch(job, report):
    """Calls `report` with each seed. Counts by what happened, findings, and a seed for each kind of refusal and exception."""
    build, first, count, options = job
    warnings.simplefilter("ignore")
    counts, findings, examples = collections.Counter(), [], {}

    def note(name, seed):
        counts[name] += 1
        examples.setdefault(name, seed)

    for graph in draw(build, first, count, *options):
        report(graph.seed)
        counts["graphs"] += 1
        if graph.model is None:
            findings.append((graph.seed, graph.refusal))
            continue
        feeds = {t.name: t.array for t in graph.inputs}
        wanted = run_onnxruntime(graph.model, feeds)
        judge = "onnxruntime"
        if isinstance(wanted, str):
            reason, judge, wanted = wanted, "onnx.reference", run_reference(graph.model, feeds)
        if graph.refusal:
            valid = "both refuse" if isinstance(wanted, str) else f"{judge} runs"
            note(f"refused by ampc, {valid}: {short(graph.refusal)}", graph.seed)
            counts["refused by ampc"] += 1
        elif isinstance(wanted, str):
            note(f"refused by the others: {short(reason)}", graph.seed)
            counts["refused by the others"] += 1
        else:
            counts[f"as {judge}"] += 1
            if differences(graph.outputs, wanted):
                counts[f"as {judge}"] -= 1
                found, reasons = examine_whole(graph) if "--bodies" in options else examine(graph)
                findings += [(graph.seed, f) for f in found]
                for reason in set(reasons):
                    note(f"exception: {reason}", graph.seed)
                counts["findings" if found else "exceptions" if reasons else "rounding"] += 1
    return counts, findings, examples


def check_in_child(job):
    """check_batch in a process of its own, and the last seed; in place of the result, that seed if there is no answer."""
    receiver, sender = multiprocessing.Pipe(False)
    child = multiprocessing.Process(target=lambda: sender.send(check_batch(job, sender.send)))
    child.start()
    sender.close()
    message = seed = job[1]
    try:
        while isinstance(message, int) and receiver.poll(PATIENCE):
            message = receiver.recv()
            seed = message if isinstance(message, int) else seed
    except EOFError:
        pass
    child.kill()
    child.join()
    return message, seed


def check_apart(job):
    """check_batch; the others may crash or need very long."""
    build, first, count, options = job
    result, seed = check_in_child(job)
    if not isinstance(result, int):
        return result
    reason = "refused by the others: no answer"
    parts = [(collections.Counter({"graphs": 1, "refused by the others": 1, reason: 1}), [], {reason: seed})]
    rest = ((first, seed - first), (seed + 1, first + count - seed - 1))
    parts += [check_apart((build, at, n, options)) for at, n in rest if n]
    counts = sum((p[0] for p in parts), collections.Counter())
    return counts, [f for p in parts for f in p[1]], {k: v for p in parts for k, v in p[2].items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--op")
    parser.add_argument("--bodies", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if not os.access(f"{options.build}/tests/differential", os.X_OK):
        parser.error(f"{options.build}/tests/differential is not built: ninja -C {options.build} tests/differential")
    extra = ("--bodies",) if options.bodies else ("--op", options.op) if options.op else ()
    end = options.first + options.count
    jobs = [(options.build, at, min(BATCH, end - at), extra) for at in range(options.first, end, BATCH)]
    counts, findings, examples = collections.Counter(), [], {}
    with multiprocessing.pool.ThreadPool(options.jobs) as pool:
        for number, (more, found, seeds) in enumerate(pool.imap_unordered(check_apart, jobs)):
            counts.update(more)
            examples = {**seeds, **examples}
            findings += found
            for seed, text in found:
                print(f"seed {seed}: {text}", flush=True)
            if options.verbose:
                print(f"{(number + 1) * BATCH} of {options.count}", file=sys.stderr)
    for name, n in counts.most_common():
        if ":" in name:
            print(f"{n:6} {name} (seed {examples[name]})")
    print(f"seeds {options.first}-{end - 1}: {counts['graphs']} graphs; {counts['as onnxruntime']} as onnxruntime, "
          f"{counts['as onnx.reference']} as onnx.reference, {counts['rounding']} differ by rounding that grows, "
          f"{counts['exceptions']} by exceptions; refused: {counts['refused by ampc']} by ampc, "
          f"{counts['refused by the others']} by the others; {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
