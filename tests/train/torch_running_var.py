#!/usr/bin/env python3
"""Computes running variances with BatchNorm1d of PyTorch, in double precision.

usage: torch_running_var.py >tests/train/running_var.def

Writes a row RUNNING_VAR(momentum of ONNX, width, rows of each step, variances after the last) for batches [rows, 3, width].
Needs PyTorch.
"""
import torch

CASES = [  # momentum, width, rows
    (0.9, 1, (2, 2, 2)), (0.9, 1, (5, 3, 2)), (0.5, 1, (64, 64, 7)), (0.9, 6, (4, 4, 1)), (0.25, 2, (2, 1, 3)), (0.0, 1, (2, 9, 2))]


def batch(step, rows, width):
    values = [((i * 37 + step * 11) % 101) / 50 - 1 for i in range(rows * 3 * width)]
    return torch.tensor(values, dtype=torch.float64).reshape(rows, 3, width)


print("/* running_var.def - values of PyTorch, written by torch_running_var.py. */")
for momentum, width, rows in CASES:
    norm = torch.nn.BatchNorm1d(3, momentum=1 - momentum, dtype=torch.float64)
    for step, n in enumerate(rows):
        norm(batch(step, n, width))
    values = ", ".join(f"{v:.12g}" for v in norm.running_var.tolist())
    print(f"RUNNING_VAR({momentum}, {width}, BATCHES({', '.join(map(str, rows))}), VALUES({values}))")
