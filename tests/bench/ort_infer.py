#!/usr/bin/env python3
"""Times inference of a model by onnxruntime, for the comparison in tools/bench.

Prints one JSON object: the median time of a run in milliseconds.

usage: ort_infer.py MODEL THREADS STEPS
"""
import json
import sys
import time

import numpy as np
import onnxruntime

WARMUP = 3
path, threads, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
random = np.random.default_rng(0)
feed = {}
for x in session.get_inputs():
    feed[x.name] = random.integers(0, 8000, x.shape) if "int64" in x.type else random.standard_normal(x.shape, np.float32)
times = []
for _ in range(WARMUP + steps):
    start = time.perf_counter()
    session.run(None, feed)
    times.append(time.perf_counter() - start)
print(json.dumps({"median_ms": sorted(times[WARMUP:])[steps // 2] * 1e3}))
