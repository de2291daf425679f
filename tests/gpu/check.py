"""The test suite for machines with a GPU. For its usage see tools/gpu-check, for its contents docs/cuda.md."""

import argparse
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import bench
import checks
import report
import session

NO_DEVICE = 6  # AMPC_DEVICE, also the exit code of this program
# The function of each part, and the step names to report on a machine without a device.
PARTS = {
    "check": (checks.part, checks.steps),
    "sanitize": (checks.sanitizers, checks.sanitizer_steps),
    "engines": (checks.engines, checks.engine_steps),
    "bench": (bench.part, bench.steps),
    "torch": (bench.torch_part, bench.torch_steps),
}
ALL = ("check", "bench", "torch")  # "sanitize" is the end of "check", but has its own time limit; "engines" is rare

# Queries the Python interpreter that has PyTorch, without importing PyTorch, which needs seconds. CUDA
# libraries are in its wheels, in nvidia/*/lib of a package folder.
PROBE = """
import importlib.util, json, os, sys
def folders(name):
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        spec = None
    return [os.path.abspath(p) for p in (spec.submodule_search_locations or [])] if spec else []
torch, nvidia = folders("torch"), folders("nvidia")
paths = [os.path.dirname(p) for p in nvidia + torch] + [os.path.join(p, "lib") for p in torch]
print(json.dumps({"python": sys.executable, "torch": bool(torch), "paths": list(dict.fromkeys(paths))}))
"""


def arguments(argv):
    parser = argparse.ArgumentParser(prog="gpu-check", description="The suite for machines with a GPU.")
    parser.add_argument("out", nargs="?", default="results", type=Path, metavar="OUT")
    parser.add_argument("--only", choices=list(PARTS), help="one part; check, bench and torch in turn by default")
    parser.add_argument("--quick", action="store_true", help="a sample of each part")
    parser.add_argument(
        "--rows", help="check: only rows (trainings) whose name matches one of these patterns: relu*,mlp* fp16"
    )
    here = Path() if Path("tests/goldens").is_dir() else None
    parser.add_argument("--tree", type=Path, default=here, help="the source tree: goldens and test models (default: .)")
    parser.add_argument("--python", help="the Python that has PyTorch (default: python3 on PATH)")
    parser.add_argument("--models", help="bench, torch: only these models, such as mlp,bert-b32")
    parser.add_argument("--precisions", default="fp16,bf16,fp32", help="bench, torch: in this order")
    parser.add_argument("--limit", type=float, help=f"seconds of a part (default {session.LIMIT})")
    tests = parser.add_argument_group("for tests of the suite")
    tests.add_argument("--bundle", type=Path, required=True, help=argparse.SUPPRESS)
    tests.add_argument("--programs", type=Path, help="a folder with other programs of the same names")
    tests.add_argument(
        "--plan-only", type=Path, metavar="DEVICE.json", help="bench: plans for this device, without running"
    )
    tests.add_argument("--slow", type=float, default=1, metavar="N", help="multiplies all budgets")
    tests.add_argument(
        "--tiny", action="store_true", help="short trainings and few random programs: for imitated devices"
    )
    options = parser.parse_args(argv)
    options.out, options.bundle = options.out.resolve(), options.bundle.resolve()
    for name in ("tree", "programs", "plan_only"):  # commands run in a separate folder
        path = getattr(options, name)
        setattr(options, name, path.resolve() if path else None)
    options.programs = options.programs or options.bundle / "bin"
    version = options.bundle / "version"
    options.version = version.read_text().strip() if version.exists() else "unknown"
    return options


def without_variables(environment, pattern):
    return {key: value for key, value in environment.items() if not re.match(pattern, key)}


def environment_of(options):
    """Returns the environment of our programs. LD_LIBRARY_PATH is unchanged: they find their libraries by RPATH."""
    environment = without_variables(os.environ, "CMOCKA_|OPS_|AMPC_TIER")
    environment["OMP_WAIT_POLICY"] = "passive"
    if options.rows:
        environment["OPS_ONLY"] = options.rows
    for variable, folder in (
        ("XDG_CACHE_HOME", "cache"),
        ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
        ("TRITON_CACHE_DIR", "triton"),
    ):
        environment.setdefault(variable, str(options.bundle / "cache" / folder))
    return environment


def find_python(run, options):
    """Asks the Pythons at hand for PyTorch; exports where its CUDA libraries are. A python3 that is a wrapper script is
    found in this way, too: it is run."""
    found = []
    for python in dict.fromkeys([options.python] if options.python else [shutil.which("python3"), sys.executable]):
        done = run.run(f"python.{len(found)}", [python, "-c", PROBE], 60) if python else None
        answer = session.last_json(done.text) if done and done.status == 0 else None
        if answer:
            found.append({**answer, "command": python})
    best = next((f for f in found if f["torch"]), found[0] if found else {"torch": False, "paths": [], "command": None})
    paths = [run.environment.get("AMPC_CUDA_PATH", "")] + best["paths"]
    run.environment["AMPC_CUDA_PATH"] = ":".join(p for p in paths if p)
    run.python = best["command"] if best["torch"] else None
    run.facts["python"], run.facts["cuda_path"] = best.get("python"), run.environment["AMPC_CUDA_PATH"]


def record(run):
    """Makes the recordings for the doubles. Returns whether there is a device."""
    folder = run.files / run.part / "recorded"
    folder.mkdir()
    done = run.run("record", [run.program("gpu-record"), folder], 120)
    if done.status == NO_DEVICE:
        run.facts["no_device"] = session.complaint(done)
        return False
    run.note(
        "record",
        "pass" if done.status == 0 else "fail",
        done.seconds,
        says=None if done.status == 0 else session.complaint(done),
    )
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    smi = run.run("nvidia-smi", query, 20)
    run.facts["device"] = session.last_line(smi.text) if smi.status == 0 else "unknown"
    return True


def run_part(name, options):
    """Runs a part and returns its exit code."""
    run, (part, steps) = session.Session(name, options, environment_of(options)), PARTS[name]
    try:
        find_python(run, options)
        if options.plan_only or record(run):
            part(run)
        else:
            for step in ["record"] + steps(run):
                run.note(step, "skip", reason=run.facts["no_device"])
    except session.Stopped as stopped:
        run.facts["stopped"] = f"by signal {stopped}"
        return 128 + int(str(stopped))
    except Exception as error:  # an error of the suite must not discard the results so far
        run.note("suite", "fail", says=f"{type(error).__name__}: {error}")
        raise
    finally:
        run.close()
        print(f"{name}: {run.facts['summary']}", flush=True)
    return 1 if run.count("fail") else NO_DEVICE if "no_device" in run.facts else 0


def stop(number, frame):
    raise session.Stopped(number)


def main(argv):
    if argv[:1] == ["--report"]:
        return print(report.render(report.merge([json.loads(Path(name).read_text()) for name in argv[1:]])))
    options = arguments(argv)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    code = 0
    for name in [options.only] if options.only else ALL:
        answer = run_part(name, options)
        if answer >= 128:
            return answer
        code = 1 if 1 in (code, answer) else answer or code
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
