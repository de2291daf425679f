"""Inference with the names of onnxruntime, so that a program changes one import:

    import ampc as onnxruntime
    session = onnxruntime.InferenceSession("model.onnx")
    scores, = session.run(None, {"x": x})
"""
from __future__ import annotations

import enum
import functools
import mmap
import os
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence, TypeVar

import numpy as np

from ._errors import DeviceError, RejectedError, UnsupportedError, UsageError
from ._library import (DTYPES, Context, Inputs, NotPickled, Session, compiled_module, described, divide, encode, ffi,
                       is_compiled, lib, log, precision, refusal, text, to_numpy)

# ONNX's names of types that are not numpy's.
_ONNX_TYPES = {"float32": "float", "float64": "double"}
_NO_VERSION = 2**63 - 1  # as onnxruntime says
T = TypeVar("T")
_DEVICES = {"CUDAExecutionProvider": "cuda", "CPUExecutionProvider": "cpu"}


class GraphOptimizationLevel(enum.Enum):
    """Accepted for programs that set it; graphs are always optimized in the same way."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.Enum):
    """Accepted for programs that set it; operators run one after another."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.Enum):
    """Accepted for programs that set it."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Settings:
    """Named values with defaults, others than which there are none, and entries that are kept and not read."""

    _defaults: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.__dict__.update(self._defaults, _entries={})

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
        self.__dict__[name] = value


class SessionOptions(_Settings):
    """Options with the names of onnxruntime. What has no meaning here (memory arenas, logging, optimization levels) is
    accepted and changes nothing; what cannot be done is refused when a session is made.

    Attributes:
        intra_op_num_threads: threads of a run; 0: all cores.
        use_deterministic_compute: the same bits on any number of cores.
        dims: sizes of symbolic dimensions by name.
    """

    _defaults = {
        "intra_op_num_threads": 0, "inter_op_num_threads": 0, "use_deterministic_compute": False,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL, "execution_order": ExecutionOrder.DEFAULT,
        "enable_profiling": False, "profile_file_prefix": "onnxruntime_profile_", "optimized_model_filepath": "",
        "enable_cpu_mem_arena": True, "enable_mem_pattern": True, "enable_mem_reuse": True,
        "use_per_session_threads": True, "log_severity_level": -1, "log_verbosity_level": 0, "logid": "", "dims": {}}

    def __init__(self) -> None:
        super().__init__()
        self.dims: dict[str, int] = {}

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fixes the size of a symbolic dimension."""
        self.dims[name] = size

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Accepted; such entries are for onnxruntime."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        return str(self._entries[key])

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: such a library is for onnxruntime alone."""
        raise UnsupportedError("register_custom_ops_library: use a plug-in (docs/custom.md)")

    def _check(self) -> None:
        if self.enable_profiling:
            raise UnsupportedError("enable_profiling is not available; use `ampc-run bench --trace`")
        if self.optimized_model_filepath:
            raise UnsupportedError("optimized_model_filepath is not available; a compiled model is not an ONNX file")


class RunOptions(_Settings):
    """Accepted for programs that pass it to run; it changes nothing."""

    _defaults = {"log_severity_level": -1, "log_verbosity_level": 0, "logid": "", "terminate": False,
                 "only_execute_path_to_fetches": False}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Accepted; such entries are for onnxruntime."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        return str(self._entries[key])


class NodeArg:
    """An input or output.

    Attributes:
        name: its name. type: such as "tensor(float)".
        shape: a list with the sizes of its dimensions, and the names of those without a fixed size; None: no name.
    """

    def __init__(self, info: Any, declared: Mapping[str, Sequence[str]] = {}):
        dtype = DTYPES[info.dtype]
        self.name = text(info.name)
        self.type = f"tensor({_ONNX_TYPES.get(dtype, dtype)})"
        inferred = [text(info.dim_names[k]) if info.dims[k] < 0 else info.dims[k] for k in range(info.rank)]
        self.shape: list[int | str | None] = list(inferred)
        if declared:  # names are those of the file; inferred ones are shown if the file has them elsewhere
            own, known = declared.get(self.name, ()), {name for names in declared.values() for name in names}
            self.shape = [size if isinstance(size, int) else own[k] if k < len(own) and own[k] else
                          size if size in known else None for k, size in enumerate(inferred)]

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


class ModelMetadata:
    """What a model's file says of itself.

    Attributes: producer_name, graph_name, domain, description, graph_description: str. version: int.
        custom_metadata_map: dict of str.
    """

    def __init__(self, data: Any):
        def first(*path: int) -> str:
            return next((_string(data, span) for span in _find(data, *path)), "")

        # Field numbers of ModelProto, GraphProto and StringStringEntryProto in onnx.proto.
        self.producer_name, self.domain, self.description = first(2), first(4), first(6)
        self.version: int = next(_find(data, 5), _NO_VERSION)
        self.graph_name, self.graph_description = first(7, 2), first(7, 10)
        entries = [dict(_wire(data, *span)) for span in _find(data, 14)]
        self.custom_metadata_map = {_string(data, e.get(1, (0, 0))): _string(data, e.get(2, (0, 0))) for e in entries}


def _declared(data: Any) -> dict[str, list[str]]:
    """The dimensions of inputs and outputs by their names in the file; "" for those without a name."""
    found = {}
    for field in (11, 12):  # of GraphProto; below it ValueInfoProto, TypeProto, TensorShapeProto and its Dimension
        for span in _find(data, 7, field):
            name = "".join(_string(data, s) for s in _find(data, 1, within=span))
            found[name] = ["".join(_string(data, s) for s in _find(data, 2, within=dim))
                           for dim in _find(data, 2, 1, 2, 1, within=span)]
    return found


def _find(data: Any, *path: int, within: tuple[int, int] | None = None) -> Iterator[Any]:
    """The values of the fields at a path of field numbers."""
    for number, value in _wire(data, *(within or (0, len(data)))):
        if number == path[0]:
            if len(path) == 1:
                yield value
            else:
                yield from _find(data, *path[1:], within=value)


def _string(data: Any, span: tuple[int, int]) -> str:
    return bytes(data[span[0]:span[1]]).decode("utf-8", "replace")


def _wire(data: Any, at: int, end: int) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message that the library has accepted: numbers, or (begin, end) of bytes."""
    def varint() -> int:
        nonlocal at
        value: int = 0
        shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < end:
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        else:
            size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            yield key >> 3, (at, at + size)
            at += size


def get_available_providers() -> list[str]:
    """The devices of this machine by the names of onnxruntime: the one with a GPU first, if there is a usable one."""
    return ["CUDAExecutionProvider"] * _has_cuda() + ["CPUExecutionProvider"]


def get_device() -> str:
    """ "GPU" if there is a usable one, otherwise "CPU"."""
    return "GPU" if _has_cuda() else "CPU"


@functools.lru_cache(maxsize=None)
def _has_cuda() -> bool:
    return not refusal("cuda")


# numpy's types by their names in ONNX.
_TYPES = {f"tensor({_ONNX_TYPES.get(name, name)})": name for name in DTYPES.values()}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def _type_of(array: Any) -> str | None:
    """The type of an array as ONNX calls it; None: ONNX has no such type."""
    dtype = getattr(array, "dtype", None)
    return _NAMES.get(getattr(dtype, "name", "") or str(dtype).rpartition(".")[2])  # of torch: "torch.float32"


class InferenceSession(NotPickled):
    """A model that is ready to run.

    Args:
        path_or_bytes: path of an .onnx file (or of a compiled module, .ir), the bytes of one, or an onnx.ModelProto.
        sess_options: a SessionOptions.
        providers: names or (name, options) of onnxruntime's devices, in order of preference. "CUDAExecutionProvider"
            is used if there is a usable GPU, otherwise the next one; those that are not known here are skipped with a
            warning. Default, and if none is known: the CPU.
        provider_options: a dict for each provider; device_id is read.
        dtype: "fp32" (default: the types of the model), "fp16" or "bf16": mixed precision.
        device: "cpu", "cuda", "cuda:N", instead of providers.
        **options: members of ampc_compile_options, ampc_import_options and ampc_session_options.

    A session may be used by several threads, one at a time; the others wait. Runs do not hold Python's lock.
    """

    advice = "make one from the model in each process"

    def __init__(self, path_or_bytes: Any, sess_options: SessionOptions | None = None,
                 providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None, *,
                 dtype: str = "fp32", device: str | None = None, **options: Any):
        how = sess_options or SessionOptions()
        how._check()
        options.pop("disabled_optimizers", None)  # of onnxruntime's graphs
        compiles, reads, opens = divide(options, "ampc_compile_options", "ampc_import_options", "ampc_session_options")
        if how.dims:
            reads["dims"] = {**how.dims, **(reads.get("dims") or {})}
        opens.setdefault("threads", how.intra_op_num_threads)
        if how.use_deterministic_compute:
            opens.setdefault("deterministic", opens["threads"] or os.cpu_count() or 1)
        self._source, self._options = path_or_bytes, how
        self._context = Context()
        self._module = compiled_module(self._context, path_or_bytes, reads, precision(dtype) | compiles)
        self._session = self._opened(_devices(providers, provider_options) if device is None else [device],
                                     device is None, opens)
        declared = self._read(_declared)
        self._inputs, self._outputs = ([NodeArg(i, declared) for i in described(self._context, self._module, "infer", kind)]
                                       for kind in ("input", "output"))
        self._keys = {o.name: encode(f"output/{o.name}") for o in self._outputs}
        self._selected: tuple[str, ...] = tuple(self._keys)
        self._infer = encode("infer")
        self._session.select("infer", [f"output/{name}" for name in self._keys])
        self._tensor = ffi.new("ampc_tensor **")
        self._by_name = {i.name: i for i in self._inputs}

    def _opened(self, devices: list[str], falls_back: bool, opens: dict[str, Any]) -> Session:
        for device in devices:
            try:
                self._device = device
                return Session(self._context, self._module, device=device, **opens)
            except DeviceError as error:
                if not falls_back or device == devices[-1]:
                    raise
                log.warning("%s is not used: %s", device, error)
        raise UsageError("providers: none of them is known here")

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
            run_options: RunOptions | None = None) -> list[np.ndarray]:
        """Runs the model.

        Args:
            output_names: names of outputs; None or empty: all. The others are not computed.
            input_feed: for each input an array of its type, which is read in place, or numbers and lists of them.

        Returns:
            The outputs as arrays, in this order.

        Raises:
            UsageError: no output has this name. RejectedError: an input is missing, unknown, or has another type or
            shape.
        """
        names = tuple(output_names or self._keys)
        input_feed = {name: value for name, value in input_feed.items() if value is not None}
        if unknown := [name for name in names if name not in self._keys]:
            raise UsageError(f"Invalid output name: {unknown[0]}; the outputs are {', '.join(self._keys)}",
                             kind="output", name=unknown[0])
        if not output_names and (missing := [i for i in self._inputs if i.name not in input_feed]):
            raise RejectedError(f"input '{missing[0].name}' is missing: {missing[0].type}{missing[0].shape}", kind="input",
                                name=missing[0].name)
        arrays = {name: self._accepted(name, value) for name, value in input_feed.items()}
        with Inputs(self._context, arrays) as (tensors, count):
            check = self._context.check
            if set(names) != set(self._selected):
                self._session.select("infer", [f"output/{name}" for name in names])
                self._selected = names
            check(lib.ampc_session_run(self._session.handle, self._infer, tensors, count))
            made = []
            for name in names:
                check(lib.ampc_session_get(self._session.handle, self._keys[name], self._tensor))
                made.append(to_numpy(self._tensor[0]))
            return made

    def _accepted(self, name: str, value: Any) -> Any:
        """What is fed as this input: an array of its type and rank."""
        wanted = self._by_name.get(name)
        if wanted is None:
            raise RejectedError(f"Invalid input name: {name}; the inputs are {', '.join(self._by_name)}", kind="input",
                                name=name)
        if not any(hasattr(value, has) for has in ("shape", "__array__", "__array_interface__")):  # numbers
            try:  # numpy has no bfloat16; the library converts to it
                value = np.asarray(value, _TYPES[wanted.type].replace("bfloat16", "float32"))
            except (TypeError, ValueError) as error:
                raise RejectedError(f"input '{name}': {error}", kind="input", name=name) from error
        else:
            value = value if hasattr(value, "shape") else np.asarray(value)
            if _type_of(value) not in (wanted.type, None):
                raise RejectedError(f"input '{name}' is {_type_of(value)}, expected {wanted.type}", kind="input",
                                    name=name)
        shape = tuple(value.shape)
        if len(shape) != len(wanted.shape) or any(isinstance(w, int) and w != s for w, s in zip(wanted.shape, shape)):
            raise RejectedError(f"input '{name}' has the shape {list(shape)}, expected {wanted.shape}", kind="input",
                                name=name)
        return value

    def get_inputs(self) -> list[NodeArg]:
        """The inputs of the model."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """The outputs of the model."""
        return self._outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights that are inputs too have the values of the file."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says of itself; empty for a compiled module."""
        return self._read(ModelMetadata)

    def _read(self, function: Callable[[Any], T]) -> T:
        """The result of a function of the bytes of the model's file; of no bytes for a compiled module."""
        source = self._source
        if hasattr(source, "SerializeToString"):
            source = source.SerializeToString()
        if not isinstance(source, (str, os.PathLike)):
            return function(memoryview(source))
        if is_compiled(source):
            return function(b"")
        with open(source, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return function(data)

    def get_providers(self) -> list[str]:
        """The device that is used, by the name of onnxruntime."""
        return ["CUDAExecutionProvider"] * self._device.startswith("cuda") + ["CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """No options: the device number is part of the device."""
        return {name: {} for name in self.get_providers()}

    def enable_fallback(self) -> None:
        """Accepted: only a choice of providers falls back, when the session is made."""

    disable_fallback = enable_fallback

    def get_session_options(self) -> SessionOptions:
        return self._options

    def __repr__(self) -> str:
        return f"<ampc.InferenceSession on {self._device}: {text(lib.ampc_module_summary(self._module))}>"


def _devices(providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """The devices of providers in their order."""
    found = []
    for i, provider in enumerate(providers or ()):
        settings = dict(options[i]) if options and i < len(options) else {}
        if not isinstance(provider, str):
            provider, settings = provider[0], {**settings, **provider[1]}
        if provider not in _DEVICES:
            log.warning("provider %s is not known here and skipped", provider)
        elif provider == "CUDAExecutionProvider" and "device_id" in settings:
            found.append(f"cuda:{settings['device_id']}")
        else:
            found.append(_DEVICES[provider])
    return found or ["cpu"]
