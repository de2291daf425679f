"""What measure_infer.py and measure_train.py share: runs of programs in turn, and ratios of their figures."""
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

here = Path(__file__).resolve().parent
build, models, threads, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
python = sys.argv[5] if len(sys.argv) > 5 and sys.argv[5] else "/usr/bin/python3"
environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}


def require(modules):
    """Ends the program, which measures nothing, if PYTHON lacks one of the modules; else returns their versions."""
    code = "import importlib.metadata as m; " + "; ".join(f"import {name}" for name in modules)
    code += "; print(', '.join(n + ' ' + m.version(n) for n in %r))" % (modules,)
    probe = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if probe.returncode != 0:
        print(f"skipped: give a --python that has {', '.join(modules)}")
        sys.exit(0)
    return probe.stdout.strip()


def pin():
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


def run(*command):
    """The JSON object that the command prints, with the peak of its resident memory in MB as "peak"."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen([str(c) for c in command], stdout=out, stderr=err, env=environment, preexec_fn=pin)
        _, status, usage = os.wait4(child.pid, 0)
        out.seek(0), err.seek(0)
        if status != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{err.read()}")
        return {**json.load(out), "peak": usage.ru_maxrss / 1024}


def ampc(path, *options, steps):
    return run(build / "ampc-run", "bench", path, *options, "--threads", threads, "--warmup", 3, "--iterations", steps, "--json")


def exported(part):
    """The networks of a part of networks.py, which PYTHON exports if their files do not exist."""
    listing = subprocess.run([python, here / "export_networks.py", part, models], stdout=subprocess.PIPE, text=True)
    if listing.returncode != 0:
        sys.exit(listing.returncode)
    return json.loads(listing.stdout)


def in_turn(contenders):
    """Runs each contender once per round: a list of {name: figures}."""
    return [{name: contend() for name, contend in contenders.items()} for _ in range(rounds)]


def figure(seen, name, key="median_ms"):
    return median(r[name][key] for r in seen)


def ratio(seen, theirs, name):
    """How many times as fast `name` is as `theirs`: the median of the ratios within a round."""
    return median(r[theirs]["median_ms"] / r[name]["median_ms"] for r in seen)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))
