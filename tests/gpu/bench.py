"""The parts `bench` and `torch`: training steps of whole models, ours and PyTorch's, one after the other on one clock.

`bench` measures, for each precision and model: our step, PyTorch's quick modes, our step again; then Nsight Compute
looks at our slowest steps. `torch` measures the modes of PyTorch that compile for minutes.
"""

import collections
import re
import shutil
import statistics

import steps as slow_steps
from session import complaint, last_json

# One row of the table: `name` of the row, `model` (file and argument of torch_bench.py), batch size,
# training options, and the precisions for which 80 GB may be too little.
Model = collections.namedtuple("Model", "name model batch loss optimizer may_not_fit", defaults=((),))
MODELS = [  # most informative first
    Model("mlp-b512", "mlp", 512, "mse", "sgd"),
    Model("resnet50-b256", "resnet50", 256, "ce", "momentum"),
    Model("bert-b32", "bert", 32, "ce", "adamw"),
    Model("gpt2-b8", "gpt2", 8, "ce", "adamw"),
    Model("bert-b256", "bert", 256, "ce", "adamw"),
    Model("gpt2-b32", "gpt2", 32, "ce", "adamw", ("fp32",)),
]
PRECISIONS = {"fp16": ["--amp=O1", "--dtype=fp16"], "bf16": ["--amp=O1", "--dtype=bf16"], "fp32": ["--amp=O0"]}
QUICK_MODES, SLOW_MODES = ["eager", "graph"], ["default", "default-graph", "max-autotune"]
NO_MEMORY = 7  # AMPC_NO_MEMORY
FREE_DISK = 4 << 30  # bytes that compiling a model may need


def cases(run):
    """Returns [(model, precision)] in the order of measurement."""
    options = run.options
    wanted = options.models.split(",") if options.models else ["mlp-b512"] if options.quick else None
    precisions = [p for p in options.precisions.split(",") if p in PRECISIONS][: 1 if options.quick else None]
    chosen = [m for m in MODELS if not wanted or m.name in wanted or m.model in wanted]
    return [(model, precision) for precision in precisions for model in chosen]


def entry(run, model, precision):
    """Returns the figures of a case."""
    return run.facts.setdefault("benchmark", {}).setdefault(
        f"{model.name}.{precision}", {"model": model.name, "batch": model.batch, "precision": precision}
    )


def verdict_of(model, precision, done):
    """Returns (verdict, reason) of a command that failed."""
    if done.stopped == "no time left":
        return "skip", done.stopped
    is_memory = done.status == NO_MEMORY or re.search(r"out of memory", done.text, re.I)
    if is_memory and precision in model.may_not_fit:
        return "skip", f"does not fit: {complaint(done)}"
    return "fail", complaint(done)


# ---- AMPC ----


def compile_module(run, model, precision):
    """Returns the compiled model, which all batches of a precision share, or None if it cannot be compiled."""
    module = run.work / f"{model.model}.{precision}.ir"
    if module.exists():
        return module
    name = f"bench.{model.model}.{precision}.compile"
    for other in run.work.glob("*.ir"):
        if not other.name.endswith(f".{precision}.ir"):  # left from the previous precision
            remove_module(other)
    free = shutil.disk_usage(run.work).free
    if free < FREE_DISK:
        return run.note(name, "fail", says=f"{free >> 20} MiB are free in {run.work}, {FREE_DISK >> 20} MiB are needed")
    source = run.options.bundle / f"models/{model.model}.onnx"
    done = run.check(
        name,
        [
            run.program("ampc"),
            source,
            "-o",
            module,
            f"--loss={model.loss}",
            f"--optimizer={model.optimizer}",
            "--init=kaiming",
            "--fuse-attention",
            "--pad",
            *PRECISIONS[precision],
        ],
        60,
    )
    if done.status == 0:
        return module
    remove_module(module)
    return None


def remove_module(module):
    for path in module.parent.glob(module.name.removesuffix("ir") + "*"):
        path.unlink()


def plan(run, model, precision, module):
    """Returns the plan as a dictionary, or None, and adds its figures to the case."""
    name = f"plan.{model.name}.{precision}"
    device = run.options.plan_only or "cuda"
    done = run.run(
        name, [run.program("ampc-run"), "plan", module, f"--device={device}", f"--batch={model.batch}", "--json", "-q"], 120
    )
    answer = last_json(done.text)
    if done.status != 0 or not answer or "steps" not in answer:
        verdict, reason = verdict_of(model, precision, done)
        run.note(name, verdict, done.seconds, says=reason if done.status else "the answer has no steps")
        return None
    figures = {key: answer.get(key) for key in ("launches", "bytes", "flops", "arena_bytes", "planned_bytes")}
    entry(run, model, precision).update(figures)
    run.note(name, "pass", done.seconds, **figures)
    return answer


def bench(run, model, precision, module, trace):
    """Runs `ampc-run bench` once and returns its output, or None."""
    name = f"bench.{model.name}.{precision}"
    known = entry(run, model, precision)
    profile = [f"--trace={trace}"] if not trace.exists() else []
    done = run.run(
        f"{name}.{len(known.get('runs', [])) + 1}",
        [
            run.program("ampc-run"),
            "bench",
            module,
            "--device=cuda",
            f"--batch={model.batch}",
            "--iterations=20",
            "--warmup=5",
            "--json",
            *profile,
        ],
        120,
    )
    answer = last_json(done.text)
    if done.status != 0 or not answer or "median_ms" not in answer:
        verdict, reason = verdict_of(model, precision, done)
        run.note(name, verdict, done.seconds, **{"reason" if verdict == "skip" else "says": reason})
        return None
    known.setdefault("runs", []).append(answer)
    for key in ("median_ms", "p90_ms", "with_input_median_ms", "with_input_p90_ms"):
        values = [one[key] for one in known["runs"] if isinstance(one.get(key), (int, float))]
        if values:
            known[key] = statistics.median(values)
    known["clock"] = answer.get("clock")
    known["used_bytes"] = answer.get("device_used_bytes")
    known.setdefault("planned_bytes", answer.get("planned_bytes"))
    return answer


def ours_and_theirs(run, model, precision):
    module = compile_module(run, model, precision)
    if not module:
        return
    planned = plan(run, model, precision, module)
    if run.options.plan_only:
        return
    trace = run.files / run.part / f"{model.name}.{precision}.trace.json"
    if bench(run, model, precision, module, trace):
        torch_modes(run, model, precision, QUICK_MODES, 90)
        bench(run, model, precision, module, trace)
    known, name = entry(run, model, precision), f"bench.{model.name}.{precision}"
    if "median_ms" not in known or run.facts["checks"].get(name, {}).get("verdict") == "fail":
        return
    run.note(name, "pass", ms=known["median_ms"], torch_ms=best_torch(known))
    if planned:
        known["roofline_ms"] = slow_steps.roofline(planned, precision, run.facts.get("ceilings"))
        known["slowest"] = slow_steps.slowest(run, f"profile.{model.name}.{precision}", planned, trace)


# ---- PyTorch ----


def best_torch(known):
    times = [m["median_ms"] for m in known.get("torch", {}).values() if "median_ms" in m and not m.get("tf32")]
    return min(times, default=None)


def torch_command(run, *arguments):
    return [run.python, run.options.bundle / "suite/torch_bench.py", *map(str, arguments)]


def torch_modes(run, model, precision, modes, budget):
    """Measures modes of PyTorch. Each result is printed immediately, so a mode that runs out of time loses no other."""
    name = f"torch.{model.name}.{precision}"
    if not run.python:
        return run.note(name, "skip", reason="no Python with PyTorch was found")
    known = entry(run, model, precision).setdefault("torch", {})
    tf32 = ["--tf32"] if precision == "fp32" and "graph" in modes else []
    done = run.run(f"{name}.{modes[0]}", torch_command(run, model.model, model.batch, precision, *modes, *tf32), budget)
    problems = []
    for line in done.text.splitlines():
        answer = last_json(line)
        if answer and "mode" in answer:
            known[answer["mode"] + (" tf32" if answer.get("tf32") else "")] = answer
            problems += [f"{answer['mode']}: {answer['error']}"] if "error" in answer else []
    if done.status != 0:
        problems.append(complaint(done))
    measured = [mode for mode in modes if "median_ms" in known.get(mode, {})]
    if measured:
        times = {mode: round(known[mode]["median_ms"], 3) for mode in measured}
        run.note(name, "pass", done.seconds, ms=times, problems="; ".join(problems)[:300])
    else:  # PyTorch is not under test
        run.note(name, "skip", done.seconds, reason="; ".join(problems)[:300] or "no answer")


def ceilings(run):
    """Returns the rates of the roofline: of a copy and of large matrix products."""
    if not run.python:
        return run.note("ceilings", "skip", reason="no Python with PyTorch was found")
    done = run.run("ceilings", torch_command(run, "--ceilings"), 120)
    answer = last_json(done.text)
    if done.status == 0 and answer:
        run.facts["ceilings"] = answer
        run.note("ceilings", "pass", done.seconds, **answer)
    else:
        run.note("ceilings", "fail", done.seconds, says=complaint(done))


# ---- the parts ----


def part(run):
    if not run.options.plan_only:
        ceilings(run)
    chosen = cases(run)
    for at, (model, precision) in enumerate(chosen):
        if run.left() < 10:
            run.note(f"bench.{model.name}.{precision}", "skip", reason="no time left")
            continue
        ours_and_theirs(run, model, precision)
        is_last = at + 1 == len(chosen) or chosen[at + 1][1] != precision
        if is_last and precision == chosen[0][1] and not run.options.plan_only:
            profile_kernels(run, [m for m, p in chosen if p == precision], precision)


def profile_kernels(run, models, precision):
    for model in models:
        module = run.work / f"{model.model}.{precision}.ir"
        known = entry(run, model, precision)
        if known.get("slowest"):
            command = [
                run.program("ampc-run"),
                "bench",
                module,
                "--device=cuda",
                f"--batch={model.batch}",
                "--iterations=1",
                "--warmup=0",
                "--sync-launch",
            ]
            known["kernels"] = slow_steps.kernels(run, f"ncu.{model.name}.{precision}", command, known["slowest"])


def steps(run):
    return ["ceilings"] + [f"bench.{model.name}.{precision}" for model, precision in cases(run)]


def torch_part(run):
    chosen = cases(run)
    for at, (model, precision) in enumerate(chosen):
        share = run.left() / min(len(chosen) - at, 3)  # the first ones are not limited
        torch_modes(run, model, precision, SLOW_MODES, max(60, share))


def torch_steps(run):
    return [f"torch.{model.name}.{precision}" for model, precision in cases(run)]
