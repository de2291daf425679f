"""The suite for machines with a GPU: correctness, training, sanitizers, recordings, benchmark. See tools/gpu-check.

usage: check.py BUNDLE [--quick] [OUT]

OUT gets results.json (everything), results.md (the tables), benchmark.svg, device.json and lt.json (for the doubles),
and a log of each program. Every step has a budget of seconds; what does not fit is skipped by name.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

bundle = Path(sys.argv[1])
quick = "--quick" in sys.argv
out = Path(next((a for a in sys.argv[2:] if a != "--quick"), bundle / "results")).resolve()
out.mkdir(parents=True, exist_ok=True)
began, limit = time.monotonic(), 175 if quick else 470
environment = dict(os.environ, AMPC_GOLDENS=str(bundle / "goldens"), OMP_WAIT_POLICY="passive",
                   LD_LIBRARY_PATH=f"{bundle / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}")
results = {"version": (bundle / "version").read_text().strip(), "quick": quick, "checks": [], "benchmark": []}


def left():
    return limit - (time.monotonic() - began)


def run(name, command, budget, **more):
    """Its exit status, output and seconds; None and "no time" when there is none left."""
    budget = min(budget, left())
    if budget < 5:
        return None, "no time left", 0.0
    start = time.monotonic()
    try:
        done = subprocess.run([str(c) for c in command], env={**environment, **more}, timeout=budget, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", cwd=out)
        status, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as e:
        status, text = 124, (e.stdout or b"").decode(errors="replace") + f"\nstopped after {budget:.0f} s"
    except OSError as e:
        status, text = 127, str(e)
    (out / f"{re.sub('[^A-Za-z0-9.-]+', '_', name)}.log").write_text(text)
    return status, text, time.monotonic() - start


def note(name, verdict, seconds=0.0, **facts):
    results["checks"].append({"name": name, "verdict": verdict, "seconds": round(seconds, 2), **facts})
    print(f"{verdict.upper():5} {name}" + "".join(f"  {k} {v}" for k, v in facts.items()), flush=True)


def check(name, command, budget, **more):
    status, text, seconds = run(name, command, budget, **more)
    if status is None:
        note(name, "skip", reason=text)
    else:
        last = text.strip().splitlines()[-1:] or [""]
        note(name, "pass" if status == 0 else "fail", seconds, **({} if status == 0 else {"status": status, "says": last[0]}))
    return status == 0, text


def cmocka(name, command, budget, **more):
    """A CMocka program: one check for each of its tests."""
    status, text, seconds = run(name, command, budget, **more)
    if status is None:
        return note(name, "skip", reason=text)
    seen = re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] (.+)$", text, re.M)
    tests = dict((test, verdict) for verdict, test in seen if not re.match(r"^\d+ test", test))
    for test, verdict in tests.items():
        note(f"{name}.{test}", {"OK": "pass", "FAILED": "fail", "SKIPPED": "skip"}[verdict])
    if status not in (0,) and "FAILED" not in tests.values():
        note(name, "fail", seconds, status=status, says=(text.strip().splitlines() or [""])[-1])


# ---- correctness: every kernel row, every golden ----

binary = bundle / "bin"


def correctness():
    cmocka("ops", [binary / "ops_ops", "--device=cuda"], 120)
    cmocka("ops_matmul", [binary / "ops_ops_matmul", "--device=cuda"], 60)
    cmocka("ops_update", [binary / "ops_ops_update", "--device=cuda"], 30)
    cmocka("ops_programs", [binary / "ops_ops_programs", "--device=cuda"], 60, OPS_PROGRAMS="40" if quick else "200")
    cmocka("goldens", [binary / "gpu-goldens", *(["mlp*"] if quick else [])], 120)


# ---- training of the demonstration net ----

def training():
    data = f"idx:{bundle / 'data'}" if (bundle / "data").is_dir() else "synthetic"
    for amp, dtype in (("O0", "fp16"), ("O1", "bf16"), ("O1", "fp16")):
        name = f"train.{'fp32' if amp == 'O0' else dtype}"
        options = ["--loss=ce", "--optimizer=momentum", f"--amp={amp}", f"--dtype={dtype}", "--init=kaiming"]
        ok, _ = check(f"{name}.compile", [binary / "ampc", bundle / "models/mnist.onnx", "-o", out / f"{name}.ir", *options], 30)
        if not ok:
            continue
        status, text, seconds = run(name, [binary / "ampc-run", "train", out / f"{name}.ir", "--device=cuda", f"--data={data}",
                                           "--batch=64", "--steps=100" if quick else "--epochs=3", "--json"], 60)
        answer = last_json(text)
        good = status == 0 and answer and (data == "synthetic" or quick or answer.get("accuracy", 0) > 0.8)
        note(name, "skip" if status is None else "pass" if good else "fail", seconds, **(answer or {"says": text[-200:]}))


def last_json(text):
    for line in reversed(text.strip().splitlines()):
        try:
            value = json.loads(line)
            if isinstance(value, dict):
                return value
        except ValueError:
            pass
    return None


# ---- compute-sanitizer ----

def sanitizers():
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    for kind in ["memcheck"] if quick else ["memcheck", "racecheck", "synccheck", "initcheck"]:
        name = f"sanitizer.{kind}"
        if not tool:
            note(name, "skip", reason="there is no compute-sanitizer")
            continue
        status, text, seconds = run(name, [tool, "--tool", kind, "--error-exitcode", "9", binary / "gpu-goldens", "mlp* fp16"], 45)
        refused = status not in (0, 9) and re.search(r"not supported|unsupported|failed to init|Unable to", text, re.I)
        if status is None or status == 124 or refused:
            note(name, "skip", seconds, reason="no time" if status in (None, 124) else refused.group(0))
        else:
            note(name, "pass" if status == 0 else "fail", seconds, says=text.strip().splitlines()[-1])


# ---- benchmark ----

MODELS = {"mlp": dict(batch=512, loss="mse", optimizer="sgd"), "resnet50": dict(batch=256, loss="ce", optimizer="momentum"),
          "bert": dict(batch=256, loss="ce", optimizer="adamw"), "gpt2": dict(batch=32, loss="ce", optimizer="adamw")}
PRECISIONS = {"fp32": ["--amp=O0"], "fp16": ["--amp=O1", "--dtype=fp16"], "bf16": ["--amp=O1", "--dtype=bf16"]}


def bench_ours(model, precision, batch, loss, optimizer):
    module = out / f"{model}.{precision}.ir"
    status, text, _ = run(f"bench.{model}.{precision}.compile",
                          [binary / "ampc", bundle / f"models/{model}.onnx", "-o", module, f"--loss={loss}",
                           f"--optimizer={optimizer}", "--init=kaiming", *PRECISIONS[precision]], 60)
    if status != 0:
        return {"error": text.strip().splitlines()[-1] if text.strip() else str(status)}
    status, text, _ = run(f"bench.{model}.{precision}",
                          [binary / "ampc-run", "bench", module, "--device=cuda", f"--batch={batch}", "--iterations=20",
                           "--warmup=5", "--json"], 60)
    for file in out.glob(f"{model}.{precision}.*safetensors"):
        file.unlink()
    return last_json(text) or {"error": text.strip().splitlines()[-1] if text.strip() else str(status)}


def bench_torch(model, batch):
    command = [sys.executable, bundle / "torch_bench.py", model, batch, "quick" if quick else "all"]
    status, text, _ = run(f"bench.{model}.torch", command, 25 if quick else 70)
    return last_json(text) or {"error": text.strip().splitlines()[-1] if text.strip() else str(status)}


def benchmark():
    for model, facts in MODELS.items():
        if quick and model != "mlp":
            continue
        row = {"model": model, "batch": facts["batch"]}
        for precision in PRECISIONS:
            if left() > 20:
                row[precision] = bench_ours(model, precision, **facts)
        row["torch"] = bench_torch(model, facts["batch"]) if left() > 20 else {"error": "no time left"}
        results["benchmark"].append(row)
        ours = row.get("fp16", {}).get("median_ms")
        if ours:
            note(f"bench.{model}", "pass", ms=ours, torch=row["torch"].get("best_ms"))
        else:
            note(f"bench.{model}", "skip", reason=str(row.get("fp16", {}).get("error"))[:160])


def table():
    def cell(value):
        return f"{value:.3g}" if isinstance(value, (int, float)) else "-"

    heads = ["model", "batch", "fp32 ms", "fp16 ms", "bf16 ms", "torch eager ms", "torch.compile ms", "torch / ampc fp16",
             "fp32 / fp16"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in results["benchmark"]:
        ms = [row.get(p, {}).get("median_ms") for p in PRECISIONS]
        eager, compiled, best = (row["torch"].get(k) for k in ("eager_ms", "compile_ms", "best_ms"))
        ratios = [best / ms[1] if best and ms[1] else None, ms[0] / ms[1] if ms[0] and ms[1] else None]
        cells = [row["model"], str(row["batch"]), *map(cell, [*ms, eager, compiled, *ratios])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def drawing():
    bars = []
    for row in results["benchmark"]:
        ours, theirs = row.get("fp16", {}).get("median_ms"), row["torch"].get("best_ms")
        bars += [(f"{row['model']} {who}", ms) for who, ms in (("ampc fp16", ours), ("torch", theirs)) if ms]
    most = max((v for _, v in bars), default=1)
    body = "".join(f'<text x="4" y="{i * 24 + 17}">{name}</text><rect x="140" y="{i * 24 + 4}" height="16" '
                   f'width="{500 * value / most:.1f}" fill="{"#3465a4" if "ampc" in name else "#babdb6"}"/>'
                   f'<text x="{146 + 500 * value / most:.1f}" y="{i * 24 + 17}">{value:.3g} ms</text>'
                   for i, (name, value) in enumerate(bars))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{len(bars) * 24 + 8}" font-family="sans-serif" '
            f'font-size="12">{body}</svg>\n')


# ---- all of it ----

status, text, _ = run("record", [binary / "gpu-record", out], 60)
note("record", "pass" if status == 0 else "fail", **({} if status == 0 else {"says": text.strip()[-200:]}))
query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
results["nvidia-smi"] = run("nvidia-smi", query, 10)[1].strip()
correctness()
training()
benchmark()
sanitizers()
counts = [sum(c["verdict"] == v for c in results["checks"]) for v in ("pass", "fail", "skip")]
summary = "{} passed, {} failed, {} skipped".format(*counts)
results["summary"], results["seconds"] = summary, round(time.monotonic() - began, 1)
(out / "results.json").write_text(json.dumps(results, indent=1))
failed = "".join(f"- {c['name']}: {c.get('says', '')}\n" for c in results["checks"] if c["verdict"] == "fail")
(out / "results.md").write_text(f"{time.strftime('%Y-%m-%d')}, {results['nvidia-smi']}, ampc {results['version']}: {summary}\n\n"
                                f"{table()}\n{failed}")
(out / "benchmark.svg").write_text(drawing())
print(summary)
sys.exit(1 if counts[1] else 0)
