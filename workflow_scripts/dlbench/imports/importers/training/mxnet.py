"""The log of MXNet's Speedometer and Module.fit.

- `Speed` is items per second of one process over the batches since the line before: their number
  times the batch size, over the time. The throughput here is items over time of all these windows.
  They do not contain the first batch of an epoch. The first window of the log is the warm-up.
- MXNet computes asynchronously. The speed is that of the computation only if a metric is updated
  in each batch, as Module.fit does.
- The log does not have the batch size, so steps have no times.
- `Train-...` are means over the batches since the line before. `Validation-...` are of held-out
  items after an epoch and become rows of evals.

Source: mxnet/callback.py and module/base_module.py, MXNet 1.9.1.
"""

import re
from collections.abc import Iterator

from dlbench.imports import console, log_values
from dlbench.imports.importers import Imported
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import LeftOut

FAMILY = "mxnet"
LINE_MARKS = (b" samples/sec",)
SPEED = re.compile(
    r"(?:Epoch|Iter)\[(\d+)\] Batch \[(?:\d+-)?(\d+)\]\s*Speed: (\S+) samples/sec(.*)"
)
METRIC = re.compile(r"\s(?:Train-)?([\w-]+)=(\S+)")
VALIDATION = re.compile(r"Epoch\[(\d+)\] Validation-([\w-]+)=(\S+)")
RATES = (1e-6, 1e12)  # plausible, items/s
SCORES = {"accuracy": "top1", "top_k_accuracy_5": "top5", "cross-entropy": "loss"}
SEVERAL = "each prints the speed of its own process, and whether they trained together is not said"
LOSSES = ("cross-entropy", "loss", "nll-loss")


def recognise(log: LogFile) -> bool:
    return bool(SPEED.search(log.head_text))


def read(log: LogFile) -> Iterator[Imported]:
    yield from console.read(log, _Reader, refuse_several=SEVERAL)


class _Reader:
    """The run in the lines of one process."""

    def __init__(self, log):
        self.log = log
        self.windows: list[tuple[int, float]] = []  # (batches, items/s)
        self.evals: dict[int, dict[str, float]] = {}  # by epoch, from 1
        self.left_out, self.losses, self.final_loss = LeftOut(), set(), None
        self.before, self.last = (-1, 0), 0

    def add(self, number, line, is_cut):
        if match := SPEED.search(line):
            self._window(number, match)
        elif match := VALIDATION.search(line):
            epoch, score = log_values.count(match[1], 0), SCORES.get(match[2])
            value = log_values.real(match[3], 0)
            if epoch is not None and score and value is not None:
                self.evals.setdefault(epoch + 1, {})[score] = value
            else:
                self.left_out.add(number, f"validation {match[2]}")
        else:
            return
        self.last = number

    def _window(self, number, match):
        epoch, batch = (log_values.count(match[n], 0) for n in (1, 2))
        rate = log_values.real(match[3], *RATES)
        if epoch is None or batch is None:
            raise self.log.error(number, f"no such batch: {log_values.printable(match[0])}")
        before, self.before = self.before, (epoch, batch)
        if self.before <= before:
            raise self.log.error(
                number,
                f"batch {batch} of epoch {epoch} after batch {before[1]} of epoch "
                f"{before[0]}: lines of several processes, or of two runs?",
            )
        if rate is None:
            self.left_out.add(number, f"a speed of {log_values.printable(match[3])}")
            return
        # Of the batches since the line before, even if it says [0-...] (no auto_reset).
        self.windows.append((batch - (before[1] if before[0] == epoch else 0), rate))
        metrics = dict(METRIC.findall(match[4]))
        name = next((name for name in LOSSES if name in metrics), None)
        self.final_loss = log_values.loss(metrics[name]) if name else self.final_loss
        self.losses |= {other for other in metrics if "loss" in other and other != name}

    def runs(self):
        if not self.windows:
            raise self.log.error(self.last, "no speed could be read")
        windows, evals = self.windows, self.evals
        measured = windows[1:] or windows
        notes = ["throughput from windows of the Speedometer, the first left out as warm-up"]
        if self.losses:
            notes.append(f"losses left out: {log_values.list_names(self.losses)}")
        columns = {
            "framework": "mxnet",
            "mode": "train",
            "images_per_second": sum(n for n, _ in measured)
            / sum(n / rate for n, rate in measured),
            "steps_measured": sum(n for n, _ in measured),
            "burn_in_steps": sum(n for n, _ in windows[: len(windows) - len(measured)]),
        }
        if self.final_loss is not None:
            columns["final_loss"] = self.final_loss
        for name in ("top1", "top5"):
            if evals and name in evals[max(evals)]:
                columns[name] = evals[max(evals)][name]
        run = Imported(
            columns,
            evals=[{"split": "validation", "epoch": epoch, **row} for epoch, row in evals.items()],
            notes=notes + self.left_out.notes(),
            lines=(1, self.last),
        )
        return [run]
