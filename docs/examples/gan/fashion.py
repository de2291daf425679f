#!/usr/bin/env python3
"""The models of fashion.recipe, noise, and a picture of samples (docs/recipe.md).

usage: fashion.py models            writes fashion_generator.onnx and fashion_discriminator.onnx (with PyTorch)
       fashion.py noise FILE.npy    writes noise for 64 samples
       fashion.py grid FILE.npz FILE.png    writes the samples output/fake as a picture
"""
import sys

import numpy as np

NOISE, SAMPLES, SIDE, PIXELS = 64, 64, 8, 28


def write_models():
    import torch
    from torch import nn

    torch.manual_seed(1)
    generator = nn.Sequential(
        nn.Unflatten(1, (NOISE, 1, 1)),
        nn.ConvTranspose2d(NOISE, 128, 7, bias=False), nn.BatchNorm2d(128), nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 1, 4, 2, 1), nn.Tanh())
    discriminator = nn.Sequential(
        nn.Conv2d(1, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(128 * 49, 1))
    for layer in list(generator) + list(discriminator):
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(layer.weight, 0, 0.02)
    for model, name, inputs, shape in ((generator, "generator", "noise", (2, NOISE)),
                                       (discriminator, "discriminator", "image", (2, 1, PIXELS, PIXELS))):
        torch.onnx.export(model, torch.zeros(shape), f"fashion_{name}.onnx", input_names=[inputs], output_names=["y"],
                          dynamic_axes={inputs: {0: "N"}, "y": {0: "N"}}, dynamo=False, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, opset_version=17)


def write_noise(path):
    np.save(path, np.random.default_rng(7).standard_normal((SAMPLES, NOISE)).astype(np.float32))


def write_grid(samples, path):
    from PIL import Image

    x = np.load(samples)["output/fake"].reshape(SIDE, SIDE, PIXELS, PIXELS)
    x = x.transpose(0, 2, 1, 3).reshape(SIDE * PIXELS, SIDE * PIXELS)
    Image.fromarray(255 - ((x + 1) * 127.5).clip(0, 255).astype(np.uint8)).save(path, optimize=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["models"]:
        write_models()
    elif sys.argv[1:2] == ["noise"] and len(sys.argv) == 3:
        write_noise(sys.argv[2])
    elif sys.argv[1:2] == ["grid"] and len(sys.argv) == 4:
        write_grid(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
