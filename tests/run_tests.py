"""Builds and runs the tests that tools/check was asked for. Usage and ids: tools/check --help.

CTest lists the tests of a build with their commands, environment and the files to build first. tests/tiers says which of
them a tier runs. All run in one queue, the longest first. A program prints CMocka's lines; a suite prints a line for each
of its tests and has the same last line as tools/check. Tests have in their environment what tests/tier.h describes.

Limits are of processor time, so that a busy machine fails nothing: a test may use LIMITS seconds, more than ten times what
the longest of the tier uses, and one whose processes have used none at all for IDLE seconds is deadlocked."""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIERS = ("quick", "default", "full")
PRESETS = {"quick": {"release": "check-release"},
           "default": {"release": "check-release", "asan": "check-asan"},
           "full": {"release": "check-release", "asan": "check-asan-full"}}
LIMITS, IDLE = {"quick": 1200, "default": 1200, "full": 36000}, 300
OVERDRAWN, UNEVEN = 1.5, 1.2  # times the budget of a group; between two calibrations

Row = collections.namedtuple("Row", "group tier seconds pattern settings")
Test = collections.namedtuple("Test", "id row command environment folder files is_suite")
Usage = collections.namedtuple("Usage", "cpu wall")


def read_table(name):
    """The lines of a file in tests/ without comments, as (line number, words)."""
    for number, line in enumerate((ROOT / "tests" / name).read_text().splitlines(), 1):
        words = shlex.split(line, comments=True)
        if words:
            yield number, words


class Tiers:
    """tests/tiers"""
    def __init__(self):
        self.rows, self.reference, group = [], None, None
        for number, words in read_table("tiers"):
            try:
                if words[0] == "calibration":
                    self.reference = float(words[1])
                elif words[0] == "group":
                    group, = words[1:]
                else:
                    tier, seconds, pattern, *settings = words
                    self.rows.append(Row(group, TIERS.index(tier), float(seconds), re.compile(pattern),
                                         dict(s.split("=", 1) for s in settings)))
            except (ValueError, re.error) as error:
                sys.exit(f"tests/tiers:{number}: {error}")
        if not self.reference:
            sys.exit("tests/tiers: no line `calibration SECONDS`")

    def row_of(self, name):
        """The first row that matches; each test must have one."""
        for row in self.rows:
            if row.pattern.fullmatch(name):
                return row
        sys.exit(f"tests/tiers: no row for {name}")


# ---- selection -----------------------------------------------------------------------------------------------------

def owners_of(path):
    """Patterns of the ids that own a file or folder of the tree: a test file owns itself, tests/owners has the rest."""
    if match := re.fullmatch(r"tests/(\w+)/(?:test|fuzz)_(\w+)\.c", path):
        return [rf".*:{match[1]}\.{match[2]}.*"]
    if not (ROOT / path).exists():
        sys.exit(f"tools/check: {path}: no such file or folder")
    rows = [(folder, patterns) for _, (folder, *patterns) in read_table("owners") if (path + "/").startswith(folder)]
    return max(rows, key=lambda row: len(row[0]))[1] if rows else [".*"]


def changed_files(revision):
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    try:
        return git("diff", "--name-only", "--diff-filter=d", revision) + git("ls-files", "--others", "--exclude-standard")
    except subprocess.CalledProcessError as error:
        sys.exit(f"tools/check: {error.stderr.strip()}")


def selection(options):
    """A predicate of ids."""
    if options.only:
        return lambda name: re.search(options.only, name) and (not name.startswith("asan:") or "asan" in options.only)
    if options.room or options.changed:
        paths = options.room or changed_files(options.changed)
        patterns = {pattern for path in paths for pattern in owners_of(path)} | {"release:lint"}
        return lambda name: any(re.fullmatch(pattern, name) for pattern in patterns)
    return lambda name: True


# ---- processes -----------------------------------------------------------------------------------------------------

def processes_of(session):
    """(process, processor seconds of it and of its children that have ended) of all living processes of a session."""
    tick = os.sysconf("SC_CLK_TCK")
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                yield int(entry.name), sum(map(int, fields[11:15])) / tick


def end(session):
    for process, _ in processes_of(session):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run(command, folder, environment, limit):
    """(status, output, usage); the status is a text if the command was ended."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=subprocess.STDOUT, start_new_session=True)
        ended = threading.Event()
        why = []

        def watch():
            used, idle = 0, 0
            while not ended.wait(15):
                now = sum(seconds for _, seconds in processes_of(child.pid))
                idle = idle + 15 if now == used else 0
                used = now
                if used > limit or idle >= IDLE:
                    why.append(f"ended after {used:.0f} seconds of processor time" if used > limit
                               else f"ended: no process has used any processor time for {IDLE} seconds")
                    end(child.pid)
                    return
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        watcher.join()
        output.seek(0)
        text = output.read().decode(errors="replace")
    return why[0] if why else child.returncode, text, Usage(used.ru_utime + used.ru_stime, time.monotonic() - started)


def calibrate():
    """Processor seconds of a fixed piece of work, the better of two measurements."""
    return min(fixed_work(), fixed_work())


def fixed_work():
    """Work of the kinds that tests consist of: compiling, and starting programs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    source = "".join(f"double f{i}(double *a, int n) {{ double s = 0; for (int i = 0; i < n; i++) "
                     f"s += a[i] * {i} + a[(i * {i}) % n]; return s; }}\n" for i in range(250))
    subprocess.run(["cc", "-O2", "-x", "c", "-c", "-", "-o", "/dev/null"], input=source.encode(), check=True)
    for _ in range(200):
        subprocess.run(["/bin/true"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# ---- results -------------------------------------------------------------------------------------------------------

def program_results(name, status, text):
    """({state: count}, lines) of a CMocka or fuzz program. CMocka prints failed and skipped tests twice."""
    states, rest = {}, []
    for line in text.splitlines():
        match = re.match(r"\[( *OK |  FAILED  |  SKIPPED )\] (.*)", line)
        if match and "test(s), listed below" not in line:
            state = {"O": "PASS", "F": "FAIL", "S": "SKIP"}[match[1].strip()[0]]
            if states.get(match[2]) != "FAIL":
                states[match[2]] = state
        elif not re.match(r"\[( RUN |=====|-----|  PASSED)|[0-9 ]*(FAILED|SKIPPED) TEST", line):
            rest.append("    " + line)
    lines = [f"{state} {name}.{test}" for test, state in states.items()]
    notes = [line for line in rest if re.match(r" +part \d+ of \d+", line)]
    if status == 0:
        return collections.Counter(states.values()) if states else {"PASS": 1}, (lines or [f"PASS {name}"]) + notes
    if "FAIL" not in states.values():
        states[""] = "FAIL"
        rest.append(f"FAIL {name} ({status if isinstance(status, str) else f'exit {status}'})")
    return collections.Counter(states.values()), lines + rest


def suite_results(name, status, text):
    *lines, last = text.splitlines() or [""]
    match = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", last)
    if match and (status == 0 or (isinstance(status, int) and int(match[2]) > 0)):
        return dict(zip(("PASS", "FAIL", "SKIP"), map(int, match.groups()))), lines + [f"{name}: {last}"]
    return {"FAIL": 1}, lines + [last, f"FAIL {name} ({status if isinstance(status, str) else f'exit {status}'})"]


# ---- the run -------------------------------------------------------------------------------------------------------

class Check:
    def __init__(self, options):
        self.options, self.tiers = options, Tiers()
        self.tier = TIERS.index(options.tier)
        self.counts, self.usage, self.failed, self.lock = collections.Counter(), {}, False, threading.Lock()
        self.presets = PRESETS[options.tier]
        self.wanted = selection(options)
        # Test programs run concurrently, so waiting threads must not spin.
        self.environment = dict(os.environ, AMPC_TIER=options.tier, AMPC_SEED=str(options.seed),
                                OMP_WAIT_POLICY="passive", CMOCKA_MESSAGE_OUTPUT="stdout", UBSAN_OPTIONS="print_stacktrace=1",
                                ASAN_OPTIONS="allocator_may_return_null=1:intercept_tls_get_addr=0")

    def folder(self, build):
        return ROOT / "build" / self.presets[build]

    def report(self, name, counts, lines, usage):
        self.counts.update(counts)
        self.usage[name] = usage
        self.failed |= counts.get("FAIL", 0) > 0
        print("\n".join(lines), flush=True)

    def build(self, build, command):
        """Runs a build command; returns whether it succeeded, and reports it only if it did not."""
        status, text, usage = run(command, ROOT, self.environment, LIMITS["full"])
        old = self.usage.get(f"{build}:build", Usage(0, 0))
        self.usage[f"{build}:build"] = Usage(old.cpu + usage.cpu, old.wall + usage.wall)
        if status == 0:
            if build == "release" and not self.options.list:
                print("".join(line + "\n" for line in re.findall(r"^-- CUDA.*", text, re.M)), end="", flush=True)
            return True
        noise = re.compile(r"--|\[\d+/\d+\]|Preset|  [A-Z_]+=|$")
        lines = [line for line in text.splitlines() if not noise.match(line)]
        self.report(f"{build}:build", {"FAIL": 1}, lines[-60:] + [f"FAIL {build}:build"], self.usage[f"{build}:build"])
        return False

    def make_test(self, build, entry):
        name, row = f"{build}:{entry['name']}", self.tiers.row_of(f"{build}:{entry['name']}")
        properties = {p["name"]: p["value"] for p in entry["properties"]}
        environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
        if self.options.tier != "full":
            environment |= row.settings
        return Test(name, row, entry.get("command"), environment, properties["WORKING_DIRECTORY"],
                    properties.get("REQUIRED_FILES", []), "suite" in properties["LABELS"])

    def tests_of(self, build):
        """The selected tests of a configured build."""
        listed = subprocess.run(["ctest", "--test-dir", self.folder(build), "--show-only=json-v1"], capture_output=True, check=True)
        tests = [self.make_test(build, entry) for entry in json.loads(listed.stdout)["tests"]]
        return [test for test in tests if test.row.tier <= self.tier and self.wanted(test.id)]

    def prepare(self, build):
        """Builds what the selected tests of a build need, and returns them; CTest knows commands of built programs only."""
        code = ["-DAMPC_CUDA_CODE=ON"] if build == "release" and self.options.tier == "full" else []
        if not self.build(build, ["cmake", "--preset", self.presets[build], *code]):
            return []
        tests, folder = self.tests_of(build), self.folder(build)
        files = {os.path.relpath(file, folder) for test in tests for file in test.files}
        if not tests or self.options.list:
            return tests
        print(f"== {build}: building {len(files)} programs", flush=True)
        if not self.build(build, ["ninja", "-C", folder, "-j", str(self.options.jobs), "-k", "0", *sorted(files)]):
            return []
        return self.tests_of(build)

    def collect(self):
        """All selected tests, whose programs have been built."""
        return [test for build in self.presets if build != "asan" or not self.options.only or "asan" in self.options.only
                for test in self.prepare(build)]

    def run_test(self, test):
        if self.options.fail_fast and self.failed:
            return
        status, text, usage = run(test.command, test.folder, self.environment | test.environment, LIMITS[self.options.tier])
        results = (suite_results if test.is_suite else program_results)(test.id, status, text)
        with self.lock:
            self.report(test.id, *results, usage)

    def run(self):
        reference = calibrate() if not self.options.list else 1
        tests = self.collect()
        if self.options.list:
            print(*sorted(test.id for test in tests), sep="\n")
            return 0
        sharing = collections.Counter(id(test.row) for test in tests)
        tests.sort(key=lambda test: -test.row.seconds / sharing[id(test.row)])
        print(f"== {len(tests)} programs and suites, tier {self.options.tier}, seed {self.options.seed} "
              f"(repeat: --seed {self.options.seed})", flush=True)
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(self.run_test, tests))
        if self.options.timing:
            print("== processor and wall seconds")
            for name, usage in sorted(self.usage.items(), key=lambda item: -item[1].cpu):
                print(f"{usage.cpu:8.1f} {usage.wall:8.1f} {name}")
        self.judge_budgets(reference)
        print("%(PASS)d passed, %(FAIL)d failed, %(SKIP)d skipped" %
              collections.defaultdict(int, self.counts))
        return self.counts["FAIL"] > 0 or not self.counts["PASS"]

    def judge_budgets(self, start):
        """Compares the processor time of each group with its budget, on a machine of the reference's speed."""
        if self.options.tier == "full":
            return
        factor = start / self.tiers.reference
        used, budgets = collections.Counter(), collections.Counter()
        for name, usage in self.usage.items():
            used[self.tiers.row_of(name).group] += usage.cpu / factor
        for row in self.tiers.rows:
            budgets[row.group] += row.seconds if row.tier <= self.tier else 0
        over = [group for group in used if used[group] > OVERDRAWN * budgets[group]]
        print(f"budget in processor seconds (used {factor:.2f} times as many here): " +
              ", ".join(f"{group} {used[group]:.0f} of {budgets[group]:.0f}" for group in budgets if group in used) +
              f"; all {sum(used.values()):.0f} of {sum(budgets.values()):.0f}")
        if not over:
            return
        again = calibrate()
        if max(start, again) > UNEVEN * min(start, again):
            print("budgets are not judged: the speed of the machine has changed during the run")
            return
        for group in over:
            print(f"    {group}: more than {OVERDRAWN} times its budget (tests/tiers)\nFAIL budget.{group}")
            self.counts["FAIL"] += 1


def commits():
    """The number of commits: one commit always runs the same tests. Without the history, the day."""
    try:
        shallow, count = (subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
                          for words in (["rev-parse", "--is-shallow-repository"], ["rev-list", "--count", "HEAD"]))
        return int(time.time() // 86400) if shallow == "true" else int(count)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return int(time.time() // 86400)


def main():
    parser = argparse.ArgumentParser(prog="tools/check", add_help=False)
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--quick", dest="tier", action="store_const", const="quick", default="default")
    tier.add_argument("--full", dest="tier", action="store_const", const="full")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", default="")
    chosen.add_argument("--room", action="append")
    chosen.add_argument("--changed", nargs="?", const="HEAD")
    for flag in ("--fail-fast", "--list", "--no-setup", "--timing"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=commits())
    return Check(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
