"""Paths and small inputs of the tests."""
import os
from pathlib import Path

import numpy as np
import pytest

from ampc import _programs

ROOT = Path(__file__).resolve().parents[2]
MLP = ROOT / "tests" / "models" / "mlp.onnx"  # x: float[N,4] -> scores for two classes


@pytest.fixture
def mlp() -> Path:
    return MLP


@pytest.fixture
def build() -> Path:
    """The folder of the programs."""
    return Path(os.environ.get("AMPC_BUILD") or _programs.find("ampc").parent)


@pytest.fixture
def batch() -> dict:
    """32 samples for MLP: the sign of the first coordinate decides the class."""
    x = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
    return {"x": x, "label": (x[:, 0] > 0).astype(np.int64)}
