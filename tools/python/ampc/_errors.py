"""Exceptions, one class per status of ampc.h."""
from __future__ import annotations


class Error(RuntimeError):
    """A call of the library failed.

    Attributes:
        status: name of the status, such as "AMPC_REJECTED".
        message: the message of the library. It names what failed, where and why.
        file: path of the file at fault, or the name given to a model in memory; "" if none is.
        node: name of the node at fault, as in the model; "" if none is.
        op: operator type of that node.
        place: (kind, name) of what is at fault, such as ("input", "x"); ("", "") if nothing that has a name is.
        line: line of a text file, from 1; 0 if none is at fault.
    """

    status = ""

    def __init__(self, message: str, *, file: str = "", kind: str = "", name: str = "", op: str = "", line: int = 0):
        super().__init__(message)
        self.message = message
        self.file = file
        self.node = name if kind == "node" else ""
        self.op = op
        self.place = (kind, name)
        self.line = line


class RejectedError(Error, ValueError):
    """The input (model, IR, list, data) was rejected."""

    status = "AMPC_REJECTED"


class UsageError(Error, ValueError):
    """An argument has a value that is not allowed, or the call is not allowed now."""

    status = "AMPC_USAGE"


class UnsupportedError(Error, NotImplementedError):
    """An operator, gradient or feature is not supported."""

    status = "AMPC_UNSUPPORTED"


class FileError(Error, OSError):
    """Reading or writing failed."""

    status = "AMPC_IO"

    def __str__(self) -> str:  # OSError would print errno, which is unknown here
        return self.message


class NumericError(Error, ArithmeticError):
    """A loss is not finite, or training cannot continue at the smallest loss scale."""

    status = "AMPC_NUMERIC"


class DeviceError(Error):
    """There is no usable device or driver."""

    status = "AMPC_DEVICE"


class OutOfMemoryError(Error, MemoryError):
    """Out of memory."""

    status = "AMPC_NO_MEMORY"


BY_STATUS = {c.status: c for c in (RejectedError, UsageError, UnsupportedError, FileError, NumericError, DeviceError,
                                   OutOfMemoryError)}
