"""MLPerf Training: the `:::MLLOG` lines among whatever else a program prints.

- Times are milliseconds since 1970, UTC. duration_s is run_start to run_stop, over all
  namespaces.
- Training is the time from epoch_start to epoch_stop, or block_start to block_stop, without the
  evaluations in it. images_per_second is the items of these intervals over their time: a rate of
  the whole machine, as items and batch are global. _mlperf_items.py counts the items; if it has
  doubts, there is no rate and the notes have the reason.
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

Source: mlcommons/logging, mlperf_logging/mllog/{mllog,constants}.py; keys of tracked_stats from
submissions of MLPerf Training.
"""

import json
from collections.abc import Iterator

from dlbench.imports import log_values
from dlbench.imports.importers import Imported
from dlbench.imports.importers.suites import _mlperf_items
from dlbench.imports.importers.suites._mlperf_items import Interval
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import LeftOut, count, real

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
        return None, f"{log_values.printable(event['key'])} without a time"
    metadata = event.get("metadata")
    return {
        "key": event["key"],
        "value": event.get("value"),
        "time_ms": time_ms,
        "namespace": str(event.get("namespace") or ""),
        "metadata": metadata if isinstance(metadata, dict) else {},
    }, ""


class _Run:
    """The events of one run."""

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
            Interval(
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
                f"namespaces {log_values.list_names(map(repr, self.namespaces))}: items and "
                "evaluations of the first that prints them"
            )
        run.notes += self.left_out.notes()
        return run

    def _end(self, run, start_ms):
        """Set the columns of start, end and status."""
        if start_ms is not None:
            run.columns["started_at"] = log_values.date(start_ms / 1000)
        if not self.stops:
            run.status, run.message = "failed", "the log has no run_stop"
            return
        stop_ms = max(event["time_ms"] for event in self.stops.values())
        run.columns["ended_at"] = log_values.date(stop_ms / 1000)
        statuses = {str(event["metadata"].get("status")) for event in self.stops.values()}
        if statuses != {"success"}:
            run.status = "failed"
            run.message = f"run_stop: {log_values.list_names(statuses)}"
        if start_ms is None or stop_ms < start_ms:
            run.notes.append("no run_start before run_stop: no duration")
            return
        run.columns["duration_s"] = (stop_ms - start_ms) / 1000
        if run.status == "ok":
            run.columns["time_to_accuracy_s"] = run.columns["duration_s"]
            run.notes.append("time_to_accuracy_s is run_start to run_stop, as MLPerf defines it")

    def _add_settings(self, run):
        """Set the columns of settings."""
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
            counted = _mlperf_items.counted_intervals(intervals, self.evaluations)
            printed_ms = self.printed_ms.get("train_samples")
            if counted:
                # What was trained outside of them changes nothing.
                items, counted_by, run_ms = sum(i.items for i in counted), "samples_count", 0
            else:
                counted = intervals
                items = _mlperf_items.trained_items(intervals, self.settings, printed_ms)
                counted_by = "train_samples, printed after the training"
                if not items:
                    counted = self._whole(intervals)
                    items, counted_by = _mlperf_items.count_items(
                        counted,
                        self.settings,
                        epochs_scored=[event["metadata"].get("epoch_num") for event in scored],
                    )
                left_ms = sum(i.stop_ms - i.start_ms for i in intervals if i not in counted)
                run_ms = 1000 * run.columns.get("duration_s", 0) - left_ms
            time_ms = _mlperf_items.training_ms(counted, self.evaluations, run_ms)
        except _mlperf_items.Doubt as doubt:
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
        mixed = _mlperf_items.count_mixed(
            counted, self.evaluations, [event["time_ms"] for event in scored]
        )
        if mixed:
            run.notes.append(
                f"in {mixed} of the intervals evaluations run, begin or end: the log does not say "
                "what they take of its time, which is counted"
            )

    def _whole(self, intervals):
        if not self.stops:
            return intervals
        stop_ms = max(event["time_ms"] for event in self.stops.values())
        return _mlperf_items.whole_intervals(intervals, stop_ms)

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
        return log_values.printable(said).strip("'")
    return SCORES.get(benchmark) or LOSSES.get(benchmark) or "eval_accuracy"
