#!/usr/bin/python3
"""Writes the models and data of the command-line tests, good and bad ones, into a folder.

usage: make_inputs.py FOLDER
"""
import gzip
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

folder = Path(sys.argv[1])
random = np.random.default_rng(7)


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def write(name, nodes, inputs, outputs, weights=(), others=()):
    weights = [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in weights] + list(others)
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    data = model.SerializeToString()
    (folder / f"{name}.onnx").write_bytes(data)
    return data


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, length):
    return varint(number << 3 | 2) + varint(length)


# Valid models --------------------------------------------------------------------------------------------------
w1, w2 = random.normal(0, 0.5, (4, 32)), random.normal(0, 0.3, (32, 3))
tiny = write("tiny", [helper.make_node("MatMul", ["x", "w1"], ["h"], name="fc1/MatMul"),
                      helper.make_node("Relu", ["h"], ["r"], name="relu"),
                      helper.make_node("MatMul", ["r", "w2"], ["s"], name="fc2/MatMul"),
                      helper.make_node("Softmax", ["s"], ["p"], name="softmax", axis=1)],
             [info("x", ["N", 4])], [info("s", ["N", 3]), info("p", ["N", 3])], [("w1", w1), ("w2", w2)])
# Scores of tokens: the classes are the last axis.
write("spans", [helper.make_node("MatMul", ["x", "w"], ["s"], name="fc")],
      [info("x", ["N", "T", 4])], [info("s", ["N", "T", 3])], [("w", w1[:, :3])])
# Attention of the tokens of a sequence to each other.
write("attention", [helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
                    helper.make_node("Transpose", ["h"], ["k"], name="keys", perm=[0, 2, 1]),
                    helper.make_node("MatMul", ["h", "k"], ["a"], name="scores"),
                    helper.make_node("Softmax", ["a"], ["p"], name="softmax"),
                    helper.make_node("MatMul", ["p", "h"], ["s"], name="values")],
      [info("x", ["N", "T", 4])], [info("s", ["N", "T", 3])], [("w", w1[:, :3])])
# An output of integers.
write("whole", [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc"),
                helper.make_node("Cast", ["y"], ["i"], name="whole", to=TensorProto.INT64)],
      [info("x", ["N", 4])], [info("y", ["N", 3]), info("i", ["N", 3], TensorProto.INT64)], [("w", w1[:, :3])])
# The loss is finite, but a gradient overflows fp16 at every loss scale.
big = helper.make_node("Constant", [], ["big"], name="big", value=numpy_helper.from_array(np.float32(1e30)))
write("hot", [big, helper.make_node("MatMul", ["x", "w"], ["s"], name="fc/MatMul"),
              helper.make_node("Mul", ["s", "big"], ["y"], name="up")],
      [info("x", ["N", 4])], [info("y", ["N", 3])], [("w", w1[:, :3])])
# The loss is finite, but the gradient of a root of 0 is infinite.
write("root", [helper.make_node("MatMul", ["x", "w"], ["s"], name="fc"),
               helper.make_node("Sub", ["s", "s"], ["z"], name="zero"),
               helper.make_node("Sqrt", ["z"], ["r"], name="root"),
               helper.make_node("Add", ["s", "r"], ["y"], name="out")],
      [info("x", ["N", 4])], [info("y", ["N", 3])], [("w", w1[:, :3])])
# Trainable, except that one result has no gradient.
ones = helper.make_node("Constant", [], ["ones"], name="ones", value=numpy_helper.from_array(np.ones(3, np.float32)))
write("loss", [ones, helper.make_node("MatMul", ["x", "w"], ["s"], name="fc/MatMul"),
               helper.make_node("LayerNormalization", ["s", "ones"], ["n", "mean"], name="norm"),
               helper.make_node("Add", ["s", "mean"], ["m"], name="add"),
               helper.make_node("SoftmaxCrossEntropyLoss", ["m", "label"], ["l"], name="loss")],
      [info("x", ["N", 4]), info("label", ["N"], TensorProto.INT64)], [info("l", [])], [("w", w1[:, :3])])
# Attention with a causal mask, sqrt(d) under a generated name, a learned temperature and a bound.
write("masked", [helper.make_node("Div", ["x", "onnx::Div_9"], ["a"], name="div"),
                 helper.make_node("Mul", ["a", "temperature"], ["b"], name="scale"),
                 helper.make_node("Add", ["b", "mask"], ["c"], name="mask/Add"),
                 helper.make_node("Softmax", ["c"], ["p"], name="softmax", axis=-1),
                 helper.make_node("MatMul", ["p", "w"], ["h"], name="fc"),
                 helper.make_node("Clip", ["h", "", "bound"], ["y"], name="clip")],
      [info("x", ["N", 4, 4])], [info("y", ["N", 4, 3])],
      [("onnx::Div_9", 2.0), ("temperature", 1.5), ("mask", np.triu(np.full((4, 4), -1e9), 1)), ("w", w1[:, :3]),
       ("bound", 6.0)])
# An autoencoder that computes its own loss.
write("auto", [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc"),
               helper.make_node("Sub", ["y", "x"], ["d"], name="difference"),
               helper.make_node("Mul", ["d", "d"], ["q"], name="square"),
               helper.make_node("ReduceMean", ["q"], ["l"], name="mean", keepdims=0)],
      [info("x", ["N", 4])], [info("y", ["N", 4]), info("l", [])], [("w", w1[:, :4])])
# Scores, their sigmoid, and the same probabilities as an input, whose origin the compiler cannot see.
write("sigmoid", [helper.make_node("MatMul", ["x", "w"], ["s"], name="fc"),
                  helper.make_node("Sigmoid", ["s"], ["p"], name="sigmoid"),
                  helper.make_node("Abs", ["p"], ["r"], name="abs")],
      [info("x", ["N", 4])], [info("s", ["N", 3]), info("p", ["N", 3]), info("r", ["N", 3])], [("w", 4 * w1[:, :3])])
# Parameters read on the path to integers, and by a comparison.
write("apart", [helper.make_node("Exp", ["p"], ["e"], name="exp"),
                helper.make_node("Transpose", ["e"], ["t"], name="transpose", perm=[1, 0]),
                helper.make_node("Cast", ["t"], ["i"], name="whole", to=TensorProto.INT64),
                helper.make_node("Cast", ["i"], ["y"], name="float", to=TensorProto.FLOAT),
                helper.make_node("MatMul", ["x", "q"], ["m"], name="fc"),
                helper.make_node("Less", ["m", "r"], ["c"], name="less"),
                helper.make_node("Where", ["c", "m", "x"], ["z"], name="where")],
      [info("x", ["N", 4])], [info("y", [4, 4]), info("z", ["N", 4])], [("p", w1[:, :4]), ("q", w1[:, :4]), ("r", w1[0, :4])])
# A model stored entirely in fp16.
half = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
                          helper.make_node("Add", ["h", "b"], ["s"], name="bias")], "half",
                         [info("x", ["N", 4], TensorProto.FLOAT16)], [info("s", ["N", 3], TensorProto.FLOAT16)],
                         [numpy_helper.from_array(w1[:, :3].astype(np.float16), "w"),
                          numpy_helper.from_array(np.array([0.5, -0.25, 2], np.float16), "b")])
half = helper.make_model(half, opset_imports=[helper.make_opsetid("", 17)])
half.ir_version = 8
(folder / "half.onnx").write_bytes(half.SerializeToString())
# Dropout, a BatchNormalization in training or inference form, and a loss besides other outputs.
for name, training in (("modes", 1), ("frozen", 0)):
    statistics = ["bn", "mo", "vo"] if training else ["bn"]
    write(name, [helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
                 helper.make_node("BatchNormalization", ["h", "g", "b", "m", "v"], statistics, name="bn", training_mode=training),
                 helper.make_node("Dropout", ["bn", "ratio", "yes"], ["s"], name="drop"),
                 helper.make_node("SoftmaxCrossEntropyLoss", ["s", "label"], ["l", "p"], name="loss")],
          [info("x", ["N", 4]), info("label", ["N"], TensorProto.INT64)],
          [info("bn", ["N", 3]), info("l", []), info("p", ["N", 3]), info("s", ["N", 3])],
          [("w", w1[:, :3]), ("g", [1, 2, 3]), ("b", [0, 1, 0]), ("m", [0.5, 0, 1]), ("v", [1, 4, 2]), ("ratio", 0.5)],
          [numpy_helper.from_array(np.array(True), "yes")])
# A fresh BatchNormalization as TorchScript exports it: equal tensors are merged, and Identity nodes have the
# other names.
write("merged", [helper.make_node("Identity", ["bn.weight"], ["bn.running_var"]),
                 helper.make_node("Identity", ["bn.bias"], ["fc.bias"]),
                 helper.make_node("Identity", ["bn.bias"], ["bn.running_mean"]),
                 helper.make_node("BatchNormalization", ["x", "bn.weight", "bn.bias", "bn.running_mean",
                                                         "bn.running_var"], ["n"], name="bn"),
                 helper.make_node("Add", ["n", "fc.bias"], ["y"], name="fc")],
      [info("x", ["N", 4])], [info("y", ["N", 4])], [("bn.weight", np.ones(4)), ("bn.bias", np.zeros(4))])
# A dropout ratio that is an initializer with a second use.
write("ratio", [helper.make_node("Dropout", ["x", "half", "on"], ["d"], name="drop"),
                helper.make_node("Mul", ["d", "half"], ["s"], name="scale"),
                helper.make_node("MatMul", ["s", "w"], ["y"], name="fc")],
      [info("x", ["N", 4])], [info("y", ["N", 3])], [("half", 0.5), ("w", w1[:, :3])], [numpy_helper.from_array(np.array(True), "on")])
# An operator whose gradient has no derivative.
write("volume", [helper.make_node("Det", ["x"], ["d"], name="volume"), helper.make_node("Mul", ["d", "w"], ["y"], name="scale")],
      [info("x", [3, 4, 4])], [info("y", [3])], [("w", w1[0, :3])])
# A clip bound computed from a parameter.
write("limit", [helper.make_node("Exp", ["alpha"], ["top"], name="exp"),
                helper.make_node("Clip", ["x", "", "top"], ["c"], name="clip"),
                helper.make_node("Mul", ["c", "alpha"], ["y"], name="scale")],
      [info("x", ["N", 4])], [info("y", ["N", 4])], [("alpha", 0.5)])
# Regions computed from a parameter, for which ONNX defines no derivative.
write("regions", [helper.make_node("Exp", ["p"], ["rois"], name="exp"),
                  helper.make_node("RoiAlign", ["x", "rois", "batch"], ["c"], name="align"),
                  helper.make_node("Mul", ["c", "p"], ["y"], name="scale")],
      [info("x", ["N", 1, 4, 4])], [info("y", [1, 1, 1, 4])], [("p", w1[:1, :4])],
      [numpy_helper.from_array(np.array([0]), "batch")])
# Invalid models -----------------------------------------------------------------------------------------------
(folder / "truncated.onnx").write_bytes(tiny[:len(tiny) // 2])
(folder / "text.onnx").write_text("this is no model\n")
(folder / "empty.onnx").write_bytes(b"")
write("cyclic", [helper.make_node("Add", ["x", "b"], ["a"], name="first"),
                 helper.make_node("Relu", ["a"], ["b"], name="second")], [info("x", ["N", 4])], [info("b", ["N", 4])])
write("unknown", [helper.make_node("Frobnicate", ["x"], ["a"], name="one"),
                  helper.make_node("Relu", ["a"], ["b"], name="two"),
                  helper.make_node("Whirl", ["b"], ["c"], name="three")], [info("x", ["N", 4])],
      [info("c", ["N", 4])])
write("mismatch", [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc/MatMul")], [info("x", ["N", 784])],
      [info("y", ["N", 3])], [("w", np.zeros((785, 3)))])
write("hostile", [helper.make_node("Relu", ["x"], ["a"], name="\x1b[31mred\x07"),
                  helper.make_node("Frobnicate", ["a"], ["y"], name="\x1b]0;title\x07")], [info("x", [4])],
      [info("y", [4])])
for name, last in (("reversed", "Relu"), ("reversed-unknown", "Frobnicate")):
    write(name, [helper.make_node("MatMul", ["\u202ex", "w\u2066"], ["\u061ca"], name="fc\u202e"),
                 helper.make_node(last, ["\u061ca"], ["y\u200f"], name="\u202eact")], [info("\u202ex", ["N\u202d", 4])],
          [info("y\u200f", ["N\u202d", 3])], [("w\u2066", np.ones((4, 3)))])

wrappers, length = [], 0  # graph in attribute in node in graph.., built from the inside out
for _ in range(30000):
    for number in (6, 5, 1):
        wrappers.append(field(number, length))
        length += len(wrappers[-1])
wrappers.append(field(7, length))
(folder / "deep.onnx").write_bytes(b"".join(reversed(wrappers)))
nodes = field(1, 0) * (1 << 20)
(folder / "messages.onnx").write_bytes(field(7, len(nodes)) + nodes)

# Data -----------------------------------------------------------------------------------------------------------
x = random.normal(0, 1, (256, 4)).astype(np.float32)
label = x @ np.array([[1, -1, 0], [0, 1, -1], [1, 0, 1], [-1, 1, 0]], np.float32)
label = label.argmax(axis=1)
np.savez(folder / "data.npz", x=x, label=label)
rows = [",".join([*(repr(float(v)) for v in row), str(kind)]) for row, kind in zip(x, label)]
(folder / "data.csv").write_text("\n".join(["a,b,c,d,label", *rows]) + "\n")
(folder / "short.csv").write_text("\n".join(["a,b,c,d,label", *rows[:4], rows[4][:9]]))
np.savez(folder / "batch.npz", x=x[:8], label=label[:8])
np.savez(folder / "soft.npz", x=x[:8], label=random.random((8, 3), np.float32))
np.savez(folder / "wide.npz", x=np.zeros((8, 5), np.float32), label=label[:8])
np.savez(folder / "infinite.npz", x=np.full((64, 4), np.inf, np.float32), label=label[:64])
np.savez(folder / "hot.npz", x=x, label=np.zeros((256, 3), np.float32))
separate = np.random.default_rng(14)
tokens = separate.integers(0, 3, (16, 5))
tokens[separate.random((16, 5)) < 0.3] = -100
np.save(folder / "auto-x.npy", np.random.default_rng(11).normal(0, 1, (64, 4)).astype(np.float32))
np.savez(folder / "spans.npz", x=separate.normal(0, 1, (16, 5, 4)).astype(np.float32), label=tokens, again=tokens % 3)
np.save(folder / "x.npy", x[:8])
np.save(folder / "label.npy", label[:8])
short = (folder / "x.npy").read_bytes()
(folder / "short.npy").write_bytes(short[:-7])
(folder / "broken.npz").write_bytes((folder / "data.npz").read_bytes()[:300])
(folder / "x.pb").write_bytes(numpy_helper.from_array(x[:8], "x").SerializeToString())



def write_png(path, kind, pixels, palette=b""):
    """8-bit pixels [H,W] or [H,W,3] of a colour type of PNG."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, kind, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row.astype(np.uint8).tobytes() for row in pixels))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + (chunk(b"PLTE", palette) if palette else b"") +
                     chunk(b"IDAT", data) + chunk(b"IEND", b""))


# Pictures of a bright and a green box before a dark ground, their masks with gray values or a palette, and masks with faults.
drawn = np.random.default_rng(21)
convolve = [helper.make_node("Conv", ["x", "k1"], ["h"], name="conv1", kernel_shape=[3, 3], pads=[1] * 4),
            helper.make_node("Relu", ["h"], ["r"], name="relu"),
            helper.make_node("Conv", ["r", "k2"], ["y"], name="conv2", kernel_shape=[1, 1])]
write("fcn", convolve, [info("x", ["N", 3, "H", "W"])], [info("y", ["N", 3, "H", "W"])],
      [("k1", drawn.normal(0, 0.3, (8, 3, 3, 3))), ("k2", drawn.normal(0, 0.5, (3, 8, 1, 1)))])
for part in ("train", "test"):
    for i in range(24):
        mask = np.zeros((12, 16), np.uint8)
        for kind in (1, 2):
            top, left = drawn.integers(0, 7, 2)
            mask[top:top + 5, left:left + 8] = kind
        picture = np.array([[40, 40, 50], [220, 210, 200], [30, 180, 60]])[mask] + drawn.integers(-20, 20, (12, 16, 3))
        write_png(folder / f"seg/images/{part}/{i:02}.png", 2, picture)
        write_png(folder / f"seg/masks/{part}/{i:02}.png", 3 * (i % 2), mask, bytes(range(9)) * (i % 2))
        write_png(folder / f"seg/bright/{part}/{i:02}.png", 0, np.where(mask == 2, 255, mask))
(folder / "seg.csv").write_text("file,mask\n" + "".join(f"seg/images/test/{i:02}.png,seg/masks/test/{i:02}.png\n" for i in range(24)))


for name, cut in (("idx", 0), ("idx-short", 100)):
    (folder / name).mkdir()
    for split in ("train", "t10k"):
        images = random.integers(0, 256, (64, 2, 2), np.uint8)
        labels = random.integers(0, 3, 64, np.uint8)
        body = struct.pack(">IIII", 0x803, 64, 2, 2) + images.tobytes()
        with gzip.open(folder / name / f"{split}-images-idx3-ubyte.gz", "wb") as f:
            f.write(body[:len(body) - cut])
        (folder / name / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 64) + labels.tobytes())

# Lists -------------------------------------------------------------------------------------------------------------
lists = {
    "good": "[meta]\nversion = 1\nbase = ampc\n[black]\nMatMul\n",
    "unknown": "[white]\nMatMull\n",
}
for name, text in lists.items():
    (folder / f"{name}.amplist").write_text(text)
