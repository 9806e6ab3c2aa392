"""How long runs took, and how long similar runs will take.

- A part of a run is what follows one launch. A run that resumed from a checkpoint has several in
  its log, and so may the log of an attempt that was moved aside. Parts are identified by the date
  of their launch, so that none counts twice.
- An estimate is the mean time of the runs of the same combination, else of the same model, dataset
  and strategy, else of all runs, and says which. Only completed runs count. A run that was
  stopped is estimated to take at least as long as it had taken by then.
"""

import contextlib
import functools
import os
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dlbench.common import phrases
from dlbench.log import event_fields, event_log
from dlbench.log.attempts import kept_logs
from dlbench.records import progress, run_record
from dlbench.study.runs import Run

BASES = ("same combination", "same model, dataset and strategy", "all runs")
OWN_STEPS = "their own steps"  # of running runs
# What runs are estimated from, by basis.
SOURCES = {
    OWN_STEPS: "their own progress",
    BASES[0]: "runs of the same combination",
    BASES[1]: "runs of the same model, dataset and strategy",
    BASES[2]: "all runs of the study",
}
UNKNOWN = "unknown"
DATED = tuple(
    f'{{"event": "{kind}"'.encode()
    for kind in ("launch", "begin", "run_start", "resume", "run_end")
)


def parts(log: Path) -> dict[str, float]:
    """Seconds of each part of a log, up to its last event, by the date of the part's launch."""
    parts_s: dict[str, float] = {}
    lines: list[bytes] = []
    with contextlib.suppress(OSError), open(log, "rb") as file:
        for line in file:
            if line.startswith(DATED[0]):
                _add(lines, parts_s)
                lines = []
            # Of the others, the last one only: it says when the part ended.
            if lines and not lines[-1].startswith(DATED):
                lines.pop()
            if line.endswith(b"\n"):
                lines.append(line)
    _add(lines, parts_s)
    return parts_s


def _add(lines, parts_s):
    launched = ended = anchor = None
    for line in lines:
        # What is no event, or has no date, tells nothing.
        with contextlib.suppress(event_fields.LogError, KeyError, TypeError, ArithmeticError):
            event = event_fields.parse_event(line)
            if event["event"] == "launch":
                launched = event["t_utc"]
            elif "t_utc" in event:
                ended = event_log.seconds_between(launched, event["t_utc"])
                if event["event"] in ("run_start", "resume"):
                    anchor = ended - event.get("t_s", 0)
            elif anchor is not None:
                ended = max(ended, anchor + event["t_s"])
    if launched:
        parts_s[launched] = max(0.0, ended or 0.0)


def attempts(place: Path) -> dict[str, float]:
    """The parts of all logs that were moved aside in a run's folder."""
    parts_s: dict[str, float] = {}
    for _, path in kept_logs(place):
        parts_s = longer_parts(parts_s, parts(path))
    return parts_s


def longer_parts(some: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    """The parts of two logs; of a part in both, the longer one, as checkpoints copy logs."""
    return {date: max(some.get(date, 0.0), others.get(date, 0.0)) for date in {*some, *others}}


def until_now(parts_s: dict[str, float]) -> dict[str, float]:
    """The parts of a running run; the last one lasts until now."""
    if not parts_s:
        return parts_s
    last = max(parts_s)
    now = datetime.now(timezone.utc).strftime(event_fields.UTC_FORMAT)
    return {**parts_s, last: max(parts_s[last], event_log.seconds_between(last, now))}


def full_duration_s(log: Path) -> float | None:
    """Seconds from launch to end of a completed run without interruptions; else None.

    For a run that resumed this is about the time of an uninterrupted run. Only the head and the
    tail of the log are read.
    """
    end = event_log.last_run_end(log) or {}
    if end.get("status") not in event_fields.SUCCEEDED:
        return None
    dates: dict[str, Any] = {event["event"]: event.get("t_utc") for event in progress.head(log)}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return event_log.seconds_between(dates["launch"], dates["run_start"]) + end["t_s"]
    return sum(parts(log).values()) or None


def stopped_after_s(run: Run) -> float:
    """Seconds that a run had taken when it was stopped, as at its time limit; 0 if it was not."""
    log = run_record.folder(run.id) / "train.jsonl"
    end = event_log.last_run_end(log)
    if not log.is_file() or (end and end.get("status") != "timeout"):
        return 0.0
    return progress.duration_s(log) or sum(parts(log).values())


def recorded_s(record: dict[str, Any]) -> float:
    """Seconds that a run took according to its record: start, imports and training."""
    parts = (record["summary"].get(name) for name in ("start_s", "import_s", "duration_s"))
    return sum(filter(None, parts))


def estimates(runs: Iterable[Run]) -> "Estimates":
    """The Estimates from the logs on this disk, each read when it is first needed."""

    @functools.cache
    def existing_ids():
        with contextlib.suppress(OSError):
            return frozenset(os.listdir(run_record.RESULTS / "runs"))
        return frozenset()

    return Estimates(
        (run for run in runs if run.id in existing_ids()),
        lambda run: full_duration_s(run_record.folder(run.id) / "train.jsonl"),
        lambda run: stopped_after_s(run) if run.id in existing_ids() else 0.0,
    )


class Estimates:
    """Estimates of the seconds that runs will take, from those that other runs took.

    Args:
        runs: the runs to estimate from; iterated once, at the first estimate.
        seconds_of: run -> the seconds it took, or None; called only for runs that are needed.
        stopped_of: run -> the seconds it had taken when it was stopped, or 0.
    """

    def __init__(
        self,
        runs: Iterable[Run],
        seconds_of: Callable[[Run], float | None],
        stopped_of: Callable[[Run], float] = lambda run: 0.0,
    ) -> None:
        self._runs, self._seconds_of, self._stopped_of = runs, seconds_of, stopped_of
        self._known: dict[str, float | None] = {}
        self._means: dict[Any, float | None] = {}

    def of(self, run: Run) -> tuple[float | None, str]:
        """(seconds, basis of the estimate); (None, "unknown") if no run has finished."""
        for basis, key in zip(BASES, self._keys(run), strict=True):
            mean = self._mean(key)
            if mean is not None:
                stopped_s = self._stopped_of(run)
                return (mean, basis) if mean >= stopped_s else (stopped_s, BASES[0])
        return None, UNKNOWN

    def _mean(self, key):
        if key not in self._groups:
            return None
        if key not in self._means:
            seconds_of_each = [self._seconds(run) for run in self._groups[key]]
            known = [seconds for seconds in seconds_of_each if seconds is not None]
            self._means[key] = statistics.fmean(known) if known else None
        return self._means[key]

    def _seconds(self, run):
        if run.id not in self._known:
            self._known[run.id] = self._seconds_of(run)
        return self._known[run.id]

    @functools.cached_property
    def _groups(self):
        groups = {}
        for run in self._runs:
            for key in self._keys(run):
                groups.setdefault(key, []).append(run)
        return groups

    @staticmethod
    def _keys(run):
        return run.combination, (run.model, run.dataset, run.strategy), None


def remaining(
    run: Run, latest: progress.Progress | None, elapsed_s: float | None, estimates: Estimates
) -> tuple[float | None, str]:
    """(seconds that a run still takes, basis of that estimate).

    Args:
        latest: of a running run.
        elapsed_s: since a running run was started; None: it is not running.
    """
    by_steps = remaining_by_steps(latest)
    if by_steps is not None:
        return by_steps, OWN_STEPS
    seconds, basis = estimates.of(run)
    if seconds is not None and elapsed_s is not None:
        seconds = max(0.0, seconds - elapsed_s)
    return seconds, basis


def remaining_by_steps(latest: progress.Progress | None) -> float | None:
    """Seconds that the remaining steps of a running run take; None if too few are measured."""
    if not latest or latest.step_time_s is None:
        return None
    return max(0, latest.total_steps - latest.step) * latest.step_time_s


def together_s(each_s: Collection[float], at_a_time: int) -> float:
    """Seconds until runs are over that still take `each_s`, some at a time.

    It is at least as long as the longest run takes, however many are trained at a time.
    """
    return max(sum(each_s) / at_a_time, *each_s, 0.0)


def describe_forecast(runs: Iterable[Run], estimates: Estimates, time_limit_s: float) -> str:
    """One line on the cost of training some runs.

    Args:
        time_limit_s: after which a run is stopped.
    """
    runs = list(runs)
    if not runs:
        return "cost: no run to train"
    most = node_hours(time_limit_s * sum(run.nodes for run in runs) / 3600)
    prefix = f"cost: {phrases.counted(len(runs), 'run')} to train"
    expected = [estimates.of(run) for run in runs]
    bases = Counter(basis for _, basis in expected)
    if UNKNOWN in bases:
        return f"{prefix}, at most {most} by time_limit_s; an estimate follows from the first runs"
    node_s = sum(
        run.nodes * (seconds or 0.0) for run, (seconds, _) in zip(runs, expected, strict=True)
    )
    bases_text = describe_bases({basis: bases[basis] for basis in BASES})
    about = f"about {node_hours(node_s / 3600)} ({bases_text})"
    return f"{prefix}, {about}, at most {most} by time_limit_s"


def node_hours(hours: float) -> str:
    return f"{hours:.3g} node-hours"


def describe_bases(bases: dict[str, int]) -> str:
    """A phrase with the bases of some estimates.

    >>> describe_bases({"their own steps": 1, "same combination": 11, "all runs": 0})
    'estimated for 1 run from its own progress, for 11 runs from runs of the same combination'

    Args:
        bases: {basis: number of runs that are estimated in this way}.
    """
    estimated = (
        f"for {phrases.counted(number, 'run')} from {_source(basis, number)}"
        for basis, number in bases.items()
        if number
    )
    return f"estimated {', '.join(estimated)}"


def _source(basis, number):
    return SOURCES[basis].replace("their", "its") if number == 1 else SOURCES[basis]
