"""Trains a classifier of images in fp16, step by step, and writes it as ONNX.

usage: train.py MODEL.onnx OUTPUT.onnx     such as tests/models/mnist.onnx, with an input [N,1,28,28] and ten scores
"""
import sys

import numpy as np

import ampc

# A class is the place of a bright square.
rng = np.random.default_rng(0)
label = rng.integers(0, 10, 512)
x = rng.normal(0, 0.3, (512, 1, 28, 28)).astype(np.float32)
for i, k in enumerate(label):
    x[i, 0, 14 * (k // 5):14 * (k // 5) + 12, 5 * (k % 5):5 * (k % 5) + 6] += 1

trainer = ampc.Trainer(sys.argv[1], loss="ce", optimizer="adamw,lr=0.002", dtype="fp16", mode="train")
image = trainer.inputs[0].name
for step in range(60):
    rows = rng.integers(0, len(x), 32)
    made = trainer.step({image: x[rows], "label": label[rows]})
    if made.skipped or made.step % 20 == 0:
        print(f"step {made.step}: loss {made.loss:.3f}, norm {made.norm:.2f}, scale {made.scale:g}"
              + (", skipped" if made.skipped else ""))
found = trainer.evaluate({image: x, "label": label})
print(f"accuracy {found.accuracy:.3f}")
trainer.export(sys.argv[2])
