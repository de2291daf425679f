"""ampc.from_torch: what needs no torch, and a network with it."""
import builtins

import numpy as np
import pytest

import ampc
from ampc._torch import assign


def test_names_of_a_state_dict():
    states = {"embed.weight": "param/embed.weight", "bn.running_mean": "buf/bn.running_mean"}
    names = ["head.weight", "embed.weight", "bn.running_mean", "bn.num_batches_tracked"]
    found = assign(names, {"embed.weight": "head.weight"}, states, ["bn.num_batches_tracked"])
    assert list(found) == names
    assert found["head.weight"] == found["embed.weight"] == "param/embed.weight"
    assert found["bn.num_batches_tracked"] is None
    with pytest.raises(ampc.UnsupportedError, match="fc.bias, fc.weight$"):
        assign([*names, "fc.weight", "fc.bias"], {}, {**states, "head.weight": "param/h"}, ["bn.num_batches_tracked"])


def test_without_torch(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "torch":
            raise ImportError("No module named 'torch'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="ampc.from_torch needs the packages torch and onnxscript"):
        ampc.from_torch(None, None)


@pytest.fixture
def network():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))


def test_a_network(network):
    import torch
    network[0].bias.data.zero_()
    network[5].weight.requires_grad = False
    before = {n: v.clone() for n, v in network.state_dict().items()}
    x, label = torch.randn(6, 3, 9, 9), torch.arange(6) % 4
    trainer = ampc.from_torch(network, x[:2], loss="ce", optimizer="momentum,lr=0.1,momentum=0.9", threads=1)
    trainer.copy_to(network)
    assert all(torch.equal(v, before[n]) for n, v in network.state_dict().items())
    name = trainer.inputs[0].name
    found = [trainer.step({name: x, "label": label}).loss for _ in range(20)]
    optimizer = torch.optim.SGD((p for p in network.parameters() if p.requires_grad), 0.1, momentum=0.9)
    expected = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(network(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    state = trainer.state_dict()
    assert list(state) == list(before)
    for key, value in network.state_dict().items():
        np.testing.assert_allclose(state[key], value, rtol=1e-3, atol=1e-5)
    trainer.copy_to(network).eval()
    np.testing.assert_allclose(next(iter(trainer.predict({name: x}).values())), network(x).detach(), atol=1e-5)
    with pytest.raises(ampc.UsageError, match="0.weight .*not the one|not the one .*0.weight"):
        trainer.copy_to(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)))


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_modes_of_parts(network, exporter):
    import torch
    network.add_module("norm", torch.nn.BatchNorm1d(4))
    network.norm.eval()
    x, label = torch.randn(6, 3, 9, 9), torch.arange(6) % 4
    trainer = ampc.from_torch(network, x[:1], loss="ce", optimizer="sgd,lr=0.1", exporter=exporter, threads=1)
    assert trainer.exporter == exporter and trainer.outputs == ["output"]
    name = trainer.inputs[0].name
    found = [trainer.step({name: x[:n], "label": label[:n]}).loss for n in (6, 2, 5)]
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for n, loss in zip((6, 2, 5), found):
        expected = torch.nn.functional.cross_entropy(network(x[:n]), label[:n])
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert loss == pytest.approx(expected.item(), rel=1e-4)
    for key, value in network.state_dict().items():
        np.testing.assert_allclose(trainer.state_dict()[key], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_low_type_in_a_folder(network, dtype, monkeypatch):
    import torch
    monkeypatch.setattr("ampc._torch.LARGE", 1)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).to(getattr(torch, dtype))
    before = {n: v.clone() for n, v in net.state_dict().items()}
    x = torch.randn(5, 4).to(getattr(torch, dtype))
    trainer = ampc.from_torch(net, x, loss="ce", optimizer="sgd,lr=0.5")
    trainer.copy_to(net)
    assert all(torch.equal(v, before[n]) for n, v in net.state_dict().items())
    trainer.step({trainer.inputs[0].name: x, "label": torch.arange(5) % 4})
    trainer.copy_to(net)
    assert not torch.equal(net[0].weight, before["0.weight"]) and net[0].weight.dtype == x.dtype


def test_nested_arguments_and_refusals(network):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.unused = torch.nn.Linear(4, 3), torch.nn.Linear(2, 2)
            self.register_buffer("calls", torch.zeros(1))
            self.counts = False

        def forward(self, x, pair, scale=1.0):
            if self.counts:
                self.calls += 1
            return {"scores": self.fc(x + pair[0] * scale), "more": (x + pair[1], self.calls * x)}

    net, x = Net(), torch.randn(4, 4)
    for exporter in ("dynamo", "torchscript"):
        trainer = ampc.from_torch(net, {"x": x, "pair": (x, x)}, loss="ce:scores", exporter=exporter)
        assert trainer.outputs == ["scores", "more.0", "more.1"] and net.forward.__func__ is Net.forward
        given = dict(zip((i.name for i in trainer.inputs), (x, x, 2 * x)))
        np.testing.assert_allclose(trainer.predict(**given)["more.0"], 3 * x, rtol=1e-5)
        trainer.copy_to(net)
    net.counts = True
    with pytest.raises(ampc.UnsupportedError, match="changes buffers.*: calls"):
        ampc.from_torch(net, {"x": x, "pair": (x, x)}, loss="ce:scores", exporter="dynamo")
    with pytest.raises(ampc.UsageError, match="'dynamo' or 'torchscript'"):
        ampc.from_torch(net, x, exporter="jit")
