"""Steps, windows of micro-batches, and the state of a trainer."""
import subprocess
import threading
import time

import numpy as np
import pytest

import ampc
from conftest import MLP, ROOT


def trainer(**options):
    return ampc.Trainer(MLP, **{"loss": "ce", "optimizer": "adamw,lr=0.01", "threads": 1, **options})


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_steps_train(batch, dtype):
    t = trainer(dtype=dtype)
    steps = [t.step(**batch) for _ in range(60)]
    assert steps[0].step == 1 and steps[-1].loss < 0.5 * steps[0].loss and not steps[-1].skipped
    assert steps[0].scale == (65536 if dtype == "fp16" else 1)
    assert t.eval_step(batch) < 0.6
    scores = t.predict(x=batch["x"])["scores"]
    assert (scores.argmax(1) == batch["label"]).mean() > 0.8


def test_inputs_and_outputs():
    t = trainer()
    assert t.inputs == [("x", ("N", 4), "float32"), ("label", ("N",), "int64")] and t.outputs == ["scores"]


def test_a_skipped_step_changes_only_the_scale(batch):
    t = trainer(dtype="fp16")
    before = t.state_dict()
    t.set("state/loss_scale", 1e30)
    step = t.step(batch)
    assert step.skipped and step.norm != step.norm and all(np.array_equal(v, before[n]) for n, v in t.state_dict().items())


def test_windows_equal_whole_batches(batch):
    whole, parts = trainer(optimizer="sgd,lr=0.1", mode="eval"), trainer(optimizer="sgd,lr=0.1", mode="eval", accumulate=2)
    steps_norm = whole.step(**batch).norm
    for half in (slice(0, 16), slice(16, 32)):
        parts.accumulate({name: array[half] for name, array in batch.items()})
    norm, infinite = parts.unscale()
    gradients = parts.gradients()
    assert steps_norm == pytest.approx(norm, rel=1e-5) and norm == pytest.approx(np.sqrt(sum((g.astype("f8") ** 2).sum() for g in gradients.values()))) and not infinite
    assert parts.apply().step == 1
    for name, value in whole.state_dict().items():
        assert np.allclose(value, parts.state_dict()[name], atol=1e-6), name


def test_gradients_can_be_changed(batch):
    t = trainer(optimizer="sgd,lr=0.1", accumulate=1, mode="eval")
    before = t.state_dict()
    t.accumulate(**batch)
    t.unscale()
    t.set_gradients({name: np.ones_like(g) for name, g in t.gradients().items()})
    t.apply()
    for name in t.gradients():
        assert np.allclose(t.state_dict()[name], before[name] - 0.1, atol=1e-6)


def test_state(batch, tmp_path):
    t, other = trainer(), trainer()
    for _ in range(3):
        t.step(**batch)
    t.save(tmp_path / "c.safetensors")
    other.load(tmp_path / "c.safetensors")
    assert other.step(**batch) == t.step(**batch)
    fresh = trainer()
    fresh.load(tmp_path / "c.safetensors", weights_only=True)
    assert fresh.get("state/step") == 0
    fresh.load_state_dict(t.state_dict())
    assert fresh.eval_step(batch) == t.eval_step(batch)
    t.lr = 0.5
    assert t.lr == 0.5 and t.loss_scale == 1
    t.export(tmp_path / "t.onnx")
    assert ampc.Trainer(tmp_path / "t.onnx", loss="ce").eval_step(batch) == pytest.approx(t.eval_step(batch))


def test_loading_is_all_or_nothing(batch):
    t = trainer()
    before = t.state_dict()
    with pytest.raises(ampc.UsageError, match="missing: bn.bias.*; not in the model: more"):
        t.load_state_dict({"more": np.zeros(3), **{n: v for n, v in before.items() if n != "bn.bias"}})
    with pytest.raises(ampc.UsageError, match="fc2.bias"):
        t.load_state_dict({**{n: v + 1 for n, v in before.items()}, "fc2.bias": np.zeros(3, "f4")})
    assert all(np.array_equal(v, before[n]) for n, v in t.state_dict().items())


@pytest.mark.parametrize("change, error, message", [
    ({"x": None}, ampc.UsageError, "x: arrays of object"),
    ({"y": np.zeros(3)}, ampc.RejectedError, "no input 'y'"),
    ({"x": np.zeros((32, 5), "f4")}, ampc.RejectedError, "'x'"),
    ({"x": np.zeros((31, 4), "f4")}, ampc.RejectedError, "31|32")], ids=["none", "unknown", "shape", "rows"])
def test_batches_that_do_not_fit(batch, change, error, message):
    t = trainer()
    before = t.step(**batch).step
    with pytest.raises(error, match=message):
        t.step({**batch, **change})
    with pytest.raises(ampc.RejectedError, match="'label' .* is missing"):
        t.step(x=batch["x"])
    assert t.step(**batch).step == before + 1


@pytest.mark.parametrize("options, error, message", [
    ({"loss": "cee"}, ampc.UsageError, "cee"),
    ({"dtype": "fp8"}, ampc.UsageError, "fp8"),
    ({"optimizers": "sgd"}, ampc.UsageError, "did you mean 'optimizer'"),
    ({"device": "tpu"}, ampc.DeviceError, "tpu"),
    ({"loss": None}, ampc.Error, "loss")], ids=str)
def test_wrong_options(batch, options, error, message):
    with pytest.raises(error, match=message):
        trainer(**options).step(**batch)


def test_compiled_modules(build, tmp_path, batch):
    subprocess.run([build / "ampc", MLP, "--loss=ce", "--optimizer=adamw,lr=0.01", "-q", "-o", tmp_path / "m.ir"], check=True)
    compiled, here = ampc.Trainer(tmp_path / "m.ir", threads=1), trainer(dtype="fp16")
    assert [compiled.step(**batch) for _ in range(3)] == [here.step(**batch) for _ in range(3)]
    with pytest.raises(ampc.UsageError, match="compiled"):
        ampc.Trainer(tmp_path / "m.ir", loss="ce")


def test_other_threads_run_during_a_step():
    """A training of arrays is one call of the library: Python's lock is free in it, but for the function after each step."""
    t = ampc.Trainer(ROOT / "tests" / "models" / "mnist.onnx", loss="ce", threads=1, mode="train")
    x = np.zeros((64, 1, 28, 28), "f4")
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.0002)

    t.step({t.inputs[0].name: x, "label": np.zeros(64, "i8")})
    thread = threading.Thread(target=count)
    thread.start()
    try:
        for _ in range(5):
            before = counted[0]
            t.step({t.inputs[0].name: np.concatenate([x] * 8), "label": np.zeros(512, "i8")})
            assert counted[0] - before >= 3
    finally:
        stop.set()
        thread.join()


def test_threads_take_turns(batch):
    t = trainer()
    threads = [threading.Thread(target=lambda: [t.step(**batch) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert t.step(**batch).step == 81
