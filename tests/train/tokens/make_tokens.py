#!/usr/bin/env python3
"""Writes the files of this folder: tiny BERT and GPT-2 of transformers as torch.onnx exports them, and the
results of PyTorch for them (README.md here). Needs torch, transformers, onnx and onnxscript; tests only read the files.

usage: make_tokens.py
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxscript.optimizer
import torch
import transformers
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS = 29, 8, 16, 2, 2
TRAIN, EVAL, STEPS = 6, 5, 10
OPTIMIZERS = {
    "sgd,lr=0.2": lambda p: torch.optim.SGD(p, lr=0.2),
    "adamw,lr=0.01,weight_decay=0.01": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.01),
}
here = Path(__file__).parent


class Bert(torch.nn.Module):
    inputs = ["input_ids", "attention_mask", "token_type_ids"]

    def __init__(self, expanded):
        """expanded: the additive mask is computed here instead of by transformers, whose form needs GatherND when dynamo
        exports it."""
        super().__init__()
        self.expanded = expanded
        self.model = BertForMaskedLM(BertConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            intermediate_size=2 * WIDTH, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, attn_implementation="eager"))

    def forward(self, input_ids, attention_mask, token_type_ids):
        if self.expanded:
            one = self.model.cls.predictions.bias.dtype
            attention_mask = (1.0 - attention_mask[:, None, None, :].to(one)) * -1e4
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits
        return logits.reshape(-1, VOCABULARY)


class GPT2(torch.nn.Module):
    def __init__(self, buffered):
        """buffered: the causal mask is a buffer, so the file has it as an initializer; otherwise transformers computes it
        from positions and from the attention mask, which needs GatherND when dynamo exports it."""
        super().__init__()
        self.buffered = buffered
        self.inputs = ["input_ids"] if buffered else ["input_ids", "attention_mask"]
        self.model = GPT2LMHeadModel(GPT2Config(
            vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_inner=2 * WIDTH,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager"))
        if buffered:
            self.register_buffer("mask", torch.triu(torch.full((1, 1, LENGTH, LENGTH), -1e4), 1))

    def forward(self, input_ids, attention_mask=None):
        mask = self.mask if self.buffered else attention_mask
        return self.model(input_ids=input_ids, attention_mask=mask, use_cache=False).logits.reshape(-1, VOCABULARY)


def make(network, variant):
    """The same weights for every variant; large enough for ten steps to have an effect."""
    torch.manual_seed(1)
    module = network(variant).train()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    return module


def draw(samples, seed):
    random = np.random.default_rng(seed)
    used = random.integers(3, LENGTH + 1, samples)
    return {
        "input_ids": random.integers(0, VOCABULARY, (samples, LENGTH)),
        "attention_mask": (np.arange(LENGTH) < used[:, None]).astype(np.int64),
        "token_type_ids": random.integers(0, 2, (samples, LENGTH)),
        "label": random.integers(0, VOCABULARY, (samples, LENGTH)),
    }


def tensors(module, data):
    return tuple(torch.from_numpy(data[name]) for name in module.inputs)


# ---- exporting ----

def export(module, data, path, dynamo):
    arguments = tensors(module, data)
    if dynamo:
        batch = torch.export.Dim("N", min=1, max=512)
        program = torch.onnx.export(module, arguments, dynamo=True, optimize=False, verbose=False,
                                    input_names=module.inputs, output_names=["logits"],
                                    dynamic_shapes=tuple({0: batch} for _ in arguments))
        # Weights of the real models exceed the optimizer's limits, so it neither folds them nor unties the
        # head that way.
        onnxscript.optimizer.optimize_ir(program.model, input_size_limit=64, output_size_limit=64)
        program.save(str(path))
    else:
        torch.onnx.export(module, arguments, str(path), dynamo=False, opset_version=17, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, input_names=module.inputs,
                          output_names=["logits"], dynamic_axes={name: {0: "N"} for name in module.inputs})
    strip(path)


def strip(path):
    """Removes descriptions of the graph: stack traces, shapes of intermediate values."""
    model = onnx.load(str(path))
    del model.graph.value_info[:], model.metadata_props[:], model.graph.metadata_props[:]
    for item in [*model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output]:
        item.doc_string = ""
        del item.metadata_props[:]
    onnx.save(model, str(path))


def constants(path):
    """Initializers that PyTorch does not train: buffers and constants of formulas."""
    return [t.name for t in onnx.load(str(path)).graph.initializer
            if t.data_type == onnx.TensorProto.FLOAT and (t.name == "mask" or np.prod(t.dims) == 1)]


# ---- training ----

def losses_of(network, variant, data, test, optimizer):
    module = make(network, variant).double()
    label, steps = torch.from_numpy(data["label"]).reshape(-1), []
    update = OPTIMIZERS[optimizer](module.parameters())
    for _ in range(STEPS):
        update.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(*tensors(module, data)), label)
        loss.backward()
        update.step()
        steps.append(loss.item())
    with torch.no_grad():
        logits, label = module(*tensors(module, test)), torch.from_numpy(test["label"]).reshape(-1)
        final = torch.nn.functional.cross_entropy(logits, label).item()
        accuracy = (logits.argmax(1) == label).double().mean().item()
    return {"losses": steps, "eval_loss": final, "accuracy": accuracy}


CASES = {  # file: network, variant, exported by dynamo
    "bert-script": (Bert, False, False),
    "bert-dynamo": (Bert, True, True),
    "gpt2-script": (GPT2, False, False),
    "gpt2-dynamo": (GPT2, True, True),
}


def main():
    train, test = draw(TRAIN, 2), draw(EVAL, 3)
    expected = {"made with": f"torch {torch.__version__}, transformers {transformers.__version__}, onnx {onnx.__version__}",
                "cases": {}}
    for name, (network, variant, dynamo) in CASES.items():
        module = make(network, variant)
        export(module, train, here / f"{name}.onnx", dynamo)
        expected["cases"][name] = {
            "trained elements": sum(p.numel() for p in module.parameters()),
            "constants": constants(here / f"{name}.onnx"),
            "optimizers": {text: losses_of(network, variant, train, test, text) for text in OPTIMIZERS}}
    np.savez(here / "train.npz", **train)
    np.savez(here / "test.npz", **{**test, "label": test["label"].reshape(-1)})
    (here / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
