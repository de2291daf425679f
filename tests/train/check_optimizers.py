#!/usr/bin/python3
"""Compares the trainings of run-train with optimizers/expected.npz: the loss before each of 50 steps within 1e-6, the
parameters (or their averages) after the last one within 5e-6, both relative to the largest value where that is above 1.

usage: check_optimizers.py      in the folder with MODEL.NUMBER.jsonl and MODEL.NUMBER.onnx
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tier  # noqa: E402

LOSS, PARAMETER = 1e-6, 5e-6
MODELS = ["mlp", "cnn", "attention"]
folder = Path(__file__).parent / "optimizers"
lines = [line for line in (folder / "optimizers.txt").read_text().splitlines() if not line.startswith("#")]
expected = np.load(folder / "expected.npz")
faults = []


def compare(what, got, reference, tolerance):
    if got.shape != reference.shape:
        faults.append(f"{what}: {got.shape} instead of {reference.shape}")
        return
    difference = np.abs(got.astype(np.float64) - reference).max() / max(1, np.abs(reference).max())
    if not difference <= tolerance:
        faults.append(f"{what} differs by {difference:.2g}")


runs = [(model, number) for i, model in enumerate(MODELS) for number in range(len(lines)) if tier.is_due(i + number, 3)]
for model, number in runs:
    run = f"{model}/{number}"
    what = f"{model} {lines[number]}"
    try:
        rows = [json.loads(row) for row in open(f"{model}.{number}.jsonl")]
        tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(f"{model}.{number}.onnx").graph.initializer}
    except OSError as why:
        faults.append(f"{what}: {why}")
        continue
    compare(f"{what}: a loss", np.array([row["loss"] for row in rows if "loss" in row]), expected[f"{run}/loss"], LOSS)
    for key in expected.files:
        if key.startswith(run + "/") and not key.endswith("/loss"):
            compare(f"{what}: {key}", tensors[key[len(run) + 1:]], expected[key], PARAMETER)
print("\n".join(faults) or f"{len(runs)} trainings agree")
sys.exit(bool(faults) or len({number for _, number in runs}) != len(lines))
