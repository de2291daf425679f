#!/usr/bin/env python3
"""Writes the learning rates of PyTorch's schedulers, in double precision, to schedules.txt next to this script.

A line is: spec, tab, initial rate, tab, steps of the run, tab, the rates of all steps. test_schedules.c compares them
with ampc's schedules. A line whose spec is a plateau has, after another tab, the losses that the scheduler saw.

usage: tests/train/make_schedules.py      (needs torch)
"""

import pathlib
import random
import warnings

import torch
from torch.optim import lr_scheduler as torch_schedules

warnings.filterwarnings("ignore")
STEPS = 60


def optimizer(rate):
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    return torch.optim.SGD([weight], lr=rate)


def rates(make, rate, steps=STEPS):
    owner = optimizer(rate)
    scheduler = make(owner)
    seen = []
    for _ in range(steps):
        seen.append(owner.param_groups[0]["lr"])
        owner.step()
        scheduler.step()
    return seen


def plateau(make, rate, losses):
    owner = optimizer(rate)
    scheduler = make(owner)
    seen = []
    for loss in losses:
        seen.append(owner.param_groups[0]["lr"])
        owner.step()
        scheduler.step(loss)
    return seen


def sequence(owner, parts, lengths):
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths) - 1)]
    return torch_schedules.SequentialLR(owner, [part(owner) for part in parts], milestones=ends)


def warm(steps):
    return lambda o: torch_schedules.LinearLR(o, start_factor=1 / steps, end_factor=1, total_iters=steps - 1)


S = torch_schedules
CASES = [
    ("constant", 0.3, lambda o: S.ConstantLR(o, factor=1)),
    ("step,every=7,factor=0.5", 0.3, lambda o: S.StepLR(o, 7, gamma=0.5)),
    ("step,every=13", 1.7, lambda o: S.StepLR(o, 13)),
    ("linear", 0.8, lambda o: S.LinearLR(o, start_factor=1, end_factor=0, total_iters=STEPS)),
    ("linear,end=0.2,steps=40", 0.8, lambda o: S.LinearLR(o, start_factor=1, end_factor=0.25, total_iters=40)),
    ("cosine", 0.8, lambda o: S.CosineAnnealingLR(o, STEPS)),
    ("cosine,end=0.05", 0.8, lambda o: S.CosineAnnealingLR(o, STEPS, eta_min=0.05)),
    ("polynomial", 0.4, lambda o: S.PolynomialLR(o, STEPS)),
    ("polynomial,power=2.5,steps=45", 0.4, lambda o: S.PolynomialLR(o, 45, power=2.5)),
    ("exponential,factor=0.93,every=1", 0.4, lambda o: S.ExponentialLR(o, 0.93)),
    ("one-cycle", 0.5, lambda o: S.OneCycleLR(o, 0.5, total_steps=STEPS + 1, cycle_momentum=False)),
    ("one-cycle,rise=0.45,div=10,final_div=100", 0.5, lambda o: S.OneCycleLR(
        o, 0.5, total_steps=STEPS + 1, pct_start=0.45, div_factor=10, final_div_factor=100, cycle_momentum=False)),
    ("one-cycle,anneal=linear", 2.0, lambda o: S.OneCycleLR(
        o, 2.0, total_steps=STEPS + 1, anneal_strategy="linear", cycle_momentum=False)),
    ("constant,warmup=8", 0.3, warm(8)),
    ("constant,steps=8,warmup=8;cosine,end=0.01", 0.3,
     lambda o: sequence(o, [warm(8), lambda p: S.CosineAnnealingLR(p, STEPS - 8, eta_min=0.01)], [8, STEPS - 8])),
    ("constant,steps=20;exponential,factor=0.8,every=1,steps=15;polynomial,power=2", 0.3, lambda o: sequence(
        o, [lambda p: S.ConstantLR(p, factor=1), lambda p: S.ExponentialLR(p, 0.8),
            lambda p: S.PolynomialLR(p, STEPS - 35, power=2)], [20, 15, STEPS - 35])),
]
PLATEAUS = [
    ("plateau,every=1,patience=2,factor=0.5", 0.4, dict(patience=2, factor=0.5)),
    ("plateau,every=1,patience=0,factor=0.7,cooldown=3,threshold=0.01,end=0.02", 0.4,
     dict(patience=0, factor=0.7, cooldown=3, threshold=0.01, min_lr=0.02)),
    ("plateau,every=1", 0.4, {}),
]


def main():
    lines = []
    for spec, rate, make in CASES:
        steps = STEPS + 1 if spec.startswith("one-cycle") else STEPS
        values = rates(make, rate, steps - (steps > STEPS))
        lines.append((spec, repr(rate), str(steps), " ".join(map(repr, values))))
    chance = random.Random(4)
    for spec, rate, how in PLATEAUS:
        losses = [0.5 + 1 / (1 + 0.2 * i) + 0.05 * chance.random() for i in range(300)]
        values = plateau(lambda o, how=how: S.ReduceLROnPlateau(o, **how), rate, losses)
        lines.append((spec, repr(rate), "300", " ".join(map(repr, values)), " ".join(map(repr, losses))))
    path = pathlib.Path(__file__).with_name("schedules.txt")
    path.write_text("".join("\t".join(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
