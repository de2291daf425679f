#!/usr/bin/python3
"""Times training steps of a network in PyTorch, for the comparison in tools/bench.

Eager mode with the usual loop: forward under autocast (bf16) or not (f32), loss, backward, SGD; one fixed batch of
random samples. Prints one JSON object: minimum and median time of a step, samples/s, the device of PyTorch.

usage: torch_train.py mnist|mlp|lstm f32|bf16 BATCH THREADS STEPS
"""
import json
import sys
import time

import torch
from torch import nn

WIDTH, LAYERS, WARMUP = 4096, 3, 2
STEPS, UNITS = 64, 512


def mnist(batch):
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 64, 5), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10))
    return net, nn.CrossEntropyLoss(), torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))


def mlp(batch):
    layers = []
    for _ in range(LAYERS - 1):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH))
    return net, nn.MSELoss(), torch.randn(batch, WIDTH), torch.randn(batch, WIDTH)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(UNITS, UNITS, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def lstm(batch):
    return Lstm(), nn.MSELoss(), torch.randn(batch, STEPS, UNITS), torch.randn(batch, STEPS, UNITS)


def step(net, loss, optimizer, x, target, low):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        error = loss(net(x), target)
    error.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def main():
    name, dtype, batch, threads, steps = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    net, loss, x, target = {"mnist": mnist, "mlp": mlp, "lstm": lstm}[name](int(batch))
    momentum = 0.9 if name == "mnist" else 0.0
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=momentum)
    times = []
    for _ in range(WARMUP + int(steps)):
        start = time.perf_counter()
        step(net, loss, optimizer, x, target, dtype == "bf16")
        times.append(time.perf_counter() - start)
    counted = sorted(times[WARMUP:])
    median = counted[len(counted) // 2]
    print(json.dumps({"min_ms": counted[0] * 1e3, "median_ms": median * 1e3, "samples_s": int(batch) / median, "torch": torch.__version__}))


main()
