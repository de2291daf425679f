"""Runs one program for onnxruntime twice on each model: as it is, and with its import changed to `import ampc as
onnxruntime`. Compares outputs, also subsets and other batch sizes, and the names, types and shapes of inputs and outputs.

usage: PYTHONPATH=tools/python AMPC_LIBRARY=BUILD/libampc.so python tests/python/against_onnxruntime.py [FILE.onnx ..]

Run by hand; needs onnxruntime. Default: the models of tests/models/zoo and tests/goldens, without those exported in training
mode, which onnxruntime normalizes by the statistics of the batch. Next to FILE.onnx is FILE.npz, or
NAME.npz for NAME.EXPORTER.onnx as tests/models/make_zoo.py writes them (arrays in/K), or golden.npz (arrays input/NAME).
"""
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5  # relative to the largest absolute value of an output

PROGRAM = """
import {} as onnxruntime

def program(path, arrays):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])
    inputs = [(i.name, i.type, i.shape) for i in session.get_inputs()]
    outputs = [(o.name, o.type, o.shape) for o in session.get_outputs()]
    names = [o[0] for o in outputs]
    meta = session.get_modelmeta()
    told = (meta.producer_name, meta.graph_name, meta.version, meta.domain, meta.custom_metadata_map)
    results = []
    for feed in arrays([i[0] for i in inputs], [i[2] for i in inputs]):
        results += session.run(None, feed)
        results += session.run(names[-1:], feed)
        results += session.run(names[::-1], feed)
        results += session.run([names[0], names[0]], feed)
    return inputs, outputs, told, results
"""


def load(module):
    space = {}
    exec(PROGRAM.format(module), space)
    return space["program"]


def feeds(path):
    """A function of the names and shapes of inputs: feeds with the stored arrays, and, if all first dimensions have one
    name, with their first sample and with each sample twice."""
    beside = [path.with_suffix(".npz"), path.parent / (path.name.split(".")[0] + ".npz"), path.parent / "golden.npz"]
    with np.load(next(b for b in beside if b.exists())) as stored:
        data = dict(stored)

    def made(names, shapes):
        feed = {n: data[f"input/{n}"] if f"input/{n}" in data else data[f"in/{k}"] for k, n in enumerate(names)}
        yield feed
        first = {shape[0] if shape else None for shape in shapes}
        if len(first) == 1 and not isinstance(first.pop(), int):
            yield {n: a[:1] for n, a in feed.items()}
            yield {n: np.repeat(a, 2, axis=0) for n, a in feed.items()}

    return made


def difference(expected, found):
    """The largest one, relative to the largest expected value; infinite if types or shapes differ."""
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return np.inf
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(expected, found) else np.inf
    if not expected.size:
        return 0.0
    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], found[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    expected, found = expected[finite].astype("f8"), found[finite].astype("f8")
    return float(np.abs(expected - found).max() / max(np.abs(expected).max(), 1e-30))


def same(expected, found):
    """Whether name, type and shape agree. A fixed size instead of a name is one that onnxruntime does not infer."""
    shapes = zip(expected[2], found[2])
    return expected[:2] == found[:2] and len(expected[2]) == len(found[2]) and all(
        e == f or isinstance(e, str) and isinstance(f, int) for e, f in shapes)


def compare(path, runs):
    """Returns (what differs, difference of outputs, number of outputs)."""
    results = []
    for run in runs:
        try:
            results.append(run(str(path), feeds(path)))
        except Exception as error:  # whatever a library raises is a row of the table
            return f"{type(error).__module__}.{type(error).__name__}: {str(error).splitlines()[0][:150]}", np.inf, 0
    expected, found = results
    differs = ["metadata"] if expected[2] != found[2] else []
    for what, many, others in zip(("inputs", "outputs"), expected, found):
        differs += [what] if len(many) != len(others) else []
        differs += [f"{e} {f}" for e, f in zip(many, others) if not same(e, f)]
    if len(expected[3]) != len(found[3]):
        return "number of results", np.inf, 0
    return "; ".join(differs), max(map(difference, expected[3], found[3])), len(expected[3])


def in_training_mode(path):
    """Whether a BatchNormalization has more outputs than its result."""
    import onnx
    return any(n.op_type == "BatchNormalization" and len(n.output) > 1 for n in onnx.load(path).graph.node)


def main():
    paths = [Path(p) for p in sys.argv[1:]] or [*sorted((ROOT / "tests/models/zoo").glob("*.onnx")),
                                                *(p for p in sorted((ROOT / "tests/goldens").glob("*/model.onnx"))
                                                  if not in_training_mode(p))]
    runs = [load("onnxruntime"), load("ampc")]
    failed = 0
    print("| model | results | difference | other |\n|---|---|---|---|")
    for path in paths:
        other, worst, count = compare(path, runs)
        failed += bool(other) or not worst <= TOLERANCE
        name = path.parent.name if path.name == "model.onnx" else path.name.removesuffix(".onnx")
        print(f"| {name} | {count} | {worst:.0e} | {other} |", flush=True)
    print(f"\n{len(paths) - failed} of {len(paths)} models agree within {TOLERANCE:g}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
