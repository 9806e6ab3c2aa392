"""The lines of one rank that patterns match, and the run that they make.

Numbers of step lines are kept as arrays, since a log may have millions of such lines; of all others
the last line counts, or each is a row. A time of a step is known as it is printed; a rate of items
needs the batch of all devices, and a rate of tokens the tokens of an item too. These may come from
the run or from the user, so they are known when the run is completed only. Until then times are
those of one item or token.

Running means and elapsed times are readings of a clock, of which windows are the differences.
"""

import copy
import itertools
import math
from array import array
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import LeftOut
from dlbench.log import metrics as log_metrics
from dlbench.study import log_patterns, wording
from dlbench.study.log_patterns import (
    DEVICE,
    OF_ITEMS,
    ONE,
    PROCESS,
    RUNNING,
    SINCE,
    LogPatterns,
)


@dataclass
class Rows:
    """The step lines that count, as columns.

    Attributes:
        lines: their numbers in the log.
        steps: numbers from 1 that increase.
        within: the same since the epoch began, if steps begin anew in each.
        epochs: numbers that do not decrease.
        windows: how many steps a line is of, if its time is their mean.
        warm_up: whether they are.
    """

    lines: np.ndarray
    steps: np.ndarray
    within: np.ndarray
    epochs: np.ndarray
    windows: np.ndarray
    warm_up: np.ndarray

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, places: np.ndarray) -> "Rows":
        return Rows(*(column[places] for column in vars(self).values()))


class Speeds:
    """The speed of one run.

    Attributes:
        rates: (number, relative uncertainty) by group, of the whole training.
        notes: what was converted.
    """

    def __init__(
        self,
        patterns: LogPatterns,
        rates: dict[str, tuple[float, float]],
        processes: int | None,
    ) -> None:
        self.patterns, self.rates, self.processes = patterns, rates, processes
        self.notes: list[str] = []
        self.tokens_of_device, self.contradicts = 0.0, ""
        self.of_line = log_patterns.speed(patterns.step) or ""
        self.printed, self.is_clock = np.array([]), False  # speeds of lines
        self.untimed = (patterns.warm_up or 0) if patterns.means == RUNNING else 0
        if patterns.untimed is not None:
            self.untimed = patterns.untimed
        self.uncertainty = sum(doubt for _, doubt in rates.values())

    def of_steps(
        self, rows: Rows, values: np.ndarray, half_digit: float, left_out: log_lines.LeftOut
    ) -> tuple[np.ndarray, np.ndarray]:
        """(times, windows) of step lines: in s a step, or in s an item or token.

        `half_digit`: half of the last printed digit of `values`, which are times or rates.
        """
        elapsed = self.of_line.startswith(log_patterns.ELAPSED)
        self.is_clock = elapsed or self.patterns.means == RUNNING
        valid = np.isfinite(values) & ((values >= 0) if elapsed else (values > 0))
        for line in rows.lines[~valid].tolist():
            left_out.add(line, f"{self.of_line} that is no number above 0")
        valid &= rows.windows > 0
        doubts = np.full(len(rows), half_digit)
        if half_digit and valid.any() and not (self.rates or elapsed):
            self.uncertainty = half_digit / float(np.median(values[valid]))
        times = np.full(len(rows), math.nan)
        if self.of_line in log_patterns.TIMES_S:
            times[valid] = values[valid] * log_patterns.TIMES_S[self.of_line]
            doubts *= log_patterns.TIMES_S[self.of_line]
        else:
            times[valid] = 1 / values[valid]
            doubts *= times**2
        if self.is_clock:
            return self._from_clock(rows, times, doubts, valid, elapsed, left_out)
        if self.of_line.startswith(log_patterns.WINDOW_TIME):
            times /= rows.windows
        self.printed = values
        return times, rows.windows

    def _from_clock(self, all_rows, all_times, doubts, valid, elapsed, left_out):
        """Times of windows from running means, or from times since the beginning."""
        places = np.flatnonzero(valid)
        rows, means, doubts = all_rows.take(places), all_times[places], doubts[places]
        of = "an elapsed time" if elapsed else "a running mean"
        begins = np.diff(rows.epochs, prepend=-1) != 0
        if elapsed:  # the clock may begin anew with an epoch
            begins &= np.diff(means, prepend=math.inf) < 0
        first = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
        counted = rows.steps - (rows.steps - rows.within)[first] - self.untimed
        clock = means if elapsed else means * counted
        doubts = doubts if elapsed else doubts * counted
        back = ~begins[1:] & (clock[1:] + doubts[1:] <= clock[:-1] - doubts[:-1])
        for line in rows.lines[1:][back].tolist():
            left_out.add(line, f"{of} by which steps took no time")
        times, spans = np.full(len(all_rows), math.nan), np.zeros(len(all_rows))
        # Lines of the warm-up are not joined, and windows neither over its end nor over epochs.
        cuts = np.flatnonzero(begins | rows.warm_up | np.diff(rows.warm_up, prepend=False))
        for start, stop in itertools.pairwise([*cuts.tolist(), len(rows)]):
            before = None if begins[start] else start - 1
            origin = (0.0, 0.0) if before is None else (clock[before], doubts[before])
            part = slice(start, stop)
            for end in log_lines.window_ends(zip(clock[part], doubts[part], strict=True), origin):
                row = start + end
                span = counted[row] - (0 if before is None else counted[before])
                took_s = clock[row] - (0.0 if before is None else clock[before])
                # Equal means: without the rounding of a difference.
                same = not elapsed and (before is None or means[before] == means[row])
                if took_s > 0:
                    times[places[row]] = means[row] if same else took_s / span
                    spans[places[row]] = span
                before = row
        joined = int((valid & (spans == 0)).sum())
        if joined:
            self.notes.append(
                f"{joined} of {len(rows)} windows joined with the next: printed digits leave their "
                f"times in doubt by over {log_lines.MAX_DOUBT:.0%}"
            )
        self.notes.append(f"times of windows are differences of {of.partition(' ')[2]}s")
        measured_s = float(np.nansum((times * spans)[~all_rows.warm_up]))
        if elapsed and measured_s and not self.rates:
            self.uncertainty = 2 * float(doubts.max()) * int(begins.sum()) / measured_s
        return times, spans

    def compare(self, times: np.ndarray, rates: np.ndarray, rows: Rows) -> None:
        """Compare times of one step with tokens/s of a device: together as many in each line."""
        tokens, counted = times * rates, (rates > 0) & ~rows.warm_up
        if not counted.any():
            return
        self.tokens_of_device = float(counted.sum() / (1 / rates[counted]).sum())
        usual = np.nanmedian(tokens)
        for row in np.flatnonzero(abs(tokens / usual - 1) > log_lines.AGREE)[:1]:
            self.contradicts = (
                f"time x tokens/s in line {rows.lines[row]} are {tokens[row]:.4g} tokens, in "
                f"others {usual:.4g}"
            )

    def complete(self, columns: dict, run: Imported) -> None:
        """Add what needs columns of the run: batch, devices, items' shape."""
        self.notes = run.notes
        if self.rates:
            columns.pop("images_per_second", None)  # as printed, for log_lines.join_ranks
        tokens = wording.tokens(columns.get("item_shape"))
        batch, share = columns.get("global_batch"), self._share(columns)
        if self.of_line in log_patterns.OF_ITEMS and len(run.steps):
            per_item = tokens if self.of_line == log_patterns.TOKEN_RATE else 1
            self._scale(columns, run, share, batch, per_item)
        for name, (value, _) in self.rates.items():
            if name in log_patterns.TIMES_S:
                columns["step_time_mean_s"] = value * log_patterns.TIMES_S[name]
            elif name == log_patterns.STEP_RATE:
                columns["step_time_mean_s"] = 1 / value
            elif share:
                self._throughput(columns, name, value * share, tokens)
        if self.tokens_of_device and not (batch and tokens):
            columns[log_patterns.TOKENS_OF_DEVICE] = self.tokens_of_device
        if self.uncertainty and (self.of_line or self.rates):
            columns.setdefault("rate_uncertainty", self.uncertainty)

    def _share(self, columns):
        """By what a printed rate is multiplied to be that of all devices; None if unknown."""
        devices = columns.get("devices")
        if self.patterns.of == DEVICE:
            share = devices
        elif self.patterns.of == PROCESS:
            share = self.processes or (1 if devices == 1 else None)
        else:
            return 1
        if share is None:
            self.notes.append(f"rates are of {self.patterns.of}, and how many there are is unknown")
        elif share > 1:
            self.notes.append(f"rates are of {self.patterns.of}: times {share} for all")
        return share

    def _scale(self, columns, run, share, batch, per_item):
        """Times of steps from those of one item or token; without the batch the throughput."""
        steps = run.steps
        times, spans = np.array(steps.step_time_s), np.array(steps.window_steps)
        if share and batch and per_item:
            factor = batch * per_item / share
            steps.step_time_s[:] = type(steps.step_time_s)("d", (times * factor).tobytes())
            return
        warm_up = np.array(steps.warm_up) != 0
        measured = np.isfinite(times) & (spans > 0) & ~warm_up
        steps.step_time_s[:] = type(steps.step_time_s)("d", [math.nan] * len(times))
        steps.window_steps[:] = type(steps.window_steps)("q", [0] * len(times))
        if share and measured.any():
            spent = times * spans if self.is_clock else spans / self.printed
            spent_s = math.fsum(spent[measured])
            counted = int(spans[measured].sum())
            columns["steps_measured"] = counted
            if warm_up.any():
                columns["burn_in_steps"] = int(spans[warm_up].sum())
            self._throughput(columns, self.of_line, share * counted / spent_s, per_item)
            self.notes.append("without the batch, rates give a throughput and no times of steps")

    def _throughput(self, columns, name, rate, tokens):
        """Add the rate of all devices, items or tokens a second."""
        if name != log_patterns.TOKEN_RATE:
            columns["images_per_second"] = rate
        elif tokens:
            columns["images_per_second"] = rate / tokens
        else:
            columns["tokens_per_second"] = rate
            self.notes.append("item_shape, the tokens of an item, is unknown: no rate of items")


MAX_STEP, MAX_OF_EPOCHS = 2**53, 2**26
PERCENT = "_percent"
IDS = ("step", "epoch")  # of an evaluation


class RankLines:
    """What the patterns find in the lines of one rank.

    Attributes:
        matched: the keys of the patterns that match a line.
        failed: (line, its text for messages) of the first line that `failed` matches.
    """

    def __init__(self, log: LogFile, patterns: LogPatterns, processes: int | None) -> None:
        self.log, self.patterns, self.processes = log, patterns, processes
        self.matched: set[str] = set()
        self.failed: tuple[int, str] | None = None
        self.left_out = LeftOut()
        self.settings: dict[str, str] = {}
        self.metrics: dict[str, tuple[int, str, str]] = {}  # line, number and unit
        self.rates: list[tuple[int, dict[str, str]]] = []  # lines, of which the last counts
        self.evals: list[tuple[int, dict[str, str]]] = []
        self.step_lines: list[np.ndarray] = []
        self.step_numbers: dict[str, list[np.ndarray]] = {}
        self.half_digit = 0.0  # of the speed in step lines
        self.first_epoch = 1  # in the log
        self.last_loss = ""
        self.first_line = self.last_line = 1

    def add(self, numbers: np.ndarray, lines: pa.StringArray) -> None:
        """Match some lines, whose numbers in the log count from 1.

        Raises LogError: a metric has another unit than before or than was said.
        """
        self.last_line = int(numbers[-1])
        if self.patterns.step:
            self._add_steps(numbers, lines)
        for key, found in (("rate", self.rates), ("evaluation", self.evals)):
            rows = self._rows(key, getattr(self.patterns, key), lines)
            found += [(int(numbers[row]), texts) for row, texts in rows]
        for pattern in self.patterns.settings:
            for _, texts in self._rows("settings", pattern, lines):
                self.settings = texts | self.settings
        for metric in self.patterns.metrics:
            self._add_metric(metric, numbers, lines)
        if self.patterns.failed and not self.failed:
            rows = log_lines.matching(lines, self.patterns.failed)
            if len(rows):
                shown = log_lines.printable(lines[int(rows[0])].as_py().strip(), 200)
                self.failed = int(numbers[rows[0]]), shown

    def _rows(self, key, pattern, lines):
        """(position, texts by group) of each line that a pattern matches."""
        if not pattern:
            return
        rows, texts = log_lines.match_groups(lines, pattern)
        if len(rows):
            self.matched.add(key)
        columns = {name: column.to_pylist() for name, column in texts.items()}
        for place, row in enumerate(rows.tolist()):
            yield row, {name: column[place] for name, column in columns.items() if column[place]}

    def _add_steps(self, numbers, lines):
        rows, texts = log_lines.match_groups(lines, self.patterns.step)
        if not len(rows):
            return
        self.matched.add("step")
        self.step_lines.append(numbers[rows])
        for name, column in texts.items():
            found = log_lines.parse_numbers(column)
            self.step_numbers.setdefault(name, []).append(found)
        if "loss" in texts:
            self.last_loss = texts["loss"][-1].as_py()
        if name := log_patterns.speed(self.patterns.step):
            half = log_lines.half_last_digit(texts[name])
            self.half_digit = self.half_digit or half

    def _add_metric(self, metric, numbers, lines):
        rows = log_lines.matching(lines, metric.pattern)
        if not len(rows):
            return
        self.matched.add(f"metrics.{metric.name}")
        line = lines[int(rows[-1])].as_py()
        if log_patterns.groups_of(metric.pattern):
            _, texts = log_lines.match_groups(lines.take(pa.array(rows)), metric.pattern)
            value = texts[log_patterns.VALUE][-1].as_py()
            units = texts[log_patterns.UNIT].to_pylist() if log_patterns.UNIT in texts else []
            self._check_units(metric, units, numbers[rows])
            unit = units[-1] if units else metric.unit
        else:
            value, unit = log_lines.only_group(line, metric.pattern), metric.unit
        self.metrics[metric.name] = int(numbers[rows[-1]]), value, unit

    def _check_units(self, metric, units, lines):
        _, _, before = self.metrics.get(metric.name, (0, "", ""))
        expected = metric.unit or before or (units[0] if units else "")
        for unit, line in zip(units, lines.tolist(), strict=True):
            if unit != expected:
                raise self.log.error(
                    line,
                    f"metric {metric.name} has the unit {log_lines.printable(unit)}, expected "
                    f"{expected!r}: a number of another unit cannot be compared with the others",
                )

    def complement(self, other: "RankLines") -> None:
        """Take what another rank printed and this one did not, except for steps."""
        self.settings = other.settings | self.settings
        self.metrics = other.metrics | self.metrics
        self.evals = self.evals or other.evals
        self.rates = self.rates or other.rates

    def trainings(self) -> "list[RankLines]":
        """The lines of each training of a finished log, which ends with its rate.

        A LogError if trainings printed at the same time.
        """
        lines = np.concatenate([np.array([], int), *self.step_lines])
        done, starts = self._values("epochs_done"), [1]
        for (end, _), (later, _) in itertools.pairwise([*self.rates, (self.last_line + 1, {})]):
            after = lines[(lines > end) & (lines < later)]
            if len(after):
                starts.append(int(after[0]))
            elif later <= self.last_line:  # without a step between two rates
                log_lines.check_begin(self.log, later, len(lines), 0)
                starts.append(end + 1)
        parts = []
        for start, stop in itertools.pairwise([*starts, self.last_line + 1]):
            inside = (lines >= start) & (lines < stop)
            for line in lines[inside][1:][np.diff(done[inside]) < 0].tolist():
                log_lines.check_begin(self.log, line, 1, 0)
            if start > 1 and inside.any():
                log_lines.check_begin(self.log, start, done[inside][0], done[0])
            part = copy.copy(self)
            part.first_line, part.last_line = start, stop - 1
            part.step_lines = [lines[inside]] if inside.any() else []
            part.step_numbers = {
                name: [np.concatenate(values)[inside]] for name, values in self.step_numbers.items()
            }
            part.evals = [(line, texts) for line, texts in self.evals if start <= line < stop]
            part.rates = [(line, texts) for line, texts in self.rates if start <= line < stop]
            part.matched = self.matched - ({"rate"} if not part.rates else set())
            parts.append(part)
        return parts

    def run(self) -> Imported | None:
        """The run of these lines; None if they have no number of one.

        A LogError if steps do not increase.
        """
        steps, speeds = self._steps()
        columns = self._settings()
        metrics = self._metrics()
        if not (len(steps) or self.rates or metrics or self.step_lines):
            return None
        run = Imported(columns, steps, lines=(self.first_line, self.last_line))
        run.metrics = metrics
        run.evals = self._evaluations()
        losses = self._values("loss")
        if len(losses) and math.isfinite(losses[-1]):
            columns["final_loss"] = float(losses[-1])
        elif self.last_loss.strip().lower() == "nan":
            finite = np.flatnonzero(np.isfinite(losses))
            line = np.concatenate(self.step_lines)[finite[-1] + 1 if len(finite) else 0]
            run.notes.append(f"the loss is nan from line {line} on")
        if item_rates := [v for name, (v, _) in speeds.rates.items() if name in OF_ITEMS]:
            columns["images_per_second"] = item_rates[0]  # to compare ranks; complete replaces it
        if speeds.contradicts:
            columns["contradicts"] = speeds.contradicts
        run.notes += speeds.notes
        run.notes += self.left_out.notes()
        run.complete = lambda known: speeds.complete(known, run)
        return run

    def _values(self, name):
        """The numbers of a group in all step lines; all nan if there is no such group."""
        parts = self.step_numbers.get(name)
        if not parts:
            return np.full(sum(map(len, self.step_lines)), math.nan)
        return np.concatenate(parts)

    def _steps(self):
        """(Steps, Speeds) of the step lines; times are those of one item where rates are read."""
        speeds = Speeds(self.patterns, self._rates(), self.processes)
        named = log_patterns.speed(self.patterns.step)
        if not self.step_lines or not (named or self.step_numbers.keys() & {"step", "epoch"}):
            return Steps(), speeds
        kept, rows = self._numbered(speeds)
        times, spans = np.full(len(rows), math.nan), np.zeros(len(rows))
        if named and len(rows):
            values = self._values(named)[kept]
            times, spans = speeds.of_steps(rows, values, self.half_digit, self.left_out)
            speeds.compare(times, self._values(log_patterns.TOKENS_OF_DEVICE)[kept], rows)
        times = self._without_evaluations(times, rows.lines, speeds)
        spans = np.where(np.isfinite(times), spans, 0)
        columns = Steps(
            array("q", rows.steps.astype(np.int64).tobytes()),
            array("d", times.tobytes()),
            array("d", self._values("loss")[kept].tobytes()),
            array("q", spans.astype(np.int64).tobytes()),
            array("b", rows.warm_up.astype(np.int8).tobytes()),
        )
        if "learning_rate" in self.step_numbers:
            rates = self._values("learning_rate")[kept]
            columns.more["learning_rate"] = array("d", rates.tobytes())
        return columns, speeds

    def _numbered(self, speeds):
        """(positions of the step lines that count, Rows of them)."""
        patterns, given = self.patterns, self.step_numbers.keys()
        lines = np.concatenate(self.step_lines)
        epochs = self._values("epoch") if "epoch" in given else np.ones(len(lines))
        most = MAX_STEP if given.isdisjoint({"epoch", "epoch_steps"}) else MAX_OF_EPOCHS
        lengths = self._values("epoch_steps")
        length = patterns.epoch_steps or np.max(lengths, where=lengths < most, initial=0)
        if "step" in given:
            within = self._values("step")
        elif "epoch" in given:
            within = np.full(len(lines), length)
        else:
            counts = self._values("steps") if "steps" in given else np.ones(len(lines))
            within = np.cumsum(np.where(counts > 0, counts, 0))
        numbers = np.array([within, epochs])
        whole = np.all((numbers >= 0) & (numbers < most) & (numbers % 1 == 0), axis=0)
        for line in lines[~whole].tolist():
            self.left_out.add(line, "a step whose number is none")
        first = patterns.counts_from
        if first is None:
            first = int(0 not in within[whole])
        if "step" in given and not first:
            speeds.notes.append("steps count from 0 in the log, from 1 here")
            within += 1
        kept = np.flatnonzero(whole & (within > 0))
        lines, within, epochs = lines[kept], within[kept], epochs[kept]
        if "epoch" in given and len(epochs):
            low = min(epochs[0], 1) if patterns.counts_from is None else patterns.counts_from
            self.first_epoch, epochs = int(low), epochs - low
        elif length:  # an epoch that ended is followed by another one
            ended = (np.diff(within, prepend=0) <= 0) & (np.roll(within, 1) == length)
            epochs = np.cumsum(ended)
        else:
            epochs = np.zeros(len(lines))
        self._check_order(lines, within + first - 1, epochs + self.first_epoch)
        if len(within) and epochs[-1] > epochs[0] and not length:
            speeds.notes.append("epochs are taken to be as long as the longest: see epoch_steps")
        begins = np.diff(epochs, prepend=-1) != 0
        before = np.where(begins, 0, np.roll(within, 1))
        windows = within - np.maximum(before, speeds.untimed)
        if "steps" in given:
            windows = self._values("steps")[kept]
        elif patterns.means == ONE:
            windows = np.minimum(windows, 1)
        elif patterns.means == SINCE and len(windows) > 1:  # a log whose beginning is missing
            windows[0] = min(windows[0], windows[1])
        steps = epochs * max(length, np.max(within, initial=0)) + within
        warm_up = np.arange(len(steps)) == 0
        if patterns.warm_up is not None:
            warm_up = steps - np.maximum(windows, 1) + 1 <= patterns.warm_up
        return kept, Rows(lines, steps, within, epochs, windows, warm_up)

    def _check_order(self, lines, within, epochs):
        back = (np.diff(epochs) < 0) | ((np.diff(epochs) == 0) & (np.diff(within) <= 0))
        if back.any():
            place = int(np.flatnonzero(back)[0])
            several = "epoch" in self.step_numbers
            was, now = (
                f"step {within[row]:.0f}" + f" of epoch {epochs[row]:.0f}" * several
                for row in (place, place + 1)
            )
            raise self.log.error(
                int(lines[place + 1]),
                f"{now} after {was}: lines of two runs, of several ranks, or of another epoch? "
                "Where steps begin anew in each epoch, step needs a group epoch or epoch_steps. "
                f"Of ranks, {log_lines.UNKNOWN_RANKS_HINT}",
            )

    def _without_evaluations(self, times, lines, speeds):
        """Times without those that contain an evaluation."""
        if not self.patterns.evaluation_in_step or not self.evals:
            return times
        after = np.searchsorted(lines, [line for line, _ in self.evals])
        after = np.unique(after[after < len(lines)])
        times = times.copy()
        times[after] = math.nan
        speeds.notes.append(
            f"the times of {len(after)} steps contain an evaluation, and are left out"
        )
        return times

    def _settings(self):
        columns = {}
        for name, text in self.settings.items():
            is_count = name in log_patterns.COUNTS
            value = log_lines.count(log_lines.parse_number(text)) if is_count else text
            if value is None:
                self.left_out.add(1, f"{name}: {log_lines.printable(text)} is no count")
            else:
                columns[name] = value
        return columns

    def _rates(self):
        """The numbers of the last line that `rate` matches."""
        rates: dict[str, tuple[float, float]] = {}
        line, texts = self.rates[-1] if self.rates else (0, {})
        for name, text in texts.items():
            value = log_lines.parse_number(text)
            if math.isfinite(value) and value > 0:
                rates[name] = value, log_lines.half_last_digit(pa.array([text])) / value
            else:
                self.left_out.add(line, f"{name} is {log_lines.printable(text)}")
        return rates

    def _metrics(self):
        metrics = []
        of_pattern = {metric.name: metric for metric in self.patterns.metrics}
        for name, (line, text, unit) in self.metrics.items():
            value = log_lines.parse_number(text)
            if abs(value) <= log_metrics.MOST:
                better = of_pattern[name].better
                metrics.append({"name": name, "value": value, "unit": unit, "better": better})
            else:
                shown = log_lines.printable(text)
                self.left_out.add(line, f"metric {name}: expected a finite number, found {shown}")
        return metrics

    def _evaluations(self):
        """Rows of evals; lines of one step or epoch with different scores are one row."""
        rows = []
        epochs = self._values("epoch") if "epoch" in self.step_numbers else []
        lines = np.concatenate(self.step_lines) if len(epochs) else []
        for line, texts in self.evals:
            row = self._evaluation(line, texts)
            if not row:
                continue
            ids, last = {name: row[name] for name in IDS if name in row}, (rows or [{}])[-1]
            if ids and ids.items() <= last.items() and row.keys() & last.keys() == {"split", *ids}:
                last.update(row)
                continue
            place = int(np.searchsorted(lines, line)) - 1
            if not ids and place >= 0 and math.isfinite(epochs[place]):
                row["epoch"] = int(epochs[place]) + 1 - self.first_epoch
            rows.append(row)
        return rows

    def _evaluation(self, line, texts):
        """The row of evals of a line; None if it has no score."""
        row, scores = {"split": "validation"}, 0
        for name, text in texts.items():
            value = log_lines.parse_number(text)
            if name in (*IDS, "examples"):
                value = log_lines.count(value, 0)
                if name == "epoch" and value is not None:
                    value += 1 - self.first_epoch
            elif name.endswith(PERCENT):
                name, value = name.removesuffix(PERCENT), value / 100
            if name in ("top1", "top5", "iou") and not 0 <= value <= 1:
                value = None
            if value is None or (math.isnan(value) and name != "loss"):
                self.left_out.add(line, f"{name} of an evaluation: {log_lines.printable(text)}")
                continue
            row[name] = value
            scores += name not in (*IDS, "examples")
        return row if scores else None
