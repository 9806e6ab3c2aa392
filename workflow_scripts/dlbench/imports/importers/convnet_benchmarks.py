"""convnet-benchmarks' TensorFlow scripts (AlexNet, GoogLeNet, Overfeat, VGG).

- `Forward-backward across 100 steps, 0.081 +/- 0.008 sec / batch`: meant as mean and standard
  deviation of 100 steps after 10 of burn-in. But the first measured step is skipped (`i > 10`), so
  that 99 durations are summed and divided by 100: the mean is too small by 1 %, and the standard
  deviation, from mean squares, is about a tenth of the mean even if all durations are equal.
- This is undone: with n, m and s as printed the sums are n m and n (s^2 + m^2); over n - 1 steps
  the mean is n m / (n - 1) and the population variance n (s^2 + m^2) / (n - 1) - mean^2.
- Three decimals are printed, so that the mean of a fast net is known to some percent only. The
  notes say to how many; beyond five there is no throughput. If digits that round to the printed
  ones give a variance of 0, the standard deviation is given as 0 and the notes say how large it
  can be.
- AlexNet, GoogLeNet and Overfeat have the error in all revisions, VGG until its `i >= 10`. The
  corrected VGG begins to print at step 0, the others at step 10, which tells them apart. If no step
  is printed, the error is assumed unless the variance would be below 0.
- `step 20, duration = 0.027`: the time of that one step; every tenth is printed. Our table of steps
  counts the burn-in too, so it is step 31 there.
- Forward (no gradients) and forward-backward are two runs, each on one device. Only some variants
  print the batch size. Dates are local, without a zone.

Source: soumith/convnet-benchmarks, tensorflow/benchmark_*.py, all revisions.
"""

import itertools
import math
import re
from collections.abc import Iterator

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported, Steps
from dlbench.imports.log_file import LogFile

FAMILY = "convnet_benchmarks"
LINE_MARKS = (b" sec / batch", b", duration = ")
BURN_IN_STEPS = 10
MAX_DOUBT = 0.05  # relative error of a mean by its last printed digit
_date = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?): "
# All three decimals are required: a truncated number would be another number.
STEP = re.compile(_date + r"step (\d{1,9}), duration = (\d{1,9}\.\d{3}|nan|inf)\s*$")
RESULT = re.compile(
    _date + r"(Forward(?:-backward)?) across (\d{1,9}) steps(?: \([^)]*\))?, "
    r"(\d{1,9}\.\d+|nan|inf) \+/- (\d{1,9}\.\d+|nan|inf) sec / batch"
)
BATCH = re.compile(r"\(batch size: ([1-9]\d{0,8})\)")
GPU = re.compile(r"\s*name: (.+)")


def recognise(log: LogFile) -> bool:
    text = log.head_text
    return bool(RESULT.search(text) or re.search(STEP.pattern, text, re.MULTILINE))


def read(log: LogFile) -> Iterator[Imported]:
    yield from log_lines.read(log, _Reader, dates=True)


class _Reader:
    """The runs in the lines of one process."""

    def __init__(self, log):
        self.log, self.done = log, []
        self.steps, self.fixed, self.gpu = Steps(), None, None
        self.first_line, self.last_line = 1, 0

    def add(self, number, line, is_cut):
        self.last_line = number
        if match := STEP.search(line):
            self.fixed = self.fixed or int(match[2]) == 0
            self.steps.add(int(match[2]) + BURN_IN_STEPS + 1, float(match[3]))
        elif match := RESULT.search(line):
            run = _imported(self.log, number, match, self.steps, self.fixed)
            run.columns |= {"device_model": self.gpu, "device_kind": "gpu"} if self.gpu else {}
            run.lines = (self.first_line, number)
            self.done.append(run)
            self.steps, self.fixed, self.first_line = Steps(), None, number + 1
        elif match := GPU.match(log_lines.split(line)[1]):
            self.gpu = match[1].strip() or self.gpu

    def runs(self):
        if self.steps.step:
            unfinished = Imported(
                {"framework": "tensorflow", "dataset": "synthetic", "devices": 1},
                steps=self.steps,
                notes=["the log ends before the result: forward or forward-backward is not said"],
                lines=(self.first_line, self.last_line),
                status="failed",
                message="the log ends before the result",
            )
            return [*self.done, unfinished]
        if not self.done:
            raise self.log.error(self.last_line, "no result and no step could be read")
        return self.done


def _imported(log, number, match, steps, fixed):
    date, name, *printed = match.groups()
    divisor, mean_s, sd_s = int(printed[0]), float(printed[1]), float(printed[2])
    result = f"{printed[1]} +/- {printed[2]} s a batch"
    if divisor < 3 or not (math.isfinite(mean_s) and math.isfinite(sd_s)) or mean_s == 0:
        raise log.error(number, f"{result}, {divisor} steps: no measurement")
    halves = [10.0 ** -len(text.partition(".")[2]) / 2 for text in printed[1:]]
    lost = 0 if fixed else 1
    mean, low, high = _undo(divisor, lost, mean_s, sd_s, halves)
    if fixed is None and not steps.step and high < 0:
        lost = 0
        mean, low, high = _undo(divisor, lost, mean_s, sd_s, halves)
    if high < 0:
        raise log.error(number, f"{result}: no durations of {divisor - lost} steps have these")
    count = divisor - lost
    variance = _undo(divisor, lost, mean_s, sd_s, (0, 0))[1] if low > 0 else 0.0
    notes = [
        f"{result}, printed {date}, local time",
        f"undone: {count} durations were divided by {divisor}"
        if lost
        else "as many durations as were divided by: nothing to undo",
    ]
    doubt = halves[0] / mean_s
    notes.append(f"the mean is printed to {2 * halves[0]:g} s, which is +-{doubt:.2g} of it")
    if low <= 0:
        notes.append(
            "the printed digits allow a standard deviation from 0 to "
            f"{math.sqrt(high * count / (count - 1)):.2g} s"
        )
    columns = {
        "framework": "tensorflow",
        "dataset": "synthetic",
        "mode": "forward" if name == "Forward" else "forward_backward",
        "devices": 1,
        "steps": divisor,
        "warmup_steps": BURN_IN_STEPS,
        "steps_measured": count,
        "step_time_mean_s": mean,
        "step_time_sd_s": math.sqrt(variance * count / (count - 1)),
    }
    if batch := BATCH.search(match.string):
        columns |= {"batch_per_device": int(batch[1]), "global_batch": int(batch[1])}

    def complete(known):
        if doubt > MAX_DOUBT:
            notes.append(f"no items per second: the printed digits leave over {MAX_DOUBT:.0%} open")
        elif known.get("global_batch"):
            known.setdefault("images_per_second", known["global_batch"] / mean)
        else:
            notes.append("no batch size in the log: no items per second")

    return Imported(columns, steps=steps, notes=notes, complete=complete)


def _undo(divisor, lost, mean_s, sd_s, halves):
    """(mean of the `divisor - lost` durations, smallest and largest population variance).

    `halves`: half of the last printed digit of mean and of standard deviation.

    >>> t = 0.5
    >>> mean, low, high = _undo(100, 1, t * 99 / 100, t * 99**0.5 / 100, (0.0, 0.0))
    >>> mean, round(low, 12), low == high
    (0.5, 0.0, True)
    """
    count = divisor - lost
    variances = []
    for m, s in itertools.product(
        (mean_s - halves[0], mean_s + halves[0]), (max(0.0, sd_s - halves[1]), sd_s + halves[1])
    ):
        mean = divisor * m / count
        variances.append(divisor * (s * s + m * m) / count - mean * mean)
    return divisor * mean_s / count, min(variances), max(variances)
