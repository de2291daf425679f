#!/usr/bin/env python3
"""Times training steps of a network of networks.py in PyTorch, for the comparison in tools/bench.

The usual loop: forward under autocast (bf16) or not (f32), loss, backward, SGD with momentum; one fixed batch of random
samples. Prints one JSON object: the median time of a step in milliseconds.

usage: torch_train.py NETWORK f32|bf16 eager|compile BATCH THREADS STEPS
"""
import json
import sys
import time

import networks
import torch
from torch import nn

WARMUP = 3
name, dtype, mode, batch, threads, steps = sys.argv[1:]
torch.set_num_threads(int(threads))
torch.manual_seed(0)
build, _, loss_name, _ = networks.TRAIN[name]
net, inputs = build(int(batch))
net.train()
y = net(*inputs.values())
cross_entropy = loss_name == "ce"
loss = nn.CrossEntropyLoss() if cross_entropy else nn.MSELoss()
target = torch.randint(0, y.shape[1], y.shape[:1]) if cross_entropy else torch.randn(y.shape)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
forward = torch.compile(net) if mode == "compile" else net


def step():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
        error = loss(forward(*inputs.values()), target)
    error.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


times = []
for _ in range(WARMUP + int(steps)):
    start = time.perf_counter()
    step()
    times.append(time.perf_counter() - start)
print(json.dumps({"median_ms": sorted(times[WARMUP:])[int(steps) // 2] * 1e3}))
