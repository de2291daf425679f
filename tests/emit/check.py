"""check.py OLD.onnx NEW.onnx [LOW]: NEW is OLD in mixed precision, as run-emit says.

LOW: FLOAT16 (default) or BFLOAT16. --corpus BEFORE AFTER: AFTER/NAME.onnx is BEFORE/NAME/model.onnx converted, and
valid if that is. --schemas ONNX.DEF: its results are required where the schemas of the installed ONNX require them."""
import re
import sys
from pathlib import Path

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference

WHITE = ("Conv", "MatMul", "Gemm")
SCALES = {"QuantizeLinear": (1,), "DequantizeLinear": (1,), "QLinearConv": (1, 4, 6), "QLinearMatMul": (1, 4, 6)}
FLOAT = onnx.TensorProto.FLOAT


def element_type(info):
    return info.type.tensor_type.elem_type


def subgraphs(node):
    return [a.g for a in node.attribute if a.HasField("g")]


def walk(graph):
    """All nodes, those of inner graphs too."""
    for node in graph.node:
        yield node
        for subgraph in subgraphs(node):
            yield from walk(subgraph)


def typed(graph, outer):
    """Element types by name, in inner graphs too, where shape inference leaves them out: those of the first operand."""
    types = {**outer, **{t.name: t.data_type for t in graph.initializer}}
    for info in [*graph.value_info, *graph.input, *graph.output]:
        types[info.name] = element_type(info)
    inner = {}
    for node in graph.node:
        for subgraph in subgraphs(node):
            inner.update(typed(subgraph, types))
        to = [a.i for a in node.attribute if a.name == "to" and node.op_type == "Cast"]
        for name in node.output:
            types.setdefault(name, to[0] if to else types.get(node.input[0] if node.input else ""))
    return {**inner, **types}


def types_of(model):
    return typed(onnx.shape_inference.infer_shapes(model, strict_mode=True).graph, {})


def check_subgraphs(old, new):
    """Inputs and outputs of subgraphs keep their types. By node name and attribute."""
    before = {(n.name, a.name): a.g for n in walk(old.graph) for a in n.attribute if a.HasField("g")}
    after = {(n.name, a.name): a.g for n in walk(new.graph) for a in n.attribute if a.HasField("g")}
    for key, subgraph in before.items():
        if "" in key or key not in after:  # an If with a constant condition has been removed
            continue
        for field in ("input", "output"):
            pairs = list(zip(getattr(subgraph, field), getattr(after[key], field), strict=True))
            assert all(element_type(a) in (0, element_type(b)) for a, b in pairs), f"{key}: {field}s changed type"


def check(old, new, low):
    onnx.checker.check_model(new, full_check=True)  # given a path, it would write shapes into the file
    weights = {t.name for t in old.graph.initializer}
    for field in ("input", "output"):
        before = [(i.name, element_type(i)) for i in getattr(old.graph, field) if i.name not in weights]
        after = [(i.name, element_type(i)) for i in getattr(new.graph, field)]
        assert before == after, f"{field}s: {before} became {after}"
    types = types_of(new)
    names = {n.name: n.op_type for n in walk(old.graph)}
    for node in walk(new.graph):
        if node.op_type in WHITE:
            assert {types[i] for i in node.input if i} == {low}, f"{node.name} does not read {low}"
            assert names.get(node.name, node.op_type) == node.op_type or not all(names), f"{node.name} changed"
            assert node.name in names or "" in names, f"{node.name}: no such node"
        for i in SCALES.get(node.op_type, ()):
            assert types[node.input[i]] == FLOAT, f"{node.name}: a scale is not FLOAT"
    check_subgraphs(old, new)
    kept = {t.name for t in new.graph.initializer}
    matrices = {t.name for t in old.graph.initializer if len(t.dims) > 1 and t.data_type == FLOAT}
    assert len(matrices & kept) >= len(matrices) - 1, f"lost: {sorted(matrices - kept)}"


def is_valid(path):
    try:
        onnx.checker.check_model(onnx.load(path), full_check=True)
        return True
    except Exception as error:  # the checker raises exceptions of its own types
        return str(error).split("\n")[0]


def check_corpus(before, after):
    """Every model that was valid before is valid after; a line for each."""
    for path in sorted(Path(after).glob("*.onnx")):
        valid = is_valid(path)
        if valid is True:
            print(f"PASS emit.fp16.{path.stem}")
        elif is_valid(Path(before) / path.stem / "model.onnx") is True:
            print(f"FAIL emit.fp16.{path.stem}: {valid}")


def check_schemas(path):
    """A line for each operator that has several results."""
    table = dict(re.findall(r'^(?:OPERATOR|OPAQUE)\((\w+),.*?>(.*?)"', Path(path).read_text(), re.MULTILINE))
    optional, several = {}, set()
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain or schema.deprecated:
            continue
        several |= {schema.name} if len(schema.outputs) > 1 else set()
        for i, result in enumerate(schema.outputs):
            is_optional = result.option == onnx.defs.OpSchema.FormalParameterOption.Optional
            optional.setdefault((schema.name, i), False)
            optional[schema.name, i] |= is_optional
    for name in sorted(several):
        letters = re.findall(r"[a-z][?*+]?", table[name])
        wrong = [i for i, letter in enumerate(letters) if letter.endswith("?") != optional.get((name, i), letter.endswith("?"))]
        print(f"FAIL emit.results.{name}: {wrong}" if wrong else f"PASS emit.results.{name}")


if __name__ == "__main__":
    if sys.argv[1] == "--schemas":
        check_schemas(sys.argv[2])
        sys.exit()
    if sys.argv[1] == "--corpus":
        check_corpus(*sys.argv[2:])
        sys.exit()
    low = sys.argv[3] if len(sys.argv) > 3 else "FLOAT16"
    check(onnx.load(sys.argv[1]), onnx.load(sys.argv[2]), onnx.TensorProto.DataType.Value(low))
