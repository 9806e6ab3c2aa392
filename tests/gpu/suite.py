"""Checks, their reports and page, and how to run a check in a process with a time limit."""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.common import terminal
from dlbench.common.files import read_json, write_json
from dlbench.log import event_log
from dlbench.machine import redaction
from dlbench.trainer import engine

from . import REPOSITORY
from .device import Device

PASSED, FAILED, NOT_POSSIBLE = STATUSES = ("passed", "failed", "not possible")
ALONE, BESIDE, LAST = "alone", "beside", "last"
MAX_LETTERS = 400  # of a message
SLOWER = 5  # factor for the time limits on CPUs, which may be shared


_UUID = re.compile(r"GPU-(?!0{8})[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class NotPossible(Exception):
    """The check is not possible on this machine; the message says why."""


class Check(NamedTuple):
    """One check.

    Attributes:
        name: its name in files and on the command line.
        title: what holds if it passes.
        run: called with a Report, the Device, and the framework, if it has one.
        limit_s: time limit on a GPU; on CPUs it is SLOWER times as long.
        when: ALONE, because it measures; BESIDE others, after those; or LAST, alone and long.
        framework: the framework that it checks; "": none.
    """

    name: str
    title: str
    run: Callable[..., None]
    limit_s: float
    when: str
    framework: str


CHECKS: dict[str, Check] = {}


def check(
    title: str, limit_s: float, when: str = BESIDE, frameworks: tuple[str, ...] = ("",)
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to CHECKS, once for each framework."""

    def add(function):
        for framework in frameworks:
            name = "-".join(filter(None, (function.__name__, framework)))
            CHECKS[name] = Check(name, title, function, limit_s, when, framework)
        return function

    return add


class Report:
    """The results of a check, written to a file at once, so that a killed check loses nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.content: dict[str, Any] = {"status": FAILED, "numbers": [], "notes": [], "faults": []}
        self._keep()

    def number(self, name: str, value: float | str | None, unit: str = "") -> None:
        if isinstance(value, float):  # JSON has no infinity
            value = float(f"{value:.5g}") if math.isfinite(value) else str(value)
        elif isinstance(value, str):
            value = _message(value)
        self.content["numbers"].append({"name": name, "value": value, "unit": unit})
        self._keep()

    def note(self, text: str) -> None:
        self.content["notes"].append(_message(text))
        self._keep()

    def expect(self, holds: Any, otherwise: str) -> bool:
        """Record a fault unless `holds`; the check goes on. Returns whether it holds."""
        if not holds:
            self.content["faults"].append(_message(otherwise))
            self._keep()
        return bool(holds)

    def end(self, status: str) -> None:
        self.content["status"] = FAILED if self.content["faults"] else status
        self._keep()

    def _keep(self):
        write_json(self._path, self.content)


def run_here(name: str, device: Device, path: Path) -> None:
    """Run a check in this process and write its report."""
    chosen, report = CHECKS[name], Report(path)
    try:
        if chosen.framework:
            missing = device.missing(chosen.framework)
            if missing:
                raise NotPossible(f"{' and '.join(missing)} not installed in {sys.executable}")
        chosen.run(report, device, *filter(None, (chosen.framework,)))
    except NotPossible as reason:
        report.note(str(reason))
        report.end(NOT_POSSIBLE)
    except Exception as error:  # of any library: the report has it
        traceback.print_exc()
        report.expect(False, f"{type(error).__name__}: {error}")
        report.end(FAILED)
    else:
        report.end(PASSED)


def run(chosen: Check, device: Device, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run a check in a separate process, and kill all that it started at the end.

    `options`: of __main__.py for the process. Returns its report, with `seconds` and the `title`.
    """
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "report.json"
        command = [sys.executable, "-m", "tests.gpu", "--device", device.kind, *options]
        with open(Path(folder) / "said", "w+b") as output:
            process = subprocess.Popen(
                [*command, "--here", str(path), chosen.name],
                cwd=REPOSITORY,
                env=os.environ | {"TMPDIR": folder, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            limit_s = chosen.limit_s * (1 if device.is_gpu else SLOWER)
            timed_out = _end_process(process, limit_s)
            output.seek(max(0, output.seek(0, os.SEEK_END) - 4000))
            tail = output.read().decode(errors="replace")
        report = read_json(path) or {"status": FAILED, "numbers": [], "notes": [], "faults": []}
    if timed_out:
        report["status"] = FAILED
        report["faults"].append(f"not done after {limit_s:g} s, and ended")
    elif process.returncode and not report["faults"]:
        report["status"] = FAILED
        report["faults"].append(f"exit code {process.returncode}: {_message(tail)}")
    if report["status"] == FAILED:
        print(f"--- {chosen.name} said:\n{tail}\n---", flush=True)
    seconds = round(time.monotonic() - begin, 1)
    date = event_log.utc_now()[:19] + "Z"
    return {"title": chosen.title, "date": date, "seconds": seconds, **report}


def not_started(chosen: Check, minutes: float) -> dict[str, Any]:
    """The report of a check that was not started for lack of time."""
    reason = f"not started: {minutes:g} minutes had passed"
    nothing: dict[str, Any] = {"numbers": [], "notes": [reason], "faults": []}
    return {"title": chosen.title, "date": "", "seconds": 0.0, "status": NOT_POSSIBLE, **nothing}


def _end_process(process, limit_s):
    """Wait for a process, then kill its session. Returns whether the process timed out."""
    try:
        process.wait(limit_s)
        timed_out = False
    except subprocess.TimeoutExpired:
        timed_out = True
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return timed_out


def _message(text):
    """A text for the results: one line, without secrets and without UUIDs of GPUs."""
    plain = _UUID.sub("GPU-(uuid)", redaction.redact(" ".join(text.split())))
    return terminal.message(plain, MAX_LETTERS)


def frameworks() -> tuple[str, ...]:
    """All frameworks, installed or not."""
    return tuple(engine.names())


def as_text(value: Any) -> str:
    """A value of a report, for people."""
    return value if isinstance(value, str) else json.dumps(value)


HEAD = """# Checks on GPUs

What a machine showed when it ran `python -m tests.gpu`, which writes this page and the JSON beside
it. [gpus.md](gpus.md) says what follows from it.

"""
MARKS = {PASSED: "passed", FAILED: "**failed**", NOT_POSSIBLE: "not possible"}


def write(results: dict[str, Any], file: Path) -> None:
    """Write results as JSON to a file, and their page beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, results)
    file.with_suffix(".md").write_text(page(results), encoding="utf-8")


def page(results: dict[str, Any]) -> str:
    checks = results["checks"]
    lines = [HEAD + _machine(results), ""]
    counted = [f"{sum(c['status'] == s for c in checks.values())} {s}" for s in MARKS]
    lines += [f"{', '.join(counted)}.", ""]
    lines += ["| Check | | Seconds | Date | What holds |", "| --- | --- | --- | --- | --- |"]
    for name, result in checks.items():
        cells = (
            name,
            MARKS[result["status"]],
            result["seconds"],
            result["date"][:10],
            result["title"],
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for name, result in checks.items():
        lines += ["", f"## {name}", "", *_details(result)]
    lines += ["", "Next: [gpus.md](gpus.md), how to set up a study on GPUs."]
    return "\n".join(lines) + "\n"


def _machine(results):
    machine = results["machine"]
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    if machine["driver"]:
        gpus += f", driver {machine['driver']} (CUDA {machine['cuda_driver']})"
    cores = f"{machine['cores']} cores of {machine['cpu']}{', virtual' * machine['virtual']}"
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [gpus, f"{cores}, {machine['memory_gib']} GiB", versions, f"commit {results['commit']}"]
    return "\n".join(f"- {line}" for line in lines)


def _details(result):
    lines = [f"{MARKS[result['status']]}: {result['title']}", ""]
    lines += [f"- fault: {text}" for text in result["faults"]]
    lines += [f"- {text}" for text in result["notes"]]
    lines += [
        f"- {number['name']}: {as_text(number['value'])} {number['unit']}".rstrip()
        for number in result["numbers"]
    ]
    return lines
