"""Exports the models of zoo.py with both exporters of PyTorch; check_zoo.py checks the results.

usage: python tests/models/make_zoo.py [--out FOLDER] [--exporter dynamo|legacy|trainable] [--dynamic] [NAME..]

Needs current torch, torchvision, timm, transformers and onnxscript. Writes NAME.EXPORTER.onnx and NAME.npz, which has the inputs
and the outputs of PyTorch (arrays in/K and out/K), to FOLDER (default: /tmp/zoo). With --dynamic the first axis of every
input, and the second one of token numbers, are symbolic.
"""
import argparse
import contextlib
import io
import os
import sys
import warnings

import numpy as np
import onnx
import torch
from torch.onnx import TrainingMode

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def build(model):
    """Returns the module, in evaluation mode, and its inputs. All vectors and constant tensors get random values: exporters
    merge tensors that are equal."""
    import zoo
    torch.manual_seed(1)
    module, inputs = zoo.MODELS[model]()
    module.eval()
    for key, value in module.state_dict().items():
        if key.endswith("running_mean"):
            value.copy_(torch.randn_like(value) * 0.1)
        elif key.endswith("running_var"):
            value.copy_(torch.rand_like(value) + 0.5)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            is_norm = name.endswith("original0")  # of a weight, which exporters multiply in advance
            if is_norm or parameter.dim() == 1 or (parameter == parameter.flatten()[0]).all():
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return module, inputs


def run(module, inputs):
    """The outputs as a tuple."""
    with torch.no_grad():
        outputs = module(*inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def symbolic_axes(x):
    return {0: "batch", 1: "length"} if x.dtype == torch.int64 and x.dim() == 2 else {0: "batch"} if x.dim() else {}


def export_dynamo(module, inputs, path, dynamic):
    shapes = None
    if dynamic:
        shapes = tuple({axis: torch.export.Dim.DYNAMIC for axis in symbolic_axes(x)} for x in inputs)
    program = torch.onnx.export(module, inputs, dynamo=True, verbose=False, dynamic_shapes=shapes)
    program.save(path, external_data=False)


def export_legacy(module, inputs, path, dynamic, training=TrainingMode.EVAL):
    names = [f"x{i}" for i in range(len(inputs))]
    torch.onnx.export(module, inputs, path, dynamo=False, training=training, opset_version=17,
                      input_names=names, do_constant_folding=training == TrainingMode.EVAL,
                      dynamic_axes={n: symbolic_axes(x) for n, x in zip(names, inputs)} if dynamic else None)


def bodies(graph):
    """The graph and all graphs within it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from bodies(attribute.g)


def name_parameters(path, module):
    """The exporter writes parameters of networks within the branches of a script as Constant nodes, which are not trained.
    Makes initializers of them."""
    proto = onnx.load(path)
    values = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
    present = {tensor.name for tensor in proto.graph.initializer}
    for body in bodies(proto.graph):
        for node in [n for n in body.node if n.op_type == "Constant" and n.attribute[0].name == "value"]:
            value = onnx.numpy_helper.to_array(node.attribute[0].t)
            name = next((n for n, v in values.items() if v.ndim and np.array_equal(v, value)), None)
            if name is None:
                continue
            if name not in present:
                proto.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
                present.add(name)
            for user in (user for inner in bodies(body) for user in inner.node):
                user.input[:] = [name if used == node.output[0] else used for used in user.input]
            body.node.remove(node)
    onnx.save(proto, path)


def export_trainable(module, inputs, path, dynamic):
    """All parameters as they are: batch norms are not merged into convolutions, nothing is computed in advance."""
    export_legacy(module, inputs, path, dynamic, TrainingMode.PRESERVE)
    name_parameters(path, module)


EXPORTERS = {"dynamo": export_dynamo, "legacy": export_legacy, "trainable": export_trainable}


def strip(path):
    """Removes what tells where the export ran: stack traces and documentation."""
    proto = onnx.load(path)
    for graph in [body for graph in [proto.graph, *proto.functions] for body in bodies(graph)]:
        is_function = not hasattr(graph, "initializer")
        values = [] if is_function else [*graph.value_info, *graph.input, *graph.output, *graph.initializer]
        for item in [*graph.node, *values]:
            item.doc_string = ""
            del item.metadata_props[:]
    onnx.save(proto, path)


def make(name, folder, exporters, dynamic):
    """Returns a line for each exporter."""
    module, inputs = build(name)
    arrays = {f"in/{i}": np.array(x.numpy(), order="C") for i, x in enumerate(inputs)}
    arrays.update({f"out/{i}": np.array(y.numpy(), order="C") for i, y in enumerate(run(module, inputs))})
    np.savez_compressed(f"{folder}/{name}.npz", **arrays)
    for exporter in exporters:
        path = f"{folder}/{name}.{exporter}.onnx"
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                EXPORTERS[exporter](module, inputs, path, dynamic)
            strip(path)
            yield f"{name}.{exporter}: {os.path.getsize(path)} bytes"
        except Exception as error:  # whatever an exporter raises is reported with the model
            text = str(error).strip() or "?"
            yield f"{name}.{exporter}: not exported: {type(error).__name__}: {text.splitlines()[0][:200]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="/tmp/zoo")
    parser.add_argument("--exporter", choices=EXPORTERS)
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import zoo
    os.makedirs(options.out, exist_ok=True)
    for name in options.names or zoo.MODELS:
        for line in make(name, options.out, [options.exporter] if options.exporter else EXPORTERS, options.dynamic):
            print(line, flush=True)


if __name__ == "__main__":
    main()
