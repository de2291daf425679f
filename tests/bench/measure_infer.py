#!/usr/bin/python3
"""Time and memory of inference compared with onnxruntime in f32, for tools/bench.

In every round each program runs once, in turn, so that all see the same state of the machine; a run's figure is the
median of its iterations. Ratios are medians of the ratios within a round: above 1, ampc is faster. Memory is the peak
of the process above the peak of one that runs a network without weights in the same program.

usage: measure_infer.py BUILD MODELS THREADS ROUNDS PYTHON   (PYTHON with torch, timm, transformers and onnxruntime)
"""
from contest import ampc, exported, figure, geometric_mean, here, in_turn, models, python, ratio, require, run, threads

PRECISIONS = {"f32": ["--amp=O0"], "bf16": ["--amp=O2", "--dtype=bf16"]}


def contenders(path, steps):
    ours = {p: lambda p=p: ampc(path, *PRECISIONS[p], steps=steps) for p in PRECISIONS}
    return {"ort": lambda: run(python, here / "ort_infer.py", path, threads, steps), **ours}


versions = require(["onnxruntime", "timm", "transformers", "torch"])
rows = exported("infer")
print(f"{versions}; {threads} thread(s)")
print()
print("| network | batch | onnxruntime, ms | f32, ms | ratio | bf16, ms | ratio | MB: onnxruntime | f32 | bf16 |")
print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
base = {name: contend()["peak"] for name, contend in contenders(models / "infer_empty.onnx", 3).items()}
ratios = {p: [] for p in PRECISIONS}
for row in rows:
    seen = in_turn(contenders(row["file"], row["iterations"]))
    ms = {name: f"{figure(seen, name):.2f}" for name in base}
    mb = {name: f"{figure(seen, name, 'peak') - base[name]:.0f}" for name in base}
    for p in PRECISIONS:
        ratios[p].append(ratio(seen, "ort", p))
    print(f"| {row['name']} | {row['batch']} | {ms['ort']} | {ms['f32']} | {ratios['f32'][-1]:.2f} | {ms['bf16']} | "
          f"{ratios['bf16'][-1]:.2f} | {mb['ort']} | {mb['f32']} | {mb['bf16']} |", flush=True)
print(f"| geometric mean | | | | {geometric_mean(ratios['f32']):.2f} | | {geometric_mean(ratios['bf16']):.2f} | | | |")
