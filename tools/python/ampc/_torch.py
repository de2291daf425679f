"""Training of PyTorch modules: ampc.from_torch. Only the functions here import torch."""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import logging
import os
import tempfile
import warnings
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from ._errors import UnsupportedError, UsageError
from ._library import log
from ._trainer import Trainer

LARGE = 1_900_000_000  # bytes of tensors; an ONNX file has less than 2 GiB, so more are exported to a second file
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # of BatchNormalization


def require_torch() -> Any:
    try:
        import torch
        import onnxscript  # noqa: F401, the exporter needs it
    except ImportError as error:
        raise ImportError(f"ampc.from_torch needs the packages torch and onnxscript: {error}") from error
    return torch


def assign(names: Iterable[str], aliases: Mapping[str, str], states: Mapping[str, str],
           kept: Iterable[str]) -> dict[str, str | None]:
    """The key of the trainer's state for each name of a state_dict; None for those that training does not change.

    Args:
        names: of the state_dict. aliases: the first name of a tensor by its other names (tied weights).
        states: keys by the names of the model, such as {"fc.weight": "param/fc.weight"}.
        kept: names that training does not change: frozen or unused parameters, constant buffers.

    Raises:
        UnsupportedError: names that belong to none of these; the message lists all of them.
    """
    names, kept = list(names), set(kept)
    group: dict[str, list[str]] = {}
    for name in names:
        group.setdefault(aliases.get(name, name), []).append(name)
    found: dict[str, str | None] = {}
    lost = []
    for first, members in group.items():
        keys = [states[name] for name in members if name in states]
        if not keys and not all(name in kept for name in members):
            lost += members
        found.update(dict.fromkeys(members, keys[0] if keys else None))
    if lost:
        raise UnsupportedError("the exported model does not have these tensors of the module: " + ", ".join(sorted(lost)))
    return {name: found[name] for name in names}


class TorchTrainer(Trainer):
    """A Trainer of a PyTorch module, made by from_torch. `state_dict` has the names of the module's.

    Attributes:
        exporter: "dynamo" or "torchscript", which has exported the module.
    """

    exporter: str
    _assigned: dict[str, str | None]
    _first: dict[str, Any]
    _counted: list[str]
    _runs: int  # micro-batches of a step
    _folder: Any  # of a large model; deleted with the trainer

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of all tensors of the module's state_dict, trained or not, by its names; bf16 as float32."""
        return {name: value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
                for name, value in self._tensors().items()}

    def _value(self, key: str) -> Any:
        array = self._session.get(key)
        if array.dtype.name == "bfloat16":  # of ml_dtypes, which torch does not read
            array = array.astype(np.float32)
        return require_torch().from_numpy(np.array(array))

    def _tensors(self) -> dict[str, Any]:
        runs = int(self._session.number("state/step")) * self._runs
        return {name: self._value(key).to(self._first[name].dtype) if key is not None else
                self._first[name] + runs if name in self._counted else self._first[name].clone()
                for name, key in self._assigned.items()}

    def _prove(self, values: bool) -> None:
        """Raises an error unless the trainer has every tensor of the module in its shape and, if `values`, bit by bit."""
        torch = require_torch()
        wrong = []
        for name, key in self._assigned.items():
            if key is None:
                continue
            first, found = self._first[name], self._value(key)
            if found.shape != first.shape:
                wrong.append(f"{name} ({list(first.shape)} in the module, {list(found.shape)} in the exported model)")
            elif values and not torch.equal(found.to(first.dtype).nan_to_num(), first.nan_to_num()):
                wrong.append(f"{name} (other values in the exported model)")
        if wrong:
            raise UnsupportedError("the exported model has other tensors than the module: " + ", ".join(wrong))

    def copy_to(self, module: Any) -> Any:
        """Writes all parameters and buffers to `module`, which has the names and shapes of the exported one, in its
        types and on its devices, and returns it.

        Raises:
            UsageError: a name is missing or unknown, or a shape differs; the message lists them, and nothing is written.
        """
        torch = require_torch()
        target, source = tensors_of(module), self._tensors()
        wrong = [f"{name} (only in the {'module' if name in target else 'trainer'})"
                 for name in sorted(target.keys() ^ source.keys())]
        wrong += [f"{name} ({list(target[name].shape)}, not {list(source[name].shape)})"
                  for name in target if name in source and target[name].shape != source[name].shape]
        if wrong:
            raise UsageError("the module is not the one that was exported: " + ", ".join(wrong))
        with torch.no_grad():
            for name, tensor in target.items():
                tensor.copy_(source[name])
        return module


# ---- the module ------------------------------------------------------------------------------------------------------


def tensors_of(module: Any) -> dict[str, Any]:
    """The tensors of the module's state_dict themselves, not copies."""
    return {n: v for n, v in module.state_dict(keep_vars=True).items() if hasattr(v, "dtype")}


def batch_norms(module: Any) -> dict[str, Any]:
    """The BatchNormalizations with running statistics, by the prefix of their tensors."""
    kind = require_torch().nn.modules.batchnorm._BatchNorm
    return {f"{name}." if name else "": m for name, m in module.named_modules()
            if isinstance(m, kind) and m.running_mean is not None}


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors of a nested output with names such as "logits" or "pair.0"; what is not a tensor has none."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, require_torch().Tensor):
        yield name or "output", value
    elif isinstance(value, Mapping):
        inner = value.items()
    elif hasattr(value, "_fields"):
        inner = zip(value._fields, value)
    elif isinstance(value, (tuple, list)):
        inner = enumerate(value)
    elif dataclasses.is_dataclass(value):
        inner = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    for key, item in inner:
        yield from leaves(item, f"{name}.{key}" if name else key if isinstance(key, str) else f"output.{key}")


@contextlib.contextmanager
def flat(module: Any, forward: Callable[..., Any] | None = None) -> Iterator[list[str]]:
    """Lets forward, or another function in its place, return its tensors as a tuple, and stores their names. Caches of
    transformers are not computed."""
    names: list[str] = []
    own, called = vars(module).get("forward"), forward or module.forward
    config: Any = getattr(module, "config", None)
    caches = getattr(config, "use_cache", None)

    @functools.wraps(called)
    def flattened(*args: Any, **kwargs: Any) -> Any:
        found = list(leaves(called(*args, **kwargs)))
        names[:] = [name for name, _ in found]
        return tuple(value for _, value in found)

    try:
        if caches:
            config.use_cache = False
        module.forward = flattened
        yield names
    finally:
        del module.forward
        if own is not None:
            module.forward = own
        if caches:
            config.use_cache = caches


# ---- export ----------------------------------------------------------------------------------------------------------


def map_tensors(function: Callable[[Any], Any], value: Any) -> Any:
    """`function` of each tensor of nested arguments; None for all other leaves."""
    if isinstance(value, require_torch().Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {k: map_tensors(function, v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(function, v) for v in value)
    return None


def rebuilt(value: Any, tensors: Iterator[Any]) -> Any:
    """Nested arguments with these tensors in place of their own."""
    if isinstance(value, require_torch().Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {k: rebuilt(v, tensors) for k, v in value.items()}
    return type(value)(rebuilt(v, tensors) for v in value) if isinstance(value, (tuple, list)) else value


def arguments(example: Any, dynamic: bool) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    """Positional and keyword arguments of an example, and its number of samples, 0 without tensors. An example of one
    sample has it twice if the batch is dynamic, since torch.export makes sizes of 1 constants. Tensors are
    copies: torch.export counts one tensor in two places for one argument."""
    listed: list[Any] = []
    map_tensors(listed.append, example)
    batch = next((t.shape[0] for t in listed if t.dim()), 0)
    if dynamic and batch == 1:
        listed = [t.repeat(2, *[1] * (t.dim() - 1)) if t.dim() and t.shape[0] == 1 else t for t in listed]
        batch = 2
    example = rebuilt(example, (t.detach().clone() for t in listed))
    if isinstance(example, Mapping):
        return (), dict(example), batch
    return tuple(example) if isinstance(example, (tuple, list)) else (example,), {}, batch


class Exported(NamedTuple):
    """A module as ONNX: its bytes or path, the names of its initializers, and those of the tensors that nothing reads."""

    model: bytes | str
    outputs: list[str]
    present: set[str]
    unused: set[str]


def export_dynamo(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any, inputs: Sequence[str] | None,
                  outputs: Sequence[str] | None, path: str | None) -> Exported:
    torch = require_torch()
    with flat(module) as names:
        program = torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, optimize=False, verbose=False,
                                    input_names=inputs, **({} if shapes is None else {"dynamic_shapes": shapes}))
    exported, graph = program.exported_program, program.model.graph
    users = {n.name: bool(n.users) for n in exported.graph.nodes if n.op == "placeholder"}
    unused = {s.target for s in exported.graph_signature.input_specs
              if s.target is not None and not users.get(getattr(s.arg, "name", ""), True)}
    counted = {prefix + n for prefix in batch_norms(module) for n in STATISTICS}
    if changed := sorted(set(exported.graph_signature.buffers_to_mutate.values()) - counted):
        raise UnsupportedError("forward changes buffers, and ONNX cannot express that: " + ", ".join(changed))
    names = list(outputs or names)
    values = {v.name: v for n in graph for v in n.outputs}
    taken = {v.name for v in graph.inputs} | set(graph.initializers)
    for value, name in zip(graph.outputs, names):
        if value.producer() is not None and name not in taken:
            if name in values:
                values[name].name = f"{name}.inner"
            value.name = name
            taken.add(name)
    buffer = io.BytesIO()
    program.save(path or buffer, **({"external_data": True} if path else {}))
    return Exported(path or buffer.getvalue(), [v.name for v in graph.outputs], set(graph.initializers), unused)


def export_torchscript(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any,
                       inputs: Sequence[str] | None, outputs: Sequence[str] | None, path: str | None) -> Exported:
    torch = require_torch()
    import onnx
    given = dict(zip(inspect.signature(module.forward).parameters, args)) | kwargs
    tensors = [t for _, t in leaves(given)]
    parameters = list(inputs or (n for n, _ in leaves(given)))
    forward = module.forward
    learned = {n: p for n, p in module.named_parameters() if p.requires_grad}

    def positional(*values: Any) -> Any:
        source = iter(values)
        return forward(*rebuilt(args, source), **rebuilt(kwargs, source))

    with flat(module, positional) as names:
        before = {n: v.detach().clone() for n, v in tensors_of(module).items()}
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            results = module(*tensors)
            sums = [r.double().sum() for r in results if r.requires_grad]
            slopes = torch.autograd.grad(sums, list(learned.values()), allow_unused=True) if sums else [None] * len(learned)
        with torch.no_grad():
            for n, v in tensors_of(module).items():
                v.copy_(before[n])
        axes = None
        names = list(outputs or names)
        if shapes is not None:
            sizes = [t.shape[0] for t in tensors if t.dim()]
            axes = {n: {0: "batch"} for n, t in [*zip(parameters, tensors), *zip(names, results)]
                    if t.dim() and t.shape[0] == sizes[0]}
        buffer = io.BytesIO()
        torch.onnx.export(module, tuple(tensors), path or buffer, dynamo=False, do_constant_folding=False, verbose=False,
                          training=torch.onnx.TrainingMode.PRESERVE, input_names=parameters, output_names=names,
                          dynamic_axes=axes)
    file = onnx.load(path, load_external_data=False) if path else onnx.load_model_from_string(buffer.getvalue())
    return Exported(path or buffer.getvalue(), [o.name for o in file.graph.output],
                    {i.name for i in file.graph.initializer}, {n for n, g in zip(learned, slopes) if g is None})


EXPORTERS = {"dynamo": export_dynamo, "torchscript": export_torchscript}


def export(exporter: str | None, *how: Any) -> tuple[str, Exported]:
    """The exporter that was used, and what it made."""
    if exporter is not None and exporter not in EXPORTERS:
        raise UsageError(f"exporter: 'dynamo' or 'torchscript', not {exporter!r}")
    failed: list[tuple[str, Exception]] = []
    for name in [exporter] if exporter else EXPORTERS:
        try:
            with warnings.catch_warnings(), quiet():
                warnings.simplefilter("ignore")
                made = EXPORTERS[name](*how)
            if failed:
                log.info("the module was exported by torchscript, since dynamo cannot: %s", reason(failed[0][1]))
            return name, made
        except UnsupportedError:
            raise
        except Exception as error:
            failed.append((name, error))
    raise UnsupportedError("the module cannot be exported: " + "; ".join(f"{n}: {reason(e)}" for n, e in failed)
                           ) from failed[0][1]


def reason(error: BaseException) -> str:
    """The first line of the exception that caused an exporter's, whose own text is about the exporter."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Exporters log what they skip although they succeed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def from_torch(module: Any, example_inputs: Any, *, loss: str | None = None, optimizer: str = "sgd",
               dtype: str = "fp32", dynamic_batch: Any = True, exporter: str | None = None,
               input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None,
               **options: Any) -> TorchTrainer:
    """Exports a PyTorch module with all its parameters, in memory, and makes a trainer for it.

    Dropout and each BatchNormalization are in the mode of the module, unless `mode` is given. Parameters without
    requires_grad are frozen. Running variances are updated as in PyTorch (running_var="unbiased"). The row of padding_idx
    of an Embedding is trained, with a warning. Outputs of any nesting become outputs of the trainer: "output"; "output.0" ..
    of a tuple; the keys of a dict or of the outputs of transformers, such as "logits"; "pair.0" within an item.

    Args:
        module: a torch.nn.Module on any device; it is not changed.
        example_inputs: a tensor, a tuple of arguments of forward (which may be nested), or a dict of keyword arguments,
            such as {"input_ids": .., "attention_mask": .., "labels": ..}.
        loss, optimizer, dtype, **options: as for Trainer. Without a loss, an output "loss" is the loss, which models of
            transformers have if they are given labels; loss_output names another scalar output.
        dynamic_batch: the first dimension of every tensor that has as many samples as the first one may have another
            size in each call; False: all sizes are fixed; or torch.onnx.export's dynamic_shapes (dynamo).
        exporter: "dynamo" or "torchscript"; by default dynamo, and torchscript if that fails.
        input_names, output_names: instead of the names of forward's parameters, and of the outputs above.

    Raises:
        ImportError: torch or onnxscript is missing. UnsupportedError: the module cannot be exported, the exported model
            lacks tensors of the module (all are listed), or forward changes buffers other than those of
            BatchNormalization. Others: as Trainer.
    """
    torch = require_torch()
    norms = batch_norms(module)
    if endless := [prefix[:-1] for prefix, m in norms.items() if m.training and m.momentum is None]:
        raise UnsupportedError("BatchNormalization with momentum=None: " + ", ".join(endless))
    for name, part in module.named_modules():
        if module.training and isinstance(part, torch.nn.Embedding) and part.padding_idx is not None and \
                part.weight.requires_grad:
            log.warning("%s: row %d is trained, though PyTorch does not train the row of padding_idx", name or "embedding",
                        part.padding_idx)
    args, kwargs, batch = arguments(example_inputs, dynamic_batch is True)
    shapes = None if dynamic_batch is False else dynamic_batch
    if dynamic_batch is True:
        first_size = torch.export.Dim("batch")  # one symbol, so that quotients of two sizes are known
        shapes = map_tensors(lambda t: {0: first_size} if t.dim() and t.shape[0] == batch else None, kwargs or args)
    values = tensors_of(module)
    folder = None
    if sum(v.numel() * v.element_size() for v in values.values()) > LARGE:
        folder = tempfile.TemporaryDirectory(prefix="ampc-")
    path = os.path.join(folder.name, "model.onnx") if folder else None
    name, made = export(exporter, module, args, kwargs, shapes, input_names, output_names, path)
    learned = dict(module.named_parameters(remove_duplicate=False))
    frozen = [n for n, p in learned.items() if not p.requires_grad and n in made.present]
    moving = any(m.training for m in norms.values()) or module.training
    if "mode" not in options:
        if name == "torchscript":
            options["mode"] = "file"
        elif moving:
            options["mode"] = "train"
            frozen += [prefix + n for prefix, m in norms.items() if not m.training for n in STATISTICS[:2]]
    options.setdefault("running_var", "unbiased")
    if frozen:
        given = options.get("freeze") or []
        options["freeze"] = [*([given] if isinstance(given, str) else given), *frozen]
    if loss is None and "loss_output" not in options and "loss" in made.outputs:
        options["loss_output"] = "loss"
    trainer = TorchTrainer(made.model, loss, optimizer, dtype, **options)
    trainer.exporter, trainer._folder = name, folder
    first: dict[int, str] = {}
    aliases = {n: first.setdefault(id(v), n) for n, v in values.items()}
    kept = {n for n in values if n not in learned or not learned[n].requires_grad or n in made.unused}
    states = {key.split("/", 1)[1]: key for key in trainer.keys() if key.startswith(("param/", "buf/"))}
    trainer._assigned = assign(values, aliases, states, kept)
    trainer._first = {n: v.detach().cpu().clone() for n, v in values.items()}
    trainer._runs = int(options.get("accumulate") or 1)
    trainer._counted = [prefix + STATISTICS[2] for prefix, m in norms.items()
                        if m.training and options["mode"] != "eval"]
    trainer._prove(options.get("init") in (None, "file"))
    return trainer


__all__ = ["TorchTrainer", "assign", "from_torch"]
