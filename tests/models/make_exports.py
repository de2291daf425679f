#!/usr/bin/env python3
"""make_exports.py - writes tests/models/exports: one small network, exported by PyTorch in each usual way; and
tests/train/exported: two networks, their data, and what the modules compute in a training in PyTorch.

Needs torch, onnx and onnxscript (written with 2.15.0, 1.23.2 and 0.7.2). tests/unit/test_exported.c knows what each export
does to the network; tests/train/run-train trains the others. Stack traces, which contain paths, are removed from the
files."""
import os
import sys
import warnings

import numpy as np
import onnx
import torch
from torch import nn

TRAINING = torch.onnx.TrainingMode.TRAINING


class Net(nn.Module):
    """Three BatchNormalizations that fold, two that do not and are equal when fresh, a Dropout, a bias of zeros."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(4, 3, 2, stride=2)
        self.bn2 = nn.BatchNorm2d(3)
        self.bn3 = nn.BatchNorm2d(3)
        self.bn4 = nn.BatchNorm2d(3)
        self.fc1 = nn.Linear(3 * 8 * 8, 5)
        self.bn5 = nn.BatchNorm1d(5)
        self.dropout = nn.Dropout(0.5)
        self.fc2 = nn.Linear(5, 3)
        nn.init.zeros_(self.fc2.bias)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv(x)))
        x = torch.relu(self.bn2(self.up(x)))
        x = torch.tanh(self.bn4(torch.tanh(self.bn3(x))))
        x = self.dropout(torch.relu(self.bn5(self.fc1(x.flatten(1)))))
        return self.fc2(x)


class Flat(nn.Module):
    """A view with the batch as a number, which an export with a fixed batch contains."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 4)
        self.fc2 = nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.fc1(x.view(x.shape[0], 6)))
        return self.fc2(x.reshape(x.shape[0], 2, 2).flatten(1))


class Tied(nn.Module):
    """Adds a table of as many rows as the batch of the export: no other batch is possible."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.ones(2, 3))
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x) + self.rows


class Pair(nn.Module):
    """Two inputs of which the exporter does not know that they have the same batch."""

    def __init__(self):
        super().__init__()
        self.left = nn.Linear(4, 3)
        self.right = nn.Linear(5, 3)

    def forward(self, x, z):
        return self.left(x).mean(1), self.right(z).mean(1)


class Normalised(nn.Module):
    """Learns with BatchNormalization, and much less without it. No Dropout, so that its training can be compared."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc1 = nn.Linear(8 * 3 * 3, 16)
        self.bn3 = nn.BatchNorm1d(16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.fc2(torch.relu(self.bn3(self.fc1(x.flatten(1)))))


class Added(nn.Module):
    """Calls with the bias as their first argument. One node loses its bias and reads the weight of the other."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(4, 3))
        self.b1, self.b2 = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return torch.addmm(self.b1, x, self.w1) + torch.addmm(self.b2, torch.tanh(x), self.w2)


class Block(nn.Module):
    """A fresh transformer block. Its LayerNorms are equal, most of its biases are zeros of the same size, and so are what
    the exporter adds to a GroupNorm; the bias of its Conv, which it uses twice, is removed; its embedding is the weight
    of the output."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(24, 16)
        self.positions = nn.Parameter(torch.randn(6, 16) / 8)
        self.n1 = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.project = nn.Linear(16, 16)
        self.n2 = nn.LayerNorm(16)
        self.fc1 = nn.Linear(16, 32)
        self.fc2 = nn.Linear(32, 16)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.groups = nn.GroupNorm(16, 16)
        self.n3 = nn.LayerNorm(16)
        self.out = nn.Linear(16, 24, bias=False)
        self.out.weight = self.tokens.weight
        for layer in (self.qkv, self.project, self.fc1, self.fc2, self.conv):
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = self.tokens(x) + self.positions
        q, k, v = self.qkv(self.n1(x)).view(x.shape[0], 6, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.project(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        x = x + self.fc2(nn.functional.gelu(self.fc1(self.n2(x))))
        x = x + self.groups(self.conv(torch.relu(self.conv(x.transpose(1, 2))))).transpose(1, 2)
        return self.out(self.n3(x)) / 4


def clean(path):
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if "stack_trace" not in p.key]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def export(folder, name, net, shape, train=True, **how):
    torch.manual_seed(1)
    model = net().train(train)
    if how.setdefault("dynamo", True):
        how["external_data"] = False
    path = os.path.join(folder, f"{name}.onnx")
    how.setdefault("input_names", ["x"])
    shapes = shape if isinstance(shape[0], tuple) else (shape,)
    kinds = how.pop("tokens", False)
    inputs = tuple(torch.randint(kinds, s) if kinds else torch.randn(*s) for s in shapes)
    torch.onnx.export(model, inputs, path, verbose=False, output_names=["y"], **how)
    clean(path)


def fit(net, optimizer, batches):
    """Trains with a batch (samples, labels) a step; returns the losses as text."""
    losses = []
    for x, y in batches:
        loss = nn.functional.cross_entropy(net(x).flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(f"{loss.item():.7f}")
    return losses


def train(folder):
    """Trains in PyTorch, as tests/train/run-train does here: 64 steps of 32 samples in the order of the file."""
    numbers = np.random.default_rng(0)
    x = numbers.integers(-4, 5, (256, 1, 6, 6))
    y = (x.reshape(256, 36) @ numbers.standard_normal((36, 4))).argmax(1)
    x = (x / 4 + 2).astype(np.float32)
    np.savez_compressed(os.path.join(folder, "data.npz"), x=x, y=y.astype(np.int64))
    x, y = torch.tensor(x), torch.tensor(y)
    torch.manual_seed(1)
    net = Normalised().train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses = fit(net, optimizer, 8 * list(zip(x.split(32), y.split(32))))
    right = (net.eval()(x).argmax(1) == y).float().mean().item()
    with open(os.path.join(folder, "module.txt"), "w", encoding="utf-8") as out:
        print("accuracy", right, file=out)
        print("losses", *losses, file=out)


def train_block(folder):
    """32 steps of 4 samples in the order of the file; then the loss of all of them and the names of its tensors."""
    numbers = np.random.default_rng(0)
    x = numbers.integers(0, 24, (128, 6))
    y = (x + np.roll(x, 1, 1)) % 24
    np.savez_compressed(os.path.join(folder, "tokens.npz"), x=x, y=y)
    x, y = torch.tensor(x), torch.tensor(y)
    torch.manual_seed(1)
    net = Block().train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.01)
    losses = fit(net, optimizer, zip(x.split(4), y.split(4)))
    with torch.no_grad():
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten()).item()
    with open(os.path.join(folder, "block.txt"), "w", encoding="utf-8") as out:
        print("loss", loss, file=out)
        print("losses", *losses, file=out)
        print("names", *(name for name, _ in net.named_parameters()), file=out)


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "exports")
    warnings.filterwarnings("ignore")
    batch = {0: "batch"}
    image, row = (4, 1, 4, 4), (1, 2, 3)
    export(folder, "dynamo", Net, image)
    export(folder, "dynamo-eval", Net, image, train=False)
    export(folder, "dynamo-whole", Net, image, optimize=False, dynamic_shapes=({0: torch.export.Dim("batch")},))
    export(folder, "script-eval", Net, image, train=False, dynamo=False)
    export(folder, "script-whole", Net, image, dynamo=False, training=TRAINING, do_constant_folding=False,
           dynamic_axes={"x": batch, "y": batch})
    export(folder, "fixed-dynamo", Flat, row)
    export(folder, "fixed-script", Flat, row, dynamo=False)
    export(folder, "fixed-table", Tied, (2, 4))
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    export(folder, "symbols", Pair, ((2, 3, 4), (2, 7, 5)), input_names=["x", "z"], dynamic_shapes=(free, free))
    export(folder, "addmm", Added, (2, 4))
    folder = os.path.join(os.path.dirname(folder), "../train/exported")
    image = (4, 1, 6, 6)
    export(folder, "dynamo-whole", Normalised, image, optimize=False, dynamic_shapes=({0: "batch"},))
    export(folder, "script-whole", Normalised, image, dynamo=False, training=TRAINING, do_constant_folding=False,
           dynamic_axes={"x": batch})
    export(folder, "folded", Normalised, image, dynamic_shapes=({0: "batch"},))
    train(folder)
    export(folder, "block", Block, (4, 6), tokens=24, dynamic_shapes=({0: "batch"},))
    train_block(folder)


if __name__ == "__main__":
    sys.exit(main())
