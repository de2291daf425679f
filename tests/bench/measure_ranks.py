#!/usr/bin/python3
"""Distributed training on one machine, for tools/bench: bytes on the wire, and ranks compared with threads.

The bytes are those of the reductions in the compiled step (--explain=distribution). Optimizer memory is that of masters
and of the states of the optimizer, by the storage of the module. In every round one process of two
threads and two ranks of one thread train in turn; ratios are medians of the ratios within a round, and the goal is 0.9.

usage: measure_ranks.py BUILD MODELS THREADS ROUNDS
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from math import prod
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


ELEMENT = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
STORAGE = re.compile(r"(?:param|state) @(\S+) *: (\w+)\[([\d,]*)\](?:.* as (?:slot|master) .*?@(\S+) shard \d+)?")


def optimizer_memory(model, loss, ranks, *precision):
    """Bytes of slices that a rank has, and of the tensors that all ranks have together."""
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "step.ir"
        subprocess.run([build / "ampc", model, f"--loss={loss}", "--optimizer=adamw", *precision, "--distribute", "-q",
                        "--shard=optimizer", f"--ranks={ranks}", "-o", module], check=True)
        rows = [m.groups() for m in map(STORAGE.match, module.read_text().splitlines()) if m]
    size = {name: ELEMENT.get(dtype, 0) * prod(int(d) for d in dims.split(",") if d) for name, dtype, dims, _ in rows}
    slices = [(size[name], size[of]) for name, _, _, of in rows if of]
    return sum(own for own, _ in slices), sum(whole for _, whole in slices)


def train(launch, threads, model, loss, batch, steps):
    command = [*launch, build / "ampc-run", "train", model, f"--loss={loss}", "--amp=O0", "--data=synthetic",
               f"--batch={batch}", f"--steps={steps}", f"--threads={threads}", "--seed=1", "--json", "-q"]
    return printed(command)["samples_s"]


def contenders(row):
    all_of = {"threads": lambda: train([], RANKS, *row)}
    for mpi, launcher in LAUNCHERS.items():
        if shutil.which(launcher[0]) and (build / f"ampc-mpi/libampc-mpi-{mpi}.so").exists():
            all_of[mpi] = lambda launcher=launcher: train([*launcher, "-n", RANKS], 1, *row)
    return all_of


print("| network | fp32, bytes on the wire per step | bf16 | fp16 |")
print("|---|--:|--:|--:|")
for name, (model, loss, _, _) in NETWORKS.items():
    sizes = [wire_bytes(model, loss, *p) for p in (["--amp=O0"], ["--dtype=bf16", "--reduce-dtype=bf16"], ["--dtype=fp16", "--reduce-dtype=fp16"])]
    print(f"| {name} | {' | '.join(map(str, sizes))} |")
print()
print("| network | type | ranks | optimizer memory a rank, bytes | of all |")
print("|---|---|--:|--:|--:|")
for name, (model, loss, _, _) in NETWORKS.items():
    for precision in (["--amp=O0"], ["--amp=O2", "--dtype=fp16"]):
        for ranks in (2, 4):
            own, whole = optimizer_memory(model, loss, ranks, *precision)
            print(f"| {name} | {precision[-1].split('=')[1]} | {ranks} | {own} | {own / whole:.3f} |")
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
