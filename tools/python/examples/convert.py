"""Converts a model to mixed precision, and says why what is in fp32.

usage: convert.py MODEL.onnx OUTPUT.onnx [fp16|bf16]
"""
import sys

import ampc

source, target, dtype = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["fp16"])[0]
model = ampc.convert(source, dtype)
print(model.report())
for node in model.explain().nodes:
    if node["dtype"] == "fp32":
        print(f"{node['name']} ({node['op']}) is in fp32: {node['cause']}")
print("written:", model.save(target))
