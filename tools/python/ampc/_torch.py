"""Training of PyTorch modules: ampc.from_torch. Only the functions here import torch."""
from __future__ import annotations

import io
import warnings
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

from ._errors import UnsupportedError, UsageError
from ._trainer import Trainer


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
    """A Trainer of a PyTorch module, made by from_torch. `state_dict` has the names of the module's."""

    _assigned: dict[str, str | None]
    _first: dict[str, Any]
    _counted: list[str]

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of all tensors of the module's state_dict, trained or not, by its names; bf16 as float32."""
        return {name: value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
                for name, value in self._tensors().items()}

    def _tensors(self) -> dict[str, Any]:
        torch = require_torch()
        steps = int(self._session.number("state/step"))
        found = {}
        for name, key in self._assigned.items():
            first = self._first[name]
            if key is not None:
                found[name] = torch.from_numpy(np.array(self._session.get(key))).reshape(first.shape).to(first.dtype)
            else:
                found[name] = first + steps if name in self._counted else first.clone()
        return found

    def copy_to(self, module: Any) -> Any:
        """Writes all parameters and buffers to `module`, which has the names and shapes of the exported one, in its
        types and on its devices, and returns it.

        Raises:
            UsageError: a name is missing or unknown, or a shape differs; the message lists them, and nothing is written.
        """
        torch = require_torch()
        target, source = module.state_dict(keep_vars=True), self._tensors()
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


def from_torch(module: Any, example_inputs: Any, *, loss: str | None = None, optimizer: str = "sgd",
               dtype: str = "fp32", dynamic_batch: bool = True, input_names: Sequence[str] | None = None,
               output_names: Sequence[str] | None = None, **options: Any) -> TorchTrainer:
    """Exports a PyTorch module with all its parameters, in memory, and makes a trainer for it.

    BatchNormalization and Dropout are in training mode if `module.training` (mode="train"). Parameters without
    requires_grad are frozen. Running variances are those of ONNX (docs/training.md).

    Args:
        module: a torch.nn.Module on any device; it is not changed.
        example_inputs: a tensor, a tuple of them, or a dict of keyword arguments of forward.
        loss, optimizer, dtype, **options: as for Trainer; loss_output names a scalar output that is the loss.
        dynamic_batch: the first dimension of every input may have another size in each step.
        input_names, output_names: instead of those of the parameters of forward and of the exporter.

    Raises:
        ImportError: torch or onnxscript is missing. UnsupportedError: the exported model lacks tensors of the module.
    """
    torch = require_torch()
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(example_inputs, Mapping):
        kwargs = dict(example_inputs)
    else:
        args = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    how: dict[str, Any] = {}
    if dynamic_batch:
        def shape(value: Any) -> Any:
            return {0: "batch"} if isinstance(value, torch.Tensor) and value.dim() else None
        how["dynamic_shapes"] = {k: shape(v) for k, v in kwargs.items()} if kwargs else tuple(shape(v) for v in args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, optimize=False, verbose=False,
                                    input_names=input_names, output_names=output_names, **how)
    buffer = io.BytesIO()
    program.save(buffer)
    values = module.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    aliases = {name: first.setdefault(id(value), name) for name, value in values.items()}
    present = {i.name for i in program.model.graph.initializers.values()}
    if frozen := [n for n, p in module.named_parameters() if not p.requires_grad and n in present]:
        given = options.get("freeze") or []
        options["freeze"] = [*([given] if isinstance(given, str) else given), *frozen]
    if module.training:
        options.setdefault("mode", "train")
    trainer = TorchTrainer(buffer.getvalue(), loss, optimizer, dtype, **options)
    exported = program.exported_program
    users = {n.name: bool(n.users) for n in exported.graph.nodes if n.op == "placeholder"}
    unused = {s.target for s in exported.graph_signature.input_specs
              if s.target is not None and not users.get(getattr(s.arg, "name", ""), True)}
    learned = dict(module.named_parameters(remove_duplicate=False))
    kept = {n for n in values if n not in learned or not learned[n].requires_grad or n in unused}
    states = {key.split("/", 1)[1]: key for key in trainer.keys() if key.startswith(("param/", "buf/"))}
    trainer._assigned = assign(values, aliases, states, kept)
    trainer._first = {n: v.detach().cpu().clone() for n, v in values.items()}
    trainer._counted = [n for n in values if n.endswith("num_batches_tracked") and options.get("mode") == "train"]
    return trainer


__all__ = ["TorchTrainer", "assign", "from_torch"]
