"""The programs of the package as commands: this process becomes the program, so exit status and signals are its own."""
import os
import sys
from pathlib import Path
from typing import NoReturn

from . import __path__ as packages


def find(name: str) -> Path:
    """A program: of the package, or of the build that AMPC_LIBRARY names."""
    library = os.environ.get("AMPC_LIBRARY")
    folders = [Path(p, "bin") for p in packages]
    if library:
        folder = Path(library).resolve().parent
        folders = [folder, folder.parent / "bin"]
    return next((folder / name for folder in folders if os.access(folder / name, os.X_OK)), folders[0] / name)


def run(name: str) -> NoReturn:
    program = find(name)
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program} cannot be run: {error.strerror}")


def ampc() -> NoReturn:
    run("ampc")


def ampc_run() -> NoReturn:
    run("ampc-run")


def ampc_opt() -> NoReturn:
    run("ampc-opt")
