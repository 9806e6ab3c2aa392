"""MLPerf Training: the `:::MLLOG` lines among whatever else a program prints.

- Times are milliseconds since 1970, UTC. duration_s is run_start to run_stop, over all
  namespaces.
- Training is the time from epoch_start to epoch_stop, or block_start to block_stop, without the
  evaluations in it. images_per_second is the items of these intervals over their time: a rate of
  the whole machine, as items and batch are global. If the items are not certain, there is no rate
  and the notes have the reason.
- `throughput`, a key of its own or one of `tracked_stats`, was measured by the submitter with a
  clock, over a window and in a unit of his own: of one device or of all, of items or of tokens.
  The notes quote it; it is no throughput of ours.
- eval_accuracy is a row of evals: its score, and as score_name what it is in that benchmark by
  MLPerf's rules (mAP, AUC, ...). It is top-1, too, if submission_benchmark is resnet, and the
  loss, too, in benchmarks whose target is a loss or the logarithm of a perplexity: these call it
  eval_accuracy though less is better.
- samples_count of an evaluation over the batch is its step. max_sequence_length is the shape of
  an item in benchmarks whose sequences are packed to that length.
- run_stop with status success says that the last evaluation reached the target. Then
  time_to_accuracy_s is run_start to run_stop, MLPerf's result. Any other end is a failed run.
- Each namespace is a process. Start and stop are those of all namespaces; items and evaluations
  are those of the first that prints them, since all print the same. A second run_start of a
  namespace begins the next run.

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

Source: mlcommons/logging, mlperf_logging/mllog/{mllog,constants}.py; keys of tracked_stats from
submissions of MLPerf Training; mlcommons/training_results_v0.7 and the programs that wrote its
logs; MLPerf's training rules for the training sets.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass

from dlbench import Error
from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import LeftOut, count, real

FAMILY = "mlperf"
MARK = ":::MLLOG "
LINE_MARKS = (MARK.encode(),)
INTERVALS = ("epoch", "block")
TOP1 = "resnet"
# What eval_accuracy is, where it is not top-1.
SCORES = {
    "bert": "accuracy of masked words",
    "dlrm": "AUC",
    "dlrm_dcnv2": "AUC",
    "gnn": "accuracy of nodes",
    "rgat": "accuracy of nodes",
    "gnmt": "BLEU",
    "transformer": "BLEU",
    "maskrcnn": "mAP",
    "retinanet": "mAP",
    "ssd": "mAP",
    "rnnt": "word error rate",
    "unet3d": "mean Dice score",
}
# The same, where it is a loss; of language models over packed sequences but for flux1.
LOSSES = {
    "deepseekv3_671b": "log perplexity",
    "flux1": "validation loss",
    "gpt3": "log perplexity",
    "gpt_oss_20b": "log perplexity",
    "llama2_70b_lora": "cross entropy",
    "llama31_405b": "log perplexity",
    "llama31_8b": "log perplexity",
}
PACKED = LOSSES.keys() - {"flux1"}
MAX_TIME_MS = 1e14  # the year 5138
MAX_EPOCHS = 9999
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


class _Doubt(Error):
    """Items or times are not certain; the message says why."""


@dataclass
class _Interval:
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

    def contains(self, evaluation: tuple[float, float]) -> bool:
        return self.start_ms <= evaluation[0] <= evaluation[1] <= self.stop_ms


def _counted(intervals, evaluations=()):
    """The intervals with a known growth of samples_count; [] if there are none.

    A block with an evaluation and without samples belongs to the evaluation.

    >>> blocks = [_Interval(0, 9, 0, 0), _Interval(9, 18, 64, 64)]
    >>> [block.items for block in _counted(blocks)]
    [64]
    """
    counted = []
    for interval, next_ in itertools.zip_longest(intervals, intervals[1:]):
        if interval.items == 0 and next_ and next_.first_count is not None:
            if any(map(interval.contains, evaluations)):
                continue
            interval = dataclasses.replace(interval, last_count=next_.first_count)
        if interval.items and interval.items > 0:
            counted.append(interval)
    return counted


def _trained_items(intervals, settings, printed_ms):
    """What was trained in the only interval, as BERT prints it afterwards as `train_samples`."""
    is_bert = settings.get("submission_benchmark") == "bert" and len(intervals) == 1
    if not is_bert or printed_ms is None or printed_ms < intervals[0].stop_ms:
        return None
    return count(settings.get("train_samples"), 1, MAX_ITEMS)


def _count_items(intervals, settings, epochs_scored):
    """(items of all intervals, how they were counted); a _Doubt if that is not certain.

    `epochs_scored`: epoch_num of the evaluations.
    """
    samples = count(settings.get("train_samples"), 1, MAX_ITEMS)
    batch = count(settings.get("global_batch_size"))
    benchmark = settings.get("submission_benchmark")
    if not samples:
        raise _Doubt("no train_samples, and no samples_count that grows")
    if benchmark is None:
        raise _Doubt("no submission_benchmark: was the log cut at its beginning?")
    epochs = sum(interval.epochs for interval in intervals)
    schedule = count(settings.get("opt_learning_rate_training_steps"), 1, MAX_ITEMS)
    if batch and schedule and samples == batch * schedule and 1 < epochs <= schedule:
        return epochs * batch, "epoch_count, which is of steps here, x global_batch_size"
    of_batches = _is_of_batches(benchmark, samples, batch)
    if not of_batches:
        _check_benchmark(benchmark, samples, batch)
    if any((number := real(epoch)) and not number.is_integer() for epoch in epochs_scored):
        raise _Doubt("an epoch was evaluated and perhaps left before its end")
    each = samples * batch if batch and of_batches else samples
    _check_steps(intervals, each, batch)
    if batch and schedule and each * epochs > batch * schedule * (1 + MAX_DIFFERENCE):
        raise _Doubt(
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
    """Doubt it unless train_samples is an epoch of the benchmark."""
    if benchmark not in EPOCH_ITEMS:
        raise _Doubt(f"an epoch of {benchmark} has no number of items that its rules name")
    sets = EPOCH_ITEMS[benchmark]
    # The last batch of an epoch may be left out.
    if not any(fewest - (batch or 1) < samples <= most for fewest, most in sets):
        expected = " or ".join(
            f"{fewest}" if fewest == most else f"{fewest} to {most}" for fewest, most in sets
        )
        raise _Doubt(f"train_samples is {samples}, an epoch of {benchmark} has {expected} items")


def _check_steps(intervals, samples, batch):
    """Doubt it unless the steps between two intervals agree with their items."""
    if not batch:
        return
    for interval, next_ in itertools.pairwise(intervals):
        if interval.first_step is None or not next_.first_step:
            continue
        steps = next_.first_step - interval.first_step
        items = samples * interval.epochs
        if abs(items - steps * batch) > max(batch, MAX_DIFFERENCE * items):
            raise _Doubt(
                f"{items:g} items by epochs and {steps} x {batch} by steps (current_iter_num)"
            )


def _training_ms(intervals, evaluations, run_ms):
    """The time of the intervals without the evaluations, (start, stop), in them.

    It is in doubt where most of the run's time, `run_ms` (0: unknown), is outside the intervals.
    """
    inside_ms = sum(i.stop_ms - i.start_ms for i in intervals)
    within = [e for e in evaluations if any(i.contains(e) for i in intervals)]
    training = inside_ms - sum(stop - start for start, stop in within)
    outside_ms = sum(stop - start for start, stop in evaluations if (start, stop) not in within)
    if training <= 0:
        raise _Doubt("all of the time of the intervals is that of evaluations")
    rest_ms = run_ms - inside_ms - outside_ms
    if run_ms and rest_ms > training:
        raise _Doubt(
            f"the intervals have {training / 1000:g} s without evaluations, and {rest_ms / 1000:g} "
            "s of the run lie in none of them: was it trained then?"
        )
    return training


def _count_mixed(intervals, evaluations, scores_ms):
    """The number of intervals with the start, end or score of an evaluation, but not all of it."""
    within = [(i, e) for i in intervals for e in evaluations if i.contains(e)]
    whole = [evaluation for _, evaluation in within]
    marks = [time for e in evaluations if e not in whole for time in e]
    # A score may be printed some time after its evaluation.
    clean = [id(i) for i, _ in within]
    return sum(
        any(i.has(time) for time in marks)
        or (id(i) not in clean and any(i.has(time) for time in scores_ms))
        for i in intervals
    )


def recognise(log: LogFile) -> bool:
    return MARK in log.head_text


def read(log: LogFile) -> Iterator[Imported]:
    run, number = _Run(1), 0
    for number, line in log.lines():
        if MARK not in line:
            continue
        event, reason = _event(line)
        if event is None:
            run.left_out.add(number, reason)
            continue
        if event["key"] == "run_start" and event["namespace"] in run.starts_ms:
            yield run.imported(log, number - 1)
            run = _Run(number)
        run.add(number, event)
    yield run.imported(log, number)


def _event(line):
    """(the event in a line, ""), or (None, why there is none)."""
    try:
        event, _ = json.JSONDecoder().raw_decode(line, line.index(MARK) + len(MARK))
    except (ValueError, RecursionError):
        return None, "not an event: cut short, or mixed with another rank's"
    if not (isinstance(event, dict) and isinstance(event.get("key"), str)):
        return None, "an event without a key"
    time_ms = real(event.get("time_ms"), 0, MAX_TIME_MS)
    if time_ms is None:
        return None, f"{log_lines.printable(event['key'])} without a time"
    metadata = event.get("metadata")
    return {
        "key": event["key"],
        "value": event.get("value"),
        "time_ms": time_ms,
        "namespace": str(event.get("namespace") or ""),
        "metadata": metadata if isinstance(metadata, dict) else {},
    }, ""


class _Run:
    def __init__(self, first_line):
        self.first_line = first_line
        self.starts_ms, self.stops = {}, {}  # by namespace
        self.settings, self.printed_ms = {}, {}  # first value of each key, and when
        self.open_events = {}  # the event that began an open interval, by the interval's name
        self.intervals = {name: [] for name in INTERVALS}
        self.evaluating = []  # starts of open evaluations, in ms
        self.evaluations = []  # (start, stop) in ms
        self.namespace_of = {}  # the namespace whose events count, by kind of event
        self.rates, self.evals, self.namespaces = [], [], set()
        self.left_out = LeftOut()

    def add(self, line, event):
        key, namespace = event["key"], event["namespace"]
        self.namespaces.add(namespace)
        name, _, boundary = key.rpartition("_")
        if key == "run_start":
            self.starts_ms[namespace] = event["time_ms"]
        elif key == "run_stop":
            self.stops.setdefault(namespace, event)
        elif boundary in ("start", "stop") and name in INTERVALS:
            if self._counts(name, namespace):
                self._interval(line, name, boundary, event)
        elif key in ("eval_start", "eval_stop"):
            if self._counts("eval", namespace):
                self._evaluation(key, event["time_ms"])
        elif key == "eval_accuracy":
            if self._counts(key, namespace):
                self.evals.append((line, event))
        elif key in ("throughput", "tracked_stats"):
            value = event["value"]
            rate = real(value.get("throughput") if isinstance(value, dict) else value, 0)
            if rate is not None and self._counts("throughput", namespace):
                self.rates.append(rate)
        else:
            self.settings.setdefault(key, event["value"])
            self.printed_ms.setdefault(key, event["time_ms"])

    def _counts(self, kind, namespace):
        """Whether events of a kind count: only those of the first namespace that has them do."""
        return self.namespace_of.setdefault(kind, namespace) == namespace

    def _interval(self, line, name, boundary, event):
        if boundary == "start":
            if name in self.open_events:
                self.left_out.add(line, f"an {name} that begins before the last one ended")
            self.open_events[name] = event
            return
        start = self.open_events.pop(name, None)
        if start is None or event["time_ms"] < start["time_ms"]:
            self.left_out.add(line, f"the end of an {name} that did not begin before it")
            return
        counts, steps = (
            [count(e["metadata"].get(name), 0, 2**53) for e in (start, event)]
            for name in ("samples_count", "step")
        )
        batch = count(self.settings.get("global_batch_size"))
        if batch and None not in steps and counts == [(steps[1] - steps[0]) * batch] * 2:
            counts[0] = 0  # both are of this block alone
        if None not in counts and counts[1] < counts[0]:
            self.left_out.add(line, f"an {name} with a negative number of samples")
            return
        metadata = start["metadata"]
        self.intervals[name].append(
            _Interval(
                start["time_ms"],
                event["time_ms"],
                *counts,
                epochs=real(metadata.get("epoch_count", 1), 0) or 1,
                first_step=count(metadata.get("current_iter_num"), 0, 2**53),
            )
        )

    def _evaluation(self, key, time_ms):
        """Add an evaluation; of overlapping ones, the first to start is the first to end."""
        if key == "eval_start":
            self.evaluating.append(time_ms)
        elif self.evaluating:
            self.evaluations.append((self.evaluating.pop(0), time_ms))

    def imported(self, log, last_line):
        start_ms = min(self.starts_ms.values(), default=None)
        if start_ms is None and not (self.evals or self.rates or any(self.intervals.values())):
            raise log.error(last_line, "no run_start and no measurement in its MLLOG lines")
        run = Imported({}, lines=(self.first_line, last_line))
        self._end(run, start_ms)
        self._add_settings(run)
        self._rate(run)
        self._evaluations(run, start_ms)
        if len(self.namespaces) > 1:
            run.notes.append(
                f"namespaces {log_lines.list_names(map(repr, self.namespaces))}: items and "
                "evaluations of the first that prints them"
            )
        run.notes += self.left_out.notes()
        return run

    def _end(self, run, start_ms):
        if start_ms is not None:
            run.columns["started_at"] = log_lines.date(start_ms / 1000)
        if not self.stops:
            run.status, run.message = "failed", "the log has no run_stop"
            return
        stop_ms = max(event["time_ms"] for event in self.stops.values())
        run.columns["ended_at"] = log_lines.date(stop_ms / 1000)
        statuses = {str(event["metadata"].get("status")) for event in self.stops.values()}
        if statuses != {"success"}:
            run.status = "failed"
            run.message = f"run_stop: {log_lines.list_names(statuses)}"
        if start_ms is None or stop_ms < start_ms:
            run.notes.append("no run_start before run_stop: no duration")
            return
        run.columns["duration_s"] = (stop_ms - start_ms) / 1000
        if run.status == "ok":
            run.columns["time_to_accuracy_s"] = run.columns["duration_s"]
            run.notes.append("time_to_accuracy_s is run_start to run_stop, as MLPerf defines it")

    def _add_settings(self, run):
        for key, column in (("submission_benchmark", "model"), ("opt_name", "optimizer")):
            if isinstance(self.settings.get(key), str):
                run.columns[column] = self.settings[key]
        if (batch := count(self.settings.get("global_batch_size"))) is not None:
            run.columns["global_batch"] = batch
        if (seed := count(self.settings.get("seed"), 0, 2**53)) is not None:
            run.columns["seed"] = seed
        length = count(self.settings.get("max_sequence_length"))
        if length is not None and self.settings.get("submission_benchmark") in PACKED:
            run.columns["item_shape"] = str(length)
        run.columns["mode"] = "train"

    def _rate(self, run):
        name = next((name for name, intervals in self.intervals.items() if intervals), None)
        if name:
            self._rate_of_intervals(run, name)
        if self.rates:
            mean = sum(self.rates) / len(self.rates)
            run.notes.append(
                f"throughput as submitted: {mean:g}, mean of {len(self.rates)}: of a device or of "
                "all, items or tokens, the log does not say; it is not used"
            )

    def _rate_of_intervals(self, run, name):
        intervals = self.intervals[name]
        scored = [event for _, event in self.evals]
        try:
            counted = _counted(intervals, self.evaluations)
            printed_ms = self.printed_ms.get("train_samples")
            if counted:
                # What was trained outside of them changes nothing.
                items, counted_by, run_ms = sum(i.items for i in counted), "samples_count", 0
            else:
                counted = intervals
                items = _trained_items(intervals, self.settings, printed_ms)
                counted_by = "train_samples, printed after the training"
                if not items:
                    counted = self._whole(intervals)
                    items, counted_by = _count_items(
                        counted,
                        self.settings,
                        epochs_scored=[event["metadata"].get("epoch_num") for event in scored],
                    )
                left_ms = sum(i.stop_ms - i.start_ms for i in intervals if i not in counted)
                run_ms = 1000 * run.columns.get("duration_s", 0) - left_ms
            time_ms = _training_ms(counted, self.evaluations, run_ms)
        except _Doubt as doubt:
            run.notes.append(f"no items per second: {doubt}")
            return
        run.columns["images_per_second"] = items / (time_ms / 1000)
        run.notes.append(
            f"{items:.0f} items ({counted_by}) in {len(counted)} intervals ({name}), "
            f"{time_ms / 1000:g} s"
        )
        if len(counted) < len(intervals):
            run.notes.append(
                f"{len(intervals) - len(counted)} intervals are left out: they end with the run, "
                "or their items are not counted"
            )
        mixed = _count_mixed(counted, self.evaluations, [event["time_ms"] for event in scored])
        if mixed:
            run.notes.append(
                f"in {mixed} of the intervals evaluations run, begin or end: the log does not say "
                "what they take of its time, which is counted"
            )

    def _whole(self, intervals):
        """The intervals that end before the run ends."""
        if not self.stops:
            return intervals
        stop_ms = max(event["time_ms"] for event in self.stops.values())
        whole = [interval for interval in intervals if interval.stop_ms < stop_ms]
        if not whole:
            raise _Doubt("no interval ends before the run: was it left before its end?")
        return whole

    def _evaluations(self, run, start_ms):
        benchmark = self.settings.get("submission_benchmark")
        batch = count(self.settings.get("global_batch_size"))
        for line, event in self.evals:
            score, metadata = real(event["value"]), event["metadata"]
            if score is None or (benchmark == TOP1 and not 0 <= score <= 1):
                self.left_out.add(
                    line, "eval_accuracy is not a number, or not from 0 to 1 (top-1 accuracy)"
                )
                continue
            row = {"split": "validation", "score": score}
            row["score_name"] = _score_name(benchmark, metadata)
            if benchmark == TOP1:
                row["top1"] = score
            elif benchmark in LOSSES:
                row["loss"] = score
            # Where it is larger, it counts samples, as in bert.
            epoch = count(metadata.get("epoch_num"), 1, MAX_EPOCHS)
            if epoch is not None:
                row["epoch"] = epoch
            samples = count(metadata.get("samples_count"), high=2**53)
            if samples and batch and samples % batch == 0:
                row["step"] = samples // batch
            if start_ms is not None and event["time_ms"] >= start_ms:
                row["t_s"] = (event["time_ms"] - start_ms) / 1000
            run.evals.append(row)
        if run.evals:
            last = run.evals[-1]
            run.notes.append(f"the last {last['score_name']} is {last['score']:g}")


def _score_name(benchmark, metadata):
    """The name of the score in eval_accuracy; stable_diffusion's log states it, as FID and CLIP."""
    if benchmark == TOP1:
        return "top-1 accuracy"
    said = metadata.get("metric")
    if isinstance(said, str):
        return log_lines.printable(said).strip("'")
    return SCORES.get(benchmark) or LOSSES.get(benchmark) or "eval_accuracy"
