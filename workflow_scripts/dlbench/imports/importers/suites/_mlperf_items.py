"""Count the trained items in MLPerf's logs and the training time; refuse doubtful logs.

One key has several meanings in the logs of submissions. The items are, in this order,
- the growth of `samples_count`, if the events of intervals have it. Where the stop of a block
  repeats the count of its start (NVIDIA's NeMo), that is what the block trained if its steps times
  the batch are as many (v5.1); else the growth is to the start of the next block;
- steps times batch: if train_samples is the schedule of the learning rate times the batch, then
  `epoch_count` counts steps (Google's BERT), at most as many as the schedule has;
- `train_samples`, if it is printed after the training (NVIDIA's BERT prints what it trained);
- epochs times `train_samples`, if that is the training set that the benchmark's rules name, and no
  evaluation says that an epoch was left before its end (as DLRM's are). Where train_samples is the
  batches of that set, as NVIDIA's RetinaNet prints the length of its loader, these are counted.
  Google's Transformer prints the number of packed sequences: such epochs are not counted. Nor are
  those of benchmarks without epochs of items (Minigo), or of a log that names no benchmark.
- An interval that ends with the run, or after it, may have been left before its end: it counts only
  by `samples_count` or by `train_samples` that is printed after the training.
Steps that the log counts in another way (`current_iter_num`, the schedule) must agree.

Source: the logs of mlcommons/training_results_v0.7 and the programs that wrote them; MLPerf's
training rules for the training sets.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlbench import Error
from dlbench.imports.log_values import count, real

COCO, OPEN_IMAGES = (117_266, 118_287), (1_170_301, 1_170_301)
# Fewest and most items of an epoch. GNMT's leave out pairs that are too long; ssd's data changed
# with v2.0.
EPOCH_ITEMS = {
    "resnet": [(1_281_167, 1_281_167)],
    "retinanet": [OPEN_IMAGES],
    "ssd": [COCO, OPEN_IMAGES],
    "maskrcnn": [COCO],
    "transformer": [(4_590_101, 4_590_101)],
    "gnmt": [(3_400_000, 4_100_000)],
    "dlrm": [(4_195_197_692, 4_195_197_692)],
}
MAX_ITEMS = 2**53
MAX_DIFFERENCE = 0.05  # between items and steps times batch; last batches are filled or left out


class Doubt(Error):
    """Items or times are not certain; the message says why."""


@dataclass
class Interval:
    """The time from one event to another, in ms since 1970.

    Attributes:
        first_count, last_count: samples_count at its start and at its end.
        epochs: epoch_count, in the log's unit.
        first_step: current_iter_num at the start.
    """

    start_ms: float
    stop_ms: float
    first_count: int | None = None
    last_count: int | None = None
    epochs: float = 1
    first_step: int | None = None

    @property
    def items(self) -> int | None:
        """The growth of samples_count in the interval; None if the log lacks it."""
        if self.first_count is None or self.last_count is None:
            return None
        return self.last_count - self.first_count

    def has(self, time_ms: float) -> bool:
        return self.start_ms < time_ms < self.stop_ms


def counted_intervals(
    intervals: Sequence[Interval], evaluations: Sequence[tuple[float, float]] = ()
) -> list[Interval]:
    """The intervals with a known growth of samples_count; [] if there are none.

    A block with an evaluation and without samples belongs to the evaluation.

    >>> blocks = [Interval(0, 9, 0, 0), Interval(9, 18, 64, 64)]
    >>> [block.items for block in counted_intervals(blocks)]
    [64]
    """
    counted = []
    for interval, next_ in itertools.zip_longest(intervals, intervals[1:]):
        if interval.items == 0 and next_ and next_.first_count is not None:
            if any(_contains(interval, evaluation) for evaluation in evaluations):
                continue
            interval = dataclasses.replace(interval, last_count=next_.first_count)
        if interval.items and interval.items > 0:
            counted.append(interval)
    return counted


def whole_intervals(intervals: Sequence[Interval], stop_ms: float) -> list[Interval]:
    """The intervals that end before the run ends.

    Raises:
        Doubt: there are none.
    """
    whole = [interval for interval in intervals if interval.stop_ms < stop_ms]
    if not whole:
        raise Doubt("no interval ends before the run: was it left before its end?")
    return whole


def trained_items(
    intervals: Sequence[Interval], settings: Mapping[str, Any], printed_ms: float | None
) -> int | None:
    """What was trained in the only interval, as BERT prints it afterwards as `train_samples`."""
    is_bert = settings.get("submission_benchmark") == "bert" and len(intervals) == 1
    if not is_bert or printed_ms is None or printed_ms < intervals[0].stop_ms:
        return None
    return count(settings.get("train_samples"), 1, MAX_ITEMS)


def count_items(
    intervals: Sequence[Interval],
    settings: Mapping[str, Any],
    epochs_scored: Sequence[Any] = (),
) -> tuple[float, str]:
    """(items of all intervals, how they were counted).

    Args:
        settings: values of MLLOG's keys.
        epochs_scored: epoch_num of the evaluations.

    Raises:
        Doubt: the count is not certain.
    """
    samples = count(settings.get("train_samples"), 1, MAX_ITEMS)
    batch = count(settings.get("global_batch_size"))
    benchmark = settings.get("submission_benchmark")
    if not samples:
        raise Doubt("no train_samples, and no samples_count that grows")
    if benchmark is None:
        raise Doubt("no submission_benchmark: was the log cut at its beginning?")
    epochs = sum(interval.epochs for interval in intervals)
    schedule = count(settings.get("opt_learning_rate_training_steps"), 1, MAX_ITEMS)
    if batch and schedule and samples == batch * schedule and 1 < epochs <= schedule:
        return epochs * batch, "epoch_count, which is of steps here, x global_batch_size"
    of_batches = _is_of_batches(benchmark, samples, batch)
    if not of_batches:
        _check_benchmark(benchmark, samples, batch)
    if any((number := real(epoch)) and not number.is_integer() for epoch in epochs_scored):
        raise Doubt("an epoch was evaluated and perhaps left before its end")
    each = samples * batch if batch and of_batches else samples
    _check_steps(intervals, each, batch)
    if batch and schedule and each * epochs > batch * schedule * (1 + MAX_DIFFERENCE):
        raise Doubt(
            f"{epochs:g} x {samples} train_samples are more than the schedule's {schedule} steps "
            f"of {batch}"
        )
    batches = f" batches of {batch}" if of_batches else ""
    return epochs * each, f"epochs x train_samples {samples}{batches}"


def _is_of_batches(benchmark, samples, batch):
    """Whether train_samples is the number of batches of an epoch, without or with a partial one."""
    if not batch or batch == 1:
        return False
    sets = EPOCH_ITEMS.get(benchmark, ())
    return any(fewest // batch <= samples <= -(-most // batch) for fewest, most in sets)


def _check_benchmark(benchmark, samples, batch):
    """Check that train_samples is an epoch of the benchmark.

    Raises:
        Doubt: it is not.
    """
    if benchmark not in EPOCH_ITEMS:
        raise Doubt(f"an epoch of {benchmark} has no number of items that its rules name")
    sets = EPOCH_ITEMS[benchmark]
    # The last batch of an epoch may be left out.
    if not any(fewest - (batch or 1) < samples <= most for fewest, most in sets):
        expected = " or ".join(
            f"{fewest}" if fewest == most else f"{fewest} to {most}" for fewest, most in sets
        )
        raise Doubt(f"train_samples is {samples}, an epoch of {benchmark} has {expected} items")


def _check_steps(intervals, samples, batch):
    """Check that the steps between two intervals agree with their items.

    Raises:
        Doubt: they do not.
    """
    if not batch:
        return
    for interval, next_ in itertools.pairwise(intervals):
        if interval.first_step is None or not next_.first_step:
            continue
        steps = next_.first_step - interval.first_step
        items = samples * interval.epochs
        if abs(items - steps * batch) > max(batch, MAX_DIFFERENCE * items):
            raise Doubt(
                f"{items:g} items by epochs and {steps} x {batch} by steps (current_iter_num)"
            )


def training_ms(
    intervals: Sequence[Interval], evaluations: Sequence[tuple[float, float]], run_ms: float
) -> float:
    """The time of the intervals without the evaluations in them.

    Args:
        evaluations: (start, stop).
        run_ms: duration of the whole run; 0 if unknown.

    Raises:
        Doubt: most of the run's time is outside the intervals, so they may not be the training.
    """
    inside_ms = sum(i.stop_ms - i.start_ms for i in intervals)
    within = [e for e in evaluations if any(_contains(i, e) for i in intervals)]
    training = inside_ms - sum(stop - start for start, stop in within)
    outside_ms = sum(stop - start for start, stop in evaluations if (start, stop) not in within)
    if training <= 0:
        raise Doubt("all of the time of the intervals is that of evaluations")
    rest_ms = run_ms - inside_ms - outside_ms
    if run_ms and rest_ms > training:
        raise Doubt(
            f"the intervals have {training / 1000:g} s without evaluations, and {rest_ms / 1000:g} "
            "s of the run lie in none of them: was it trained then?"
        )
    return training


def count_mixed(
    intervals: Sequence[Interval],
    evaluations: Sequence[tuple[float, float]],
    scores_ms: Sequence[float],
) -> int:
    """The number of intervals with the start, end or score of an evaluation, but not all of it."""
    within = [(i, e) for i in intervals for e in evaluations if _contains(i, e)]
    whole = [evaluation for _, evaluation in within]
    marks = [time for e in evaluations if e not in whole for time in e]
    # A score may be printed some time after its evaluation.
    clean = [id(i) for i, _ in within]
    return sum(
        any(i.has(time) for time in marks)
        or (id(i) not in clean and any(i.has(time) for time in scores_ms))
        for i in intervals
    )


def _contains(interval, evaluation):
    return interval.start_ms <= evaluation[0] <= evaluation[1] <= interval.stop_ms
