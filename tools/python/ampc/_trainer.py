"""Training: ampc.Trainer."""
from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

import numpy as np

from . import _data
from ._curves import History
from ._errors import UsageError
from ._library import (DTYPES, Context, Inputs, NotPickled, Options, Session, compiled_module, described, divide, encode,
                       ffi, is_compiled, lib, precision, text)

Path_ = str | os.PathLike[str]
_MODULE_STRUCTS = ("ampc_compile_options", "ampc_import_options", "ampc_session_options")


class Step(NamedTuple):
    """What a training step did."""

    loss: float  # unscaled
    skipped: bool  # a gradient or the loss was not finite: only the loss scale changed
    scale: float  # loss scale; 1 without loss scaling
    norm: float  # of all gradients together, without loss scale, before clipping
    step: int  # number of the step, from 1; continues from a loaded checkpoint
    lr: float
    epoch: float  # completed epochs, with the fraction; 0 outside of fit


def made(r: Any) -> Step:
    """The step that an ampc_step_result describes."""
    return Step(r.loss, bool(r.was_skipped), r.loss_scale, r.grad_norm, r.step, r.lr, r.epoch)


class Input(NamedTuple):
    """An input of a graph: a dimension without a fixed size has its name."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


class Evaluation(dict[str, float]):
    """The loss and metrics of a data set by name.

    Attributes:
        loss: NaN without a loss. accuracy: NaN without class labels. samples: their number.
        confusion: int64 array [classes, classes] by label and prediction, if that metric was chosen; else None.
        class_names: names of the classes, or [].
        step: number of the training step after which it was made; 0 outside of fit.
    """

    def __init__(self, found: Any, step: int = 0):
        super().__init__({text(found.metrics[i].name): found.metrics[i].value for i in range(found.n_metrics)})
        self.loss, self.accuracy, self.samples, self.step = found.loss, found.accuracy, found.samples, step
        self.class_names = [text(found.class_names[i]) for i in range(found.n_class_names)]
        self.confusion: np.ndarray | None = None
        if found.confusion:
            n = found.classes
            self.confusion = np.array(ffi.unpack(found.confusion, n * n), np.int64).reshape(n, n)


class Trainer(NotPickled):
    """Trains an ONNX model in fp32, fp16 or bf16.

    Args:
        model: path of an .onnx file, a recipe or a compiled module (.ir, which has no options of the compiler); the
            bytes of an ONNX model; or an onnx.ModelProto.
        loss: "ce", "mse", .. (docs/training.md), with ":OUTPUT,LABEL" to choose the output and to name the label, which
            becomes an input; without it, the model's own loss.
        optimizer: "sgd", "momentum", "adamw", .., with settings such as "adamw,lr=0.01,weight_decay=0.1".
        dtype: "fp32", "fp16" or "bf16". fp16 has dynamic loss scaling, unless loss_scale says otherwise.
        lr: initial learning rate, instead of a setting of the optimizer.
        **options: members of ampc_compile_options (white=["MatMul"], lists=[..], clip_norm=1.0, accumulate=4, amp="O2",
            groups=[..], ema=0.999, mode="train", seed=1, ..), ampc_import_options (dims={"N": 8}, batch=..) and
            ampc_session_options (device="cuda", threads=4, deterministic=4, ..).

    A trainer may be used by several threads, one at a time; the others wait. Calls run without Python's lock.

    Raises:
        RejectedError, UnsupportedError, UsageError, FileError, DeviceError, OutOfMemoryError: as the programs do.
    """

    advice = "save it to a file, or take its state_dict"

    def __init__(self, model: Any, loss: str | None = None, optimizer: str = "sgd", dtype: str = "fp32", *,
                 lr: float | None = None, **options: Any):
        compiles, reads, opens = divide(options, *_MODULE_STRUCTS)
        compiles.update(loss=loss, optimizer=optimizer if lr is None else f"{optimizer},lr={float(lr)!r}")
        if is_compiled(model) and (loss is not None or options.keys() - opens.keys()):
            raise UsageError(f"{os.fspath(model)} is compiled: loss and options of the compiler are in it")
        self._context = Context()
        self._module = compiled_module(self._context, model, reads, precision(dtype) | compiles)
        self.summary = text(lib.ampc_module_summary(self._module))
        self._session = Session(self._context, self._module, **opens)
        self._result = ffi.new("ampc_step_result *", {"struct_size": ffi.sizeof("ampc_step_result")})
        self._number = ffi.new("double *")
        for graph in ("train_step", "apply"):  # for Step.norm
            if self._names(graph, missing=True):
                self._session.select(graph, ["grad_norm"])

    # ---- steps

    def _arrays(self, positional: Mapping[str, Any] | None, arrays: dict[str, Any]) -> dict[str, Any]:
        return {**positional, **arrays} if positional else arrays

    def step(self, batch: Mapping[str, Any] | None = None, /, **arrays: Any) -> Step:
        """Forward, backward and update on one batch.

        Args:
            **arrays: one per input, the label included: [batch, ..] as `inputs` has them. They are read in place if
                their type is that of the input. `batch` is a dict, for names that Python does not allow as keywords.

        Raises:
            RejectedError: an input is missing or does not fit. NumericError: the loss is not finite although no loss
                scale can explain it, or 50 steps in a row were skipped.
        """
        with Inputs(self._context, self._arrays(batch, arrays)) as (tensors, count):
            self._context.check(lib.ampc_train_step(self._session.handle, tensors, count, self._result))
            return made(self._result)

    def accumulate(self, batch: Mapping[str, Any] | None = None, /, **arrays: Any) -> float:
        """Adds the gradients of a micro-batch to sums, and returns its loss. Needs Trainer(accumulate=N)."""
        with Inputs(self._context, self._arrays(batch, arrays)) as (tensors, count):
            self._context.check(lib.ampc_accumulate(self._session.handle, tensors, count, self._number))
            return float(self._number[0])

    def unscale(self) -> tuple[float, bool]:
        """Turns the sums into mean gradients in f32 without loss scale: their norm, and whether one is not finite."""
        found = ffi.new("int *")
        with self._context as c:
            c.check(lib.ampc_unscale(self._session.handle, self._number, found))
            return self._number[0], bool(found[0])

    def apply(self) -> Step:
        """Updates by the mean gradients, and ends the window of micro-batches."""
        with self._context as c:
            c.check(lib.ampc_apply(self._session.handle, self._result))
            return made(self._result)

    def gradients(self) -> dict[str, np.ndarray]:
        """The gradients of the window by parameter: sums with the loss scale before unscale(), then means."""
        start = "grad_sum/"
        return {key[len(start):]: self._session.get(key) for key in self._session.keys() if key.startswith(start)}

    def set_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Replaces gradients of the window, as apply() uses them."""
        for name, value in gradients.items():
            self._session.set(f"grad_sum/{name}", value)

    def eval_step(self, batch: Mapping[str, Any] | None = None, /, **arrays: Any) -> float:
        """The loss of a batch in inference form. Changes nothing."""
        with Inputs(self._context, self._arrays(batch, arrays)) as (tensors, count):
            self._context.check(lib.ampc_eval_step(self._session.handle, tensors, count, self._number))
            return float(self._number[0])

    # ---- data sets

    def fit(self, data: Any, *, epochs: int | None = None, steps: int | None = None, batch: int = 0,
            validation: Any = None, callback: Callable[[Step], Any] | None = None, progress: bool | None = None,
            options: str = "", **training: Any) -> History:
        """Trains on a data set.

        Args:
            data: a dict of arrays [samples, ..] by input, or a tuple of them in the order of `inputs` (read in place);
                a data spec of docs/data.md, such as "npz:FILE"; an object with an item per sample (a dict or tuple),
                such as a torch Dataset; or an iterable of batches, such as a torch DataLoader, or a function that
                returns one for each epoch.
            epochs, steps: how long; one of the two.
            batch: samples of a step; 0: the fixed batch of the model, otherwise 32. Iterables have their own.
            validation: samples to evaluate on after each epoch, in any of these forms; or a fraction such as 0.1 of
                `data` to hold out, for data that are not iterable.
            callback: called with each Step; a true result ends the training.
            progress: shows a bar (tqdm, if that package is there); by default on terminals and in notebooks.
            options: settings of a data spec for arrays and items, such as "order=file".
            **training: members of ampc_train_options: seed, lr, lr_schedule, checkpoint_dir, resume, metrics, best,
                early_stop, log, tensorboard, .. Iterables allow metrics only.

        Returns:
            The steps and evaluations. After KeyboardInterrupt the state is that after the last step, and saved if there
            is a checkpoint_dir.

        Raises:
            As step, and what `data` and `callback` raise.
        """
        if (epochs is None) == (steps is None):
            raise UsageError("one of epochs and steps must be given")
        if isinstance(validation, float) and not 0 < validation < 1:
            raise UsageError(f"validation: a fraction is between 0 and 1, not {validation}")
        history = History()
        with self._context, Bar(progress, epochs, steps) as bar:

            def after(step: Step) -> bool:
                history.steps.append(step)
                bar.show(step)
                return bool(callback(step)) if callback else False

            if _data.is_spec(data) or _data.has_rows(data):
                self._fit_rows(data, history, after, epochs=epochs, steps=steps, batch=batch, validation=validation,
                               options=options, **training)
            else:
                self._fit_batches(data, history, after, epochs, steps, validation, **training)
        return history

    def _fit_rows(self, data: Any, history: History, after: Callable[[Step], bool], *, validation: Any, options: str,
                  epochs: int | None, steps: int | None, batch: int, **training: Any) -> None:
        sets: list[_data.Dataset] = []
        raised: list[BaseException] = []

        def opened(source: Any, settings: str) -> Any:
            sets.append(self._opened(source, settings))
            return sets[-1].handle

        def failed(_kind: Any, error: BaseException, _trace: Any) -> None:
            raised.append(error)

        def stepped(_user: Any, result: Any) -> int:
            return after(made(result))

        def evaluated(_user: Any, step: int, result: Any) -> None:
            history.evaluations.append(Evaluation(result, step))

        fraction = validation if isinstance(validation, float) else None
        held = f"validation={fraction!r}" if fraction else ""
        if _data.is_spec(data):
            training["data"] = ",".join(s for s in (data, options, held) if s)
        else:
            training["dataset"] = opened(data, ",".join(s for s in (options, held) if s))
        if fraction:
            training["eval_data" if "data" in training else "eval_dataset"] = training.get("data") or training["dataset"]
        elif _data.is_spec(validation):
            training["eval_data"] = validation
        elif validation is not None:
            training["eval_dataset"] = opened(validation, "")
        progress = ffi.callback("int(void *, const ampc_step_result *)", stepped, error=1, onerror=failed)
        told = ffi.callback("void(void *, int64_t, const ampc_evaluation *)", evaluated, onerror=failed)
        how = Options("ampc_train_options", epochs=epochs, steps=steps, batch=batch or self._batch(), **training)
        how.pointer.progress = progress
        how.pointer.evaluated = told if validation is not None else ffi.NULL
        status = lib.ampc_train(self._session.handle, how.pointer)
        raised = [s.raised for s in sets if s.raised] + raised
        if raised:
            raise raised[0]
        self._context.check(status)

    def _fit_batches(self, data: Any, history: History, after: Callable[[Step], bool], epochs: int | None,
                     steps: int | None, validation: Any, metrics: Any = None, **training: Any) -> None:
        if training:
            raise UsageError(f"{next(iter(training))}: not available for an iterable of batches, only for arrays, items "
                             "and data specs")
        if isinstance(validation, float):
            raise UsageError("validation: a fraction of an iterable cannot be held out; give data to evaluate on")
        names = self._names("train_step")
        taken, epoch = 0, 0
        while (epochs is None or epoch < epochs) and (steps is None or taken < steps):
            source = _data.one_pass(data)
            before, ended = taken, False
            total = len(source) if hasattr(source, "__len__") else 0
            for arrays in source:
                taken += 1
                step = self.step(_data.named(arrays, names))
                within = (taken - before) / total if total else 0
                ended = after(step._replace(epoch=epoch + within)) or taken == steps
                if ended:
                    break
            if taken == before:
                raise UsageError("the iterable has no batches" + (" in the second pass; a generator can be read once: "
                                 "give a function that makes one" if epoch else ""))
            epoch += 1
            if validation is not None:
                found = self.evaluate(validation, metrics=metrics)
                found.step = int(self._session.number("state/step"))
                history.evaluations.append(found)
            if ended:
                break

    def evaluate(self, data: Any, *, metrics: str | Sequence[str] | None = None, batch: int = 0,
                 options: str = "") -> Evaluation:
        """The loss and metrics over every sample of a data set, in any form that fit accepts.

        Args:
            metrics: such as "accuracy,top5,confusion" or a list; None: those that belong to the loss.
            batch: samples of a run; 0: chosen automatically. The result does not depend on it.
        """
        found = ffi.new("ampc_evaluation *", {"struct_size": ffi.sizeof("ampc_evaluation")})
        chosen = ffi.NULL if metrics is None else encode(metrics if isinstance(metrics, str) else ",".join(metrics))
        with self._context as c:
            if _data.is_spec(data):
                c.check(lib.ampc_evaluate_metrics(self._session.handle, encode(data), batch, chosen, found))
                return Evaluation(found)
            opened = self._opened(data, options)
            status = lib.ampc_evaluate_data(self._session.handle, opened.handle, batch, chosen, found)
            if opened.raised:
                raise opened.raised
            c.check(status)
            return Evaluation(found)

    def _opened(self, data: Any, options: str) -> _data.Dataset:
        names = self._names("train_step", missing=True) or self._names("infer")
        return _data.Dataset(self._context, data if _data.has_rows(data) else _data.collected(data, names), names, options)

    def predict(self, data: Any = None, /, *, batch: int = 0, **arrays: Any) -> dict[str, np.ndarray]:
        """The outputs of the model by name, for every sample of arrays or a data spec, in their order.

        Args:
            data: as for evaluate; labels in it are ignored. Arrays may be given as keywords instead.
            batch: samples of a run; 0: all at once for arrays given by keywords, otherwise chosen automatically.
        """
        if arrays and not batch:
            with Inputs(self._context, arrays) as (tensors, count):
                self._context.check(lib.ampc_session_run(self._session.handle, encode("infer"), tensors, count))
            return {name: self._session.get(f"output/{name}") for name in self.outputs}
        with tempfile.TemporaryDirectory() as folder, self._context as c:
            path = os.path.join(folder, "outputs.npz")
            if _data.is_spec(data):
                c.check(lib.ampc_predict(self._session.handle, encode(data), batch, encode(path)))
            else:
                opened = self._opened(data if data is not None else arrays, "")
                status = lib.ampc_predict_data(self._session.handle, opened.handle, batch, encode(path))
                if opened.raised:
                    raise opened.raised
                c.check(status)
            with np.load(path) as outputs:
                return {name.removeprefix("output/"): outputs[name] for name in outputs.files}

    # ---- inputs and outputs

    def _described(self, graph: str, kind: str) -> list[Input]:
        return [Input(text(i.name), tuple(text(i.dim_names[k]) if i.dims[k] < 0 else i.dims[k] for k in range(i.rank)),
                      DTYPES[i.dtype]) for i in described(self._context, self._module, graph, kind)]

    def _names(self, graph: str, missing: bool = False) -> list[str]:
        try:
            return [i.name for i in self._described(graph, "input")]
        except UsageError:  # the module has no graph of this name
            if missing:
                return []
            raise

    def _batch(self) -> int:
        first = [i.shape[0] for i in self._described("train_step", "input") if i.shape]
        return 0 if first and isinstance(first[0], int) else 32

    @property
    def inputs(self) -> list[Input]:
        """The inputs of step, the label included, in the order of tuples of data."""
        return self._described("train_step", "input")

    @property
    def outputs(self) -> list[str]:
        """The names of the model's outputs."""
        return [o.name for o in self._described("infer", "output")]

    # ---- state

    def keys(self) -> list[str]:
        """Keys of all states for get and set: param/NAME, buf/NAME, opt/SLOT/NAME, state/lr .. (head of ampc.h)."""
        return self._session.keys()

    def get(self, key: str) -> np.ndarray:
        """A copy of the state or result with this key."""
        return self._session.get(key)

    def set(self, key: str, value: Any) -> None:
        """Overwrites the state with this key; `value` has its shape, and is converted to its type."""
        self._session.set(key, value)

    def select(self, graph: str, results: Iterable[str] | None) -> None:
        """Restricts later runs of a graph to these results, such as ["loss", "grad_norm"]; None: all of them."""
        self._session.select(graph, results)

    @property
    def lr(self) -> float:
        """The learning rate, which may be set between steps."""
        return self._session.number("state/lr")

    @lr.setter
    def lr(self, value: float) -> None:
        self._session.set_number("state/lr", value)

    @property
    def loss_scale(self) -> float:
        """The loss scale; 1 without loss scaling."""
        return self._session.number("state/loss_scale") if "state/loss_scale" in self.keys() else 1.0

    def set_loss_scaling(self, enabled: bool) -> None:
        """Switches loss scaling off (the scale is 1), or on again with its initial scale."""
        with self._context as c:
            c.check(lib.ampc_set_loss_scaling(self._session.handle, bool(enabled)))

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the parameters, in f32, and of the statistics of normalizations, by their names in the model: for an
        exported PyTorch module those of module.state_dict()."""
        return {key.split("/", 1)[1]: self._session.get(key) for key in self._session.keys()
                if key.startswith(("param/", "buf/"))}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Overwrites parameters and statistics by name.

        Raises:
            UsageError: a shape differs, or, if `strict`, a name is missing or unknown; nothing is loaded then.
        """
        keys = {key.split("/", 1)[1]: key for key in self._session.keys() if key.startswith(("param/", "buf/"))}
        if strict and (wrong := sorted(keys.keys() ^ state.keys())):
            missing = [n for n in wrong if n in keys]
            extra = [n for n in wrong if n not in keys]
            raise UsageError("; ".join(f"{what}: {', '.join(names)}" for what, names in
                                       (("missing", missing), ("not in the model", extra)) if names))
        before = {name: self._session.get(key) for name, key in keys.items() if name in state}
        try:
            for name in before:
                self._session.set(keys[name], state[name])
        except BaseException:
            for name, value in before.items():
                self._session.set(keys[name], value)
            raise

    def save(self, path: Path_) -> None:
        """Writes the whole training state to a safetensors file, which appears when it is complete."""
        with self._context as c:
            c.check(lib.ampc_checkpoint_save(self._session.handle, encode(path), ffi.NULL))

    def load(self, path: Path_, *, weights_only: bool = False, reset_optimizer: bool = False,
             reinit: Sequence[str] | None = None) -> None:
        """Loads what save has written. With weights_only also weights of other programs, such as a state_dict of PyTorch
        as safetensors; parameters that match a glob of `reinit` are left alone. See ampc_checkpoint_load_with."""
        how = Options("ampc_load_options", weights_only=weights_only, reset_optimizer=reset_optimizer, reinit=reinit)
        with self._context as c:
            c.check(lib.ampc_checkpoint_load_with(self._session.handle, encode(path), how.pointer, ffi.NULL))

    def export(self, path: Path_, *, model: str | None = None) -> None:
        """Writes the trained model for inference as ONNX, with the imported names and opset; `model` is one of a
        recipe."""
        with self._context as c:
            c.check(lib.ampc_export_onnx(self._session.handle, encode(path)) if model is None
                    else lib.ampc_export_model(self._session.handle, encode(model), encode(path)))

    def __repr__(self) -> str:
        return f"<ampc.Trainer: {self.summary}>"


class Bar:
    """The progress of fit, by tqdm if that package is there, otherwise a line on a terminal. Drawn ten times a second."""

    def __init__(self, wanted: bool | None, epochs: int | None, steps: int | None):
        self.bar: Any = None
        self.plain = False
        self.total: float = epochs if epochs is not None else steps or 0
        self.unit = "epoch" if epochs is not None else "step"
        self.next = 0.0
        self.started: int | None = None
        self.last: Step | None = None
        notebook = "ipykernel" in sys.modules
        if wanted if wanted is not None else notebook or sys.stderr.isatty():
            try:
                from tqdm.auto import tqdm
                self.bar = tqdm(total=self.total, unit=self.unit, bar_format="{l_bar}{bar}| {n:.2f}/{total} "
                                "[{elapsed}<{remaining}{postfix}]")
            except ImportError:
                self.plain = True

    def __enter__(self) -> Bar:
        return self

    def show(self, step: Step, last: bool = False) -> None:
        self.last = step
        now = time.monotonic()
        if not (self.bar or self.plain) or now < self.next and not last:
            return
        self.next = now + 0.1
        if self.started is None:
            self.started = step.step - 1
        done = step.epoch if self.unit == "epoch" else step.step - self.started
        told = f"loss {step.loss:.4g}" + (f", scale {step.scale:g}" if step.scale != 1 else "")
        if self.bar:
            self.bar.n = done
            self.bar.set_postfix_str(told)
        else:
            print(f"\r{self.unit} {done:.2f}/{self.total:g}, {told}\x1b[K", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.last:
            self.show(self.last, last=True)
        if self.bar:
            self.bar.close()
        elif self.plain:
            print(file=sys.stderr)
