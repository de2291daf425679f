"""The programs of the package as commands: this process becomes the program, so exit status and signals are its own."""
import os
import sys
from pathlib import Path
from typing import NoReturn


def find(name: str) -> Path:
    """A program: of the package, or of the build that AMPC_LIBRARY names."""
    library = os.environ.get("AMPC_LIBRARY")
    folder = Path(library).resolve().parent if library else Path(__file__).resolve().parent / "bin"
    return next((p for p in (folder / name, folder.parent / "bin" / name) if os.access(p, os.X_OK)), folder / name)


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
