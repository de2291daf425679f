#!/usr/bin/env python3
"""make_standardised.py - writes tests/models/standardised: networks whose weights are standardised, exported by PyTorch.

The weight of a convolution is normalised by F.batch_norm(w, None, None, training=True), as in NFNet and ResNetV2-BiT
(timm). Exporters write mean and variance of the weight as operands of a BatchNormalization. gradients.txt has a batch and
what PyTorch computes from it in f64, read by test_standardised.c. Needs torch, onnx and onnxscript (written with 2.15.0,
1.23.2 and 0.7.2)."""
import os
import sys
import warnings

import onnx
import torch
import torch.nn.functional as F
from torch import nn


class StdConv2d(nn.Conv2d):
    """As in timm: ScaledStdConv2d if it has a gain, else StdConv2d."""

    def __init__(self, channels, out, scaled):
        super().__init__(channels, out, 3, padding=1)
        self.gain = nn.Parameter(torch.rand(out, 1, 1, 1) + 0.5) if scaled else None

    def forward(self, x):
        scale = None if self.gain is None else (self.gain * 0.3).view(-1)
        w = F.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None, weight=scale, training=True,
                         momentum=0.0, eps=1e-6)
        return F.conv2d(x, w.reshape_as(self.weight), self.bias, self.stride, self.padding)


def clean(path):
    model = onnx.load(path)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.save(model, path)


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standardised")
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    net = nn.Sequential(StdConv2d(2, 4, True), nn.GELU(), StdConv2d(4, 4, False), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(4, 3))
    x, label = torch.randn(3, 2, 5, 5), torch.tensor([0, 2, 1])
    training = torch.onnx.TrainingMode.TRAINING
    torch.onnx.export(net, (x,), "script.onnx", dynamo=False, opset_version=17, training=training, do_constant_folding=False,
                      input_names=["x"], output_names=["y"])
    torch.onnx.export(net, (x,), "dynamo.onnx", dynamo=True, opset_version=18, optimize=False, external_data=False,
                      input_names=["x"], output_names=["y"])
    for path in ("script.onnx", "dynamo.onnx"):
        clean(path)
    net, wide = net.double(), x.double()
    loss = F.cross_entropy(net(wide), label)
    loss.backward()
    rows = [("x", x), ("label", label), ("loss", loss)] + [(n, p.grad) for n, p in net.named_parameters()]
    with open("gradients.txt", "w") as out:
        for name, values in rows:
            cells = values.detach().flatten().tolist()
            out.write(f"{name} {len(cells)} " + " ".join(f"{v:.9g}" for v in cells) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
