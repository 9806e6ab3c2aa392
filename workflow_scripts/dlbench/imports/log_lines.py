"""Lines of logs: prefixes of launchers and loggers, the ranks that printed them, values in them.

- Launchers print the rank: `[1,0]<stdout>:` (mpirun), `0: ` (srun -l), `[rank0]:` (torchrun),
  `[0] ` (mpiexec -l). Dates and log levels come before or after it.
- Each rank's lines go to a reader of its own. If several ranks have a run, they trained it
  together; or each trained its own, which has one device, or a speed that differs from the others.
- Ranks that train together wait for one another. The slowest rank's lines count, and the notes say
  by how much the other ranks' values differ.
- Lines without ranks are of one training that goes on, of ranks that train together (`check_rank`)
  or of trainings one after the other (`check_begin`); those of several at once are refused.
- Values are parsed and checked to be plausible, and printed safely. Of a clock whose readings have
  few digits `window_ends` gives the windows of steps between them.
- Many lines are matched with a pattern at once by RE2 in Arrow, which takes a time linear in the
  length of a line for every pattern (dlbench/study/log_patterns.py), so none can hang an import.
"""

import csv
import itertools
import json
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

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
# What a line with a prefix, or with a label of its rank, begins with; for pattern_run, whose
# engine has no lookahead and no groups without names.
PREFIXED = rf"^(?:{_rank}|{_dated}|{_level})".replace(r"(?=\[)", r"\[")
LABELS = [f"^{label}".replace(r"(\d", r"(?P<rank>\d") for label in _labels]
UNKNOWN_RANKS_HINT = (
    "which rank printed which line is unknown: import a log of each rank, or have the launcher "
    "print the rank before each line (mpirun --tag-output, srun --label)"
)
AGREE = 0.1  # relative difference of the times of ranks that wait for one another
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MAX_COUNT = 2**31 - 1  # of devices, items in a batch, steps in a window
MAX_TIME_S = 1e9  # of a run: 32 years
MAX_NAMES = 20  # listed in one note
MAX_DOUBT = 0.01  # relative error of the time of a window of steps by the last printed digit
CUT_SHORT = "no newline at its end, so it may be cut short"  # reason to leave a last line out
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
PRINTED = re.compile(r"[-+]?[\d,]{1,20}(?:\.\d{0,20})?")
SAMPLED = 100  # texts whose decimals are counted
SUFFIXED = re.compile(r"(.*[\d.])\s?([A-Za-zµ]{1,3})", re.S)
SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


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
    log: LogFile, reader: Callable[[LogFile], Reader], dates: bool = False
) -> Iterator[Imported]:
    """The runs of a log that one process or several printed.

    `reader` is called for each process; with `dates` it gets lines with their prefixes. Raises
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

    `rates` (or times) and `losses` are of both; losses where they are means over all ranks, None if
    not printed. Raises LogError: they cannot.
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


def real(value: Any, low: float = -math.inf, high: float = math.inf) -> float | None:
    """The value as a float from `low` to `high`; None if it is nan or no such number.

    >>> real("0.5"), real(3), real("nan"), real(True), real("5 W"), real(-1, low=0)
    (0.5, 3.0, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if low <= number <= high else None


def count(value: Any, low: int = 1, high: int = MAX_COUNT) -> int | None:
    """The value as an int from `low` to `high`; None if it is no such whole number.

    >>> count("64"), count(64.0), count(0), count("6.5"), count("9" * 5000), count(None)
    (64, 64, None, None, None, None)
    """
    number = real(value, low, high)
    return int(number) if number is not None and number.is_integer() else None


def loss(value: Any) -> float | None:
    """The value as a float, which may be nan or infinite; None if it is no number."""
    number = real(value)
    return math.nan if number is None and str(value).strip().lower() == "nan" else number


def append_rows(rows: Sequence[Sequence[bytes]], columns: Sequence[array]) -> None:
    """Parse many rows of numbers with Arrow and append them to columns; slow for a few rows.

    Args:
        rows: texts of numbers, one for each column. Real numbers may be nan and inf.
        columns: arrays of a type that Arrow and NumPy share.

    >>> steps, losses = array("q"), array("d")
    >>> append_rows([(b"1", b"6.25"), (b"2", b"nan")], (steps, losses))
    >>> list(steps), list(losses)
    ([1, 2], [6.25, nan])

    Raises:
        pa.ArrowInvalid: a text is no number of its column's type.
    """
    text = b"\n".join(map(b" ".join, rows))
    names = [str(place) for place in range(len(columns))]
    types = [pa.from_numpy_dtype(np.dtype(column.typecode)) for column in columns]
    table = pa.csv.read_csv(
        pa.BufferReader(text),
        pa.csv.ReadOptions(column_names=names, use_threads=False),
        pa.csv.ParseOptions(delimiter=" ", quote_char=False),
        pa.csv.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)), null_values=[], check_utf8=False
        ),
    )
    for column, numbers in zip(columns, table.columns, strict=True):
        column.frombytes(numbers.to_numpy().tobytes())


def date(seconds: float) -> datetime | None:
    """The date in UTC of a number of seconds since 1970; None if there is no such date."""
    try:
        return EPOCH + timedelta(seconds=seconds)
    except (OverflowError, ValueError, TypeError):
        return None


def from_json(text: str) -> Any:
    """The value of a JSON text; None if it is no JSON or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def printable(text: str, most: int = 80) -> str:
    """A part of a log for a message, as one short line without control characters.

    >>> printable("a\\tb\\x1b"), printable("x" * 9, most=4)
    ("'a\\\\tb\\\\x1b'", "'xxxx'...")
    """
    return repr(text[:most]) + ("..." if len(text) > most else "")


def csv_cells(line: str, separator: str = ",") -> list[str]:
    """The cells of a line of CSV; none if it is no CSV, e.g. with a cell of over 131072 characters.

    >>> csv_cells('1,"a,b"\\r'), csv_cells("1;2", ";")
    (['1', 'a,b'], ['1', '2'])
    """
    try:
        return next(csv.reader([line.rstrip("\r")], delimiter=separator), [])
    except csv.Error:
        return []


def list_names(names: Iterable[str]) -> str:
    """Names in alphabetical order, at most MAX_NAMES of them.

    >>> list_names(["b", "a"])
    'a, b'
    """
    names = sorted(names)
    more = [f"and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join(names[:MAX_NAMES] + more)


class LeftOut:
    """Counts the lines that an importer leaves out, by reason."""

    def __init__(self) -> None:
        self._lines_by_reason: dict[str, tuple[int, int, int]] = {}  # first, last, how many

    def add(self, line: int, reason: str) -> None:
        first, _, times = self._lines_by_reason.get(reason, (line, line, 0))
        self._lines_by_reason[reason] = (first, line, times + 1)

    def notes(self) -> list[str]:
        """One note for each reason.

        >>> left_out = LeftOut()
        >>> left_out.add(7, "no number"), left_out.add(9, "no number"), left_out.add(8, "cut")
        (None, None, None)
        >>> left_out.notes()
        ['lines 7 to 9, 2 of them, left out: no number', 'line 8 left out: cut']
        """
        return [
            f"line {first} left out: {reason}"
            if times == 1
            else f"lines {first} to {last}, {times} of them, left out: {reason}"
            for reason, (first, last, times) in self._lines_by_reason.items()
        ]


def window_ends(
    readings: Iterable[tuple[float, float]], start: tuple[float, float] = (0, 0)
) -> array:
    """The positions of the readings at which windows end.

    A window whose time is in doubt by more than MAX_DOUBT is joined with the next one, the last
    with as many before it as needed. The mean of all has the printed precision in any case.

    Args:
        readings: (time in s, its error in s by the last printed digit) each; a time of 0 is none.
        start: that of the beginning.

    >>> list(window_ends([(10, 0.1), (20, 0.1), (30, 0.4), (40, 0.1), (41, 0.1)]))
    [0, 4]
    """
    rows, times_s, doubts_s = array("q"), array("d"), array("d")
    last, last_s, last_doubt_s = None, *start
    for row, (at_s, doubt_s) in enumerate(readings):
        if not at_s:
            continue
        last = (row, at_s, doubt_s)
        took_s = at_s - last_s
        if took_s > last_doubt_s and doubt_s + last_doubt_s <= MAX_DOUBT * took_s:
            rows.append(row)
            times_s.append(at_s)
            doubts_s.append(doubt_s)
            last_s, last_doubt_s = at_s, doubt_s
    if last and (not rows or rows[-1] != last[0]):
        while rows and last[2] + doubts_s[-1] > MAX_DOUBT * (last[1] - times_s[-1]):
            del rows[-1], times_s[-1], doubts_s[-1]
        rows.append(last[0])
    return rows


def split_lines(block: bytes) -> pa.StringArray:
    """The lines of a block that ends with a newline, without their newlines.

    >>> split_lines(b"a\\n\\nbc\\n").to_pylist()
    ['a', '', 'bc']
    """
    if not block.isascii():
        block = block.decode("utf-8", "replace").encode()
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    text = block.replace(b"\n", b"")
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text))


def matching(lines: pa.StringArray, pattern: str) -> np.ndarray:
    """The positions of the lines that a pattern matches anywhere."""
    return np.flatnonzero(pc.match_substring_regex(lines, pattern).to_numpy(zero_copy_only=False))


def match_groups(
    lines: pa.StringArray, pattern: str
) -> tuple[np.ndarray, dict[str, pa.StringArray]]:
    """(positions of the lines that match, texts of each named group in them).

    >>> rows, texts = match_groups(pa.array(["loss 2.5", "done", "loss 2"]), r"loss (?P<loss>\\S+)")
    >>> rows.tolist(), texts["loss"].to_pylist()
    ([0, 2], ['2.5', '2'])
    """
    found = pc.extract_regex(lines, pattern)
    valid = found.is_valid()
    rows = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
    if len(rows) < len(found):
        found = found.filter(valid)
    names = [found.type.field(place).name for place in range(found.type.num_fields)]
    return rows, dict(zip(names, found.flatten(), strict=True))


def without_labels(
    lines: pa.StringArray, labels: Sequence[str]
) -> tuple[pa.StringArray, pa.StringArray]:
    """(group of the label with which a line begins, or null, and the lines without it).

    `labels`: patterns of different labels with one group each.

    >>> ranks, rest = without_labels(pa.array(["[3] a", "b"]), [r"^\\[(?P<rank>\\d+)\\] "])
    >>> ranks.to_pylist(), rest.to_pylist()
    (['3', None], ['a', 'b'])
    """
    ranks, rest = pa.nulls(len(lines), pa.string()), lines
    for label in labels:
        if len(matching(lines, label)):
            ranks = pc.coalesce(ranks, pc.extract_regex(lines, label).flatten()[0])
            rest = pc.replace_substring_regex(rest, label, "", max_replacements=1)
    return ranks, rest


def only_group(line: str, pattern: str) -> str:
    """The text of the only group of a pattern, which need not have a name, in a line that matches.

    >>> only_group("Avg bus bandwidth : 4.25 GB/s", r"bandwidth\\s*:\\s*(\\S+)")
    '4.25'
    """
    whole = rf"(?s)^.*?(?:{pattern}).*$"
    return pc.replace_substring_regex(pa.array([line]), whole, r"\1")[0].as_py()


def parse_numbers(texts: pa.StringArray) -> np.ndarray:
    """Texts as floats; nan of one that is no number.

    >>> parse_numbers(pa.array(["1e3", "1,024", "", "338K", "nan", "n/a"])).tolist()
    [1000.0, 1024.0, nan, 338000.0, nan, nan]
    """
    try:
        return pc.cast(texts, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        pass
    return np.array([parse_number(text) for text in texts.to_pylist()], float)


def parse_number(text: str) -> float:
    """A text as a float, which may be infinite; nan if it is no number."""
    digits, factor = _parts(text.strip())
    value = real(digits.replace(",", "") if THOUSANDS.fullmatch(digits) else digits)
    return math.nan if value is None or factor is None else value * factor


def _parts(text):
    """(digits, by what they are multiplied; None if that is unknown) of a number."""
    match = SUFFIXED.fullmatch(text)
    return (match[1], SCALES.get(match[2])) if match else (text, 1.0)


def half_last_digit(texts: pa.StringArray) -> float:
    """Half of the last printed digit of the texts, of the one with most; 0 of none.

    >>> half_last_digit(pa.array(["45.3", "45.25"])), half_last_digit(pa.array(["4.5e-05"]))
    (0.005, 5e-07)
    >>> half_last_digit(pa.array(["338K"]))
    500.0
    """
    sizes = []
    for text in texts.slice(0, SAMPLED).to_pylist():
        digits, factor = _parts(text.strip())
        mantissa, _, exponent = digits.lower().partition("e")
        power = exponent or "0"
        if factor and PRINTED.fullmatch(mantissa) and re.fullmatch(r"[-+]?\d{1,2}", power):
            decimals = len(mantissa.partition(".")[2])
            sizes.append(0.5 * 10.0 ** (int(power) - decimals) * factor)
    return min(sizes, default=0.0)
