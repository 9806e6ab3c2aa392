"""Train runs for the checks with the trainer's command line, and read their logs."""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from dlbench.log import event_log
from dlbench.records import parse_run
from dlbench.study.runs import Run
from dlbench.trainer import engine
from support.trainers import framework_runs, training_runs

from .device import Device

WARMUP_STEPS = 3


@dataclass(frozen=True)
class Trained:
    """A finished run: its settings, exit code, output and log."""

    run: Run
    code: int
    output: str
    log: Path

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind in the log of rank 0; none if there is no log."""
        if not self.log.is_file():
            return []
        return [event for event in event_log.read(self.log) if event["event"] == kind]

    def event(self, kind: str) -> dict[str, Any]:
        return (self.events(kind) or [{}])[-1]

    @property
    def losses(self) -> list[float]:
        return framework_runs.losses(self.log) if self.log.is_file() else []

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """The `summary` that parse_run.py would write to the run's record."""
        return parse_run.content(self.run, parse_run.rank_logs(self.log))["summary"]

    def step_s(self) -> float:
        return float(self.summary["step_time_median_s"])

    def why(self) -> str:
        """The end of its output, for messages."""
        return " ".join(self.output.split())[-300:]


def new_log() -> Path:
    """The path of a log in a new folder, which is deleted after the check."""
    return Path(tempfile.mkdtemp(prefix="run-")) / "train.jsonl"


def train(device: Device, framework: str, log: Path, **fields: Any) -> Trained:
    """Train to the end on a kind of device.

    Args:
        log: as new_log makes one.
        fields: fields of the run; also `flags` (further flags of train.py) and `data` (a folder).
    """
    run = run_of(framework, **{k: v for k, v in fields.items() if k not in ("flags", "data")})
    flags = ["--device", device.kind, *fields.pop("flags", ())]
    finished = training_runs.train(
        log, fields.pop("data", None), flags, sys.executable, new_python=True, **run.values()
    )
    return Trained(run, finished.returncode, finished.stdout + finished.stderr, log)


def run_of(framework: str, **fields: Any) -> Run:
    """A run on synthetic items, for a few steps."""
    usual = {"model": "lenet5", "dataset": "synthetic", "batch_per_device": 32}
    usual |= {"steps": 5, "warmup_steps": WARMUP_STEPS}
    chosen = {"framework": framework, "environment": engine.environment(framework)}
    return Run(**usual | chosen | fields)


@contextlib.contextmanager
def variables(**values: str | None) -> Iterator[None]:
    """Set environment variables in a `with` block; None removes one."""
    with mock.patch.dict(os.environ, {k: v for k, v in values.items() if v is not None}):
        for name in (name for name, value in values.items() if value is None):
            os.environ.pop(name, None)
        yield


def shared_memory(share: float = 0.08) -> dict[str, str]:
    """Variables with which several processes of JAX can share a GPU."""
    return {"XLA_CLIENT_MEM_FRACTION": str(share)}
