"""The programs and the notebook of tools/python/examples run as they are."""
import ast
import json
import subprocess
import sys

import pytest

from conftest import MLP, ROOT

EXAMPLES = ROOT / "tools" / "python" / "examples"
MNIST = ROOT / "tests" / "models" / "mnist.onnx"


def run(name, *arguments, cwd):
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_are_here():
    assert {p.name for p in EXAMPLES.iterdir()} == {
        "accumulate.py", "convert.py", "fit.py", "from_torch.py", "infer.py", "quickstart.ipynb", "train.py"}


@pytest.mark.parametrize("name, arguments, lines", [
    ("convert.py", [MNIST, "out.onnx", "bf16"], ["12/12 float ops in bf16", "written: out.onnx"]),
    ("infer.py", [MNIST], ["logits: tensor(float) [2, 10]"]),
    ("train.py", [MNIST, "out.onnx"], ["accuracy 1.000"]),
    ("fit.py", [MLP, "."], ["256 steps", "best: accuracy 0.9"]),
    ("accumulate.py", [MLP], ["step 30: loss 0.1"])])
def test_programs(tmp_path, name, arguments, lines):
    printed = run(name, *arguments, cwd=tmp_path)
    assert all(line in printed for line in lines), printed
    made = {p.name for p in tmp_path.iterdir()}
    assert "out.onnx" in arguments and "out.onnx" in made or name == "fit.py" and "curves.html" in made or not made


def test_from_torch(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    assert "accuracy of the module: 0.9" in run("from_torch.py", cwd=tmp_path)


def test_notebook(tmp_path, monkeypatch):
    """Each cell runs, and those whose last line is an expression have an output in the file and as HTML here."""
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text())["cells"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist.onnx").write_bytes(MNIST.read_bytes())
    names, shown = {}, 0
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if value is not None:
            shown += 1
            assert cell["outputs"]
            if hasattr(value, "_repr_html_"):
                assert "text/html" in cell["outputs"][-1]["data"] and value._repr_html_()
    assert shown >= 4
