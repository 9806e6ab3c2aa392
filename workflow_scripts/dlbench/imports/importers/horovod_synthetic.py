"""Horovod's synthetic benchmark (its examples for TensorFlow, Keras and PyTorch) and Bagua's.

- `Iter #0: 256.2 img/sec per GPU`: the rate of rank 0 over num_batches_per_iter steps (10 by
  default; the log does not say). Each becomes a row of steps, a window whose step time is the batch
  of a device over the rate.
- `Img/sec per GPU: 254.0 +-2.1`: the arithmetic mean of those rates, and 1.96 times their
  population standard deviation. It is not divided by sqrt(n), so it is no interval of the mean.
- `Total img/sec on 4 GPU(s): 1016.0 +-8.4`: both, times the number of devices.
- Our images_per_second is items over time. The windows have equal numbers of steps, so it is the
  harmonic mean of their rates times the devices, never above the printed total. If a log has the
  total alone, that is taken and the notes say so.
- Bagua's `Iter #0: 1024.8 img/sec GPU`, without `per`, is the rate of rank 0 times the number of
  devices; its other lines have the same meaning as Horovod's.
- The examples for Keras print their warm-up as `Iter #0` and leave it out of the mean; the others
  do not print theirs. The printed mean shows which it is. Without one, the first iteration counts
  as warm-up.
- The batch size in the header is that of a device.
- Ranks that print the same are one run; two headers of one device each, or of different settings,
  are two programs, whose lines cannot be separated without the launcher's prefixes.

Source: horovod/horovod, examples/*/*_synthetic_benchmark.py; BaguaSys/bagua,
examples/benchmark/synthetic_benchmark.py.
"""

import re
from collections.abc import Iterator

from dlbench.imports import log_lines
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_lines import LeftOut

FAMILY = "horovod_synthetic"
LINE_MARKS = (b" img/sec ", b"Number of GPUs: ", b"Number of CPUs: ", b"Total img/sec on ")
ROUNDING = 0.11  # of a mean of rates, both rounded to a tenth
WINDOW_STEPS = 10  # the default of num_batches_per_iter
# The one decimal must be there: a rate that was cut short would be another one.
_rate = r"(\d{1,15}\.\d|nan|inf)"
_mean = rf"{_rate} \+-(\d{{1,15}}\.\d|nan|inf)\s*$"
ITERATION = re.compile(rf"Iter #(\d{{1,9}}): {_rate} img/sec (per )?([GC])PU")
MEAN = re.compile(rf"Img/sec per [GC]PU: {_mean}")
TOTAL = re.compile(rf"Total img/sec on (\d{{1,7}}) ([GC])PU\(s\): {_mean}")
MODEL = re.compile(r"(?:^|[>:]|\s)Model: (\S+)\s*$")
BATCH = re.compile(r"Batch size: (\d{1,9})\s*$")
DEVICES = re.compile(r"Number of ([GC])PUs: (\d{1,7})\s*$")


def recognise(log: LogFile) -> bool:
    text = log.head_text
    header = all(re.search(p.pattern, text, re.MULTILINE) for p in (MODEL, BATCH, DEVICES))
    return header or bool(ITERATION.search(text) or re.search(TOTAL.pattern, text, re.MULTILINE))


def read(log: LogFile) -> Iterator[Imported]:
    yield from log_lines.read(log, _Reader)


class _Reader:
    """The runs in the lines of one process."""

    def __init__(self, log):
        self.log, self.done, self.run = log, [], _Run(1)

    def add(self, number, line, is_cut):
        run = self.run
        if match := ITERATION.search(line):
            if int(match[1]) == 0 and run.has_ended:
                run = self._next(number)
            run.iteration(self.log, number, match)
        elif match := TOTAL.search(line):
            total = float(match[3])
            log_lines.check_rank(
                self.log, number, (total, total if run.total is None else run.total)
            )
            run.total = total
            self._set(number, "devices", int(match[1]))
            run.device_kind = match[2]
        elif match := MEAN.search(line):
            run.mean, run.spread = float(match[1]), float(match[2])
        elif match := MODEL.search(line):
            if run.rates or run.total is not None:
                run = self._next(number)
            run.headers += 1
            self._set(number, "model", match[1])
        elif match := BATCH.search(line):
            self._set(number, "batch", int(match[1]))
        elif match := DEVICES.search(line):
            run.device_kind = match[1]
            self._set(number, "devices", int(match[2]))
        run.last_line = number

    def _set(self, number, name, value):
        known = getattr(self.run, name)
        if known not in (None, value):
            raise self.log.error(
                number,
                f"{name} {value}, and {known} before: two programs printed into this log, and "
                + log_lines.UNKNOWN_RANKS_HINT,
            )
        setattr(self.run, name, value)

    def _next(self, number):
        self.done.append(self.run)
        self.run = _Run(number)
        return self.run

    def runs(self):
        return [run.imported(self.log) for run in (*self.done, self.run)]


class _Run:
    def __init__(self, first_line):
        self.first_line = self.last_line = first_line
        self.model = self.batch = self.devices = self.device_kind = None
        self.total = self.mean = self.spread = None
        self.headers = 0
        self.rates, self.differences = {}, []  # by iteration; how far those of others are from them
        self.of_all_devices = False  # the rates, as Bagua prints them
        self.left_out = LeftOut()

    @property
    def has_ended(self):
        """Whether an iteration 0 belongs to the next run, not to another rank of this run."""
        return bool(self.rates) and (self.total is not None or max(self.rates) > 1)

    def iteration(self, log, line, match):
        iteration, rate = int(match[1]), float(match[2])
        if not 0 < rate < float("inf"):
            self.left_out.add(line, f"a rate of {match[2]} img/sec has no time")
            return
        known = self.rates.get(iteration)
        # No rank is two lines ahead of another.
        if iteration < max(self.rates, default=0) - (known is not None):
            log_lines.check_begin(log, line, iteration, min(self.rates))
        if known is not None:
            log_lines.check_rank(log, line, (rate, known))
            self.differences.append(abs(rate / known - 1))
            self.left_out.add(line, "an iteration that was there before: of another rank")
            rate = min(rate, known)
        self.rates[iteration] = rate
        self.of_all_devices = not match[3]
        self.device_kind = match[4]

    def imported(self, log):
        if not self.rates and not self.total:
            raise log.error(
                self.last_line, "no iteration was printed: did it end during the warm-up?"
            )
        if not self.devices:
            raise log.error(
                self.first_line,
                "the log has neither 'Number of GPUs' nor a total: rates are per device, and the "
                "number of devices is unknown",
            )
        if self.devices == 1 and (self.headers > 1 or self.differences):
            raise log.error(
                self.first_line,
                "programs of one device each printed into this log, and "
                + log_lines.UNKNOWN_RANKS_HINT,
            )
        if self.of_all_devices:
            self.rates = {number: rate / self.devices for number, rate in self.rates.items()}
        iterations = sorted(self.rates)
        warm_up = self._warm_up()
        columns = {
            "model": self.model,
            "dataset": "synthetic",
            "item_shape": "224x224x3",
            "mode": "train",
            "strategy": "bagua" if self.of_all_devices else "horovod",
            "devices": self.devices,
            "device_kind": "cpu" if self.device_kind == "C" else "gpu",
            "batch_per_device": self.batch or None,
            "global_batch": self.batch * self.devices if self.batch else None,
        }
        run = Imported(
            {name: value for name, value in columns.items() if value is not None},
            lines=(self.first_line, self.last_line),
        )
        measured = [self.rates[number] for number in iterations if number != warm_up]
        if not self.rates:
            run.columns["images_per_second"] = self.total
            run.notes.append("the arithmetic mean of rates: no less than items over time")
        elif self.batch:
            for iteration in iterations:
                step = (iteration + 1) * WINDOW_STEPS
                time_s = self.batch / self.rates[iteration]
                run.steps.add(step, time_s, None, WINDOW_STEPS, iteration == warm_up)
            run.notes.append(
                f"an iteration is taken as {WINDOW_STEPS} steps: the program's default, the log "
                "does not say"
            )
        else:
            harmonic = len(measured) / sum(1 / rate for rate in measured)
            run.columns["images_per_second"] = harmonic * self.devices
            run.notes.append("no batch size in the log: no times of steps")
        self._compare(run, measured, warm_up)
        if self.differences:
            run.notes.append(
                "lines of several ranks: the slower of each iteration counts; rates differ by up "
                f"to {max(self.differences):.1%}"
            )
        run.notes += self.left_out.notes()
        return run

    def _warm_up(self):
        """The iteration that is the program's warm-up; None if all are measured."""
        if len(self.rates) < 2 or min(self.rates) != 0:
            return None
        if self.mean is None:
            return 0
        mean_of_all = sum(self.rates.values()) / len(self.rates)
        later = (sum(self.rates.values()) - self.rates[0]) / (len(self.rates) - 1)
        return 0 if abs(mean_of_all - self.mean) > ROUNDING >= abs(later - self.mean) else None

    def _compare(self, run, measured, warm_up):
        """Compare the printed mean with that of the iterations, of which some may be missing."""
        if self.total is None:
            run.status, run.message = "failed", f"its log ends after iteration {max(self.rates)}"
        if warm_up is not None:
            why = "the printed mean leaves it out" if self.mean else "no mean shows what it is"
            run.notes.append(f"iteration 0 is taken as warm-up: {why}")
        elif self.rates:
            run.notes.append("the warm-up is not in the log")
        if self.mean is None or not measured:
            return
        mean = sum(measured) / len(measured)
        run.notes.append(
            f"the log prints {self.mean} +-{self.spread} img/sec per device: the arithmetic mean "
            f"of {len(measured)} iterations and 1.96 of their standard deviations; "
            "images_per_second is items over time"
        )
        if abs(mean - self.mean) > ROUNDING:
            run.notes.append(
                f"the mean of the iterations is {mean:.1f}, printed {self.mean}: are some missing?"
            )
