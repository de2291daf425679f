"""The class with the names of onnxruntime's."""
import subprocess
import threading

import numpy as np
import pytest

import ampc as onnxruntime  # the import that a program changes
from ampc import _library as library
from conftest import MLP, ROOT

MNIST = ROOT / "tests" / "models" / "mnist.onnx"
helper = pytest.importorskip("onnx").helper
from onnx import TensorProto, numpy_helper  # noqa: E402


def model(nodes, inputs, outputs, constants=(), **more):
    """Bytes of an ONNX model; inputs and outputs are (name, type, shape)."""
    graph = helper.make_graph(nodes, "tested", [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info(*o) for o in outputs],
                              [numpy_helper.from_array(a, n) for n, a in dict(constants).items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, **more)
    return made


def test_the_program_of_the_documentation_of_onnxruntime():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(MLP), options, providers=["CPUExecutionProvider"])
    entry, exit_ = session.get_inputs()[0], session.get_outputs()[0]
    assert (entry.name, entry.shape, entry.type) == ("x", ["N", 4], "tensor(float)")
    assert (exit_.name, exit_.shape) == ("scores", ["N", 2])
    scores, = session.run([exit_.name], {entry.name: np.zeros((3, 4), np.float32)})
    assert scores.shape == (3, 2) and session.get_providers() == ["CPUExecutionProvider"]


def test_bits_are_those_of_the_program(build, tmp_path):
    x = np.random.default_rng(0).standard_normal((5, 1, 28, 28)).astype("f4")
    session = onnxruntime.InferenceSession(MNIST, threads=1)
    name = session.get_inputs()[0].name
    np.savez(tmp_path / "in.npz", **{name: x})
    subprocess.run([build / "ampc-run", "infer", MNIST, f"--inputs={tmp_path}/in.npz", "-o", tmp_path / "out.npz", "--threads=1",
                    "--device=cpu", "--amp=O0", "-q"], check=True)
    with np.load(tmp_path / "out.npz") as out:
        for o, value in zip(session.get_outputs(), session.run(None, {name: x})):
            assert np.array_equal(value, out[[k for k in out.files if k.endswith(o.name)][0]])


def test_arrays_are_not_copied(monkeypatch):
    """The library gets the address of an input, and an output is the memory of the library's tensor."""
    seen, x = [], np.zeros((2, 4), np.float32)
    borrow = library.borrow

    def spy(context, name, value):
        tensor, array = borrow(context, name, value)
        seen.append(int(library.ffi.cast("uintptr_t", library.lib.ampc_tensor_data(tensor))))
        return tensor, array

    monkeypatch.setattr(library, "borrow", spy)
    scores, = onnxruntime.InferenceSession(MLP).run(None, {"x": x})
    assert seen == [x.__array_interface__["data"][0]]
    owner = scores.base
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert int(library.ffi.cast("uintptr_t", library.lib.ampc_tensor_data(owner.tensor))) == \
        scores.__array_interface__["data"][0]


def test_results_stay_when_the_session_runs_again_or_ends():
    session = onnxruntime.InferenceSession(MLP)
    first, = session.run(None, {"x": np.zeros((2, 4), "f4")})
    kept = first.copy()
    session.run(None, {"x": np.ones((9, 4), "f4")})
    del session
    assert np.array_equal(first, kept)


@pytest.mark.parametrize("onnx_type, dtype, named", [
    (TensorProto.FLOAT, "f4", "float"), (TensorProto.FLOAT16, "f2", "float16"), (TensorProto.DOUBLE, "f8", "double"),
    (TensorProto.INT64, "i8", "int64"), (TensorProto.INT32, "i4", "int32"), (TensorProto.UINT8, "u1", "uint8"),
    (TensorProto.BOOL, "?", "bool")])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1,), ()], ids=str)
def test_types_and_shapes(onnx_type, dtype, named, shape):
    sizes = [f"d{i}" for i in range(len(shape))]
    session = onnxruntime.InferenceSession(
        model([helper.make_node("Identity", ["x"], ["y"])], [("x", onnx_type, sizes)], [("y", onnx_type, sizes)]))
    assert session.get_inputs()[0].type == f"tensor({named})" and session.get_inputs()[0].shape == sizes
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    y, = session.run(None, {"x": x})
    assert y.dtype == x.dtype and y.shape == x.shape and np.array_equal(y, x)


@pytest.mark.parametrize("entry, declared, shown", [
    ([None, 3], [None, 3], [[None, 3], [None, 3]]), (["N", 3], [None, 3], [["N", 3], ["N", 3]]),
    (["N", 3], ["M", 3], [["N", 3], ["M", 3]]), ([2, 3], ["M", 3], [[2, 3], [2, 3]]), (["N", 3], None, [["N", 3], ["N", 3]])],
    ids=str)
def test_names_of_dimensions_are_those_of_the_file(entry, declared, shown):
    """These are what onnxruntime 1.32 shows."""
    session = onnxruntime.InferenceSession(model([helper.make_node("Relu", ["x"], ["y"])], [("x", TensorProto.FLOAT, entry)],
                                                 [("y", TensorProto.FLOAT, declared)]))
    assert [session.get_inputs()[0].shape, session.get_outputs()[0].shape] == shown


def test_several_outputs_in_any_order():
    x = np.array([3.0, 1.0, 2.0], "f4")
    session = onnxruntime.InferenceSession(
        model([helper.make_node("TopK", ["x", "k"], ["v", "i"]), helper.make_node("NonZero", ["x"], ["z"])],
              [("x", TensorProto.FLOAT, ["N"])],
              [("v", TensorProto.FLOAT, ["K"]), ("i", TensorProto.INT64, ["K"]), ("z", TensorProto.INT64, [1, "M"])],
              {"k": np.array([2])}))
    for wanted in (["i"], ["v", "i"], ["i", "v"], ["v"], None, ["i", "i"]):
        found = dict(zip(wanted or ["v", "i", "z"], session.run(wanted, {"x": x})))
        assert all(np.array_equal(found[n], e) for n, e in
                   {"v": [3, 2], "i": [0, 2], "z": [[0, 1, 2]]}.items() if n in found)
    with pytest.raises(onnxruntime.UsageError, match="Invalid output name: w; the outputs are v, i, z"):
        session.run(["w"], {"x": x})


def test_metadata(tmp_path):
    made = model([helper.make_node("Relu", ["x"], ["y"])], [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])],
                 producer_name="tests", domain="ai.example", model_version=7, doc_string="a model")
    helper.set_model_props(made, {"names": "cat,dog", "stride": "32"})
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    for source in (made, made.SerializeToString(), tmp_path / "m.onnx"):
        meta = onnxruntime.InferenceSession(source).get_modelmeta()
        assert (meta.producer_name, meta.domain, meta.version, meta.description) == ("tests", "ai.example", 7, "a model")
        assert meta.graph_name == "tested" and meta.custom_metadata_map == {"names": "cat,dog", "stride": "32"}


@pytest.mark.parametrize("feed, message", [
    ({}, r"'x' is missing: tensor.float..'N', 4."), ({"x": np.zeros((2, 5), "f4")}, "'x'"), ({"x": np.zeros(4, "f4")}, "'x'"),
    ({"x": np.zeros((2, 4), "f4"), "y": np.zeros(1)}, "Invalid input name: y; the inputs are x"), ({"x": None}, "is missing"),
    ({"x": np.zeros((2, 4))}, r"'x' is tensor\(double\), expected tensor\(float\)"), ({"x": 1.0}, r"'x' has the shape \[\]"),
    ({"x": np.array([["a"] * 4])}, "arrays of <U1"), ({"x": [["a"] * 4]}, "'x': could not convert")], ids=str)
def test_feeds_that_do_not_fit(feed, message):
    session = onnxruntime.InferenceSession(MLP)
    with pytest.raises((onnxruntime.RejectedError, onnxruntime.UsageError), match=message):
        session.run(None, feed)
    assert session.run(None, {"x": np.zeros((2, 4), "f4")})[0].shape == (2, 2)


def test_numbers_become_the_type_of_the_input():
    session = onnxruntime.InferenceSession(MLP)
    expected, = session.run(None, {"x": np.array([[1, 2, 3, 4]], "f4")})
    assert np.array_equal(session.run(None, {"x": [[1, 2, 3, 4]]})[0], expected)
    assert session.run(None, {"x": np.zeros((2, 4), ">f4")})[0].shape == (2, 2)


def test_names_of_onnxruntime_that_change_nothing():
    options, of_run = onnxruntime.SessionOptions(), onnxruntime.RunOptions()
    options.execution_order, options.log_severity_level, options.inter_op_num_threads = 0, 3, 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    of_run.only_execute_path_to_fetches = True
    of_run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session = onnxruntime.InferenceSession(MLP, options, ["NoExecutionProvider"], disabled_optimizers=["ConstantFolding"])
    session.disable_fallback()
    assert session.run(None, {"x": np.zeros((2, 4), "f4")}, of_run)[0].shape == (2, 2)
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    with pytest.raises(AttributeError, match="SessionOptions has no attribute 'intra_op_threads'"):
        options.intra_op_threads = 3
    with pytest.raises(onnxruntime.UnsupportedError, match="plug-in"):
        options.register_custom_ops_library("libortops.so")


def test_providers(caplog):
    session = onnxruntime.InferenceSession(MLP, providers=["TensorrtExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"] and "TensorrtExecutionProvider is not known" in caplog.text
    assert "CPUExecutionProvider" in onnxruntime.get_available_providers() and onnxruntime.get_device() in ("CPU", "GPU")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        both = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
        assert onnxruntime.InferenceSession(MLP, providers=both).get_providers() == ["CPUExecutionProvider"]
        with pytest.raises(onnxruntime.DeviceError):
            onnxruntime.InferenceSession(MLP, providers=["CUDAExecutionProvider"])


def test_options():
    options = onnxruntime.SessionOptions()
    options.add_free_dimension_override_by_name("N", 3)
    session = onnxruntime.InferenceSession(MLP, options)
    assert session.get_inputs()[0].shape == [3, 4]
    options.enable_profiling = True
    with pytest.raises(onnxruntime.UnsupportedError, match="enable_profiling"):
        onnxruntime.InferenceSession(MLP, options)
    low = onnxruntime.InferenceSession(MLP, dtype="fp16")
    x = {"x": np.random.default_rng(0).standard_normal((9, 4)).astype("f4")}
    exact = onnxruntime.InferenceSession(MLP).run(None, x)[0]
    assert np.allclose(low.run(None, x)[0], exact, atol=1e-2) and not np.array_equal(low.run(None, x)[0], exact)


def test_threads_share_a_session():
    session = onnxruntime.InferenceSession(MLP, threads=1)
    xs = [np.full((n, 4), n, "f4") for n in range(1, 5)]
    expected = [session.run(None, {"x": x})[0] for x in xs]
    wrong = []

    def run(i):
        for _ in range(50):
            if not np.array_equal(session.run(["scores"], {"x": xs[i]})[0], expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
