"""check.py OLD.onnx NEW.onnx [LOW]: NEW is OLD in mixed precision, as run-emit says.

LOW: FLOAT16 (default) or BFLOAT16."""
import sys

import onnx
import onnx.checker
import onnx.shape_inference

WHITE = ("Conv", "MatMul", "Gemm")


def element_type(info):
    return info.type.tensor_type.elem_type


def types_of(model):
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    types = {t.name: t.data_type for t in graph.initializer}
    for info in [*graph.value_info, *graph.input, *graph.output]:
        types[info.name] = element_type(info)
    return types


def check(old, new, low):
    onnx.checker.check_model(new, full_check=True)  # given a path, it would write shapes into the file
    weights = {t.name for t in old.graph.initializer}
    for field in ("input", "output"):
        before = [(i.name, element_type(i)) for i in getattr(old.graph, field) if i.name not in weights]
        after = [(i.name, element_type(i)) for i in getattr(new.graph, field)]
        assert before == after, f"{field}s: {before} became {after}"
    types = types_of(new)
    names = {n.name: n.op_type for n in old.graph.node}
    for node in new.graph.node:
        if node.op_type in WHITE:
            assert {types[i] for i in node.input if i} == {low}, f"{node.name} does not read {low}"
            assert names.get(node.name, node.op_type) == node.op_type or not all(names), f"{node.name} changed"
            assert node.name in names or "" in names, f"{node.name}: no such node"
    kept = {t.name for t in new.graph.initializer}
    matrices = {t.name for t in old.graph.initializer if len(t.dims) > 1 and t.data_type == onnx.TensorProto.FLOAT}
    assert len(matrices & kept) >= len(matrices) - 1, f"lost: {sorted(matrices - kept)}"


if __name__ == "__main__":
    low = sys.argv[3] if len(sys.argv) > 3 else "FLOAT16"
    check(onnx.load(sys.argv[1]), onnx.load(sys.argv[2]), onnx.TensorProto.DataType.Value(low))
