"""Compares emitted models with other software: `python tests/emit/agree.py BUILD` with current onnx, onnxruntime and numpy
(Debian's onnx is too old for bfloat16 at opset 22).

Each golden and test model at O1, fp16 and bf16: full check; convolutions and products read the low type; onnxruntime
loads the fp16 model and its outputs agree with those of `ampc-run infer` on the same emitted model within 1e-2 of the
largest value. Models of make_models.py, which only are converted, are held against the same model in fp32, but the
detector, whose choices may differ. Models with opaque operators are compared with the golden outputs, but not where
those were made with the statistics of the batch. Prints a Markdown table; docs/onnx-out.md has the last one."""
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, os.path.dirname(__file__))
import check  # noqa: E402
import make_models  # noqa: E402

TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
BUDGET = 1e-2


def emit(build, model, low, out):
    command = [f"{build}/ampc", model, "-q", f"--dtype={low}", "-o", out]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr.split("\n")[0]


def valid(model, out, low):
    try:
        check.check(onnx.load(model), onnx.load(out), onnx.TensorProto.DataType.Value(low))
        return "yes"
    except Exception as error:  # the checker raises exceptions of its own types
        return f"no: {str(error)[:80]}"


def distance(a, b):
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) if a.size else 0.0


def own_outputs(build, out, inputs, work):
    np.savez(work + "/in.npz", **inputs)
    command = [f"{build}/ampc-run", "infer", out, "-q", "--amp=O0", "--freeze=*"]
    command += ["--inputs", work + "/in.npz", "-o", work + "/out.npz"]
    done = subprocess.run(command, capture_output=True)
    return np.load(work + "/out.npz") if done.returncode == 0 else None


def run_both(before, after):
    """The greatest difference between two models on random inputs."""
    old, new = (onnxruntime.InferenceSession(m, providers=["CPUExecutionProvider"]) for m in (before, after))
    random = np.random.default_rng(0)
    feeds = {i.name: random.standard_normal([d if isinstance(d, int) else 3 for d in i.shape]).astype(np.float32)
             for i in old.get_inputs()}
    if before.endswith("detector.onnx"):
        return "loads"
    worst = max(distance(a, b) for a, b in zip(new.run(None, feeds), old.run(None, feeds)))
    return f"{worst:.1e} from fp32{'' if worst <= BUDGET else ' (more than the budget)'}"


def agreement(build, model, out, work):
    folder = os.path.dirname(model)
    if folder == work:
        return run_both(model, out)
    if not os.path.exists(folder + "/golden.npz"):
        return "loads" if onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"]) else ""
    golden = np.load(folder + "/golden.npz")
    try:
        session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    except Exception as error:
        return f"does not load: {str(error)[:120]}"
    inputs = {i.name: golden["input/" + i.name].astype(TYPES[i.type]) for i in session.get_inputs()}
    results = dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))
    own = own_outputs(build, out, inputs, work)
    if not own and any(k.startswith("bn/") for k in golden):
        return "loads"
    wanted, whose = (own, "own run") if own else (golden, "golden")
    worst = max(distance(v, wanted["output/" + k]) for k, v in results.items() if "output/" + k in wanted)
    return f"{worst:.1e} from {whose}{'' if worst <= BUDGET else ' (more than the budget)'}"


def main(build):
    print("| model | fp16 valid | onnxruntime, fp16 | bf16 valid |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        make_models.write(work)
        made = sorted(glob.glob(work + "/*.onnx"))
        for model in made + sorted(glob.glob("tests/models/*.onnx") + glob.glob("tests/goldens/*/model.onnx")):
            folder, out, cells = os.path.dirname(model), work + "/new.onnx", []
            for low, name in (("fp16", "FLOAT16"), ("bf16", "BFLOAT16")):
                code, message = emit(build, model, low, out)
                cells.append(valid(model, out, name) if code == 0 else f"exit {code}: {message[-80:]}")
                if low == "fp16":
                    cells.append(agreement(build, model, out, work) if code == 0 else "")
            title = os.path.basename(folder) if "goldens" in folder else os.path.basename(model)[:-5]
            print(f"| {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
