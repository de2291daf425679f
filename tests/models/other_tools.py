"""Compares files of other tools with onnxruntime: its optimiser, transformers' optimiser, float16 and quantisation tools,
onnxsim, tf2onnx, skl2onnx, jax2onnx, paddle2onnx.

usage: python tests/models/other_tools.py BUILD [--only TEXT] [--keep DIR] [--write DIR] [--verbose]

A tool that is not installed is skipped. Not all fit into one environment; with Python 3.11, these do, as last run:
    torch==2.15.0 transformers==5.24.0 onnx==1.23.2 onnxruntime==1.32.0 onnxscript==0.7.2 onnxsim==0.8.1
        onnxconverter-common==1.16.0 skl2onnx==1.20.0 scikit-learn==1.9.1 jax==0.10.2 jax2onnx==0.17.1 flax==0.12.8
    tensorflow==2.21.0 tf2onnx==1.17.0 onnx==1.23.2 onnxruntime==1.32.0
    paddlepaddle==3.3.1 paddle2onnx==2.1.0 onnx==1.17.0 onnxruntime==1.32.0

Networks are tiny and have random weights; nothing is downloaded. Each file runs in onnxruntime, on random inputs;
`BUILD/ampc-run infer` must agree within 1e-4 of the largest value of each output. Prints the files that differ or are
refused, and the share of those that agree. Exit status 1 if it is below 95 %.

--write stores some files in DIR, with the inputs as initializers and the largest difference from the outputs of onnxruntime
as the only output; tests/models/test_other.c runs those in tests/models/tools.
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
    torch.manual_seed(0)
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

    class Blocks(nn.Module):  # numbers of channels that do not fill the blocks of onnxruntime's layout
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 20, 3, stride=2), nn.Conv2d(20, 20, 1), nn.Conv2d(20, 20, 3, groups=20)
            self.d, self.p, self.u = nn.Conv2d(20, 6, 1), nn.AvgPool2d(2), nn.Upsample(scale_factor=2)

        def forward(self, x):
            h = nn.functional.leaky_relu(self.a(x))
            h = torch.sigmoid(self.b(h)) + h
            return self.d(self.u(self.p(torch.relu(self.c(h)))))

    image = torch.randn(1, 3, 16, 16)
    yield "mlp", nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)), (torch.randn(2, 8),)
    yield "tokens", nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8)), (torch.randn(2, 3, 32),)
    yield "blocks", Blocks(), (image,)
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
    if name.split("-")[0] not in ("mlp", "tokens", "bert", "gpt2"):
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
    from flax import nnx
    from jax2onnx import to_onnx
    import jax as j
    import jax.numpy as jnp
    r = nnx.Rngs(0)
    norm = nnx.BatchNorm(4, rngs=r)
    norm.eval()
    attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=r)
    conv = nnx.Conv(2, 4, (3, 3), rngs=r)
    filters = jnp.ones((3, 3, 2, 4)) * 0.1
    functions = {
        "mlp": (lambda x: jnp.tanh(x @ jnp.ones((4, 8)) * 0.1) @ jnp.ones((8, 2)), (3, 4)),
        "mlp-any": (nnx.Linear(4, 5, rngs=r), ("B", 4)),
        "softmax": (lambda x: j.nn.softmax(x, -1) + j.nn.gelu(x) + j.nn.silu(x) + j.nn.selu(x) + j.nn.relu6(x), (3, 4)),
        "norm": (lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5), (3, 4)),
        "math": (lambda x: jnp.exp(x) + jnp.sin(x) + jnp.abs(x)**1.5 + jnp.log1p(jnp.abs(x)) + jnp.sign(x), (3, 4)),
        "index": (lambda x: x[:, 1:3] + jnp.take(x, jnp.array([0, 2]), axis=1) + jnp.flip(x, 1)[:, :2], (3, 4)),
        "scatter": (lambda x: x.at[1].set(0.).at[:, 2].add(1.), (3, 4)),
        "shapes": (lambda x: jnp.tile(x, (1, 2)) + jnp.repeat(x, 2, 1) + jnp.pad(x, ((0, 0), (1, 3))), (3, 4)),
        "sort": (lambda x: j.lax.top_k(x, 2)[0] + jnp.sort(x, -1)[:, :2] + jnp.argmax(x, -1)[:, None], (3, 4)),
        "einsum": (lambda x: jnp.einsum("bij,bkj->bik", x, x), (2, 3, 4)),
        "scan": (lambda x: j.lax.scan(lambda c, a: (jnp.tanh(c * 0.5 + a), c), jnp.zeros(4), x)[1], (5, 4)),
        "for": (lambda x: j.lax.fori_loop(0, 3, lambda i, v: v * 1.5 + i, x), (3, 4)),
        "while": (lambda x: j.lax.while_loop(lambda v: v.sum() < 100, lambda v: v * v + 1, x), (3, 4)),
        "cond": (lambda x: j.lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, x), (3, 4)),
        "filters": (lambda x: j.lax.conv_general_dilated(x, filters, (1, 1), "SAME",
                                                         dimension_numbers=("NHWC", "HWIO", "NHWC")), (1, 6, 6, 2)),
        "conv": (lambda x: norm(nnx.relu(conv(x))), (1, 6, 6, 2)),
        "transposed": (nnx.ConvTranspose(2, 4, (3, 3), rngs=r), (1, 5, 5, 2)),
        "layer-norm": (nnx.LayerNorm(8, rngs=r), ("B", 8)),
        "group-norm": (nnx.GroupNorm(8, num_groups=2, rngs=r), (2, 5, 8)),
        "attention": (lambda x: attention(x) + x, (2, 5, 8)),
        "fft": (lambda x: jnp.abs(jnp.fft.rfft(x)), (3, 8)),
    }
    for name, (function, shape) in functions.items():
        proto = to_onnx(function, [shape])
        out = f"{work}/jax-{name}.onnx"
        onnx.save(proto, out)
        numbers = [3 if n == "B" else n for n in shape]
        yield out, {proto.graph.input[0].name: np.random.default_rng(0).standard_normal(numbers).astype(np.float32)}


def paddle(work):
    import paddle as p
    import paddle2onnx  # noqa: F401: registers the converter
    nn = p.nn
    p.seed(0)

    class Gate(nn.Layer):
        def __init__(self):
            super().__init__()
            self.a, self.n, self.b = nn.Conv2D(3, 8, 3, 2, 1), nn.BatchNorm2D(8), nn.Conv2D(8, 8, 3, padding=1, groups=8)
            self.c = nn.Conv2D(8, 8, 1)

        def forward(self, x):
            h = self.b(nn.functional.hardswish(self.n(self.a(x))))
            return h * nn.functional.hardsigmoid(self.c(nn.functional.adaptive_avg_pool2d(h, 1)))

    class First(nn.Layer):  # of the results of a recurrent network
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)[0]

    class Self(nn.Layer):
        def __init__(self):
            super().__init__()
            self.layer = nn.MultiHeadAttention(8, 2)

        def forward(self, x):
            return self.layer(x, x, x)

    class Movement(nn.Layer):
        def forward(self, x):
            y = p.tile(x, [1, 2]) + p.stack([x, x], 1).reshape([3, 8])
            return p.concat([y, p.gather(x, p.to_tensor([0, 2]), axis=1), p.flip(x, [1]), p.topk(x, 2)[0]], 1)

    class Reductions(nn.Layer):
        def forward(self, x):
            return p.concat([x.sum(0), x.max(0), x.prod(0), x.std(0), p.cumsum(x, 0)[1], p.sort(x, 0)[0], p.logsumexp(x, 0)])

    class Condition(nn.Layer):
        def forward(self, x):
            return p.static.nn.cond(x.sum() > 0, lambda: x * 2, lambda: x - 1)
    made = {
        "mlp": (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (3, 4)),
        "mlp-any": (nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Softmax()), (None, 4)),
        "conv": (nn.Sequential(nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4), nn.Hardswish(), nn.MaxPool2D(2)), (1, 3, 8, 8)),
        "gate": (Gate(), (1, 3, 8, 8)),
        "norm": (nn.Sequential(nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3), nn.Softmax()), (2, 8)),
        "pools": (nn.Sequential(nn.AvgPool2D(3, 2, 1), nn.AdaptiveAvgPool2D(2), nn.Flatten()), (1, 2, 8, 8)),
        "conv1d": (nn.Sequential(nn.Conv1D(3, 4, 3, dilation=2), nn.BatchNorm1D(4), nn.MaxPool1D(2)), (2, 3, 12)),
        "conv3d": (nn.Sequential(nn.Conv3D(1, 2, 3), nn.ReLU()), (1, 1, 5, 5, 5)),
        "shuffle": (nn.PixelShuffle(2), (1, 8, 3, 3)),
        "lstm": (First(nn.LSTM(4, 6, direction="bidirect")), (2, 5, 4)),
        "gru": (First(nn.GRU(4, 6)), (2, 5, 4)),
        "attention": (Self(), (2, 5, 8)),
        "encoder": (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2), (2, 5, 8)),
        "movement": (Movement(), (3, 4)),
        "reductions": (Reductions(), (3, 4)),
        "condition": (Condition(), (3, 4)),
    }
    for name, (network, shape) in made.items():
        network.eval()
        p.onnx.export(network, f"{work}/paddle-{name}", input_spec=[p.static.InputSpec(list(shape), "float32", "x")],
                      opset_version=17)
        numbers = [n or 3 for n in shape]
        yield f"{work}/paddle-{name}.onnx", {"x": np.random.default_rng(0).standard_normal(numbers).astype(np.float32)}


# ---- comparing -------------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """ampc cannot run the file."""


def theirs(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 8  # DynamicQuantizeLSTM has as many ranges, at most one per sequence
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


def stored(path, feeds, want):
    """The model whose output is the largest difference from what onnxruntime computes."""
    model = onnx.load(path)
    g = model.graph
    del g.value_info[:]
    names = [i.name for i in g.input if i.name in feeds]
    g.initializer.extend(onnx.numpy_helper.from_array(feeds[n], n) for n in names)
    del g.input[:], g.output[:]
    make, totals = onnx.helper.make_node, []
    for k, (name, value) in enumerate(want.items()):
        g.initializer.append(onnx.numpy_helper.from_array(value, f"want{k}"))
        wide = {"to": onnx.TensorProto.FLOAT}
        g.node.extend([make("Cast", [name], [f"got_f{k}"], **wide), make("Cast", [f"want{k}"], [f"want_f{k}"], **wide),
                       make("Sub", [f"got_f{k}", f"want_f{k}"], [f"off{k}"]), make("Abs", [f"off{k}"], [f"size{k}"]),
                       make("ReduceMax", [f"size{k}"], [f"most{k}"], keepdims=0)])
        totals.append(f"most{k}")
    g.node.append(make("Max", totals, ["difference"]))
    g.output.append(onnx.helper.make_tensor_value_info("difference", onnx.TensorProto.FLOAT, []))
    for node in g.node:
        node.doc_string = ""
        del node.metadata_props[:]
    del model.metadata_props[:]
    return model


STORED = ("blocks-old-ort-layout", "blocks-dynamo-float16", "tokens-old-nbits", "tokens-old-qdq4", "tokens-old-qdq",
          "lstm-old-dynamic", "skl-mlp-classifier", "tf-gru", "jax-attention", "jax-scan", "jax-conv", "paddle-gate", "paddle-lstm")


def distance(want, got):
    if want.shape != got.shape:
        return np.inf
    a, b = want.astype(np.float64), got.astype(np.float64)
    return float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-3)) if a.size else 0.0


class Report:
    def __init__(self, build, work, o):
        self.build, self.work, self.verbose, self.write = build, work, o.verbose, o.write
        self.counts = {}

    def file(self, tool, path, feeds):
        try:
            want, names = theirs(path, feeds)
        except Exception as e:
            if self.verbose:
                print(f"-- {os.path.basename(path)}: onnxruntime: {str(e).splitlines()[0][:120]}")
            return
        name = os.path.basename(path).removesuffix(".onnx")
        if self.write and name in STORED:
            os.makedirs(self.write, exist_ok=True)
            onnx.save(stored(path, {n: feeds[n] for n in names}, want), os.path.join(self.write, name + ".onnx"))
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
    parser.add_argument("--write")
    parser.add_argument("--verbose", action="store_true")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = o.keep or temporary
        os.makedirs(work, exist_ok=True)
        r = Report(o.build, work, o)
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
