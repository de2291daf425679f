#!/usr/bin/env python3
"""Writes the language model of tests/train/language and its text into FOLDER.

script.onnx, dynamo.onnx  a GPT of 1M parameters over characters, from both exporters of torch
train.npz, valid.npz      windows of 128 characters (tokens, i64) and the characters that follow them (label) from the
                          licences in /usr/share/common-licenses (package base-files): every tenth block of 2561
                          characters is validation, training windows begin at every 32nd character of the others

Needs torch 2.5 or later, onnxscript and numpy.

usage: make_gpt.py FOLDER
"""
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, LENGTH = 4, 144, 4, 128
BLOCK = 20 * LENGTH + 1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.token, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters, bias=False)
        self.apply(self.initialise)
        for block in self.blocks:
            for last in (block.out, block.fc2):
                nn.init.normal_(last.weight, std=0.02 / (2 * LAYERS) ** 0.5)

    @staticmethod
    def initialise(module):
        """The initial weights of GPT-2."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def write_windows(path, blocks, step):
    starts = [(b, i) for b in blocks for i in range(0, len(b) - LENGTH, step)]
    np.savez(path, tokens=np.stack([b[i:i + LENGTH] for b, i in starts]),
             label=np.stack([b[i + 1:i + LENGTH + 1] for b, i in starts]))
    return len(starts)


def write_text(folder):
    """Returns the number of different characters."""
    files = sorted(f for f in Path("/usr/share/common-licenses").iterdir() if not f.is_symlink())
    text = "".join(f.read_text(encoding="utf-8", errors="replace") for f in files)
    characters = sorted(set(text))
    number = {c: i for i, c in enumerate(characters)}
    codes = np.array([number[c] for c in text], np.int64)
    blocks = [codes[i:i + BLOCK] for i in range(0, len(codes) - LENGTH, BLOCK)]
    valid = write_windows(folder / "valid.npz", blocks[9::10], LENGTH)
    train = write_windows(folder / "train.npz", [b for i, b in enumerate(blocks) if i % 10 != 9], 32)
    print(f"{len(files)} files, {len(text)} characters, {len(characters)} different; "
          f"{train} windows of {LENGTH}, {valid} for validation")
    return len(characters)


def write_models(folder, characters):
    torch.manual_seed(1)
    model = Model(characters)
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    tokens = torch.zeros(2, LENGTH, dtype=torch.int64)
    names = {"input_names": ["tokens"], "output_names": ["scores"]}
    torch.onnx.export(model, (tokens,), folder / "script.onnx", dynamo=False, do_constant_folding=False,
                      dynamic_axes={"tokens": {0: "N"}}, opset_version=17, training=torch.onnx.TrainingMode.TRAINING, **names)
    torch.onnx.export(model, (tokens,), folder / "dynamo.onnx", dynamo=True, optimize=False, external_data=False,
                      dynamic_shapes={"tokens": {0: torch.export.Dim("N")}}, **names)


if len(sys.argv) != 2:
    sys.exit(__doc__)
target = Path(sys.argv[1])
target.mkdir(parents=True, exist_ok=True)
write_models(target, write_text(target))
