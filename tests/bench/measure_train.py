#!/usr/bin/python3
"""Time and memory of training steps compared with PyTorch, eager and compiled, for tools/bench.

In every round each program runs once, in turn, so that all see the same state of the machine; a run's figure is the
median of its steps. Ratios are medians of the ratios within a round: above 1, ampc is faster. f32 is compared with f32,
and bf16 (O1) with PyTorch's autocast to bf16. Memory is the peak of the process: ampc's above the peak of one that runs
a network without weights, PyTorch's (eager) above what is resident once it has trained a layer of one weight; its ratio
is ours to theirs.

usage: measure_train.py BUILD MODELS THREADS ROUNDS PYTHON   (PYTHON with torch, timm and transformers)
"""
from contest import ampc, exported, figure, geometric_mean, here, in_turn, models, python, ratio, require, run, threads

PRECISIONS = {"f32": ["--amp=O0"], "bf16": ["--amp=O1", "--dtype=bf16"]}
MODES = ["eager", "compile"]


def contenders(row, precision):
    steps, options = row["iterations"], [f"--loss={row['loss']}", "--optimizer=momentum,lr=0.0001", *PRECISIONS[precision]]
    theirs = {m: lambda m=m: run(python, here / "torch_train.py", row["name"], precision, m, row["batch"], threads, steps)
              for m in MODES}
    return {"ampc": lambda: ampc(row["file"], *options, steps=steps), **theirs}


versions = require(["torch", "timm", "transformers"])
rows = exported("train")
print(f"{versions}; {threads} thread(s)")
print()
print("| network | batch | precision | ampc, ms | eager, ms | ratio | compiled, ms | ratio | MB: ampc | eager | ratio |")
print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
ratios = {p: {m: [] for m in MODES} for p in PRECISIONS}
memory = {p: [] for p in PRECISIONS}
empty = ampc(models / "train_empty.onnx", *PRECISIONS["f32"], steps=3)["peak"]
for row in rows:
    for p in PRECISIONS:
        seen = in_turn(contenders(row, p))
        for m in MODES:
            ratios[p][m].append(ratio(seen, m, "ampc"))
        theirs = " | ".join(f"{figure(seen, m):.2f} | {ratios[p][m][-1]:.2f}" for m in MODES)
        ours, eager = figure(seen, "ampc", "peak") - empty, figure(seen, "eager", "memory")
        memory[p].append(ours / eager)
        print(f"| {row['name']} | {row['batch']} | {p} | {figure(seen, 'ampc'):.2f} | {theirs} | "
              f"{ours:.0f} | {eager:.0f} | {memory[p][-1]:.2f} |", flush=True)
for p in PRECISIONS:
    means = " | | ".join(f"{geometric_mean(ratios[p][m]):.2f}" for m in MODES)
    print(f"| geometric mean | | {p} | | | {means} | | | {geometric_mean(memory[p]):.2f} |")
