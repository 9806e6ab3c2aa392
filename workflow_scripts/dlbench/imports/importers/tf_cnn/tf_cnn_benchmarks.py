"""What tf_cnn_benchmarks prints.

- `10  images/sec: 47.3 +/- 0.7 (jitter = 1.1)  9.068`, with tabs, or with spaces if copied from a
  terminal. The rate is a cumulative mean (importers/tf_cnn/_tf_cnn.py), undone here. The
  number after +/- is the standard error of the steps' rates: their population standard deviation
  over the root of their number. jitter is 1.4826 times the median absolute deviation of the rates.
  Both are of all steps so far and are given in the notes. The last number is the loss of that step
  alone. With --display_perf_ewma the rate is a moving mean, which the log does not say: then its
  times mean nothing.
- `total images/sec: 2047.95`: items of all workers over the time by the clock, which includes
  saving but no warm-up. It is the throughput. An evaluation prints the same words; the banner's
  `Mode:` tells them apart. Training with evaluations in between prints `Done with training`
  instead.
- Step lines are of one process, under Horovod of one device. If all print into one log, the
  slowest counts. Processes that know nothing of one another (two banners, but no devices of
  several) are runs of their own; without the launcher's prefixes such a log is refused.
- `Accuracy @ 1 = 0.5300 Accuracy @ 5 = 0.7800 [50000 examples]`: of held-out items. Accuracies
  of training steps (--print_training_accuracy) are not imported.
- The log has no dates. If another run was appended to it, it has two runs.

Source: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/benchmark_cnn.py.
"""

import itertools
import math
import operator
import re
from array import array
from collections.abc import Iterator

from dlbench.imports import console, log_values, windows
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.importers.tf_cnn import _tf_cnn
from dlbench.imports.log_file import LogFile

FAMILY = _tf_cnn.FAMILY
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
    rf"^(?:{console.PREFIX.pattern})(?:Batch size:  \d+ global|Step[\t ]+Img/sec[\t ]+"
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
            rank, line = console.split(whole)
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
        devices = _tf_cnn.device_list(self.settings.get("devices", ""))
        horovod = self.settings.get("variables") == "horovod" and len(devices) > 1
        return horovod or (bool(devices) and "job:" in devices[0])

    def ends_before(self, line):
        has_rows = self.steps.step or self.totals or self.evals or self.done
        return has_rows and _key(line) in ("version", "model", "mode")

    def add_steps(self, rows, last_line, number):
        log_values.append_rows(rows, (self.steps.step, self.rates, self.steps.loss))
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
        columns = _tf_cnn.columns(self.settings, self.notes)
        if version := _tf_cnn.version(self.settings.get("version", "")):
            columns["framework_version"] = version
        if self.settings.get("mode") == _tf_cnn.EVALUATION:
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
            return [(_cut(steps, part), rates[part], self._totals_between(part)) for part in parts]
        ranks = _tf_cnn.merge_ranks(steps, rates, in_order=self.ranks == 1)
        devices = _tf_cnn.device_list(self.settings.get("devices", ""))
        if not ranks or (self.settings.get("variables") == "horovod" and ranks > len(devices)):
            raise self._unknown_ranks_error(log)
        self.notes.append(f"{ranks} processes printed into this log: the slowest counts")
        return [(steps, rates, totals)]

    def _totals_between(self, part):
        return [total for at, total in self.totals if part.start < at <= part.stop]

    def _unknown_ranks_error(self, log):
        reason = "steps go back from here on"
        if self.banners > 1:
            reason = f"{self.banners} programs printed into this log"
        return log.error(self.first, f"{reason}, and {console.UNKNOWN_RANKS_HINT}")

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
        if _tf_cnn.is_worker(self.settings):
            rate = rates[-1] if rates else None
            of_all, why = _tf_cnn.worker_columns(
                self.settings, min(totals, default=None), rate, HALF_DIGIT
            )
            columns |= of_all
            run.notes.append(why if of_all else f"devices and global_batch are unknown: {why}")
        if not totals and not (is_last and self.done):
            run.status, run.message = self._failure(steps, is_last)
        run.notes += _scatter(self.last_step_line) if is_last else []
        if columns.get("mode") == "forward":
            steps.loss = array("d", [math.nan]) * len(steps)
            run.notes.append("losses of forward passes alone are left out")
        _tf_cnn.without_times(steps)
        devices = _tf_cnn.device_list(self.settings.get("devices", ""))
        single = self.settings.get("single_sess") == "True"

        def complete(known):
            batch = _tf_cnn.process_batch(known, devices, single)
            if len(steps) and not batch:
                run.notes.append("no batch size is known: no times from the rates of steps")
            elif len(steps):
                joined = _tf_cnn.add_times(steps, rates, batch, HALF_DIGIT)
                if joined:
                    run.notes.append(
                        f"{joined} of {len(steps)} windows joined with the next: one decimal "
                        f"of a mean leaves their times in doubt by over {windows.MAX_DOUBT:.0%}"
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


def _cut(steps, part):
    return Steps(step=steps.step[part], loss=steps.loss[part], warm_up=steps.warm_up[part])
