"""Times and rates that patterns read, converted to the times of steps and to throughput.

A time of a step is known as it is printed; a rate of items needs the batch of all devices, and a
rate of tokens the tokens of an item too. These may come from the run or from the user, so they are
known when the run is completed only. Until then times are those of one item or token.
"""

import math

import numpy as np

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.study import item_names, log_patterns
from dlbench.study.log_patterns import DEVICE, ONE, PROCESS, RUNNING, LogPatterns


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
        self.of_line = log_patterns.speed(patterns.step)
        self.uncertainty = sum(doubt for _, doubt in rates.values())

    def doubt(self, half_digit: float, values: np.ndarray) -> None:
        """Take the rounding of the printed speeds into account."""
        positive = values[np.isfinite(values) & (values > 0)]
        if half_digit and len(positive) and not self.rates:
            self.uncertainty = half_digit / float(np.median(positive))

    def of_steps(
        self,
        steps: np.ndarray,
        values: np.ndarray | None,
        lines: np.ndarray,
        left_out: log_values.LeftOut,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(times, windows) of the rows of steps: in s a step, or in s an item or token.

        Args:
            steps: their numbers, from 1.
            values: printed times or rates; None if the lines have none.
            lines: of the log, for what is left out.
        """
        count = len(steps)
        if values is None or not count:
            return np.full(count, math.nan), np.zeros(count)
        valid = np.isfinite(values) & (values > 0)
        for line in lines[~valid].tolist():
            left_out.add(line, f"{self.of_line} that is no number above 0")
        times = np.full(count, math.nan)
        if self.of_line in log_patterns.TIMES_S:
            times[valid] = values[valid] * log_patterns.TIMES_S[self.of_line]
        else:
            times[valid] = 1 / values[valid]
        if self.patterns.means == ONE:
            return times, np.ones(count)
        if self.patterns.means == RUNNING:
            return self._from_running_means(steps, times, valid, lines, left_out)
        windows = np.diff(steps, prepend=0)
        if count > 1:  # a log whose beginning is missing
            windows[0] = min(windows[0], windows[1])
        return times, windows

    def _from_running_means(self, steps, means, valid, lines, left_out):
        """Times of windows from means over all steps after the first `warm_up` ones."""
        before = self.patterns.warm_up if isinstance(self.patterns.warm_up, int) else 0
        times, windows = np.full(len(steps), math.nan), np.zeros(len(steps))
        known = np.flatnonzero(valid & (steps > before))
        counted = steps[known] - before
        spent = counted * means[known]
        windows[known] = np.diff(counted, prepend=0)
        times[known] = np.diff(spent, prepend=0) / windows[known]
        for row in np.flatnonzero(times <= 0).tolist():
            left_out.add(int(lines[row]), "a running mean by which steps took no time")
            times[row] = math.nan
        self.notes.append("times of windows are differences of running means")
        return times, windows

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
        times, windows = np.array(steps.step_time_s), np.array(steps.window_steps)
        if share and batch and per_item:
            factor = batch * per_item / share
            steps.step_time_s[:] = type(steps.step_time_s)("d", (times * factor).tobytes())
            return
        measured = np.isfinite(times) & (windows > 0) & (np.array(steps.warm_up) == 0)
        steps.step_time_s[:] = type(steps.step_time_s)("d", [math.nan] * len(times))
        steps.window_steps[:] = type(steps.window_steps)("q", [0] * len(times))
        if share and measured.any():
            spent = math.fsum((times * windows)[measured])
            counted = int(windows[measured].sum())
            columns["steps_measured"] = counted
            self._throughput(columns, self.of_line, share * counted / spent, per_item)
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
