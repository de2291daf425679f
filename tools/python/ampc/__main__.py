"""What a bug report needs: `python -m ampc` prints the versions, the library and what it computes with."""
from __future__ import annotations

import logging
import os
import platform
import re

import cffi
import numpy as np

from . import _library
from ._library import refusal, version

LOADED = {"library": r"libampc\.so", "oneDNN": r"libdnnl\.so", "OpenMP": r"libgomp[^/]*\.so"}


def loaded(pattern: str) -> list[str]:
    """The shared libraries of this process with such a name."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
    return sorted(path for path in paths if re.match(pattern, os.path.basename(path)))


def report() -> list[tuple[str, str]]:
    notes: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: notes.append(record.getMessage().removeprefix("note: "))  # type: ignore[method-assign]
    _library.log.addHandler(handler)
    _library.log.setLevel(logging.INFO)
    _library.log.propagate = False
    devices = [(f"device {name}", refusal(name) or "available") for name in ("cpu", "cuda")]
    found = [(what, ", ".join(loaded(pattern)) or "none") for what, pattern in LOADED.items()]
    return [("ampc", version()), *found[:1], ("headers", str(_library.find()[1])), *found[1:], *devices,
            ("python", platform.python_version()), ("numpy", np.__version__), ("cffi", cffi.__version__),
            ("system", f"{platform.platform()}, {os.cpu_count()} processors"), *(("note", note) for note in notes)]


if __name__ == "__main__":
    for what, value in report():
        print(f"{what + ':':14}{value}")
