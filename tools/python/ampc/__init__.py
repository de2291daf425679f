"""ampc: a compiler from ONNX to mixed-precision training, and its runtime.

    import ampc
"""
from ._errors import (DeviceError, Error, FileError, NumericError, OutOfMemoryError, RejectedError, UnsupportedError,
                      UsageError)
from ._curves import History
from ._library import version
from ._model import Explanation, Model, Report, convert
from ._trainer import Evaluation, Input, Step, Trainer

__version__ = version()
__all__ = ["DeviceError", "Error", "Evaluation", "Explanation", "FileError", "History", "Input", "Model",
           "NumericError", "OutOfMemoryError", "RejectedError", "Report", "Step", "Trainer", "UnsupportedError",
           "UsageError",
           "convert", "version"]
