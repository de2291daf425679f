#!/usr/bin/python3
"""Samples/s of several threads and of one while other programs keep the processors busy, for tools/bench.

Four processes spin. Every round executes each run once, in turn. The entire run is timed, because the median of
its steps would omit those that waited.

usage: measure_busy.py BUILD MODELS THREADS ROUNDS
"""
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

build, threads, rounds = Path(sys.argv[1]), sys.argv[3], int(sys.argv[4])
MNIST = Path(__file__).resolve().parent.parent / "models" / "mnist.onnx"
OPTIONS = ["--loss=ce", "--optimizer=momentum,lr=0.001", "--batch=64", "--warmup=1", "--json"]
# entry graph: iterations; bench runs twice as many
ENTRIES = {"train_step": 40, "infer": 120}
SPINNERS = 4


def samples_per_second(entry, threads):
    command = [build / "ampc-run", "bench", MNIST, *OPTIONS, f"--entry={entry}", f"--threads={threads}",
               f"--iterations={ENTRIES[entry]}"]
    start = time.monotonic()
    run = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
    return 2 * ENTRIES[entry] * json.loads(run.stdout)["batch"] / (time.monotonic() - start)


def measure():
    return {entry: (samples_per_second(entry, 1), samples_per_second(entry, threads)) for entry in ENTRIES}


spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(SPINNERS)]
try:
    measure()
    seen = [measure() for _ in range(rounds)]
finally:
    for spinner in spinners:
        spinner.kill()
print(f"\nmnist, batch 64, fp32, with {SPINNERS} spinning processes")
print()
print(f"| | 1 thread, samples/s | {threads} threads | ratio |")
print("|---|--:|--:|--:|")
for entry in ENTRIES:
    one, more = (median(r[entry][i] for r in seen) for i in (0, 1))
    print(f"| {entry} | {one:.0f} | {more:.0f} | {median(r[entry][1] / r[entry][0] for r in seen):.2f} |")
