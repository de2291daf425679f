#!/usr/bin/python3
"""Time of training steps in bf16 and fp16 compared with our own fp32, for tools/bench: the MLP of PyTorch's AMP recipe (three
layers of 4096, batch 512) and ResNet-50 (224 x 224, batch 8), with momentum and, in fp16, dynamic loss scaling. The goal is
a ratio of 2.5 on a processor with AMX.

usage: measure_lowtypes.py BUILD MODELS THREADS ROUNDS [PYTHON]
"""
from contest import ampc, figure, in_turn, models, ratio

TYPES = {"fp32": ["--amp=O0"], "bf16": ["--amp=O1", "--dtype=bf16"], "fp16": ["--amp=O1", "--dtype=fp16"]}
NETWORKS = [("MLP 3 x 4096", "mlp", "mse", 512, 4), ("ResNet-50", "resnet50", "ce", 8, 3)]

print("| network | batch | fp32, ms | bf16, ms | ratio | fp16, ms | ratio |")
print("|---|--:|--:|--:|--:|--:|--:|")
for name, file, loss, batch, steps in NETWORKS:
    options = [f"--loss={loss}", "--optimizer=momentum,lr=0.0001", "--batch", batch]
    seen = in_turn({t: lambda t=t: ampc(models / f"{file}.onnx", *options, *TYPES[t], steps=steps) for t in TYPES})
    low = " | ".join(f"{figure(seen, t):.1f} | {ratio(seen, 'fp32', t):.2f}" for t in ("bf16", "fp16"))
    print(f"| {name} | {batch} | {figure(seen, 'fp32'):.1f} | {low} |", flush=True)
