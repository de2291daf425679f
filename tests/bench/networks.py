"""The networks of tools/bench, as PyTorch modules: those compared with onnxruntime (`infer`) and PyTorch (`train`), and
those whose memory is planned (`memory`).

INFER   name: (build, batch sizes, iterations of a run)
TRAIN   name: (build, batch sizes, loss, iterations of a run)
MEMORY  likewise, without a loss for inference; of some networks only the length of the sequences differs

build(n) returns the module and its inputs by name for a batch of n. Weights are
random; the statistics of normalisations are those of a batch, as in a trained network, so that activations neither
vanish nor overflow. Needs torch, timm and transformers; nothing is downloaded.
"""
import torch
from torch import nn


class Language(nn.Module):
    """A model of transformers on tokens without padding, with one tensor as its result."""

    def __init__(self, model, field):
        super().__init__()
        self.model, self.field = model, field

    def forward(self, ids):
        y = self.model(ids, attention_mask=torch.ones_like(ids))[self.field]
        return y.flatten(0, 1) if self.field == "logits" else y


def settle(net, inputs):
    """Sets the factors of normalisations at random, and the running statistics to those of one batch."""
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for m in norms:
        m.momentum = 1.0
        nn.init.uniform_(m.weight, 0.5, 1.5)
        nn.init.normal_(m.bias, std=0.1)
    with torch.no_grad():
        net.train()(*inputs)
    for m in norms:
        m.momentum = 0.1
    return net


def vision(name, size):
    def build(n):
        import timm
        net = timm.create_model(name, pretrained=False)
        settle(net, [torch.randn(4, 3, size, size)])
        return net, {"x": torch.randn(n, 3, size, size)}
    return build


def bert(n):
    from transformers import BertConfig, BertModel
    net = BertModel(BertConfig(attn_implementation="eager"))
    return Language(net, "last_hidden_state"), {"ids": torch.randint(0, 8192, (n, 128))}


def gpt2(n):
    from transformers import GPT2Config, GPT2Model
    net = GPT2Model(GPT2Config(attn_implementation="eager", use_cache=False))
    return Language(net, "last_hidden_state"), {"ids": torch.randint(0, 8192, (n, 64))}


INFER = {
    "resnet18 64": (vision("resnet18", 64), (1, 8), 60),
    "resnet50 64": (vision("resnet50", 64), (1,), 40),
    "mobilenet_v2 64": (vision("mobilenetv2_100", 64), (1, 8), 100),
    "efficientnet_b0 64": (vision("efficientnet_b0", 64), (1, 8), 100),
    "densenet121 64": (vision("densenet121", 64), (1,), 60),
    "convnext_tiny 64": (vision("convnext_tiny", 64), (1,), 30),
    "resnet50 224": (vision("resnet50", 224), (1,), 12),
    "vit_b_16 224": (vision("vit_base_patch16_224", 224), (1,), 5),
    "BERT-base 128": (bert, (1, 8), 5),
    "GPT-2 64": (gpt2, (1,), 8),
}


def quickstart(n):
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 64, 5), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10))
    return net, {"x": torch.randn(n, 1, 28, 28)}


def mlp(n, width=1024, layers=3):
    parts = [p for _ in range(layers - 1) for p in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(width, width)), {"x": torch.randn(n, width)}


def wide_mlp(n):
    return mlp(n, 4096)


def ffn(n):
    return nn.Sequential(nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768)), {"x": torch.randn(n, 768)}


def encoder(n):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, activation="gelu", batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head = nn.Linear(256, 10)

        def forward(self, x):
            return self.head(self.layers(x).mean(1))
    return Encoder(), {"x": torch.randn(n, 64, 256)}


def gpt_of(length, **sizes):
    def build(n):
        from transformers import GPT2Config, GPT2LMHeadModel
        config = GPT2Config(**{"vocab_size": 8192, "n_embd": 256, "n_layer": 4, "n_head": 4, **sizes}, n_positions=length,
                            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager", use_cache=False)
        return Language(GPT2LMHeadModel(config), "logits"), {"ids": torch.randint(0, config.vocab_size, (n, length))}
    return build


gpt = gpt_of(128)


def gpt2_of(length):
    """Two layers of GPT-2, without its vocabulary: more layers use the same memory again."""
    return gpt_of(length, vocab_size=64, n_embd=768, n_layer=2, n_head=12)


def lstm(units, steps):
    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(units, units, num_layers=2, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0]

    def build(n):
        return Lstm(), {"x": torch.randn(n, steps, units)}
    return build


TRAIN = {
    "quickstart": (quickstart, (64,), "ce", 40),
    "MLP 3 x 1024": (mlp, (256,), "mse", 20),
    "resnet18 64": (vision("resnet18", 64), (8,), "ce", 8),
    "mobilenet_v2 64": (vision("mobilenetv2_100", 64), (8,), "ce", 12),
    "encoder 4 x 256": (encoder, (16,), "ce", 6),
    "GPT 4 x 256": (gpt, (4,), "ce", 6),
    "FFN 768-3072-768": (ffn, (512,), "mse", 8),
    "LSTM 2 x 256": (lstm(256, 64), (16,), "mse", 15),
}

MEMORY = {f"GPT-2 {length}": (gpt2_of(length), (1,), None, 2) for length in (256, 1024, 4096)}
MEMORY |= {f"GPT 4 x 256 {length}": (gpt_of(length), (1,), "ce", 2) for length in (512, 1024, 2048)}
