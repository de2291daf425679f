"""The foundation: declarations, errors, options and tensors."""
import gc
import re

import numpy as np
import pytest

import ampc
from ampc import _library as library
from ampc._library import Context, Inputs, Options, Session, borrow, encode, ffi, import_module, lib, to_numpy


@pytest.fixture
def context():
    return Context()


def training(context, mlp, **options):
    module = import_module(context, mlp)
    how = Options("ampc_compile_options", loss="ce", **options)
    with context:
        context.check(lib.ampc_module_compile(module, how.pointer))
    return Session(context, module)


def test_every_function_of_the_headers_is_in_the_library():
    _, folder = library.find()
    names = {n for n in dir(lib) if n.startswith("ampc_")}
    assert len(names) > 60
    for name in names:
        assert getattr(lib, name)
    declared = "".join((folder / name).read_text() for name in library.HEADERS)
    assert len(re.findall("^AMPC_API ", declared, re.M)) == len(names)


@pytest.mark.parametrize("status", ampc._errors.BY_STATUS)
def test_statuses_have_classes(status):
    assert getattr(lib, status) and issubclass(ampc._errors.BY_STATUS[status], ampc.Error)


def test_errors_name_file_and_node(context, tmp_path):
    with pytest.raises(ampc.FileError, match="No such file") as caught:
        import_module(context, tmp_path / "none.onnx")
    assert caught.value.file == str(tmp_path / "none.onnx") and isinstance(caught.value, OSError)
    with pytest.raises(ampc.RejectedError):
        import_module(context, b"not a model")
    with pytest.raises(ampc.UsageError, match="not int"):
        import_module(context, 3)


def test_options_are_those_of_the_header(context, mlp):
    with pytest.raises(ampc.UsageError, match="unknown option 'optimiser'; did you mean 'optimizer'"):
        Options("ampc_compile_options", optimiser="sgd")
    with pytest.raises(ampc.UsageError, match="clip_norm: 'x' is not allowed"):
        Options("ampc_compile_options", clip_norm="x")
    how = Options("ampc_compile_options", white=["Gemm", "Conv"], groups=["fc1.*,lr_factor=2"], seed=None)
    assert ffi.string(how.pointer.white) == b"Gemm,Conv" and how.pointer.n_groups == 1
    pointer = Options("ampc_compile_options", dtype="bf16").pointer  # keeps what it points to
    gc.collect()
    assert [encode(str(i)) for i in range(100)] and ffi.string(pointer.dtype) == b"bf16"
    with pytest.raises(ampc.UsageError, match="optimizer"):
        training(context, mlp, optimizer="sgdd")


@pytest.mark.parametrize("dtype", sorted(set(library.NAMES) - {"bfloat16"}))
def test_arrays_are_not_copied(context, dtype):
    array = np.arange(6).astype(dtype).reshape(2, 3)
    tensor, kept = borrow(context, "x", array)
    assert kept is array
    assert int(ffi.cast("uintptr_t", lib.ampc_tensor_data(tensor))) == array.__array_interface__["data"][0]
    back = to_numpy(tensor)
    assert back.dtype == array.dtype and np.array_equal(back, array)
    assert back.__array_interface__["data"] == array.__array_interface__["data"]


@pytest.mark.parametrize("array", [
    np.arange(6.0, dtype="f4").reshape(2, 3).T, np.arange(6.0, dtype=">f4"), np.arange(12.0, dtype="f4")[::2],
    np.float32(3), np.array(2.5), np.empty((0, 3), "f4"), [[1.0, 2.0], [3.0, 4.0]], 7, True,
    np.frombuffer(b"x" + np.arange(3.0, dtype="f4").tobytes(), "f4", offset=1)],
    ids="transposed foreign strided scalar rank_0 empty list int bool misaligned".split())
def test_other_layouts_are_copied(context, array):
    tensor, _ = borrow(context, "x", array)
    back = to_numpy(tensor)
    assert back.shape == np.shape(array) and np.array_equal(back, np.asarray(array))


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1 + 2j]), np.array([object()])], ids=["str", "complex", "object"])
def test_other_types_are_refused(context, array):
    with pytest.raises(ampc.UsageError, match="x: arrays of .* are not supported"):
        borrow(context, "x", array)


def test_session(context, mlp, batch):
    session = training(context, mlp)
    with Inputs(context, batch) as (tensors, count):
        context.check(lib.ampc_train_step(session.handle, tensors, count, ffi.NULL))
    assert session.number("state/step") == 1
    weight = session.get("param/fc1.weight")
    session.set("param/fc1.weight", weight * 2)
    assert np.array_equal(session.get("param/fc1.weight"), weight * 2)
    assert {"param/fc1.weight", "buf/bn.mean", "state/lr"} <= set(session.keys())
    with pytest.raises(ampc.UsageError, match="param/none"):
        session.get("param/none")


def test_messages_go_to_the_log(caplog, mlp):
    caplog.set_level("INFO", "ampc")
    training(Context(), mlp)
    assert ("ampc", 20, f"{mlp}: note: 6 initializers trained (74 elements)") in caplog.record_tuples


def test_another_library(monkeypatch, tmp_path):
    monkeypatch.setenv("AMPC_LIBRARY", str(tmp_path / "libampc.so"))
    with pytest.raises(ImportError, match="no ampc.h in"):
        library.find()
    monkeypatch.setenv("AMPC_INCLUDE", str(tmp_path))
    with pytest.raises(ImportError, match="AMPC_INCLUDE"):
        library.find()
