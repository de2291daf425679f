#!/usr/bin/env python3
"""Gradients, one step and the exported model against PyTorch, by the names of the state_dict, for fresh networks.

usage: tests/train/compare_torch.py [NAME]..     NAME: densenet121, resnet18, encoder, bert; default: all that the installed packages provide
AMPC_BUILD: the folder of the built programs, default build/release

Every network has the random weights of its constructor, so that an exporter finds equal tensors to merge. It is
exported by torch.onnx, with TorchScript (PRESERVE of a training and of an evaluated network, TRAINING, EVAL) and dynamo
(without its optimizer, which fuses layers), as docs/training.md describes. For each file
  - a conversion with --strict succeeds without a warning;
  - the gradients of every parameter, in the mode of the file and with --mode=train, are those of PyTorch;
  - after one step of SGD and an export, every parameter of the new file is that of PyTorch's own step, no two are one
    initializer, and a compilation of the new file trains the same names.
Run it by hand: it takes minutes, and needs torch >= 2, torchvision and (bert) transformers; without them it passes with a note.
"""

import copy
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx
    import onnx.numpy_helper
    import torch

    if int(torch.__version__.split(".")[0]) < 2:
        raise ImportError(f"torch {torch.__version__} is too old")
except ImportError as why:
    print(f"SKIP: {why}")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("AMPC_BUILD", ROOT / "build/release"))
TOLERANCE = 1e-3  # of the norm of the difference, relative to the norm of the gradient plus a floor
OWN = 2  # multiple of the distance between PyTorch's own f32 result and its f64 result, the reference
CLASSES, RATE = 10, 0.1


# ---- networks --------------------------------------------------------------------------------------------------------


def make_vision(name):
    import torchvision

    return getattr(torchvision.models, name)(num_classes=CLASSES), torch.randn(4, 3, 64, 64)


class Encoder(torch.nn.Module):
    """Linear, transformer encoder, linear over the last token."""

    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.embed = torch.nn.Linear(16, 32)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x))[:, -1])


class Bert(torch.nn.Module):
    """BERT of two layers that reads embeddings, so that its input is a float like that of the others."""

    def __init__(self):
        import transformers

        super().__init__()
        config = transformers.BertConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=16, num_labels=CLASSES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            attn_implementation="eager")
        self.bert = transformers.BertForSequenceClassification(config)

    def forward(self, x):
        kinds = torch.zeros(x.shape[:2], dtype=torch.int64)  # by default read from a buffer by GatherElements
        return self.bert(inputs_embeds=x, token_type_ids=kinds).logits


NETWORKS = {
    "densenet121": lambda: make_vision("densenet121"),
    "resnet18": lambda: make_vision("resnet18"),
    "encoder": lambda: (Encoder(), torch.randn(4, 5, 16)),
    "bert": lambda: (Bert(), torch.randn(4, 5, 32)),
}

# name, exporter, torch.onnx.TrainingMode, whether the network is in training mode during export
FORMS = [
    ("preserve-train", False, "PRESERVE", True),
    ("preserve-eval", False, "PRESERVE", False),
    ("training", False, "TRAINING", True),
    ("eval", False, "EVAL", False),
    ("dynamo-train", True, None, True),
    ("dynamo-eval", True, None, False),
]


def export(net, x, form, path):
    _, dynamo, mode, training = form
    net.train(training)
    how = {"dynamo": True, "optimize": False} if dynamo else {
        "dynamo": False, "do_constant_folding": False, "opset_version": 17,
        "training": getattr(torch.onnx.TrainingMode, mode)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), path, input_names=["x"], output_names=["y"], verbose=False, **how)


# ---- running ---------------------------------------------------------------------------------------------------------


def run(program, *arguments):
    done = subprocess.run([BUILD / program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{program} {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stderr


def gradients_of(net, x, label, training):
    net.train(training)
    net.zero_grad()
    torch.nn.functional.cross_entropy(net(x), label).backward()
    return {name: p.grad.numpy().astype(np.float64) for name, p in net.named_parameters() if p.grad is not None}


def errors_of(expected, found):
    """By name: the norm of the difference relative to that of the tensor, or to a floor if that is small."""
    floor = 1e-3 * max(np.linalg.norm(e) / e.size**0.5 for e in expected.values())
    return {name: np.linalg.norm(found[name].astype(np.float64) - e) / max(np.linalg.norm(e), floor * e.size**0.5)
            for name, e in expected.items()}


def compare(what, expected, found, own=None):
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    assert not missing, f"{what}: missing {missing[:5]} and {len(missing) - 5} more"
    assert not extra, f"{what}: unknown {extra[:5]}"
    errors, own = errors_of(expected, found), errors_of(expected, own or expected)
    for name, error in errors.items():
        assert error <= TOLERANCE + OWN * own[name], f"{what}: {name} differs by {error:.2e}, PyTorch by {own[name]:.2e}"
    return f"{what} {len(expected)} (worst {max(errors.values()):.1e}, PyTorch's f32 {max(own.values()):.1e})"


def check_gradients(net, x, label, path, mode, training):
    run("ampc-run", "grad", path, "--amp=O0", "--loss=ce", f"--mode={mode}", "--strict", "--inputs=inputs.npz",
        "-o", "grads.npz")
    found = {key[len("grad/"):]: value for key, value in np.load("grads.npz").items() if key.startswith("grad/")}
    own = gradients_of(net, x, label, training)
    exact = gradients_of(copy.deepcopy(net).double(), x.double(), label, training)
    return compare(f"gradients --mode={mode}", exact, found, own)


def check_step(net, x, label, path):
    before = {name: v.clone() for name, v in net.state_dict().items()}
    run("ampc", path, "-o", "step.ir", "--amp=O0", "--loss=ce", "--mode=train", f"--optimizer=sgd,lr={RATE}", "-q")
    run("ampc-run", "train", "step.ir", "--data=npz:data.npz", f"--batch={len(x)}", "--steps=1",
        "--checkpoint-dir=step.d", "-q")
    run("ampc-run", "export", "step.ir", "--checkpoint=step.d", "-o", "step.onnx")
    exact = gradients_of(copy.deepcopy(net).double(), x.double(), label, True)
    own = gradients_of(net, x, label, True)  # also updates the running statistics
    after = {name: v.clone() for name, v in net.state_dict().items()}
    net.load_state_dict(before)
    model = onnx.load("step.onnx")
    onnx.checker.check_model(model)
    found = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    moved = {name: (before[name].numpy().astype(np.float64) - found[name]) / RATE for name in exact}
    text = compare("step", exact, moved, own)
    # PyTorch divides the running variance by N - 1, ONNX by N, so only means are compared.
    means = {name: v.numpy() for name, v in after.items() if name.endswith("running_mean")}
    if means: text += ", " + compare("running means", means, {name: found[name] for name in means})
    run("ampc-run", "grad", "step.onnx", "--amp=O0", "--loss=ce", "--mode=train", "--strict", "--inputs=inputs.npz",
        "-o", "again.npz")
    again = {key[len("grad/"):] for key in np.load("again.npz") if key.startswith("grad/")}
    assert again == set(exact), f"the exported file trains {len(again)} names, not {len(exact)}"
    return text


def check(name, form):
    torch.manual_seed(7)
    net, x = NETWORKS[name]()
    label = torch.arange(len(x)) % CLASSES
    path = "net.onnx"
    export(net, x, form, path)
    np.savez("inputs.npz", x=x.numpy(), label=label.numpy())
    np.savez("data.npz", x=x.numpy(), label=label.numpy())
    said = run("ampc", path, "-o", "converted.onnx", "--strict")
    assert "warning" not in said, said
    said = run("ampc", path, "-o", "infer.ir", "--strict")
    assert "warning" not in said, said
    parts = []
    with torch.no_grad():
        state = {k: v.clone() for k, v in net.state_dict().items()}
    dynamo, training = form[1], form[3]
    # dynamo writes BatchNormalization in inference form in either mode of the network.
    parts.append(check_gradients(net, x, label, path, "file", training and not dynamo))
    net.load_state_dict(state)
    parts.append(check_gradients(net, x, label, path, "train", True))
    net.load_state_dict(state)
    parts.append(check_step(net, x, label, path))
    return "; ".join(parts)


def main():
    failed = 0
    for name in sys.argv[1:] or NETWORKS:
        for form in FORMS:
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                try:
                    print(f"PASS {name} {form[0]}: {check(name, form)}", flush=True)
                except ImportError as why:
                    print(f"SKIP {name} {form[0]}: {why}", flush=True)
                except Exception as why:
                    failed += 1
                    print(f"FAIL {name} {form[0]}: {why}", flush=True)
                os.chdir(ROOT)
    print("all agree" if not failed else f"{failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
