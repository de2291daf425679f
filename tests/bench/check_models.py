#!/usr/bin/env python3
"""Compares the models of make_models.py with those of torchvision and transformers: logits under the same weights and
nodes that compute for small ones, compared with exports by both exporters; parameters and FLOPs for the full ones. Needs
torch, torchvision, transformers, onnx, onnxscript and onnxruntime; run by hand.

usage: check_models.py FOLDER      creates FOLDER with tiny/ and full/
"""
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torchvision
from onnx import numpy_helper, shape_inference
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

GELU = {"Erf": "GELU", "Gelu": "GELU", "Tanh": "GELU", "MatMul": "product", "Gemm": "product", "Conv": "product"}
COUNTED = {*GELU, "Softmax", "LayerNormalization", "BatchNormalization", "Relu", "MaxPool"}


def bert(tiny):
    sizes = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
                 max_position_embeddings=16) if tiny else {}
    return BertForMaskedLM(BertConfig(attn_implementation="eager", **sizes))


def gpt2(tiny):
    sizes = dict(vocab_size=97, n_embd=32, n_layer=2, n_head=2, n_positions=8) if tiny else {}
    return GPT2LMHeadModel(GPT2Config(attn_implementation="eager", **sizes))


def resnet50(_):
    return torchvision.models.resnet50()


class Logits(torch.nn.Module):
    """Masks as in the generated model; no cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        if isinstance(self.model, BertForMaskedLM):
            mask = (1.0 - inputs[1][:, None, None, :].float()) * -1e4
            y = self.model(input_ids=inputs[0], attention_mask=mask, token_type_ids=inputs[2]).logits
        elif isinstance(self.model, GPT2LMHeadModel):
            length = inputs[0].shape[1]
            mask = torch.triu(torch.full((1, 1, length, length), -1e4, device=inputs[0].device), 1)
            y = self.model(input_ids=inputs[0], attention_mask=mask, use_cache=False).logits
        else:
            return self.model(*inputs)
        return y.reshape(-1, y.shape[-1])


def inputs_of(name, tiny, device="cpu"):
    if name == "resnet50":
        return (torch.zeros(1, 3, 224, 224, device=device),)
    shape = (2, 8) if tiny else (1, {"bert": 128, "gpt2": 1024}[name])
    ids = torch.randint(0, 97, shape).to(device)
    used = (torch.arange(shape[1]) < torch.tensor([[5], [8]])[: shape[0]]).long().to(device)
    return (ids, used, torch.randint(0, 2, shape).to(device)) if name == "bert" else (ids,)


def count(path):
    nodes = onnx.load(str(path), load_external_data=False).graph.node
    return dict(sorted(Counter(GELU.get(n.op_type, n.op_type) for n in nodes if n.op_type in COUNTED).items()))


def flops(path):
    """Of matrix products with N = 1; a multiply-add is two."""
    model = onnx.load(str(path))
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    model.graph.output[0].type.tensor_type.shape.dim[0].Clear()
    model = shape_inference.infer_shapes(model, data_prop=True)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
              for v in [*model.graph.value_info, *model.graph.input, *model.graph.output]}
    shapes.update({t.name: list(t.dims) for t in model.graph.initializer})
    total = 0
    for n in model.graph.node:
        if n.op_type in ("MatMul", "Gemm"):
            attributes = {a.name: a.i for a in n.attribute}
            columns = shapes[n.input[1]][0 if attributes.get("transB") else -1]
            total += 2 * int(np.prod(shapes[n.input[0]])) * columns
        if n.op_type == "Conv":
            total += 2 * int(np.prod(shapes[n.output[0]])) * int(np.prod(shapes[n.input[1]][1:]))
    return total


def compare_logits(name, model, inputs, path):
    """Both in inference form, with the weights of PyTorch."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape)
        expected = model(*inputs).numpy()
    file = onnx.load(str(path))
    state = {k: v.numpy() for k, v in model.model.state_dict().items()}
    for tensor in file.graph.initializer:
        array = state[tensor.name]
        array = array if list(array.shape) == list(tensor.dims) and not is_linear(name, tensor.name) else array.T
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
    for node in file.graph.node:
        if node.op_type == "BatchNormalization":
            del node.attribute[:], node.output[1:]
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    got = session.run(None, {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs)})[0]
    error = np.abs(got - expected).max() / np.abs(expected).max()
    print(f"{name}: logits within {error:.1e}")
    assert error < 1e-5


def check_tiny(name, make, folder):
    torch.manual_seed(3)
    model, inputs = Logits(make(True)).eval(), inputs_of(name, True)
    compare_logits(name, model, inputs, folder / f"{name}.onnx")
    print(f"    nodes {count(folder / f'{name}.onnx')}")
    for dynamo in (False, True):
        path = folder / f"{name}.export.onnx"
        torch.onnx.export(model, inputs, str(path), dynamo=dynamo, verbose=False, **({} if dynamo else {"opset_version": 17}))
        print(f"    exported {'by dynamo' if dynamo else 'by TorchScript'}: {count(path)}")
        assert count(path) == count(folder / f"{name}.onnx")


def is_linear(name, weight):
    """nn.Linear stores [out, in]; Conv1D of GPT-2 [in, out]."""
    return name == "bert" and weight.endswith((".query.weight", ".key.weight", ".value.weight", ".dense.weight"))


def check_full(name, make, folder):
    with torch.device("meta"):
        model = Logits(make(False)).eval()
    parameters = sum(p.numel() for p in model.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*inputs_of(name, False, "meta"))
    path = folder / f"{name}.onnx"
    print(f"{name}: {parameters:,} parameters, {counter.get_total_flops():,} FLOPs of {flops(path):,}; nodes {count(path)}")
    assert counter.get_total_flops() == flops(path)


def main():
    folder = Path(sys.argv[1])
    script = Path(__file__).parent / "make_models.py"
    for kind, options in (("tiny", ["--tiny"]), ("full", ["--zeros"])):
        subprocess.run([sys.executable, script, *options, folder / kind, "resnet50", "bert", "gpt2"], check=True)
    for name, make in (("bert", bert), ("gpt2", gpt2)):
        check_tiny(name, make, folder / "tiny")
    image = torch.rand(2, 3, 224, 224)
    compare_logits("resnet50", Logits(resnet50(False)).eval(), (image,), folder / "full" / "resnet50.onnx")
    for name, make in (("resnet50", resnet50), ("bert", bert), ("gpt2", gpt2)):
        check_full(name, make, folder / "full")


if __name__ == "__main__":
    main()
