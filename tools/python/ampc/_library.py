"""The C library: finding it, the declarations of its headers, errors, options, and tensors without copies.

The declarations are read from ampc.h as it is installed with the library, so no struct is written here a second time.
"""
from __future__ import annotations

import difflib
import logging
import os
import re
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, Iterable, Mapping, NoReturn

import cffi
import numpy as np

from . import __path__ as packages  # the sources and what was built, if the package was installed with pip install -e
from . import _errors
from ._errors import Error, UsageError

HEADERS = ("ampc_status.h", "ampc_operator.h", "ampc.h")
log = logging.getLogger("ampc")


def find() -> tuple[Path | str, Path]:
    """The library and the folder of its headers.

    AMPC_LIBRARY (a file) names another library than that of the package. Its headers are in AMPC_INCLUDE (a folder), or
    where a build or an installation has them.
    """
    named = os.environ.get("AMPC_LIBRARY")
    libraries = [Path(named)] if named else [p for folder in packages for p in Path(folder, "lib").glob("libampc.so.*")]
    library: Path | str = libraries[0] if libraries else "libampc.so.0"
    folders = [Path(os.environ["AMPC_INCLUDE"])] if os.environ.get("AMPC_INCLUDE") else []
    if named:
        beside = Path(named).resolve().parent
        folders += [beside / "generated", beside.parent / "include", beside.parent.parent / "include"]
    else:
        folders += [*(Path(p, "include") for p in packages), Path("/usr/include"), Path("/usr/local/include")]
    for folder in folders:
        if all((folder / name).is_file() for name in HEADERS):
            return library, folder
    raise ImportError("ampc: no ampc.h in " + ", ".join(map(str, folders)) + "; set AMPC_INCLUDE to its folder")


def declarations(folder: Path) -> str:
    """The declarations of the headers, as cffi reads them: without comments, directives and macros."""
    text = "\n".join((folder / name).read_text("utf-8") for name in HEADERS)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
    # Status codes are rows of a table that an enum expands.
    rows = re.findall(r"X\((\w+), (\d+), \"", text)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.S)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    text = text.replace("AMPC_STATUS_MAP(AMPC_STATUS_ENUM)", ", ".join(f"{name} = {code}" for name, code in rows))
    return text.replace("AMPC_API", "")


def load() -> tuple[Any, Any]:
    library, folder = find()
    ffi = cffi.FFI()
    ffi.cdef(declarations(folder))
    try:
        handle = ffi.dlopen(str(library))
    except OSError as error:
        raise ImportError(f"ampc: the library cannot be loaded: {error}; set AMPC_LIBRARY to libampc.so.0") from error
    preload(ffi, Path(packages[-1], "lib"))
    return ffi, handle


# oneDNN as the library would open it later. Both must find the same OpenMP, but PyTorch, if it is imported in between, makes
# its own copy of OpenMP visible to what is opened then.
_onednn: Any = None


def preload(ffi: cffi.FFI, folder: Path) -> None:
    global _onednn
    wanted = os.environ.get("AMPC_ONEDNN") or "32"
    for name in ("libdnnl.so.3", "libdnnl.so.2"):
        if wanted.find(name[-1]) < 0:
            continue
        try:
            _onednn = ffi.dlopen(str(folder / name) if (folder / name).is_file() else name)
            return
        except OSError:
            continue  # the library says what is missing when it is used


ffi, lib = load()


def text(pointer: Any) -> str:
    """A string of the library; "" for NULL."""
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


def encode(value: str | os.PathLike[str]) -> Any:
    return ffi.new("char[]", os.fsencode(value))


# ---- contexts and errors ---------------------------------------------------------------------------------------------

LOG_LEVELS = {lib.AMPC_LOG_WARNING: logging.WARNING, lib.AMPC_LOG_REMARK: logging.INFO, lib.AMPC_LOG_NOTE: logging.INFO}


@ffi.callback("void(void *, ampc_log_level, const char *)")  # type: ignore[untyped-decorator]  # of cffi
def _receive(user: Any, level: int, message: Any) -> None:
    if level in LOG_LEVELS:  # errors become exceptions
        log.log(LOG_LEVELS[level], "%s", text(message))


class Context:
    """A context of the library, which one thread at a time may use: `with context:` around each call.

    Warnings and notes go to the logger "ampc".
    """

    def __init__(self, strict: bool = False):
        options = ffi.new("ampc_context_options *",
                          {"struct_size": ffi.sizeof("ampc_context_options"), "log": _receive, "strict": strict})
        handle = ffi.new("ampc_context **")
        status = lib.ampc_context_create(options, handle)
        if status:
            raise _errors.BY_STATUS[text(lib.ampc_status_name(status))](text(lib.ampc_status_sentence(status)))
        self.handle = ffi.gc(handle[0], lib.ampc_context_free)
        self.lock = threading.RLock()

    def __enter__(self) -> Context:
        self.lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def check(self, status: int) -> None:
        """Raises the exception of a failed call."""
        if status:
            raise self.error(status)

    def error(self, status: int) -> Error:
        place = ffi.new("ampc_place *", {"struct_size": ffi.sizeof("ampc_place")})
        where = {}
        if not lib.ampc_context_place(self.handle, place):
            where = {"file": text(place.file), "kind": text(place.kind), "name": text(place.name),
                     "op": text(place.op), "line": place.line}
        message = text(lib.ampc_context_message(self.handle)) or text(lib.ampc_status_sentence(status))
        return _errors.BY_STATUS[text(lib.ampc_status_name(status))](message, **where)

    def new(self, kind: str, function: Any, *arguments: Any) -> Any:
        """Calls a function that stores a handle of this kind, such as "ampc_module", through its last parameter. The
        handle is freed with the object that is returned."""
        handle = ffi.new(f"{kind} **")
        with self:
            self.check(function(*arguments, handle))
        return ffi.gc(handle[0], getattr(lib, f"{kind}_free"))


# ---- options ---------------------------------------------------------------------------------------------------------

def fields(struct: str) -> dict[str, Any]:
    """The members of a struct that a caller can set, with their types, without struct_size and counts."""
    members = dict(ffi.typeof(struct).fields)
    return {name: field.type for name, field in members.items()
            if name != "struct_size" and not (name.startswith("n_") and name[2:] in members)}


_fields: dict[str, dict[str, Any]] = {}


def members(struct: str) -> dict[str, Any]:
    if struct not in _fields:
        _fields[struct] = fields(struct)
    return _fields[struct]


def unknown(name: str, known: Iterable[str]) -> UsageError:
    near = difflib.get_close_matches(name, list(known), 1)
    return UsageError(f"unknown option '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))


def divide(options: Mapping[str, Any], *structs: str) -> list[dict[str, Any]]:
    """Options by the struct that has them, the first one if several do."""
    parts: list[dict[str, Any]] = [{} for _ in structs]
    for name, value in options.items():
        for part, struct in zip(parts, structs):
            if name in members(struct):
                part[name] = value
                break
        else:
            raise unknown(name, (n for s in structs for n in members(s)))
    return parts


class Options:
    """A struct of options of ampc.h (`pointer`) with these members, and the memory that it points to.

    A str or path becomes a string; a list a string with commas, or an array with its count, whichever the member is;
    a dict {name: size} an array of ampc_dim. None is the default.
    """

    kept: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()  # by pointer, which may outlive this

    def __init__(self, struct: str, **values: Any):
        self.pointer = ffi.new(f"{struct} *")
        self.keep: list[Any] = []
        self.kept[self.pointer] = self.keep
        if "struct_size" in dict(ffi.typeof(struct).fields):
            self.pointer.struct_size = ffi.sizeof(struct)
        known = members(struct)
        for name, value in values.items():
            if name not in known:
                raise unknown(name, known)
            if value is not None:
                self.set(name, known[name].cname, value)

    def string(self, value: Any) -> Any:
        self.keep.append(encode(value))
        return self.keep[-1]

    def array(self, name: str, kind: str, values: list[Any]) -> None:
        self.keep.append(ffi.new(f"{kind}[]", values))
        setattr(self.pointer, name, self.keep[-1])
        setattr(self.pointer, f"n_{name}", len(values))

    def set(self, name: str, kind: str, value: Any) -> None:
        try:
            if kind == "char *":
                if not isinstance(value, (str, os.PathLike)):
                    value = ",".join(str(v) for v in value)
                setattr(self.pointer, name, self.string(value))
            elif kind == "char * *":
                values = [value] if isinstance(value, (str, os.PathLike)) else list(value)
                self.array(name, "char *", [self.string(v) for v in values])
            elif kind == "ampc_dim *":
                self.array(name, "ampc_dim", [{"name": self.string(n), "size": int(s)} for n, s in value.items()])
            else:
                setattr(self.pointer, name, value)
        except (TypeError, OverflowError, AttributeError, ValueError) as error:
            raise UsageError(f"{name}: {value!r} is not allowed: {error}") from error


# ---- tensors ---------------------------------------------------------------------------------------------------------

NAMES = {"float64": lib.AMPC_F64, "float32": lib.AMPC_F32, "float16": lib.AMPC_F16, "bfloat16": lib.AMPC_BF16,
         "int64": lib.AMPC_I64, "int32": lib.AMPC_I32, "int16": lib.AMPC_I16, "int8": lib.AMPC_I8,
         "uint8": lib.AMPC_U8, "bool": lib.AMPC_BOOL, "uint16": lib.AMPC_U16, "uint32": lib.AMPC_U32,
         "uint64": lib.AMPC_U64}
DTYPES = {code: name for name, code in NAMES.items()}
TYPESTR = {code: "<V2" if name == "bfloat16" else np.dtype(name).str for code, name in DTYPES.items()}
_codes = {np.dtype(name): code for name, code in NAMES.items() if name != "bfloat16"}


def bfloat16() -> Any:
    """numpy's type for bf16 if the package ml_dtypes is there; else None."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return np.dtype(ml_dtypes.bfloat16)


def code_of(dtype: np.dtype[Any]) -> int | None:
    code = _codes.get(dtype)
    if code is None and dtype.name == "bfloat16":
        code = _codes[dtype] = lib.AMPC_BF16
    return code


def to_array(name: str, value: Any) -> tuple[np.ndarray, int]:
    """A C-contiguous, aligned array of the elements of `value`, and their ampc_dtype; without a copy where its layout
    allows. `value` has __dlpack__, __array__, or is what numpy.asarray accepts."""
    code = None
    if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__"):
        if hasattr(value, "detach"):
            value = value.detach()
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # DLPack has no way to numpy for this type
            value, code = value.view(sys.modules["torch"].int16), lib.AMPC_BF16
        try:
            value = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise UsageError(f"{name}: the array cannot be read: {error}", kind="input", name=name) from error
    array = np.asarray(value)
    if code is None:
        code = code_of(array.dtype.newbyteorder("="))
        if code is None:
            raise UsageError(f"{name}: arrays of {array.dtype} are not supported", kind="input", name=name)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = np.array(array, order="C")  # keeps rank 0, unlike ascontiguousarray
    return array, code


def borrow(context: Context, name: Any, value: Any) -> tuple[Any, np.ndarray]:
    """An ampc_tensor over the elements of `value`, and the array that must live as long. `name` is a str or a C string.

    The caller holds the context and frees the tensor with lib.ampc_tensor_free (or ffi.gc).
    """
    array, code = to_array(name if isinstance(name, str) else text(name), value)
    handle = ffi.new("ampc_tensor **")
    context.check(lib.ampc_tensor_borrow(context.handle, encode(name) if isinstance(name, str) else name, code,
                                         array.ndim, array.shape, address(array), ffi.NULL, ffi.NULL, handle))
    return handle[0], array


def address(array: np.ndarray) -> Any:
    return ffi.cast("void *", array.__array_interface__["data"][0])


class Inputs:
    """Tensors over the arrays of one call: `with Inputs(context, {"x": array}) as (tensors, count):`, which also holds
    the context."""

    def __init__(self, context: Context, arrays: Mapping[str, Any]):
        self.context, self.arrays = context, arrays

    def __enter__(self) -> tuple[Any, int]:
        self.context.lock.acquire()
        self.kept: list[Any] = []
        try:
            for name, value in self.arrays.items():
                self.kept.append(borrow(self.context, name, value))
            return ffi.new("ampc_tensor *[]", [tensor for tensor, _ in self.kept]), len(self.kept)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for tensor, _ in self.kept:
            lib.ampc_tensor_free(tensor)
        self.context.lock.release()


class _Owner:
    """Keeps a tensor of the library as long as an array over its elements."""

    def __init__(self, tensor: Any, shape: tuple[int, ...], typestr: str):
        self.tensor = ffi.gc(tensor, lib.ampc_tensor_free)
        data = int(ffi.cast("uintptr_t", lib.ampc_tensor_data(tensor)))
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": typestr, "data": (data, False)}


def to_numpy(tensor: Any) -> np.ndarray:
    """An array over the elements of an ampc_tensor, which is freed with the array. Elements in bf16 are those of
    ml_dtypes.bfloat16 if that package is there, and otherwise converted to float32, which is exact."""
    code = lib.ampc_tensor_dtype(tensor)
    shape = tuple(ffi.unpack(lib.ampc_tensor_dims(tensor), lib.ampc_tensor_rank(tensor)))
    if 0 in shape:
        lib.ampc_tensor_free(tensor)
        bf16 = code == lib.AMPC_BF16
        return np.empty(shape, (bfloat16() or np.float32) if bf16 else DTYPES[code])
    array = np.asarray(_Owner(tensor, shape, TYPESTR[code]))
    if code == lib.AMPC_BF16:
        kind = bfloat16()
        if kind is not None:
            return array.view(kind)
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array


class NotPickled:
    """A class whose objects have memory of the library."""

    advice = ""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle or copy a {type(self).__name__}: {self.advice}")


class Session:
    """An ampc_session with its context: results and states by key (see the head of ampc.h) as arrays and numbers."""

    def __init__(self, context: Context, module: Any, **options: Any):
        self.context = context
        how = Options("ampc_session_options", **options)
        self.handle = context.new("ampc_session", lib.ampc_session_open, module, how.pointer)

    def get(self, key: str) -> np.ndarray:
        tensor = ffi.new("ampc_tensor **")
        with self.context as c:
            c.check(lib.ampc_session_get(self.handle, encode(key), tensor))
        return to_numpy(tensor[0])

    def set(self, key: str, value: Any) -> None:
        with Inputs(self.context, {key: value}) as (tensors, _):
            self.context.check(lib.ampc_session_set(self.handle, encode(key), tensors[0]))

    def number(self, key: str) -> float:
        value = ffi.new("double *")
        with self.context as c:
            c.check(lib.ampc_session_get_number(self.handle, encode(key), value))
        return float(value[0])

    def set_number(self, key: str, value: float) -> None:
        with self.context as c:
            c.check(lib.ampc_session_set_number(self.handle, encode(key), value))

    def keys(self) -> list[str]:
        """The keys of all states: param/NAME, buf/NAME, opt/SLOT/NAME .."""
        found, index = [], 0
        with self.context:
            while key := lib.ampc_session_key(self.handle, index):
                found.append(text(key))
                index += 1
        return found

    def select(self, graph: str, results: Iterable[str] | None) -> None:
        names = None if results is None else [encode(r) for r in results]
        array = ffi.NULL if names is None else ffi.new("char *[]", names)
        with self.context as c:
            c.check(lib.ampc_select(self.handle, encode(graph), array, len(names or ())))


def is_compiled(model: Any) -> bool:
    """Whether it is the path of a compiled module."""
    return isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(".ir")


def import_module(context: Context, model: Any, **options: Any) -> Any:
    """An ampc_module of a model: a path, the bytes of an ONNX file, or an object with SerializeToString, such as
    onnx.ModelProto."""
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if isinstance(model, (bytes, bytearray, memoryview)):
        held = ffi.from_buffer(model)
        how = Options("ampc_import_options", **options)
        how.pointer.bytes, how.pointer.n_bytes = held, len(held)
    elif isinstance(model, (str, os.PathLike)):
        if is_compiled(model):
            if any(value is not None for value in options.values()):
                raise UsageError(f"{os.fspath(model)}: options of the import do not apply to a compiled module")
            return context.new("ampc_module", lib.ampc_module_load, context.handle, encode(model))
        how = Options("ampc_import_options", path=model, **options)
    else:
        raise UsageError(f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}")
    return context.new("ampc_module", lib.ampc_module_import_with, context.handle, how.pointer)


def precision(dtype: str) -> dict[str, str]:
    """The options of the compiler for a type: "fp32" is level O0, the types of the model."""
    return {"amp": "O0"} if dtype == "fp32" else {"dtype": dtype}


def compiled_module(context: Context, model: Any, reads: Mapping[str, Any], compiles: Mapping[str, Any]) -> Any:
    """The ampc_module of a model, compiled, or of a compiled module; `reads` are options of its import."""
    module = import_module(context, model, **reads)
    if not is_compiled(model):
        how = Options("ampc_compile_options", **compiles)
        with context:
            context.check(lib.ampc_module_compile(module, how.pointer))
    return module


def described(context: Context, module: Any, graph: str, kind: str) -> list[Any]:
    """The ampc_input_info of each input or output (`kind`) of a graph."""
    count, found = ffi.new("size_t *"), []
    with context:
        context.check(getattr(lib, f"ampc_module_{kind}_count")(module, encode(graph), count))
        for i in range(count[0]):
            found.append(ffi.new("ampc_input_info *", {"struct_size": ffi.sizeof("ampc_input_info")}))
            context.check(getattr(lib, f"ampc_module_{kind}")(module, encode(graph), i, found[-1]))
    return found


# An ONNX model with one Relu, x: float[1] -> y.
_SMALLEST = (b'\x08\x08:3\n\x0c\n\x01x\x12\x01y"\x04Relu\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
             b'b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r')


def refusal(device: str) -> str:
    """Why no session can be opened on a device; "" if one can."""
    context = Context()
    try:
        Session(context, compiled_module(context, _SMALLEST, {}, {}), device=device)
    except Error as error:
        return str(error).removeprefix("error: ")
    return ""


def version() -> str:
    """Version of the library that is loaded."""
    return text(lib.ampc_version())


__all__ = ["Context", "Inputs", "NotPickled", "Options", "Session", "borrow", "compiled_module", "described", "divide", "encode",
           "ffi", "import_module", "is_compiled", "lib", "log", "members", "precision", "refusal", "text", "to_array",
           "to_numpy", "version"]
