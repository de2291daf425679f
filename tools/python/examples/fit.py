"""Trains on arrays with held-out samples, keeps the best state, and writes the curves to a page.

usage: fit.py MODEL.onnx FOLDER     such as tests/models/mlp.onnx, with an input x: float[N,4] and two scores
"""
import sys
from pathlib import Path

import numpy as np

import ampc

folder = Path(sys.argv[2])
x = np.random.default_rng(0).standard_normal((2000, 4)).astype(np.float32)
data = {"x": x, "label": (x[:, 0] * x[:, 1] > 0).astype(np.int64)}
trainer = ampc.Trainer(sys.argv[1], loss="ce", optimizer="adamw,lr=0.02", dtype="bf16")
history = trainer.fit(data, epochs=8, batch=50, validation=0.2, metrics="accuracy,f1_macro", best="accuracy",
                      checkpoint_dir=folder, lr_schedule="cosine")
print(history)
trainer.load(folder / "best.safetensors", weights_only=True)
print(f"best: accuracy {trainer.evaluate(data).accuracy:.3f}")
(folder / "curves.html").write_text(f"<!doctype html><meta charset=utf-8>{history._repr_html_()}")
