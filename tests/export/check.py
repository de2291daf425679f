"""Two steps of run-export.

check.py inputs CASE OUT.npz     the inputs of a golden case by name, and the options that train it, on stdout
check.py model OLD NEW CKPT      NEW is OLD with the weights of the checkpoint, in inference form and valid
"""
import json
import sys

import numpy as np
import onnx
import onnx.checker
from onnx import numpy_helper

LOSSES = {"cross_entropy": "ce", "nll": "nll", "mse": "mse", "bce_with_logits": "bce_logits"}


def inputs(case, out):
    meta = json.load(open(case + "/meta.json"))
    golden = np.load(case + "/golden.npz")
    np.savez(out, **{k[len("input/"):]: golden[k] for k in golden if k.startswith("input/")})
    loss = LOSSES.get(meta["loss"])
    options = [f"--loss={loss}:{meta['loss_output']}"] if loss else [f"--loss-output={meta['loss_output']}"]
    options += [f"--dim={name}={size}" for name, size in meta["dynamic_dims"].items()]
    print(*options)


def read_safetensors(path):
    kinds = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I64": np.int64}
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__" or entry["dtype"] not in kinds:
            continue
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + begin:8 + size + end], kinds[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def weights(graph):
    return {t.name: numpy_helper.to_array(t) for t in graph.initializer}


def model(old_path, new_path, checkpoint_path):
    old, new = onnx.load(old_path), onnx.load(new_path)
    onnx.checker.check_model(new, full_check=True)  # given a path, it would write shapes into the file
    saved = read_safetensors(checkpoint_path)
    saved = {k.split("/", 1)[1]: v for k, v in saved.items() if k.startswith(("param/", "buf/"))}
    assert old.opset_import == new.opset_import and old.ir_version == new.ir_version
    assert old.graph.output == new.graph.output
    before, after = weights(old.graph), weights(new.graph)
    assert saved and set(saved) <= set(after) <= set(before)
    for name, values in after.items():
        np.testing.assert_array_equal(values, saved.get(name, before[name]), err_msg=name)
    names = [n.name for n in old.graph.node]
    for n in new.graph.node:
        assert n.name in names or n.op_type == "Identity"
        assert n.op_type != "BatchNormalization" or len(n.output) == 1
        assert n.op_type != "Dropout" or len(n.input) < 3
        assert not any(a.name == "training_mode" for a in n.attribute)


if __name__ == "__main__":
    {"inputs": inputs, "model": model}[sys.argv[1]](*sys.argv[2:])
