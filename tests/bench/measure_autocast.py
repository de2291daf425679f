#!/usr/bin/python3
"""Conversion of ONNX files to fp16 for TensorRT compared with NVIDIA's ModelOpt AutoCast, for tools/bench.

The networks of export_autocast.py, written by both exporters of PyTorch; types of inputs and outputs are kept. AutoCast
gets one sample. Seconds and peak resident memory are those of a whole process, AutoCast's of one run, ours the median of
ROUNDS. Goals, for each model: no error of the full checker, casts added at most the larger of 0 and AutoCast's, error at
most 1.5 times AutoCast's, time at most 1/30, memory at most 1/20; over all, the geometric mean of the errors' ratio at
most 1. judge_conversion.py defines casts and error.

usage: measure_autocast.py BUILD MODELS THREADS ROUNDS [PYTHON]      without a PYTHON that has modelopt: skipped

PYTHON has nvidia-modelopt[onnx], onnx and onnxruntime. The networks are exported to MODELS/autocast, unless they are
there, for which it needs torch, torchvision, timm and transformers as well. AutoCast's results are kept there in
theirs.json; delete it to measure them again.
"""
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

here = Path(__file__).resolve().parent
build, models, rounds = Path(sys.argv[1]), Path(sys.argv[2]) / "autocast", int(sys.argv[4])
python = sys.argv[5] if len(sys.argv) > 5 else ""
OURS = ["-q", "--consumer=tensorrt"]
ERROR, TIME, MEMORY = 1.5, 30, 20


def measure(command):
    start = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {"seconds": time.monotonic() - start, "memory": usage.ru_maxrss / 1024, "status": process.returncode}


def answer_of(script, *arguments):
    return json.loads(subprocess.run([python, here / script, *arguments], stdout=subprocess.PIPE, check=True).stdout)


def version():
    probe = "import modelopt, onnx, onnxruntime, modelopt.onnx.autocast as a; " \
            "print(f'AutoCast {modelopt.__version__}, onnxruntime {onnxruntime.__version__}')"
    run = subprocess.run([python, "-c", probe], capture_output=True, text=True) if python else None
    return run.stdout.strip() if run and run.returncode == 0 else None


def convert_theirs(model, output):
    sample = output.with_suffix(".npz")
    first = "import sys, numpy as n; d = n.load(sys.argv[1]); n.savez(sys.argv[2], **{k: d[k][0] for k in d})"
    subprocess.run([python, "-c", first, model.with_suffix(".npz"), sample], check=True)
    return measure([python, "-m", "modelopt.onnx.autocast", "--onnx_path", model, "--output_path", output,
                    "--low_precision_type", "fp16", "--keep_io_types", "--calibration_data", sample])


def convert_ours(model, output):
    runs = [measure([build / "ampc", model, "-o", output, *OURS]) for _ in range(rounds)]
    return {key: median(r[key] for r in runs) for key in runs[0]}


def names_of_models():
    try:
        return answer_of("export_autocast.py", models)
    except subprocess.CalledProcessError:  # PYTHON cannot export: what another one has exported
        return sorted(p.stem for p in models.glob("*.onnx"))


def kept_theirs(kept, name, output):
    if name not in kept or not output.exists():
        kept[name] = convert_theirs(models / f"{name}.onnx", output)
        (models / "theirs.json").write_text(json.dumps(kept, indent=1))
    return kept[name]


def failures(ours, theirs):
    """The goals that a model misses."""
    if not ours["valid"] or ours["error"] is None:
        return ["valid"]
    if theirs["error"] is None:
        return []
    rows = {"casts": ours["casts_added"] <= max(0, theirs["casts_added"]), "error": ours["error"] <= ERROR * theirs["error"],
            "time": ours["seconds"] * TIME <= theirs["seconds"], "memory": ours["memory"] * MEMORY <= theirs["memory"]}
    return [name for name, holds in rows.items() if not holds]


def text(form, value):
    return "none" if value is None else form.format(value)


def row(name, ours, theirs):
    casts = " | ".join(text("{}", r["casts_added"]) for r in (ours, theirs))
    errors = " | ".join(text("{:.1e}", r["error"]) for r in (ours, theirs))
    valid = " | ".join("yes" if r["valid"] else "no" for r in (ours, theirs))
    both = ours["error"] is not None and theirs["error"] is not None
    ratio = ours["error"] / theirs["error"] if both else None
    return (f"| {name} | {valid} | {casts} | {errors} | {text('{:.2f}', ratio)} | {ours['seconds']:.3f} | {theirs['seconds']:.1f} "
            f"| {ours['memory']:.0f} | {theirs['memory']:.0f} | {', '.join(failures(ours, theirs))} |")


def compare(name, kept):
    model = models / f"{name}.onnx"
    outputs = [models / "converted" / f"{name}.{tool}.onnx" for tool in ("ampc", "autocast")]
    theirs = kept_theirs(kept, name, outputs[1])
    ours = convert_ours(model, outputs[0])
    judged = answer_of("judge_conversion.py", model, *outputs)
    return {**ours, **judged[0]}, {**theirs, **judged[1]}


def summary(results):
    pairs = [(o, t) for o, t in results.values() if o["error"] and t["error"]]
    mean = math.exp(sum(math.log(o["error"] / t["error"]) for o, t in pairs) / len(pairs))
    total = [[sum(r[i][key] for r in results.values()) for i in (0, 1)] for key in ("seconds", "memory", "casts_added")]
    missed = sum(bool(failures(*r)) for r in results.values())
    print(f"\n{len(results)} models, {missed} with a goal missed. Geometric mean of the errors' ratio: {mean:.2f}. Casts added: "
          f"{total[2][0]} and {total[2][1]}. Time: {total[0][0]:.2f} s and {total[0][1]:.0f} s (1/{total[0][1] / total[0][0]:.0f}). "
          f"Memory, sum of peaks: {total[1][0]:.0f} MiB and {total[1][1]:.0f} MiB (1/{total[1][1] / total[1][0]:.0f}).")


def main():
    found = version()
    print(found or "skipped: AutoCast (name a python that has nvidia-modelopt[onnx] with --python, or in AMPC_BENCH_PYTHON)")
    if not found:
        return
    names = names_of_models()
    (models / "converted").mkdir(exist_ok=True)
    stored = models / "theirs.json"
    kept = json.loads(stored.read_text()) if stored.exists() else {}
    print("\n| model | valid | AutoCast | casts added | AutoCast | error | AutoCast | ratio | s | AutoCast | MiB | AutoCast "
          "| goals missed |")
    print("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    results = {}
    for name in names:
        results[name] = compare(name, kept)
        print(row(name, *results[name]), flush=True)
    summary(results)


main()
