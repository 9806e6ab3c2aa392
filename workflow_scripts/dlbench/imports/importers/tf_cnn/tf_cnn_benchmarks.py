"""What tf_cnn_benchmarks prints.

- `10  images/sec: 47.3 +/- 0.7 (jitter = 1.1)  9.068`, with tabs, or with spaces if copied from a
  terminal. The rate is a cumulative mean (importers/tf_cnn/_tf_cnn.py), undone here. The
  number after +/- is the standard error of the steps' rates: their population standard deviation
  over the root of their number. jitter is 1.4826 times the median absolute deviation of the rates.
  Both are of all steps so far and are given in the notes. The last number is the loss of that step
  alone. With --display_perf_ewma the rate is a moving mean, which the log does not say: then its
  times mean nothing.
- `total images/sec: 2047.95`: items of all workers over the time by the clock, which includes
  saving. It is the throughput. An evaluation prints the same words; the banner's `Mode:` tells
  them apart. Training with evaluations in between prints `Done with training` instead.
- Step lines are of one process, under Horovod of one device. If all print into one log, the
  slowest counts. Prefixes such as `[1,0]<stdout>:` (mpirun) and `0: ` (srun) are removed.
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

from dlbench.imports import log_values
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.importers.tf_cnn import _tf_cnn
from dlbench.imports.log_file import LogFile

FAMILY = _tf_cnn.FAMILY
LINE_MARKS = (b"images/sec: ", b"Img/sec", b"Batch size:  ")
HALF_DIGIT = 0.05  # of the printed rates, items/s
_gap = rb"[\t ]+"  # a tab; spaces if the log was copied from a terminal
_number = rb"(-?(?:\d{1,99}\.\d{1,99}|nan|inf))"
_step = rb"(\d{1,18})" + _gap + rb"images/sec: " + _number + rb"%s" + _gap + _number + rb"[^\n]*\n"
PLAIN_STEPS = re.compile(rb"(?m:^)" + _step % rb" \+/- [^\t\n ]+ \(jitter = [^)\n]+\)")
STEP = re.compile(_step % rb"(?: \+/- (\d+\.\d+|nan|inf) \(jitter = (\d+\.\d+|nan|inf)\))?")
HEADER = re.compile(rb"Step[\t ]+Img/sec")
PREFIX = re.compile(rb"\[\d+,\d+\]<std(?:out|err)>: ?| {0,8}\d{1,6}: ")
BANNER = re.compile(rb"([A-Z][\w ]{3,11}): +([^\n]*)")
PER_DEVICE = re.compile(rb" +(\d+) per device\s*$")
TOTAL = re.compile(rb"total images/sec: (\d+\.\d\d)\s*$")
ACCURACY = re.compile(rb"Accuracy @ 1 = (\S+) Accuracy @ 5 = (\S+) \[(\d+) examples\]\s*$")
AT_STEP = re.compile(rb"Running (?:final )?evaluation at global_step (\d{1,18})\s*$")
RECOGNISED = re.compile(
    rb"^(?:%s)?(?:Batch size:  \d+ global|Step[\t ]+Img/sec[\t ]+|\d+[\t ]+images/sec: )"
    % PREFIX.pattern,
    re.M,
)
# Settings in the banner, and their names in benchmark.log.
BANNER_NAMES = {
    b"TensorFlow": "version",
    b"Model": "model",
    b"Dataset": "dataset",
    b"Mode": "mode",
    b"SingleSess": "single_sess",
    b"Batch size": "batch_size",
    b"Num batches": "num_batches",
    b"Devices": "devices",
    b"Optimizer": "optimizer",
    b"Variables": "variables",
    b"Sync": "sync",
}
OUT_OF_MEMORY = (b"OOM when allocating", b"RESOURCE_EXHAUSTED")


def recognise(log: LogFile) -> bool:
    return bool(RECOGNISED.search(log.head))


def read(log: LogFile) -> Iterator[Imported]:
    section, runs = _Section(1), []
    for first, block in log.blocks():
        rows = PLAIN_STEPS.findall(block)
        if len(rows) == block.count(b"\n"):  # the block has steps and nothing else
            section.add_steps(rows)
            section.last_step_line = block[block.rfind(b"\n", 0, -1) + 1 :]
            section.last = first + len(rows) - 1
            continue
        for number, line in enumerate(block.split(b"\n")[:-1], start=first):
            if section.ends_before(line):
                runs += section.runs(log)
                section = _Section(number)
            section.add(number, line + b"\n")
    if log.unfinished:
        section.notes.append(f"line {log.unfinished} was cut short and is left out")
    runs += section.runs(log)
    yield from _with_evaluations(log, runs)


class _Section:
    """The lines from one banner to the next: one run, or several appended without a banner."""

    def __init__(self, first):
        self.first, self.last = first, first
        self.settings, self.notes, self.totals, self.evals = {}, [], [], []
        self.steps, self.rates = Steps(), array("d")
        self.headers = []  # how many steps precede each header
        self.damaged = []  # numbers of damaged lines
        self.done = self.out_of_memory = False
        self.at_step = None
        self.last_step_line = b""

    def ends_before(self, line):
        begun = self.steps.step or self.totals or self.evals or self.done
        return begun and _key(_plain(line)) in ("version", "model", "mode")

    def add_steps(self, rows):
        log_values.append_rows(rows, (self.steps.step, self.rates, self.steps.loss))

    def add(self, number, line):
        self.last = number
        line = _plain(line)
        if b"images/sec: " in line:
            if match := STEP.match(line):
                self.steps.step.append(int(match[1]))
                self.rates.append(float(match[2]))
                self.steps.loss.append(float(match[5]))
                self.last_step_line = line
            elif match := TOTAL.match(line):
                self.totals.append(float(match[1]))
            else:
                self.damaged.append(number)
        elif HEADER.match(line):
            self.headers.append(len(self.steps))
        elif line.startswith(b"Done with training"):
            self.done = True
        elif match := ACCURACY.match(line):
            self._add_accuracy(number, match)
        elif match := AT_STEP.match(line):
            self.at_step = int(match[1])
        elif match := PER_DEVICE.match(line):
            self.settings.setdefault("batch_size_per_device", match[1].decode())
        elif key := _key(line):
            text = BANNER.match(line)[2].decode("utf-8", "replace").strip()
            text = text.partition(" ")[0] if key == "batch_size" else text
            if self.settings.setdefault(key, text) != text:
                self.notes.append(f"line {number}: another {key}, {text}: of another process?")
        elif any(words in line for words in OUT_OF_MEMORY):
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
        """The runs of this section; the section's last lines are of the last one."""
        if not (self.steps.step or self.totals or self.evals or self.settings or self.done):
            return []
        self._note_damage()
        columns = _tf_cnn.columns(self.settings, self.notes)
        if version := _tf_cnn.version(self.settings.get("version", "")):
            columns["framework_version"] = version
        if self.settings.get("mode") == _tf_cnn.EVALUATION:
            return [self._evaluation(columns)]
        parts = self._parts(log, columns)
        return [
            self._run(dict(columns), steps, rates, is_last)
            for steps, rates, is_last in zip(
                *parts, [False] * (len(parts[0]) - 1) + [True], strict=True
            )
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

    def _parts(self, log, columns):
        """(steps of each run, rates of each run), cut at the headers where steps begin anew."""
        steps, rates = self.steps, self.rates
        if not self._several(columns) and _ascend(steps.step):
            return [steps], [rates]
        cuts = [0, *(at for at in self.headers if 0 < at < len(steps)), len(steps)]
        parts = [slice(*pair) for pair in itertools.pairwise(cuts)] or [slice(0, 0)]
        if all(_ascend(steps.step[part]) for part in parts) and not self._several(columns):
            return [_cut(steps, part) for part in parts], [rates[part] for part in parts]
        if _ascend(steps.step):
            return [steps], [rates]
        ranks = _tf_cnn.merge_ranks(steps, rates)
        if not ranks:
            raise log.error(
                self.first,
                "steps go back from here on: which process printed which of them is unknown",
            )
        self.notes.append(f"{ranks} processes printed into this log: the slowest counts")
        return [steps], [rates]

    def _several(self, columns):
        """Whether several processes are known to have trained together."""
        devices = columns.get("devices", 1)
        several_nodes = devices > columns.get("devices_per_node", devices)
        return several_nodes or (columns.get("strategy") == "horovod" and devices > 1)

    def _evaluation(self, columns):
        notes = [*self.notes, "an evaluation: its total images/sec is no throughput of training"]
        for name in ("steps", "mode"):
            columns.pop(name, None)
        return Imported(columns, evals=self.evals, notes=notes, lines=(self.first, self.last))

    def _run(self, columns, steps, rates, is_last):
        run = Imported(
            columns,
            steps,
            evals=self.evals if is_last else [],
            notes=list(self.notes),
            lines=(self.first, self.last),
        )
        ended = is_last and (self.totals or self.done)
        if is_last and self.totals:
            columns["images_per_second"] = min(self.totals)
            if len(set(self.totals)) > 1:
                run.notes.append(f"{len(self.totals)} totals were printed: the least counts")
        if not ended:
            run.status, run.message = self._why_not_ended(steps, is_last)
        run.notes += _scatter(self.last_step_line) if is_last else []
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
                        f"of a mean leaves their times in doubt by over {_tf_cnn.MOST_DOUBT:.0%}"
                    )

        run.complete = complete
        return run

    def _why_not_ended(self, steps, is_last):
        if is_last and self.out_of_memory:
            return "oom", "out of memory, as its log says"
        where = f"after step {steps.step[-1]}" if len(steps) else "before the first step"
        steps_asked = self.settings.get("num_batches")
        return "failed", f"its log ends {where}{f' of {steps_asked}' if steps_asked else ''}"


def _with_evaluations(log, runs):
    """The runs, each with the evaluations that follow it in the log."""
    joined = []
    for run in runs:
        is_evaluation = "mode" not in run.columns and run.complete is None
        if is_evaluation and joined and joined[-1].columns.get("model") == run.columns.get("model"):
            joined[-1].evals += run.evals
            joined[-1].notes.append(f"evaluated from line {run.lines[0]} on")
            joined[-1].lines = (joined[-1].lines[0], run.lines[1])
        else:
            joined.append(run)
    if not joined:
        raise log.error(1, "neither a banner nor a step could be read")
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


def _plain(line):
    match = PREFIX.match(line)
    return line[match.end() :] if match else line


def _key(line):
    match = BANNER.match(line)
    return BANNER_NAMES.get(match[1]) if match else None


def _ascend(numbers):
    return all(map(operator.lt, numbers, itertools.islice(numbers, 1, None)))


def _cut(steps, part):
    return Steps(step=steps.step[part], loss=steps.loss[part], warm_up=steps.warm_up[part])
