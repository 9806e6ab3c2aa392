"""The schedule of a run: its steps, the ends of its epochs, its warm-up, and its windows.

A window is a group of `steps_per_sync` steps that are timed together:
- If the host waits for the loss of each step, an accelerator is idle from the end of a step until
  the next one is launched. In a window the host launches all steps and waits once, at the end.
- A run may set the length of its windows. If it does not, each step is a window on CPUs, where the
  host cannot run ahead. On GPUs the cost of a wait is measured at the end of the warm-up: the time
  of a step that is waited for, less that of a step in a window. If the warm-up is too short for
  that, a window has DEFAULT_LENGTH steps.
- A window ends early at the end of the warm-up, of an epoch or of the run, and before an evaluation
  or a checkpoint. The first step is a window of its own, because it compiles.

The warm-up has as many steps as asked for. If it also has a least time, steps are added until that
has passed, and the run has as many measured steps as it would have had:
- The number is the same on all ranks, though their clocks differ: they exchange the time that has
  passed. To do so seldom, they then add as many steps as will fill the rest of the time, by the
  mean of the steps so far, but at most as many as those. A warm-up of a thousand steps has some ten
  exchanges, and ends a few steps late.
- Where the cost of a wait is measured, the time passes before that.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from dlbench.trainer import updates
from dlbench.trainer.engine import Engine
from dlbench.trainer.strategy import BaseStrategy, Spec

DEFAULT_LENGTH = 10
MAX_WAIT = 0.01  # the share of a window's time
# So coarse that all repeats of a run choose the same length.
LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
MAX_LENGTH = LENGTHS[-1]
PROBE_STEPS = 10  # at most, of a window in which the wait is measured
MIN_PROBE_STEPS = 2


class Schedule:
    """The steps of one run. Steps and epochs count from 1.

    `records`: number of records in the training split; None if the items are synthetic.

    Attributes:
        global_batch: items of one step, over all devices.
        total: the number of the last step; WarmUp adds to it unless `total_is_final`.
        evaluates: whether the run is scored on held-out items, after each epoch and at its end.
    """

    def __init__(self, spec: Spec, records: int | None):
        self.spec, self._records = spec, records
        self.global_batch = global_batch(spec)
        self.total: int = max(spec.warmup_steps, bool(spec.warmup_s)) + (spec.steps or 0)
        if spec.epochs:
            self.total = self.epoch_end(spec.epochs)
        self.total_is_final = not spec.warmup_s
        self.evaluates = bool(
            spec.mode == "train"
            and records
            and (spec.evaluate == "yes" or (spec.evaluate == "auto" and spec.epochs is not None))
        )

    def resume(self, first: int, total: int | None) -> None:
        """Set the last step of a run with a timed warm-up that goes on after step `first`.

        `total` is its number if the warm-up had ended by then. The repeated one adds nothing to it,
        and ends with the run at the latest.
        """
        self.total_is_final = total is not None
        self.total = total or self.warm_up_end(first) + (self.spec.steps or 0)

    def epoch_end(self, epoch: int) -> int:
        """The last step of an epoch; with synthetic items all steps are one epoch."""
        if not self._records:
            return self.total
        return steps_in(epoch, self._records, self.global_batch)

    def epoch_after(self, step: int) -> int:
        """The epoch in which the step after `step` ends; in large batches some have no end."""
        return step * self.global_batch // self._records + 1 if self._records else 1

    def warm_up_end(self, first: int) -> int:
        """The last step of the warm-up; later steps are measured.

        After step `first` a run was resumed, whose warm-up is repeated there; 0 if it was not.
        """
        spec, end = self.spec, self.spec.warmup_steps
        if spec.epochs:
            end = self.epoch_end(1) if spec.epochs > 1 else 0
        end = max(end, first + spec.warmup_steps) if first else end
        return max(end, first + 1) if spec.warmup_s else end  # the time starts with a step's end

    def learning_rates(self, first: int, last: int) -> list[float]:
        """The learning rates of some steps, from the first to the last."""
        return [
            updates.learning_rate_in_step(self.spec, self.global_batch, step, self.total)
            for step in range(first, last + 1)
        ]


def global_batch(spec: Spec) -> int:
    """Items of one step, over all devices."""
    return spec.batch_per_device * spec.devices_per_node * spec.nodes


def steps_in(epochs: int, records: int, global_batch: int) -> int:
    """The step that reads the last record of an epoch; a batch may span epochs.

    >>> [steps_in(epochs, records=10, global_batch=4) for epochs in (1, 2, 3)]
    [3, 5, 8]
    """
    return -(-epochs * records // global_batch)


def unsupported(run: Spec, strategy: type[BaseStrategy]) -> str | None:
    """Why a run of a class of strategy cannot have its windows or its warm-up; None if it can."""
    if run.warmup_s and run.epochs:
        return (
            f"warmup_s is of runs with steps, and this one has epochs ({run.epochs}), the first of "
            "which is the warm-up where there are several: leave it out, or give steps"
        )
    if (run.steps_per_sync or 1) > 1 and not strategy.supports_windows:
        return (
            f"strategy {run.strategy} waits for each step: steps_per_sync must be 1, found "
            f"{run.steps_per_sync}"
        )
    return None


def requested_length(
    spec: Spec, strategy: BaseStrategy | type[BaseStrategy], on_gpus: bool
) -> int | None:
    """The steps of a window that a run asks for; None: as many as keep the wait short."""
    if spec.steps_per_sync:
        return spec.steps_per_sync
    return None if on_gpus and strategy.supports_windows else 1


def shortest_length(step_s: float, window_step_s: float, window_steps: int) -> int:
    """The shortest of LENGTHS for which the wait takes at most MAX_WAIT of a window.

    A step that is waited for takes `step_s` seconds, one of a window of `window_steps`, at least 2,
    `window_step_s` on average.

    >>> shortest_length(0.0101, 0.01001, window_steps=10)  # a step takes 10 ms, a wait 0.1 ms
    1
    >>> shortest_length(0.0012, 0.00102, window_steps=10)  # a step takes 1 ms, a wait 0.2 ms
    20
    """
    wait_s = max(0.0, (step_s - window_step_s) * window_steps / (window_steps - 1))
    work_s = step_s - wait_s
    return next((n for n in LENGTHS if wait_s <= MAX_WAIT * (n * work_s + wait_s)), MAX_LENGTH)


class Windows:
    """The windows of one run in one process; they are the same on all ranks.

    A window that does not end early has `length` steps; WarmUp adds to `warm_up_end`, the last step
    of the warm-up. The run was resumed after step `first`, 0 if it was not.
    """

    def __init__(self, schedule: Schedule, engine: Engine, first: int):
        self._first, self._gather = first, engine.strategy.gather
        self._is_timed = bool(schedule.spec.warmup_s)
        self.warm_up_end = warm_up_end = schedule.warm_up_end(first)
        length = requested_length(schedule.spec, engine.strategy, bool(engine.gpu_count))
        self._most = max(1, schedule.total - max(first, warm_up_end))
        self.length = min(length or DEFAULT_LENGTH, self._most)
        # The warm-up ends with a window, which may compile, as many single steps, and a window.
        probe = 0 if length else min(PROBE_STEPS, (warm_up_end - first - 1) // 3)
        self._probe = probe if probe >= MIN_PROBE_STEPS else 0
        self._times: dict[int, list[float]] = {}

    @property
    def probed_from(self) -> int:
        """The step after which the wait is measured; the end of the warm-up if it is not."""
        return self.warm_up_end - 3 * self._probe

    def last_step(self, index: int) -> int:
        """The last step of the window that starts with step `index`, unless it ends early."""
        if index == self._first + 1:
            return index
        if index > self.warm_up_end:
            return index + self.length - 1
        before = self.probed_from
        if index <= before and (self._is_timed or not self._probe):
            # Where the host waits for each step, a GPU may idle, and settle at other clocks.
            return min(index + self.length - 1, before)
        if index <= before:
            return index
        probe, place = divmod(index - before - 1, self._probe)
        return index if probe == 1 else index + self._probe - place - 1

    def record(self, last: int, steps: int, step_s: float) -> dict[str, float] | None:
        """Record the time of a window that ends with step `last`: mean seconds of its `steps`.

        The length is chosen after the last window of the warm-up. Returns the fields of the event
        `windows` then, equal on all ranks; before and after that None.
        """
        if not self._probe or last <= self.warm_up_end - 2 * self._probe:
            return None
        self._times.setdefault(steps, []).append(step_s)
        if last < self.warm_up_end:
            return None
        probe, self._probe = self._probe, 0
        return self._choose(probe)

    def _choose(self, probe):
        if not {1, probe} <= self._times.keys():  # a checkpoint cut the windows
            return None
        medians_s = [statistics.median(self._times[steps]) for steps in (1, probe)]
        rows: Sequence[Sequence[float]] = self._gather(medians_s)
        lengths = [shortest_length(float(single), float(window), probe) for single, window in rows]
        self.length = min(max(lengths), self._most)
        return {
            "steps_per_sync": self.length,
            "single_step_s": medians_s[0],
            "window_step_s": medians_s[1],
            "probe_steps": probe,
        }


class WarmUp:
    """The warm-up of one run in one process; it has as many steps on all ranks.

    The schedule's `total` and the windows' `warm_up_end` grow with each step that is added. The run
    was resumed after step `first`, 0 if it was not.
    """

    def __init__(
        self,
        schedule: Schedule,
        windows: Windows,
        gather: Callable[[list[float]], Any],
        first: int,
    ):
        self._schedule, self._windows, self._gather = schedule, windows, gather
        self._first, self._asked_s = first, schedule.spec.warmup_s
        self._began_s: float | None = None  # when the first step ended
        self._ended = not self._asked_s

    def record(self, last: int, now_s: float) -> dict[str, float] | None:
        """Record when the window that ends with step `last` did; add steps if time is left.

        Returns the fields of the event `warm_up` once the time has passed; before and after that
        None.
        """
        if self._ended:
            return None
        self._began_s = now_s if self._began_s is None else self._began_s
        if last < self._windows.probed_from:
            return None
        passed_s = min(float(row[0]) for row in self._gather([now_s - self._began_s]))
        more = further_steps(self._asked_s, passed_s, last - self._first - 1)
        if self._schedule.total_is_final:
            more = max(0, min(more, self._schedule.total - self._windows.warm_up_end))
        else:
            self._schedule.total += more
        self._windows.warm_up_end += more
        if more:
            return None
        self._ended = True
        return {
            "passed_s": passed_s,
            "last_step": self._windows.warm_up_end,
            "total_steps": self._schedule.total,
        }


def further_steps(asked_s: float, passed_s: float, steps: int) -> int:
    """How many steps to do before the time of the warm-up is looked at again; 0: it has passed.

    `steps` were done in the `passed_s` of the `asked_s` seconds that it is to last.

    >>> [further_steps(30, s, steps) for s, steps in ((0, 0), (10, 5), (28, 14), (30, 15))]
    [1, 5, 1, 0]
    """
    if passed_s >= asked_s:
        return 0
    left = (asked_s - passed_s) * steps
    return max(1, math.ceil(min(left / passed_s, steps))) if passed_s else max(1, steps)
