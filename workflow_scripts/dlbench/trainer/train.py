"""One process of a run, from its flags to the last event of its log."""

import argparse
import contextlib
import gc
import importlib.util
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from dlbench import Error
from dlbench.common import plugins, terminal
from dlbench.log import event_log
from dlbench.machine import binding, gpus, nccl_log, redaction
from dlbench.trainer import (
    calibration,
    checkpoints,
    containment,
    copies,
    description,
    engine,
    flags,
    loop,
    profiling,
    schedule,
    updates,
)
from dlbench.trainer.copies import Copy
from dlbench.trainer.reading import inputs, page_cache
from dlbench.trainer.strategy import BaseStrategy, Spec


def main(description: str | None) -> None:
    """Train the run that the command line describes; the exit code says how it ended."""
    started_at = event_log.utc_now()  # before this, the container and Python started
    spec, where = flags.parse(description)
    signals = _StopSignals(end_later=where.checkpoint is not None)
    process = _Process(spec, where, signals)
    # CUDA's order of devices must be that of NVML, which samples them.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ[binding.MODE] = spec.binding or where.site_binding
    if where.share_gpus:
        os.environ[binding.SHARES_GPUS] = "1"
    stopped = False
    try:
        end = process.train(started_at)
    except checkpoints.Stopped as reason:
        print(reason, file=sys.stderr)
        stopped = True  # leave() follows below, when nothing refers to the exception any more
    except BaseException as error:
        expected = process.fail(error)
        if expected:
            sys.exit(1)
        raise
    if stopped:
        # There is no run_end: started again with the same command, the run resumes.
        signals.ignore()  # a launcher may send one when another process has ended
        process.leave()
        sys.exit(checkpoints.STOPPED_EXIT_CODE)
    if end is not None:
        process.finish(end)


@contextlib.contextmanager
def _importing():
    """Disable garbage collection while a framework is imported.

    The import creates half a million objects that stay. Collecting among them would take a fifth of
    the import time, and a second at the end of the process.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Process:
    """One process of a run. It gets its strategy, its log and its engine in this order."""

    def __init__(self, spec: Spec, where: argparse.Namespace, signals: "_StopSignals"):
        self._spec, self._where, self._signals = spec, where, signals
        self._strategy: BaseStrategy | None = None
        self._copy: Copy | None = None
        self._log: event_log.EventLog | None = None
        self._engine: engine.Engine | None = None

    def train(self, started_at: str) -> dict[str, Any] | None:
        """Train, and write all events of the log but run_end, of which the fields are returned.

        None is returned if this process only served others, which wrote the log. The program
        started at `started_at`.
        """
        spec, where = self._spec, self._where
        if where.model_folder:
            plugins.add_user_folder("models", where.model_folder)
        plugins.path(engine.plugin_kind(spec.framework, "models"), spec.model)
        proof = containment.check(spec.runtime, where.image_id)
        containment.check_variables(spec.variables)
        _check_framework(spec)
        strategy_class = engine.strategy_of(spec)
        self._copy = _copy(spec, where, strategy_class)
        if where.device == "gpu":
            nccl_log.enable(Path(where.log).parent.resolve())
        with _importing():
            self._strategy = strategy_class(spec, where.device, Path(where.log).parent)
        before = event_log.last_run_end(where.log)  # of the run before it was resumed
        if self._strategy.serve(lambda: event_log.last_run_end(where.log) not in (None, before)):
            return None
        resumes = where.checkpoint and checkpoints.latest(where.checkpoint)
        if not resumes and _holds_run(self._log_path()):
            raise Error(
                f"{self._log_path()} already contains a run; move it, or give another path with "
                "--log"
            )
        self._log = event_log.EventLog(self._log_path())
        self._log.write("begin", t_utc=started_at, containment=proof)
        # Loaded here because it imports the framework, which the strategy sets up before.
        with _importing():
            module = plugins.load(spec.framework, "engine")
        self._log.write("stage", name="imports", t_utc=event_log.utc_now())
        if spec.page_cache != inputs.AS_FOUND:
            self._prepare_page_cache(self._strategy, self._log)
        reads = spec.mode == inputs.INPUT_ONLY
        make = engine.reading_only(module.Engine) if reads else module.Engine
        self._engine = make(spec, self._strategy, where.data)
        self._log.write("stage", name="data", t_utc=event_log.utc_now())
        containment.check_imported(spec.runtime, engine.packages(spec.framework))
        return loop.train(
            spec,
            self._engine,
            self._copy,
            self._log,
            self._checkpointing(),
            where.sample_every_s,
            where.packages,
        )

    def finish(self, end: dict[str, Any]) -> None:
        """Write run_end; exits with an error if the training failed."""
        self._end_log(**end)
        if end["status"] != "ok":
            sys.exit(f"{end['status']}: {end['message']}")
        self._profile()
        self._calibrate()
        self.leave()

    def leave(self) -> None:
        """Leave the process group of the run."""
        self._engine = None  # it refers to the process group
        if self._strategy:
            self._strategy.leave()

    def _prepare_page_cache(self, strategy: BaseStrategy, log: event_log.EventLog) -> None:
        """Read the dataset's files into the page cache, or drop them; local rank 0 does it."""
        state, facts, begin = self._spec.page_cache, {}, time.monotonic()
        if strategy.local_rank == 0 and self._where.data:
            facts = page_cache.prepare(self._where.data, state)
        strategy.gather([0.0])  # a barrier: no process reads before
        log.write("page_cache", asked=state, spent_s=time.monotonic() - begin, **facts)
        log.write("stage", name="other", t_utc=event_log.utc_now())

    def _profile(self) -> None:
        """Trace a few more steps, if the run has a profile."""
        engine_, copy = self._engine, self._copy
        if not (self._spec.profile and self._log and engine_ and copy) or copy.number:
            return
        with contextlib.suppress(_Signal):  # asked to stop: the run is done
            profiling.profile(self._spec, engine_, self._log, Path(self._where.log).parent)

    def _calibrate(self) -> None:
        """Measure the attainable rates of the device, unless a table has its peak."""
        engine_, copy = self._engine, self._copy
        if not (self._where.calibrations and self._log and engine_ and copy):
            return
        if engine_.strategy.rank or copy.number:
            return
        if machine := description.device_without_peak(self._spec, engine_):
            lasting_s, folder = self._where.calibration_s, self._where.calibrations
            machine |= {"calibration_s": lasting_s}  # short and long calibrations are kept apart
            with contextlib.suppress(_Signal):  # asked to stop: the run is done
                calibration.calibrate(engine_.kernels, folder, machine, self._log, lasting_s)

    def fail(self, error: BaseException) -> bool:
        """Report in the log and on stderr why the run ended early.

        Returns whether the error is an expected one, for which nobody needs a traceback.
        """
        if self._signals.ended_run:  # the framework may have raised another exception instead
            error = _Signal()
        status, message = _outcome(error, self._spec.framework)
        if self._where.device == "gpu":
            with contextlib.suppress(Exception):  # of a broken NVML: the run's error is what counts
                message = "; ".join(filter(None, (message, gpus.describe_old_driver())))
        # Processes share one log until they know their ranks; its first run_end is the cause.
        path = self._log_path()
        follows = message == event_log.STOPPED_BY_SIGNAL and event_log.last_run_end(path)
        if self._log is None and not follows and not _holds_run(path):
            self._log = event_log.EventLog(path)
        fields = {"before_first_step": True} if getattr(error, "before_first_step", False) else {}
        self._end_log(status=status, message=message, **fields)
        print(f"{status}: {message}", file=sys.stderr)
        return isinstance(error, (Error, KeyboardInterrupt, _Signal))

    def _end_log(self, **end: Any) -> None:
        if self._log:
            self._log.write("run_end", t_utc=event_log.utc_now(), **end)

    def _log_path(self) -> Path:
        """The log of this process; that of rank 0 until the process knows its rank or copy."""
        rank = self._strategy.rank if self._strategy else 0
        return event_log.rank_path(
            self._where.log, rank or (self._copy.number if self._copy else 0)
        )

    def _checkpointing(self) -> dict[str, Any] | None:
        if not self._where.checkpoint:
            return None
        return {
            "folder": self._where.checkpoint,
            "every_s": 60 * self._where.checkpoint_every_min,
            "stop_reason": self._signals.name,
        }


def _check_framework(spec: Spec) -> None:
    needed = engine.packages(spec.framework)
    missing = [name for name in needed if not importlib.util.find_spec(name)]
    if missing:
        raise Error(
            f"framework {spec.framework} needs {' and '.join(missing)}, which {sys.executable} "
            f"does not have: `dlbench environment envs/{engine.environment(spec.framework)}` "
            f"makes a Python that does, and `pip install {' '.join(missing)}` adds them to this one"
        )
    if reason := engine.unsupported(spec) or inputs.unsupported_text(spec):
        raise Error(reason)


def _copy(spec: Spec, where: argparse.Namespace, strategy_class: type[BaseStrategy]) -> Copy:
    """The run's copy that this process is, if the strategy supports what the run asks for."""
    modules = (copies, schedule, updates, inputs, profiling)
    reasons = (module.unsupported(spec, strategy_class) for module in modules)
    reason = next(filter(None, reasons), None)
    if not reason and where.checkpoint and spec.copies_per_node > 1:
        reason = copies.NO_CHECKPOINTS
    if reason:
        raise Error(reason)
    return copies.this_copy(spec, where.device, where.log)


def _holds_run(path: Path) -> bool:
    return path.is_file() and any(e["event"] == "run_start" for e in event_log.read(path))


def _outcome(error: BaseException, framework: str) -> tuple[str, str]:
    """Status and message of run_end for an exception that ended the run early."""
    out_of_memory = plugins.constants(framework, "engine")["OUT_OF_MEMORY"]
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or text.startswith(tuple(out_of_memory)):
        return "oom", f"out of memory: {_shortened(error)}"
    if isinstance(error, (KeyboardInterrupt, _Signal)):
        return "failed", event_log.STOPPED_BY_SIGNAL
    if isinstance(error, Error):
        return "failed", redaction.redact(terminal.plain(str(error)))
    return "failed", f"{type(error).__name__}: {_shortened(error)}"


def _shortened(error: BaseException) -> str:
    """The text of an exception in one line, without secrets; the middle of a long one is cut."""
    return terminal.message(redaction.redact(str(error)))


class _Signal(BaseException):
    """SIGTERM or SIGUSR1 arrived."""


class _StopSignals:
    """Handles SIGTERM and SIGUSR1, which ask the run to stop.

    With `end_later` the first signal is only noted, so that the run can write a checkpoint before
    it stops. Otherwise, and at a second signal, the run ends at once (`ended_run`).
    """

    def __init__(self, end_later: bool):
        self._name, self._end_later = "", end_later
        self.ended_run = False
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._receive)

    def ignore(self) -> None:
        """Ignore all further ones."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)

    def name(self) -> str:
        """Name of the signal that asked the run to stop; "" if none did."""
        return self._name

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self._end_later or self._name:
            self.ended_run = True
            raise _Signal
        self._name = signal.Signals(number).name
