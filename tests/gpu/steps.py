"""The steps of a model: its plan joined with the trace of a run, and metrics of Nsight Compute for the slowest ones."""

import csv
import io
import json
import re
import shutil

from session import complaint

SHOWN = 10  # number of slowest steps to show


def roofline(plan, precision, ceilings):
    """Returns the milliseconds of the steps if each ran at the measured rate of a copy or of a matrix product.
    Steps whose results are kept do not run again."""
    if not ceilings:
        return None
    rate, bandwidth = ceilings["tflops"][precision] * 1e12, ceilings["copy_gbs"] * 1e9
    return 1e3 * sum(
        max(step["bytes"] / bandwidth, step["flops"] / rate) for step in plan["steps"] if not step.get("kept")
    )


def join(plan, trace):
    """[event of the trace with the bytes and flops of the steps that it covers], the slowest first."""
    by_number, joined = {step["step"]: step for step in plan["steps"]}, []
    for event in trace["traceEvents"]:
        facts = event.get("args", {})
        if event.get("ph") != "X" or "step" not in facts:
            continue
        covered = [by_number[n] for n in range(facts["step"], facts["step"] + facts.get("steps", 1)) if n in by_number]
        seconds, size = event["dur"] * 1e-6, sum(s["bytes"] for s in covered)
        flops = sum(s["flops"] for s in covered)
        joined.append(
            {
                "step": facts["step"],
                "steps": facts.get("steps", 1),
                "name": event["name"],
                "op": event.get("cat", ""),
                "ms": seconds * 1e3,
                "gbs": size / seconds / 1e9 if seconds else 0,
                "tflops": flops / seconds / 1e12 if seconds else 0,
            }
        )
    return sorted(joined, key=lambda step: -step["ms"])


def slowest(run, name, plan, path):
    """Returns the slowest steps, or None if there is no trace to join."""
    try:
        joined = join(plan, json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return run.note(name, "fail", says=f"the trace cannot be joined with the plan: {type(error).__name__}: {error}")
    if not joined:
        return run.note(name, "fail", says="no event of the trace names its step")
    run.note(name, "pass", events=len(joined), total_ms=round(sum(step["ms"] for step in joined), 3))
    return joined[:SHOWN]


# ---- Nsight Compute ----

METRICS = {
    "Duration": "duration",
    "Memory Throughput": "memory",
    "Compute (SM) Throughput": "compute",
    "DRAM Throughput": "dram",
    "Registers Per Thread": "registers",
}


def find_ncu():
    return shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")


def ranges(steps):
    """Returns filters for the NVTX ranges of steps, which are named after ONNX nodes."""
    names = dict.fromkeys(step["name"] for step in steps)
    escaped = [re.sub(r"([@,\[\]/*+\\])", r"\\\1", name) for name in names]
    return [word for name in escaped for word in ("--nvtx-include", f"{name}/")]


def read_kernels(text):
    """[{kernel, metric: "value unit"}] from the CSV of ncu."""
    start = re.search(r'^"ID",', text, re.M)
    kernels = {}
    for row in csv.DictReader(io.StringIO(text[start.start() :])) if start else []:
        if not (row.get("ID") or "").isdigit():
            continue
        kernel = kernels.setdefault(row["ID"], {"kernel": row.get("Kernel Name", "")})
        if row.get("Metric Name") in METRICS:
            kernel[METRICS[row["Metric Name"]]] = f"{row.get('Metric Value', '')} {row.get('Metric Unit', '')}".strip()
    return list(kernels.values())


def kernels(run, name, command, steps):
    tool = find_ncu()
    if not tool:
        return run.note(name, "skip", reason="there is no ncu")
    done = run.run(
        name, [tool, "--set", "basic", "--csv", "--nvtx", *ranges(steps), "--launch-count", "40", *command], 30
    )
    found = read_kernels(done.text)
    if not found:
        error = next((line for line in done.text.splitlines() if line.startswith(("==ERROR==", "==WARNING=="))), "")
        return run.note(name, "skip", done.seconds, reason=error or complaint(done))
    run.note(name, "pass", done.seconds, kernels=len(found))
    return found
