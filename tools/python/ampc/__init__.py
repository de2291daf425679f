"""ampc: a compiler from ONNX to mixed-precision training, and its runtime.

    import ampc
"""
from ._errors import (DeviceError, Error, FileError, NumericError, OutOfMemoryError, RejectedError, UnsupportedError,
                      UsageError)
from ._library import version
from ._model import Explanation, Model, Report, convert

__version__ = version()
__all__ = ["DeviceError", "Error", "Explanation", "FileError", "Model", "NumericError", "OutOfMemoryError",
           "RejectedError", "Report", "UnsupportedError", "UsageError", "convert", "version"]
