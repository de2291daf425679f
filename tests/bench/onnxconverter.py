#!/usr/bin/env python3
"""One conversion to fp16 by onnxconverter-common, for tools/bench: load, convert, save.

usage: onnxconverter.py MODEL OUTPUT [GLOB..]      nodes that match a GLOB stay fp32
       onnxconverter.py --version
"""
import sys
from fnmatch import fnmatchcase
from importlib.metadata import version

import onnx
from onnxconverter_common import float16

if sys.argv[1:] == ["--version"]:
    print(f"onnxconverter-common {version('onnxconverter-common')}, onnx {onnx.__version__}")
    sys.exit()
source, target, *globs = sys.argv[1:]
model = onnx.load(source)
kept = [n.name for n in model.graph.node if any(fnmatchcase(n.name, g) for g in globs)]
onnx.save(float16.convert_float_to_float16(model, keep_io_types=True, node_block_list=kept), target)
