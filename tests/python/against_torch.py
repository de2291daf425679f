#!/usr/bin/env python3
"""ampc.from_torch against PyTorch: 20 steps, the weights that are written back, and predictions, for small networks.

usage: tests/python/against_torch.py [NAME]..     default: all networks
AMPC_BUILD: the folder of the built library, default build/check-release

For each network: copy_to right after from_torch changes no bit; the losses of 20 steps are those of PyTorch with the
same optimizer (1e-4); so are the weights and buffers that copy_to writes (1e-3 of the norm of a tensor); the network with them computes what the trainer predicts (1e-5 of the largest
output). Batches have another size than the example; the last one has one sample. Column `largest`: the tensor that
differs most. Run it by hand: it takes minutes, and needs torch, onnxscript, timm and transformers.
"""
import copy
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("AMPC_BUILD", ROOT / "build" / "check-release"))
os.environ.setdefault("AMPC_LIBRARY", str(BUILD / "libampc.so"))
sys.path.insert(0, str(ROOT / "tools" / "python"))

import numpy as np
import torch
from torch import nn

import ampc
from ampc._torch import leaves

STEPS, CLASSES = 20, 5
LOSSES, WEIGHTS, OUTPUTS = 1e-4, 1e-3, 1e-5
OPTIMIZERS = {
    "momentum": ("momentum,lr=0.02,momentum=0.9", lambda p: torch.optim.SGD(p, 0.02, momentum=0.9)),
    "slow": ("momentum,lr=0.002,momentum=0.9", lambda p: torch.optim.SGD(p, 0.002, momentum=0.9)),
    "adam": ("adam,lr=1e-3,eps=1e-4", lambda p: torch.optim.Adam(p, 1e-3, eps=1e-4)),
    "adamw": ("adamw,lr=1e-3,weight_decay=0.1,eps=1e-4",
              lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1, eps=1e-4)),
}


def images(size=16, channels=3):
    return lambda n: {"x": torch.randn(n, channels, size, size), "label": torch.randint(0, CLASSES, (n,))}


def series(n):
    return {"x": torch.randn(n, 7, 6), "label": torch.randint(0, CLASSES, (n,))}


def tokens(n, length=9, vocabulary=40):
    return {"x": torch.randint(0, vocabulary, (n, length)), "label": torch.randint(0, CLASSES, (n,))}


def padded(n, length=12, vocabulary=64):
    ids = torch.randint(0, vocabulary, (n, length))
    mask = (torch.arange(length)[None] < torch.randint(4, length + 1, (n, 1))).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": ids.where(mask > 0, -100)}


def sentences(n):
    return {k: v for k, v in padded(n).items() if k != "labels"} | {"label": torch.randint(0, CLASSES, (n,))}


class Block(nn.Module):
    def __init__(self, a, b, stride=1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                                  nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b))
        self.short = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)) if a != b else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class Recurrent(nn.Module):
    def __init__(self, kind, **how):
        super().__init__()
        self.cell = kind(6, 8, batch_first=True, **how)
        self.head = nn.Linear(16 if how.get("bidirectional") else 8, CLASSES)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU())
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.head = nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 3, 1))

    def forward(self, x):
        first = self.down(x)
        return self.head(torch.cat([self.up(self.middle(first)), first], 1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 12)
        self.mix = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, 40, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.norm(self.mix(self.embed(x)))).transpose(1, 2)


class Standardised(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        mean, var = w.mean((1, 2, 3), keepdim=True), w.var((1, 2, 3), keepdim=True, unbiased=False)
        return nn.functional.conv2d(x, (w - mean) / (var + 1e-5).sqrt(), self.bias, self.stride, self.padding)


class Pair(nn.Module):
    """Nested outputs, a tensor of numbers as a buffer, and a parameter that no output uses."""

    def __init__(self):
        super().__init__()
        self.body, self.a, self.b = nn.Linear(6, 8), nn.Linear(8, CLASSES), nn.Linear(8, 2)
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.arange(8) / 8)

    def forward(self, x):
        h = torch.tanh(self.body(x.mean(1)) + self.shift)
        return {"logits": self.a(h) + self.b(h).mean(), "more": (self.b(h), h)}


def timm_model(name, **how):
    import timm
    return timm.create_model(name, pretrained=False, num_classes=CLASSES, **how)


def hugging(name, **how):
    import transformers
    config = {"GPT2LMHeadModel": "GPT2Config", "LlamaForCausalLM": "LlamaConfig",
              "BertForSequenceClassification": "BertConfig"}[name]
    return getattr(transformers, name)(getattr(transformers, config)(vocab_size=64, **how))


def cnn():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
                        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, CLASSES))
    nn.init.zeros_(net[0].bias)
    nn.init.zeros_(net[3].bias)
    return net


def frozen():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, CLASSES))
    for p in (*net[0].parameters(), net[3].weight, net[8].bias):
        p.requires_grad = False
    return net


def parametrised():
    net = nn.Sequential(nn.Flatten(), nn.Linear(42, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    nn.utils.parametrizations.weight_norm(net[1])
    return net


# name: module, batch of n samples, optimizer, loss of the trainer, loss of PyTorch
CE = ("ce", lambda y, b: nn.functional.cross_entropy(y, b["label"]))
INSIDE = (None, lambda y, b: y.loss)
LOGITS = ("ce:logits", lambda y, b: nn.functional.cross_entropy(y["logits"], b["label"]))
SAME = ("mse", lambda y, b: nn.functional.mse_loss(y, b["label"]))
GPT = dict(bos_token_id=1, eos_token_id=2, n_embd=32, n_layer=2, n_head=4, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=16)
BERT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=16,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=CLASSES, pad_token_id=None)
NETWORKS = {
    "cnn": (cnn, images(), "momentum", CE),
    "resnet": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8, 8),
                                     Block(8, 16, 2), Block(16, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                     nn.Linear(16, CLASSES)), images(), "momentum", CE),
    "vit": (lambda: timm_model("vit_tiny_patch16_224", img_size=16, patch_size=4, embed_dim=24, depth=2, num_heads=3),
            images(), "adamw", CE),
    "gpt2": (lambda: hugging("GPT2LMHeadModel", **GPT), padded, "adamw", INSIDE),
    "llama": (lambda: hugging("LlamaForCausalLM", **LLAMA), padded, "adamw", INSIDE),
    "bert": (lambda: hugging("BertForSequenceClassification", **BERT), sentences, "adamw", LOGITS),
    "lstm": (lambda: Recurrent(nn.LSTM), series, "adam", CE),
    "lstm-two": (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), series, "momentum", CE),
    "gru": (lambda: Recurrent(nn.GRU, num_layers=2), series, "adam", CE),
    "rnn": (lambda: Recurrent(nn.RNN), series, "momentum", CE),
    "unet": (UNet, lambda n: {"x": torch.randn(n, 3, 8, 8), "label": torch.randn(n, 3, 8, 8)}, "adam", SAME),
    "convnext": (lambda: timm_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 24)), images(32), "adamw", CE),
    "mixer": (lambda: timm_model("mixer_s32_224", img_size=64), images(64), "adam", CE),
    "mobilenet": (lambda: timm_model("mobilenetv3_small_050"), images(64),
                     "slow", CE),
    "tied": (Tied, lambda n: {"x": torch.randint(0, 40, (n, 9)), "label": torch.randint(0, 40, (n, 9))}, "momentum", CE),
    "standardised": (lambda: nn.Sequential(Standardised(3, 8, 3), nn.GroupNorm(4, 8), nn.ReLU(), Standardised(8, 8, 3), nn.ReLU(),
                                           nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES)),
                     images(), "momentum", CE),
    "weight-norm": (parametrised, series, "adam", CE),
    "frozen": (frozen, images(), "adamw", CE),
    "nested": (Pair, series, "adamw", LOGITS),
}


def relative(found, expected):
    """Norm of the difference, relative to that of the tensor; a bias before a BatchNormalization stays near 0."""
    found, expected = (np.asarray(t.detach().double()) for t in (found, expected))
    size = max(np.linalg.norm(expected), 1e-4 * expected.size**0.5)
    return np.linalg.norm(found - expected) / size


def compare(name, **how):
    make, batch, optimizer, (loss, expected_loss) = NETWORKS[name]
    torch.manual_seed(1)
    net = make().train()
    initial = {k: v.clone() for k, v in net.state_dict().items()}
    example = {k: v for k, v in batch(3).items() if k != "label"}
    settings, torch_optimizer = OPTIMIZERS[optimizer]
    sequential = isinstance(net, nn.Sequential)
    trainer = ampc.from_torch(net, example["x"] if sequential else example, loss=loss, optimizer=settings, threads=1,
                              **how)
    rename = {"x": trainer.inputs[0].name} if sequential else {}

    def given(data):
        return {rename.get(k, k): v for k, v in data.items()}

    trainer.copy_to(net)
    same = all(torch.equal(v, initial[k]) for k, v in net.state_dict().items())
    reference, data = copy.deepcopy(net), [batch(n) for n in [6] * (STEPS - 1) + [3]]
    found = [trainer.step(given(b)).loss for b in data]
    update, expected = torch_optimizer([p for p in reference.parameters() if p.requires_grad]), []
    for b in data:
        value = expected_loss(reference(b["x"]) if sequential else
                              reference(**{k: v for k, v in b.items() if k != "label"}), b)
        update.zero_grad()
        value.backward()
        update.step()
        expected.append(value.item())
    losses = max(abs(a - e) / abs(e) for a, e in zip(found, expected))
    trainer.copy_to(net)
    trained, mine = reference.state_dict(), net.state_dict()
    assert list(trainer.state_dict()) == list(trained)
    off = {k: relative(mine[k], trained[k]) for k in trained if trained[k].is_floating_point()}
    off.update({k: float(not torch.equal(mine[k], trained[k])) for k in trained if k not in off})
    worst = max(off, key=off.get)
    net.eval()
    wrong = 0.0
    for n in (1, 5):
        data = {k: v for k, v in batch(n).items() if k != "label"}
        with torch.no_grad():
            outs = dict(leaves(net(data["x"]) if sequential else net(**data)))
        for key, value in trainer.predict(**given(data)).items():
            out = outs[key]
            wrong = max(wrong, float(np.abs(value - out.numpy()).max() / max(np.abs(out.numpy()).max(), 1e-3)))
    return same, losses, off[worst], worst, wrong


def main():
    torch.set_num_threads(1)
    bad = 0
    print(f"{'network':14} {'optimizer':9} identity   losses  weights  outputs  largest")
    for name in sys.argv[1:] or NETWORKS:
        try:
            same, losses, weights, worst, wrong = compare(name)
        except Exception as error:  # the table goes on
            bad += 1
            print(f"{name:14} {type(error).__name__}: {error}", flush=True)
            continue
        ok = same and losses <= LOSSES and weights <= WEIGHTS and wrong <= OUTPUTS
        bad += not ok
        print(f"{name:14} {NETWORKS[name][2]:9} {'yes' if same else 'NO':8} {losses:8.0e} {weights:8.0e} {wrong:8.0e}  "
              f"{worst}{'' if ok else '  WRONG'}", flush=True)
    print(f"{bad} of {len(sys.argv[1:] or NETWORKS)} wrong")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
