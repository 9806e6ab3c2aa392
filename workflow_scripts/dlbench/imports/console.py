"""Read console output: split off the prefixes of launchers and loggers, and separate the ranks.

- Launchers print the rank: `[1,0]<stdout>:` (mpirun), `0: ` (srun -l), `[rank0]:` (torchrun),
  `[0] ` (mpiexec -l). Dates and log levels come before or after it.
- Each rank's lines go to a reader of its own. If several ranks have a run, they trained it
  together; or each trained its own, which has one device, or a speed that differs from the others.
- Ranks that train together wait for one another. The slowest rank's lines count, and the notes say
  by how much the other ranks' values differ.
- Lines without ranks are of one training that goes on, of ranks that train together (`check_rank`)
  or of trainings one after the other (`check_begin`); those of several at once are refused.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogError, LogFile

_labels = (
    r"\[+(?:[^\[\]\s,]{1,80},)?(\d{1,7})\](?:\[[^\[\]\s]{1,80}\])?<std(?:out|err|diag)>: ?",
    r"\[(?:rank|default)(\d{1,7})\]:",
    r"\[(\d{1,7})\] ",
    r" {0,8}(\d{1,7}): ",
)
_rank = "|".join(_labels)
_time = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_day = r"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} {1,2}\d{1,2}"
_date = (
    rf"(?:\d{{4}}[-/]\d\d[-/]\d\d[T ]{_time}(?: ?Z|[+-]\d\d:?\d\d)?"
    rf"|{_day} {_time}(?: \d{{4}})?|{_time})"
)
_dated = (
    rf"(?:\[{_date}\]|{_date}(?: [\w.-]{{1,64}} [\w./-]{{1,64}}\[\d+\]:)?)(?:: | - | \| | |(?=\[))"
)
_level = (
    r"(?:[\w.]{1,64} - )?(?:DEBUG|INFO|WARNING|ERROR)(?: - | \| |:[\w.-]{1,64}:|: | )"
    rf"|[IWEF]\d{{4}} {_time} +\d+ [\w./<>-]{{1,80}}:\d+\] "
)
PREFIX = re.compile(rf"(?:{_rank}|{_dated}|{_level}){{0,6}}")
# What a line with a prefix, or with a label of its rank, begins with; for pattern_lines, whose
# engine has no lookahead and no groups without names.
PREFIXED = rf"^(?:{_rank}|{_dated}|{_level})".replace(r"(?=\[)", r"\[")
LABELS = [f"^{label}".replace(r"(\d", r"(?P<rank>\d") for label in _labels]
UNKNOWN_RANKS_HINT = (
    "which rank printed which line is unknown: import a log of each rank, or have the launcher "
    "print the rank before each line (mpirun --tag-output, srun --label)"
)
AGREE = 0.1  # relative difference of the times of ranks that wait for one another


class Reader(Protocol):
    """An importer's parser for the lines of one process."""

    def add(self, number: int, line: str, is_cut: bool) -> None:
        """Parse a line without its prefix; `is_cut`: the line has no newline at its end."""

    def runs(self) -> list[Imported]:
        """The runs of all lines.

        A LogError if there are none, or the lines contradict one another.
        """


def split(line: str) -> tuple[str | None, str]:
    """Split a line into (rank or None, text without the prefixes of launcher and logger).

    >>> split("[1,3]<stdout>:Model: vgg16"), split("2: 2024-05-02 10:00:05,123 INFO:root:Iter #0")
    (('3', 'Model: vgg16'), ('2', 'Iter #0'))
    >>> split("Nov 26 12:37:00 Model: vgg16"), split("10 images/sec: 47.3")
    ((None, 'Model: vgg16'), (None, '10 images/sec: 47.3'))
    """
    match = PREFIX.match(line)
    if not match or not match.end():
        return None, line
    return next((rank for rank in match.groups() if rank), None), line[match.end() :]


def head(log: LogFile) -> str:
    """The head of a log without the prefixes of its lines."""
    return "\n".join(split(line)[1] for line in log.head_text.split("\n"))


def read(
    log: LogFile,
    reader: Callable[[LogFile], Reader],
    dates: bool = False,
    refuse_several: str = "",
) -> Iterator[Imported]:
    """The runs of a log that one process or several printed.

    Args:
        reader: called for each process; returns a Reader of its lines.
        dates: pass lines with their prefixes, because the reader needs the dates.
        refuse_several: why a log with runs of several ranks is refused; "": it is not.

    Raises:
        LogError: that of the reader with most lines, if no reader has a run.
    """
    readers: dict[str | None, Reader] = {}
    lines: dict[str | None, int] = {}
    for number, line in log.lines():
        rank, text = split(line)
        if rank not in readers:
            readers[rank], lines[rank] = reader(log), 0
        lines[rank] += 1
        readers[rank].add(number, line if dates else text, number == log.unfinished)
    runs, errors = {}, {}
    for rank, of_rank in (readers or {None: reader(log)}).items():
        try:
            runs[rank] = of_rank.runs()
        except LogError as error:
            errors[rank] = error
    if errors and not any(runs.values()):
        raise errors[max(errors, key=lambda rank: lines.get(rank, 0))]
    if refuse_several and len(runs) > 1:
        several = ", ".join(str(rank) for rank in runs)
        raise log.error(1, f"lines of ranks {several}: {refuse_several}; import a log of each")
    for runs_of_ranks in itertools.zip_longest(*runs.values()):
        yield from join_ranks(
            [(rank, run) for rank, run in zip(runs, runs_of_ranks, strict=True) if run]
        )


def join_ranks(ranks: list[tuple[str | None, Imported]]) -> list[Imported]:
    """One run if the ranks trained together, else the run of each rank."""
    if len(ranks) == 1:
        return [ranks[0][1]]
    times = [mean_time_s(run) for _, run in ranks]
    known = [time for time in times if time]
    agree = not known or max(known) <= (1 + AGREE) * min(known)
    devices = {run.columns.get("devices") for _, run in ranks}
    if devices == {1} or (devices == {None} and not agree):
        reason = "of one device each" if devices == {1} else "whose times do not agree"
        for rank, run in ranks:
            run.notes.append(f"of rank {rank}, one of {len(ranks)} that printed runs {reason}")
        return [run for _, run in ranks]
    rank, run = max(zip(times, ranks, strict=True), key=lambda pair: pair[0] or 0)[1]
    others = [other for _, other in ranks if other is not run]
    run.notes.append(
        f"{len(ranks)} ranks printed this run: rank {rank}, the slowest, is taken; "
        f"{differences(run, others, known)}"
    )
    for other in others:
        run.columns = other.columns | run.columns
        run.evals = run.evals or other.evals
        run.lines = (min(run.lines[0], other.lines[0]), max(run.lines[1], other.lines[1]))
    return [run]


def check_begin(log: LogFile, number: int, step: Any, first: Any) -> None:
    """Check that a line that goes back to an earlier step can begin the next run of a log.

    Unless its program says that it begins, a run begins where the one before began: a step in
    between is of a training that printed at the same time.

    Raises LogError: it cannot.
    """
    if step > first:
        raise log.error(number, f"a step after a later one: two trainings; {UNKNOWN_RANKS_HINT}")


def check_rank(
    log: LogFile, number: int, rates: tuple[float, float], losses: tuple[float | None, ...] = ()
) -> None:
    """Check that two lines of one step can be of ranks that train together.

    Args:
        rates: or times, of both.
        losses: of both, where they are means over all ranks; None: not printed.

    Raises:
        LogError: they cannot.
    """
    apart = max(rates) > (1 + AGREE) * min(rates)
    if apart or len(set(map(str, losses)) - {"None"}) > 1:
        values = " and ".join(f"{value:g}" for value in (losses if not apart else rates))
        raise log.error(number, f"{values} of one step: two trainings; {UNKNOWN_RANKS_HINT}")


def mean_time_s(run: Imported) -> float | None:
    """The mean time of the measured steps, or a value proportional to it; None if unknown."""
    times, windows = np.asarray(run.steps.step_time_s), np.asarray(run.steps.window_steps)
    measured = np.isfinite(times) & (windows > 0) & (np.asarray(run.steps.warm_up) == 0)
    if measured.any():
        return float((times * windows)[measured].sum() / windows[measured].sum())
    rate = run.columns.get("images_per_second")
    return run.columns.get("step_time_mean_s") or (1 / rate if rate else None)


def differences(run: Imported, others: list[Imported], times: list[float]) -> str:
    """A sentence on how much the times and losses of the ranks of one run differ."""
    spread = max(times) / min(times) - 1 if times else 0
    steps, losses = np.asarray(run.steps.step), np.asarray(run.steps.loss)
    most = []
    for other in others:
        _, ours, theirs = np.intersect1d(steps, np.asarray(other.steps.step), return_indices=True)
        with np.errstate(invalid="ignore"):  # inf - inf
            apart = np.abs(losses[ours] - np.asarray(other.steps.loss)[theirs])
        most += [apart[np.isfinite(apart)].max()] if np.isfinite(apart).any() else []
    losses_differ = f"losses by up to {max(most):.4g}" if most else "none has a loss"
    return f"their times differ by {spread:.1%}, {losses_differ}"
