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
