"""Random ways to write LayerNorm and GELU in smaller operators, converted: `python tests/emit/forms.py BUILD [COUNT
[SEED]]` with current onnx, onnxruntime and numpy. Each model at fp16 and bf16, O1 and O2: it has LayerNormalization,
and Gelu where its opset has it; full check; onnxruntime agrees at fp16 with itself on the fp32 model within 1e-2 of the
largest value. Prints the number of models, or fails at the first that is wrong."""
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

WIDTH, BUDGET = 16, 1e-2


class Writer:
    def __init__(self, choose, opset):
        self.choose, self.opset, self.nodes, self.weights = choose, opset, [], []
        self.draw = np.random.default_rng(choose.randrange(1 << 30))

    def constant(self, values):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def number(self, value):
        return self.constant(np.float32(value))

    def weight(self, *shape, mean=0.0, spread=0.5):
        return self.constant((mean + spread * self.draw.normal(size=shape)).astype(np.float32))

    def node(self, op, *inputs, **attributes):
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{name}/{op}", **attributes))
        return name

    def either(self, op, a, b):
        return self.node(op, *self.choose.sample([a, b], 2))

    def product(self, x):
        return self.node("MatMul", x, self.weight(WIDTH, WIDTH))

    def mean(self, x):
        if self.opset < 18:
            return self.node("ReduceMean", x, axes=[-1])
        return self.node("ReduceMean", x, self.constant(np.array([-1])))

    def layer_norm(self, x):
        mean = self.mean(x)
        centred = self.node("Sub", x, mean)
        square = self.choose.choice([lambda: self.node("Mul", centred, centred),
                                     lambda: self.node("Pow", centred, self.number(2))])()
        root = self.node("Sqrt", self.either("Add", self.mean(square), self.number(1e-5)))
        scale, bias = self.weight(WIDTH, mean=1, spread=0.1), self.weight(WIDTH, spread=0.1)
        form = self.choose.randrange(3)
        if form == 0:
            normal = self.node("Div", centred, root)
        elif form == 1:
            normal = self.either("Mul", centred, self.node("Reciprocal", root))
        else:
            factor = self.either("Mul", self.node("Reciprocal", root), scale)
            offset = self.node("Sub", bias, self.either("Mul", mean, factor))
            return self.either("Add", self.either("Mul", x, factor), offset)
        return self.either("Add", self.either("Mul", normal, scale), bias)

    def sign(self, x):
        form = self.choose.randrange(3)
        if form == 0:
            return self.node("Erf", self.node("Div", x, self.number(2**0.5)))
        if form == 1:
            return self.node("Erf", self.either("Mul", x, self.number(0.5**0.5)))
        cube = self.either("Mul", self.node("Pow", x, self.number(3)), self.number(0.044715))
        return self.node("Tanh", self.either("Mul", self.either("Add", x, cube), self.number((2 / np.pi) ** 0.5)))

    def gelu(self, x):
        share, half = self.either("Add", self.sign(x), self.number(1)), self.number(0.5)
        parts = [x, share, half]
        self.choose.shuffle(parts)
        return self.either("Mul", self.either("Mul", parts[0], parts[1]), parts[2])

    def model(self):
        self.product(self.gelu(self.product(self.layer_norm(self.product("x")))))
        self.nodes[-1].output[0] = "y"
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in "xy"]
        graph = helper.make_graph(self.nodes, "forms", values[:1], values[1:], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 8
        return model


def run(path, x):
    return onnxruntime.InferenceSession(path).run(None, {"x": x})[0]


def convert(build, model, low, level, out):
    subprocess.run([f"{build}/ampc", model, "-q", f"--dtype={low}", f"--amp={level}", "-o", out], check=True)
    new = onnx.load(out)
    onnx.checker.check_model(new, full_check=True)
    ops, opset = [n.op_type for n in new.graph.node], new.opset_import[0].version
    assert ops.count("LayerNormalization") == 1 and "ReduceMean" not in ops, ops
    assert ("Gelu" in ops) == (opset >= 20), (opset, ops)


def check(build, choose, work):
    path, out = work + "/in.onnx", work + "/out.onnx"
    writer = Writer(choose, choose.choice([13, 17, 18, 20, 21]))
    onnx.save(writer.model(), path)
    x = writer.draw.normal(size=(5, WIDTH)).astype(np.float32)
    wanted = run(path, x)
    for low in ("fp16", "bf16"):
        for level in ("O1", "O2"):
            convert(build, path, low, level, out)
            if low == "fp16":
                distance = np.abs(run(out, x) - wanted).max() / np.abs(wanted).max()
                assert distance < BUDGET, distance


if __name__ == "__main__":
    build, count, seed = sys.argv[1], *(int(text) for text in (sys.argv[2:] + ["60", "1"][len(sys.argv) - 2:]))
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory() as work:
        for i in range(count):
            try:
                check(build, choose, work)
            except Exception as error:
                sys.exit(f"model {i} of seed {seed}: {error}")
    print(f"{count} models of seed {seed}: written as operators, valid, onnxruntime agrees")
