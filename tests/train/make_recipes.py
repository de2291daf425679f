#!/usr/bin/env python3
"""Computes the reference values of test_recipes.c with PyTorch, in float64, for recipes.h

The recipes are those of PyTorch's page "Automatic Mixed Precision examples": a typical step, gradient clipping,
changed gradients, gradient accumulation and gradient penalty, a scaler that is saved and restored or disabled, on a
small network whose parameters and samples are simple formulas. Every case prints the loss, the loss scale after each
step, and the sum and the sum of squares of each parameter."""
import io

import torch

ROWS, MICRO, STEPS = 32, 8, 6


def pattern(count, factor, modulus):
    return torch.tensor([(i * factor % modulus) / (modulus // 2) - 1 for i in range(count)], dtype=torch.float64)


def parameters():
    shapes = {"w1": (4, 8), "b1": (8,), "w2": (8, 3)}
    return {n: (0.5 * pattern(torch.Size(s).numel(), 37, 19)).reshape(s).requires_grad_() for n, s in shapes.items()}


def samples(step):
    x = pattern(ROWS * 4 + step, 29, 23)[step:].reshape(ROWS, 4)
    label = 0.5 * x[:, :3] - 0.25 * x[:, 3:]
    return x, label


def loss_of(p, x, label):
    return torch.nn.functional.mse_loss(torch.relu(x @ p["w1"] + p["b1"]) @ p["w2"], label)


def penalty_of(scaler, loss, wrt, weight, target):
    """The recipe: the norm of the unscaled gradients, computed from the scaled loss."""
    scaled = torch.autograd.grad(scaler.scale(loss), wrt, create_graph=True)
    inv_scale = 1.0 / scaler.get_scale()
    norm = sum((g * inv_scale).pow(2).sum() for g in scaled).sqrt()
    return weight * (norm if target is None else (norm - target) ** 2)


def option_of(penalty):
    if not penalty:
        return "NULL"
    return f'"L2:{penalty[0]},{penalty[1]}' + ('"' if penalty[2] is None else f',target={penalty[2]}"')


def objects(p, enabled=True):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2, enabled=enabled)
    return p, torch.optim.SGD(p.values(), lr=0.25, momentum=0.9), scaler


def restored(p, optimizer, scaler):
    """Saves all states to a file, and continues with new objects that load them."""
    file = io.BytesIO()
    torch.save([{n: v.detach() for n, v in p.items()}, optimizer.state_dict(), scaler.state_dict()], file)
    file.seek(0)
    values, *states = torch.load(file)
    new = objects({n: v.requires_grad_() for n, v in values.items()})
    for each, state in zip(new[1:], states):
        each.load_state_dict(state)
    return new


def run(name, accumulate, norm=None, value=None, overflow=None, penalty=None, factor=0, restore=0, enabled=True):
    p, optimizer, scaler = objects(parameters(), enabled)
    rows = []
    for step in range(STEPS):
        if restore and step == restore:
            p, optimizer, scaler = restored(p, optimizer, scaler)
        x, label = samples(step)
        losses = []
        for k in range(accumulate):
            part = slice(k * ROWS // accumulate, (k + 1) * ROWS // accumulate)
            rows_x = x[part].clone().requires_grad_()
            loss = loss_of(p, rows_x, label[part])
            if penalty:
                loss = loss + penalty_of(scaler, loss, list(p.values()) if penalty[0] == "params" else [rows_x], *penalty[1:])
            loss = loss / accumulate
            losses.append(loss.item())
            scaler.scale(loss).backward()
            if overflow == (step, k):
                p["w2"].grad[0, 0] = float("inf")
        scaler.unscale_(optimizer)
        if factor:
            p["w2"].grad *= factor
        if value:
            torch.nn.utils.clip_grad_value_(p.values(), value)
        if norm:
            torch.nn.utils.clip_grad_norm_(p.values(), norm)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        rows.append((sum(losses), scaler.get_scale()))
    print(f'    {{"{name}", {accumulate}, {norm or 0}, {value or 0}, {overflow[0] if overflow else -1}, '
          f"{overflow[1] if overflow else -1}, {option_of(penalty)}, {factor}, {restore}, {int(not enabled)},")
    sums = [(v.sum().item(), (v * v).sum().item()) for v in p.values()]
    for begin, end, pairs in ("{", "},", rows), ("{", "}},", sums):
        text = [", ".join(f"{{{a:.12g}, {b:.12g}}}" for a, b in part) for part in (pairs[:3], pairs[3:])]
        print("     " + begin + ",\n      ".join(t for t in text if t) + end)


print("/* recipes.h - computed by make_recipes.py; do not edit. */")
print("/* clang-format off */")
run("typical step", 1)
run("unscale and clip the norm", 1, norm=0.1)
run("unscale and clip values", 1, value=0.02)
run("clip values, then the norm", 1, norm=0.1, value=0.05)
run("accumulation", 4)
run("accumulation and clipping", 4, norm=0.1)
run("an infinity in micro-batch 3 of 4", 4, overflow=(2, 2))
run("an infinity, clipped", 4, norm=0.1, overflow=(3, 2))
run("gradient penalty", 1, penalty=("params", 0.25, None))
run("gradient penalty of the input", 1, penalty=("input", 4, None))
run("gradient penalty with a target", 1, penalty=("input", 8, 0.25))
run("gradient penalty and clipping", 1, norm=0.1, penalty=("params", 1, None))
run("gradient penalty and accumulation", 4, penalty=("params", 0.25, None))
run("gradient penalty and an infinity", 4, overflow=(2, 2), penalty=("params", 0.25, None))
run("changed gradients", 1, factor=0.25)
run("changed gradients, accumulation and clipping", 4, norm=0.1, factor=-2)
run("changed gradients and an infinity", 4, overflow=(1, 3), factor=3)
run("a scaler that is saved and restored", 1, restore=3)
run("the same with accumulation and an infinity", 4, overflow=(3, 1), restore=4)
run("a disabled scaler", 1, enabled=False)
run("a disabled scaler, accumulation and clipping", 4, norm=0.1, enabled=False)
print("    /* clang-format on */")
