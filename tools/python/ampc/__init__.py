"""ampc: a compiler from ONNX to mixed-precision training, and its runtime.

    import ampc
"""
from ._errors import (DeviceError, Error, FileError, NumericError, OutOfMemoryError, RejectedError, UnsupportedError,
                      UsageError)
from ._curves import History
from ._inference import (ExecutionMode, ExecutionOrder, GraphOptimizationLevel, InferenceSession, ModelMetadata,
                         NodeArg, RunOptions, SessionOptions, get_available_providers, get_device)
from ._library import version
from ._model import Explanation, Model, Report, convert
from ._torch import TorchTrainer, from_torch
from ._trainer import Evaluation, Input, Step, Trainer

__version__ = version()
__all__ = ["DeviceError", "Error", "Evaluation", "ExecutionMode", "ExecutionOrder", "Explanation", "FileError",
           "GraphOptimizationLevel", "History", "InferenceSession", "Input", "Model", "ModelMetadata", "NodeArg",
           "NumericError", "OutOfMemoryError", "RejectedError", "Report", "RunOptions", "SessionOptions", "Step",
           "TorchTrainer", "Trainer", "UnsupportedError", "UsageError", "convert", "from_torch",
           "get_available_providers", "get_device", "version"]
