"""torchtitan: `step: 10  loss:  8.0  memory:  9.8GiB(10%)  tps: 1,234 ...` each log_freq steps.

- `tps` (formerly `wps`) is tokens per second and device since the line before: the tokens of the
  rank that prints over its time and the ranks that share them (tensor, pipeline and context
  parallel). Loading data and writing checkpoints are in that time. Tokens of a step over tps and
  devices give the time of a step; a line becomes a window of steps.
- tps has no decimals. Where that leaves over 1 % of a rate in doubt, times are those between the
  dates of two lines; without dates there is a mean with its uncertainty, and no time of a window.
  Where dates and tps differ by more than that and 2 %, the run contradicts itself: devices, batch
  or sequence are others than was said.
- Tokens of a step follow from the line `Trainer is initialized with ...` (`Training starts at step
  1, with ...` until 2025), devices from that of
  the device mesh, or both from --fields (devices, global_batch, item_shape). With devices and
  item_shape alone there is a throughput and no times; without them there is
  tokens_per_second_per_device.
- A line `validate step:` restarts the clock: the next line is of the steps after it. Where a
  validation follows steps that no line has, its own tps mixes both; it is not imported.
- The first line has the start of all ranks and compiling in it: warm-up.
- `loss` is the mean over all ranks at that step alone, not over the window. -1 is printed by
  ranks of a pipeline that have none; another rank's line may have it.
- `memory` is what the allocator of the rank had reserved at most since the line before.
  peak_reserved_bytes_per_device is the largest of the log.
- `tflops` and `mfu` use torchtitan's own count of FLOPs: in the notes alone.
- Ranks print alike. Lines of the first rank that prints count; without a name of the rank, the
  first line of a step. Settings after a step, or the first step again, begin the next run.

Source: pytorch/torchtitan, torchtitan/components/metrics.py and trainer.py, August 2026; lines of
pytorch/torchtitan#2389, #3393, #1349.
"""

import math
import re
from collections.abc import Iterator
from datetime import datetime

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import CUT_SHORT, LeftOut, count, real
from dlbench.study import contradictions, wording

FAMILY = "torchtitan"
LINE_MARKS = (b"tps: ", b"wps: ", b"Trainer is initialized with ")
GIB = 2**30
MAX_DOUBT = 0.01  # relative error of a rate by its last printed digit
MIN_RATE = 20  # smaller ones differ by their last digit
NO_LOSS = -1.0
DATE = re.compile(r"\b(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[,.](\d{1,6}))?")
STEP = re.compile(
    r"(?<!validate )\bstep:\s+(\d+)\s+loss:\s+(\S+)\s(.*?)\b[tw]ps: ([\d,]+)(?=\s|$)(.*)"
)
VALIDATION = re.compile(r"\bvalidate step:\s+(\d+)\s+loss:\s+(\S+)")
RANK = re.compile(r"^\[(?:rank|default)(\d+)\]:")
MEMORY = re.compile(r"memory:\s+([\d.]+)GiB")
SHARE = re.compile(r"mfu: ([\d.]+)%")
SETTINGS = re.compile(r"(?:Trainer is initialized|Training starts at step \d+,) with (.*)")
PARTS = {  # of that line
    "global_batch": re.compile(r"global batch size (\d+)"),
    "sequence": re.compile(r"(?:sequence|maximum context) length (\d+)"),
    "tokens": re.compile(r"(\d+) tokens per train step"),
    "steps": re.compile(r"total steps (\d+)"),
}
MESH = re.compile(r"Building device mesh with parallelism: (.*)")
OLD_MESH = re.compile(r"Building \d-D device mesh with \[.*?\], \[([\d, ]+)\]")
MESH_PARTS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
MODEL = re.compile(r"Model (\S+) (\S+) size: ([\d,]+) total parameters")
DEVICE = re.compile(r"(?:CUDA|XPU|NPU) capacity: (.+?) with ")
BEGINS = re.compile(r"Building .*device mesh|Trainer is initialized with|Training starts at step")
STARTS = re.compile(r"Training starts at step (\d+)")


def recognise(log: LogFile) -> bool:
    text = log.head_text
    steps = any("memory:" in match[3] for match in STEP.finditer(text))
    return steps or bool(SETTINGS.search(text))


def read(log: LogFile) -> Iterator[Imported]:
    run, number, first_rank = _Run(1), 0, None
    for number, line in log.lines():
        if number == log.unfinished:
            run.left_out.add(number, CUT_SHORT)
            continue
        rank = (RANK.match(line) or [None, None])[1]
        if not (match := STEP.search(line)):
            if run.rates and rank == first_rank and BEGINS.search(line):
                yield run.imported(log, number - 1)
                run = _Run(number)
            run.add_setting(line)
            continue
        first_rank = first_rank or rank
        step = count(match[1])
        if rank != first_rank:
            run.left_out.add(number, "of another rank")
            run.losses_of_others.setdefault(step, _loss(match[2]))
            continue
        if run.rates and step is not None and step < run.steps[-1]:
            log_lines.check_begin(log, number, step, run.steps[0])
            yield run.imported(log, number - 1)
            run = _Run(number, run.columns)
        run.add(log, number, step, match)
    if run.rates or run.first_line == 1:
        yield run.imported(log, number)


class _Run:
    def __init__(self, first_line, columns=None):
        self.first_line = first_line
        self.columns = dict(columns or {"framework": "pytorch", "mode": "train"})
        self.steps, self.losses, self.rates, self.windows = [], [], [], []
        self.windows_s = []  # time of each by the dates of lines, or None
        self.losses_of_others = {}  # by step, of ranks whose lines do not count
        self.evals = []
        self.reset = self.reset_at = None  # step and date at which the clock of the next line began
        self.memory_gib, self.share, self.ended = 0.0, None, False
        self.left_out = LeftOut()

    def add_setting(self, line):
        """Parse a line that is not of a step: settings, devices, model, evaluations, end."""
        if match := STARTS.search(line):
            self.reset, self.reset_at = (count(match[1]) or 1) - 1, _date(line)
        if match := SETTINGS.search(line):
            self._settings(match[1])
        elif match := MESH.search(line):
            sizes = dict(re.findall(r"(\w+)=(\d+)", match[1]))
            self._devices([sizes.get(name, "1") for name in MESH_PARTS])
        elif match := OLD_MESH.search(line):
            self._devices(match[1].split(","))
        elif match := MODEL.search(line):
            self.columns["model"] = f"{match[1]}_{match[2]}"
            if (parameters := count(match[3].replace(",", ""), high=2**62)) is not None:
                self.columns["parameters"] = parameters
        elif match := DEVICE.search(line):
            self.columns["device_model"] = match[1]
        elif match := VALIDATION.search(line):
            step, loss = count(match[1]), log_lines.loss(match[2])
            if step is not None and loss is not None:
                self.evals.append({"split": "validation", "step": step, "loss": loss})
                self.reset, self.reset_at = step, _date(line)
        elif "Training completed" in line:
            self.ended = True

    def _devices(self, sizes):
        devices = math.prod(count(size) or 0 for size in sizes)
        if count(devices) is not None:
            self.columns["devices"] = devices

    def _settings(self, text):
        found = ((name, pattern.search(text)) for name, pattern in PARTS.items())
        values = {name: count(match[1]) for name, match in found if match}
        sequence, tokens = values.get("sequence"), values.get("tokens")
        if sequence:
            self.columns["item_shape"] = str(sequence)
        if tokens and sequence and tokens % sequence == 0:
            values["global_batch"] = tokens // sequence
        for name in ("global_batch", "steps"):
            if values.get(name):
                self.columns[name] = values[name]

    def add(self, log, line, step, match):
        rate = real(match[4].replace(",", ""), 1e-6)
        loss = _loss(match[2])
        if step is None or rate is None:
            self.left_out.add(line, "a step without a number or a rate")
            return
        if self.steps and step == self.steps[-1]:
            rates = (rate, self.rates[-1]) if self.steps[1:] and rate > MIN_RATE else (1, 1)
            log_lines.check_rank(log, line, rates, (loss, self.losses[-1]))
            self.left_out.add(line, "the same step again: of another rank")
            self.losses_of_others.setdefault(step, loss)
            return
        before = self.reset if self.reset is not None and self.reset < step else None
        self.windows.append(step - before if before is not None else 1)
        self.steps.append(step)
        self.losses.append(loss)
        self.rates.append(rate)
        date = _date(match.string)
        known = before is not None and date and self.reset_at and date > self.reset_at
        self.windows_s.append((date - self.reset_at).total_seconds() if known else None)
        self.reset, self.reset_at = step, date
        if memory := MEMORY.search(match[3]):
            self.memory_gib = max(self.memory_gib, real(memory[1], 0, 1e6) or 0)
        if share := SHARE.search(match[5]):
            self.share = real(share[1], 0)

    def imported(self, log, last_line):
        if not self.rates:
            raise log.error(last_line, "no step with tokens per second could be read")
        run = Imported(dict(self.columns), evals=self.evals, lines=(self.first_line, last_line))
        for row, (step, loss) in enumerate(zip(self.steps, self.losses, strict=True)):
            loss = self.losses_of_others.get(step) if loss is None else loss
            run.steps.add(step, math.nan, loss, 0, warm_up=row == 0)
        if None in self.losses:
            run.notes.append(f"loss {NO_LOSS:g} is no loss: what a rank prints that has none")
        if self.memory_gib:
            run.columns["peak_reserved_bytes_per_device"] = round(self.memory_gib * GIB)
        total = self.columns.get("steps")
        if total and self.steps[-1] < total and not self.ended:
            run.status = "failed"
            run.message = f"the log ends at step {self.steps[-1]} of {total}"
        run.notes.append("tps is of one device; the first line is the warm-up")
        if self.share is not None:
            wrong = ": its count or the peak that it takes is wrong" if self.share > 100 else ""
            own = f"mfu {self.share:g} % in the last line, by torchtitan's own count"
            run.notes.append(own + wrong)
        run.notes += self.left_out.notes()
        run.complete = lambda columns: self._complete(columns, run)
        return run

    def _complete(self, columns, run):
        """Add times of steps, or only the throughput, depending on the known columns."""
        rates = self.rates[1:]
        if not rates:
            return
        tokens, devices = wording.tokens(columns.get("item_shape")), columns.get("devices")
        batch, steps = columns.get("global_batch"), sum(self.windows[1:])
        rate = steps / sum(n / r for n, r in zip(self.windows[1:], rates, strict=True))
        doubt = 0.5 / min(rates)
        is_rounded = doubt > MAX_DOUBT
        each = batch * tokens / devices if batch and tokens and devices else None
        if each and self._add_times(run, each, is_rounded):
            if contradiction := self._contradiction(each / rate, doubt, batch, devices):
                columns["contradicts"] = contradiction
            return
        if is_rounded:
            columns["rate_uncertainty"] = doubt
            run.notes.append(f"tps is rounded to whole numbers, which leaves {doubt:.1%} in doubt")
        if tokens and devices:
            columns["images_per_second"] = rate * devices / tokens
            columns["steps_measured"] = steps
            if each:
                columns["step_time_mean_s"] = each / rate
            return
        columns["tokens_per_second_per_device"] = rate
        run.notes.append(
            f"{rate:.0f} tokens/s per device; for a throughput give devices and item_shape "
            "(tokens of a sequence), for times of steps global_batch, too"
        )

    def _add_times(self, run, each, is_rounded):
        """Add the times of windows; False if neither rates nor dates have them."""
        if is_rounded and None in self.windows_s[1:]:
            return False
        if is_rounded:
            run.notes.append("times by the dates of lines: tps is rounded to whole numbers")
        for row, (steps, rate, by_dates_s) in enumerate(
            zip(self.windows, self.rates, self.windows_s, strict=True)
        ):
            by_dates = is_rounded and by_dates_s
            run.steps.step_time_s[row] = by_dates_s / steps if by_dates else each / rate
            run.steps.window_steps[row] = steps
        return True

    def _contradiction(self, step_s, doubt, batch, devices):
        """A sentence on how times by tps differ from times by dates; "" if they agree."""
        if None in self.windows_s[1:]:
            return ""
        steps, by_dates_s = sum(self.windows[1:]), sum(self.windows_s[1:])
        allowed = contradictions.MAX_DIFFERENCE + doubt + 1 / by_dates_s  # dates may be of seconds
        ratio = step_s * steps / by_dates_s
        if 1 / (1 + allowed) <= ratio <= 1 + allowed:
            return ""
        return (
            f"a step takes {step_s:.4g} s by tps, a global batch of {batch} and {devices} devices, "
            f"and {by_dates_s / steps:.4g} s by the dates of lines"
        )


def _loss(text):
    """A printed loss; None if it is no number, or NO_LOSS."""
    loss = log_lines.loss(text)
    return None if loss == NO_LOSS else loss


def _date(line):
    """The date in a line, without time zone; None if it has none."""
    match = DATE.search(line)
    try:
        return match and datetime.fromisoformat(f"{match[1]}T{match[2]}.{match[3] or 0:0<6}")
    except ValueError:
        return None
