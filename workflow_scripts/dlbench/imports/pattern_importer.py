"""An importer that reads a log by patterns (dlbench/study/log_patterns.py), with what they mean.

- Prefixes of launchers and loggers are removed, and the lines of each rank are read apart
  (log_lines.py). Of several ranks the slowest counts, or the one that is named.
- A line of a step becomes a row of steps: of one step, or a window of the steps since the line
  before, whose time is printed or follows from running means or elapsed times. Steps that count
  from 0 are counted from 1, those of epochs on from the epoch before. Steps that do not increase
  are refused: lines of several ranks, or of two runs.
- A rate becomes a time by the batch of the run, or of the log's settings. Without it there is the
  throughput: items over time, the harmonic mean of the rates.
- The first line of a step is the warm-up, unless the patterns say another.
- A number that cannot be one is left out, with its line.
"""

import dataclasses
import difflib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogError, LogFile
from dlbench.imports.pattern_run import RankLines
from dlbench.study.log_patterns import ALONE, LogPatterns

KIND = "patterns"  # of logs that are read by patterns of a config
SHOWN, SHOWN_CHARACTERS = 5, 160  # lines near to a pattern, and of each
BATCH_BYTES = 2 * 2**20  # of lines that are searched at once
EXAMINED = 20_000  # lines, at the beginning, that may be near to a pattern
SHAPES = 500  # different ones, apart from their numbers


@dataclass(frozen=True)
class PatternImporter:
    """Reads logs as the modules in importers/ do; their docstring says what the attributes are.

    Attributes:
        about: what a file of patterns says of its program.
        marks: texts of which a log of this kind has one in a line that `step` or `rate` matches.
        unless: texts by which a log is one of another kind, that reads more.
        columns: of the runs table, the same for all logs of this kind.
        processes: how many processes train the run; None if unknown, as of a finished log.
    """

    name: str
    patterns: LogPatterns
    about: str = ""
    marks: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    processes: int | None = None

    @property
    def FAMILY(self) -> str:
        return self.name

    @property
    def LINE_MARKS(self) -> tuple[bytes, ...]:
        return tuple(mark.encode() for mark in self.marks)

    @property
    def is_of_a_run(self) -> bool:
        """Whether the log is of a run that has just ended: complete, and of one run."""
        return self.processes is not None

    def recognise(self, log: LogFile) -> bool:
        if not any(mark in log.head for mark in self.LINE_MARKS):
            return False
        if any(text.encode() in log.head for text in self.unless):
            return False
        lines = RankLines(log, dataclasses.replace(self.patterns, metrics=()), None)
        texts = log_lines.head(log).split("\n")
        lines.add(np.arange(len(texts)), pa.array(texts))
        return not lines.matched.isdisjoint({"step", "rate"})

    def read(self, log: LogFile) -> Iterator[Imported]:
        ranks = self._lines_by_rank(log)
        if self.patterns.rate and not self.is_of_a_run and len(ranks) == 1:
            ((rank, lines),) = ranks.items()
            for training in lines.trainings():
                yield from self._runs(log, {rank: training})
        else:
            yield from self._runs(log, ranks)

    def _runs(self, log, ranks):
        """The runs of one training, whose RankLines are given by rank."""
        failed = [lines.failed for lines in ranks.values() if lines.failed]
        with_steps = {rank: lines for rank, lines in ranks.items() if lines.step_lines}
        if self.patterns.rank == ALONE and len(with_steps) > 1:
            several = ", ".join(map(str, with_steps))
            raise LogError(
                f"{log.path}: lines of ranks {several}: each prints the rate of its own process, "
                "and whether they trained together is not said; import a log of each"
            )
        for lines in with_steps.values():
            for other in ranks.values():
                lines.complement(other)
        runs = [
            (rank, run) for rank, lines in (with_steps or ranks).items() if (run := lines.run())
        ]
        if not runs and not failed:
            raise self._nothing_matches(log)
        if not runs:
            runs = [(None, Imported({}, lines=(1, max(line for line, _ in failed))))]
        joined = log_lines.join_ranks(runs)
        if len(joined) > 1 and self.is_of_a_run:
            raise _disagreement(log, runs)
        for run in joined:
            run.columns = dict(self.columns) | run.columns
            matched = {key for lines in ranks.values() for key in lines.matched}
            if self.is_of_a_run:
                run.notes += self._unmatched(log, matched)
            elif self.patterns.rate and "rate" not in matched:
                run.status, run.message = "failed", "the log ends before the rate of the training"
            if failed:
                line, text = min(failed)
                run.status = "failed"
                run.message = f"line {line}: {text}, which the pattern failed is for"
            yield run

    def _lines_by_rank(self, log):
        """The RankLines of each rank that counts.

        A LogError if there are labels, and none is that of the rank that counts.
        """
        ranks, first, wanted = {}, 1, self.patterns.rank
        all_patterns = [pattern for _, pattern in self.patterns.all()]
        for block in _batches(log.text()):
            is_cut = not block.endswith(b"\n")
            if is_cut and not self.is_of_a_run:
                lines = ranks.setdefault(None, RankLines(log, self.patterns, self.processes))
                lines.left_out.add(first, log_lines.CUT_SHORT)
                continue
            texts = log_lines.split_lines(block + b"\n" * is_cut)
            for rank, rows, of_rank in _by_rank(texts, all_patterns):
                lines = ranks.setdefault(rank, RankLines(log, self.patterns, self.processes))
                lines.add(first + rows, of_rank)
            first += len(texts)
        labels = [rank for rank in ranks if rank is not None]
        if wanted in (None, ALONE) or not labels:
            return ranks
        if str(wanted) not in labels:
            found = ", ".join(sorted(labels, key=int))
            raise LogError(f"{log.path}: no line of rank {wanted}, only of {found}: see rank")
        return {rank: ranks[rank] for rank in (str(wanted), None) if rank in ranks}

    def _nothing_matches(self, log):
        """The error of a log in which neither step nor rate nor a metric matches a line."""
        measuring = [
            (key, pattern)
            for key, pattern in self.patterns.all()
            if key in ("step", "rate") or key.startswith("metrics.")
        ]
        keys = " or ".join(key for key, _ in measuring)
        near = nearest(log, [pattern for _, pattern in measuring])
        return LogError(f"{log.path}: no number in a line that {keys} matches; {near}")

    def _unmatched(self, log, matched):
        """A note for each pattern that matches no line, with the lines that come nearest."""
        return [
            f"no line matches {key}, '{pattern}'; {nearest(log, [pattern])}"
            for key, pattern in self.patterns.all()
            if key not in matched and key != "failed"
        ]


def _batches(blocks):
    """Blocks of lines joined, since each search compiles its pattern anew; a cut line is last."""
    joined: list[bytes] = []
    for block in blocks:
        if joined and (sum(map(len, joined)) > BATCH_BYTES or not block.endswith(b"\n")):
            yield b"".join(joined)
            joined = []
        if block:
            joined.append(block)
    if joined:
        yield b"".join(joined)


def _by_rank(lines, patterns):
    """Yield (rank or None, positions, lines without prefixes) for each rank in a block of lines.

    What looks like a prefix may be what a pattern is for, as the step in `10: loss 2.5`; such a
    line is kept as it is.
    """
    if not len(log_lines.matching(lines, log_lines.PREFIXED)):
        yield None, np.arange(len(lines)), lines
        return
    ranks, bare = log_lines.without_labels(lines, log_lines.LABELS)
    further = log_lines.matching(bare, log_lines.PREFIXED)  # dates, levels, several labels
    if len(further):
        labels, texts = ranks.to_pylist(), bare.to_pylist()
        for row in further.tolist():
            labels[row], texts[row] = log_lines.split(lines[row].as_py())
        ranks, bare = pa.array(labels, pa.string()), pa.array(texts)
    kept = np.zeros(len(lines), bool)
    for pattern in patterns:
        as_printed = log_lines.matching(lines, pattern)
        kept[np.setdiff1d(as_printed, log_lines.matching(bare, pattern), True)] = True
    if kept.any():
        bare = pa.array(np.where(kept, lines, bare))
        ranks = pa.array(np.where(kept, None, ranks), pa.string())
    coded = ranks.dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy()
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        rank = None if code < 0 else coded.dictionary[code].as_py()
        yield rank, rows, bare.take(pa.array(rows))


def _disagreement(log, runs):
    """The error of ranks that printed different trainings."""
    times = {rank: log_lines.mean_time_s(run) for rank, run in runs}
    known = {rank: time for rank, time in times.items() if time}
    least = min(known.values(), default=1.0)
    shown = [f"rank {rank} took {time / least:.3g} times the least" for rank, time in known.items()]
    return LogError(
        f"{log.path}: the ranks disagree: a step of {', '.join(shown[:SHOWN])}. Ranks that wait "
        "for one another take the same time; with rank: 0 in log the lines of rank 0 alone count"
    )


def nearest(log: LogFile, patterns: list[str]) -> str:
    """The lines that come nearest to some patterns, for messages.

    Lines are compared by the words of the patterns that they have, then by all their characters;
    lines that differ in numbers only count once.
    """
    words = {word for pattern in patterns for word in re.findall(r"[A-Za-z]{2,}", _plain(pattern))}
    skeletons = [re.sub(r"[\\^$?*+()\[\]{}|.]", "", _plain(pattern)) for pattern in patterns]
    shapes: dict[str, tuple[int, str]] = {}
    for number, line in itertools.islice(log.lines(), EXAMINED):
        text = log_lines.split(line)[1].strip()
        if text and len(shapes) < SHAPES:
            shapes.setdefault(re.sub(r"\d+", "0", text[:SHOWN_CHARACTERS]), (number, text))
    if not shapes:
        return "the log is empty"

    def likeness(shape):
        alike = (difflib.SequenceMatcher(None, shape, one).ratio() for one in skeletons)
        return sum(word in shape for word in words), max(alike, default=0.0)

    best = sorted(shapes, key=likeness, reverse=True)[:SHOWN]
    shown = [
        f"line {number}: {log_lines.printable(text, SHOWN_CHARACTERS)}"
        for number, text in (shapes[shape] for shape in best)
    ]
    return f"nearest: {'; '.join(shown)}"


def _plain(pattern):
    """A pattern without the names of its groups and its classes."""
    return re.sub(r"\(\?(?:P<\w+>|:)|\\[A-Za-z]", " ", pattern)
