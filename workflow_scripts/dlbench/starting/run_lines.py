"""Lines on the terminal about a run: its start, its progress, and its end; and lines of its own.

The status at the end comes from the record, so that no line calls a run ok that is recorded as
unstable.
"""

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from dlbench.common import terminal
from dlbench.log.event_fields import SUCCEEDED
from dlbench.machine import redaction
from dlbench.records import costs

MPI_FAILED = (
    "MPI could not start: the MPI of mpirun must be that of the trainer's environment or image; "
    "the run's log has what it said"
)
NOT_LAUNCHED = re.compile(r"^srun: error: task.* launch failed")
LAST_BYTES = 2**20
BAR = "DLBENCH_BAR"  # the variable that is set where a bar shows what runs and the time to go
ERASE = "\r\x1b[K"  # the bar, which is one line
LATEST_RUNS = 10  # finished runs whose mean time is the estimate for the next ones


def report(position: str, label: str, message: str, goes_on: bool = False) -> None:
    """Print a line about a run on stderr.

    `goes_on`: whether the run goes on, as a bar shows if there is one.
    """
    if not (goes_on and BAR in os.environ):
        erased = ERASE if BAR in os.environ else ""
        print(f"{erased}{line(position, label, message)}", file=sys.stderr, flush=True)


def line(position: str, label: str, message: str) -> str:
    """A line about a run. `position`: as in 3/36, or a text as in `try 2`."""
    which = f"run {position}" if position[:1].isdigit() or not position else position
    return terminal.plain(f"{which}  {label}: {message}")


def describe_end(
    log: Path, end: dict[str, Any], seconds: float | None, items_per_second: float | None = None
) -> str:
    """One phrase on the end of a run or an attempt: status, message, progress, time.

    `items_per_second`: of the whole run, for one that completed; None: its latest steps'.
    """
    message = f" ({end['message']})" if end["message"] else ""
    has_steps = end["status"] in SUCCEEDED and costs.latest(log)
    progress_text = f", {costs.describe(log, items_per_second)}" if has_steps else ""
    took = f", {seconds:.0f} s" if seconds is not None else ""
    return f"{end['status']}{message}{progress_text}{took}"


def report_result(position: str, label: str, log: Path, record: dict[str, Any], after: int) -> None:
    """Print how a run ended, by its record, and an estimate for the runs after it.

    `after`: the number of runs after it.
    """
    rate = record["summary"].get("images_per_second")
    message = describe_end(log, record, costs.duration_s(log), rate)
    report(position, label, f"{message}{_left(log, after)}")


def last_printed(path: Path, begin_bytes: int = 0, lines: int = 1) -> str:
    """The last non-empty lines of a file; an explanation instead, if a failure is known.

    `begin_bytes`: where to begin; what a program printed may be much, so only its end is read.
    """
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(begin_bytes, file.seek(0, os.SEEK_END) - LAST_BYTES))
        printed = file.read().decode(errors="replace").splitlines()
        non_empty = [line.strip() for line in printed if set(line) - set("-=* ")]
        if any("An error occurred in MPI_Init" in line for line in non_empty[-60:]):
            return MPI_FAILED
        non_empty = [line for line in non_empty if NOT_LAUNCHED.search(line)] or non_empty
        if non_empty:
            return terminal.message(redaction.redact(" | ".join(non_empty[-lines:])), 300 * lines)
    return "no message"


def _left(log, after):
    """The estimated time of the runs after this one, from the mean of the latest finished ones."""
    if not after or BAR in os.environ:
        return ""
    logs = sorted(log.parent.parent.glob(f"*/{log.name}"), key=_written_s)[-LATEST_RUNS:]
    durations = [d for d in map(costs.duration_s, logs) if d is not None]
    if not durations:
        return ""
    minutes = after * sum(durations) / len(durations) / 60
    return f"; about {minutes:.0f} min left" if minutes >= 1 else "; less than a minute left"


def _written_s(path):
    """When a file was last written; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0
