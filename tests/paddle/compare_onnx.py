#!/usr/bin/env python3
"""Random ONNX models and the same programs of PaddlePaddle through both mixed-precision passes, node by node.

usage: compare_onnx.py [--ampc PATH] [--graphs N] [--seed N] [--control]

compare.py enters by the text of the IR and so holds the pass alone; this one enters by the importer and has more
operators, including opaque ones. Needs the Python packages `paddlepaddle` (2.6 or later) and
`onnx`. Compared: the type that every node computes in (--explain all --json) and the number of casts inserted
(--stats --json). --control: with If, whose bodies are blocks of the program. The first differences are printed with
both programs; exit 1 if there is any.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from compare import F, paddle, run_pass, spell
from onnx import TensorProto, helper, numpy_helper, save
import numpy as np

UNARY = {
    "Exp": paddle.exp, "Log": paddle.log, "Relu": F.relu, "Tanh": paddle.tanh, "Sigmoid": F.sigmoid, "Sqrt": paddle.sqrt,
    "Abs": paddle.abs, "Erf": paddle.erf, "Sin": paddle.sin, "Cos": paddle.cos, "Gelu": F.gelu, "Floor": paddle.floor,
    "Reciprocal": paddle.reciprocal, "Softplus": F.softplus, "Softmax": F.softmax, "LogSoftmax": F.log_softmax,
    "Sign": paddle.sign, "Ceil": paddle.ceil, "Round": paddle.round, "Tan": paddle.tan, "Acos": paddle.acos,
    "Asin": paddle.asin, "Atan": paddle.atan, "Sinh": paddle.sinh, "Cosh": paddle.cosh, "Asinh": paddle.asinh,
    "Acosh": paddle.acosh, "Atanh": paddle.atanh, "LeakyRelu": F.leaky_relu, "Elu": F.elu, "Selu": F.selu,
    "HardSigmoid": F.hardsigmoid, "HardSwish": F.hardswish, "Mish": F.mish, "Softsign": F.softsign,
}
BINARY = {
    "Add": paddle.add, "Sub": paddle.subtract, "Mul": paddle.multiply, "Div": paddle.divide, "Max": paddle.maximum,
    "Min": paddle.minimum, "Pow": paddle.pow,
}
REDUCE = {
    "ReduceMean": paddle.mean, "ReduceSum": paddle.sum, "ReduceProd": paddle.prod, "ReduceMax": paddle.max,
    "ReduceMin": paddle.min,
}
LISTABLE = {
    "Exp": "exp", "Tanh": "tanh", "Relu": "relu", "Gelu": "gelu", "Softmax": "softmax", "Add": "elementwise_add",
    "MatMul": "matmul_v2", "Transpose": "transpose2", "LayerNormalization": "layer_norm", "Abs": "abs",
    "BatchNormalization": "batch_norm", "ReduceMean": "reduce_mean", "Flatten": "flatten_contiguous_range",
    "LeakyRelu": "leaky_relu", "HardSwish": "hard_swish", "Elu": "elu", "CumSum": "cumsum", "Sqrt": "sqrt",
}
NO_BF16 = ["TopK"]  # in opset 20: types missing in the schema are fp32 in ampc at every level
SIZE = [4, 4]


class Scope:
    """A graph, or a branch of an If: nodes, and values to choose from."""

    def __init__(self, values):
        self.nodes, self.values = [], list(values)


class Model:
    """One random program, built on both sides at once."""

    def __init__(self, seed, control):
        self.r = random.Random(seed)
        self.control = control
        self.main, self.start = paddle.static.Program(), paddle.static.Program()
        self.weights, self.params, self.count, self.dtypes = [], [], 0, []
        with paddle.static.program_guard(self.main, self.start), paddle.utils.unique_name.guard():
            names = ["x", "y", "learning_rate_0" if self.r.random() < 0.1 else "z"]
            self.scope = Scope((n, paddle.static.data(n, SIZE, "float32")) for n in names)
            self.inputs = [n for n, _ in self.scope.values]
            self.ids = paddle.static.data("ids", [4], "int64")
            self.flag = paddle.static.data("flag", [1], "bool") if control else None
            self.params = [self.param("w%d" % i, SIZE) for i in range(self.r.randint(1, 3))]
            for _ in range(self.r.randint(3, 14)):
                self.step()

    def step(self):
        kinds = self.KINDS + ["branch"] * (3 if self.control and self.flag is not None else 0)
        getattr(self, self.r.choice(kinds))()

    # ---- parts ------------------------------------------------------------------------------------------

    def weight(self, array):
        name = "k%d" % len(self.weights)
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def param(self, name, shape):
        self.weights.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
        return name, paddle.create_parameter(shape, "float32", name=name)

    def ints(self, *items):
        return self.weight(np.array(items, np.int64))

    def number(self, value):
        return self.weight(np.array(value, np.float32))

    def node(self, op, inputs, variable, outputs=1, keep=True, **attributes):
        """Appends a node and returns its first value; variable: that of PaddlePaddle."""
        name = "n%d" % self.count
        self.count += 1
        results = [name + ".%d" % i for i in range(outputs)]
        self.scope.nodes.append(helper.make_node(op, inputs, results, name=name, **attributes))
        if op != "Cast":  # --explain shows its operand
            self.dtypes.append((name, variable))
        if keep:
            self.scope.values.append((results[0], variable))
        return results[0], variable

    def pick(self):
        recent = self.scope.values[-4:]
        return self.r.choice(recent if self.r.random() < 0.7 else self.scope.values)

    def operand(self):
        return self.r.choice(self.params) if self.r.random() < 0.3 else self.pick()

    # ---- one operator each ------------------------------------------------------------------------------

    def unary(self):
        op = self.r.choice(sorted(UNARY))
        a, v = self.pick()
        self.node(op, [a], UNARY[op](v), **({"alpha": 1 / 6} if op == "HardSigmoid" else {}))

    def binary(self):
        op = self.r.choice(sorted(BINARY))
        (a, v), (b, w) = self.operand(), self.operand()
        if a != b:
            self.node(op, [a, b], BINARY[op](v, w))

    def matmul(self):
        (a, v), (b, w) = self.operand(), self.operand()
        self.node("MatMul", [a, b], paddle.matmul(v, w))

    def square(self):
        a, v = self.pick()
        self.node("Mul", [a, a], paddle.square(v))

    def power(self):
        a, v = self.pick()
        self.node("Pow", [a, self.number(3)], paddle.pow(v, 3.0))

    def scale(self):
        a, v = self.pick()
        self.node("Mul", [a, self.number(2)], v * 2.0)

    def clip(self):
        a, v = self.pick()
        if self.r.random() < 0.5:
            self.node("Clip", [a, self.number(0), self.number(6)], F.relu6(v))
        else:
            self.node("Clip", [a, self.number(0), self.number(2)], paddle.clip(v, 0., 2.))

    def reduce(self):
        op = self.r.choice(sorted(REDUCE))
        a, v = self.pick()
        b, w = self.node(op, [a, self.ints(1)], REDUCE[op](v, axis=1, keepdim=True), keep=False, keepdims=1)
        c, u = self.pick()
        self.node("Add", [c, b], paddle.add(u, w))

    def total(self):
        (a, v), (b, w) = self.pick(), self.pick()
        if a != b:
            self.node("Sum", [a, b], paddle.add_n([v, w]))

    def cumsum(self):
        a, v = self.pick()
        self.node("CumSum", [a, self.weight(np.array(1, np.int64))], paddle.cumsum(v, 1))

    def top(self):
        a, v = self.pick()
        self.node("TopK", [a, self.ints(4)], paddle.topk(v, 4)[0], outputs=2)

    def pad(self):
        a, v = self.pick()
        a, v = self.node("Expand", [a, self.ints(2, 4, 4)], paddle.expand(v, [2, 4, 4]), keep=False)
        self.node("ReduceMax", [a, self.ints(0)], paddle.max(v, axis=0), keepdims=0)

    def tile(self):
        a, v = self.pick()
        a, v = self.node("Tile", [a, self.ints(1, 2)], paddle.tile(v, [1, 2]), keep=False)
        self.node("Slice", [a, self.ints(0), self.ints(4), self.ints(1)], paddle.slice(v, [1], [0], [4]))

    def squeeze(self):
        a, v = self.pick()
        a, v = self.node("Unsqueeze", [a, self.ints(1)], paddle.unsqueeze(v, 1), keep=False)
        self.node("Squeeze", [a, self.ints(1)], paddle.squeeze(v, 1))

    def move(self):
        a, v = self.pick()  # a parameter with only its shape changed is still that parameter
        kind = self.r.randint(0, 2)
        if kind == 0:
            self.node("Transpose", [a], paddle.transpose(v, [1, 0]), perm=[1, 0])
        elif kind == 1:
            self.node("Reshape", [a, self.ints(4, 4)], paddle.reshape(v, SIZE))
        else:
            self.node("Flatten", [a], paddle.flatten(v, 1, 1), axis=1)

    def concat(self):
        (a, v), (b, w) = self.pick(), self.pick()
        c, u = self.node("Concat", [a, b], paddle.concat([v, w], 1), keep=False, axis=1)
        step = self.r.randint(1, 2)
        bounds = [self.ints(0), self.ints(4 * step), self.ints(1), self.ints(step)]
        make = paddle.slice(u, [1], [0], [4]) if step == 1 else paddle.strided_slice(u, [1], [0], [8], [2])
        self.node("Slice", [c, *bounds], make)

    def split(self):
        a, v = self.pick()
        parts = paddle.split(v, 2, 1)
        first, _ = self.node("Split", [a], parts[0], outputs=2, keep=False, axis=1, num_outputs=2)
        second = first[:-1] + "1"
        self.node("Concat", [second, first], paddle.concat([parts[1], parts[0]], 1), axis=1)

    def cast(self):
        a, v = self.pick()
        if self.r.random() < 0.4:
            a, v = self.node("Cast", [a], paddle.cast(v, "int64"), keep=False, to=TensorProto.INT64)
        self.node("Cast", [a], paddle.cast(v, "float32"), to=TensorProto.FLOAT)

    def truncate(self):
        """A parameter used only by conversions to integers, through which no derivative passes."""
        a, v = self.param("i%d" % self.count, SIZE)
        for _ in range(self.r.randint(0, 2)):
            kind = self.r.randint(0, 3)
            if kind == 0:
                op = self.r.choice(sorted(UNARY))
                a, v = self.node(op, [a], UNARY[op](v), keep=False, **({"alpha": 1 / 6} if op == "HardSigmoid" else {}))
            elif kind == 1:
                a, v = self.node("Transpose", [a], paddle.transpose(v, [1, 0]), keep=False, perm=[1, 0])
            else:
                op, (b, w) = self.r.choice(sorted(BINARY)), self.operand()
                a, v = self.node(op, [a, b], BINARY[op](v, w), keep=False)
        a, v = self.node("Cast", [a], paddle.cast(v, "int64"), keep=False, to=TensorProto.INT64)
        self.node("Cast", [a], paddle.cast(v, "float32"), to=TensorProto.FLOAT)

    def compare(self):
        (a, v), (b, w) = self.pick(), self.pick()
        c, u = self.node("Less", [a, b], paddle.less_than(v, w), keep=False)
        if self.r.random() < 0.5:
            self.node("Cast", [c], paddle.cast(u, "float32"), to=TensorProto.FLOAT)
        else:
            self.node("Where", [c, a, b], paddle.where(u, v, w))

    def arg(self):
        a, v = self.pick()
        a, v = self.node("ArgMax", [a], paddle.argmax(v, 1), keep=False, axis=1, keepdims=0)
        self.node("Gather", [self.params[0][0], a], F.embedding(v, self.params[0][1]))

    def dropout(self):
        a, v = self.pick()
        yes = self.weight(np.array(True))
        self.node("Dropout", [a, self.number(0.5), yes], F.dropout(v, 0.5, training=True))

    def norm(self):
        a, v = self.pick()
        (s, scale), (t, bias) = self.param("s%d" % self.count, [4]), self.param("t%d" % self.count, [4])
        if self.r.random() < 0.5:
            self.node("LayerNormalization", [a, s, t], F.layer_norm(v, [4], scale, bias), axis=-1)
            return
        state = [paddle.static.create_global_var([4], 0.0, "float32", True, name="%s%d" % (n, self.count)) for n in "mv"]
        for variable in state:
            self.weights.append(numpy_helper.from_array(np.ones(4, np.float32), variable.name))
        self.node("BatchNormalization", [a, s, t, state[0].name, state[1].name],
                  F.batch_norm(v, state[0], state[1], scale, bias, training=True), outputs=3, training_mode=1)

    def gather(self):
        if self.r.random() < 0.5:
            p, v = self.r.choice(self.params)
            self.node("Gather", [p, "ids"], F.embedding(self.ids, v))
        else:
            a, v = self.pick()
            self.node("Gather", [a, "ids"], paddle.gather(v, self.ids))

    def images(self):
        a, v = self.pick()
        shape = [1, 4, 2, 2]
        a, v = self.node("Reshape", [a, self.ints(*shape)], paddle.reshape(v, shape), keep=False)
        for _ in range(self.r.randint(1, 3)):
            a, v = getattr(self, self.r.choice(["conv", "conv", "transposed", "pool", "instance", "resize", "prelu"]))(a, v)
        self.node("Reshape", [a, self.ints(4, 4)], paddle.reshape(v, SIZE))

    def conv(self, a, v):
        groups = self.r.choice([1, 2, 4])
        w = self.param("c%d" % self.count, [4, 4 // groups, 1, 1])
        return self.node("Conv", [a, w[0]], F.conv2d(v, w[1], groups=groups), keep=False, group=groups)

    def transposed(self, a, v):
        w = self.param("c%d" % self.count, [4, 4, 1, 1])
        return self.node("ConvTranspose", [a, w[0]], F.conv2d_transpose(v, w[1]), keep=False)

    def pool(self, a, v):
        if self.r.random() < 0.5:
            return self.node("AveragePool", [a], F.avg_pool2d(v, 1), keep=False, kernel_shape=[1, 1])
        return self.node("MaxPool", [a], F.max_pool2d(v, 1), keep=False, kernel_shape=[1, 1])

    def instance(self, a, v):
        s, t = self.param("s%d" % self.count, [4]), self.param("t%d" % self.count, [4])
        return self.node("InstanceNormalization", [a, s[0], t[0]], F.instance_norm(v, weight=s[1], bias=t[1]), keep=False)

    def resize(self, a, v):
        scales = self.weight(np.array([1, 1, 1, 1], np.float32))
        return self.node("Resize", [a, "", scales], F.interpolate(v, size=[2, 2], mode="nearest"), keep=False, mode="nearest")

    def prelu(self, a, v):
        w, slope = self.param("p%d" % self.count, [1])
        return self.node("PRelu", [a, w], F.prelu(v, slope), keep=False)

    # ---- control flow -----------------------------------------------------------------------------------

    def branch(self):
        outer, flag, branches = self.scope, self.flag, []
        self.flag = None  # no nested branches

        def side():
            self.scope = Scope(outer.values)
            self.params, params = [], self.params  # a subgraph's own parameters are local to it
            self.params = params
            for _ in range(self.r.randint(1, 3)):
                self.plain()
            if not self.scope.nodes:
                self.node("Relu", [outer.values[-1][0]], F.relu(outer.values[-1][1]))
            result, v = self.join(self.scope.values[len(outer.values):])
            branches.append((self.scope, result))
            self.scope = outer
            return v

        v = paddle.static.nn.cond(flag, side, side)
        graphs = [helper.make_graph(s.nodes, "b%d" % i, [], [helper.make_tensor_value_info(r, TensorProto.FLOAT, SIZE)])
                  for i, (s, r) in enumerate(branches)]
        self.flag = flag
        self.node("If", ["flag"], v, then_branch=graphs[0], else_branch=graphs[1])

    def join(self, made):
        """One value of all that nothing reads: the importer drops what is dead in a body, PaddlePaddle colours it."""
        read = {name for n in self.scope.nodes for name in n.input}
        ends = [end for end in made if end[0] not in read]
        while len(ends) > 1:
            (a, v), (b, w) = ends.pop(), ends.pop()
            ends.append(self.node("Add", [a, b], paddle.add(v, w)))
        return ends[0]

    def plain(self):
        getattr(self, self.r.choice(["unary", "binary", "matmul", "scale"]))()

    KINDS = (["unary"] * 8 + ["binary"] * 6 + ["matmul"] * 5 + ["move"] * 2 + ["images"] * 2 +
             ["square", "power", "scale", "clip", "reduce", "total", "cumsum", "top", "pad", "tile", "squeeze", "concat",
              "split", "cast", "truncate", "compare", "arg", "dropout", "norm", "gather"])

    def save(self, path):
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SIZE) for n in self.inputs]
        inputs.append(helper.make_tensor_value_info("ids", TensorProto.INT64, [4]))
        if self.control:
            inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, [1]))
        made = [v for v, _ in self.scope.values if v not in self.inputs]
        outputs = [helper.make_tensor_value_info(v, TensorProto.FLOAT, SIZE) for v in made]
        graph = helper.make_graph(self.scope.nodes, "g", inputs, outputs, self.weights)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
        return bool(outputs)


def casts_of(program):
    return sum(op.type == "cast" and "cast_fp" in op.output_arg_names[0] for b in program.blocks for op in b.ops)


def find(program, variable):
    for block in program.blocks:
        if block.has_var(variable.name):
            return spell(str(block.var(variable.name).dtype).split(".")[-1])


class Case:
    """A program, a level and lists."""

    def __init__(self, seed, control):
        self.model = Model(seed, control)
        r = self.model.r
        self.level = r.choice(["O1"] * 4 + ["O2"] * 2 + ["OD"])
        self.promote = self.level != "OD" and r.random() < 0.25
        self.dtype = r.choice(["fp16", "bf16"])
        if any(n.op_type in NO_BF16 for n in self.model.scope.nodes):
            self.dtype = "fp16"
        names = r.sample(sorted(LISTABLE), r.choice([0, 0, 0, 1, 2, 3]))
        cut = r.randint(0, len(names))
        self.white, self.black = names[:cut], names[cut:]
        self.varnames = ["w0"] if self.level == "O1" and r.random() < 0.15 else []

    def theirs(self):
        run_pass("3", self.model.main, {LISTABLE[n] for n in self.white}, {LISTABLE[n] for n in self.black},
                 set(self.varnames) or None, self.dtype, self.level, self.promote)
        types = {n: find(self.model.main, v) for n, v in self.model.dtypes}
        short = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
        return {n: short[t] for n, t in types.items() if t in short}, casts_of(self.model.main)

    def ours(self, program, folder):
        source, rules = os.path.join(folder, "m.onnx"), os.path.join(folder, "m.amplist")
        self.model.save(source)
        lists = "[white]\n%s\n[black]\n%s\n[tensors]\n%s\n" % tuple(map("\n".join, (self.white, self.black, self.varnames)))
        open(rules, "w").write(lists + ("[rules]\npromote = on\n" if self.promote else ""))
        run = subprocess.run([program, source, "--profile=paddle-3", "--amp=" + self.level, "--dtype=" + self.dtype,
                              "--list=" + rules, "--no-keep-io-types", "--explain=all", "--stats", "--json", "--mode=file"],
                             capture_output=True, text=True)
        if run.returncode:
            return {"error": run.stderr}, 0
        lines = [json.loads(line) for line in run.stdout.splitlines() if line]
        return {n["name"]: n["dtype"] for n in lines if "name" in n}, lines[-1]["casts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ampc", default="ampc")
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--control", action="store_true")
    options = parser.parse_args()
    folder = tempfile.mkdtemp()
    different = nodes = casts = 0
    for seed in range(options.seed, options.seed + options.graphs):
        case = Case(seed, options.control)
        if len(case.model.scope.values) == len(case.model.inputs):
            continue
        theirs, their_casts = case.theirs()
        ours, our_casts = case.ours(options.ampc, folder)
        nodes += len(theirs)
        casts += their_casts
        wrong = [n for n in theirs if ours.get(n) != theirs[n]]
        if not wrong and our_casts == their_casts:
            continue
        different += 1
        if different > 3:
            continue
        print("graph %d, %s%s, %s, white %s, black %s, names %s" % (
            seed, case.level, " promote" if case.promote else "", case.dtype, case.white, case.black, case.varnames))
        for n in case.model.scope.nodes:
            print("  ", n.op_type, n.name, list(n.input), "-> ours", ours.get(n.name), "theirs", theirs.get(n.name))
        for block in case.model.main.blocks:
            for op in block.ops:
                print("     ", op.type, op.input_arg_names, "->", op.output_arg_names)
        print("casts: %d, theirs %d; nodes %s; %s" % (our_casts, their_casts, wrong, ours.get("error", "")))
    print("paddlepaddle %s, ONNX models%s: %d graphs, %d nodes, %d casts, %d graphs differ" %
          (paddle.__version__, " with If" if options.control else "", options.graphs, nodes, casts, different))
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
