#!/usr/bin/env python3
"""Writes the models of the recipes in this folder, and ../linked.h: the same trainings in PyTorch, in float64.

Usage: make_linked.py >../linked.h. Parameters and samples are simple formulas. A step updates all models from the
gradients at its begin. For each step there are the loss and the loss scale, and at the end the sum and the sum of
squares of each parameter and buffer."""
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper

ROWS, STEPS = 16, 6
folder = Path(__file__).parent


def pattern(shape, factor, modulus, start=0):
    count = int(np.prod(shape))
    values = [((i + start) * factor % modulus) / (modulus // 2) - 1 for i in range(count)]
    return np.asarray(values, np.float32).reshape(shape)


def weight(shape, factor):
    return (0.5 * pattern(shape, factor, 19)).astype(np.float32)


WEIGHTS = {
    "mlp": {"w1": weight((4, 8), 37), "b1": weight((8,), 31), "w2": weight((8, 3), 29)},
    "linear": {"w": weight((4, 3), 23)},
    "generator": {"w1": weight((3, 8), 37), "b1": weight((8,), 31), "w2": weight((8, 4), 29)},
    "discriminator": {"w1": weight((4, 8), 41), "scale": weight((8,), 5) + 1, "bias": weight((8,), 7),
                      "mean": np.zeros(8, np.float32), "var": np.ones(8, np.float32), "w2": weight((8, 1), 43)},
}


def write(name, nodes, inputs, output):
    tensor = lambda n, columns: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", columns])
    weights = [numpy_helper.from_array(a, n) for n, a in WEIGHTS.get(name, {}).items()]
    graph = helper.make_graph([helper.make_node(op, i, o, name=o[0], **a) for op, i, o, a in nodes], name,
                              [tensor(*i) for i in inputs], [tensor(*output)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())


def write_models():
    layers = [("MatMul", ["x", "w1"], ["m"], {}), ("Add", ["m", "b1"], ["h"], {}), ("Relu", ["h"], ["r"], {})]
    write("mlp", layers + [("MatMul", ["r", "w2"], ["y"], {})], [("x", 4)], ("y", 3))
    write("linear", [("MatMul", ["x", "w"], ["y"], {})], [("x", 4)], ("y", 3))
    write("generator", layers + [("MatMul", ["r", "w2"], ["s"], {}), ("Tanh", ["s"], ["y"], {})], [("x", 3)], ("y", 4))
    write("discriminator",
          [("MatMul", ["x", "w1"], ["m"], {}),
           ("BatchNormalization", ["m", "scale", "bias", "mean", "var"], ["n", "mean_out", "var_out"],
            {"training_mode": 1}),
           ("LeakyRelu", ["n"], ["r"], {"alpha": 0.25}), ("MatMul", ["r", "w2"], ["y"], {})], [("x", 4)], ("y", 1))
    constant = lambda n, v: ("Constant", [], [n], {"value_float": v})
    write("first", [constant("p", 2.0), constant("q", 3.0), ("Mul", ["a", "p"], ["pa"], {}),
                    ("Mul", ["b", "q"], ["qb"], {}), ("Add", ["pa", "qb"], ["y"], {})],
          [("a", "K"), ("b", "K")], ("y", "K"))


class Model(dict):
    def __init__(self, name):
        super().__init__({n: torch.tensor(a, dtype=torch.float64) for n, a in WEIGHTS[name].items()})

    def trained(self):
        return [v.requires_grad_() for n, v in self.items() if n not in ("mean", "var")]

    def mlp(self, x):
        return torch.relu(x @ self["w1"] + self["b1"]) @ self["w2"]

    def discriminate(self, x):
        m = x @ self["w1"]
        mean, var = m.mean(0), m.var(0, unbiased=False)
        for n, v in ("mean", mean), ("var", var):
            self[n] = 0.9 * self[n] + 0.1 * v.detach()
        n = (m - mean) / torch.sqrt(var + 1e-5) * self["scale"] + self["bias"]
        return F.leaky_relu(n, 0.25) @ self["w2"]


def samples(step, bad):
    values = {n: torch.tensor(pattern((ROWS, c), f, 23, step), dtype=torch.float64)
              for n, c, f in (("x", 4, 29), ("y", 4, 31), ("z", 3, 37), ("target", 3, 41))}
    if step == bad:
        values["x"][0, 0] = float("inf")
    return values


def run(name, models, owners, losses, bad=-1):
    """owners: (optimizer, its parameters, indices of its losses)"""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    rows = []
    for step in range(STEPS):
        before = [{n: v.clone() for n, v in m.items()} for m in models]
        values = losses(samples(step, bad))
        grads = [torch.autograd.grad(sum(scaler.scale(values[i]) for i in which), parameters, retain_graph=True)
                 for _, parameters, which in owners]
        found = not all(torch.isfinite(g).all() for gs in grads for g in gs)
        for (optimizer, parameters, _), own in zip(owners, grads):
            for p, g in zip(parameters, own):
                p.grad = g
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
        scaler.update()
        if found:  # buffers keep their values, too
            for m, old in zip(models, before):
                m.update({n: old[n] for n in m if n in ("mean", "var")})
        rows.append((sum(v.item() for v in values), values[0].item(), scaler.get_scale()))
    sums = [(f"{m}.{n}", v.sum().item(), (v * v).sum().item())
            for m, model in zip(name.split()[1:], models) for n, v in model.items()]
    number = lambda v: "NAN" if v != v or abs(v) == float("inf") else f"{v:.12g}"
    print(f'    {{"{name.split()[0]}", {bad}, {{')
    for total, first, scale in rows:
        print(f"         {{{number(total)}, {number(first)}, {scale:g}}},")
    print("     }, {")
    for n, a, b in sums:
        print(f'         {{"{n}", {a:.12g}, {b:.12g}}},')
    print("     }},")


def two(bad):
    a, b = Model("mlp"), Model("linear")
    oa = torch.optim.SGD(a.trained(), lr=0.01, momentum=0.9)
    ob = torch.optim.Adam(b.trained(), lr=0.02)

    def losses(s):
        ya, yb = a.mlp(s["x"]), s["x"] @ b["w"]
        return F.mse_loss(2 * ya + 3 * yb, s["target"]), F.mse_loss(3 * ya - 5 * yb, s["target"])

    run("two A B", [a, b], [(oa, a.trained(), (0, 1)), (ob, b.trained(), (0, 1))], losses, bad)


def gan():
    g, d = Model("generator"), Model("discriminator")
    og = torch.optim.Adam(g.trained(), lr=0.02, betas=(0.5, 0.999))
    od = torch.optim.Adam(d.trained(), lr=0.01, betas=(0.5, 0.999))
    bce = lambda p, y: F.binary_cross_entropy_with_logits(p, torch.full_like(p, y))

    def losses(s):
        fake = torch.tanh(g.mlp(s["z"]))
        real, fakes, trick = d.discriminate(s["x"]), d.discriminate(fake.detach()), d.discriminate(fake)
        return bce(real, 1.0) + 0.5 * bce(fakes, 0.0), bce(trick, 1.0)

    run("gan G D", [g, d], [(od, d.trained(), (0,)), (og, g.trained(), (1,))], losses)


def twin():
    m = Model("mlp")
    parameters = [m["w1"].requires_grad_(), m["w2"].requires_grad_()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def losses(s):
        p = m.mlp(s["x"])
        return (F.mse_loss(p, m.mlp(s["y"]).detach()) + 0.1 * F.l1_loss(p, torch.full_like(p, 0.25)),)

    run("twin M", [m], [(optimizer, parameters, (0,))], losses)


if __name__ == "__main__":
    write_models()
    print("/* linked.h - computed by linked/make_linked.py; do not edit. */")
    print("/* clang-format off */")
    two(-1)
    two(2)
    gan()
    twin()
    print("    /* clang-format on */")
