"""Models in mixed precision for other runtimes: ampc.convert."""
from __future__ import annotations

import builtins
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Sequence

from . import _html
from ._errors import FileError, UsageError
from ._library import Context, Options, divide, encode, ffi, import_module, lib, precision, text

Path_ = str | os.PathLike[str]


def convert(model: Any, dtype: str = "fp16", *, lists: Path_ | Sequence[Path_] | None = None,
            consumer: str | None = None, output: Path_ | None = None, **options: Any) -> Model:
    """Converts an ONNX model to mixed precision, for any runtime, like the program `ampc MODEL -o OUTPUT.onnx`.

    Args:
        model: path of an .onnx file, the bytes of one, or an onnx.ModelProto. External data of a model in memory are
            read from the folder of the option `path`.
        dtype: "fp16", "bf16", or "fp32" (only rewritten).
        lists: list files (docs/lists.md); later ones override earlier ones.
        consumer: the runtime that reads the model: "tensorrt", "onnxruntime", "onnxruntime-cpu", "generic" or the path
            of a description (docs/consumers.md). Operators that it computes in fp32 inside need no casts. None: any.
        output: path to write the model to while it is converted. Required above 2 GiB, when the weights are in
            OUTPUT.data.
        **options: members of ampc_compile_options and ampc_import_options, such as white=["Conv"], black=["Softmax"],
            fp32_nodes="head*", change_io_types=True, profile="paddle-3", placement="mincut", dims={"N": 1}.

    Returns:
        The converted model. Inputs and outputs keep their names, and their types unless change_io_types is set.

    Raises:
        RejectedError: the model is malformed. UnsupportedError: it has what ONNX cannot express in this type, or is
        above 2 GiB without `output`. FileError, UsageError, OutOfMemoryError.
    """
    return Model(model, output, lists=lists, consumer=consumer, **precision(dtype) | options)


class Model:
    """A converted model. Made by ampc.convert. It can be pickled, with its bytes and its report.

    Attributes:
        summary: what was converted, such as "12/12 float ops in fp16, 0 fp32, 10 casts inserted (0.2 MB/step)".
    """

    summary: str
    _module: Any = None  # of one that was pickled
    _report = ""

    def __init__(self, model: Any, output: Path_ | None = None, **options: Any):
        reads, compiles = divide(options, "ampc_import_options", "ampc_compile_options")
        self._context = Context()
        self._module = import_module(self._context, model, keep_unknown=1, **reads)
        self._options = Options("ampc_compile_options", **compiles)
        self._name = os.path.basename(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else "model"
        self._bytes = b""
        self._output = None if output is None else os.path.abspath(output)
        if output is None:
            self._bytes = self._convert_memory()
        else:
            self._convert(output)
        self.summary = text(lib.ampc_module_summary(self._module))

    def _convert(self, path: Path_) -> None:
        with self._context as c:
            c.check(lib.ampc_module_convert(self._module, self._options.pointer, encode(path)))

    def _convert_memory(self) -> builtins.bytes:
        data, size = ffi.new("void **"), ffi.new("size_t *")
        with self._context as c:
            c.check(lib.ampc_module_convert_memory(self._module, self._options.pointer, data, size))
        try:
            return bytes(ffi.buffer(data[0], size[0]))
        finally:
            lib.ampc_free(data[0])

    def _text(self, function: Callable[..., int], *arguments: Any) -> str:
        made = ffi.new("char **")
        with self._context as c:
            c.check(function(self._module, self._options.pointer, *arguments, made))
        try:
            return text(made[0])
        finally:
            lib.ampc_free(made[0])

    @property
    def bytes(self) -> bytes:
        """The model as an ONNX file. Of a model that was written to `output`, without its external data."""
        return self._bytes if self._output is None else Path(self._output).read_bytes()

    def __getstate__(self) -> dict[str, Any]:
        if self._output is not None:
            raise TypeError(f"cannot pickle or copy a Model that was written to a file: use the file {self._output}")
        return {"summary": self.summary, "_name": self._name, "_bytes": self._bytes, "_output": None,
                "_report": self._report or self._text(lib.ampc_module_report)}

    def SerializeToString(self) -> builtins.bytes:  # so that it is a model for convert, InferenceSession and Trainer
        return self.bytes

    def save(self, path: Path_) -> Path:
        """Writes the model to an .onnx file, which appears when it is complete. Returns its path.

        Raises:
            FileError: the file cannot be written.
        """
        if self._output is not None and os.path.abspath(path) != self._output:
            self._convert(path)
        elif self._output is None:
            write(path, self._bytes)
        return Path(path)

    def explain(self, node: str | None = None) -> Explanation:
        """Why each node of the original model, or one of them, has its precision: colour, type, rule and cause.

        Raises:
            UsageError: no node has this name, or the model was pickled.
        """
        if self._module is None:
            raise UsageError("explain: a pickled model has only its bytes and its report; convert the original again")
        what = encode(node or "all")
        return Explanation(self._text(lib.ampc_module_explain, what, 0).rstrip("\n"),
                           lambda: self._text(lib.ampc_module_explain, what, 1))

    def report(self) -> Report:
        """The calls of each operator by precision, and the casts."""
        return Report(self.summary, **json.loads(self._report or self._text(lib.ampc_module_report)))

    def __repr__(self) -> str:
        return f"<ampc.Model {self._name}: {self.summary}>"

    def _repr_html_(self) -> str:
        return _html.section(self._name, self.report()._repr_html_())


class Explanation(str):
    """The text that `ampc MODEL --explain=..` prints.

    Attributes:
        nodes: the same as data: a dict for each node, with "name", "op", "colour", "dtype", "rule", "cause".
    """

    _json: Callable[[], str]

    def __new__(cls, printed: str, read_json: Callable[[], str]) -> Explanation:
        self = super().__new__(cls, printed)
        self._json = read_json
        return self

    @property
    def nodes(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self._json().splitlines()]

    __repr__ = str.__str__

    def _repr_html_(self) -> str:
        head = ("name", "op", "colour", "dtype", "rule", "cause")
        return _html.table(head, ([node[h] for h in head] for node in self.nodes))


class Report:
    """Statistics of a converted model.

    Attributes:
        summary: one line.
        casts: number of casts.
        cast_bytes: bytes that they write in a run; symbolic dimensions count as 1.
        ops: {operator: {"fp16": calls, "bf16": calls, "fp32": calls, "other": calls}}.
    """

    TYPES = ("fp16", "bf16", "fp32", "other")

    def __init__(self, summary: str, casts: int, cast_bytes: int, ops: dict[str, dict[str, int]]):
        self.summary, self.casts, self.cast_bytes, self.ops = summary, casts, cast_bytes, ops

    def total(self, dtype: str) -> int:
        """The number of calls in this type, one of "fp16", "bf16", "fp32" and "other"."""
        return sum(calls[dtype] for calls in self.ops.values())

    def _rows(self) -> list[list[Any]]:
        return [[op, *(calls[t] for t in self.TYPES)] for op, calls in self.ops.items()]

    def __str__(self) -> str:
        rows = [["operator", *self.TYPES], *self._rows()]
        width = max(len(row[0]) for row in rows)
        lines = [f"{row[0]:{width}}" + "".join(f"{value:>7}" for value in row[1:]) for row in rows]
        return "\n".join([self.summary, "", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html.section(self.summary, _html.bar({t: self.total(t) for t in self.TYPES}),
                             _html.table(("operator", *self.TYPES), self._rows()))


def write(path: Path_, data: bytes) -> None:
    """Replaces a file by one with these bytes, at once."""
    try:
        path = os.path.realpath(path)
        handle, scratch = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=os.path.dirname(path))
        try:
            with os.fdopen(handle, "wb") as file:
                mask = os.umask(0)
                os.umask(mask)
                os.fchmod(file.fileno(), 0o666 & ~mask)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, path)
        except BaseException:
            os.unlink(scratch)
            raise
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}", file=os.fspath(path)) from error
