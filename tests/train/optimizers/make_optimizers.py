#!/usr/bin/env python3
"""Makes the models, the data and the expected values of check_optimizers.py: 50 steps of every optimizer in float64.

usage: tests/train/optimizers/make_optimizers.py     needs torch >= 2.9 and onnx

MODEL.onnx and MODEL.npz are the models and one batch each. expected.npz has, for each model and each line of optimizers.txt,
the losses before each step and the parameters after the last one. An optimizer of PyTorch computes them if there is one, else
the formula of its paper, in formulas.py.
"""

import pathlib

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

import formulas

FOLDER = pathlib.Path(__file__).resolve().parent
STEPS, ROWS = 50, 8
random = np.random.default_rng(14)


def draw(*shape, scale=0.5):
    return random.uniform(-scale, scale, shape).astype(np.float32)


# ---- models: parameters, ONNX nodes, the same network in PyTorch, the loss -------------------------------------------------


def mlp():
    p = {"fc1.weight": draw(12, 6), "fc1.bias": draw(12), "fc2.weight": draw(5, 12), "fc2.bias": draw(5)}
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], "fc1", transB=1),
        helper.make_node("Tanh", ["h"], ["t"], "tanh"),
        helper.make_node("Gemm", ["t", "fc2.weight", "fc2.bias"], ["y"], "fc2", transB=1),
    ]

    def network(p, x):
        h = torch.tanh(x @ p["fc1.weight"].T + p["fc1.bias"])
        return h @ p["fc2.weight"].T + p["fc2.bias"]

    return p, nodes, network, draw(ROWS, 6, scale=2), random.integers(0, 5, ROWS), "ce", [None, 5]


def cnn():
    p = {"conv.weight": draw(4, 2, 3, 3), "conv.bias": draw(4), "fc.weight": draw(3, 4), "fc.bias": draw(3)}
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], "conv", kernel_shape=[3, 3]),
        helper.make_node("Softplus", ["c"], ["s"], "softplus"),
        helper.make_node("GlobalAveragePool", ["s"], ["g"], "pool"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["y"], "fc", transB=1),
    ]

    def network(p, x):
        c = torch.nn.functional.conv2d(x, p["conv.weight"], p["conv.bias"])
        return torch.nn.functional.softplus(c).mean((2, 3)) @ p["fc.weight"].T + p["fc.bias"]

    return p, nodes, network, draw(ROWS, 2, 6, 6, scale=1), draw(ROWS, 3, scale=1), "mse", [None, 3]


def attention():
    p = {"norm.weight": 1 + draw(8, scale=0.2), "norm.bias": draw(8, scale=0.2)}
    for name in ("q", "k", "v", "out"):
        p[f"{name}.weight"] = draw(8, 8)
    nodes = [helper.make_node("LayerNormalization", ["x", "norm.weight", "norm.bias"], ["n"], "norm", axis=-1)]
    nodes += [helper.make_node("MatMul", ["n", f"{name}.weight"], [name], name) for name in ("q", "k", "v")]
    nodes += [
        helper.make_node("Transpose", ["k"], ["kt"], "transpose", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"], "scores"),
        helper.make_node("Softmax", ["scores"], ["a"], "softmax", axis=-1),
        helper.make_node("MatMul", ["a", "v"], ["m"], "mix"),
        helper.make_node("MatMul", ["m", "out.weight"], ["y"], "out"),
    ]

    def network(p, x):
        n = torch.nn.functional.layer_norm(x, (8,), p["norm.weight"], p["norm.bias"])
        q, k, v = (n @ p[f"{name}.weight"] for name in ("q", "k", "v"))
        return torch.softmax(q @ k.transpose(1, 2), -1) @ v @ p["out.weight"]

    return p, nodes, network, draw(ROWS, 5, 8, scale=2), draw(ROWS, 5, 8, scale=1), "mse", [None, 5, 8]


def save(name, p, nodes, x, y_dims):
    dims = lambda d: ["N"] + list(d[1:])
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims(x.shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims(y_dims))],
        [numpy_helper.from_array(v, k) for k, v in p.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(FOLDER / f"{name}.onnx"))


# ---- optimizers ---------------------------------------------------------------------------------------------------------


def parse(line):
    """Returns the name, the options, the groups and the flags of a line of optimizers.txt."""
    optimizer, *rest = line.split()
    name, *pairs = optimizer.removeprefix("--optimizer=").split(",")
    options = dict(pair.split("=") for pair in pairs)
    options = {k: v if k == "adjust" else float(v) for k, v in options.items()}
    options |= {"factor": 1.0} | ({"muon": None} if name == "muon" else {})
    groups = [r.removeprefix("--group=").split(",") for r in rest if r.startswith("--group=")]
    ema = [float(r.removeprefix("--ema=")) for r in rest if r.startswith("--ema=")]
    return name, options, groups, "--no-decay" in rest, ema[0] if ema else 0


def settings_of(name, dims, options, groups, no_decay):
    """The options of one parameter; None: frozen."""
    own = dict(options)
    if no_decay and (dims <= 1 or name.endswith(".bias")):
        own["weight_decay"] = own["adamw_weight_decay"] = 0.0
    for glob, *keys in groups:
        if not pathlib.PurePath(name).match(glob):
            continue
        for key in keys:
            if key == "freeze":
                return None
            word, value = key.split("=")
            own[{"lr_factor": "factor"}.get(word, word)] = float(value)
            if word == "weight_decay":
                own["adamw_weight_decay"] = float(value)
    return own


class Flat:
    """Muon of a convolution kernel: a matrix with a row for each output channel."""

    def __init__(self, kernel, options):
        self.kernel, self.matrix = kernel, kernel.detach().view(len(kernel), -1)
        self.optimizer = torch.optim.Muon([self.matrix], **options)

    def step(self):
        self.matrix.grad = self.kernel.grad.view(self.matrix.shape)
        self.optimizer.step()


def make_muon(parameter, options):
    torch.optim._muon._zeropower_via_newtonschulz = formulas.newton_schulz
    is_matrix = options.pop("muon")
    adamw = {k.removeprefix("adamw_"): options.pop(k) for k in list(options) if k.startswith("adamw_")}
    if not (parameter.dim() == 2 if is_matrix is None else is_matrix):
        adamw["factor"] = options["factor"] * adamw.pop("lr", options["lr"]) / options["lr"]
        return make("adamw", [parameter], adamw | {"lr": options["lr"]})
    options["adjust_lr_fn"] = options.pop("adjust", None)
    options["ns_steps"] = int(options.pop("ns_steps", 5))
    options["ns_coefficients"] = [options.pop(f"ns_{k}", v) for k, v in zip("abc", (3.4445, -4.7750, 2.0315))]
    options["nesterov"] = bool(options.pop("nesterov", 1))
    options["lr"] = rate_of(options)
    return Flat(parameter, options) if parameter.dim() > 2 else torch.optim.Muon([parameter], **options)


def rate_of(options):
    return float(np.float32(np.float32(options["lr"]) * np.float32(options.pop("factor"))))


def make(name, parameters, options):
    """An optimizer of one parameter."""
    if name == "muon":
        return make_muon(parameters[0], dict(options))
    keys = {k: v for k, v in options.items() if k not in ("beta1", "beta2") and not k.startswith("adamw_")}
    keys["lr"] = rate_of(keys)
    if "beta1" in options or "beta2" in options:
        defaults = formulas.BETAS.get(name, (0.9, 0.999))
        keys["betas"] = (options.get("beta1", defaults[0]), options.get("beta2", defaults[1]))
    if name in formulas.ALL:
        return formulas.ALL[name](parameters, **keys)
    if name == "adafactor":
        keys["eps"] = (keys.pop("eps1", torch.finfo(torch.float32).eps), keys.pop("eps2", 1e-3))
    if name == "adagrad":
        keys["initial_accumulator_value"] = keys.pop("initial", 0.0)
    if name == "nadam":
        keys["decoupled_weight_decay"] = bool(keys.pop("decoupled", 0))
    if name in ("momentum", "nesterov"):
        keys["momentum"] = keys.get("momentum", 0.9)
        keys["nesterov"] = name == "nesterov"
    if name == "rmsprop":
        keys["centered"] = bool(keys.pop("centered", 0))
    kinds = {kind.lower(): kind for kind in dir(torch.optim) if kind[0].isupper()}
    kinds |= {"momentum": "SGD", "nesterov": "SGD"}
    return getattr(torch.optim, kinds[name])(parameters, **keys)


def train(line, p, network, x, label, loss):
    name, options, groups, no_decay, ema = parse(line)
    t = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in p.items()}
    averages = {k: v.detach().clone() for k, v in t.items()}
    x = torch.tensor(x, dtype=torch.float64)
    label = torch.tensor(label) if loss == "ce" else torch.tensor(label, dtype=torch.float64)
    optimizers = []
    for k, v in t.items():
        own = settings_of(k, v.dim(), options, groups, no_decay)
        if own:
            optimizers.append(make(name, [v], own))
    losses = []
    for _ in range(STEPS):
        y = network(t, x)
        value = torch.nn.functional.cross_entropy(y, label) if loss == "ce" else ((y - label) ** 2).mean()
        losses.append(value.item())
        for v in t.values():
            v.grad = None
        value.backward()
        for optimizer in optimizers:
            optimizer.step()
        for k, v in averages.items():
            v += (1 - ema) * (t[k].detach() - v)
    final = averages if ema else t
    return np.array(losses), {k: v.detach().numpy() for k, v in final.items()}


def main():
    lines = [line for line in (FOLDER / "optimizers.txt").read_text().splitlines() if line and not line.startswith("#")]
    expected = {}
    for build in (mlp, cnn, attention):
        p, nodes, network, x, label, loss, y_dims = build()
        save(build.__name__, p, nodes, x, y_dims)
        np.savez(FOLDER / f"{build.__name__}.npz", x=x, label=label)
        for number, line in enumerate(lines):
            losses, final = train(line, p, network, x, label, loss)
            expected[f"{build.__name__}/{number}/loss"] = losses
            for k, v in final.items():
                expected[f"{build.__name__}/{number}/{k}"] = v.astype(np.float32)
    np.savez_compressed(FOLDER / "expected.npz", **expected)


if __name__ == "__main__":
    main()
