#!/usr/bin/python3
"""Distributed training on one machine, for tools/bench: bytes on the wire, and ranks compared with threads.

The bytes are those of the reductions in the compiled step (--explain=distribution). In every round one process of two
threads and two ranks of one thread train in turn; ratios are medians of the ratios within a round, and the goal is 0.9.

usage: measure_ranks.py BUILD MODELS THREADS ROUNDS
"""
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

build, models, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[4])
MNIST = Path(__file__).resolve().parent.parent / "models" / "mnist.onnx"
# network: file, loss, batch, steps
NETWORKS = {"mlp": (models / "mlp.onnx", "mse", 512, 10), "mnist": (MNIST, "ce", 64, 400)}
RANKS = 2
# An MPI: its launcher. Ranks share the processors of this machine, whoever starts them.
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
    "mpich": ["mpirun.mpich", "-bind-to", "none"],
}


def printed(command):
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{run.stderr}")
    return json.loads(run.stdout)


def wire_bytes(model, loss, *precision):
    return int(printed([build / "ampc", model, f"--loss={loss}", *precision, "--explain=distribution", "--json", "-q"])["bytes"])


def train(launch, threads, model, loss, batch, steps):
    command = [*launch, build / "ampc-run", "train", model, f"--loss={loss}", "--amp=O0", "--data=synthetic",
               f"--batch={batch}", f"--steps={steps}", f"--threads={threads}", "--seed=1", "--json", "-q"]
    return printed(command)["samples_s"]


def contenders(row):
    all_of = {"threads": lambda: train([], RANKS, *row)}
    for mpi, launcher in LAUNCHERS.items():
        if shutil.which(launcher[0]) and (build / f"libampc-mpi-{mpi}.so").exists():
            all_of[mpi] = lambda launcher=launcher: train([*launcher, "-n", RANKS], 1, *row)
    return all_of


print("| network | fp32, bytes on the wire per step | bf16 | fp16 |")
print("|---|--:|--:|--:|")
for name, (model, loss, _, _) in NETWORKS.items():
    sizes = [wire_bytes(model, loss, *p) for p in (["--amp=O0"], ["--dtype=bf16", "--reduce-dtype=bf16"], ["--dtype=fp16", "--reduce-dtype=fp16"])]
    print(f"| {name} | {' | '.join(map(str, sizes))} |")
print()
print(f"| network | batch | 1 process, {RANKS} threads, samples/s | MPI | {RANKS} ranks, 1 thread | ratio |")
print("|---|--:|--:|---|--:|--:|")
for name, row in NETWORKS.items():
    runs = contenders(row)
    seen = [{who: run() for who, run in runs.items()} for _ in range(rounds)]
    for mpi in list(runs)[1:]:
        threads, ranks = (median(r[who] for r in seen) for who in ("threads", mpi))
        print(f"| {name} | {row[2]} | {threads:.0f} | {mpi} | {ranks:.0f} | {median(r[mpi] / r['threads'] for r in seen):.2f} |",
              flush=True)
    if len(runs) == 1:
        print(f"| {name} | {row[2]} | {median(r['threads'] for r in seen):.0f} | none: {' or '.join(LAUNCHERS)} is needed | | |")
