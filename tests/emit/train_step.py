"""Computes emitted training steps (ampc --emit=onnx-train) in NumPy and compares loss, parameters, states and counters after
two steps with `ampc-run train`.

    python3 tests/emit/train_step.py BUILD WORK [NAME]        (WORK: a folder for files)

First the model is walked as a viewer does: every operand is an input, an initializer or an earlier result, names are unique,
every value has a type, every node its phase. Then every value is computed in f64 from its operands and rounded to its declared
type, whose shape it must have. A newer onnx package (1.16) also runs its full check, and its evaluator computes ONNX's
operators; with 1.12, which knows neither the metadata nor has one, the functions below do.
"""
import collections
import json
import math
import os
import struct
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper

try:
    from onnx.reference import ReferenceEvaluator
    ReferenceEvaluator = ReferenceEvaluator if onnx.IR_VERSION >= 10 else None
except ImportError:
    ReferenceEvaluator = None

OWN = "ai.ampc"
GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "goldens")
NUMPY = {1: np.float32, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}
BF16 = 16


# ---- the walk ------------------------------------------------------------------------------------------------------------------

def shape_of(info):
    return [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]


def opset_of(model):
    return next(o.version for o in model.opset_import if not o.domain)


def walk_graph(graph, outer, names):
    """Returns the declared types, name -> (element type, shape), and the problems found."""
    parts = list(graph.input) + list(graph.output) + list(graph.value_info)
    types = {v.name: (v.type.tensor_type.elem_type, shape_of(v)) for v in parts}
    problems = ["%s is declared twice" % n for n, k in collections.Counter(v.name for v in parts).items() if k > 1]
    types.update({t.name: (t.data_type, list(t.dims)) for t in graph.initializer})
    known = set(outer) | {i.name for i in graph.input} | {t.name for t in graph.initializer}
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                problems += walk_graph(a.g, known, names)[1]
        problems += ["%s reads %s" % (node.name, i) for i in node.input if i and i not in known]
        problems += ["%s is written twice" % o for o in node.output if o and o in known]
        problems += ["%s has no type" % o for o in node.output if o and o not in types]
        problems += ["the name %s" % node.name] if not node.name or node.name in names else []
        names.add(node.name)
        known.update(o for o in node.output if o)
        if hasattr(node, "metadata_props"):
            about = {e.key: e.value for e in node.metadata_props}
            problems += ["%s has no phase" % node.name] if about.get("ampc.phase") not in (
                "forward", "backward", "update") else []
    return types, problems + ["no value of output %s" % o.name for o in graph.output if o.name not in known]


def walk(model):
    types, problems = walk_graph(model.graph, (), set())
    assert not problems, problems[:5]
    assert (OWN, 1) in {(o.domain, o.version) for o in model.opset_import}
    if hasattr(onnx.NodeProto(), "metadata_props"):
        onnx.checker.check_model(model, full_check=True)
    elif opset_of(model) <= onnx.defs.onnx_opset_version():
        model.ir_version = onnx.IR_VERSION
        onnx.checker.check_model(model)
    return types


# ---- numbers -------------------------------------------------------------------------------------------------------------------

def rounded(x, to):
    """The values in f64, or their own type if they are not floats."""
    if to == BF16:
        bits = np.asarray(x, np.float32).view(np.uint32)
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & np.uint32(0xffff0000)
        return np.asarray(bits, np.uint32).view(np.float32).astype(np.float64)
    with np.errstate(over="ignore"):
        x = np.asarray(x).astype(NUMPY[to])
    return x.astype(np.float64) if to in (1, 10, 11) else x


def attributes_of(node):
    def value(a):
        v = onnx.helper.get_attribute_value(a)
        if a.type == onnx.AttributeProto.TENSOR:
            return float(numpy_helper.to_array(v)) if not v.dims else numpy_helper.to_array(v)
        return v.decode() if isinstance(v, bytes) else v
    return {a.name: value(a) for a in node.attribute}


def windows(x, kernel, strides, pads, dilations, fill):
    """x with the elements of each window as new last axes [N,C,out..,kernel..], and the padded positions."""
    n = len(kernel)
    x = np.pad(x, [(0, 0), (0, 0)] + [(pads[i], pads[i + n]) for i in range(n)], constant_values=fill)
    out = [(x.shape[2 + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(n)]
    steps = x.strides
    shape = x.shape[:2] + tuple(out) + tuple(kernel)
    view = steps[:2] + tuple(steps[2 + i] * strides[i] for i in range(n)) + tuple(
        steps[2 + i] * dilations[i] for i in range(n))
    return np.lib.stride_tricks.as_strided(x, shape, view)


def scatter(dy, shape, kernel, strides, pads, dilations):
    """The gradient of `windows` for dy [N,C,out..,kernel..]."""
    n = len(kernel)
    padded = list(shape[:2]) + [shape[2 + i] + pads[i] + pads[i + n] for i in range(n)]
    dx = np.zeros(padded)
    for k in np.ndindex(*kernel):
        at = tuple(slice(k[i] * dilations[i], k[i] * dilations[i] + (dy.shape[2 + i] - 1) * strides[i] + 1, strides[i])
                   for i in range(n))
        dx[(slice(None), slice(None)) + at] += dy[(Ellipsis,) + k]
    return dx[(slice(None), slice(None)) + tuple(slice(pads[i], pads[i] + shape[2 + i]) for i in range(n))]


def conv(x, w, b=None, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1, **_):
    view = windows(x, w.shape[2:], strides, pads, dilations, 0)
    parts = [np.einsum("ncxyij,ocij->noxy", v, k) for v, k in zip(np.split(view, group, 1), np.split(w, group, 0))]
    y = np.concatenate(parts, 1)
    return y if b is None else y + b.reshape(1, -1, 1, 1)


def conv_input(dy, w, shape, strides, pads, dilations, group):
    parts = [scatter(np.einsum("noxy,ocij->ncxyij", d, k), [shape[0], k.shape[1]] + list(shape[2:]), w.shape[2:], strides,
                     pads, dilations) for d, k in zip(np.split(dy, group, 1), np.split(w, group, 0))]
    return np.concatenate(parts, 1)


def conv_transpose(dy, w, strides, pads, dilations, output_padding, group=1, **_):
    shape = [dy.shape[0], 0] + [(dy.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1
                                + output_padding[i] - pads[i] - pads[i + 2] for i in range(2)]
    return conv_input(dy, w, shape, strides, pads, dilations, group)


def conv_grad_weight(dy, x, shape, strides, pads, dilations, group, **_):
    view = windows(x, shape[2:], strides, pads, dilations, 0)
    parts = [np.einsum("noxy,ncxyij->ocij", d, v) for d, v in zip(np.split(dy, group, 1), np.split(view, group, 1))]
    return np.concatenate(parts, 0), dy.sum((0, 2, 3))


def max_pool(x, kernel_shape, strides, pads=(0, 0, 0, 0), dilations=(1, 1), **_):
    view = windows(x, kernel_shape, strides, pads, dilations, -np.inf)
    positions = np.arange(x.size).reshape(x.shape)
    places = windows(positions, kernel_shape, strides, pads, dilations, -1)
    flat = view.reshape(view.shape[:4] + (-1,))
    best = flat.argmax(-1)[..., None]
    return np.take_along_axis(flat, best, -1)[..., 0], np.take_along_axis(places.reshape(flat.shape), best, -1)[..., 0]


def max_pool_grad(dy, indices, shape, **_):
    dx = np.zeros(int(np.prod(shape)))
    np.add.at(dx, indices.reshape(-1), dy.reshape(-1))
    return dx.reshape(shape)


def avg_pool(x, kernel_shape, strides, pads=(0, 0, 0, 0), **_):
    assert not any(pads)
    return windows(x, kernel_shape, strides, pads, (1, 1), 0).mean((-2, -1))


def avg_pool_grad(dy, shape, kernel, strides, pads, **_):
    assert not any(pads)
    each = np.broadcast_to(dy[..., None, None] / np.prod(kernel), dy.shape + tuple(kernel))
    return scatter(each, shape, kernel, strides, pads, (1, 1))


# ---- operators of ai.ampc ------------------------------------------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[np.float64])


def swap(x, swapped):
    return np.swapaxes(x, -1, -2) if swapped else x


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def by_channel(v, x):
    return v.reshape([1, -1] + [1] * (x.ndim - 2))


def batch_norm(x, scale, bias, mean, var, eps, momentum, training):
    axes = tuple(i for i in range(x.ndim) if i != 1)
    m, v = (x.mean(axes), x.var(axes)) if training else (mean, var)
    r = 1 / np.sqrt(v + eps)
    y = (x - by_channel(m, x)) * by_channel(r * scale, x) + by_channel(bias, x)
    new = [momentum * old + (1 - momentum) * now for old, now in ((mean, m), (var, v))] if training else [mean, var]
    return y, new[0], new[1], m, r


def batch_norm_grad(dy, x, scale, mean, rstd, training):
    assert training
    axes = tuple(i for i in range(x.ndim) if i != 1)
    h = (x - by_channel(mean, x)) * by_channel(rstd, x)
    dscale, dbias = (dy * h).sum(axes), dy.sum(axes)
    n = x.size / x.shape[1]
    return by_channel(scale * rstd, x) * (dy - by_channel(dbias, x) / n - h * by_channel(dscale, x) / n), dscale, dbias


def layer_norm(x, scale=None, bias=None, axis=-1, eps=1e-5, center=1, **_):
    axes = tuple(range(axis % x.ndim, x.ndim))
    m = x.mean(axes, keepdims=True) * center
    r = 1 / np.sqrt(((x - m) ** 2).mean(axes, keepdims=True) + eps)
    y = (x - m) * r
    y = y if scale is None else y * scale
    return y if bias is None else y + bias, m, r


def layer_norm_grad(dy, x, scale, mean, rstd, axis, center):
    axis %= x.ndim
    axes, others = tuple(range(axis, x.ndim)), tuple(range(axis))
    h = (x - mean) * rstd
    d = dy if scale is None else dy * scale
    dx = rstd * (d - center * d.mean(axes, keepdims=True) - h * (d * h).mean(axes, keepdims=True))
    return dx, (dy * h).sum(others), dy.sum(others)


def loss_terms(x, label, weight, ignore_index):
    kept = label != ignore_index
    index = np.expand_dims(np.where(kept, label, 0), 1)
    w = kept * (1.0 if weight is None else weight[index[:, 0]])
    return index, w


def cross_entropy(x, label, weight=None, ignore_index=0, reduction="mean", classes=0):
    assert classes == 0, "only modules for a GPU have padding after the classes"
    m = x.max(1)
    lse = m + np.log(np.exp(x - np.expand_dims(m, 1)).sum(1))
    index, w = loss_terms(x, label, weight, ignore_index)
    terms = (lse - np.take_along_axis(x, index, 1)[:, 0]) * w
    loss = {"mean": terms.sum() / w.sum(), "sum": terms.sum(), "none": terms}[reduction]
    return loss, lse, x - np.expand_dims(lse, 1)


def cross_entropy_grad(dloss, x, lse, label, weight=None, ignore_index=0, reduction="mean", classes=0):
    assert classes == 0, "only modules for a GPU have padding after the classes"
    index, w = loss_terms(x, label, weight, ignore_index)
    hot = np.zeros_like(x)
    np.put_along_axis(hot, index, 1, 1)
    share = {"mean": w / w.sum(), "sum": w, "none": w}[reduction]
    return (np.exp(x - np.expand_dims(lse, 1)) - hot) * np.expand_dims(share * dloss, 1)


def gelu_tanh_slope(v):
    t = np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))
    return (1 + t) / 2 + v / 2 * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * v * v)


SLOPES = {
    "relu": lambda y: y > 0,
    "tanh": lambda y: 1 - y * y,
    "sigmoid": lambda y: y * (1 - y),
    "gelu": lambda v: (1 + erf(v / math.sqrt(2))) / 2 + v * np.exp(-v * v / 2) / math.sqrt(2 * math.pi),
    "gelu_tanh": gelu_tanh_slope,
}


def gelu(x, tanh):
    return x / 2 * (1 + (np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)) if tanh else erf(x / math.sqrt(2))))


def slice_grad(dy, shape, start, step):
    dx = np.zeros(shape)
    dx[tuple(slice(a, a + n * s, s) for a, n, s in zip(start, dy.shape, step))] = dy
    return dx


def gather_grad(dy, indices, axis, shape, **_):
    dx = np.zeros(shape)
    np.add.at(dx, (slice(None),) * (axis % len(shape)) + (indices,), dy)
    return dx


def unscale(*operands):
    *grads, scale = operands
    out = [g / scale for g in grads]
    return out + [not all(np.isfinite(x).all() for x in grads + out)]


def loss_scaling(found_inf, scale, good, bad, incr_every, decr_every, incr_ratio, decr_ratio, min, max, late, hysteresis):
    assert not hysteresis and not late
    if found_inf:
        bad, good = bad + 1, 0
        if bad >= decr_every:
            scale, bad = np.maximum(scale * decr_ratio, min), 0
    else:
        good, bad = good + 1, 0
        if good >= incr_every:
            scale, good = np.minimum(scale * incr_ratio, max), 0
    return scale, good, bad


def skipping(update, states):
    """An optimizer, whose last operand, `skip`, keeps its states."""
    def run(*operands, **attributes):
        *operands, skip = operands
        return operands[:states] if skip else update(*operands, **attributes)
    return run


def sgd(p, g, lr, weight_decay):
    return [p - lr * (g + weight_decay * p)]


def momentum(p, v, g, lr, mu, nesterov, weight_decay):
    d = g + weight_decay * p
    v = mu * v + d
    return p - lr * (d + mu * v if nesterov else v), v


def adamw(p, m, v, g, step, lr, beta1, beta2, eps, weight_decay, decoupled):
    t, d = step + 1, g if decoupled else g + weight_decay * p
    kept = p * (1 - lr * weight_decay) if decoupled else p
    m, v = beta1 * m + (1 - beta1) * d, beta2 * v + (1 - beta2) * d * d
    return kept - lr / (1 - beta1 ** t) * m / (np.sqrt(v) / math.sqrt(1 - beta2 ** t) + eps), m, v


def rmsprop(p, a, g, lr, alpha, eps, weight_decay):
    d = g + weight_decay * p
    a = alpha * a + (1 - alpha) * d * d
    return p - lr * d / (np.sqrt(a) + eps), a


def lion(p, m, g, lr, beta1, beta2, weight_decay):
    u = beta1 * m + (1 - beta1) * g
    return p * (1 - lr * weight_decay) - lr * np.sign(u), beta2 * m + (1 - beta2) * g


def matmul(a, b, bias=None, trans_a=0, trans_b=0, **_):
    y = swap(a, trans_a) @ swap(b, trans_b)
    return y if bias is None else y + bias


def reduction(f):
    return lambda x, axes, keepdims=1, **_: f(x, tuple(axes), keepdims=bool(keepdims))


FUNCTIONS = {
    "matmul": matmul, "conv": conv, "conv_grad_weight": conv_grad_weight, "max_pool_grad": max_pool_grad,
    "conv_grad_input": lambda dy, w, shape, strides, pads, dilations, group, **_: conv_input(
        dy, w, shape, strides, pads, dilations, group),
    "avg_pool_grad": avg_pool_grad, "reduce_sum": reduction(np.sum), "reduce_mean": reduction(np.mean),
    "batch_norm": batch_norm, "batch_norm_grad": batch_norm_grad, "layer_norm": layer_norm,
    "layer_norm_grad": layer_norm_grad, "softmax_cross_entropy": cross_entropy,
    "softmax_cross_entropy_grad": cross_entropy_grad, "slope": lambda dy, v, of, **_: dy * SLOPES[of](v), "gelu": gelu,
    "softmax_grad": lambda dy, y, axis: y * (dy - (dy * y).sum(axis, keepdims=True)), "slice_grad": slice_grad,
    "gather_grad": gather_grad, "check_finite_and_unscale": unscale, "update_loss_scaling": loss_scaling,
    "global_norm": lambda *x: math.sqrt(sum((v * v).sum() for v in x)),
    "div_count": lambda x, count, less: x / np.prod([max(np.prod(count) - less, 1) if less else np.prod(count)]),
    "sgd": skipping(sgd, 1), "momentum": skipping(momentum, 2), "adamw": skipping(adamw, 3), "rmsprop": skipping(rmsprop, 2),
    "lion": skipping(lion, 2),
}


# ---- ONNX's operators ----------------------------------------------------------------------------------------------------------

def reshape(x, shape, allowzero=0):
    return x.reshape([x.shape[i] if d == 0 and not allowzero else d for i, d in enumerate(shape)])


def onnx_slice(x, starts, ends, axes, steps):
    at = [slice(None)] * x.ndim
    for a, start, end, step in zip(axes, starts, ends, steps):
        at[a] = slice(start, end if step > 0 or end > -2 ** 62 else None, step)
    return x[tuple(at)]


def by_axes(f):
    def run(x, axes=None, keepdims=1, **attributes):
        axes = attributes.get("axes", axes)
        return f(x, None if axes is None else tuple(axes), keepdims=bool(keepdims))
    return run


def either(*operators):
    return {name: getattr(np, f) for name, f in (o.split(":") for o in operators)}


ONNX = {
    "Cast": lambda x, to: x, "Identity": lambda x: x, "Where": np.where, "Relu": lambda x: np.maximum(x, 0),
    "Gemm": lambda a, b, c=0, transA=0, transB=0, **_: swap(a, transA) @ swap(b, transB) + c, "MatMul": np.matmul,
    "Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": max_pool, "AveragePool": avg_pool,
    "Reshape": reshape, "Flatten": lambda x, axis=1: x.reshape(int(np.prod(x.shape[:axis])), -1),
    "Transpose": lambda x, perm: np.transpose(x, perm), "Concat": lambda *x, axis: np.concatenate(x, axis),
    "Split": lambda x, sizes, axis=0: np.split(x, np.cumsum(sizes)[:-1], axis), "Slice": onnx_slice,
    "Gather": lambda x, i, axis=0: np.take(x, i, axis), "Expand": lambda x, s: x * np.ones(s, x.dtype),
    "Shape": lambda x, start=0, end=None: np.array(x.shape[start:end], np.int64),
    "Squeeze": lambda x, axes: np.squeeze(x, tuple(axes)), "Softmax": softmax,
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(int(a) for a in axes)),
    "Pad": lambda x, pads, value=0, **_: np.pad(x, list(zip(pads[:x.ndim], pads[x.ndim:])), constant_values=value),
    "LayerNormalization": lambda x, s, b=None, axis=-1, epsilon=1e-5, **_: layer_norm(x, s, b, axis, epsilon),
    "Mod": lambda a, b, **_: np.mod(a, b), "IsInf": lambda x, **_: np.isinf(x), "Clip": np.clip,
    "ReduceMean": by_axes(np.mean), "ReduceSum": by_axes(np.sum),
    **either("Add:add", "Sub:subtract", "Mul:multiply", "Div:divide", "Or:logical_or", "IsNaN:isnan", "Min:minimum",
             "Max:maximum", "Tanh:tanh", "Sqrt:sqrt", "Pow:power", "Equal:equal", "Neg:negative", "And:logical_and"),
    "Erf": erf, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Less": np.less, "Not": np.logical_not,
}


def by_reference(node, operands, types, opset):
    """The results of an operator of ONNX, from onnx's evaluator in f32."""
    def info(name, value):
        element = types[name][0]
        element = onnx.TensorProto.FLOAT if element in (10, BF16, 11) else element
        return onnx.helper.make_tensor_value_info(name, element, value)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for a in copy.attribute:
        if node.op_type == "Cast" and a.i in (10, BF16, 11):
            a.i = onnx.TensorProto.FLOAT
    inputs = {n: v for n, v in zip(node.input, operands) if n}
    graph = onnx.helper.make_graph([copy], "g", [info(n, v.shape) for n, v in inputs.items()],
                                   [info(o, None) for o in node.output if o])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, {
        n: v.astype(np.float32) if v.dtype == np.float64 else v for n, v in inputs.items()})


def step(model, types, values):
    """Computes all values of the graph; returns the outputs by name."""
    opset = opset_of(model)
    sizes = {}
    for i in model.graph.input:
        for d, n in zip(shape_of(i), np.shape(values[i.name])):
            if isinstance(d, str):
                sizes[d] = n
    for node in model.graph.node:
        operands = [values[i] if i else None for i in node.input]
        attributes = attributes_of(node)
        for name, value in attributes.items():
            if isinstance(value, list) and value and isinstance(value[0], bytes):
                attributes[name] = [eval(v.decode(), {"floor": math.floor, "max": max}, sizes) for v in value]
        if node.domain == OWN:
            results = FUNCTIONS[node.op_type](*operands, **attributes)
        elif ReferenceEvaluator:
            results = by_reference(node, operands, types, opset)
        else:
            results = ONNX[node.op_type](*operands, **attributes)
        results = results if isinstance(results, (tuple, list)) else [results]
        written = [o for o in node.output if o]
        for name, value in zip(written if ReferenceEvaluator and node.domain != OWN else node.output, results):
            if not name:
                continue
            values[name] = rounded(value, types[name][0])
            shape = [eval(d, {"floor": math.floor, "max": max}, sizes) if isinstance(d, str) else d for d in types[name][1]]
            assert list(np.shape(values[name])) == shape, (node.name, name, np.shape(values[name]), shape)
    return {o.name: values[o.name] for o in model.graph.output}


# ---- a case --------------------------------------------------------------------------------------------------------------------

def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        base = f.tell()
        kinds = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "F16": np.float16}
        for name, t in header.items():
            if name == "__metadata__" or t["dtype"] not in kinds:
                continue
            f.seek(base + t["data_offsets"][0])
            data = f.read(t["data_offsets"][1] - t["data_offsets"][0])
            yield name, np.frombuffer(data, kinds[t["dtype"]]).reshape(t["shape"])


def stored_name(key):
    """Of a tensor of a checkpoint, in the model."""
    group, name = key.split("/", 1)
    return {"param": name, "buf": name, "state": name, "opt": "opt." + name.replace("/", ".")}.get(group)


def norm(x):
    return float(np.sqrt((np.asarray(x, np.float64) ** 2).sum()))


def run_case(build, work, network, options, tolerance, steps=2):
    path = os.path.join(GOLDENS, network, "model.onnx")
    emitted = os.path.join(work, "step.onnx")
    subprocess.run([build + "/ampc", path, "-q", "--emit=onnx-train", "-o", emitted] + options, check=True)
    golden = np.load(os.path.join(GOLDENS, network, "golden.npz"))
    data = {k[6:]: golden[k] for k in golden if k.startswith("input/")}
    if "label" in golden:
        data["label"] = golden["label"]
    np.savez(work + "/data.npz", **data)
    batch = len(next(iter(data.values())))
    subprocess.run(["rm", "-rf", work + "/ck", work + "/losses.jsonl"], check=True)
    subprocess.run([build + "/ampc-run", "train", path, "-q", "--data=npz:%s/data.npz,order=file" % work, "--batch=%d" % batch,
                    "--steps=%d" % steps, "--checkpoint-dir=%s/ck" % work, "--log=%s/losses.jsonl" % work, "--force"] + options,
                   check=True)
    with open(work + "/losses.jsonl") as f:
        losses = [row["loss"] for row in map(json.loads, f) if "loss" in row]
    model = onnx.load(emitted)
    types = walk(model)
    first = {t.name: rounded(numpy_helper.to_array(t), t.data_type) for t in model.graph.initializer}
    values = dict(first)
    for i in range(steps):
        values.update({k: rounded(v, types[k][0]) for k, v in data.items()})
        out = step(model, types, values)
        assert abs(out["loss"] - losses[i]) <= tolerance * abs(losses[i]), ("loss", i, out["loss"], losses[i])
        for name in list(out):
            if name.endswith(".new"):
                values[name[:-4]] = out[name]
    with open(os.path.join(GOLDENS, network, "meta.json")) as f:
        noise = json.load(f)["zero_grad"]  # whose gradients are 0 but for rounding
    worst, compared = 0, 0
    for key, wanted in read_safetensors("%s/ck/ckpt-%010d.safetensors" % (work, steps)):
        name = stored_name(key)
        if not name or name + ".new" not in values:
            continue
        compared += 1
        if wanted.dtype.kind == "i" or not wanted.ndim:
            assert np.array_equal(values[name], wanted), (key, values[name], wanted)
            continue
        if any(name == z or name.endswith("." + z) for z in noise):
            continue
        change = norm(wanted - first[name])
        worst = max(worst, norm(values[name] - wanted) / max(change, 1e-6 * norm(wanted), 1e-30))
    stored = [o.name for o in model.graph.output if o.name.endswith(".new")]
    assert compared >= len(stored) - 1, (compared, len(stored))  # no checkpoint has the random state of such networks
    assert worst <= tolerance, worst
    return "%d tensors, whose changes differ by %.1e" % (compared, worst)


# The eps of adaptive optimizers hides gradients that are 0 but for rounding, such as those of the bias of attention keys.
CASES = [
    ("mlp_amp_recipe", "--loss=mse:y --amp=O0 --optimizer=momentum,lr=0.1", 1e-4),
    ("mlp_amp_recipe", "--loss=mse:y --dtype=fp16 --optimizer=adamw,lr=0.01 --clip-norm=0.1", 1e-2),
    ("mlp_amp_recipe", "--loss=mse:y --dtype=bf16 --optimizer=sgd,lr=1", 1e-3),
    ("mlp_amp_recipe", "--loss=mse:y --dtype=fp16 --optimizer=lion,lr=0.001 --init-loss-scaling=1e30", 1e-2),
    ("lenet_bn", "--loss=ce:logits --amp=O0 --optimizer=rmsprop,lr=0.001,eps=1e-3", 1e-3),
    ("lenet_bn", "--loss=ce:logits --dtype=fp16 --optimizer=momentum,lr=0.1 --clip-norm=1", 1e-2),
    ("gpt2", "--loss-output=loss --amp=O0 --optimizer=adamw,lr=0.01,eps=1e-3", 1e-3),
    ("gpt2", "--loss-output=loss --dtype=fp16 --optimizer=sgd,lr=0.1 --clip-norm=1", 1e-2),
    ("vit", "--loss=ce:logits --dtype=fp16 --optimizer=momentum,lr=0.1", 2e-2),
]

LOSSES = {"cross_entropy": "ce", "nll": "nll", "mse": "mse", "bce_with_logits": "bce_logits"}


def walk_case(build, work, path, loss):
    """The walk alone, of a step with all parts."""
    subprocess.run([build + "/ampc", path, "-q", "--emit=onnx-train", loss, "-o", work + "/step.onnx", "--optimizer=adamw",
                    "--clip-norm=1", "--ema=0.9"], check=True)
    walk(onnx.load(work + "/step.onnx"))


def walk_cases(work):
    for network in sorted(os.listdir(GOLDENS)):
        folder = os.path.join(GOLDENS, network)
        if os.path.isdir(folder):
            with open(os.path.join(folder, "meta.json")) as f:
                meta = json.load(f)
            loss = "--loss-output=%s" if meta["loss"] == "in_graph" else "--loss=" + LOSSES[meta["loss"]] + ":%s"
            yield network, walk_case, (os.path.join(folder, "model.onnx"), loss % meta["loss_output"])
    for name in ("branches", "nested", "scan"):  # of make_models.py: subgraphs
        path = os.path.join(work, "models", name + ".onnx")
        if os.path.exists(path):
            yield name, walk_case, (path, "--loss=mse:" + onnx.load(path).graph.output[0].name)


def main():
    build, work = map(os.path.abspath, sys.argv[1:3])
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    tests = [("%s %s" % case[:2], run_case, case[:1] + (case[1].split(),) + case[2:]) for case in CASES]
    tests += walk_cases(work)
    failed = 0
    for name, test, arguments in tests:
        if only not in name:
            continue
        try:
            with np.errstate(all="ignore"):
                found = test(build, work, *arguments)
            print("PASS emit.step %s%s" % (name, ": " + found if found else ""))
        except Exception as problem:
            failed += 1
            print("FAIL emit.step %s: %s" % (name, repr(problem)[:300]))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
