#!/usr/bin/python3
"""Writes the models that tools/bench and tests/gpu measure, NAME.onnx each; all with random weights.

resnet50   ResNet-50 v1.5 for 224 x 224 images, BatchNormalization in training form (98 MB)
resnet     a small one: one block per stage, 16 channels, 64 x 64 images (2 MB)
chain      10,000 nodes: MatMul, Add, LayerNormalization, Relu on 16 features, repeated
mlp        the PyTorch AMP recipe's MLP: three Linear layers of 4096 features, ReLU between them (201 MB)
lstm       two LSTM layers of 512 units on 64 steps of 512 features (17 MB)
decoder    a transformer decoder of 200 layers, 7,800 nodes, 64 features (40 MB); decomposed norms, with nodes named *norm*
weights    16 products with 4096 x 4096 weights: 1 GiB
bert       BERT-base with its masked language model head for sequences of 128 tokens (438 MB)
gpt2       GPT-2 124M for sequences of 1024 tokens (498 MB)

resnet50 is torchvision's resnet50, bert is BertForMaskedLM and gpt2 is GPT2LMHeadModel of transformers: parameters have
the names of those libraries (weights of Linear layers are transposed, as exporters fold them) and the computing nodes
are those of an export. check_models.py compares them. Differences:
- Logits are flattened, [128*N, 30522] and [1024*N, 50257], so that the loss has labels of all tokens.
- Masks: transformers builds them from positions (GatherND, CumSum in exports by dynamo). Here the causal mask is a
  Constant node, and that of BERT is (1 - attention_mask) * -1e4; both are added to the scores, as transformers does.
- Constants of formulas (the attention scale, those of GELU) are Constant nodes, never initializers.

bert and gpt2 are generated only if named. With --zeros all weights are 0 and the files compress to almost nothing; use
--init of ampc for random weights. --tiny generates resnet50, mlp, lstm, bert and gpt2 with few and narrow layers.

usage: make_models.py [--zeros] [--tiny] FOLDER [MODEL..]
"""
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

OPSET = 17


class Network:
    def __init__(self, name, x_shape, x_type=TensorProto.FLOAT, inputs=("x",)):
        self.name, self.random = name, np.random.default_rng(1)
        self.nodes, self.weights = [], []
        self.inputs = [helper.make_tensor_value_info(x, x_type, x_shape) for x in inputs]

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))
        return name

    def drawn(self, name, shape, fan_in):
        if ZEROS:
            return self.weight(name, np.zeros(shape, np.float32))
        values = self.random.random(shape, np.float32)
        return self.weight(name, (2 * values - 1) * np.float32(np.sqrt(3.0 / fan_in)))

    def node(self, op, inputs, name, results=("y",), **attributes):
        outputs = [f"{name}.{r}" for r in results]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def constant(self, name, values, dtype=np.float32):
        self.nodes.append(helper.make_node("Constant", [], [name], name=f"{name}.node",
                                           value=numpy_helper.from_array(np.array(values, dtype), name)))
        return name

    def whole(self, name, values):
        return self.constant(name, values, np.int64)

    def parameters(self):
        """Elements of all weights but the running statistics."""
        return sum(int(np.prod(w.dims)) for w in self.weights if not w.name.endswith(("running_mean", "running_var")))

    def save(self, folder, y_shape):
        self.nodes[-1].output[0] = "y"
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, y_shape)
        expected = None if TINY else PARAMETERS.get(self.name)
        if expected and self.parameters() != expected:
            sys.exit(f"{self.name} has {self.parameters()} parameters instead of {expected}")
        graph = helper.make_graph(self.nodes, self.name, self.inputs, [output], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="ampc")
        model.ir_version = 8
        save(model, str(folder / f"{self.name}.onnx"))


def conv_norm(net, x, conv, norm, channels_in, channels, kernel, stride=1):
    fan_in = channels_in * kernel * kernel
    x = net.node("Conv", [x, net.drawn(f"{conv}.weight", [channels, channels_in, kernel, kernel], fan_in)], conv,
                 kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)
    statistics = [net.weight(f"{norm}.{part}", np.full(channels, value))
                  for part, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1))]
    return net.node("BatchNormalization", [x, *statistics], norm, ("y", "mean_out", "var_out"), training_mode=1)


def bottleneck(net, x, name, channels_in, width, stride):
    y = net.node("Relu", [conv_norm(net, x, f"{name}.conv1", f"{name}.bn1", channels_in, width, 1)], f"{name}.relu1")
    y = net.node("Relu", [conv_norm(net, y, f"{name}.conv2", f"{name}.bn2", width, width, 3, stride)], f"{name}.relu2")
    y = conv_norm(net, y, f"{name}.conv3", f"{name}.bn3", width, 4 * width, 1)
    if stride > 1 or channels_in != 4 * width:
        down = f"{name}.downsample"
        x = conv_norm(net, x, f"{down}.0", f"{down}.1", channels_in, 4 * width, 1, stride)
    return net.node("Relu", [net.node("Add", [y, x], f"{name}.add")], f"{name}.relu3")


def residual(folder, name, blocks, width, image, classes):
    net = Network(name, ["N", 3, image, image])
    x = net.node("Relu", [conv_norm(net, "x", "conv1", "bn1", 3, width, 7, 2)], "relu")
    x = net.node("MaxPool", [x], "maxpool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = width
    for stage in range(4):
        for block in range(blocks[stage]):
            stride = 2 if block == 0 and stage > 0 else 1
            x = bottleneck(net, x, f"layer{stage + 1}.{block}", channels, width << stage, stride)
            channels = 4 * width << stage
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x], "avgpool")], "flatten", axis=1)
    weight = net.drawn("fc.weight", [classes, channels], channels)
    net.node("Gemm", [x, weight, net.weight("fc.bias", np.zeros(classes))], "fc", transB=1)
    net.save(folder, ["N", classes])


def resnet50(folder):
    if TINY: residual(folder, "resnet50", (1, 1, 1, 1), 8, 32, 10)
    else: residual(folder, "resnet50", (3, 4, 6, 3), 64, 224, 1000)


def resnet(folder):
    residual(folder, "resnet", (1, 1, 1, 1), 16, 64, 10)


def chain(folder, nodes=10_000, width=16):
    net, x = Network("chain", ["N", width]), "x"
    for i in range(nodes // 4):
        x = net.node("MatMul", [x, net.drawn(f"{i}.weight", [width, width], width)], f"{i}.matmul")
        x = net.node("Add", [x, net.weight(f"{i}.bias", np.zeros(width))], f"{i}.add")
        scale, bias = net.weight(f"{i}.scale", np.ones(width)), net.weight(f"{i}.shift", np.zeros(width))
        x = net.node("LayerNormalization", [x, scale, bias], f"{i}.norm")
        x = net.node("Relu", [x], f"{i}.relu")
    net.save(folder, ["N", width])


def mlp(folder, layers=3):
    width = 32 if TINY else 4096
    net, x = Network("mlp", ["N", width]), "x"
    for i in range(layers):
        weight = net.drawn(f"{i}.weight", [width, width], width)
        x = net.node("Gemm", [x, weight, net.weight(f"{i}.bias", np.zeros(width))], f"{i}.gemm", transB=1)
        if i < layers - 1:
            x = net.node("Relu", [x], f"{i}.relu")
    net.save(folder, ["N", width])


def layer_norm(net, x, name, width):
    """As exported before the operator existed: 9 nodes."""
    mean = net.node("ReduceMean", [x], f"{name}.mean", axes=[-1])
    centred = net.node("Sub", [x, mean], f"{name}.centred")
    square = net.node("Pow", [centred, net.weight(f"{name}.two", np.array(2))], f"{name}.square")
    variance = net.node("ReduceMean", [square], f"{name}.variance", axes=[-1])
    guarded = net.node("Add", [variance, net.weight(f"{name}.eps", np.array(1e-5))], f"{name}.guarded")
    root = net.node("Sqrt", [guarded], f"{name}.root")
    y = net.node("Div", [centred, root], f"{name}.div")
    y = net.node("Mul", [y, net.weight(f"{name}.scale", np.ones(width))], f"{name}.mul")
    return net.node("Add", [y, net.weight(f"{name}.bias", np.zeros(width))], f"{name}.add")


def linear(net, x, name, fan_in, width):
    x = net.node("MatMul", [x, net.drawn(f"{name}.weight", [fan_in, width], fan_in)], f"{name}.matmul")
    return net.node("Add", [x, net.weight(f"{name}.bias", np.zeros(width))], f"{name}.add")


def decoder_layer(net, x, name, mask, width):
    """39 nodes."""
    h = layer_norm(net, x, f"{name}.norm1", width)
    q, k, v = (linear(net, h, f"{name}.{part}", width, width) for part in "qkv")
    k = net.node("Transpose", [k], f"{name}.transpose", perm=[0, 2, 1])
    scores = net.node("MatMul", [q, k], f"{name}.scores")
    root = net.weight(f"{name}.root", np.array(np.sqrt(width)))
    scores = net.node("Add", [net.node("Div", [scores, root], f"{name}.div"), mask], f"{name}.mask")
    weights = net.node("Softmax", [scores], f"{name}.softmax", axis=-1)
    h = linear(net, net.node("MatMul", [weights, v], f"{name}.mix"), f"{name}.out", width, width)
    x = net.node("Add", [x, h], f"{name}.sum1")
    h = linear(net, layer_norm(net, x, f"{name}.norm2", width), f"{name}.up", width, 4 * width)
    h = linear(net, net.node("Relu", [h], f"{name}.relu"), f"{name}.down", 4 * width, width)
    return net.node("Add", [x, h], f"{name}.sum2")


def decoder(folder, layers=200, width=64, length=8):
    net, x = Network("decoder", ["N", length, width]), "x"
    mask = net.weight("mask", np.triu(np.full((length, length), -1e4), 1))
    for i in range(layers):
        x = decoder_layer(net, x, str(i), mask, width)
    net.save(folder, ["N", length, width])


def weights(folder, width=4096, layers=16):
    net, x = Network("weights", ["N", width]), "x"
    for i in range(layers):
        x = net.node("MatMul", [x, net.drawn(f"{i}.weight", [width, width], width)], f"{i}.matmul")
    net.save(folder, ["N", width])


# ---- BERT and GPT-2 ----


def norm(net, x, name, width, epsilon):
    scale, bias = net.weight(f"{name}.weight", np.ones(width)), net.weight(f"{name}.bias", np.zeros(width))
    return net.node("LayerNormalization", [x, scale, bias], name, axis=-1, epsilon=epsilon)


def gelu_erf(net, x, name):
    """nn.GELU before the operator of opset 20."""
    inner = net.node("Erf", [net.node("Div", [x, "gelu.root"], f"{name}.div")], f"{name}.erf")
    one = net.node("Mul", [x, net.node("Add", [inner, "gelu.one"], f"{name}.one")], f"{name}.mul")
    return net.node("Mul", [one, "gelu.half"], f"{name}.half")


def gelu_new(net, x, name):
    """The tanh form of transformers."""
    cube = net.node("Mul", [net.node("Pow", [x, "gelu.three"], f"{name}.pow"), "gelu.cubic"], f"{name}.cubic")
    inner = net.node("Mul", [net.node("Add", [x, cube], f"{name}.sum"), "gelu.slope"], f"{name}.slope")
    one = net.node("Add", [net.node("Tanh", [inner], f"{name}.tanh"), "gelu.one"], f"{name}.one")
    return net.node("Mul", [net.node("Mul", [x, "gelu.half"], f"{name}.half"), one], f"{name}.mul")


def attention(net, q, k, v, name, mask):
    """From projections [N, length, width] to the mixed values of the same shape."""
    q, k, v = (net.node("Reshape", [part, "heads"], f"{name}.heads.{i}") for i, part in zip("qkv", (q, k, v)))
    q = net.node("Transpose", [q], f"{name}.q", perm=[0, 2, 1, 3])
    k = net.node("Transpose", [k], f"{name}.k", perm=[0, 2, 3, 1])
    v = net.node("Transpose", [v], f"{name}.v", perm=[0, 2, 1, 3])
    scores = net.node("Mul", [net.node("MatMul", [q, k], f"{name}.scores"), "scale"], f"{name}.scaled")
    weights = net.node("Softmax", [net.node("Add", [scores, mask], f"{name}.masked")], f"{name}.softmax", axis=-1)
    y = net.node("Transpose", [net.node("MatMul", [weights, v], f"{name}.mix")], f"{name}.y", perm=[0, 2, 1, 3])
    return net.node("Reshape", [y, "merged"], f"{name}.merge")


def transformer_constants(net, length, width, heads, gelu):
    net.whole("heads", [0, length, heads, width // heads])
    net.whole("merged", [0, length, width])
    net.constant("scale", (width // heads) ** -0.5)
    net.whole("position_ids", [range(length)])
    for name, value in gelu.items():
        net.constant(f"gelu.{name}", value)


def tied_head(net, x, tokens, name):
    return net.node("MatMul", [x, net.node("Transpose", [tokens], f"{name}.tied", perm=[1, 0])], f"{name}.matmul")


def bert_layer(net, x, name, width, mask):
    q, k, v = (linear(net, x, f"{name}.attention.self.{part}", width, width) for part in ("query", "key", "value"))
    h = attention(net, q, k, v, f"{name}.attention.self", mask)
    h = linear(net, h, f"{name}.attention.output.dense", width, width)
    x = norm(net, net.node("Add", [h, x], f"{name}.attention.output.sum"), f"{name}.attention.output.LayerNorm", width, 1e-12)
    h = gelu_erf(net, linear(net, x, f"{name}.intermediate.dense", width, 4 * width), f"{name}.intermediate.gelu")
    h = linear(net, h, f"{name}.output.dense", 4 * width, width)
    return norm(net, net.node("Add", [h, x], f"{name}.output.sum"), f"{name}.output.LayerNorm", width, 1e-12)


def bert(folder):
    length, positions, vocabulary, width, layers, heads = (8, 16, 97, 32, 2, 2) if TINY else (128, 512, 30522, 768, 12, 12)
    net = Network("bert", ["N", length], TensorProto.INT64, ("input_ids", "attention_mask", "token_type_ids"))
    transformer_constants(net, length, width, heads, {"root": np.sqrt(2.0), "one": 1, "half": 0.5})
    four = net.node("Unsqueeze", ["attention_mask", net.whole("mask.axes", [1, 2])], "mask.expand")
    hidden = net.node("Sub", [net.constant("mask.one", 1), net.node("Cast", [four], "mask.cast", to=1)], "mask.hidden")
    mask = net.node("Mul", [hidden, net.constant("mask.low", -1e4)], "mask")
    table = "bert.embeddings.{}_embeddings.weight".format
    tokens = net.drawn(table("word"), [vocabulary, width], width)
    x = net.node("Gather", [tokens, "input_ids"], "embed")
    types = net.node("Gather", [net.drawn(table("token_type"), [2, width], width), "token_type_ids"], "embed.type")
    places = net.node("Gather", [net.drawn(table("position"), [positions, width], width), "position_ids"], "embed.position")
    x = net.node("Add", [net.node("Add", [x, types], "embed.sum1"), places], "embed.sum2")
    x = norm(net, x, "bert.embeddings.LayerNorm", width, 1e-12)
    for i in range(layers):
        x = bert_layer(net, x, f"bert.encoder.layer.{i}", width, mask)
    x = gelu_erf(net, linear(net, x, "cls.predictions.transform.dense", width, width), "cls.gelu")
    x = norm(net, x, "cls.predictions.transform.LayerNorm", width, 1e-12)
    x = tied_head(net, x, tokens, "cls.predictions.decoder")
    x = net.node("Add", [x, net.weight("cls.predictions.bias", np.zeros(vocabulary))], "cls.predictions.add")
    net.node("Reshape", [x, net.whole("tokens.first", [-1, vocabulary])], "logits")
    net.save(folder, ["M", vocabulary])


def conv1d(net, x, name, length, fan_in, width):
    """The Linear of GPT-2: addmm on rows of tokens."""
    x = net.node("Reshape", [x, net.whole(f"{name}.rows", [-1, fan_in])], f"{name}.flatten")
    weight = net.drawn(f"{name}.weight", [fan_in, width], fan_in)
    x = net.node("Gemm", [x, weight, net.weight(f"{name}.bias", np.zeros(width))], name)
    return net.node("Reshape", [x, net.whole(f"{name}.shape", [-1, length, width])], f"{name}.unflatten")


def gpt2_layer(net, x, name, length, width, mask):
    h = conv1d(net, norm(net, x, f"{name}.ln_1", width, 1e-5), f"{name}.attn.c_attn", length, width, 3 * width)
    parts = net.node("Split", [h], f"{name}.attn.split", ("q", "k", "v"), axis=-1)
    h = attention(net, *(parts[:-1] + part for part in "qkv"), f"{name}.attn", mask)
    x = net.node("Add", [conv1d(net, h, f"{name}.attn.c_proj", length, width, width), x], f"{name}.sum1")
    h = conv1d(net, norm(net, x, f"{name}.ln_2", width, 1e-5), f"{name}.mlp.c_fc", length, width, 4 * width)
    h = conv1d(net, gelu_new(net, h, f"{name}.mlp.gelu"), f"{name}.mlp.c_proj", length, 4 * width, width)
    return net.node("Add", [x, h], f"{name}.sum2")


def gpt2(folder):
    length, vocabulary, width, layers, heads = (8, 97, 32, 2, 2) if TINY else (1024, 50257, 768, 12, 12)
    net = Network("gpt2", ["N", length], TensorProto.INT64, ("input_ids",))
    transformer_constants(net, length, width, heads, {
        "three": 3, "cubic": 0.044715, "slope": np.sqrt(2 / np.pi), "one": 1, "half": 0.5})
    mask = net.constant("mask", np.triu(np.full((1, 1, length, length), -1e4), 1))
    tokens = net.drawn("transformer.wte.weight", [vocabulary, width], width)
    places = net.drawn("transformer.wpe.weight", [length, width], width)
    x = net.node("Add", [net.node("Gather", [tokens, "input_ids"], "embed"),
                         net.node("Gather", [places, "position_ids"], "embed.position")], "embed.sum")
    for i in range(layers):
        x = gpt2_layer(net, x, f"transformer.h.{i}", length, width, mask)
    x = tied_head(net, norm(net, x, "transformer.ln_f", width, 1e-5), tokens, "lm_head")
    net.node("Reshape", [x, net.whole("tokens.first", [-1, vocabulary])], "logits")
    net.save(folder, ["M", vocabulary])


def lstm(folder):
    steps, width, layers = (4, 8, 2) if TINY else (64, 512, 2)
    net = Network("lstm", ["N", steps, width])
    x = net.node("Transpose", ["x"], "steps.first", perm=[1, 0, 2])
    for i in range(layers):
        operands = [net.drawn(f"lstm.weight_ih_l{i}", [1, 4 * width, width], width),
                    net.drawn(f"lstm.weight_hh_l{i}", [1, 4 * width, width], width),
                    net.drawn(f"lstm.bias_l{i}", [1, 8 * width], width)]
        x = net.node("LSTM", [x, *operands], f"lstm.{i}", hidden_size=width)
        x = net.node("Squeeze", [x, net.whole(f"lstm.{i}.axes", [1])], f"lstm.{i}.squeeze")
    net.node("Transpose", [x], "batch.first", perm=[1, 0, 2])
    net.save(folder, ["N", steps, width])


MODELS = {"resnet50": resnet50, "resnet": resnet, "chain": chain, "mlp": mlp, "lstm": lstm, "decoder": decoder,
          "weights": weights}
LARGE = {"bert": bert, "gpt2": gpt2}
# Trainable elements of the full models, as the original libraries count them.
PARAMETERS = {"resnet50": 25_557_032, "bert": 109_514_298, "gpt2": 124_439_808}
ZEROS, TINY = "--zeros" in sys.argv, "--tiny" in sys.argv
arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
target = Path(arguments[0])
target.mkdir(parents=True, exist_ok=True)
for chosen in arguments[1:] or MODELS:
    {**MODELS, **LARGE}[chosen](target)
