"""Times and rates that patterns read, converted to the times of steps and to throughput.

A time of a step is known as it is printed; a rate of items needs the batch of all devices, and a
rate of tokens the tokens of an item too. These may come from the run or from the user, so they are
known when the run is completed only. Until then times are those of one item or token.

Running means and elapsed times are readings of a clock, of which windows are the differences
(dlbench/imports/windows.py).
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from dlbench.imports import console, log_values, windows
from dlbench.imports.importers import Imported
from dlbench.study import item_names, log_patterns
from dlbench.study.log_patterns import DEVICE, PROCESS, RUNNING, LogPatterns


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
        running = patterns.means == RUNNING and isinstance(patterns.warm_up, int)
        self.untimed = patterns.warm_up if running else 0
        if patterns.untimed is not None:
            self.untimed = patterns.untimed
        self.uncertainty = sum(doubt for _, doubt in rates.values())

    def of_steps(
        self, rows: Rows, values: np.ndarray, half_digit: float, left_out: log_values.LeftOut
    ) -> tuple[np.ndarray, np.ndarray]:
        """(times, windows) of step lines: in s a step, or in s an item or token.

        Args:
            values: printed times or rates.
            half_digit: half of their last printed digit.
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
            for end in windows.ends(zip(clock[part], doubts[part], strict=True), origin):
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
                f"times in doubt by over {windows.MAX_DOUBT:.0%}"
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
        for row in np.flatnonzero(abs(tokens / usual - 1) > console.AGREE)[:1]:
            self.contradicts = (
                f"time x tokens/s in line {rows.lines[row]} are {tokens[row]:.4g} tokens, in "
                f"others {usual:.4g}"
            )

    def complete(self, columns: dict, run: Imported) -> None:
        """Add what needs columns of the run: batch, devices, items' shape."""
        self.notes = run.notes
        if self.rates:
            columns.pop("images_per_second", None)  # as printed, for console.join_ranks
        tokens = item_names.tokens(columns.get("item_shape"))
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
        if self.tokens_of_device and not batch:
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
