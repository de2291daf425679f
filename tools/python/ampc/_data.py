"""Data sets in Python: arrays, data sets with an item per sample, and iterables of batches."""
from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np

from ._errors import UsageError
from ._library import Context, Options, encode, ffi, lib, to_array


def is_spec(data: Any) -> bool:
    """Whether it is a data spec of docs/data.md, such as "npz:FILE"."""
    return isinstance(data, str)


def is_arrays(data: Any) -> bool:
    """Whether it is arrays with a first dimension of samples: a dict of them, or a tuple in the order of the inputs."""
    values = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, tuple) else []
    return bool(values) and all(hasattr(v, "shape") or isinstance(v, list) for v in values)


def is_items(data: Any) -> bool:
    """Whether it has a sample for each index, as torch.utils.data.Dataset; a list is one of batches."""
    return not isinstance(data, (Mapping, tuple, list)) and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def has_rows(data: Any) -> bool:
    """Whether its samples have numbers, so that Dataset reads them; otherwise it is an iterable of batches."""
    return is_arrays(data) or is_items(data)


def named(batch: Any, names: Sequence[str]) -> dict[str, Any]:
    """A batch or sample by input: a dict as it is, a sequence in the order of `names`."""
    if isinstance(batch, Mapping):
        return dict(batch)
    values = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    if len(values) > len(names):
        raise UsageError(f"data have {len(values)} arrays, but the inputs are {', '.join(names)}")
    return dict(zip(names, values))


def one_pass(data: Any) -> Any:
    """An iterable of batches, such as a torch DataLoader or a list of tuples; `data` may be a function that makes it."""
    return data() if callable(data) else data


def collected(data: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """All batches of an iterable as one array per input."""
    parts: dict[str, list[np.ndarray]] = {}
    for batch in one_pass(data):
        for name, value in named(batch, names).items():
            parts.setdefault(name, []).append(to_array(name, value)[0])
    if not parts:
        raise UsageError("the data have no batches")
    return {name: np.concatenate(values) for name, values in parts.items()}


class Dataset:
    """An ampc_data over arrays, which are not copied, or over items.

    Attributes:
        handle: the ampc_data.
        raised: the exception of an item that could not be read, or None.
    """

    def __init__(self, context: Context, data: Any, names: Sequence[str], options: str = ""):
        self.raised: BaseException | None = None
        self.kept: list[Any] = []
        self.options = Options("ampc_data_options", options=options)
        pointer = self.options.pointer
        if is_arrays(data):
            arrays = {name: to_array(name, value) for name, value in named(data, names).items()}
            for name, (array, _) in arrays.items():
                if array.ndim == 0:
                    raise UsageError(f"{name}: an array of samples has a first dimension", kind="input", name=name)
            rows = {name: array.shape[0] for name, (array, _) in arrays.items()}
            if len(set(rows.values())) != 1:
                raise UsageError("the arrays have different numbers of samples: "
                                 + ", ".join(f"{name} has {count}" for name, count in rows.items()))
            pointer.rows = next(iter(rows.values()))
            samples = {name: (array[:0], code) for name, (array, code) in arrays.items()}
            self.kept = [array for array, _ in arrays.values()]
        else:
            if not len(data):
                raise UsageError("the data have no samples")
            first = {name: to_array(name, value) for name, value in named(data[0], names).items()}
            pointer.rows = len(data)
            samples = {name: (array[None], code) for name, (array, code) in first.items()}
            self.data, self.names, self.samples = data, names, list(samples.values())
            self.last: tuple[int, dict[str, Any]] = (-1, {})
            self.order = list(samples)
            pointer.read = self._reader()
        self._set_fields(samples)
        self.handle = context.new("ampc_data", lib.ampc_data_create, context.handle, pointer)

    def _set_fields(self, samples: Mapping[str, tuple[np.ndarray, int]]) -> None:
        fields = ffi.new("ampc_data_field[]", len(samples))
        for i, (name, (array, code)) in enumerate(samples.items()):
            self.kept.append(encode(name))
            fields[i].name, fields[i].dtype, fields[i].rank = self.kept[-1], code, array.ndim - 1
            fields[i].dims[0:array.ndim - 1] = list(array.shape[1:])
            if not self.options.pointer.read:
                fields[i].data = ffi.cast("void *", self.kept[i].__array_interface__["data"][0])
        self.kept.append(fields)
        self.options.pointer.fields, self.options.pointer.n_fields = fields, len(samples)

    def _reader(self) -> Any:
        def read(_user: Any, row: int, field: int, target: Any) -> int:
            at, item = self.last
            if at != row:
                item = named(self.data[row], self.names)
                self.last = (row, item)
            wanted, code = self.samples[field]
            name = self.order[field]
            array, given = to_array(name, item[name])
            if array.shape != wanted.shape[1:] or given != code:
                raise UsageError(f"{name}: sample {row} is {array.dtype}{list(array.shape)}, but the first one is "
                                 f"{wanted.dtype}{list(wanted.shape[1:])}", kind="input", name=name)
            ffi.memmove(target, np.ascontiguousarray(array).reshape(-1).view(np.uint8), array.nbytes)
            return 0

        def failed(_kind: Any, error: BaseException, _trace: Any) -> None:
            self.raised = self.raised or error

        self.kept.append(ffi.callback("int(void *, int64_t, size_t, void *)", read, error=1, onerror=failed))
        return self.kept[-1]
