#!/usr/bin/env python3
"""Times training steps of a network of networks.py in PyTorch, for the comparison in tools/bench.

The usual loop: forward under autocast (bf16) or not (f32), loss, backward, SGD with momentum; one fixed batch of random
samples. Prints one JSON object: the median time of a step in milliseconds, and the peak of the resident memory in MB
above what is resident after a step of a layer of one weight, by which PyTorch has loaded what it loads late.

usage: torch_train.py NETWORK f32|bf16 eager|compile BATCH THREADS STEPS
"""
import json
import re
import sys
import time
from pathlib import Path

import networks
import timm  # noqa: F401  (networks.py imports it and transformers late)
import torch
from torch import nn
from transformers import GPT2LMHeadModel  # noqa: F401

WARMUP = 3
name, dtype, mode, batch, threads, steps = sys.argv[1:]
torch.set_num_threads(int(threads))
torch.manual_seed(0)


def resident(field):
    """VmRSS, or VmHWM, the peak, in MB."""
    return int(re.search(rf"{field}:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def training(net, inputs, loss, target):
    """A function that trains for one step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    forward = torch.compile(net) if mode == "compile" else net

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            error = loss(forward(*inputs), target)
        error.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


training(nn.Linear(1, 1), [torch.zeros(1, 1)], nn.MSELoss(), torch.zeros(1, 1))()
base = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is resident
build, _, loss_name, _ = networks.TRAIN[name]
net, inputs = build(int(batch))
net.train()
y = net(*inputs.values())
cross_entropy = loss_name == "ce"
loss = nn.CrossEntropyLoss() if cross_entropy else nn.MSELoss()
target = torch.randint(0, y.shape[1], y.shape[:1]) if cross_entropy else torch.randn(y.shape)
del y
step = training(net, list(inputs.values()), loss, target)
times = []
for _ in range(WARMUP + int(steps)):
    start = time.perf_counter()
    step()
    times.append(time.perf_counter() - start)
print(json.dumps({"median_ms": sorted(times[WARMUP:])[int(steps) // 2] * 1e3, "memory": resident("VmHWM") - base}))
