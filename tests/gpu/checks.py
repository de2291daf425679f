"""The part `check`: recordings, every row of the numeric tables, networks against the processor, training, sanitizers.

A program of CMocka rows runs as a whole. After an error of the device nothing that runs in the same context can be
trusted: the program is stopped, the failing row runs again under compute-sanitizer, and each later row in a process of
its own.
"""

import fnmatch
import functools
import re
import shutil
import time

from session import complaint, last_json

ROW = re.compile(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] (.+)$")
VERDICT = {"OK": "pass", "FAILED": "fail", "SKIPPED": "skip"}
DEVICE_ERROR = re.compile(r"\bcuda:|CUDA error|CUBLAS_STATUS|cuBLASLt status|CUDNN_STATUS|launch failure", re.I)
NOISE = re.compile(r"^(=========|\[|-+$)|Failure!$|^$")
SANITIZERS = ("memcheck", "racecheck")
SHARDS = 8  # of a table under a sanitizer: the time budget covers a sample spread over all rows
STALL = 120  # seconds without output until a row is considered hung
MOST_REPEATED = 3  # rows per program to repeat under compute-sanitizer


# ---- the output of CMocka ----


def message(lines):
    """Returns the first error message of a row."""
    plain = [re.sub(r"^\[ +ERROR +\] (--- )?|^ERROR: ", "", line).strip() for line in lines]
    said = next((line for line in plain if line and not NOISE.search(line)), "")
    where = next((line for line in plain if re.search(r":\d+: error:", line)), "")
    return (said or where)[:300]


def parse(text):
    """({row: (verdict, lines)}, the row that has begun and not ended, its lines). Of rows of one name a failed one
    counts."""
    rows, current, lines = {}, None, []
    for line in text.splitlines():
        found = ROW.match(line)
        if found and found[1] == "RUN":
            current, lines = found[2], []
        elif found and found[2] == current:
            if rows.get(current, ("", []))[0] != "fail":
                rows[current] = (VERDICT[found[1]], lines)
            current = None
        elif current:
            lines.append(line)
    return rows, current, lines


def is_device_error(lines):
    return any(DEVICE_ERROR.search(line) for line in lines)


# ---- a program of rows ----


class Table:
    """The rows of one program."""

    def __init__(self, session, name, program, arguments, budget, environment):
        self.session, self.name, self.budget, self.environment = session, name, budget, environment
        self.command = [session.program(program), *arguments]
        self.noted, self.sanitized = {}, 0

    def note(self, row, verdict, lines, **facts):
        says = message(lines) if verdict == "fail" else None
        self.session.note(f"{self.name}.{row}", verdict, says=says, **facts)

    def list_rows(self, **more):
        done = self.session.run(f"{self.name}.list", self.command, 30, OPS_LIST="1", **{**self.environment, **more})
        return list(dict.fromkeys(done.text.splitlines())) if done.status == 0 else None, done

    def run(self):
        rows, done = self.list_rows()
        if rows is None:
            return self.session.note(self.name, "skip" if done.status is None else "fail", says=complaint(done))
        if not rows:
            return self.session.note(self.name, "skip", reason="--rows selects none of its rows")
        self.size, self.grew = 0, time.monotonic()
        done = self.session.run(self.name, self.command, self.budget, self.watch, **self.environment)
        self.watch(done.text)
        self.finish(rows, done)

    def watch(self, text):
        """Records rows as they end. Returns a reason to stop the program, or ""."""
        for row, (verdict, lines) in parse(text)[0].items():
            if self.noted.get(row) != verdict:
                self.noted[row] = verdict
                self.note(row, verdict, lines)
            if verdict == "fail" and is_device_error(lines):
                return "an error of the device"
        if len(text) != self.size:
            self.size, self.grew = len(text), time.monotonic()
        is_stalled = time.monotonic() - self.grew > STALL * self.session.options.slow
        return f"no output for {STALL * self.session.options.slow:.0f} s" if is_stalled else ""

    def finish(self, rows, done):
        """Repeats the row that stopped the program, and runs the rows after it."""
        finished, running, lines = parse(done.text)
        bad = [
            row for row in rows if row in finished and finished[row][0] == "fail" and is_device_error(finished[row][1])
        ]
        if not bad and running and not done.stopped.startswith("no end"):  # crashed or hung
            self.session.note(f"{self.name}.{running}", "fail", says=message(lines) or complaint(done))
            bad = [running]
        if bad:
            if not done.stopped.startswith("no output"):
                self.sanitize(bad[0], self.session.facts["checks"][f"{self.name}.{bad[0]}"]["says"])
            for row in rows[rows.index(bad[0]) + 1 :]:
                self.run_alone(row)
        elif done.stopped:
            for row in rows:
                if row not in finished:
                    self.session.note(f"{self.name}.{row}", "skip", reason=done.stopped)
        elif done.status != 0 and all(verdict != "fail" for verdict, _ in finished.values()):
            self.session.note(self.name, "fail", done.seconds, says=complaint(done))

    def run_alone(self, row):
        only = re.sub(r"([*?\[])", r"[\1]", row)
        done = self.session.run(f"{self.name}.{row}", self.command, 60, **{**self.environment, "OPS_ONLY": only})
        if done.stopped == "no time left":
            return self.session.note(f"{self.name}.{row}", "skip", reason=done.stopped)
        verdict, lines = parse(done.text)[0].get(row, ("fail", []))
        if verdict == "pass" and done.status != 0:
            verdict = "fail"
        says = (message(lines) or complaint(done)) if verdict == "fail" else None
        self.session.note(f"{self.name}.{row}", verdict, done.seconds, says=says, process="its own")
        if verdict == "fail" and (is_device_error(lines) or not lines):
            self.sanitize(row, says)

    def sanitize(self, row, says):
        """Runs a failed row under memcheck with launches that wait; its first error joins the failure line."""
        tool = find_sanitizer()
        if not tool or self.sanitized >= MOST_REPEATED:
            return
        self.sanitized += 1
        only = re.sub(r"([*?\[])", r"[\1]", row)
        done = self.session.run(
            f"{self.name}.{row}.memcheck",
            [tool, "--tool", "memcheck", *self.command],
            90,
            **{**self.environment, "OPS_ONLY": only, "CUDA_LAUNCH_BLOCKING": "1"},
        )
        found = sanitizer_error(done.text) or (complaint(done) if done.status else "no error")
        self.session.note(f"{self.name}.{row}", "fail", says=says, memcheck=found)


def tables(session):
    on_cuda = ["--device=cuda"]
    programs = 10 if session.options.tiny else 40 if session.options.quick else 100
    goldens = {"AMPC_GOLDENS": str(session.options.tree / "tests/goldens")} if session.options.tree else {}
    if session.options.quick and not session.options.rows:
        goldens["OPS_ONLY"] = "mlp*"
    return {
        name: Table(session, name, *facts)
        for name, *facts in (
            ("ops", "ops_ops", on_cuda, 150, {}),
            ("ops_matmul", "ops_ops_matmul", on_cuda, 60, {}),
            ("ops_conv", "ops_ops_conv", on_cuda, 60, {}),
            ("ops_update", "ops_ops_update", on_cuda, 40, {}),
            ("goldens", "gpu-goldens", [], 200, goldens),
            ("ops_programs", "ops_ops_programs", on_cuda, 120, {"OPS_PROGRAMS": str(programs)}),
        )
    }


# ---- training of the demonstration network ----

ACCURACY = 0.75  # after five epochs of 5,000 samples
TRAININGS = {"fp32": ["--amp=O0"], "bf16": ["--amp=O1", "--dtype=bf16"], "fp16": ["--amp=O1", "--dtype=fp16"]}


def train(session, precision, options, data):
    name, module = f"train.{precision}", session.work / f"{precision}.ir"
    model = session.options.tree / "tests/models/mnist.onnx"
    compiled = session.check(
        f"{name}.compile",
        [session.program("ampc"), model, "-o", module, "--loss=ce", "--optimizer=momentum", "--init=kaiming", *options],
        30,
    )
    if compiled.status != 0:
        return
    short = session.options.quick or data.startswith("synthetic")
    length = ["--batch=64", *(["--steps=100"] if short else ["--epochs=5", f"--eval-data={data}"])]
    if session.options.tiny:
        short, data, length = True, "synthetic,rows=16", ["--batch=4", "--steps=3"]
    done = session.run(
        name, [session.program("ampc-run"), "train", module, "--device=cuda", f"--data={data}", *length, "--json"], 90
    )
    answer = last_json(done.text)
    if done.stopped == "no time left":
        session.note(name, "skip", reason=done.stopped)
    elif done.status != 0 or not answer:
        session.note(name, "fail", done.seconds, says=complaint(done))
    elif not short and (answer.get("accuracy") or 0) <= ACCURACY:
        session.note(
            name, "fail", done.seconds, says=f"accuracy {answer.get('accuracy')}, expected more than {ACCURACY}"
        )
    else:
        session.note(name, "pass", done.seconds, answer=answer)


def training(session):
    if not session.options.tree:
        return session.note("train", "skip", reason="--tree is not given: tests/models is not at hand")
    data = session.options.bundle / "data"
    patterns = (session.options.rows or "*").split(",")
    for precision, options in TRAININGS.items():
        if any(fnmatch.fnmatch(f"train.{precision}", pattern) for pattern in patterns):
            train(session, precision, options, f"idx:{data}" if data.is_dir() else "synthetic")


# ---- compute-sanitizer ----


def find_sanitizer():
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")


def sanitizer_error(text):
    """The first error that compute-sanitizer reports, with the kernel and the thread; "" when it reports none."""
    lines = [line[9:].strip() for line in text.splitlines() if line.startswith("=========")]
    lines = [
        line for line in lines if line and not re.match(r"COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK", line)
    ]
    return " ".join(lines[:3])[:400]


def row_of_error(text):
    """Returns the row that ran when compute-sanitizer reported its first error."""
    before = re.split(r"^========= (?!COMPUTE-SANITIZER|$)", text, maxsplit=1, flags=re.M)[0]
    begun = re.findall(r"^\[ RUN +\] (.+)$", before, re.M)
    return begun[-1] if begun else "?"


def sanitize_shard(session, kind, tool, table, shard, budget):
    """Returns how many rows of the table one shard checked, or None if there was no time for it."""
    name = f"{kind}.{table.name} {shard + 1}/{SHARDS}"
    environment = {**table.environment, "OPS_BRIEF": "f32,f16,i64,u8,bool", "OPS_SHARD": f"{shard}/{SHARDS}"}
    rows = len(table.list_rows(OPS_SHARD=environment["OPS_SHARD"])[0] or [])
    if not rows:
        return 0
    done = session.run(name, [tool, "--tool", kind, "--error-exitcode", "9", *table.command], budget, **environment)
    refused = re.search(
        r"Device not supported|not supported on this|failed to initialize|Unable to find injection", done.text, re.I
    )
    error = sanitizer_error(done.text)
    if done.stopped:
        session.note(name, "skip", done.seconds, reason=done.stopped)
        return None
    if refused and not parse(done.text)[0]:
        session.note(name, "skip", done.seconds, reason=refused[0])
        return None
    if done.status == 0:
        session.note(name, "pass", done.seconds, rows=rows)
    else:
        row = row_of_error(done.text) if error else None
        session.note(name, "fail", done.seconds, row=row, says=error or complaint(done))
    return rows


def sanitizers(session):
    tool, table = find_sanitizer(), tables(session)["ops"]
    if not tool:
        for name in sanitizer_steps(session):
            session.note(name, "skip", reason="there is no compute-sanitizer")
        return
    checked = {kind: 0 for kind in SANITIZERS}

    def check(kind, shard):
        checked[kind] += sanitize_shard(session, kind, tool, table, shard, session.left()) or 0

    shards = range(1 if session.options.quick else SHARDS)
    session.together([functools.partial(check, kind, shard) for shard in shards for kind in SANITIZERS])
    for kind in SANITIZERS:
        session.facts[f"{kind}_rows"] = {"checked": checked[kind], "all": len(table.list_rows()[0] or [])}


# ---- every algorithm of the libraries ----

ENGINES = ("ops_conv", "ops_matmul")
ENGINE_PARTS = 16  # of their rows, side by side: most of the time is that of cuDNN, by one processor core each


def engines(session):
    """Runs every algorithm that the libraries propose for the rows of the tables, not only the ones that they prefer."""
    parts = range(1 if session.options.tiny else ENGINE_PARTS)
    jobs = []
    for name in ENGINES:
        for part in parts:
            environment = {"OPS_ONLY": "every_*"}
            if not session.options.tiny:
                environment["OPS_PART"] = f"{part}/{ENGINE_PARTS}"
            program = f"ops_{name}"
            jobs.append(Table(session, f"{name} {part + 1}", program, ["--device=cuda"], session.left(), environment).run)
    session.together(jobs)


def engine_steps(session):
    return [f"{name}.every_*" for name in ENGINES]


# ---- all of it ----


def run_table(session, table):
    if table.name == "goldens" and not session.options.tree:
        session.note("goldens", "skip", reason="--tree is not given: tests/goldens is not at hand")
    else:
        table.run()


def part(session):
    """Most of the time of a table is spent on references, by one processor core: the tables run side by side."""
    jobs = [functools.partial(run_table, session, table) for table in tables(session).values()]
    session.together([*jobs, functools.partial(training, session)])
    sanitizers(session)


def steps(session):
    """Returns the names of what `part` would have run, for machines without a device."""
    return [*tables(session), *(f"train.{precision}" for precision in TRAININGS), *sanitizer_steps(session)]


def sanitizer_steps(session):
    return [f"{kind}.ops" for kind in SANITIZERS]
