#!/usr/bin/env python3
"""Writes tests/train/evaluations.def: losses over a whole data set as PyTorch computes them, for test_evaluations.c.

usage: tests/train/make_evaluations.py >tests/train/evaluations.def     (needs numpy and torch)

Both programs make the same 97 samples with the same integer arithmetic, so that only values are stored. PyTorch computes
every loss in double precision from all samples at once. A row is BUILT_IN(text of --loss, loss, losses of the terms),
OF_MODEL(nodes of the model that compute %own, loss) or ACCURACY(text of --loss, accuracy).
"""
import numpy as np
import torch
import torch.nn.functional as F
from noise import noise

N, IGNORED = 97, -100
WEIGHTS = [1.5, 0.25, 0.0, 3.0, 1.0]


def floats(shape, salt, low, high):
    return torch.tensor((low + (high - low) * noise(shape, salt)).astype(np.float32).astype(np.float64))


def classes(shape, salt, count):
    return torch.tensor((noise(shape, salt) * count).astype(np.int64))


a, b = floats((N, 5), 1, -3, 3), floats((N, 5), 2, -3, 3)
tokens = floats((N, 6, 4), 3, -2, 2)
label = classes((N,), 4, 5)
rows = torch.arange(N)
# whole batches of `rare` are ignored, also the last one
rare = torch.where((rows % 13 < 9) | (rows > 88), torch.tensor(-1), classes((N,), 5, 5))
marks = torch.where(torch.arange(6) >= classes((N, 1), 6, 7), torch.tensor(IGNORED), classes((N, 6), 7, 4))
words = 1 + classes((N, 2), 8, 3)
target, mask = floats((N, 5), 9, 0, 1), torch.tensor((noise((N, 5), 10) < 0.4).astype(np.float64))
w5, w4 = torch.tensor(WEIGHTS, dtype=torch.float64), torch.tensor([0.5, 2.0, 1.0, 0.75], dtype=torch.float64)


def ce(x, y, **o):
    return F.cross_entropy(x, y, **o)


def of_tokens(**o):
    return ce(tokens.flatten(0, 1), marks.flatten(), ignore_index=IGNORED, **o)


def z_loss(x, y, ignored):
    return (torch.logsumexp(x, 1)[y != ignored] ** 2).mean()


def focal(gamma=2, alpha=0.25):
    p, e = torch.sigmoid(a), F.binary_cross_entropy_with_logits(a, mask, reduction="none")
    return (e * (1 - (mask * p + (1 - mask) * (1 - p))) ** gamma * (mask * alpha + (1 - mask) * (1 - alpha))).mean()


def ctc():
    x = F.log_softmax(tokens, 2).transpose(0, 1)
    return F.ctc_loss(x, words, torch.full((N,), 6), torch.full((N,), 2))


def sums(*terms):
    """The weighted sum, and its terms."""
    return sum(w * x for w, x in terms), *(x for _, x in terms)


W5, W4 = "/".join(map(str, WEIGHTS)), "0.5/2/1/0.75"
probabilities = F.softmax(b, 1)
built_in = {
    "ce:a": ce(a, label),
    f"ce,class_weights={W5}:a": ce(a, label, weight=w5),
    "ce,ignore_index=-1:a,rare": ce(a, rare, ignore_index=-1),
    "nll,ignore_index=-1:log_a,rare": ce(a, rare, ignore_index=-1),
    f"nll,class_weights={W5}:log_a": ce(a, label, weight=w5),
    f"ce,ignore_index=-1,class_weights={W5}:a,rare": ce(a, rare, ignore_index=-1, weight=w5),
    f"ce,class_weights={W5},label_smoothing=0.2:a": ce(a, label, weight=w5, label_smoothing=0.2),
    "ce,ignore_index=-1,label_smoothing=0.2:a,rare": ce(a, rare, ignore_index=-1, label_smoothing=0.2),
    f"ce,ignore_index=-1,class_weights={W5},label_smoothing=0.2,z_loss=0.1:a,rare":
        ce(a, rare, ignore_index=-1, weight=w5, label_smoothing=0.2) + 0.1 * z_loss(a, rare, -1),
    f"ce,class_weights={W5},z_loss=0.1:a": ce(a, label, weight=w5) + 0.1 * z_loss(a, label, -1),
    "ce,z_loss=0.1,ignore_index=-1:a,rare": ce(a, rare, ignore_index=-1) + 0.1 * z_loss(a, rare, -1),
    "ce,axis=-1,ignore_index=-100:tokens,marks": of_tokens(),
    f"ce,axis=-1,ignore_index=-100,class_weights={W4}:tokens,marks": of_tokens(weight=w4),
    "soft_ce:a,share": ce(a, probabilities),
    "mse:a,goal": F.mse_loss(a, target),
    "l1:a,goal": F.l1_loss(a, target),
    "huber,delta=0.5:a,goal": F.huber_loss(a, target, delta=0.5),
    "smooth_l1,beta=0.5:a,goal": F.smooth_l1_loss(a, target, beta=0.5),
    "bce_logits:a,mask": F.binary_cross_entropy_with_logits(a, mask),
    "focal:a,mask": focal(),
    "kl:log_a,share": F.kl_div(F.log_softmax(a, 1), probabilities, reduction="batchmean"),
    "cosine:a,goal": (1 - F.cosine_similarity(a, target, dim=1)).mean(),
    "ctc,batch_axis=0:tokens,words": ctc(),
    # several terms
    "ce,ignore_index=-1,weight=0.3:a,rare+ce,name=all:b,label": sums(
        (0.3, ce(a, rare, ignore_index=-1)), (1, ce(b, label))),
    "ce,ignore_index=-1:a,rare+ce,ignore_index=2,name=other:b,label": sums(
        (1, ce(a, rare, ignore_index=-1)), (1, ce(b, label, ignore_index=2))),
    f"mse,weight=2:a,goal+ce,class_weights={W5},weight=0.5:b,label": sums(
        (2, F.mse_loss(a, target)), (0.5, ce(b, label, weight=w5))),
    "ce,axis=-1,ignore_index=-100,weight=0.1:tokens,marks+l1:a,goal+ce,name=c,ignore_index=-1:b,rare": sums(
        (0.1, of_tokens()), (1, F.l1_loss(a, target)), (1, ce(b, rare, ignore_index=-1))),
    "scalar:weighted+ce,ignore_index=-1:a,rare": sums(
        (1, ((a - target) ** 2 * mask).sum() / mask.sum()), (1, ce(a, rare, ignore_index=-1))),
}

OPERATORS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "clip": "Clip", "reduce_sum": "ReduceSum",
    "reduce_mean": "ReduceMean", "softmax_cross_entropy": "SoftmaxCrossEntropyLoss",
}


def named(nodes):
    """The nodes with the names of ONNX, by which they have colours."""
    lines = nodes.splitlines()
    return "".join(f'{line} !{OPERATORS[line.split(" = ")[1].split()[0]]} "n{i}"\n' for i, line in enumerate(lines))


SQUARES = "  %d = sub %xa, @goal : f32[N,5]\n  %q = mul %d, %d : f32[N,5]\n"
MASKED = SQUARES + "  %m = mul %q, @mask : f32[N,5]\n  %s = reduce_sum %m {axes=[0,1], keepdims=false} : f32[]\n" \
    "  %n = reduce_sum @mask {axes=[0,1], keepdims=false} : f32[]\n"


def cross_entropy(name, x, y, options, weight=""):
    return (f"  %{name}, %l{name}, %p{name} = softmax_cross_entropy {x}, {y}{weight}{options and f' {{{options}}}'}"
            " : f32[], f32[N], f32[N,5]\n")


square, masked = (a - target) ** 2, ((a - target) ** 2 * mask).sum() / mask.sum()
of_model = {
    cross_entropy("own", "%xa", "@rare", "ignore_index=-1"): ce(a, rare, ignore_index=-1),
    cross_entropy("own", "%xa", "@label", "", ", @w"): ce(a, label, weight=w5),
    cross_entropy("own", "%xa", "@rare", 'ignore_index=-1, reduction="sum"'):
        ce(a, rare, ignore_index=-1, reduction="sum"),
    cross_entropy("c", "%xa", "@rare", "ignore_index=-1") + cross_entropy("e", "%xb", "@label", "ignore_index=2")
    + "  %h = mul %e, @half : f32[]\n  %own = add %c, %h : f32[]\n":
        ce(a, rare, ignore_index=-1) + 0.5 * ce(b, label, ignore_index=2),
    SQUARES + "  %own = reduce_mean %q {axes=[0,1], keepdims=false} : f32[]\n": square.mean(),
    SQUARES + "  %own = reduce_sum %q {axes=[0,1], keepdims=false} : f32[]\n": square.sum(),
    SQUARES + "  %r = reduce_sum %q {axes=[1], keepdims=false} : f32[N]\n"
    "  %own = reduce_mean %r {axes=[0], keepdims=true} : f32[1]\n": square.sum(1).mean(),
    SQUARES + "  %r = reduce_mean %q {axes=[0], keepdims=false} : f32[5]\n"
    "  %own = reduce_sum %r {axes=[0], keepdims=false} : f32[]\n": square.mean(0).sum(),
    MASKED + "  %own = div %s, %n : f32[]\n": masked,
    MASKED + "  %c = clip %n, @one : f32[]\n  %own = div %s, %c : f32[]\n": masked,
    MASKED + "  %t = div %s, %n : f32[]\n  %k = reduce_sum %q {axes=[0,1], keepdims=false} : f32[]\n"
    "  %o = mul %k, @half : f32[]\n  %own = sub %t, %o : f32[]\n": masked - 0.5 * square.sum(),
}


def accuracy(x, y, ignored):
    counts = (y != ignored) & (y >= 0)
    return (x.argmax(-1) == y)[counts].double().mean()


accuracies = {
    "ce,ignore_index=-1:a,rare+ce,ignore_index=2,name=other:b,label": accuracy(a, rare, -1),
    "ce,ignore_index=2:a,label+ce,name=other:b,label": accuracy(a, label, 2),
    "ce:a,label+ce,ignore_index=2,name=other:b,label": accuracy(a, label, None),
    "mse:a,goal+ce,axis=-1,ignore_index=-100:tokens,marks": accuracy(tokens, marks, IGNORED),
}


def number(v):
    return repr(float(v))


print("/* evaluations.def - values of PyTorch, written by make_evaluations.py. */")
for text, value in built_in.items():
    numbers = [number(v) for v in value] if isinstance(value, tuple) else [number(value)]
    start, end = f'BUILT_IN("{text}",', f'{", ".join(numbers)})'
    print(start + (" " if len(start) + len(end) < 132 else "\n         ") + end)
for text, value in of_model.items():
    quoted = named(text).replace('"', '\\"').replace("} : ", "} :\n ").replace("@w : ", "@w :\n ").splitlines()
    lines = "\n".join(f'         "{line}\\n"' for line in quoted)
    print(f"OF_MODEL({lines.strip()},\n         {number(value)})")
for text, value in accuracies.items():
    print(f'ACCURACY("{text}", {number(value)})')
