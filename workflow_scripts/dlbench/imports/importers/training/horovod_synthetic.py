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
- The batch size in the header is that of a device. Warm-up steps are not printed.

Source: horovod/horovod, examples/*/*_synthetic_benchmark.py; BaguaSys/bagua,
examples/benchmark/synthetic_benchmark.py.
"""

import re
from collections.abc import Iterator

from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import LeftOut

FAMILY = "horovod_synthetic"
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
    run, number = _Run(1), 0
    for number, line in log.lines():
        if match := ITERATION.search(line):
            if int(match[1]) == 0 and run.rates:
                yield run.imported(log, number - 1)
                run = _Run(number)
            run.iteration(number, match)
        elif match := TOTAL.search(line):
            run.total, run.devices = float(match[3]), int(match[1])
            run.device_kind = match[2]
        elif match := MEAN.search(line):
            run.mean, run.spread = float(match[1]), float(match[2])
        elif match := MODEL.search(line):
            if run.rates or run.total is not None:
                yield run.imported(log, number - 1)
                run = _Run(number)
            run.model = match[1]
        elif match := BATCH.search(line):
            run.batch = int(match[1])
        elif match := DEVICES.search(line):
            run.device_kind, run.devices = match[1], int(match[2])
    yield run.imported(log, number)


class _Run:
    """The lines of one run."""

    def __init__(self, first_line):
        self.first_line = first_line
        self.model = self.batch = self.devices = self.device_kind = None
        self.total = self.mean = self.spread = None
        self.rates, self.iterations = [], []
        self.of_all_devices = False  # the rates, as Bagua prints them
        self.left_out = LeftOut()

    def iteration(self, line, match):
        iteration, rate = int(match[1]), float(match[2])
        if self.iterations and iteration <= self.iterations[-1]:
            self.left_out.add(line, "an iteration that was there before: the logs of two ranks?")
        elif not 0 < rate < float("inf"):
            self.left_out.add(line, f"a rate of {match[2]} img/sec has no time")
        else:
            self.iterations.append(iteration)
            self.rates.append(rate)
            self.of_all_devices = not match[3]
            self.device_kind = match[4]

    def imported(self, log, last_line):
        if not self.rates and not self.total:
            raise log.error(last_line, "no iteration was printed: did it end during the warm-up?")
        if not self.devices:
            raise log.error(
                self.first_line,
                "the log has neither 'Number of GPUs' nor a total: rates are per device, and the "
                "number of devices is unknown",
            )
        if self.of_all_devices:
            self.rates = [rate / self.devices for rate in self.rates]
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
            lines=(self.first_line, last_line),
        )
        if not self.rates:
            run.columns["images_per_second"] = self.total
            run.notes.append("the arithmetic mean of rates: no less than items over time")
        elif self.batch:
            for iteration, rate in zip(self.iterations, self.rates, strict=True):
                step = (iteration + 1) * WINDOW_STEPS
                run.steps.add(step, self.batch / rate, window_steps=WINDOW_STEPS)
            run.notes.append(
                f"an iteration is taken as {WINDOW_STEPS} steps: the program's default, the log "
                "does not say; the warm-up is not in the log"
            )
        else:
            harmonic = len(self.rates) / sum(1 / rate for rate in self.rates)
            run.columns["images_per_second"] = harmonic * self.devices
            run.notes.append("no batch size in the log: no times of steps")
        self._compare(run)
        run.notes += self.left_out.notes()
        return run

    def _compare(self, run):
        """Compare the printed mean with that of the iterations; they differ if some are missing."""
        if self.total is None:
            run.notes.append("no total: the log ends before its end")
        if self.mean is None or not self.rates:
            return
        mean = sum(self.rates) / len(self.rates)
        run.notes.append(
            f"the log prints {self.mean} +-{self.spread} img/sec per device: the arithmetic mean "
            f"of {len(self.rates)} iterations and 1.96 of their standard deviations; "
            "images_per_second is items over time"
        )
        if abs(mean - self.mean) > 0.11:  # both rounded to a tenth
            run.notes.append(
                f"the mean of the iterations is {mean:.1f}, printed {self.mean}: are some missing?"
            )
