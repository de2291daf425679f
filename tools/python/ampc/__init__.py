"""ampc: a compiler from ONNX to mixed-precision training, and its runtime.

    import ampc
"""
from ._errors import (DeviceError, Error, FileError, NumericError, OutOfMemoryError, RejectedError, UnsupportedError,
                      UsageError)
from ._library import version

__version__ = version()
__all__ = ["DeviceError", "Error", "FileError", "NumericError", "OutOfMemoryError", "RejectedError", "UnsupportedError",
           "UsageError", "version"]
