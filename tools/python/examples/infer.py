"""Runs a model on random inputs: a program for onnxruntime with another import.

usage: infer.py MODEL.onnx
"""
import sys

import numpy as np

import ampc as onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
feed = {}
for entry in session.get_inputs():
    shape = [size if isinstance(size, int) else 2 for size in entry.shape]
    feed[entry.name] = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
for output, value in zip(session.get_outputs(), session.run(None, feed)):
    print(f"{output.name}: {output.type} {list(value.shape)}, mean {value.mean():.4f}")
