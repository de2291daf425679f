#!/usr/bin/env python3
"""Computes the built-in losses and their gradients with PyTorch, in double precision.

usage: torch_losses.py [COUNT [SEED]] >tests/train/losses.def

Writes a row LOSS(name, text of --loss, x, label, loss, gradient of x) for each fixed configuration, or for COUNT random
ones. Needs PyTorch.
"""
import random
import sys

import torch
import torch.nn.functional as F

IGNORED = -100
torch.set_default_dtype(torch.float64)


def c_number(v):
    text = f"{float(v):.12g}"
    return {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}.get(text, text)


def tensor(t):
    kind = "IR_i64" if t.dtype == torch.int64 else "IR_f64"
    dims, values = ", ".join(map(str, t.shape)), ", ".join(map(c_number, t.flatten().tolist()))
    return f"TENSOR({kind}, DIMS({dims}), VALUES({values}))"


def wrap(text, width=132):
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = "     " + word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def row(name, text, x, y, function):
    x, y = (x.mul(1000).round() / 1000).requires_grad_(), y if y.dtype == torch.int64 else y.mul(1000).round() / 1000
    loss = function(x, y)
    loss.backward()
    print(wrap(f'LOSS("{name}", "{text}", {tensor(x.detach())}, {tensor(y)}, {c_number(loss.detach())}, '
               f'VALUES({", ".join(map(c_number, x.grad.flatten().tolist()))}))'))


def scores(generator, shape, scale=2.0):
    return torch.randn(shape, generator=generator) * scale


def labels(generator, shape, axis, classes, ignored):
    shape = [n for i, n in enumerate(shape) if i != axis]
    y = torch.randint(0, classes, shape, generator=generator)
    if ignored:
        y = torch.where(torch.rand(shape, generator=generator) < 0.4, torch.full_like(y, IGNORED), y)
        y.view(-1)[0] = 0
    return y


def cross_entropy(name, shape, axis, generator, smoothing=0.0, z=0.0, ignored=False, weighted=False, scale=2.0):
    classes = shape[axis]
    x, y = scores(generator, shape, scale), labels(generator, shape, axis, classes, ignored)
    weights = torch.randint(1, 9, (classes,), generator=generator) / 4 if weighted else None
    text = f"ce,axis={axis}"
    if ignored:
        text += f",ignore_index={IGNORED}"
    if weighted:
        text += ",class_weights=" + "/".join(map(repr, weights.tolist()))
    if smoothing:
        text += f",label_smoothing={smoothing}"
    if z:
        text += f",z_loss={z}"

    def function(x, y):
        x = x.movedim(axis, 1).contiguous()
        loss = F.cross_entropy(x, y, weight=weights, ignore_index=IGNORED, label_smoothing=smoothing)
        squares = torch.logsumexp(x, 1).square()
        return loss + z * squares[y != IGNORED].mean()

    row(name, text, x, y, function)


def negative_log(name, shape, axis, generator, ignored=False, weighted=False):
    classes = shape[axis]
    x, y = F.log_softmax(scores(generator, shape), axis), labels(generator, shape, axis, classes, ignored)
    weights = torch.randint(1, 9, (classes,), generator=generator) / 4 if weighted else None
    text = f"nll,axis={axis}" + (f",ignore_index={IGNORED}" if ignored else "")
    if weighted:
        text += ",class_weights=" + "/".join(map(repr, weights.tolist()))
    row(name, text, x, y,
        lambda x, y: F.nll_loss(x.movedim(axis, 1).contiguous(), y, weight=weights, ignore_index=IGNORED))


def focal(x, y, alpha, gamma):
    """torchvision.ops.sigmoid_focal_loss with reduction="mean"."""
    p, entropy = torch.sigmoid(x), F.binary_cross_entropy_with_logits(x, y, reduction="none")
    loss = entropy * (1 - (p * y + (1 - p) * (1 - y))) ** gamma
    return (loss * (alpha * y + (1 - alpha) * (1 - y)) if alpha >= 0 else loss).mean()


def divergence(x, y, axis):
    positions = x.numel() / x.shape[axis]
    return F.kl_div(x, y, reduction="sum") / positions


def contrastive(x, y, temperature):
    table = F.normalize(x) @ F.normalize(y).T / temperature
    target = torch.arange(len(x))
    return (F.cross_entropy(table, target) + F.cross_entropy(table.T, target)) / 2


def cosine(x, y, axis):
    return 1 - F.cosine_similarity(x, y, dim=axis).mean()


def sequences(name, steps, batch, classes, longest, generator, blank=0, batch_axis=1, zero_infinity=False):
    x = scores(generator, (steps, batch, classes))
    size = torch.randint(0, longest + 1, (batch,), generator=generator)
    size[0] = longest
    y = torch.randint(1, classes, (batch, longest), generator=generator)
    y = torch.where(y <= blank, y - 1, y) if blank else y
    y = torch.where(torch.arange(longest) < size[:, None], y, torch.full_like(y, -1))
    text = f"ctc,batch_axis={batch_axis}" + (f",blank={blank}" if blank else "")
    text += ",zero_infinity=1" if zero_infinity else ""

    def function(x, y):
        log_prob = F.log_softmax(x if batch_axis else x.transpose(0, 1), 2)
        return F.ctc_loss(log_prob, y.clamp(min=0), torch.full((batch,), steps), size, blank, "mean", zero_infinity)

    row(name, text, x if batch_axis else x.transpose(0, 1).contiguous(), y, function)


# Losses of two tensors of one shape, without options.
PLAIN = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
}


def elementwise(kind, shape, g, value):
    x, y = scores(g, shape), scores(g, shape)
    zeros_and_ones = (torch.rand(shape, generator=g) < 0.5).double()
    if kind == "huber":
        row(f"huber {value}", f"huber,delta={value}", x, y, lambda x, y: F.huber_loss(x, y, delta=value))
    if kind == "smooth_l1":
        row(f"smooth_l1 {value}", f"smooth_l1,beta={value}", x, y, lambda x, y: F.smooth_l1_loss(x, y, beta=value))
    if kind in PLAIN:
        row(kind, kind, x, y, PLAIN[kind])
    if kind == "bce_logits":
        row("bce_logits", "bce_logits", x, torch.sigmoid(y), F.binary_cross_entropy_with_logits)
    if kind == "bce":
        row("bce", "bce", torch.sigmoid(x), zeros_and_ones, F.binary_cross_entropy)
    if kind == "focal":
        alpha = [0.25, -1.0, 0.75][int(value * 10) % 3]
        gamma = [2.0, 0.0, 1.0, 3.5][int(value * 100) % 4]
        row(f"focal {alpha} {gamma}", f"focal,gamma={gamma},alpha={alpha}", x, zeros_and_ones,
            lambda x, y: focal(x, y, alpha, gamma))


def directions(kind, shape, axis, g, value):
    x, y = scores(g, shape), scores(g, shape)
    if kind == "kl":
        row(f"kl {axis}", f"kl,axis={axis}", F.log_softmax(x, axis), F.softmax(y, axis),
            lambda x, y: divergence(x, y, axis))
    if kind == "soft_ce":
        row(f"soft_ce {axis}", f"soft_ce,axis={axis}", x, F.softmax(y, axis),
            lambda x, y: F.cross_entropy(x.movedim(axis, 1), y.movedim(axis, 1)))
    if kind == "cosine":
        row(f"cosine {axis}", f"cosine,axis={axis}", x, y, lambda x, y: cosine(x, y, axis))
    if kind == "contrastive":
        x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)
        row(f"contrastive {value}", f"contrastive,temperature={value}:s,label", x, y,
            lambda x, y: contrastive(x, y, value))


def write_fixed():
    g = torch.Generator().manual_seed(14)
    cross_entropy("ce images", (2, 3, 2, 2), 1, g)
    cross_entropy("ce tokens", (2, 3, 4), 2, g)
    cross_entropy("ce middle axis", (2, 3, 4, 2), 2, g)
    cross_entropy("ce tokens ignored", (2, 4, 3), 2, g, ignored=True)
    cross_entropy("ce weights", (5, 3), 1, g, weighted=True)
    cross_entropy("ce weights ignored", (2, 4, 3), 1, g, weighted=True, ignored=True)
    cross_entropy("ce smoothing", (4, 5), 1, g, smoothing=0.1)
    cross_entropy("ce smoothing ignored weights", (2, 3, 4), 2, g, smoothing=0.2, ignored=True, weighted=True)
    cross_entropy("ce smoothing weights images", (2, 3, 2, 2), 1, g, smoothing=0.3, weighted=True)
    cross_entropy("ce smoothing all", (3, 2), 1, g, smoothing=1.0)
    cross_entropy("ce z", (2, 3, 4), 2, g, z=1e-2)
    cross_entropy("ce everything", (2, 4, 3), 2, g, smoothing=0.1, z=1e-2, ignored=True, weighted=True)
    cross_entropy("ce large scores", (3, 4), 1, g, smoothing=0.1, z=1e-4, scale=1000.0)
    cross_entropy("ce one class", (3, 1), 1, g, smoothing=0.1, z=0.5)
    negative_log("nll", (2, 3, 2), 1, g)
    negative_log("nll tokens", (2, 3, 4), 2, g, ignored=True, weighted=True)
    for kind in ("bce", "bce_logits"):
        elementwise(kind, (3, 4), g, 0)
    for value in (0.5, 1.0, 3.0):
        elementwise("huber", (3, 4), g, value)
        elementwise("smooth_l1", (3, 4), g, value)
    for value in (0.03, 0.12, 0.29, 0.3, 0.61):
        elementwise("focal", (3, 4), g, value)
    for axis in (1, 2):
        directions("kl", (2, 3, 4), axis, g, 0)
        directions("cosine", (2, 3, 4), axis, g, 0)
    sequences("ctc", 5, 3, 4, 2, g)
    sequences("ctc batch first", 6, 2, 3, 3, g, batch_axis=0)
    sequences("ctc other blank", 7, 2, 4, 3, g, blank=2)
    sequences("ctc too short", 3, 4, 3, 3, g, zero_infinity=True)
    for value in (0.07, 1.0):
        directions("contrastive", (4, 3), 1, g, value)
    for axis in (1, 2):
        directions("soft_ce", (2, 3, 4), axis, g, 0)
    for kind in PLAIN:
        elementwise(kind, (3, 4), g, 0)


def write_random(count, seed):
    pick, g = random.Random(seed), torch.Generator().manual_seed(seed)
    for _ in range(count):
        rank = pick.randint(2, 5)
        shape = tuple(pick.choice((1, 2, 3, 5)) for _ in range(rank))
        axis, value = pick.randint(1, rank - 1), round(pick.uniform(0.05, 4), 2)
        kind = pick.choice(("ce", "ce", "ce", "ce", "nll", *PLAIN, "huber", "smooth_l1", "bce", "bce_logits",
                            "focal", "kl", "soft_ce", "cosine", "contrastive", "ctc"))
        if kind == "ce":
            cross_entropy("ce", shape, axis, g, pick.choice((0, 0.1, 0.5, 1.0)), pick.choice((0, 1e-3, 0.5)),
                          pick.random() < 0.5, pick.random() < 0.5, pick.choice((0.1, 2.0, 50.0)))
        elif kind == "nll":
            negative_log("nll", shape, axis, g, pick.random() < 0.5, pick.random() < 0.5)
        elif kind == "ctc":
            sequences("ctc", pick.randint(1, 12), pick.randint(1, 4), pick.randint(2, 5), pick.randint(1, 5), g,
                      pick.choice((0, 0, 1)), pick.randint(0, 1), True)
        elif kind in ("kl", "soft_ce", "cosine", "contrastive"):
            directions(kind, shape, axis, g, value)
        else:
            elementwise(kind, shape, g, value)


print("/* losses.def - values of PyTorch, written by torch_losses.py. */")
if len(sys.argv) > 1:
    write_random(int(sys.argv[1]), int((sys.argv + ["1"])[2]))
else:
    write_fixed()
