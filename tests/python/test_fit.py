"""Trainings, evaluations and predictions over data sets."""
import os
import signal
import subprocess
import threading

import numpy as np
import pytest

import ampc
from conftest import MLP


@pytest.fixture
def data():
    x = np.random.default_rng(1).standard_normal((200, 4)).astype(np.float32)
    return {"x": x, "label": (x[:, 0] > 0).astype(np.int64)}


def trainer(**options):
    return ampc.Trainer(MLP, **{"loss": "ce", "optimizer": "adamw,lr=0.01", "threads": 1, **options})


class Items:
    def __init__(self, data, bad=None):
        self.data, self.bad = data, bad

    def __len__(self):
        return len(self.data["x"])

    def __getitem__(self, i):
        if i == self.bad:
            raise KeyError("unreadable")
        return self.data["x"][i], self.data["label"][i]


class Loader:
    """Batches in order, as a DataLoader returns them."""

    def __init__(self, data, size=20):
        self.data, self.size = data, size

    def __len__(self):
        return len(self.data["x"]) // self.size

    def __iter__(self):
        for i in range(0, len(self) * self.size, self.size):
            yield [array[i:i + self.size] for array in self.data.values()]


@pytest.mark.parametrize("dtype, options, arguments", [
    ("fp32", {}, ["--amp=O0"]), ("fp16", {}, []), ("bf16", {}, ["--dtype=bf16"]),
    ("fp16", {"accumulate": 2, "clip_norm": 1.0}, ["--accumulate=2", "--clip-norm=1"])], ids=["fp32", "fp16", "bf16", "windows"])
def test_bits_are_those_of_the_programs(build, data, tmp_path, dtype, options, arguments):
    np.savez(tmp_path / "d.npz", **data)
    subprocess.run([build / "ampc", MLP, "--loss=ce", "--optimizer=adamw,lr=0.01", "-q", "-o", tmp_path / "m.ir", *arguments],
                   check=True)
    subprocess.run([build / "ampc-run", "train", tmp_path / "m.ir", f"--data=npz:{tmp_path}/d.npz", "--epochs=2", "--batch=20",
                    "--threads=1", "--device=cpu", "-q", "--checkpoint-dir", tmp_path / "c"], check=True)
    program = max((tmp_path / "c").glob("ckpt-*.safetensors")).read_bytes()
    for form in (data, tuple(data.values()), Items(data), f"npz:{tmp_path}/d.npz"):
        t = trainer(dtype=dtype, **options)
        history = t.fit(form, epochs=2, batch=20)
        assert len(history.steps) == 20 // options.get("accumulate", 1)
        other = trainer(dtype=dtype, **options)
        (tmp_path / "p.safetensors").write_bytes(program)
        other.load(tmp_path / "p.safetensors")
        for key in t.keys():
            assert np.array_equal(t.get(key), other.get(key)), key


def test_validation_and_metrics(data):
    history = trainer().fit(data, epochs=3, batch=20, validation=0.25, metrics="accuracy,auc")
    assert [e.samples for e in history.evaluations] == [50] * 3 and {"accuracy", "auc"} <= history.evaluations[0].keys()
    assert [e.step for e in history.evaluations] == [7, 14, 21]
    t = trainer()
    history = t.fit(Loader(data), epochs=2, validation=Loader(data), metrics=["accuracy"])
    assert history.steps[-1].epoch == 2 and history.evaluations[-1].samples == 200
    assert t.evaluate(data) == pytest.approx(history.evaluations[-1], abs=1e-6)
    found = t.evaluate(Items(data), metrics="confusion")
    assert found.confusion.sum() == 200 and found.confusion.shape == (2, 2)


def test_every_form_validates_every_other(data):
    forms = [data, tuple(data.values()), Items(data), Loader(data), list(Loader(data)), lambda: iter(Loader(data))]
    for form in (data, Loader(data)):
        found = [trainer().fit(form, steps=3, batch=20 if form is data else 0, validation=v).evaluations[-1] for v in forms]
        assert all(e.samples == 200 and e == pytest.approx(found[0]) for e in found)


def test_loaders_are_steps(data):
    t, other = trainer(), trainer()
    losses = t.fit(Loader(data), epochs=2).losses
    assert losses.tolist() == [other.step(x=x, label=y).loss for _ in range(2) for x, y in Loader(data)]
    assert len(t.fit(lambda: iter(Loader(data)), steps=13).steps) == 13
    with pytest.raises(ampc.UsageError, match="generator can be read once"):
        t.fit(iter(Loader(data)), epochs=2)


def test_predictions(data):
    t = trainer()
    scores = t.predict(data)["scores"]
    assert scores.shape == (200, 2) and scores.dtype == np.float32
    assert np.allclose(scores, t.predict(x=data["x"])["scores"], atol=1e-6)
    assert np.array_equal(scores, t.predict(Loader(data))["scores"])


def test_callbacks_end_a_training(data):
    assert len(trainer().fit(data, epochs=9, batch=20, callback=lambda step: step.step == 7).steps) == 7
    assert len(trainer().fit(Loader(data), epochs=9, callback=lambda step: step.step == 7).steps) == 7
    t = trainer()
    seen = []
    t.fit(data, steps=3, batch=20, callback=lambda step: seen.append(t.evaluate(data).loss))
    assert len(seen) == 3


@pytest.mark.parametrize("form", ["arrays", "loader"])
def test_interrupts_end_a_training(data, tmp_path, form):
    t = trainer()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        if form == "arrays":
            t.fit(data, steps=10**8, batch=20, checkpoint_dir=tmp_path / "c")
        else:
            t.fit(Loader(data), epochs=10**8)
    timer.join()
    done = int(t.get("state/step"))
    assert done > 0 and t.step(x=data["x"], label=data["label"]).step == done + 1
    if form == "arrays":
        assert list((tmp_path / "c").glob(f"*{done}.safetensors"))


def test_exceptions_of_the_caller_arrive(data):
    t = trainer()
    for form in (data, Loader(data)):
        with pytest.raises(ZeroDivisionError):
            t.fit(form, epochs=1, batch=20 if form is data else 0, callback=lambda step: 1 / 0)
    for call in (lambda d: t.fit(d, epochs=1, batch=20), t.evaluate, t.predict):
        with pytest.raises(KeyError, match="unreadable"):
            call(Items(data, bad=150))


@pytest.mark.parametrize("form, message", [
    (lambda d: {"x": d["x"], "label": d["label"][:3]}, "x has 200, label has 3"),
    (lambda d: (d["x"], d["label"], d["x"]), "3 arrays, but the inputs are x, label"),
    (lambda d: [], "no batches"), (lambda d: {"x": np.float32(1), "label": d["label"]}, "first dimension"),
    (lambda d: Items({"x": d["x"][:0], "label": d["label"]}), "no samples"),
    (lambda d: Items({"x": list(d["x"][:9]) + [np.zeros(5, "f4")], "label": d["label"]}), "sample 9 is float32.5., but")],
    ids="rows many empty scalar no_samples shape".split())
def test_data_that_do_not_fit(data, form, message):
    with pytest.raises(ampc.UsageError, match=message):
        trainer().fit(form(data), epochs=1, batch=2)


def test_wrong_arguments(data):
    t = trainer()
    for wrong in ({}, {"epochs": 1, "steps": 1}, {"epochs": 1, "validation": 1.5}, {"epochs": 1, "lr_shedule": "cosine"},
                  {"steps": -1}, {"epochs": 1, "batch": 300}):
        with pytest.raises(ampc.Error):
            t.fit(data, **wrong)
    with pytest.raises(ampc.UsageError, match="lr_schedule: not available for an iterable"):
        t.fit(Loader(data), epochs=1, lr_schedule="cosine")


def test_curves(data):
    t = trainer(dtype="fp16")
    history = t.fit(data, epochs=2, batch=20, validation=0.2)
    shown = history._repr_html_()
    assert shown.count("<svg") == 3 and "validation" in shown and "16 steps" in repr(history)
    assert "no steps" in repr(ampc.History()) and "<svg" not in ampc.History()._repr_html_()
