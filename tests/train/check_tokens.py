#!/usr/bin/python3
"""Compares a training run on token labels with PyTorch (tokens/expected.json): the loss of every step,
loss and accuracy on the test samples, and which initializers the run changed.

usage: check_tokens.py CASE OPTIMIZER LOG TRAINED.onnx EVAL.json..
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

TOLERANCE = 1e-5
folder = Path(__file__).parent / "tokens"
faults = []


def compare(what, got, expected):
    if not abs(got - expected) <= TOLERANCE * abs(expected):
        faults.append(f"{what} is {got!r}, PyTorch has {expected!r}")


def initializers(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}


def compare_weights(case, trained):
    before, after, elements = initializers(folder / f"{case}.onnx"), initializers(trained), 0
    facts = expected["cases"][case]
    for name, array in before.items():
        if array.dtype != np.float32:
            continue
        moved = name in after and not np.array_equal(array, after[name])
        if moved:
            elements += array.size
        if moved and name in facts["constants"]:
            faults.append(f"constant {name} was changed")
    # SGD does not change attention key biases, whose gradients are zero except for rounding.
    if optimizer.startswith("adamw") and elements != facts["trained elements"]:
        faults.append(f"{elements} elements were trained, PyTorch trains {facts['trained elements']}")


case, optimizer, log, trained, *evaluations = sys.argv[1:]
expected = json.loads((folder / "expected.json").read_text())
reference = expected["cases"][case]["optimizers"][optimizer]
losses = [row["loss"] for row in map(json.loads, open(log)) if "loss" in row]
if len(losses) != len(reference["losses"]):
    faults.append(f"{len(losses)} steps instead of {len(reference['losses'])}")
for step, pair in enumerate(zip(losses, reference["losses"]), 1):
    compare(f"the loss of step {step}", *pair)
for path in evaluations:
    result = json.loads(Path(path).read_text())
    compare(f"{path}: the loss", result["loss"], reference["eval_loss"])
    compare(f"{path}: the accuracy", result["accuracy"], reference["accuracy"])
compare_weights(case, trained)
print("\n".join(faults))
sys.exit(bool(faults))
