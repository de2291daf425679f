#!/usr/bin/python3
"""Import and compile time and peak resident memory, for tools/bench.

Times are the compiler's own (ampc --timing): import is file to graph, passes are all passes and the verification
at the end; both exclude starting the program and writing the result. Memory is that of the process.

usage: measure_compile.py BUILD MODELS THREADS ROUNDS
"""
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

build, models, _, rounds = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
CASES = [("resnet50", "inference", []), ("resnet50", "training", ["--loss=ce"]),
         ("chain", "inference", []), ("chain", "training", ["--loss=mse"])]


def compile_once(model, options):
    command = [build / "ampc", models / f"{model}.onnx", "--timing", "-q", *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    number = {name: float(value) for name, value in re.findall(r"^(import|passes) +([\d.]+) ms", text, re.M)}
    return number["import"], number["passes"], float(re.search(r"memory ([\d.]+) MiB", text).group(1))


print("| model | file, MiB | for | import, ms | passes, ms | sum, ms | peak memory, MiB |")
print("|---|---|---|---|---|---|---|")
for name, purpose, options in CASES:
    runs = [compile_once(name, options) for _ in range(rounds)]
    reading, passes, peak = (median(column) for column in zip(*runs))
    total = median(r[0] + r[1] for r in runs)
    size = (models / f"{name}.onnx").stat().st_size / 2**20
    print(f"| {name} | {size:.1f} | {purpose} | {reading:.1f} | {passes:.1f} | {total:.1f} | {peak:.1f} |")
