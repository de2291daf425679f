#!/usr/bin/python3
"""Conversion of ONNX files to fp16 compared with onnxconverter-common, for tools/bench.

Wall time and peak resident memory of processes, from the start of the program to the written file. The programs
alternate; the output is deleted after each run. The other converter runs once per case, independent of ROUNDS, because
a run takes minutes.

usage: measure_convert.py BUILD MODELS THREADS ROUNDS [PYTHON]      without a PYTHON that has it: skipped
"""
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

here = Path(__file__).resolve().parent
build, models, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[4])
python = sys.argv[5] if len(sys.argv) > 5 else ""
KEPT = ["*norm*", "*softmax*"]
CASES = [("decoder", "norms and softmax in fp32", KEPT), ("weights", "", [])]


def measure(command):
    start = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    complaints = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command[0]} ended with {process.returncode}: {complaints[-500:]}")
    return seconds, usage.ru_maxrss / 1024


def converter_version():
    if not python:
        return None
    probe = subprocess.run([python, here / "onnxconverter.py", "--version"], capture_output=True, text=True)
    return probe.stdout.strip() if probe.returncode == 0 else None


def options_for(globs):
    return [f"--fp32-node={glob}" for glob in globs]


def row(name, globs, theirs, folder):
    model, output = models / f"{name}.onnx", Path(folder) / "out.onnx"
    runs = []
    for _ in range(rounds):
        runs.append(measure([build / "ampc", model, "-o", output, "-q", *options_for(globs)]))
        output.unlink()
    seconds, memory = (median(column) for column in zip(*runs))
    if not theirs:
        return f"{seconds:.3f} | {memory:.0f} | | | | "
    their_seconds, their_memory = measure([python, here / "onnxconverter.py", model, output, *globs])
    output.unlink()
    return (f"{seconds:.3f} | {memory:.0f} | {their_seconds:.1f} | {their_memory:.0f} "
            f"| {their_seconds / seconds:.0f} | 1/{their_memory / memory:.0f}")


version = converter_version()
print(version or "skipped: onnxconverter-common (name a python that has it with --python, or in AMPC_BENCH_PYTHON)")
print()
print("| model | file, MiB | | ampc, s | peak, MiB | onnxconverter-common, s | peak, MiB | times faster | memory |")
print("|---|--:|---|--:|--:|--:|--:|--:|--:|")
for case, remark, kept in CASES:
    size = (models / f"{case}.onnx").stat().st_size / 2**20
    with tempfile.TemporaryDirectory(dir=models) as scratch:
        print(f"| {case} | {size:.0f} | {remark} | {row(case, kept, version, scratch)} |", flush=True)
