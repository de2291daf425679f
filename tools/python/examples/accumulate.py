"""Steps of several micro-batches, whose gradients the program inspects and changes.

usage: accumulate.py MODEL.onnx     such as tests/models/mlp.onnx, with an input x: float[N,4] and two scores
"""
import sys

import numpy as np

import ampc

rng = np.random.default_rng(0)
trainer = ampc.Trainer(sys.argv[1], loss="ce", optimizer="momentum,lr=0.1", dtype="fp16", accumulate=4)
for window in range(1, 31):
    for _ in range(4):
        x = rng.standard_normal((16, 4)).astype(np.float32)
        trainer.accumulate(x=x, label=(x[:, 0] > 0).astype(np.int64))
    norm, infinite = trainer.unscale()
    if not infinite and norm > 1:  # clips, as clip_norm=1 of the trainer would do
        trainer.set_gradients({name: gradient / norm for name, gradient in trainer.gradients().items()})
    step = trainer.apply()
    if window % 10 == 0:
        print(f"step {step.step}: loss {step.loss:.3f}, norm {norm:.2f}")
