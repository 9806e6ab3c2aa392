"""What runs took, and what others like them will take.

- A part of a run is what follows one launch; a run that went on from a checkpoint has several
  in its log, and so has the log of an attempt that was kept aside. Parts are told apart by the
  date of their launch, so that none counts twice.
- An estimate is the mean of what runs of the same combination took, or of the same model,
  dataset and strategy, or of all, and says which of them.
"""

import contextlib
import json
import re
import statistics
from datetime import datetime, timezone

from dlbench import eventlog

ATTEMPT = re.compile(r"train\.attempt\d+\.jsonl")  # of rank 0
BASES = ("same combination", "same model, dataset and strategy", "all runs")
UNKNOWN = "unknown"
KEPT = tuple(
    f'{{"event": "{kind}"'.encode()
    for kind in ("launch", "begin", "run_start", "resume", "run_end")
)


def parts(log):
    """Seconds of each part of a log, by the date of its launch; up to its last word."""
    found, lines = {}, []
    with contextlib.suppress(OSError), open(log, "rb") as file:
        for line in file:
            if line.startswith(KEPT[0]):
                _add(lines, found)
                lines = []
            # Of the others, the last one only: it says when the part ended.
            if lines and not lines[-1].startswith(KEPT):
                lines.pop()
            if line.endswith(b"\n"):
                lines.append(line)
    _add(lines, found)
    return found


def _add(lines, found):
    launched = ended = anchor = None
    for line in lines:
        # What is no event, or has no date, tells nothing.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            event = json.loads(line)
            if event["event"] == "launch":
                launched = event["t_utc"]
            elif "t_utc" in event:
                ended = eventlog.seconds_between(launched, event["t_utc"])
                if event["event"] in ("run_start", "resume"):
                    anchor = ended - event.get("t_s", 0)
            elif anchor is not None:
                ended = max(ended, anchor + event["t_s"])
    if launched:
        found[launched] = max(0.0, ended or 0.0)


def attempts(place):
    """The parts of all logs that were kept aside in a run's folder."""
    found = {}
    with contextlib.suppress(OSError):
        for path in sorted(place.iterdir()):
            if ATTEMPT.fullmatch(path.name):
                found = longer(found, parts(path))
    return found


def longer(some, others):
    """All parts of both; of one that is in both, the longer: a checkpoint keeps it cut short."""
    return {date: max(some.get(date, 0.0), others.get(date, 0.0)) for date in {*some, *others}}


def until_now(found):
    """The parts of a run that goes on, the last of which lasts until now."""
    if not found:
        return found
    last = max(found)
    now = datetime.now(timezone.utc).strftime(eventlog.UTC_FORMAT)
    return {**found, last: max(found[last], eventlog.seconds_between(last, now))}


class Estimates:
    """Seconds that runs will take, from [(run, seconds)] of finished ones."""

    def __init__(self, finished):
        taken = {}
        for run, seconds in finished:
            for key in self._keys(run):
                taken.setdefault(key, []).append(seconds)
        self._means = {key: statistics.fmean(seconds) for key, seconds in taken.items()}

    def of(self, run):
        """(seconds, on what it rests); (None, "unknown") where nothing has finished."""
        for basis, key in zip(BASES, self._keys(run), strict=True):
            if key in self._means:
                return self._means[key], basis
        return None, UNKNOWN

    @staticmethod
    def _keys(run):
        return run.combination, (run.model, run.dataset, run.strategy), None
