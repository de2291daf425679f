#!/usr/bin/env python3
"""Exports the networks that tools/bench converts as AutoCast does, with both exporters of PyTorch, unless the files exist.

Writes NAME.onnx and NAME.npz (SAMPLES inputs each, stacked) and prints the names in order as JSON. Weights and data are
random and seeded; see networks.py. Needs torch, torchvision, timm and transformers; nothing is downloaded.

usage: export_autocast.py FOLDER [PATTERN]      PATTERN: only names that contain it
"""
import json
import os
import sys
import warnings
from pathlib import Path

import networks
import numpy as np
import torch
from torch import nn

SAMPLES = 4


def image(size, channels=3, batch=1):
    return lambda: {"x": torch.randn(batch, channels, size, size)}


def tokens(length, vocabulary=1024):
    return lambda: {"ids": torch.randint(0, vocabulary, (1, length))}


def timm_model(name, size, **options):
    def build():
        import timm
        net = networks.settle(timm.create_model(name, pretrained=False, **options), [torch.randn(4, 3, size, size)])
        head = net.get_classifier()
        if isinstance(head, nn.Linear) and not head.weight.any():  # some are zero before training
            nn.init.normal_(head.weight, std=0.02)
        return net
    return build, image(size)


def torchvision_model(name, size, result=None, **options):
    class Chosen(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x)[result]

    def build():
        import torchvision
        net = torchvision.models.get_model(name, weights=None, **options)
        networks.settle(net, [torch.randn(4, 3, size, size)])
        return Chosen(net) if result else net
    return build, image(size)


def language(config, model, field="last_hidden_state", length=64, **options):
    def build():
        import transformers
        net = getattr(transformers, model)(getattr(transformers, config)(attn_implementation="eager", **options))
        return networks.Language(net, field)
    return build, tokens(length)


BERT = {"vocab_size": 1024, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
GPT2 = {"vocab_size": 1024, "n_embd": 256, "n_layer": 4, "n_head": 4, "use_cache": False}
LLAMA = {"vocab_size": 1024, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 4, "use_cache": False}
T5 = {"vocab_size": 1024, "d_model": 256, "d_kv": 32, "d_ff": 1024, "num_layers": 4, "num_heads": 8}


class Double(nn.Sequential):
    """Two convolutions of a U-Net with their norms."""

    def __init__(self, old, new, norm):
        super().__init__(nn.Conv2d(old, new, 3, padding=1), norm(new), nn.SiLU(),
                         nn.Conv2d(new, new, 3, padding=1), norm(new), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, norm=nn.BatchNorm2d, attention=False, learned=True):
        super().__init__()
        widths = [16, 32, 64, 128]
        self.down = nn.ModuleList([Double(a, b, norm) for a, b in zip([3, *widths], widths)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, stride=2) if learned else
                                 nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2 * w, w, 1))
                                 for w in widths[-2::-1]])
        self.join = nn.ModuleList([Double(2 * w, w, norm) for w in widths[-2::-1]])
        self.attention = nn.MultiheadAttention(widths[-1], 4, batch_first=True) if attention else None
        self.head = nn.Conv2d(widths[0], 4, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        if self.attention:
            rows = x.flatten(2).transpose(1, 2)
            x = x + self.attention(rows, rows, rows, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        for i, (up, join) in enumerate(zip(self.up, self.join)):
            x = join(torch.cat([up(x), kept[-2 - i]], 1))
        return self.head(x)


def unet(**options):
    return lambda: networks.settle(UNet(**options), [torch.randn(4, 3, 64, 64)]), image(64)


def groups(width):
    return nn.GroupNorm(8, width)


class Recurrent(nn.Module):
    """A tagger: embedding, two recurrent layers, linear."""

    def __init__(self, kind, both):
        super().__init__()
        self.embed = nn.Embedding(1024, 128)
        self.layers = kind(128, 128, num_layers=2, bidirectional=both, batch_first=True)
        self.head = nn.Linear(256 if both else 128, 16)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids))[0])


def recurrent(kind, both=False):
    return lambda: Recurrent(kind, both), tokens(32)


def plain(build, **shape):
    return lambda: build(1)[0], lambda: {"x": torch.randn(*shape["of"])}


def vgg():
    import torchvision
    features = torchvision.models.vgg11_bn(weights=None, num_classes=1).features
    net = nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return networks.settle(net, [torch.randn(4, 3, 64, 64)])


def speech():
    def build():
        import transformers
        config = transformers.WhisperConfig(
            d_model=128, encoder_layers=3, encoder_attention_heads=4, encoder_ffn_dim=512, max_source_positions=100,
            num_mel_bins=40, attn_implementation="eager")

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = transformers.models.whisper.modeling_whisper.WhisperEncoder(config)

            def forward(self, x):
                return self.net(x).last_hidden_state
        return Encoder()
    return build, lambda: {"x": torch.randn(1, 40, 200)}


# name: (build and draw, exporters)
NETWORKS = {
    "resnet18": (timm_model("resnet18", 96), "legacy dynamo"),
    "resnet50": (timm_model("resnet50", 96), "dynamo"),
    "resnext50": (timm_model("resnext50_32x4d", 96), "legacy"),
    "mobilenet_v2": (timm_model("mobilenetv2_100", 96), "legacy"),
    "mobilenet_v3_large": (timm_model("mobilenetv3_large_100", 96), "dynamo"),
    "mobilenet_v3_small": (torchvision_model("mobilenet_v3_small", 96), "legacy"),
    "efficientnet_b0": (timm_model("efficientnet_b0", 96), "legacy dynamo"),
    "densenet121": (timm_model("densenet121", 96), "legacy"),
    "regnetx_004": (timm_model("regnetx_004", 96), "dynamo"),
    "regnety_004": (timm_model("regnety_004", 96), "legacy"),
    "convnext_atto": (timm_model("convnext_atto", 96), "legacy dynamo"),
    "vgg11": ((vgg, image(64)), "legacy"),
    "squeezenet": (torchvision_model("squeezenet1_1", 96), "legacy"),
    "shufflenet_v2": (torchvision_model("shufflenet_v2_x1_0", 96), "dynamo"),
    "deeplab_v3": (torchvision_model("deeplabv3_mobilenet_v3_large", 96, "out", weights_backbone=None), "legacy"),
    "fcn_resnet50": (torchvision_model("fcn_resnet50", 64, "out", weights_backbone=None), "dynamo"),
    "vit_tiny": (timm_model("vit_tiny_patch16_224", 96, img_size=96), "legacy dynamo"),
    "deit_tiny": (timm_model("deit_tiny_distilled_patch16_224", 96, img_size=96), "legacy"),
    "swin_tiny": (timm_model("swin_tiny_patch4_window7_224", 224), "legacy dynamo"),
    "mixer": (timm_model("mixer_s32_224", 224), "dynamo"),
    "bert": (language("BertConfig", "BertModel", **BERT), "legacy dynamo"),
    "distilbert": (language("DistilBertConfig", "DistilBertModel", vocab_size=1024, dim=256, n_layers=4, n_heads=4,
                            hidden_dim=1024), "dynamo"),
    "roberta": (language("RobertaConfig", "RobertaModel", **BERT), "legacy"),
    "gpt2": (language("GPT2Config", "GPT2LMHeadModel", "logits", **GPT2), "legacy dynamo"),
    "llama": (language("LlamaConfig", "LlamaForCausalLM", "logits", **LLAMA), "legacy dynamo"),
    "t5_encoder": (language("T5Config", "T5EncoderModel", **T5), "legacy dynamo"),
    "whisper_encoder": (speech(), "dynamo"),
    "encoder": (plain(networks.encoder, of=(1, 64, 256)), "legacy"),
    "unet": (unet(), "legacy dynamo"),
    "unet_bilinear": (unet(learned=False), "dynamo"),
    "unet_attention": (unet(norm=groups, attention=True), "dynamo"),
    "lstm": (recurrent(nn.LSTM, both=True), "legacy"),
    "gru": (recurrent(nn.GRU), "legacy dynamo"),
    "mlp": (plain(networks.mlp, of=(8, 1024)), "dynamo"),
}


def export(net, inputs, exporter, path):
    partial = path.with_suffix(".part")
    options = {"opset_version": 17} if exporter == "legacy" else {"external_data": False}
    torch.onnx.export(net.eval(), tuple(inputs.values()), str(partial), dynamo=exporter == "dynamo", input_names=list(inputs),
                      output_names=["y"], verbose=False, **options)
    partial.rename(path)


def write(name, exporter, build, draw, folder):
    path = folder / f"{name}_{exporter}.onnx"
    if not path.exists():
        torch.manual_seed(0)
        net = build().eval()
        samples = [draw() for _ in range(SAMPLES)]
        np.savez(path.with_suffix(".npz"), **{k: np.stack([s[k].numpy() for s in samples]) for k in samples[0]})
        export(net, samples[0], exporter, path)
    return path.stem


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    folder, pattern = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    folder.mkdir(parents=True, exist_ok=True)
    answer = os.dup(1)
    os.dup2(2, 1)  # exporters print
    names = [write(name, exporter, build, draw, folder) for name, ((build, draw), exporters) in NETWORKS.items()
             for exporter in exporters.split() if pattern in f"{name}_{exporter}"]
    os.write(answer, json.dumps(names).encode())
