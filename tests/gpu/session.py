"""One part of the suite: its deadline, the programs that it runs, and its verdicts.

Results are rewritten every second at most, each file atomically, so that a part that is killed leaves what it knew:
  results.json     all verdicts and figures
  results.md       the same for people
  results.tar.gz   logs, recordings, plans and traces
"""

import collections
import concurrent.futures
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import report

LIMIT = 525  # seconds per part: the machine with the GPU limits a call to ten minutes
LARGEST = 15 << 20  # bytes of results.tar.gz
LONGEST_LOG = 2 << 20  # bytes kept per log
ENDLESS_LOG = 64 << 20  # log size in bytes at which a program is stopped
SAVE_INTERVAL = 1.0  # seconds between two rewrites of the results
VERDICTS = ("pass", "fail", "skip")

# Result of a command: its exit status (None: stopped or not started), output, seconds, and the reason it was
# stopped ("" if it ended by itself).
Outcome = collections.namedtuple("Outcome", "status text seconds stopped")


class Stopped(BaseException):
    """Raised when a signal requests the suite to end."""


def last_line(text):
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def last_json(text):
    """Returns the last line that is a JSON object, or None."""
    for line in reversed(text.splitlines()):
        try:
            value = json.loads(line) if line.startswith("{") else None
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def die_with_parent(libc=ctypes.CDLL(None)):
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: child processes end if the suite is killed


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(30)  # a process in an uninterruptible driver call may never end
    except subprocess.TimeoutExpired:
        pass


def read_log(path):
    """Returns the text of a log without the middle of a very long one."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) > LONGEST_LOG:
        half = LONGEST_LOG // 2
        data = data[:half] + b"\n.. %d bytes left out ..\n" % (len(data) - 2 * half) + data[-half:]
        path.write_bytes(data)
    return data.decode(errors="replace")


class Session:
    def __init__(self, part, options, environment):
        self.part, self.options, self.environment = part, options, environment
        self.began, self.limit = time.monotonic(), (options.limit or LIMIT) * options.slow
        self.out = options.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix="gpu-check-"))  # modules and checkpoints, deleted at the end
        self.files = self.work / "files"  # the content of results.tar.gz
        (self.files / part).mkdir(parents=True)
        self.results = self.read_former()
        self.facts = {"version": options.version, "checks": {}}
        self.results["parts"][part] = self.facts
        self.lock = threading.RLock()  # programs may run side by side, see `together`
        self.is_over, self.is_saved, self.saved_at = False, True, 0.0
        self.save()

    # ---- results ----

    def read_former(self):
        """Reads the results of other parts in the same folder, which are preserved with their logs."""
        for leftover in self.out.glob(".*.new"):
            leftover.unlink()
        try:
            former = json.loads((self.out / "results.json").read_text())
            with tarfile.open(self.out / "results.tar.gz") as tar:
                members = [
                    m for m in tar.getmembers() if m.isfile() and m.name.split("/")[0] not in (self.part, "..", "")
                ]
                tar.extractall(self.files, members)
            former["parts"].pop(self.part, None)
            return {"parts": former["parts"]}
        except (OSError, ValueError, KeyError, AttributeError, tarfile.TarError):
            return {"parts": {}}

    def write(self, name, make):
        """Replaces OUT/NAME by what make(path) writes."""
        new = self.out / f".{name}.new"
        make(new)
        os.replace(new, self.out / name)

    def pack(self, path):
        while True:
            with tarfile.open(path, "w:gz", compresslevel=3) as tar:
                for entry in sorted(self.files.iterdir()):
                    tar.add(entry, entry.name)
            if path.stat().st_size <= LARGEST:
                return
            largest = max((f for f in self.files.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
            (largest.parent / f"{largest.name}.omitted").write_text(
                f"{largest.stat().st_size} bytes: too large to be kept\n"
            )
            largest.unlink()

    def save(self):
        with self.lock:
            self.save_locked()
            self.is_saved, self.saved_at = True, time.monotonic()

    def save_if_due(self):
        if not self.is_saved and time.monotonic() - self.saved_at >= SAVE_INTERVAL:
            self.save()

    def save_locked(self):
        self.facts["seconds"] = round(time.monotonic() - self.began, 1)
        self.facts["summary"] = self.summary()
        try:
            self.write("results.json", lambda path: path.write_text(json.dumps(self.results, indent=1)))
            self.write("results.md", lambda path: path.write_text(report.render(self.results)))
            self.write("results.tar.gz", self.pack)
        except OSError as error:  # a full disk must not end the part
            print(f"gpu-check: results are not written: {error}", flush=True)

    def count(self, verdict):
        return sum(check["verdict"] == verdict for check in self.facts["checks"].values())

    def summary(self):
        return "{} passed, {} failed, {} skipped".format(*map(self.count, VERDICTS))

    def note(self, name, verdict, seconds=0.0, **facts):
        """Records a verdict; it replaces an earlier one of the same name."""
        facts = {key: value for key, value in facts.items() if value not in (None, "")}
        with self.lock:
            self.facts["checks"][name] = {"verdict": verdict, "seconds": round(seconds, 2), **facts}
            print(f"{verdict.upper()} {name}" + "".join(f"  {k}: {v}" for k, v in facts.items()), flush=True)
            self.is_saved = False
        self.save_if_due()

    def close(self):
        self.save()
        shutil.rmtree(self.work, ignore_errors=True)

    # ---- programs ----

    def left(self):
        return self.limit - (time.monotonic() - self.began)

    def program(self, name):
        return self.options.programs / name

    def log(self, name):
        return self.files / self.part / (re.sub("[^A-Za-z0-9.-]+", "_", name) + ".log")

    def run(self, name, command, budget, watch=None, **more):
        """Runs a command for at most `budget` seconds, or what is left of the part; its output goes to the log NAME.
        `watch`, if given, sees the output every half second and may stop the command by returning a reason."""
        budget = min(budget * self.options.slow, self.left())
        if budget < 2 or self.is_over:
            return Outcome(None, "", 0.0, "no time left")
        start, path = time.monotonic(), self.log(name)
        with open(path, "wb") as log:
            try:
                process = subprocess.Popen(
                    [str(c) for c in command],
                    env={**self.environment, **more},
                    cwd=self.work,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            except OSError as error:
                log.write(str(error).encode())
                return Outcome(127, str(error), 0.0, "")
            stopped = self.wait(process, path, start + budget, watch)
        if stopped == "time":
            stopped = f"no end after {budget:.0f} s"
        return Outcome(None if stopped else process.returncode, read_log(path), time.monotonic() - start, stopped)

    def wait(self, process, path, deadline, watch):
        """ Returns "" if the process ended, otherwise why it was stopped."""
        try:
            while True:
                try:
                    process.wait(0.5)
                    return ""
                except subprocess.TimeoutExpired:
                    self.save_if_due()
                if self.is_over:
                    return "the suite was stopped"
                if path.stat().st_size > ENDLESS_LOG:
                    return "endless output"
                reason = watch(path.read_bytes().decode(errors="replace")) if watch else ""
                if reason or time.monotonic() >= deadline:
                    return reason or "time"
        finally:
            kill_group(process)  # its child processes end with it

    def together(self, jobs):
        """Runs jobs side by side. If the suite is stopped, so are their programs, and no other begins."""
        with concurrent.futures.ThreadPoolExecutor(max(1, len(jobs))) as pool:
            try:
                for job in [pool.submit(job) for job in jobs]:
                    job.result()
            except BaseException:
                self.is_over = True
                raise

    def check(self, name, command, budget, **more):
        """Runs a step that passes if its command exits with 0, and returns the outcome."""
        done = self.run(name, command, budget, **more)
        if done.stopped == "no time left":
            self.note(name, "skip", reason=done.stopped)
        elif done.status == 0:
            self.note(name, "pass", done.seconds)
        else:
            self.note(name, "fail", done.seconds, says=complaint(done))
        return done


def complaint(done):
    """Returns why a command failed: the first line with an error, otherwise the last line."""
    if done.stopped:
        return done.stopped
    error = next((line.strip() for line in done.text.splitlines() if re.search(r"\berror\b|: cannot|Error:", line)), "")
    died = f"killed by signal {-done.status}" if done.status < 0 else f"exit code {done.status}"
    return f"{died}: {(error or last_line(done.text))[:300]}"
