#!/usr/bin/python3
"""Time and memory of calibration compared with inference, for tools/bench: `ampc-run calibrate` and `ampc-run predict
--amp=O0` of ResNet-50 on the same images, batch 32, alternating. The goals are a ratio of 1.3 and memory that does not
depend on the number of samples.

usage: measure_calibrate.py BUILD MODELS THREADS ROUNDS [PYTHON] [SAMPLES..]      default: 64 and 256 samples
"""
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy

BATCH = 32
build, models, threads, rounds = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
counts = [int(n) for n in sys.argv[6:]] or [64, 256]


def measure(verb, data, *options):
    start = time.monotonic()
    process = subprocess.Popen([build / "ampc-run", verb, models / "resnet50.onnx", "-q", "--force", "--data",
                                f"npz:{data}", "--batch", str(BATCH), "--threads", threads, *options])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode: sys.exit(f"measure_calibrate.py: {verb} failed")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


print("| samples | predict, s | calibrate, s | ratio | ratio of processor time | predict, MB | calibrate, MB |")
print("|---|---|---|---|---|---|---|")
for n in counts:
    data = models / f"images{n}.npz"
    numpy.savez(data, x=numpy.random.default_rng(0).standard_normal((n, 3, 224, 224), dtype="f4"))
    pairs = [(measure("predict", data, "--amp=O0", "-o", models / "predicted.npz"),
              measure("calibrate", data, "-o", models / "calibrated.amplist")) for _ in range(rounds)]
    data.unlink()
    middle = lambda side, i: median(p[side][i] for p in pairs)
    ratio = lambda i: median(c[i] / p[i] for p, c in pairs)
    print(f"| {n} | {middle(0, 0):.1f} | {middle(1, 0):.1f} | {ratio(0):.2f} | {ratio(1):.2f} | {middle(0, 2):.0f} | "
          f"{middle(1, 2):.0f} |", flush=True)
