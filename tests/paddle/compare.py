#!/usr/bin/env python3
"""Random programs through PaddlePaddle's own mixed-precision pass and through ours, op by op.

usage: compare.py [--ampc-opt PATH] [--graphs N] [--seed N] [--era 3|2.4] [--keep]

Needs the Python package `paddlepaddle` (a scratch virtual environment will do; nothing is executed, only programs are
rewritten). Era 3 wants version 2.6 or later and runs the program pass, which the package uses only without its new IR; era
2.4 wants version 2.4. A CPU build declares every operator unsupported in fp16, so that set is replaced by the empty
one. Compared: the type of every op's result, and the number of casts inserted. The first differences are printed with both
programs; exit 1 if there is any.
"""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile

os.environ["FLAGS_enable_pir_api"] = "0"
os.environ.setdefault("GLOG_minloglevel", "3")
import logging  # noqa: E402

logging.disable(logging.WARNING)
import paddle  # noqa: E402
import paddle.nn.functional as F  # noqa: E402

paddle.enable_static()

# IR op and ONNX operator of the unary ops that need only a name.
UNARY = {
    "Exp": ("exp", paddle.exp), "Log": ("log", paddle.log), "Relu": ("relu", F.relu), "Tanh": ("tanh", paddle.tanh),
    "Sigmoid": ("sigmoid", F.sigmoid), "Sqrt": ("sqrt", paddle.sqrt), "Abs": ("abs", paddle.abs),
    "Erf": ("erf", paddle.erf), "Sin": ("sin", paddle.sin), "Cos": ("cos", paddle.cos), "Gelu": ("gelu", F.gelu),
    "Reciprocal": ("reciprocal", paddle.reciprocal), "Softplus": ("softplus", F.softplus),
    "Softmax": ("softmax", F.softmax), "LogSoftmax": ("log_softmax", F.log_softmax), "Sign": ("sign", paddle.sign),
    "Floor": ("floor", paddle.floor),
}
BINARY = {
    "Add": ("add", paddle.add), "Sub": ("sub", paddle.subtract), "Mul": ("mul", paddle.multiply),
    "Div": ("div", paddle.divide), "Max": ("max", paddle.maximum), "Min": ("min", paddle.minimum),
    "Pow": ("pow", paddle.pow),
}
# Operators that custom lists may name, with the Paddle op that implements them.
LISTABLE = {
    "Exp": "exp", "Tanh": "tanh", "Relu": "relu", "Gelu": "gelu", "Softmax": "softmax", "Add": "elementwise_add",
    "MatMul": "matmul_v2", "Transpose": "transpose2", "LayerNormalization": "layer_norm", "Abs": "abs",
    "BatchNormalization": "batch_norm", "ReduceMean": "reduce_mean", "Flatten": "flatten_contiguous_range",
}
SHAPE = "[4,4]"


class Graph:
    """One random program, built on both sides at once."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.main, self.start = paddle.static.Program(), paddle.static.Program()
        self.storage, self.body, self.nodes = [], [], []  # nodes: (name, variable)
        self.params, self.values, self.count = [], [], 0
        with paddle.static.program_guard(self.main, self.start), paddle.utils.unique_name.guard():
            names = ["x", "y", "learning_rate_0" if self.r.random() < 0.1 else "z"]
            self.inputs = [(n, paddle.static.data(n, [4, 4], "float32")) for n in names]
            self.ids = paddle.static.data("ids", [4], "int64")
            self.values = [("@" + n, v) for n, v in self.inputs]
            for i in range(self.r.randint(1, 3)):
                self.params.append(self.param("w%d" % i, "[4,4]", [4, 4]))
            for _ in range(self.r.randint(3, 14)):
                getattr(self, self.r.choice(self.KINDS))()
        self.before = sum(op.type == "cast" for op in self.main.global_block().ops)

    def param(self, name, text, shape):
        self.storage.append("param @%s : f32%s = zero" % (name, text))
        return "@" + name, paddle.create_parameter(shape, "float32", name=name)

    def node(self, text, onnx, variable, extra="", shape=SHAPE, dtype="f32"):
        """Appends `text` with result %nK and returns the value."""
        name = "n%d" % self.count
        self.count += 1
        self.body.append("  %%%s%s : %s%s !%s \"%s\"" % (name, " = " + text, dtype, shape + extra, onnx, name))
        self.nodes.append((name, variable.name))
        return "%" + name, variable

    def keep(self, value):
        self.values.append(value)

    def pick(self):
        recent = self.values[-4:]
        return self.r.choice(recent if self.r.random() < 0.7 else self.values)

    def operand(self):
        return self.r.choice(self.params) if self.r.random() < 0.3 else self.pick()

    # ---- one op each ------------------------------------------------------------------------------------

    def unary(self):
        onnx = self.r.choice(sorted(UNARY))
        op, make = UNARY[onnx]
        a, v = self.pick()
        self.keep(self.node("%s %s" % (op, a), onnx, make(v)))

    def binary(self):
        onnx = self.r.choice(sorted(BINARY))
        op, make = BINARY[onnx]
        (a, v), (b, w) = self.operand(), self.operand()
        if a == b:
            return
        self.keep(self.node("%s %s, %s" % (op, a, b), onnx, make(v, w)))

    def matmul(self):
        (a, v), (b, w) = self.operand(), self.operand()
        self.keep(self.node("matmul %s, %s, _" % (a, b), "MatMul", paddle.matmul(v, w)))

    def square(self):
        a, v = self.pick()
        self.keep(self.node("mul %s, %s" % (a, a), "Mul", paddle.square(v)))

    def scalar(self, name, number):
        line = "const @%s : f32[] = %s" % (name, number)
        if line not in self.storage:
            self.storage.append(line)
        return "@" + name

    def power(self):
        a, v = self.pick()
        self.keep(self.node("pow %s, %s" % (a, self.scalar("three", 3)), "Pow", paddle.pow(v, 3.0)))

    def scale(self):
        a, v = self.pick()
        self.keep(self.node("mul %s, %s" % (a, self.scalar("two", 2)), "Mul", v * 2.0))

    def relu6(self):
        a, v = self.pick()
        lo = self.scalar("zero", 0)
        if self.r.random() < 0.5:
            self.keep(self.node("clip %s, %s, %s" % (a, lo, self.scalar("six", 6)), "Clip", F.relu6(v)))
        else:
            self.keep(self.node("clip %s, %s, %s" % (a, lo, self.scalar("two", 2)), "Clip", paddle.clip(v, 0., 2.)))

    def mean(self):
        a, v = self.pick()
        if self.r.random() < 0.5:
            value = self.node("reduce_mean %s {axes=[1]}" % a, "ReduceMean", paddle.mean(v, 1, True), shape="[4,1]")
        else:
            value = self.node("reduce_sum %s {axes=[1]}" % a, "ReduceSum", paddle.sum(v, 1, keepdim=True), shape="[4,1]")
        b, w = self.pick()
        self.keep(self.node("add %s, %s" % (b, value[0]), "Add", paddle.add(w, value[1])))

    def move(self):
        a, v = self.operand()
        kind = self.r.randint(0, 2)
        if kind == 0:
            self.keep(self.node("transpose %s {perm=[1,0]}" % a, "Transpose", paddle.transpose(v, [1, 0])))
        elif kind == 1:
            self.keep(self.node("reshape %s {shape=[4,4]}" % a, "Reshape", paddle.reshape(v, [4, 4])))
        else:
            self.keep(self.node("reshape %s {shape=[4,4]}" % a, "Flatten", paddle.flatten(v, 1, 1)))

    def concat(self):
        (a, v), (b, w) = self.pick(), self.pick()
        c, u = self.node("concat %s, %s {axis=1}" % (a, b), "Concat", paddle.concat([v, w], 1), shape="[4,8]")
        step = self.r.randint(1, 2)
        text = "slice %s {start=[0,0], size=[4,4], step=[1,%d]}" % (c, step)
        if step == 1:
            self.keep(self.node(text, "Slice", paddle.slice(u, [1], [0], [4])))
        else:
            self.keep(self.node(text, "Slice", paddle.strided_slice(u, [1], [0], [8], [2])))

    def split(self):
        a, v = self.pick()
        parts = paddle.split(v, 2, 1)
        names = "n%d" % self.count, "n%d.b" % self.count
        self.count += 1
        self.body.append("  %%%s, %%%s = split %s {axis=1, sizes=[2,2]} : f32[4,2], f32[4,2] !Split \"%s\"" %
                         (names + (a, names[0])))
        self.nodes.append((names[0], parts[0].name))
        self.keep(self.node("concat %%%s, %%%s {axis=1}" % (names[1], names[0]), "Concat",
                            paddle.concat([parts[1], parts[0]], 1)))

    def cast(self):
        a, v = self.operand()
        if self.r.random() < 0.4:
            a, v = self.node("cast %s {to=i64}" % a, "Cast", paddle.cast(v, "int64"), dtype="i64")
        self.keep(self.node("cast %s {to=f32}" % a, "Cast", paddle.cast(v, "float32")))

    def compare(self):
        (a, v), (b, w) = self.pick(), self.pick()
        c, u = self.node("less %s, %s" % (a, b), "Less", paddle.less_than(v, w), dtype="bool")
        if self.r.random() < 0.5:
            self.keep(self.node("cast %s {to=f32}" % c, "Cast", paddle.cast(u, "float32")))
        else:
            self.keep(self.node("where %s, %s, %s" % (c, a, b), "Where", paddle.where(u, v, w)))

    def dropout(self):
        a, v = self.pick()
        if "state @rng : i64[2] = [0, 0] as rng" not in self.storage:
            self.storage.append("state @rng : i64[2] = [0, 0] as rng")
        name = "n%d" % self.count
        self.count += 1
        y = F.dropout(v, 0.5, training=True)
        self.body.append("  %%%s, %%%s.m = dropout %s, @rng : f32[4,4], bool[4,4] !Dropout \"%s\"" % (name, name, a, name))
        self.nodes.append((name, y.name))
        self.keep(("%" + name, y))

    def layer_norm(self):
        a, v = self.pick()
        s, t = self.param("ln%d" % self.count, "[4]", [4]), self.param("lnb%d" % self.count, "[4]", [4])
        name = "n%d" % self.count
        self.count += 1
        y = F.layer_norm(v, [4], s[1], t[1])
        self.body.append("  %%%s, %%%s.m, %%%s.r = layer_norm %s, %s, %s : f32[4,4], f32[4,1], f32[4,1] "
                         "!LayerNormalization \"%s\"" % (name, name, name, a, s[0], t[0], name))
        self.nodes.append((name, y.name))
        self.keep(("%" + name, y))

    def batch_norm(self):
        a, v = self.pick()
        k = self.count
        s, t = self.param("bn%d" % k, "[4]", [4]), self.param("bnb%d" % k, "[4]", [4])
        state = [paddle.static.create_global_var([4], 0.0, "float32", True, name="bn%s%d" % (n, k)) for n in "mv"]
        for n in "mv":
            self.storage.append("state @bn%s%d : f32[4] = zero" % (n, k))
        self.count += 1
        y = F.batch_norm(v, state[0], state[1], s[1], t[1], training=True)
        self.body.append("  %%n%d, %%n%d.m, %%n%d.v, %%n%d.sm, %%n%d.sv = batch_norm %s, %s, %s, @bnm%d, @bnv%d {training=true} "
                         ": f32[4,4], f32[4], f32[4], f32[4], f32[4] !BatchNormalization \"n%d\"" %
                         (k, k, k, k, k, a, s[0], t[0], k, k, k))
        self.nodes.append(("n%d" % k, y.name))
        self.keep(("%%n%d" % k, y))

    def gather(self):
        if self.r.random() < 0.5:
            p, v = self.r.choice(self.params)
            self.keep(self.node("gather %s, @ids" % p, "Gather", F.embedding(self.ids, v)))
        else:
            a, v = self.pick()
            self.keep(self.node("gather %s, @ids" % a, "Gather", paddle.gather(v, self.ids)))

    def constant(self):
        name = "k%d" % self.count
        self.storage.append("const @%s : f32[4,4] = zero" % name)
        a, v = self.pick()
        self.keep(self.node("add %s, @%s" % (a, name), "Add", paddle.add(v, paddle.full([4, 4], 0.0))))

    def images(self):
        a, v = self.pick()
        a, v = self.node("reshape %s {shape=[1,4,2,2]}" % a, "Reshape", paddle.reshape(v, [1, 4, 2, 2]), shape="[1,4,2,2]")
        groups = self.r.choice([1, 2, 4])
        k = self.count
        w = self.param("cw%d" % k, "[4,%d,1,1]" % (4 // groups), [4, 4 // groups, 1, 1])
        a, v = self.node("conv %s, %s, _ {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=%d}" % (a, w[0], groups),
                         "Conv", F.conv2d(v, w[1], groups=groups), shape="[1,4,2,2]")
        window = "{kernel=[1,1], strides=[1,1], pads=[0,0,0,0], dilations=[1,1]}"
        if self.r.random() < 0.5:
            v = F.avg_pool2d(v, 1)
            a, v = self.node("avg_pool %s %s" % (a, window), "AveragePool", v, shape="[1,4,2,2]")
        self.keep(self.node("reshape %s {shape=[4,4]}" % a, "Reshape", paddle.reshape(v, [4, 4])))

    KINDS = (["unary"] * 6 + ["binary"] * 6 + ["matmul"] * 5 + ["move"] * 2 +
             ["square", "power", "scale", "relu6", "mean", "concat", "split", "cast", "compare", "dropout", "layer_norm",
              "batch_norm", "gather", "constant", "images"])

    def text(self):
        inputs = ", ".join("@%s : f32[4,4]" % n for n, _ in self.inputs) + ", @ids : i64[4]"
        outputs = ['  output "o%d" = %s' % (i, v) for i, (v, _) in enumerate(self.values) if v[0] == "%"]
        return "\n".join(["ampc-ir 3"] + self.storage + ["graph @infer(%s) as infer {" % inputs] + self.body + outputs + ["}", ""])


def run_pass(era, program, white, black, varnames, dtype, level, promote):
    """PaddlePaddle's own pass over a program; its set of unsupported ops is empty."""
    if era != "3":
        from paddle.fluid.contrib.mixed_precision import fp16_lists, fp16_utils
        fp16_utils.rewrite_program(program, fp16_lists.AutoMixedPrecisionLists(white, black, varnames))
        return
    from paddle.static.amp import fp16_lists, fp16_utils
    full = "float16" if dtype == "fp16" else "bfloat16"
    if not SYSTEM_OPS:
        SYSTEM_OPS.update(fp16_lists._get_sys_unsupported_list(full)[2])
        fp16_lists._get_sys_unsupported_list = lambda dtype: ("GPU", set(), SYSTEM_OPS)
    lists = fp16_lists.AutoMixedPrecisionLists(white, black, varnames, dtype=full)
    fp16_utils.cast_model_to_fp16(program, lists, use_fp16_guard=False, level=level, use_promote=promote,
                                  dest_type=getattr(paddle.base.core.VarDesc.VarType, dtype.upper()))


class Case:
    """A program, a level and lists."""

    def __init__(self, seed, era):
        self.graph = Graph(seed)
        r = self.graph.r
        self.era = era
        self.level = r.choice(["O1"] * 4 + ["O2"] * 2 + ["OD"]) if era == "3" else "O1"
        self.promote = era == "3" and self.level != "OD" and r.random() < 0.3
        self.dtype = r.choice(["fp16", "bf16"]) if era == "3" else "fp16"
        names = r.sample(sorted(LISTABLE), r.choice([0, 0, 0, 1, 2, 3]))
        cut = r.randint(0, len(names))
        self.white, self.black = names[:cut], names[cut:]
        self.varnames = []
        if self.level == "O1" and r.random() < 0.15:
            self.varnames = ["w0"]

    def paddle_side(self):
        run_pass(self.era, self.graph.main, {LISTABLE[n] for n in self.white}, {LISTABLE[n] for n in self.black},
                 set(self.varnames) or None, self.dtype, self.level, self.promote)
        block = self.graph.main.global_block()
        types = {n: str(block.var(v).dtype).split(".")[-1] for n, v in self.graph.nodes}
        return types, sum(op.type == "cast" for op in block.ops) - self.graph.before

    def our_side(self, program, folder):
        source, rules = os.path.join(folder, "p.ir"), os.path.join(folder, "p.amplist")
        open(source, "w").write(self.graph.text())
        lists = "[white]\n%s\n[black]\n%s\n[tensors]\n%s\n" % tuple(map("\n".join, (self.white, self.black, self.varnames)))
        open(rules, "w").write(lists + ("[rules]\npromote = on\n" if self.promote else ""))
        run = subprocess.run([program, source, "--pass=amp", "--profile=paddle-" + self.era, "--amp=" + self.level,
                              "--dtype=" + self.dtype, "--list=" + rules, "--no-keep-io-types"],
                             capture_output=True, text=True)
        if run.returncode:
            return {"error": run.stderr}, 0
        types, casts = {}, 0
        words = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "bool": "bool"}
        for line in run.stdout.splitlines():
            node = re.search(r' : (\w+)\[.*!\w+ "(n\d+)"', line)
            if node:
                types[node.group(2)] = words[node.group(1)]
            elif re.search(r"= cast ", line) and "low-precision copy of the parameter" not in line:
                casts += 1
        return types, casts


SYSTEM_OPS = set()


def spell(name):
    return {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "INT64": "int64", "BOOL": "bool"}.get(name, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ampc-opt", default="ampc-opt")
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--era", default="3", choices=["3", "2.4"])
    options = parser.parse_args()
    folder = tempfile.mkdtemp()
    different = ops = casts = 0
    levels = {}
    for seed in range(options.seed, options.seed + options.graphs):
        case = Case(seed, options.era)
        theirs, their_casts = case.paddle_side()
        theirs = {n: spell(t) for n, t in theirs.items()}
        ours, our_casts = case.our_side(options.ampc_opt, folder)
        ops += len(theirs)
        casts += their_casts
        key = case.level + (" promote" if case.promote else "")
        levels[key] = levels.get(key, 0) + 1
        if ours == theirs and our_casts == their_casts:
            continue
        different += 1
        if different > 3:
            continue
        print("graph %d, %s, %s, white %s, black %s, names %s" %
              (seed, key, case.dtype, case.white, case.black, case.varnames))
        print(case.graph.text())
        for op in case.graph.main.global_block().ops:
            print("  ", op.type, op.input_arg_names, "->", op.output_arg_names)
        print("casts: %d, theirs %d" % (our_casts, their_casts))
        for n in theirs:
            if ours.get(n) != theirs[n]:
                print("%s: %s, theirs %s" % (n, ours.get(n), theirs[n]))
        if "error" in ours:
            print(ours["error"])
    print("paddlepaddle %s, era %s: %d graphs (%s), %d ops, %d casts, %d graphs differ" %
          (paddle.__version__, options.era, options.graphs, ", ".join("%s %d" % i for i in sorted(levels.items())),
           ops, casts, different))
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
