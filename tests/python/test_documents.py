"""The Python of the documents runs: blocks of a page in their order, in one namespace, in a folder with model.onnx."""
import re
import shutil

import numpy as np
import pytest

from conftest import MLP, ROOT


def blocks(page):
    """(line, text) of each block of Python."""
    whole = (ROOT / page).read_text("utf-8")
    return [(whole[:m.start(1)].count("\n"), m.group(1)) for m in re.finditer(r"^```python\n(.*?)^```", whole, re.M | re.S)]


def needs_others(source):
    return re.search(r"^ *(import|from) (torch|onnxruntime|paddle)\b|\btorch\.", source, re.M)


def run(page, wanted, folder, monkeypatch, **space):
    """Runs the wanted blocks and compiles the others. Returns the number of those that have run."""
    monkeypatch.chdir(folder)
    shutil.copy(MLP, "model.onnx")
    ran = 0
    for line, source in blocks(page):
        code = compile("\n" * line + source, page, "exec")
        if wanted(source):
            exec(code, space)
            ran += 1
    return ran


def test_guide(tmp_path, monkeypatch, capsys):
    assert run("docs/python.md", lambda source: not needs_others(source), tmp_path, monkeypatch) == 7
    assert "AMPC_USAGE" in capsys.readouterr().out


def test_guide_with_torch(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    assert run("docs/python.md", lambda source: True, tmp_path, monkeypatch) == 8


@pytest.mark.parametrize("page", ["README.md", "docs/migration.md"])
def test_pages(page, tmp_path, monkeypatch, batch):
    """Those that begin with `import ampc`, after arrays if need be."""
    assert run(page, lambda source: "import ampc\n" in source, tmp_path, monkeypatch,
               images=np.tile(batch["x"], (2, 1)), labels=np.tile(batch["label"], 2)) == 1
    assert (tmp_path / "trained.fp16.onnx").exists()
