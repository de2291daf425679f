"""The commands of the package: the process becomes the program."""
import fcntl
import os
import signal
import subprocess
import sys

import pytest

import ampc
from ampc import _library, _programs

CALL = "import sys; from ampc import _programs; _programs.{}()"


def run(entry, *arguments, **how):
    return subprocess.run([sys.executable, "-c", CALL.format(entry), *map(str, arguments)], capture_output=True, text=True,
                          **how)


@pytest.mark.parametrize("entry", ["ampc", "ampc_run", "ampc_opt"])
def test_commands_are_the_programs(entry):
    done = run(entry, "--version")
    assert done.returncode == 0 and done.stdout.startswith(entry.replace("_", "-") + " "), done


def test_results_are_those_of_the_program(mlp):
    direct = subprocess.run([_programs.find("ampc"), mlp, "-o", "-", "--weights=reference"], capture_output=True, text=True)
    done = run("ampc", mlp, "-o", "-", "--weights=reference")
    assert done.returncode == direct.returncode == 0 and done.stdout == direct.stdout != ""


def test_status_and_messages(tmp_path):
    done = run("ampc", tmp_path / "none.onnx", "-o", tmp_path / "out.onnx")
    assert done.returncode > 0 and "none.onnx" in done.stderr and "Traceback" not in done.stderr


def test_missing_program(tmp_path):
    (tmp_path / "libampc.so").touch()
    code = "import os, sys; from ampc import _programs; os.environ['AMPC_LIBRARY'] = sys.argv[1]; _programs.ampc()"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "libampc.so"], capture_output=True, text=True)
    assert done.returncode == 1 and "cannot be run: No such file" in done.stderr and "Traceback" not in done.stderr


def test_editable_installation(monkeypatch, tmp_path):
    # What was built is not next to the sources.
    library, headers = tmp_path / "built/lib/libampc.so.0", tmp_path / "built/include"
    for file in (library, *(headers / name for name in _library.HEADERS), tmp_path / "built/bin/ampc"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o755)
    for module in (_library, _programs):
        monkeypatch.setattr(module, "packages", [str(tmp_path / "sources"), str(tmp_path / "built")])
    for name in ("AMPC_LIBRARY", "AMPC_INCLUDE"):
        monkeypatch.delenv(name, raising=False)
    assert _library.find() == (library, headers) and _programs.find("ampc") == tmp_path / "built/bin/ampc"


def test_signals_reach_the_program():
    # The pipe is too small for the page and is not read, so the program waits until the signal ends it.
    child = subprocess.Popen([sys.executable, "-c", CALL.format("ampc"), "--help=man"], stdout=subprocess.PIPE)
    fcntl.fcntl(child.stdout, fcntl.F_SETPIPE_SZ, 4096)
    while os.path.basename(os.readlink(f"/proc/{child.pid}/exe")) != "ampc":
        assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    child.communicate()
    assert child.returncode == -signal.SIGTERM


@pytest.mark.parametrize("onednn", ["", "off"], ids=["onednn", "no_onednn"])
def test_report_for_bugs(onednn):
    done = subprocess.run([sys.executable, "-m", "ampc"], capture_output=True, text=True,
                          env={**os.environ, "AMPC_ONEDNN": onednn})
    rows = dict(line.split(":", 1) for line in done.stdout.splitlines())
    assert done.returncode == 0 and not done.stderr
    assert rows["ampc"].strip() == ampc.__version__ and "libampc.so" in rows["library"]
    assert rows["device cpu"].strip() == "available" and rows["device cuda"].strip()
    assert ("libdnnl.so" in rows["oneDNN"]) == (onednn != "off")
    assert ("switched off" in rows.get("note", "")) == (onednn == "off")
