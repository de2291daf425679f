#!/usr/bin/python3
"""Training samples/s compared with PyTorch's, for tools/bench.

In every round each program runs once, in turn, so that both see the same state of the machine; a run's
figure is the median of its steps. PyTorch's columns are empty if PYTHON
(/usr/bin/python3) does not have it.

usage: measure_train.py BUILD MODELS THREADS ROUNDS [PYTHON]
"""
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

here = Path(__file__).resolve().parent
build, models, threads, rounds = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
python = sys.argv[5] if len(sys.argv) > 5 and sys.argv[5] else "/usr/bin/python3"
MNIST, MLP, LSTM = here.parent / "models" / "mnist.onnx", models / "mlp.onnx", models / "lstm.onnx"
# network, its file and options, batch, steps
CASES = [("mnist", MNIST, ["--loss=ce", "--optimizer=momentum,lr=0.001"], 64, 40),
         ("mnist", MNIST, ["--loss=ce", "--optimizer=momentum,lr=0.001"], 128, 20),
         ("mlp", MLP, ["--loss=mse", "--optimizer=sgd,lr=0.001"], 512, 3),
         ("lstm", LSTM, ["--loss=mse", "--optimizer=sgd,lr=0.001"], 32, 5)]
PRECISIONS = {"f32": ["--amp=O0"], "bf16": ["--dtype=bf16"]}
environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}


def samples_per_second(command):
    run = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, env=environment)
    return json.loads(run.stdout)["samples_s"]


def ours(path, options, precision, batch, steps):
    return samples_per_second([build / "ampc-run", "bench", path, *options, *PRECISIONS[precision], "--batch", batch,
                               "--threads", threads, "--warmup", 2, "--iterations", steps, "--json"])


def theirs(name, precision, batch, steps):
    return samples_per_second([python, here / "torch_train.py", name, precision, batch, threads, steps])


def torch_version():
    probe = [python, "-c", "import torch; print(torch.__version__)"]
    run = subprocess.run(probe, capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else None


def show(value, places=0):
    return "" if value is None else f"{value:.{places}f}"


version = torch_version()
if version:
    blas = subprocess.run(["readlink", "-f", "/usr/lib/x86_64-linux-gnu/libblas.so.3"], capture_output=True, text=True)
    print(f"PyTorch {version}, BLAS {Path(blas.stdout.strip()).parent.name}")
else:
    print("skipped: PyTorch (install python3-torch, or give --python, to compare)")
print()
print("| network | batch | precision | ampc, samples/s | PyTorch, samples/s | ratio | to own f32 |")
print("|---|---|---|---|---|---|---|")
for name, path, options, batch, steps in CASES:
    seen = []
    for _ in range(rounds):
        seen.append({p: (ours(path, options, p, batch, steps),
                         theirs(name, p, batch, steps) if version else None) for p in PRECISIONS})
    for p in PRECISIONS:
        speed = median(r[p][0] for r in seen)
        torch = median(r[p][1] for r in seen) if version else None
        ratio = median(r[p][0] / r[p][1] for r in seen) if version else None
        gain = median(r[p][0] / r["f32"][0] for r in seen)
        print(f"| {name} | {batch} | {p} | {speed:.0f} | {show(torch)} | {show(ratio, 2)} | {gain:.2f} |", flush=True)
