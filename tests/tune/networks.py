"""Five networks and the data that they are trained on: images of ten prototypes, shifted, scaled and noisy, or sequences of
tokens with a rule to learn."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """A graph under construction; every method returns the name of its result."""

    def __init__(self, seed):
        self.rng, self.nodes, self.weights = np.random.RandomState(seed), [], []

    def weight(self, *shape, scale=None):
        fan = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        value = self.rng.randn(*shape) * (scale or (2 / fan) ** 0.5)
        return self.constant(value.astype("f4"))

    def constant(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op, *inputs, results=1, **attributes):
        name = f"{op.lower()}{len(self.nodes)}"
        outputs = [f"{name}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=name, **attributes))
        return outputs[-1]

    def ones(self, n, value=1):
        return self.constant(np.full(n, value, "f4"))

    def linear(self, x, m, n):
        return self.add("Add", self.add("MatMul", x, self.weight(m, n)), self.ones(n, 0))

    def conv(self, x, m, n, size=3, stride=1):
        return self.add("Conv", x, self.weight(n, m, size, size), pads=[size // 2] * 4, strides=[stride] * 2)

    def norm(self, x, n):
        statistics = [self.ones(n), self.ones(n, 0), self.ones(n, 0), self.ones(n)]
        return self.add("BatchNormalization", x, *statistics)

    def layer_norm(self, x, n):
        return self.add("LayerNormalization", x, self.ones(n), self.ones(n, 0), axis=-1)

    def save(self, path, inputs, output, shape):
        self.nodes[-1].output[0] = "y"
        kinds = {"x": TensorProto.FLOAT, "ids": TensorProto.INT64}
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info(name, kinds[name], size) for name, size in inputs],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def mlp(path):
    n = Network(1)
    x = n.add("Flatten", "x")
    for size in ((144, 64), (64, 48), (48, 32)):
        x = n.add("Relu", n.linear(x, *size))
    n.save(path, [("x", ["N", 1, 12, 12])], n.linear(x, 32, 10), ["N", 10])


def cnn(path):
    n, x = Network(2), "x"
    for inputs, outputs, stride in ((1, 8, 1), (8, 16, 2), (16, 16, 1)):
        x = n.add("Relu", n.norm(n.conv(x, inputs, outputs, stride=stride), outputs))
    x = n.add("Flatten", n.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    n.save(path, [("x", ["N", 1, 12, 12])], n.linear(n.add("Relu", n.linear(x, 144, 32)), 32, 10), ["N", 10])


def residual(path):
    n = Network(3)
    x = n.add("Relu", n.norm(n.conv("x", 1, 12), 12))
    for _ in range(3):
        branch = n.add("Relu", n.norm(n.conv(x, 12, 12), 12))
        x = n.add("Relu", n.add("Add", x, n.norm(n.conv(branch, 12, 12), 12)))
    x = n.add("Flatten", n.add("GlobalAveragePool", x))
    n.save(path, [("x", ["N", 1, 12, 12])], n.linear(x, 12, 10), ["N", 10])


def transformer(path, size=32, heads=4, length=16):
    n = Network(4)
    positions = n.weight(length, size, scale=0.3)
    x = n.add("Add", n.add("Gather", n.weight(20, size, scale=0.5), "ids"), positions)
    split = n.constant(np.array([0, length, heads, size // heads], "i8"))
    joined = n.constant(np.array([0, length, size], "i8"))
    for _ in range(2):
        h = n.layer_norm(x, size)
        q, k, v = (n.add("Transpose", n.add("Reshape", n.linear(h, size, size), split), perm=perm)
                   for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = n.add("Mul", n.add("MatMul", q, k), n.constant(np.float32((size // heads) ** -0.5)))
        mixed = n.add("MatMul", n.add("Softmax", scores, axis=-1), v)
        mixed = n.add("Reshape", n.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = n.add("Add", x, n.linear(mixed, size, size))
        h = n.linear(n.layer_norm(x, size), size, 2 * size)
        gelu = n.add("Mul", n.add("Mul", h, n.constant(np.float32(0.5))),
                     n.add("Add", n.add("Erf", n.add("Div", h, n.constant(np.float32(2**0.5)))),
                           n.constant(np.float32(1))))
        x = n.add("Add", x, n.linear(gelu, 2 * size, size))
    x = n.add("ReduceMean", n.layer_norm(x, size), axes=[1], keepdims=0)
    n.save(path, [("ids", ["N", length])], n.linear(x, size, 10), ["N", 10])


def lstm(path, size=24, length=16):
    n = Network(5)
    x = n.add("Gather", n.weight(20, size, scale=0.5), "ids")
    x = n.add("Transpose", x, perm=[1, 0, 2])
    w, r = (n.constant((n.rng.randn(1, 4 * size, size) * size**-0.5).astype("f4")) for _ in range(2))
    x = n.add("LSTM", x, w, r, n.constant(np.zeros((1, 8 * size), "f4")), results=2, hidden_size=size)
    x = n.add("Squeeze", x, n.constant(np.array([0], "i8")))
    x = n.add("Relu", n.linear(x, size, 24))
    n.save(path, [("ids", ["N", length])], n.linear(x, 24, 10), ["N", 10])


def steps(path):
    """Derivatives do not show what rounding does before Floor."""
    n = Network(6)
    x = n.add("MatMul", n.add("Flatten", "x"), n.weight(144, 32, scale=1))
    x = n.add("Relu", n.linear(n.add("Floor", x), 32, 96))
    n.save(path, [("x", ["N", 1, 12, 12])], n.linear(n.add("Relu", n.linear(x, 96, 96)), 96, 10), ["N", 10])


def images(count, seed):
    prototypes = np.random.RandomState(0).randn(10, 12, 12)
    for _ in range(2):  # smooth
        prototypes = sum(np.roll(prototypes, shift, axis) for axis in (1, 2) for shift in (-1, 0, 1)) / 3
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 10, count)
    x = [np.roll(prototypes[y], rng.randint(-1, 2, 2), (0, 1)) * rng.uniform(0.5, 1.5) + rng.randn(12, 12) * 0.4
         for y in labels]
    return {"x": np.array(x, "f4")[:, None], "labels": labels.astype("i8")}


def sequences(count, seed, length=16):
    """The label is the most frequent token of ten."""
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, 10, count)
    ids = rng.randint(0, 20, (count, length))
    often = rng.rand(count, length) < 0.35
    return {"ids": np.where(often, labels[:, None], ids).astype("i8"), "labels": labels.astype("i8")}


NETWORKS = {"mlp": (mlp, images), "cnn": (cnn, images), "residual": (residual, images),
            "transformer": (transformer, sequences), "lstm": (lstm, sequences)}
