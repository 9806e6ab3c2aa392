"""Logs of DLBS, HPE's Deep Learning Benchmarking Suite (dlcookbook-dlbs): `__key__= JSON` lines.

- results.time is the mean time of a batch in milliseconds, which every backend prints.
  results.time_data are the times of single batches, after the warm-up, at rank 0. They become
  steps.
- results.throughput is items per second of all devices: effective_batch over results.time. Several
  backends cut it to a whole number, so it is used only if the batch is unknown. A run for which
  batch, throughput, results.time and results.time_data do not agree contradicts itself.
- replica_batch (formerly device_batch) is the batch of a device, effective_batch that of all;
  devices follow from both. In frameworks whose replicas do not wait for one another, results.time
  is already the time of all over the steps of all.
- Phase inference is mode forward. start_time and end_time include the start of the container and
  are local times: not imported.
- Of a repeated key the last value counts, as for DLBS; a new exp.id begins the next run.

Source: HewlettPackard/dlcookbook-dlbs, python/dlbs/logparser.py and python/*_benchmarks.
"""

import math
import re
from collections.abc import Iterator

from dlbench.imports import console, log_values
from dlbench.imports.importers import Imported
from dlbench.imports.importers.tf_cnn import tf_cnn_benchmarks
from dlbench.imports.log_file import LogFile
from dlbench.imports.log_values import CUT_SHORT, MAX_TIME_S, LeftOut, count, real
from dlbench.study import contradictions

FAMILY = "dlbs"
LINE_MARKS = (b"__exp.", b"__results.")
PAIR = re.compile(r"^[ \t]*__([A-Za-z][\w.]{0,200}?)__[ \t]*=(.*)$")
PRECISIONS = {"float": "float32", "float32": "float32", "float16": "float16", "int8": "int8"}
MODES = {"training": "train", "inference": "forward"}
USED = {
    *("id", "model", "model_title", "framework", "framework_ver", "phase", "dtype"),
    *("replica_batch", "device_batch", "effective_batch", "num_gpus", "device_type"),
    *("device_title", "gpu_title", "num_batches", "num_warmup_batches", "data_dir"),
}


def recognise(log: LogFile) -> bool:
    """A log that contains one of tf_cnn_benchmarks is left to that importer, which reads more."""
    if not any(mark in log.head for mark in LINE_MARKS):
        return False
    pair = re.search(r"^[ \t]*__(?:exp|results)\.[\w.]+?__[ \t]*=", console.head(log), re.M)
    return bool(pair) and not tf_cnn_benchmarks.recognise(log)


def read(log: LogFile) -> Iterator[Imported]:
    yield from console.read(log, _Reader)


class _Reader:
    """The runs in the lines of one process."""

    def __init__(self, log):
        self.log, self.done, self.run = log, [], _Run(1)

    def add(self, number, line, is_cut):
        run = self.run
        before, run.last_line = run.last_line, number
        match = PAIR.match(line)
        if not match:
            return
        key, text = match[1], match[2].strip()
        value = log_values.from_json(text)
        if is_cut:
            run.left_out.add(number, CUT_SHORT)
        elif value is None and text != "null":
            run.left_out.add(number, "a value that is no JSON")
        else:
            if key == "exp.id" and run.values.get(key, value) != value:
                run.last_line = before
                self.done.append(run)
                self.run = run = _Run(number)
            run.values[key] = value

    def runs(self):
        return [run.imported(self.log) for run in (*self.done, self.run)]


class _Run:
    """The pairs of one run."""

    def __init__(self, first_line):
        self.first_line = self.last_line = first_line
        self.values = {}
        self.left_out = LeftOut()

    def imported(self, log):
        if not any(key.startswith(("exp.", "results.")) for key in self.values):
            raise log.error(self.last_line, "no value of exp.* or results.* could be read")
        run = Imported(self._settings(), lines=(self.first_line, self.last_line))
        time_ms = real(self.values.get("results.time"), 0, MAX_TIME_S * 1000)
        times_ms = self._times_ms()
        if times_ms:
            for step, step_time_ms in enumerate(times_ms, run.columns.get("warmup_steps", 0) + 1):
                run.steps.add(step, step_time_ms / 1000)
            self._compare(run, time_ms, sum(times_ms) / len(times_ms))
        elif time_ms:
            run.columns["step_time_mean_s"] = time_ms / 1000
        throughput = real(self.values.get("results.throughput"), 0)

        def complete(columns):
            self._check_throughput(columns, throughput, time_ms)
            if columns.get("global_batch") and time_ms and not times_ms:
                columns["images_per_second"] = columns["global_batch"] / (time_ms / 1000)
            elif throughput and not (columns.get("global_batch") and times_ms):
                columns["images_per_second"] = throughput
                run.notes.append(
                    "images_per_second is results.throughput, perhaps cut to a whole number"
                )

        run.complete = complete
        if not (times_ms or time_ms or throughput):
            run.status = "failed"
            status = self.values.get("results.status")
            run.message = f"no results.time; results.status is {log_values.printable(str(status))}"
        self._note_unused(run)
        run.notes += self.left_out.notes()
        return run

    def _settings(self):
        """Columns of settings."""
        batch = self._count("effective_batch")
        replica = self._count("replica_batch", "device_batch")
        devices = batch // replica if batch and replica and batch % replica == 0 else None
        if not devices and self._text("device_type") != "cpu":
            devices = self._count("num_gpus")
        if not batch and replica and devices:
            batch = replica * devices
        columns = {
            "model": self._text("model", "model_title"),
            "framework": self._text("framework"),
            "framework_version": self._text("framework_ver"),
            "mode": MODES.get(self._text("phase")),
            "precision": PRECISIONS.get(self._text("dtype")),
            "device_kind": self._text("device_type"),
            "device_model": self._text("device_title", "gpu_title"),
            "devices": devices,
            "batch_per_device": replica,
            "global_batch": batch,
            "steps": self._count("num_batches"),
            "warmup_steps": self._count("num_warmup_batches", low=0),
            "dataset": "synthetic" if self.values.get("exp.data_dir") == "" else None,
        }
        if columns["device_kind"] not in ("cpu", "gpu"):
            del columns["device_kind"]
        return {name: value for name, value in columns.items() if value is not None}

    def _text(self, *names):
        values = (self.values.get(f"exp.{name}") for name in names)
        return next((value for value in values if isinstance(value, str) and value), None)

    def _count(self, *names, low=1):
        values = (count(self.values.get(f"exp.{name}"), low) for name in names)
        return next((value for value in values if value is not None), None)

    def _times_ms(self):
        data = self.values.get("results.time_data")
        if not isinstance(data, list):
            return []
        times = [real(value, 0, MAX_TIME_S * 1000) for value in data]
        if None in times or 0 in times:
            self.left_out.add(self.first_line, "results.time_data, where a value is no time")
            return []
        return times

    def _compare(self, run, time_ms, mean_ms):
        if time_ms and not math.isclose(time_ms, mean_ms, rel_tol=0.01):
            run.notes.append(
                f"results.time is {time_ms:g} ms, the mean of results.time_data {mean_ms:g} ms, "
                "which is used"
            )
            if not math.isclose(time_ms, mean_ms, rel_tol=contradictions.MAX_DIFFERENCE):
                run.columns["contradicts"] = (
                    f"results.time is {time_ms:g} ms, and the mean of results.time_data "
                    f"{mean_ms:g} ms"
                )

    def _check_throughput(self, columns, throughput, time_ms):
        """Mark a throughput that is not batch over time, perhaps truncated to an integer."""
        batch = columns.get("global_batch")
        if not (batch and throughput and time_ms):
            return
        expected = batch / (time_ms / 1000)
        if abs(throughput - expected) > 1 + contradictions.MAX_DIFFERENCE * expected:
            columns.setdefault(
                "contradicts",
                f"results.throughput is {throughput:g}, {batch} items over results.time of "
                f"{time_ms:g} ms are {expected:.4g} items/s",
            )

    def _note_unused(self, run):
        known = {f"exp.{name}" for name in USED}
        known |= {f"results.{name}" for name in ("time", "time_data", "throughput", "status")}
        if unused := self.values.keys() - known:
            run.notes.append(f"keys left out: {log_values.list_names(unused)}")
