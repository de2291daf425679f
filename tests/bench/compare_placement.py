#!/usr/bin/python3
"""Placement by minimum cut compared with greedy placement, on every model of tests/: the tables of docs/performance.md.

Casts and bytes are those of the compiled forward graph (--stats, symbols as 1); the prediction is for the built-in
device description "gpu" (symbols as 16).

usage: compare_placement.py BUILD [OPTION..]      options go to ampc, for example --loss=mse
"""
import json
import re
import subprocess
import sys
from pathlib import Path

build, options = Path(sys.argv[1]), sys.argv[2:]
tests = Path(__file__).resolve().parent.parent
models = sorted([*tests.glob("goldens/*/model.onnx"), *tests.glob("models/*.onnx")])


def compile_model(model, *more):
    command = [build / "ampc", model, "--stats", "--json", "-v", *options, *more]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode == 3:  # a training step of a model without gradients
        return None
    run.check_returncode()
    stats = json.loads(run.stdout)
    predicted = re.search(r"predicted on \w+: (.*), (.*) with --placement=greedy, (.*) in f32", run.stderr)
    return stats["casts"], stats["cast_bytes"], predicted.groups() if predicted else None


print("| model | greedy: casts | bytes | mincut `bytes`: casts | bytes | mincut `gpu`: casts | bytes "
      "| predicted | greedy | f32 | `--white-soft` |")
print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
for model in models:
    name = model.parent.name if model.parent.parent.name == "goldens" else model.stem
    greedy = compile_model(model)
    if not greedy:
        continue
    by_bytes = compile_model(model, "--placement=mincut", "--target=bytes")
    by_time = compile_model(model, "--placement=mincut", "--target=gpu")
    soft = compile_model(model, "--placement=mincut", "--target=gpu", "--white-soft")
    cut, own, f32 = by_time[2]
    print(f"| {name} | {greedy[0]} | {greedy[1]} | {by_bytes[0]} | {by_bytes[1]} | {by_time[0]} | {by_time[1]} "
          f"| {cut} | {own} | {f32} | {soft[2][0]} |")
