"""Checks the models that make_zoo.py made: import, outputs, gradients, conversion.

usage: python tests/models/check_zoo.py BUILD [--folder FOLDER] [--no-gradients] [--write docs/models.md] [NAME..]

For each NAME.EXPORTER.onnx in FOLDER (default: /tmp/zoo)
  - the outputs of `ampc-run infer` equal those of onnxruntime within 1e-4 of the largest value;
  - the gradients of the mean squared error of the first output, from `ampc-run grad`, equal those of PyTorch in double
    precision within 1e-3 of the largest element of each parameter. Parameters are found by name or by value, since
    exporters rename them; those that an exporter folded into others are not compared;
  - `ampc` converts it to fp16 and bf16; onnx.checker accepts both with full_check, onnxruntime loads both, and for fp16 its
    outputs are those of the original within 5e-2 of the largest value.
Prints a line per model and the reasons why models fail. --write replaces the table of a document.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
SAME, GRADIENT, HALF, MATCHED = 1e-4, 1e-3, 5e-2, 0.9


class Stop(Exception):
    """Why a step of the check ended."""


def command(*words):
    # Through a shell, because the peak memory of a process is at least that of the one that starts it.
    done = subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", *words], capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines() or ["crash"]
        raise Stop("; ".join(re.sub(r".*?error: ", "", line) for line in errors[:6]))
    return done.stderr


def distance(a, b):
    """The largest difference, relative to the largest value of b."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) if a.size else 0.0


def matched(a, b):
    """The share of the rows of b that a has as well."""
    far = np.abs(a[None].astype(np.float64) - b[:, None]).max(-1).min(1) if len(a) else np.full(len(b), np.inf)
    return float((far <= HALF * np.abs(b).max()).mean()) if len(b) else 1.0


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class Case:
    """A model file with its inputs."""

    def __init__(self, build, path, work):
        self.build, self.path, self.work = build, path, work
        self.name, self.exporter = os.path.basename(path)[:-5].rsplit(".", 1)
        self.proto = onnx.load(path)
        arrays = np.load(os.path.join(os.path.dirname(path), self.name + ".npz"))
        weights = {t.name for t in self.proto.graph.initializer}
        names = [i.name for i in self.proto.graph.input if i.name not in weights]
        # The numbers of the inputs that the exporter kept: all of them, in order.
        self.inputs = {n: arrays[f"in/{i}"] for i, n in enumerate(names)}
        self.outputs = [o.name for o in self.proto.graph.output]
        self.reference = dict(zip(self.outputs, session(path).run(None, self.inputs)))
        self.torch = [arrays[k] for k in sorted(k for k in arrays if k.startswith("out/"))]

    def infer(self, path, *options):
        np.savez(self.work + "/in.npz", **self.inputs)
        command(f"{self.build}/ampc-run", "infer", path, "-q", "--amp=O0", "--inputs", self.work + "/in.npz",
                "-o", self.work + "/out.npz", *options)
        return np.load(self.work + "/out.npz")

    def check_outputs(self):
        got = self.infer(self.path)
        worst = max(distance(got["output/" + n], self.reference[n]) for n in self.outputs)
        if not worst <= SAME:
            raise Stop(f"differs from onnxruntime: {worst:.1e}")
        return worst

    def check_conversion(self, low):
        out = f"{self.work}/low.onnx"
        command(f"{self.build}/ampc", self.path, "-q", f"--dtype={low}", "-o", out)
        try:
            onnx.checker.check_model(onnx.load(out), full_check=True)
        except Exception as error:  # the checker raises exceptions of its own types
            raise Stop(f"{low}: checker: {str(error).splitlines()[0][:160]}") from error
        try:
            runner = session(out)
            results = runner.run(None, self.inputs) if low == "fp16" else []
        except Exception as error:
            if low == "bf16" and "NOT_IMPLEMENTED" in str(error):
                return  # onnxruntime has no kernel of an operator for bfloat16 on the processor
            raise Stop(f"{low}: onnxruntime: {str(error).splitlines()[0][:200]}") from error
        if self.selects() and low == "fp16":
            share = matched(results[0], self.reference[self.outputs[0]])
            if share < MATCHED:
                raise Stop(f"{low}: only {share:.0%} of the rows are found")
            return
        for name, result in zip(self.outputs, results):
            if not distance(result, self.reference[name]) <= HALF:
                raise Stop(f"{low}: differs by {distance(result, self.reference[name]):.1e}")

    def selects(self):
        """Whether the rows of its outputs depend on the order of scores, which rounding changes."""
        return any(n.op_type == "NonMaxSuppression" for n in self.proto.graph.node)

    def check_gradients(self):
        """Returns the worst difference and how many parameters were compared."""
        first = next(n for n in self.outputs if self.reference[n].dtype == np.float32)
        label = self.reference[first] + np.random.default_rng(0).standard_normal(self.reference[first].shape)
        label = label.astype(np.float32)
        np.savez(self.work + "/in.npz", label=label, **self.inputs)
        command(f"{self.build}/ampc-run", "grad", self.path, "-q", "--amp=O0", "--mode=eval", f"--loss=mse:{first}",
                "--inputs", self.work + "/in.npz", "-o", self.work + "/grads.npz")
        grads = np.load(self.work + "/grads.npz")
        wanted = torch_gradients(self.name, label, self.outputs.index(first))
        sums = {}  # an exporter may have made several tensors of a parameter
        for tensor in self.proto.graph.initializer:
            key = next((k for k in (f"grad/{tensor.name}", tensor.name) if k in grads), None)
            match = same_parameter(tensor.name, numpy_helper.to_array(tensor), wanted) if key else None
            if match:
                parameter, is_turned = match
                sums[parameter] = sums.get(parameter, 0) + (grads[key].T if is_turned else grads[key])
        worst = 0.0
        floor = 1e-5 * max(np.abs(g).max() for _, g in wanted.values() if g is not None)
        for parameter, total in sums.items():
            grad = wanted[parameter][1]
            error = np.abs(total - grad).max() / max(np.abs(grad).max(), floor)
            if not error <= GRADIENT:
                raise Stop(f"gradient of {parameter}: differs by {error:.1e}")
            worst = max(worst, error)
        if not sums:
            raise Stop("no gradient was compared")
        return worst, len(sums), len(wanted)

    def measure(self):
        """Milliseconds of the import, nodes before and after, MiB."""
        text = min((command(f"{self.build}/ampc", self.path, "-q", "--timing", "-o", self.work + "/m.ir")
                    for _ in range(3)), key=lambda t: float(re.search(r"^import +([\d.]+)", t, re.M).group(1)))
        with open(self.work + "/m.ir") as f:
            after = sum(" = " in line for line in f.read().split("graph @infer")[1].splitlines())
        return (float(re.search(r"^import +([\d.]+)", text, re.M).group(1)), len(self.proto.graph.node), after,
                float(re.search(r"memory ([\d.]+) MiB", text).group(1)))


def torch_gradients(name, label, index):
    """Parameter -> (value, gradient), in double precision."""
    import torch

    import make_zoo
    module, inputs = make_zoo.build(name)
    values = {n: p.detach().numpy().copy() for n, p in module.named_parameters()}
    module.double()
    torch.set_default_dtype(torch.float64)
    try:
        outputs = module(*[x.double() if x.is_floating_point() else x for x in inputs])
    finally:
        torch.set_default_dtype(torch.float32)
    output = outputs[index] if isinstance(outputs, tuple) else outputs
    torch.nn.functional.mse_loss(output, torch.from_numpy(label).double()).backward()
    grads = {n: p.grad.numpy() if p.grad is not None else None for n, p in module.named_parameters()}
    return {n: (values[n], grads[n]) for n in values}


def same_parameter(name, value, wanted):
    """(parameter, whether it is transposed) of that name or value; None: there is no such one, or several."""
    found = []
    for key, (own, grad) in wanted.items():
        if grad is None or value.size != own.size or value.size < 2 or value.dtype != own.dtype:
            continue
        turned = [t for t in (False, True) if np.array_equal(value, own.T if t else own)]
        if turned and key == name:
            return key, turned[0]
        if turned:
            found.append((key, turned[0]))
    return found[0] if len(found) == 1 else None


def gradients_cell(case):
    if not any(case.reference[n].dtype == np.float32 for n in case.outputs):
        return "no float output"
    try:
        error, compared, total = case.check_gradients()
    except Stop as stop:
        if "the size of its result depends on data" not in str(stop):
            raise
        return "refused"
    return f"{error:.0e} ({compared}/{total})"


def check(case, gradients):
    """Returns the cells of the table; raises Stop."""
    worst = case.check_outputs()
    cells = [f"{worst:.0e}"]
    if gradients:
        cells.append(gradients_cell(case))
    else:
        cells.append("")
    for low in ("fp16", "bf16"):
        case.check_conversion(low)
    ms, before, after, memory = case.measure()
    return [*cells, "yes", "yes", f"{ms:.1f}", str(before), str(after), f"{memory:.1f}"]


HEAD = ["model", "exporter", "difference", "gradients", "fp16", "bf16", "import, ms", "nodes", "ops", "memory, MiB"]


def replace_table(path, rows):
    """Replaces the lines of the document's first table."""
    with open(path) as f:
        lines = f.read().split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("| model"))
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    with open(path, "w") as f:
        f.write("\n".join(lines[:first] + rows + lines[last:]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--folder", default="/tmp/zoo")
    parser.add_argument("--no-gradients", action="store_true")
    parser.add_argument("--write")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    failures = 0
    with tempfile.TemporaryDirectory() as work:
        for path in sorted(glob.glob(options.folder + "/*.onnx")):
            name, exporter = os.path.basename(path)[:-5].rsplit(".", 1)
            if options.names and name not in options.names:
                continue
            try:
                cells = check(Case(options.build, path, work), not options.no_gradients)
                rows.append("| " + " | ".join([name, exporter, *cells]) + " |")
                print(f"PASS {name}.{exporter}: {' '.join(cells)}", flush=True)
            except Stop as stop:
                failures += 1
                print(f"FAIL {name}.{exporter}: {stop}", flush=True)
    if options.write:
        replace_table(options.write, rows)
    print(f"{len(rows) - 2} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
