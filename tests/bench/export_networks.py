#!/usr/bin/env python3
"""Exports the networks of networks.py that tools/bench measures, one file per batch size, unless the files exist.

Prints what there is to measure as JSON. PART_empty.onnx has no weights: it shows what a program needs by itself.

usage: export_networks.py infer|train|memory FOLDER
"""
import json
import sys
import warnings
from pathlib import Path

import networks
import torch

warnings.filterwarnings("ignore")
part, folder = sys.argv[1], Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
table = {"infer": networks.INFER, "train": networks.TRAIN, "memory": networks.MEMORY}[part]


def export(net, inputs, path, training=False):
    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    partial = path.with_suffix(".part")
    torch.onnx.export(net.train(training), tuple(inputs.values()), str(partial), dynamo=False, opset_version=17,
                      input_names=list(inputs), output_names=["y"], training=mode, do_constant_folding=not training)
    partial.rename(path)


def file_of(name, batch):
    return folder / f"{part}_{name.lower().replace(' ', '_')}_b{batch}.onnx"


def rows_of(name, row):
    build, batches, *loss, steps = row
    loss = loss[0] if loss else None
    for batch in batches:
        path = file_of(name, batch)
        if not path.exists():
            torch.manual_seed(0)
            export(*build(batch), path, loss is not None)
        yield {"name": name, "batch": batch, "file": str(path), "iterations": steps, "loss": loss}


export(torch.nn.ReLU(), {"x": torch.randn(1, 16)}, folder / f"{part}_empty.onnx", part == "train")
print(json.dumps([r for name, row in table.items() for r in rows_of(name, row)]))
