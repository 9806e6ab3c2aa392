"""What tf_cnn_benchmarks prints; and settings and rates, as all of its logs have them.

- `10  images/sec: 47.3 +/- 0.7 (jitter = 1.1)  9.068`, with tabs, or with spaces if copied from a
  terminal. The rate printed at step s is the batch over the mean time of all s steps so far, so
  these took T(s) = s batch / rate, and the steps between two prints the difference of two T. The
  number after +/- is the standard error of the steps' rates: their population standard deviation
  over the root of their number. jitter is 1.4826 times the median absolute deviation of the rates.
  Both are of all steps so far and are given in the notes. The last number is the loss of that step
  alone. With --display_perf_ewma the rate is a moving mean, which the log does not say: then its
  times mean nothing. Steps are counted from 1 after the warm-up, which is not printed.
- `total images/sec: 2047.95`: items of all workers over the time by the clock, which includes
  saving but no warm-up. It is the throughput. An evaluation prints the same words; the banner's
  `Mode:` tells them apart. Training with evaluations in between prints `Done with training`
  instead.
- Step lines and their batch are of one process: of all its GPUs, under Horovod of one. Only
  distributed_all_reduce (SingleSess) prints rates of all workers. If all print into one log, the
  slowest counts. Processes that know nothing of one another (two banners, but no devices of
  several) are runs of their own; without the launcher's prefixes such a log is refused.
- A worker of a distributed training (`/job:worker`) prints its own devices, its own batch (today's
  version that of all workers) and its own rates; its total alone is of all workers. Total over rate
  is their number, where it is a whole one and they wait for one another.
- `Accuracy @ 1 = 0.5300 Accuracy @ 5 = 0.7800 [50000 examples]`: of held-out items. Accuracies
  of training steps (--print_training_accuracy) are not imported.
- The log has no dates. If another run was appended to it, it has two runs.

Source: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/benchmark_cnn.py; models for the sides of
images.
"""

import itertools
import math
import operator
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.log_file import LogFile

FAMILY = "tf_cnn_benchmarks"
WORKERS_DOUBT = 0.02  # relative: the total is by the clock, with what is between steps
SYNTHETIC = " (synthetic)"
MODES = {
    "training": "train",
    "training + evaluation": "train",
    "forward only": "forward",
    "forward-only": "forward",  # until 1.13
}
EVALUATION = "evaluation"
# Pixels per side of the images that its models for ImageNet read.
IMAGE_SIDES = {
    **dict.fromkeys(("googlenet", "mobilenet", "nasnet", "vgg11", "vgg16", "vgg19"), 224),
    **dict.fromkeys(("alexnet", "trivial"), 227),
    **dict.fromkeys(("inception3", "inception4"), 299),
    "lenet": 28,
    "nasnetlarge": 331,
    "overfeat": 231,
}
CIFAR10_SIDE = 32  # of the images that its models for CIFAR-10 read
RESNET = re.compile(r"(?:official_)?resnet\d+(?:_v1\.5|_v2)?")  # of ImageNet: 224
LINE_MARKS = (b"images/sec: ", b"Img/sec", b"Batch size:  ")
HALF_DIGIT = 0.05  # of the printed rates, items/s
_gap = r"[\t ]+"  # a tab; spaces if the log was copied from a terminal
_number = r"(-?(?:\d{1,99}\.\d{1,99}|nan|inf))"
_step = r"(\d{1,18})" + _gap + r"images/sec: " + _number + r"%s" + _gap + _number + r"[^\n]*"
PLAIN_STEPS = re.compile(
    (r"(?m:^)" + _step % r" \+/- [^\t\n ]+ \(jitter = [^)\n]+\)" + r"\n").encode()
)
STEP = re.compile(_step % r"(?: \+/- (\d+\.\d+|nan|inf) \(jitter = (\d+\.\d+|nan|inf)\))?")
HEADER = re.compile(r"Step[\t ]+Img/sec")
BANNER = re.compile(r"([A-Z][\w ]{3,11}): +(.*)")
PER_DEVICE = re.compile(r" +(\d+)(?:\.0)? per device\s*$")
TOTAL = re.compile(r"total images/sec: (\d+\.\d\d)\s*$")
ACCURACY = re.compile(r"Accuracy @ 1 = (\S+) Accuracy @ 5 = (\S+) \[(\d+) examples\]\s*$")
AT_STEP = re.compile(r"Running (?:final )?evaluation at global_step (\d{1,18})\s*$")
RECOGNISED = re.compile(
    rf"^(?:{log_lines.PREFIX.pattern})(?:Batch size:  \d+ global|Step[\t ]+Img/sec[\t ]+"
    r"|\d+[\t ]+images/sec: )",
    re.M,
)
# Settings in the banner, and their names in benchmark.log.
BANNER_NAMES = {
    "TensorFlow": "version",
    "Model": "model",
    "Dataset": "dataset",
    "Mode": "mode",
    "SingleSess": "single_sess",
    "Batch size": "batch_size",
    "Num batches": "num_batches",
    "Devices": "devices",
    "Optimizer": "optimizer",
    "Variables": "variables",
    "Sync": "sync",
}
OUT_OF_MEMORY = ("OOM when allocating", "RESOURCE_EXHAUSTED")


def recognise(log: LogFile) -> bool:
    return bool(RECOGNISED.search(log.head_text))


def read(log: LogFile) -> Iterator[Imported]:
    ranks: dict[str | None, list[_Section]] = {None: [_Section(1)]}
    for first, block in log.blocks():
        rows = PLAIN_STEPS.findall(block)
        if len(rows) == block.count(b"\n"):  # the block has steps and nothing else
            last_line = block[block.rfind(b"\n", 0, -1) + 1 : -1].decode("utf-8", "replace")
            ranks[None][-1].add_steps(rows, last_line, first + len(rows) - 1)
            continue
        lines = block.decode("utf-8", "replace").split("\n")[:-1]
        for number, whole in enumerate(lines, start=first):
            rank, line = log_lines.split(whole)
            sections = ranks.setdefault(rank, [_Section(number)])
            if sections[-1].ends_before(line):
                sections.append(_Section(number))
            sections[-1].add(number, line)
    if log.unfinished:
        ranks[None][-1].notes.append(f"line {log.unfinished} was cut short and is left out")
    ranks = {
        rank: sections for rank, sections in ranks.items() if any(s.has_content for s in sections)
    }
    for sections in _of_runs(log, ranks):
        runs = [run for section in sections for run in section.runs(log)]
        yield from _with_evaluations(runs)
    if not ranks:
        raise log.error(1, "neither a banner nor a step could be read")


def _of_runs(log, ranks):
    """One list of sections if the ranks trained together, else one for each rank."""
    longest, *others = sorted(ranks.values(), key=len, reverse=True) or [[]]
    if others and all(sections[0].is_of_several for sections in ranks.values()):
        for sections_of_rank in others:
            for section, other in zip(longest, sections_of_rank, strict=False):
                section.merge(other)
        return [longest]
    for rank, sections in ranks.items():
        if others and not any(section.banners for section in sections):
            raise log.error(
                sections[0].first,
                f"{len(ranks)} ranks printed into this log, rank {rank} without a banner: whether "
                "they trained together is unknown",
            )
        if others:
            sections[0].notes.append(f"of rank {rank}, whose banner lists devices of its own alone")
    return list(ranks.values())


class _Section:
    """The lines from one banner to the next: one run, or several appended without a banner."""

    def __init__(self, first):
        self.first, self.last = first, first
        self.settings, self.notes, self.evals = {}, [], []
        self.totals = []  # (how many steps precede it, items/s)
        self.banners, self.ranks = 0, 1  # how many of them
        self.steps, self.rates = Steps(), array("d")
        self.headers = []  # how many steps precede each header
        self.damaged = []  # numbers of damaged lines
        self.done = self.out_of_memory = False
        self.at_step = None
        self.last_step_line = ""

    @property
    def has_content(self):
        return bool(self.steps.step or self.totals or self.evals or self.settings or self.done)

    @property
    def is_of_several(self):
        """Whether the banner says that several processes trained together."""
        devices = device_list(self.settings)
        horovod = self.settings.get("variables") == "horovod" and len(devices) > 1
        return horovod or (bool(devices) and "job:" in devices[0])

    def ends_before(self, line):
        has_rows = self.steps.step or self.totals or self.evals or self.done
        return has_rows and _key(line) in ("version", "model", "mode")

    def add_steps(self, rows, last_line, number):
        log_lines.append_rows(rows, (self.steps.step, self.rates, self.steps.loss))
        self.last_step_line, self.last = last_line, number

    def merge(self, other):
        """Add the lines of another rank of the same run."""
        self.steps.step += other.steps.step
        self.rates += other.rates
        self.steps.loss += other.steps.loss
        self.totals += other.totals
        self.evals = self.evals or other.evals
        self.notes = list(dict.fromkeys(self.notes + other.notes))
        self.damaged += other.damaged
        self.done = self.done or other.done
        self.out_of_memory = self.out_of_memory or other.out_of_memory
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.ranks += 1

    def add(self, number, line):
        self.last = number
        if "images/sec: " in line:
            if match := STEP.match(line):
                self.steps.step.append(int(match[1]))
                self.rates.append(float(match[2]))
                self.steps.loss.append(float(match[5]))
                self.last_step_line = line
            elif match := TOTAL.match(line):
                self.totals.append((len(self.steps), float(match[1])))
            else:
                self.damaged.append(number)
        elif HEADER.match(line):
            self.headers.append(len(self.steps))
        elif line.startswith("Done with training"):
            self.done = True
        elif match := ACCURACY.match(line):
            self._add_accuracy(number, match)
        elif match := AT_STEP.match(line):
            self.at_step = int(match[1])
        elif match := PER_DEVICE.match(line):
            self.settings.setdefault("batch_size_per_device", match[1])
        elif key := _key(line):
            self.banners += key == "model"
            text = BANNER.match(line)[2].strip()
            text = text.partition(" ")[0] if key == "batch_size" else text
            if self.settings.setdefault(key, text) != text and key != "devices":
                self.notes.append(f"line {number}: another {key}, {text}: of another process?")
        elif any(message in line for message in OUT_OF_MEMORY):
            self.out_of_memory = True

    def _add_accuracy(self, number, match):
        try:
            top1, top5 = float(match[1]), float(match[2])
        except ValueError:
            self.damaged.append(number)
            return
        row = {"split": "validation", "top1": top1, "top5": top5, "examples": int(match[3][:18])}
        if self.at_step is not None:
            row["step"] = self.at_step
        if row not in self.evals[-1:]:  # of another rank
            self.evals.append(row)

    def runs(self, log):
        """The runs of this section; its last lines belong to the last run."""
        if not self.has_content:
            return []
        self._note_damage()
        columns = settings_columns(self.settings, self.notes)
        if version := parse_version(self.settings.get("version", "")):
            columns["framework_version"] = version
        if self.settings.get("mode") == EVALUATION:
            return [self._evaluation(columns)]
        *earlier, last = self._parts(log)
        return [
            *(self._run(dict(columns), *part, False) for part in earlier),
            self._run(dict(columns), *last, True),
        ]

    def _note_damage(self):
        if self.damaged:
            lines = ", ".join(map(str, self.damaged[:5])) + (", ..." * (len(self.damaged) > 5))
            self.notes.append(f"left out {len(self.damaged)} damaged lines: {lines}")
        if not self.steps.warm_up:
            self.steps.warm_up = array("b", bytes(len(self.steps)))
        if any(map(math.isnan, self.steps.loss)):
            first_nan = self.steps.step[list(map(math.isnan, self.steps.loss)).index(True)]
            self.notes.append(f"the loss is nan at step {first_nan}")

    def _parts(self, log):
        """(steps, rates, totals) of each run, split at headers where the steps start again."""
        steps, rates = self.steps, self.rates
        totals = [total for _, total in self.totals]
        programs = 1 if self.is_of_several else min(self.banners, max(1, len(totals)))
        if _ascend(steps.step) and programs < 2:
            return [(steps, rates, totals)]
        if not self.is_of_several:
            cuts = [0, *(at for at in self.headers if 0 < at < len(steps)), len(steps)]
            parts = [slice(*pair) for pair in itertools.pairwise(cuts)]
            if len(parts) < 2 or not all(_ascend(steps.step[part]) for part in parts):
                raise self._unknown_ranks_error(log)
            return [
                (
                    Steps(steps.step[part], loss=steps.loss[part], warm_up=steps.warm_up[part]),
                    rates[part],
                    [total for at, total in self.totals if part.start < at <= part.stop],
                )
                for part in parts
            ]
        ranks = merge_ranks(steps, rates, in_order=self.ranks == 1)
        devices = device_list(self.settings)
        if not ranks or (self.settings.get("variables") == "horovod" and ranks > len(devices)):
            raise self._unknown_ranks_error(log)
        self.notes.append(f"{ranks} processes printed into this log: the slowest counts")
        return [(steps, rates, totals)]

    def _unknown_ranks_error(self, log):
        reason = "steps go back from here on"
        if self.banners > 1:
            reason = f"{self.banners} programs printed into this log"
        return log.error(self.first, f"{reason}, and {log_lines.UNKNOWN_RANKS_HINT}")

    def _evaluation(self, columns):
        notes = [*self.notes, "an evaluation: its total images/sec is no throughput of training"]
        for name in ("steps", "mode"):
            columns.pop(name, None)
        return Imported(columns, evals=self.evals, notes=notes, lines=(self.first, self.last))

    def _run(self, columns, steps, rates, totals, is_last):
        run = Imported(
            columns,
            steps,
            evals=self.evals if is_last else [],
            notes=list(self.notes),
            lines=(self.first, self.last),
        )
        if totals:
            columns["images_per_second"] = min(totals)
            if len(set(totals)) > 1:
                run.notes.append(f"{len(totals)} totals were printed: the least counts")
        if is_worker(self.settings):
            rate = rates[-1] if rates else None
            of_all, why = _worker_columns(self.settings, min(totals, default=None), rate)
            columns |= of_all
            run.notes.append(why if of_all else f"devices and global_batch are unknown: {why}")
        if not totals and not (is_last and self.done):
            run.status, run.message = self._failure(steps, is_last)
        run.notes += _scatter(self.last_step_line) if is_last else []
        if columns.get("mode") == "forward":
            steps.loss = array("d", [math.nan]) * len(steps)
            run.notes.append("losses of forward passes alone are left out")
        without_times(steps)
        devices = device_list(self.settings)
        single = self.settings.get("single_sess") == "True"

        def complete(known):
            batch = process_batch(known, devices, single)
            if len(steps) and not batch:
                run.notes.append("no batch size is known: no times from the rates of steps")
            elif len(steps):
                joined = add_times(steps, rates, batch, HALF_DIGIT)
                if joined:
                    run.notes.append(
                        f"{joined} of {len(steps)} windows joined with the next: one decimal "
                        f"of a mean leaves their times in doubt by over {log_lines.MAX_DOUBT:.0%}"
                    )

        run.complete = complete
        return run

    def _failure(self, steps, is_last):
        if is_last and self.out_of_memory:
            return "oom", "out of memory, as its log says"
        where = f"after step {steps.step[-1]}" if len(steps) else "before the first step"
        planned = self.settings.get("num_batches")
        return "failed", f"its log ends {where}{f' of {planned}' if planned else ''}"


def _with_evaluations(runs):
    """Join the evaluations that follow a run in the log with this run."""
    joined = []
    for run in runs:
        is_evaluation = "mode" not in run.columns and run.complete is None
        if is_evaluation and joined and joined[-1].columns.get("model") == run.columns.get("model"):
            joined[-1].evals += run.evals
            joined[-1].notes.append(f"evaluated from line {run.lines[0]} on")
            joined[-1].lines = (joined[-1].lines[0], run.lines[1])
        else:
            joined.append(run)
    return joined


def _scatter(line):
    """The last +/- and jitter of a run as a note."""
    match = STEP.match(line)
    if not match or match[3] is None:
        return []
    step, error, jitter = int(match[1]), float(match[3]), float(match[4])
    scatter = f"{error * math.sqrt(step):.3g}"
    if error == 0:
        scatter = f"under {HALF_DIGIT * math.sqrt(step):.2g}"
    return [
        f"rates of {step} steps: standard deviation {scatter} items/s "
        f"(+/- {error:g} is a standard error), 1.4826 x median absolute deviation {jitter:g}"
    ]


def _key(line):
    match = BANNER.match(line)
    return BANNER_NAMES.get(match[1]) if match else None


def _ascend(steps):
    return all(map(operator.lt, steps, itertools.islice(steps, 1, None)))


def settings_columns(settings: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    """Columns of the runs table from the settings that tf_cnn_benchmarks prints or writes.

    Args:
        settings: texts by their names in benchmark.log (model, dataset, mode, devices,
            batch_size_per_device, ...), and `batch_size`, of all workers if that is known.
        notes: notes on unknown or converted values are appended to this list.
    """
    known: dict[str, Any] = {"framework": "tensorflow"}
    for name, key in (("model", "model"), ("optimizer", "optimizer"), ("strategy", "variables")):
        if key in settings:
            known[name] = settings[key]
    if "dataset" in settings:
        dataset = settings["dataset"].removesuffix(SYNTHETIC)
        known["dataset"] = dataset
        if settings["dataset"].endswith(SYNTHETIC):
            known["dataset"] = "synthetic"
            notes.append(f"synthetic images like those of {dataset}")
        if shape := item_shape(settings.get("model"), dataset):
            known["item_shape"] = shape
    if mode := MODES.get(settings.get("mode", "")):
        known["mode"] = mode
    steps = log_lines.count(settings.get("num_batches"))
    per_device = log_lines.count(settings.get("batch_size_per_device"))
    if epochs := whole_epochs(settings.get("num_epochs"), steps):
        known["epochs"] = epochs
        notes.append(f"{epochs} epochs are {steps} steps")
    elif steps:
        known["steps"] = steps
    if per_device:
        known["batch_per_device"] = per_device
    return known | _devices(settings, per_device, notes)


def whole_epochs(text: str | None, steps: int | None) -> int | None:
    """The number of epochs that the user set; None if the user set a number of steps.

    The program prints the epochs of its whole steps, which may be a fraction of a step fewer.

    >>> whole_epochs("4.9971", 488), whole_epochs("5.12", 500), whole_epochs(None, 500)
    (5, None, None)
    """
    epochs = log_lines.real(text, 0.5, 1e6)
    if not epochs or not steps or abs(epochs - round(epochs)) * steps >= epochs:
        return None
    return round(epochs)


def item_shape(model: str | None, dataset: str) -> str | None:
    """The shape of one image as the runs table has it; None if it is unknown.

    >>> item_shape("resnet50_v2", "imagenet"), item_shape("alexnet", "cifar10")
    ('224x224x3', '32x32x3')
    """
    side = None
    if dataset == "cifar10":
        side = CIFAR10_SIDE
    elif dataset == "imagenet":
        side = 224 if RESNET.fullmatch(model or "") else IMAGE_SIDES.get(model or "")
    return f"{side}x{side}x3" if side else None


def _devices(settings, per_device, notes):
    devices, batch = device_list(settings), log_lines.count(settings.get("batch_size"))
    if not devices:
        return {"global_batch": batch} if batch else {}
    known = {"device_kind": "gpu" if "gpu" in devices[0].lower() else "cpu"}
    if is_worker(settings):
        return known
    of_all_workers = devices[0].startswith(("horovod/", "/job:", "job:"))
    if of_all_workers and per_device:  # the batch may be of one worker
        batch = per_device * len(devices)
    if not batch or not per_device:
        return known | {"devices": len(devices)}
    count = batch // per_device
    if count % len(devices) or batch % per_device:
        notes.append(f"{batch} items on {len(devices)} devices are not {per_device} on each")
        return known | {"devices": len(devices), "global_batch": batch}
    if count == len(devices) and not of_all_workers:
        known |= {"nodes": 1, "devices_per_node": count}
    return known | {"devices": count, "global_batch": batch}


def is_worker(settings: Mapping[str, str]) -> bool:
    """Whether settings are those of one of several workers, which lists only its own devices."""
    devices = device_list(settings)
    single_session = settings.get("single_sess") == "True"
    return bool(devices) and devices[0].startswith("/job:worker") and not single_session


def _worker_columns(settings, total, rate):
    """(devices and global_batch of all workers or {}, how they were derived or why not).

    `total`: items/s of all workers, printed by one of them; `rate`: the last one of that worker.
    """
    devices = len(device_list(settings))
    per_device = log_lines.count(settings.get("batch_size_per_device"))
    if settings.get("sync") == "False":
        return {}, "workers that do not wait for one another (Sync: False) have no common step"
    if not total or not rate or not HALF_DIGIT < rate < math.inf:
        return {}, "without a total of all workers their number is unknown"
    ratio = total / rate
    fewest = math.ceil(total / (rate + HALF_DIGIT) * (1 - WORKERS_DOUBT))
    most = math.floor(total / (rate - HALF_DIGIT) * (1 + WORKERS_DOUBT))
    if fewest > most or most < 1:
        return {}, f"the total is {ratio:.3g} times the worker's rate, no whole number of workers"
    batch = log_lines.count(settings.get("batch_size")) or 0
    stated = batch / (devices * (per_device or math.inf))
    if stated > 1:
        if not (stated.is_integer() and fewest <= stated <= most):
            by_rate = f"{ratio:.3g} by the total over the worker's rate"
            return {}, f"{stated:g} workers by the batch, {by_rate}"
        fewest = most = int(stated)
    if fewest < most:
        return {}, f"{fewest} to {most} workers by the total over the worker's rounded rate"
    known = {"devices": fewest * devices}
    if per_device:
        known["global_batch"] = known["devices"] * per_device
    return known, f"the total is {ratio:.4g} times the rate of this worker: {fewest} workers"


def device_list(settings: Mapping[str, str]) -> list[str]:
    """The devices in settings, as `['/gpu:0', '/gpu:1']`; [] if there is no such list."""
    text = settings.get("devices", "").strip()
    return re.findall(r"'([^']+)'", text) if text[:1] == "[" and text[-1:] == "]" else []


def process_batch(
    known: Mapping[str, Any], devices: Sequence[str] = (), single_session: bool = False
) -> int | None:
    """Items per step of the process that printed the rates and its devices; None if unknown.

    `single_session`: whether one process prints the rates of all workers.
    """
    batch, per_device = known.get("global_batch"), known.get("batch_per_device")
    if single_session:
        return batch
    horovod = known.get("strategy") == "horovod" or any(d.startswith("horovod/") for d in devices)
    if horovod:
        return per_device
    return per_device * len(devices) if per_device and devices else batch


def add_times(steps: Steps, rates: Sequence[float], batch: int, half_digit: float = 0.0) -> int:
    """Fill in the times of windows from cumulative rates. Returns the number of rows without one.

    Windows are joined where rounding leaves their times in doubt (`log_lines.window_ends`): at
    step 1000, rates like `47.3` every 10 steps do not determine the time of 10 steps.

    Args:
        steps: from `without_times`; `rates` (items/s) has one for each row.
        batch: items per step of the process that printed the rates.
        half_digit: half of the last printed digit, items/s; 0: all digits are printed.
    """
    known = np.where(np.asarray(rates) > 0, rates, math.inf)
    times_s = np.asarray(steps.step) * batch / known
    doubts_s = times_s * half_digit / known
    before, before_s, before_rate = 0, 0.0, None
    ends = log_lines.window_ends(zip(times_s.data, doubts_s.data, strict=True))
    for row in ends:
        step, rate = steps.step[row], rates[row]
        took_s = step * batch / rate
        window = steps.window_steps[row] = step - before
        # Equal rates: without the rounding of a difference.
        same = before_rate in (None, rate)
        steps.step_time_s[row] = batch / rate if same else (took_s - before_s) / window
        before, before_s, before_rate = step, took_s, rate
    return len(steps) - len(ends)


def without_times(steps: Steps) -> None:
    """Set the columns of times and windows of steps to unknown."""
    steps.step_time_s = array("d", [math.nan]) * len(steps)
    steps.window_steps = array("q", [0]) * len(steps)


def merge_ranks(steps: Steps, rates: array, in_order: bool = True) -> int:
    """Merge the rows of several processes in one log, in place. Returns the number of processes.

    It is 0 if some left steps out or their rows cannot be separated. Synchronous steps end
    together, so the rates of ranks differ little, and the slowest counts. The mean of the ranks'
    losses counts. The last step is left out unless as many processes printed it as the one before.

    `in_order`: the ranks of rows are unknown, except that each rank's rows are in order.
    """
    prints: dict[int, list[tuple[float, float]]] = {}  # (rate, loss) of each rank, by step
    for step, rate, loss in zip(steps.step, rates, steps.loss, strict=True):
        prints.setdefault(step, []).append((rate, loss))
    ranks = max(map(len, prints.values()))
    ordered = sorted(prints)
    # No process is two rows ahead of another.
    positions = {step: position for position, step in enumerate(ordered)}
    printed = [positions[step] for step in steps.step]
    most = itertools.accumulate(printed, max)
    if in_order and any(now < last - 1 for now, last in zip(printed, most, strict=True)):
        return 0
    if len(prints[ordered[-1]]) < ranks:
        del prints[ordered.pop()]
    if not ordered or any(len(prints[step]) != ranks for step in ordered):
        return 0
    steps.step, steps.warm_up = array("q", ordered), array("b", bytes(len(ordered)))
    rates[:] = array("d", (min(rate for rate, _ in prints[step]) for step in ordered))
    steps.loss = array(
        "d", (math.fsum(loss for _, loss in prints[step]) / ranks for step in ordered)
    )
    return ranks


def utc_date(text: str) -> datetime:
    """A date in ISO 8601, in UTC; a date without time zone is UTC.

    A ValueError, AttributeError or OverflowError if it is no date.
    """
    date = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def parse_version(text: str) -> str | None:
    """The version in a text such as `1.10.0` or `v1.10.0-0-g656e7a2b34`; None if it has none."""
    match = re.match(r"v?(\d+(?:\.\d+)+[\w.]*)", text)
    return match[1] if match else None
