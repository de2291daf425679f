"""The models of tests/models/make_zoo.py: library classes with tiny configurations where a library has the class,
otherwise short definitions. Each has random weights and fewer than 50,000 parameters.

An entry of MODELS is a function that returns (module, inputs); inputs are a tuple of tensors.
"""
import contextlib
import math
from functools import partial

import timm
import torch
import torch.nn.functional as F
import torchvision.models as tv
import torchvision.ops as tv_ops
import transformers as hf
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

MODELS = {}


def model(function):
    """Adds the function to MODELS under its name, with '-' for '_'."""
    MODELS[function.__name__.replace("_", "-")] = function
    return function


@contextlib.contextmanager
def thin(factor):
    """Within this context, convolutions, batch norms and linear layers have 1/factor of the channels asked for."""
    kept = []

    def patch(cls, *positions):
        init = cls.__init__

        def thinner(self, *args, **kwargs):
            args = [max(1, a // factor) if i in positions and a > 3 else a for i, a in enumerate(args)]
            for name in ("in_channels", "out_channels", "num_features", "in_features", "out_features"):
                if kwargs.get(name, 0) > 3:
                    kwargs[name] = max(1, kwargs[name] // factor)
            if len(args) > 1 and kwargs.get("groups", 1) > 1 and kwargs["groups"] >= factor:
                kwargs["groups"] //= factor
            init(self, *args, **kwargs)

        kept.append((cls, init))
        cls.__init__ = thinner

    patch(nn.Conv2d, 0, 1)
    patch(nn.BatchNorm2d, 0)
    patch(nn.Linear, 0, 1)
    try:
        yield
    finally:
        for cls, init in kept:
            cls.__init__ = init


def image(size=64, batch=2, channels=3):
    """A batch of random images, whose values compress well."""
    return (torch.randn(batch, channels, size, size) * 8).round() / 8


def ids(vocabulary=60, batch=2, length=12):
    """A batch of random token numbers."""
    return torch.randint(1, vocabulary, (batch, length))


class Call(nn.Module):
    """Calls a library model with one input of that name."""

    def __init__(self, inner, name, result, **options):
        super().__init__()
        self.inner, self.name, self.result, self.options = inner, name, result, options

    def forward(self, x):
        return getattr(self.inner(**{self.name: x}, **self.options), self.result)


# ---- images: torchvision ---------------------------------------------------------------------------------------------


@model
def resnet():
    with thin(16):
        return tv.resnet18(num_classes=160), (image(),)


@model
def mobilenet_v3():
    with thin(8):
        return tv.mobilenet_v3_small(num_classes=80), (image(),)


@model
def efficientnet():
    with thin(8):
        return tv.EfficientNet(tv.efficientnet._efficientnet_conf("efficientnet_b0", width_mult=0.5, depth_mult=0.4)[0],
                               dropout=0.2, last_channel=128, num_classes=80), (image(),)


@model
def densenet():
    return tv.DenseNet(growth_rate=4, block_config=(2, 3, 2, 2), num_init_features=8, num_classes=10), (image(),)


@model
def convnext():
    blocks = [tv.convnext.CNBlockConfig(*b) for b in ((8, 16, 1), (16, 24, 1), (24, 32, 2), (32, None, 1))]
    return tv.ConvNeXt(blocks, num_classes=10), (image(),)


@model
def inception():
    with thin(32):
        return tv.inception_v3(num_classes=320, aux_logits=False, init_weights=False, transform_input=True), (image(96),)


@model
def regnet():
    blocks = tv.regnet.BlockParams.from_init_params(depth=5, w_0=16, w_a=8.0, w_m=2.0, group_width=8, se_ratio=0.25)
    return tv.RegNet(blocks, num_classes=10, stem_width=8), (image(),)


@model
def deeplab_v3():
    with thin(32):
        inner = tv.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=96)
    return DeepLab(inner), (image(),)


class DeepLab(nn.Module):
    """Returns the scores of the segmentation."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)["out"]


@model
def resnetv2():
    """Standardised weights and group norms before convolutions."""
    norm = partial(timm.layers.GroupNormAct, num_groups=4)
    return timm.models.resnetv2.ResNetV2([1, 1, 1, 1], [16, 16, 32, 32], num_classes=10, stem_chs=8, stem_type="fixed",
                                         norm_layer=norm, zero_init_last=False), (image(32),)


@model
def vit():
    return tv.VisionTransformer(32, 8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=10), (image(32),)


@model
def swin():
    return tv.SwinTransformer([4, 4], 12, [2, 2], [2, 2], [4, 4], num_classes=10), (image(32),)


# ---- images: short definitions ---------------------------------------------------------------------------------------


def conv(i, o, stride=1):
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class UNet(nn.Module):
    """Two levels down and up again; `up` is how the images grow."""

    def __init__(self, up):
        super().__init__()
        self.enter, self.down, self.middle = conv(3, 8), conv(8, 16, 2), conv(16, 16, 2)
        self.up = up
        self.grow1 = nn.ConvTranspose2d(16, 16, 2, 2) if up == "transposed" else None
        self.grow2 = nn.ConvTranspose2d(8, 8, 2, 2) if up == "transposed" else None
        self.merge1, self.merge2, self.leave = conv(32, 8), conv(16, 8), nn.Conv2d(8, 2, 1)

    def larger(self, x, grow, like):
        if grow is not None:
            return grow(x)
        corners = {} if self.up == "nearest" else {"align_corners": self.up == "corners"}
        return F.interpolate(x, size=like.shape[2:], mode="nearest" if self.up == "nearest" else "bilinear", **corners)

    def forward(self, x):
        a = self.enter(x)
        b = self.down(a)
        c = self.middle(b)
        d = self.merge1(torch.cat([self.larger(c, self.grow1, b), b], 1))
        return self.leave(self.merge2(torch.cat([self.larger(d, self.grow2, a), a], 1)))


@model
def unet_nearest():
    return UNet("nearest"), (image(32),)


@model
def unet_bilinear():
    return UNet("bilinear"), (image(32),)


@model
def unet_transposed():
    return UNet("transposed"), (image(32),)


class Yolo(nn.Module):
    """One-stage detection: SiLU blocks, spatial pyramid of max pools, two scales, boxes from a grid."""

    def __init__(self):
        super().__init__()
        block = lambda i, o, s=1: nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU())
        self.stem, self.a, self.b = block(3, 8, 2), block(8, 16, 2), block(16, 24, 2)
        self.mix = block(96, 24)
        self.merge = block(40, 16)
        self.heads = nn.ModuleList([nn.Conv2d(16, 3 * 7, 1), nn.Conv2d(24, 3 * 7, 1)])
        self.register_buffer("anchors", torch.rand(2, 3, 2) + 0.5)

    def boxes(self, k, x, stride):
        n, _, h, w = x.shape
        y = self.heads[k](x).view(n, 3, 7, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((columns, rows), 2).view(1, 1, h, w, 2).to(x.dtype)
        centre, size, score = y.split((2, 2, 3), 4)
        centre = (centre * 2 - 0.5 + grid) * stride
        size = (size * 2) ** 2 * self.anchors[k].view(1, 3, 1, 1, 2)
        return torch.cat((centre, size, score), 4).view(n, -1, 7)

    def forward(self, x):
        a = self.a(self.stem(x))
        b = self.b(a)
        pools = [b]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        b = self.mix(torch.cat(pools, 1))
        a = self.merge(torch.cat((F.interpolate(b, scale_factor=2.0), a), 1))
        return torch.cat((self.boxes(0, a, 4), self.boxes(1, b, 8)), 1)


@model
def yolo():
    return Yolo(), (image(),)


class Esrgan(nn.Module):
    """Dense residual blocks with leaky ReLU; then nearest and shuffled enlargement."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, 1, 1)
        self.dense = nn.ModuleList([nn.Conv2d(8 + 4 * i, 4, 3, 1, 1) for i in range(3)])
        self.close, self.up, self.leave = nn.Conv2d(20, 8, 3, 1, 1), nn.Conv2d(8, 32, 3, 1, 1), nn.Conv2d(8, 3, 3, 1, 1)

    def forward(self, x):
        x = self.enter(x)
        parts = [x]
        for layer in self.dense:
            parts.append(F.leaky_relu(layer(torch.cat(parts, 1)), 0.2))
        x = x + 0.2 * self.close(torch.cat(parts, 1))
        x = F.leaky_relu(F.interpolate(x, scale_factor=2, mode="nearest"), 0.2)
        return self.leave(F.prelu(F.pixel_shuffle(self.up(x), 2), torch.tensor([0.25], dtype=x.dtype)))


@model
def esrgan():
    return Esrgan(), (image(16),)


@model
def dcgan():
    return nn.Sequential(
        nn.ConvTranspose2d(16, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh(),
        nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 8), nn.Flatten()), (torch.randn(2, 16, 1, 1),)


class Vae(nn.Module):
    """Convolutional variational autoencoder; the noise is an input, so that results can be compared."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ELU(), nn.Flatten(), nn.Linear(8 * 64, 16))
        self.decode = nn.Sequential(nn.Linear(8, 128), nn.ELU(), nn.Unflatten(1, (8, 4, 4)),
                                    nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.ELU(), nn.ConvTranspose2d(4, 1, 4, 2, 1))

    def forward(self, x, noise):
        mean, log_variance = self.encode(x).chunk(2, 1)
        return self.decode(mean + noise * torch.exp(0.5 * log_variance)).sigmoid(), mean, log_variance


@model
def vae():
    return Vae(), (torch.rand(2, 1, 16, 16), torch.randn(2, 8))


class Residual(nn.Module):
    """GroupNorm, SiLU and convolution, with the time added between."""

    def __init__(self, i, o):
        super().__init__()
        self.norm1, self.conv1, self.time = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, 1, 1), nn.Linear(16, o)
        self.norm2, self.conv2 = nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, 1, 1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class DiffusionUNet(nn.Module):
    """Sinusoidal time, residual blocks and attention."""

    def __init__(self):
        super().__init__()
        self.enter, self.time = nn.Conv2d(3, 8, 3, 1, 1), nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.a, self.down, self.b = Residual(8, 8), nn.Conv2d(8, 16, 3, 2, 1), Residual(16, 16)
        self.norm, self.qkv, self.out = nn.GroupNorm(4, 16), nn.Conv1d(16, 48, 1), nn.Conv1d(16, 16, 1)
        self.c, self.leave = Residual(24, 8), nn.Sequential(nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 3, 3, 1, 1))

    def attend(self, x):
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).view(n, c, h * w)).view(n, 3, 2, c // 2, h * w).transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(n, c, h * w)
        return x + self.out(y).view(n, c, h, w)

    def forward(self, x, t):
        rates = torch.exp(torch.arange(4, dtype=x.dtype) * (-math.log(1e4) / 3))
        angle = t[:, None].to(x.dtype) * rates[None]
        t = self.time(torch.cat((angle.sin(), angle.cos()), 1))
        a = self.a(self.enter(x), t)
        b = self.attend(self.b(self.down(a), t))
        return self.leave(self.c(torch.cat((a, F.interpolate(b, scale_factor=2, mode="nearest")), 1), t))


@model
def diffusion_unet():
    return DiffusionUNet(), (image(16), torch.tensor([3, 250]))


# ---- text: transformers ----------------------------------------------------------------------------------------------

SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
         "max_position_embeddings": 40}


def masked_ids():
    """Token numbers and an attention mask that pads the second sequence."""
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 9:] = 0
    return ids(), mask


class Text(nn.Module):
    """Passes token numbers and their mask."""

    def __init__(self, inner, result="logits", **options):
        super().__init__()
        self.inner, self.result, self.options = inner, result, options

    def forward(self, input_ids, attention_mask):
        return getattr(self.inner(input_ids=input_ids, attention_mask=attention_mask, **self.options), self.result)


@model
def bert():
    return Text(hf.BertForSequenceClassification(hf.BertConfig(**SMALL))), masked_ids()


@model
def bert_eager():
    return Text(hf.BertForMaskedLM(hf.BertConfig(**SMALL, attn_implementation="eager"))), masked_ids()


@model
def roberta():
    return Text(hf.RobertaForSequenceClassification(hf.RobertaConfig(**SMALL))), masked_ids()


@model
def modernbert():
    c = hf.ModernBertConfig(**SMALL | {"num_hidden_layers": 3}, global_attn_every_n_layers=2, local_attention=8,
                            pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
    return Text(hf.ModernBertForSequenceClassification(c)), masked_ids()


@model
def albert():
    return Text(hf.AlbertForSequenceClassification(hf.AlbertConfig(**SMALL, embedding_size=8))), masked_ids()


@model
def deberta():
    c = hf.DebertaV2Config(**SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8,
                           max_relative_positions=16)
    return Text(hf.DebertaV2ForSequenceClassification(c)), masked_ids()


@model
def distilbert():
    c = hf.DistilBertConfig(vocab_size=60, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=40)
    return Text(hf.DistilBertForSequenceClassification(c)), masked_ids()


@model
def gpt2():
    c = hf.GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=2, n_positions=40)
    return Text(hf.GPT2LMHeadModel(c), use_cache=False), masked_ids()


@model
def llama():
    c = hf.LlamaConfig(**SMALL, num_key_value_heads=1)
    return Text(hf.LlamaForCausalLM(c), use_cache=False), masked_ids()


@model
def qwen():
    c = hf.Qwen2Config(**SMALL, num_key_value_heads=1)
    return Text(hf.Qwen2ForCausalLM(c), use_cache=False), masked_ids()


class Sequences(nn.Module):
    """Passes an input and the tokens of the decoder."""

    def __init__(self, inner, name):
        super().__init__()
        self.inner, self.name = inner, name

    def forward(self, x, decoder_input_ids):
        return self.inner(**{self.name: x}, decoder_input_ids=decoder_input_ids, use_cache=False).logits


@model
def t5():
    c = hf.T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0)
    return Sequences(hf.T5ForConditionalGeneration(c), "input_ids"), (ids(), ids(length=7))


@model
def whisper():
    c = hf.WhisperConfig(vocab_size=60, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
                         decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=8,
                         max_source_positions=20, max_target_positions=20, pad_token_id=0, bos_token_id=1,
                         eos_token_id=2, decoder_start_token_id=1)
    return Sequences(hf.WhisperForConditionalGeneration(c), "input_features"), (torch.randn(2, 8, 40), ids(length=7))


@model
def clip():
    text = {**SMALL, "projection_dim": 8, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
              "image_size": 32, "patch_size": 8, "projection_dim": 8}
    return Clip(hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8))), (*masked_ids(),
                                                                                                        image(32))


class Clip(nn.Module):
    """Scores of images against texts."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids, attention_mask, pixel_values):
        return self.inner(input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values).logits_per_image


@model
def segformer():
    c = hf.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2],
                           decoder_hidden_size=16, num_labels=3, mlp_ratios=[2, 2, 2, 2])
    return Call(hf.SegformerForSemanticSegmentation(c), "pixel_values", "logits"), (image(),)


@model
def wav2vec2():
    c = hf.Wav2Vec2Config(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                          intermediate_size=32, conv_dim=(8, 8, 8), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2),
                          num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
                          apply_spec_augment=False)
    return Call(hf.Wav2Vec2ForCTC(c), "input_values", "logits"), (torch.randn(2, 800),)


# ---- the rest --------------------------------------------------------------------------------------------------------


class Experts(nn.Module):
    """A layer that sends each token to the best two of four experts."""

    def __init__(self):
        super().__init__()
        self.embed, self.gate = nn.Embedding(60, 16), nn.Linear(16, 4, bias=False)
        self.w1, self.w2 = nn.Parameter(torch.randn(4, 16, 32) / 4), nn.Parameter(torch.randn(4, 32, 16) / 6)
        self.norm, self.leave = nn.RMSNorm(16), nn.Linear(16, 60)

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        best, which = self.gate(x).topk(2, -1)
        shares = torch.zeros_like(x[..., :4]).scatter(-1, which, best.softmax(-1))
        each = torch.einsum("btd,edh->bteh", x, self.w1)
        each = torch.einsum("bteh,ehd->bted", F.gelu(each), self.w2)
        return self.leave(x + torch.einsum("bted,bte->btd", each, shares))


@model
def moe():
    return Experts(), (ids(),)


class Gcn(nn.Module):
    """Two graph convolutions over a list of edges, with degrees counted by scattering."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

    def spread(self, x, edges, weight):
        return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]] * weight[:, None])

    def forward(self, x, edges):
        degree = torch.zeros(x.shape[0], dtype=x.dtype).index_add(0, edges[1], torch.ones_like(edges[1], dtype=x.dtype))
        scale = degree.clamp(min=1).rsqrt()
        weight = scale[edges[0]] * scale[edges[1]]
        x = F.relu(self.spread(self.a(x), edges, weight))
        return self.spread(self.b(x), edges, weight).log_softmax(1)


@model
def gcn():
    return Gcn(), (torch.randn(10, 8), torch.randint(0, 10, (2, 30)))


class PointNet(nn.Module):
    """An input transformation, shared layers over points, a maximum over all points."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.turn = nn.Linear(16, 9)
        self.points = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1))
        self.leave = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 5))

    def forward(self, x):
        turn = self.turn(self.shift(x).amax(2)).view(-1, 3, 3) + torch.eye(3, dtype=x.dtype)
        x = torch.bmm(turn, x)
        return self.leave(self.points(x).max(2).values)


@model
def pointnet():
    return PointNet(), (torch.randn(2, 3, 40),)


class Dlrm(nn.Module):
    """Dense features and embeddings of categories, whose pairwise products feed the top layers."""

    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.tables = nn.ModuleList([nn.Embedding(n, 8) for n in (40, 60, 20)])
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("rows", torch.tensor([1, 2, 2, 3, 3, 3]))
        self.register_buffer("columns", torch.tensor([0, 0, 1, 0, 1, 2]))

    def forward(self, dense, categories):
        x = self.bottom(dense)
        parts = [x] + [table(categories[:, i]).sum(1) for i, table in enumerate(self.tables)]
        z = torch.stack(parts, 1)
        products = torch.bmm(z, z.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat((x, products), 1)).sigmoid()


@model
def dlrm():
    return Dlrm(), (torch.randn(4, 6), torch.randint(0, 20, (4, 3, 2)))


class Tagger(nn.Module):
    """Embeddings, a recurrent network in both directions, a label for each token."""

    def __init__(self, network):
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.network = network(12, 10, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.leave = nn.Linear(20, 5)

    def forward(self, tokens):
        return self.leave(self.network(self.words(tokens))[0])


@model
def lstm_tagger():
    return Tagger(nn.LSTM), (torch.randint(0, 30, (2, 9)),)


@model
def gru_tagger():
    return Tagger(nn.GRU), (torch.randint(0, 30, (2, 9)),)


class Crnn(nn.Module):
    """Convolutions make a sequence of the columns of an image of text; a recurrent network in both directions yields the
    logarithms of the probabilities of letters, and of none, that CTC aligns with a text."""

    def __init__(self):
        super().__init__()
        self.columns = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((4, 1)))
        self.network = nn.LSTM(16, 12, bidirectional=True)
        self.leave = nn.Linear(24, 7)

    def forward(self, x):
        x = self.columns(x).squeeze(2).permute(2, 0, 1)
        return self.leave(self.network(x)[0]).log_softmax(2)


@model
def crnn():
    return Crnn(), (torch.randn(2, 1, 8, 24),)


class CharLstm(nn.Module):
    """The next character: one-hot characters, two LSTM layers that go on from given states, which are results too."""

    def __init__(self):
        super().__init__()
        self.network = nn.LSTM(20, 16, num_layers=2, batch_first=True)
        self.leave = nn.Linear(16, 20)

    def forward(self, text, h, c):
        x, (h, c) = self.network(F.one_hot(text, 20).to(h.dtype), (h, c))
        return self.leave(x), h, c


@model
def char_lstm():
    return CharLstm(), (torch.randint(0, 20, (2, 11)), torch.randn(2, 2, 16) * 0.3, torch.randn(2, 2, 16) * 0.3)


class GreedyDecoder(nn.Module):
    """Emits the most likely token as often as the source has tokens; a script, so that its loop is exported as one."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.inner = nn.Linear(32, 16)
        self.head = nn.Linear(16, 30)

    def forward(self, source):
        state = torch.tanh(source.mean(1))
        token = torch.zeros([state.size(0)], dtype=torch.int64)
        scores = torch.jit.annotate(list[torch.Tensor], [])
        tokens = torch.jit.annotate(list[torch.Tensor], [])
        for _ in range(source.size(1)):
            state = torch.tanh(self.inner(torch.cat([self.embed(token), state], 1)))
            logits = self.head(state)
            token = logits.argmax(1)
            scores.append(logits)
            tokens.append(token)
        return torch.stack(scores, 1), torch.stack(tokens, 1)


@model
def greedy_decoder():
    return torch.jit.script(GreedyDecoder()), (torch.randn(2, 8, 16),)


class Gate(nn.Module):
    """Deep or shallow layers, chosen by the mean of their operand (torch.cond)."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(6, 12)
        self.deep = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 12), nn.LayerNorm(12))
        self.shallow = nn.Sequential(nn.Linear(12, 12), nn.Tanh())
        self.leave = nn.Linear(12, 3)

    def forward(self, x):
        h = torch.relu(self.enter(x)) - 0.3
        return self.leave(torch.cond(h.mean() > 0, self.deep, self.shallow, (h,)))


@model
def cond():
    return Gate(), (torch.randn(4, 6),)


class VoiceActivity(nn.Module):
    """The probability of speech in a frame, and the states for the next one. Each sampling rate has layers of its own,
    with an LSTM among them, in the branches of an If; a script, since torch.cond has no LSTM."""

    class Rate(nn.Module):
        def __init__(self, window, hop):
            super().__init__()
            self.spectrum = nn.Conv1d(1, 24, window, hop, bias=False)
            self.encoder = nn.Sequential(nn.Conv1d(12, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 16, 3, 2, 1), nn.ReLU())
            self.memory = nn.LSTM(16, 16, batch_first=True)
            self.decoder = nn.Conv1d(16, 1, 1)

        def forward(self, x, h, c):
            spectrum = self.spectrum(x.unsqueeze(1))
            magnitude = (spectrum[:, :12] ** 2 + spectrum[:, 12:] ** 2 + 1e-4).sqrt()
            x, (h, c) = self.memory(self.encoder(magnitude).transpose(1, 2), (h, c))
            return self.decoder(x.transpose(1, 2)).sigmoid().mean(2), h, c

    def __init__(self):
        super().__init__()
        self.high, self.low = self.Rate(64, 32), self.Rate(32, 16)

    def forward(self, x, h, c, rate):
        if rate == 16000:
            x, h, c = self.high(x, h, c)
        else:
            x, h, c = self.low(x, h, c)
        return x, h, c


@model
def voice_activity():
    state = torch.randn(2, 1, 2, 16) * 0.3
    return torch.jit.script(VoiceActivity()), (torch.randn(2, 256), state[0], state[1], torch.tensor(16000))


class Cumulative(nn.Module):
    """A gated running sum along time: a scan of PyTorch, exported as Scan."""

    def __init__(self):
        super().__init__()
        self.gate, self.update, self.leave = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        def step(state, x):
            gate = torch.sigmoid(self.gate(state) + x)
            state = gate * state + (1 - gate) * torch.tanh(self.update(x))
            return state, state * x

        state, values = scan(step, torch.zeros_like(x[0]), x, dim=0)
        return self.leave(values) + state.mean()


@model
def cumulative():
    return Cumulative(), (torch.randn(7, 2, 6),)


class Greedy(nn.Module):
    """Decodes the most probable tokens one by one until all are the end token: a while_loop of PyTorch, exported as Loop."""

    LENGTH, END = 12, 0

    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.leave = nn.Embedding(20, 8), nn.Linear(16, 8), nn.Linear(8, 20)

    def forward(self, state):
        def goes_on(i, tokens, last, state):
            return (i < self.LENGTH) & (last != self.END).any()

        def step(i, tokens, last, state):
            state = torch.tanh(self.cell(torch.cat((self.embed(last), state), 1)))
            last = self.leave(state).argmax(1)
            return i + 1, torch.where(torch.arange(self.LENGTH) == i, last.unsqueeze(1), tokens), last, state

        first = torch.ones(state.shape[0], dtype=torch.int64)
        tokens = torch.zeros(state.shape[0], self.LENGTH, dtype=torch.int64)
        return while_loop(goes_on, step, (torch.tensor(0), tokens, first, state))[1]


@model
def greedy():
    return Greedy(), (torch.randn(3, 8),)


class Pyramid(nn.Module):
    """Two scales of features, 4 and 8 times smaller than the image."""

    def __init__(self, channels=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1), nn.BatchNorm2d(channels), nn.ReLU(),
                                  nn.Conv2d(channels, channels, 3, 2, 1), nn.BatchNorm2d(channels), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(channels, channels, 3, 2, 1), nn.BatchNorm2d(channels), nn.ReLU())

    def forward(self, x):
        fine = self.stem(x)
        return fine, self.down(fine)


class Boxes(nn.Module):
    """Scores and boxes (x, y, x, y) for one anchor at each position of both scales."""

    def __init__(self, channels, classes, size):
        super().__init__()
        self.scores = nn.Conv2d(channels, classes, 3, padding=1)
        self.offsets = nn.Conv2d(channels, 4, 3, padding=1)
        anchors = []
        for stride in 4, 8:
            at = (torch.arange(size // stride) + 0.5) * stride
            y, x = torch.meshgrid(at, at, indexing="ij")
            anchors.append(torch.stack([x, y, torch.full_like(x, 3.0 * stride), torch.full_like(x, 3.0 * stride)], -1))
        self.register_buffer("anchors", torch.cat([a.reshape(-1, 4) for a in anchors]))

    def forward(self, features):
        scores = torch.cat([self.scores(f).flatten(2) for f in features], 2).transpose(1, 2)
        offsets = torch.cat([self.offsets(f).flatten(2) for f in features], 2).transpose(1, 2)
        centers = self.anchors[:, :2] + offsets[..., :2] * self.anchors[:, 2:]
        sizes = self.anchors[:, 2:] * torch.exp(offsets[..., 2:].clamp(max=2))
        return scores, torch.cat([centers - sizes / 2, centers + sizes / 2], -1)


class Detector(nn.Module):
    """One stage: the best class of each box, non-maximum suppression within classes, boxes above a score."""

    def __init__(self, size=64, classes=4):
        super().__init__()
        self.pyramid, self.head, self.size = Pyramid(), Boxes(12, classes, size), size

    def forward(self, image):
        scores, boxes = self.head(self.pyramid(image))
        best, label = scores[0].sigmoid().max(-1)
        found = torch.nonzero(best > 0.53)[:, 0]
        best, label, boxes = best[found], label[found], boxes[0][found].clamp(0, self.size)
        kept = tv_ops.nms(boxes + label[:, None] * (2.0 * self.size), best, 0.2)[:50]
        return boxes[kept], best[kept], label[kept]


class TwoStages(nn.Module):
    """The best boxes of any class, what is left of them after non-maximum suppression, features of these regions,
    classes and boxes from them, and non-maximum suppression again for each class."""

    def __init__(self, size=64, classes=3):
        super().__init__()
        self.pyramid, self.proposals, self.size = Pyramid(), Boxes(12, 1, size), size
        self.hidden = nn.Sequential(nn.Linear(12 * 9, 48), nn.ReLU())
        self.scores, self.offsets, self.classes = nn.Linear(48, classes), nn.Linear(48, 4), classes

    def forward(self, image):
        features = self.pyramid(image)
        scores, boxes = self.proposals(features)
        best, at = scores[0, :, 0].topk(100)
        boxes = boxes[0][at].clamp(0, self.size)
        boxes = boxes[tv_ops.nms(boxes, best, 0.6)]
        regions = tv_ops.roi_align(features[0], [boxes], (3, 3), 0.25, 2, True)
        hidden = self.hidden(regions.flatten(1))
        boxes = boxes + self.offsets(hidden)
        scores = self.scores(hidden).sigmoid()
        found = torch.nonzero(scores > 0.5)
        kept_boxes, kept_scores, label = boxes[found[:, 0]], scores[found[:, 0], found[:, 1]], found[:, 1]
        kept = tv_ops.nms(kept_boxes + label[:, None] * (4.0 * self.size), kept_scores, 0.5)
        return kept_boxes[kept], kept_scores[kept], label[kept]


@model
def detector():
    return Detector(), (image(batch=1),)


@model
def detector_two_stages():
    return TwoStages(), (image(batch=1),)
