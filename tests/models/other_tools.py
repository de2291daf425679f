"""Compares files of other tools with onnxruntime: its optimiser, transformers' optimiser, float16 and quantisation tools,
onnxsim, tf2onnx, skl2onnx, jax2onnx, paddle2onnx.

usage: python tests/models/other_tools.py BUILD [--only TEXT] [--keep DIR] [--verbose]

Versions with which it was last run:
    torch 2.15.0  transformers 5.24.0  onnx 1.23.2  onnxruntime 1.32.0  onnxscript 0.7.2  onnxsim 0.8.1  skl2onnx 1.20.0
    tensorflow 2.21.0  tf2onnx 1.17.0

A tool that is not installed is skipped. Networks are tiny and have random weights; nothing is downloaded. Each file runs in
onnxruntime, on random inputs; `BUILD/ampc-run infer` must agree within 1e-4 of the largest value of each output. Prints the
files that differ or are refused, and the share of those that agree. Exit status 1 if it is below 95 %.
"""
import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime

warnings.filterwarnings("ignore")
onnxruntime.set_default_logger_severity(4)
SAME = 1e-4
WANTED = 0.95


# ---- networks ------------------------------------------------------------------------------------------------------------


def torch_networks():
    import torch
    import transformers as hf
    nn = torch.nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.n, self.m, self.f = nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.Linear(8, 5)

        def forward(self, x):
            h = torch.relu(self.n(self.a(x)))
            h = torch.relu(h + self.m(self.b(h)))
            return self.f(nn.functional.avg_pool2d(h, 4).mean((2, 3)))

    class Mobile(nn.Module):
        def __init__(self):
            super().__init__()
            self.s = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.Hardswish(), nn.Conv2d(16, 16, 3, groups=16),
                                   nn.ReLU6(), nn.Conv2d(16, 8, 1), nn.MaxPool2d(2), nn.LeakyReLU(0.2), nn.Flatten(),
                                   nn.Linear(72, 6), nn.Softmax(-1))

        def forward(self, x):
            return self.s(x)

    class Recurrent(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.r = getattr(nn, kind)(6, 8, batch_first=True, bidirectional=True)
            self.f = nn.Linear(16, 4)

        def forward(self, x):
            return self.f(self.r(x)[0])

    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n, self.p, self.q, self.r = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16), nn.RMSNorm(16)

        def forward(self, x):
            h = x + self.q(nn.functional.gelu(self.p(self.n(x))))
            return self.r(h) @ h.transpose(1, 2) * 0.25

    image = torch.randn(1, 3, 16, 16)
    yield "mlp", nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)), (torch.randn(2, 8),)
    yield "residual", Residual(), (image,)
    yield "mobile", Mobile(), (image,)
    yield "lstm", Recurrent("LSTM"), (torch.randn(2, 5, 6),)
    yield "gru", Recurrent("GRU"), (torch.randn(2, 5, 6),)
    yield "mixer", Mixer(), (torch.randn(2, 6, 16),)
    ids, mask = torch.randint(0, 50, (2, 7)), torch.tensor([[1] * 7, [1] * 5 + [0] * 2])

    def wrapped(model, *names):
        class Wrapped(nn.Module):
            def __init__(self):
                super().__init__()
                self.m = model.eval()

            def forward(self, *x):
                return self.m(**dict(zip(names, x)), return_dict=False)[0]
        return Wrapped()
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
             "attn_implementation": "eager"}
    yield "bert", wrapped(hf.BertModel(hf.BertConfig(vocab_size=50, max_position_embeddings=32, **small)), "input_ids",
                          "attention_mask"), (ids, mask)
    yield "distilbert", wrapped(hf.DistilBertModel(hf.DistilBertConfig(
        vocab_size=50, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32,
        attn_implementation="eager")), "input_ids", "attention_mask"), (ids, mask)
    yield "gpt2", wrapped(hf.GPT2Model(hf.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=32,
                                                     attn_implementation="eager", use_cache=False)), "input_ids"), (ids,)
    yield "llama", wrapped(hf.LlamaModel(hf.LlamaConfig(vocab_size=50, num_key_value_heads=2, max_position_embeddings=32,
                                                        use_cache=False, **small)), "input_ids"), (ids,)
    yield "vit", wrapped(hf.ViTModel(hf.ViTConfig(image_size=16, patch_size=4, **small), add_pooling_layer=False),
                         "pixel_values"), (image,)


def export(work):
    """Exports each network in two ways; yields name, path, inputs."""
    import torch
    for name, network, args in torch_networks():
        network.eval()
        for how in ("old", "dynamo"):
            path = f"{work}/{name}-{how}.onnx"
            names = [f"x{i}" for i in range(len(args))]
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    torch.onnx.export(network, args, path, input_names=names, opset_version=17 if how == "old" else 18,
                                      dynamo=how == "dynamo", external_data=False)
            except Exception as e:
                print(f"-- {name}-{how}: not exported: {str(e).splitlines()[0][:100]}")
                continue
            yield f"{name}-{how}", path, dict(zip(names, [a.numpy() for a in args]))


# ---- tools -----------------------------------------------------------------------------------------------------------------


def optimised(name, path, feeds, work):
    levels = onnxruntime.GraphOptimizationLevel
    for text, level in (("basic", levels.ORT_ENABLE_BASIC), ("extended", levels.ORT_ENABLE_EXTENDED),
                        ("layout", levels.ORT_ENABLE_ALL)):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.optimized_model_filepath = f"{work}/{name}-ort-{text}.onnx"
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        yield options.optimized_model_filepath, feeds


def transformed(name, path, feeds, work):
    from onnxruntime.transformers import optimizer
    kinds = [k for k in ("bert", "gpt2", "vit") if name.startswith((k, "distil" + k))]
    for kind in kinds or ["bert"]:
        made = optimizer.optimize_model(path, model_type=kind, num_heads=4, hidden_size=32, opt_level=0)
        out = f"{work}/{name}-transformers.onnx"
        made.save_model_to_file(out)
        yield out, feeds


def quantised(name, path, feeds, work):
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.left = 4

        def get_next(self):
            self.left -= 1
            r = np.random.default_rng(max(self.left, 0))
            return None if self.left < 0 else {
                n: v if v.dtype.kind == "i" else r.standard_normal(v.shape).astype(v.dtype) for n, v in feeds.items()}
    out = f"{work}/{name}-dynamic.onnx"
    q.quantize_dynamic(path, out, weight_type=q.QuantType.QUInt8)
    yield out, feeds
    out = f"{work}/{name}-dynamic-int8.onnx"
    q.quantize_dynamic(path, out, weight_type=q.QuantType.QInt8, per_channel=True)
    yield out, feeds
    for text, form in (("qdq", q.QuantFormat.QDQ), ("qoperator", q.QuantFormat.QOperator)):
        out = f"{work}/{name}-{text}.onnx"
        q.quantize_static(path, out, Reader(), quant_format=form, activation_type=q.QuantType.QUInt8,
                          weight_type=q.QuantType.QInt8)
        yield out, feeds
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    for text in ("dynamic", "qdq"):
        options.optimized_model_filepath = f"{work}/{name}-{text}-ort-extended.onnx"
        onnxruntime.InferenceSession(f"{work}/{name}-{text}.onnx", options, providers=["CPUExecutionProvider"])
        yield options.optimized_model_filepath, feeds


def four_bits(name, path, feeds, work):
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits, quant_utils
    if name.split("-")[0] not in ("mlp", "bert", "gpt2"):
        return
    for text, form in (("nbits", quant_utils.QuantFormat.QOperator), ("qdq4", quant_utils.QuantFormat.QDQ)):
        made = nbits.MatMulNBitsQuantizer(onnx.load(path), block_size=16, is_symmetric=text == "nbits", quant_format=form,
                                          op_types_to_quantize=("MatMul",))
        made.process()
        out = f"{work}/{name}-{text}.onnx"
        made.model.save_model_to_file(out)
        yield out, feeds


def float16(name, path, feeds, work):
    from onnxconverter_common import float16 as converter
    out = f"{work}/{name}-float16.onnx"
    onnx.save(converter.convert_float_to_float16(onnx.load(path), keep_io_types=True), out)
    yield out, feeds


def simplified(name, path, feeds, work):
    import onnxsim
    made, good = onnxsim.simplify(onnx.load(path))
    out = f"{work}/{name}-onnxsim.onnx"
    onnx.save(made, out)
    yield out, feeds


def scikit(work):
    import skl2onnx
    from sklearn import datasets, decomposition, feature_selection, linear_model, neural_network, pipeline, preprocessing
    x, y = datasets.load_iris(return_X_y=True)
    x = x.astype(np.float32)
    z = x @ np.array([[1.0, 2], [0, 1], [3, 1], [1, 1]], np.float32)
    made = {
        "scaler": preprocessing.StandardScaler().fit(x),
        "minmax": preprocessing.MinMaxScaler().fit(x),
        "maxabs": preprocessing.MaxAbsScaler().fit(x),
        "normalizer-l2": preprocessing.Normalizer("l2").fit(x),
        "normalizer-l1": preprocessing.Normalizer("l1").fit(x),
        "normalizer-max": preprocessing.Normalizer("max").fit(x),
        "polynomial": preprocessing.PolynomialFeatures(2).fit(x),
        "linear": linear_model.LinearRegression().fit(x, z),
        "ridge": pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.Ridge()).fit(x, z[:, 0]),
        "logistic": linear_model.LogisticRegression(max_iter=300).fit(x, y),
        "logistic-binary": linear_model.LogisticRegression().fit(x, y > 1),
        "pipeline": pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()).fit(x, y),
        "pca": decomposition.PCA(2).fit(x),
        "select": feature_selection.SelectKBest(k=2).fit(x, y),
        "mlp": neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=20).fit(x, z),
        "mlp-classifier": neural_network.MLPClassifier(hidden_layer_sizes=(8,), max_iter=20).fit(x, y),
    }
    for name, model in made.items():
        options = {id(model): {"zipmap": False}} if hasattr(model, "classes_") else None
        with contextlib.suppress(Exception):
            proto = skl2onnx.to_onnx(model, x[:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})
            out = f"{work}/skl-{name}.onnx"
            onnx.save(proto, out)
            yield out, {proto.graph.input[0].name: x[:7]}


def keras(work):
    import tensorflow as tf
    import tf2onnx
    k = tf.keras.layers
    sequence, images = (None, 6, 4), (None, 4, 6, 6, 2)
    made = {
        "dense": [k.Dense(8, activation="relu"), k.Dense(3, activation="softmax")],
        "simple": [k.SimpleRNN(5, return_sequences=True)],
        "gru": [k.Masking(), k.GRU(5)],
        "lstm": [k.LSTM(5, return_sequences=True)],
        "convlstm": [k.ConvLSTM2D(3, 3)],
    }
    any_length = {f"{n}-any": made[n] for n in ("simple", "gru", "lstm", "convlstm")}
    for name, layers in (made | any_length).items():
        shape = images if name.startswith("convlstm") else sequence
        if name in any_length:
            shape = (None, None) + shape[2:]
        inputs = tf.keras.Input(shape[1:])
        h = inputs
        for layer in layers:
            h = layer(h)
        network = tf.keras.Model(inputs, h)
        out = f"{work}/tf-{name}.onnx"
        function = tf.function(lambda x, n=network: n(x), input_signature=[tf.TensorSpec(shape, tf.float32, "x")])
        proto, _ = tf2onnx.convert.from_function(function, function.input_signature, opset=17)
        onnx.save(proto, out)
        yield out, {"x": np.random.default_rng(0).standard_normal((2, shape[1] or 5) + shape[2:]).astype(np.float32)}


def jax(work):
    from jax2onnx import to_onnx
    import jax.numpy as jnp
    import jax as j
    made = {
        "mlp": lambda x: jnp.tanh(x @ jnp.ones((4, 8)) * 0.1) @ jnp.ones((8, 2)),
        "softmax": lambda x: j.nn.softmax(x, -1) + j.nn.gelu(x),
        "norm": lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5),
    }
    for name, function in made.items():
        proto = to_onnx(function, [(3, 4)])
        out = f"{work}/jax-{name}.onnx"
        onnx.save(proto, out)
        yield out, {proto.graph.input[0].name: np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}


def paddle(work):
    import paddle as p
    import paddle2onnx  # noqa: F401: registers the converter
    made = {
        "mlp": (p.nn.Sequential(p.nn.Linear(4, 8), p.nn.ReLU(), p.nn.Linear(8, 2)), (3, 4)),
        "conv": (p.nn.Sequential(p.nn.Conv2D(3, 4, 3), p.nn.BatchNorm2D(4), p.nn.Hardswish(), p.nn.MaxPool2D(2)), (1, 3, 8, 8)),
        "norm": (p.nn.Sequential(p.nn.LayerNorm(8), p.nn.GELU(), p.nn.Linear(8, 3), p.nn.Softmax()), (2, 8)),
        "gru": (p.nn.SimpleRNN(4, 6), (2, 5, 4)),
    }
    for name, (network, shape) in made.items():
        network.eval()
        p.onnx.export(network, f"{work}/paddle-{name}", input_spec=[p.static.InputSpec(shape, "float32", "x")],
                      opset_version=17)
        yield f"{work}/paddle-{name}.onnx", {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


# ---- comparing -------------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """ampc cannot run the file."""


def theirs(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {n: feeds[n] for n in names}))), names


def ours(build, path, feeds, work):
    np.savez(f"{work}/in.npz", **feeds)
    done = subprocess.run([f"{build}/ampc-run", "infer", path, "-q", "--amp=O0", "--threads=1", "--inputs",
                           f"{work}/in.npz", "-o", f"{work}/out.npz"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr.strip().splitlines()[0].removeprefix(path + ": ")[:200])
    with np.load(f"{work}/out.npz") as z:
        return {n.removeprefix("output/"): z[n] for n in z.files}


def distance(want, got):
    if want.shape != got.shape:
        return np.inf
    a, b = want.astype(np.float64), got.astype(np.float64)
    return float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-3)) if a.size else 0.0


class Report:
    def __init__(self, build, work, verbose):
        self.build, self.work, self.verbose = build, work, verbose
        self.counts = {}

    def file(self, tool, path, feeds):
        try:
            want, names = theirs(path, feeds)
        except Exception as e:
            if self.verbose:
                print(f"-- {os.path.basename(path)}: onnxruntime: {str(e).splitlines()[0][:120]}")
            return
        counts = self.counts.setdefault(tool, [0, 0])
        counts[1] += 1
        limit = 2e-3 if "float16" in path else SAME
        try:
            got = ours(self.build, path, {n: feeds[n] for n in names}, self.work)
            worst = max(distance(v, got[n]) for n, v in want.items())
            if worst > limit:
                raise Refused(f"differs by {worst:.1e}")
            counts[0] += 1
        except Refused as e:
            print(f"{os.path.basename(path)}: {e}")

    def tool(self, tool, files):
        try:
            for path, feeds in files:
                self.file(tool, path, feeds)
        except ImportError as e:
            print(f"-- {tool}: skipped: {e}")
        except Exception as e:
            print(f"-- {tool}: {type(e).__name__}: {str(e).splitlines()[0][:120] if str(e) else ''}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep")
    parser.add_argument("--verbose", action="store_true")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = o.keep or temporary
        os.makedirs(work, exist_ok=True)
        r = Report(o.build, work, o.verbose)
        per_file = {"onnxruntime": optimised, "transformers": transformed, "quantisation": quantised, "4 bits": four_bits,
                    "float16": float16, "onnxsim": simplified}
        try:
            exported = list(export(work)) if any(o.only in t for t in per_file) else []
        except ImportError as e:
            exported = []
            print(f"-- networks: skipped: {e}")
        for tool, function in per_file.items():
            for name, path, feeds in exported:
                if o.only in tool:
                    r.tool(tool, function(name, path, feeds, work))
        for tool, function in {"skl2onnx": scikit, "tf2onnx": keras, "jax2onnx": jax, "paddle2onnx": paddle}.items():
            if o.only in tool:
                r.tool(tool, function(work))
    good, all_files = (sum(c[i] for c in r.counts.values()) for i in (0, 1))
    for tool, (agree, count) in r.counts.items():
        print(f"{tool}: {agree} of {count}")
    print(f"{good} of {all_files} agree ({100 * good / max(all_files, 1):.1f} %)")
    sys.exit(good < WANTED * all_files or not all_files)


if __name__ == "__main__":
    main()
