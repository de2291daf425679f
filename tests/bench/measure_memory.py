#!/usr/bin/python3
"""Memory that is planned for sequences of several lengths, in f32, for tools/bench: a GPT-2 in inference, and a step of training
of a GPT of four layers. The figure for each token beyond those of the row before is constant if memory grows with the
length, and four times as high at four times the length if it grows with its square.

usage: measure_memory.py BUILD MODELS THREADS ROUNDS PYTHON   (PYTHON with torch and transformers)
"""
from contest import build, exported, require, run, threads


def planned(row):
    training = ["--entry=train_step", f"--loss={row['loss']}", "--optimizer=momentum,lr=0.0001"] if row["loss"] else []
    return run(build / "ampc-run", "plan", row["file"], "--amp=O0", "--threads", threads, "--json", *training)["planned_bytes"]


versions = require(["torch", "transformers"])
rows = exported("memory")
print(f"exported by {versions}")
print()
print("| network | tokens | planned, MB | KB for each further token |")
print("|---|--:|--:|--:|")
name, tokens, size = None, 0, 0
for row in rows:
    before = (name, tokens, size)
    name, tokens = row["name"].rsplit(" ", 1)[0], int(row["name"].rsplit(" ", 1)[1])
    size = planned(row)
    growth = f"{(size - before[2]) / 2**10 / (tokens - before[1]):.1f}" if name == before[0] else ""
    print(f"| {name} | {tokens} | {size / 2**20:.1f} | {growth} |", flush=True)
