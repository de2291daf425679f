"""Several processes: fork, spawn, and what can be pickled."""
import copy
import multiprocessing
import pickle

import numpy as np
import pytest

import ampc


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_process_has_one_thread(mlp, batch):
    trainer = ampc.Trainer(mlp, loss="ce", threads=2)
    loss = trainer.step(**batch).loss
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child():
        with pytest.raises(ampc.DeviceError, match="forked by a thread"):
            trainer.step(**batch)
        theirs.send(ampc.Trainer(mlp, loss="ce", threads=2).step(**batch).loss)

    process = context.Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0 and ours.recv() == loss


def first_output(model, x):
    return ampc.InferenceSession(model).run(None, {"x": x})[0]


def test_models_go_to_other_processes(mlp, batch):
    model = ampc.convert(mlp, dtype="bf16")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        output = pool.apply(first_output, (model, batch["x"]))
    assert np.array_equal(output, first_output(model, batch["x"]))


def test_pickled_model(mlp, tmp_path):
    model = ampc.convert(mlp)
    other = pickle.loads(pickle.dumps(model))
    again = copy.deepcopy(other)
    assert again.bytes == model.bytes and str(again.report()) == str(model.report()) and repr(again) == repr(model)
    assert again.save(tmp_path / "a.onnx").read_bytes() == model.bytes
    with pytest.raises(ampc.UsageError, match="pickled"):
        other.explain()
    with pytest.raises(TypeError, match="use the file .*b.onnx"):
        pickle.dumps(ampc.convert(mlp, output=tmp_path / "b.onnx"))


@pytest.mark.parametrize("make", [ampc.InferenceSession, ampc.Trainer])
def test_what_is_not_pickled(mlp, make):
    made = make(mlp) if make is ampc.InferenceSession else make(mlp, loss="ce")
    for function in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match=f"cannot pickle or copy a {make.__name__}: "):
            function(made)
