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
from dlbench.machine import binding, redaction
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
    sequences,
    updates,
)
from dlbench.trainer.copies import Copy
from dlbench.trainer.reading import input_engine, inputs, page_cache
from dlbench.trainer.strategy import BaseStrategy, Spec


def main(description: str | None) -> None:
    """Train the run of the command line; the exit code says how it ended.

    Args:
        description: of the program.
    """
    begun = event_log.utc_now()  # what came before is the start of the container, or of Python
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
        end = process.train(begun)
    except checkpoints.Stopped as reason:
        print(reason, file=sys.stderr)
        stopped = True  # the exception holds what has to go before the process leaves the others
    except BaseException as error:
        expected = process.fail(error)
        if expected:
            sys.exit(1)
        raise
    if stopped:
        # No end: started again with the same words, the run goes on.
        signals.ignore()  # a launcher may send one once another process has ended
        process.leave()
        sys.exit(checkpoints.STOPPED_EXIT_CODE)
    if end is not None:
        process.finish(end)


@contextlib.contextmanager
def _importing():
    """While a framework is imported: half a million objects are made, which stay.

    Looking for garbage among them would take a fifth of the time of the imports, and a second at
    the end.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Process:
    """One process of a run: first alone, then joined with the others, then with a log."""

    def __init__(self, spec: Spec, where: argparse.Namespace, signals: "_StopSignals"):
        self._spec, self._where, self._signals = spec, where, signals
        self._strategy: BaseStrategy | None = None
        self._copy: Copy | None = None
        self._log: event_log.EventLog | None = None
        self._engine: engine.Engine | None = None

    def train(self, begun: str) -> dict[str, Any] | None:
        """Train, and log it but for the end.

        Returns:
            The fields of run_end; None if this process served others, which wrote the log.
        """
        spec, where = self._spec, self._where
        if where.model_folder:
            plugins.use_folder("models", where.model_folder)
        plugins.path(engine.kind(spec.framework, "models"), spec.model)
        proof = containment.check(spec.runtime, where.image_id)
        _check_framework(spec)
        strategy_class = engine.strategy_of(spec)
        self._copy = _copy(spec, where, strategy_class)
        with _importing():
            self._strategy = strategy_class(spec, where.device, Path(where.log).parent)
        before = event_log.last_run_end(where.log)  # of an earlier part of the run
        if self._strategy.serve(lambda: event_log.last_run_end(where.log) not in (None, before)):
            return None
        resumes = where.checkpoint and checkpoints.latest(where.checkpoint)
        if not resumes and _holds_run(self._own_log()):
            raise Error(
                f"{self._own_log()} holds a run already; move it away or name another --log"
            )
        self._log = event_log.EventLog(self._own_log())
        self._log.write("begin", t_utc=begun, containment=proof)
        # Loaded late: it imports the framework, which must see the strategy's set-up first.
        with _importing():
            module = plugins.load(spec.framework, "engine")
        self._log.write("stage", name="imports", t_utc=event_log.utc_now())
        if spec.page_cache != inputs.AS_FOUND:
            self._prepare_page_cache(self._strategy, self._log)
        self._engine = module.Engine(spec, self._strategy, where.data)
        if spec.mode == inputs.ALONE:
            self._engine = input_engine.InputEngine(self._engine)
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
        """Write run_end; a run that failed by its own doing ends the program."""
        self._end_log(**end)
        if end["status"] != "ok":
            sys.exit(f"{end['status']}: {end['message']}")
        self._profile()
        self._calibrate()
        self.leave()

    def leave(self) -> None:
        """Part from the other processes of the run."""
        self._engine = None  # it holds what belongs to all of them
        if self._strategy:
            self._strategy.leave()

    def _prepare_page_cache(self, strategy: BaseStrategy, log: event_log.EventLog) -> None:
        """Have the dataset's files in memory, or out of it; the others of a node wait for one."""
        asked, facts, begin = self._spec.page_cache, {}, time.monotonic()
        if strategy.local_rank == 0 and self._where.data:
            facts = page_cache.prepare(self._where.data, asked)
        strategy.gather([0.0])  # nobody reads before
        log.write("page_cache", asked=asked, spent_s=time.monotonic() - begin, **facts)
        log.write("stage", name="other", t_utc=event_log.utc_now())

    def _profile(self) -> None:
        """Trace a few further steps, if the run has a profile."""
        engine_, copy = self._engine, self._copy
        if not (self._spec.profile and self._log and engine_ and copy) or copy.number:
            return
        with contextlib.suppress(_Signal):  # asked to stop: the run is done
            profiling.profile(self._spec, engine_, self._log, Path(self._where.log).parent)

    def _calibrate(self) -> None:
        """Measure what the device attains, once, if nobody states its peak."""
        engine_, copy = self._engine, self._copy
        if not (self._where.calibrations and self._log and engine_ and copy):
            return
        if engine_.strategy.rank or copy.number:
            return
        if machine := description.device_without_peak(self._spec, engine_):
            lasting_s, folder = self._where.calibration_s, self._where.calibrations
            machine |= {"calibration_s": lasting_s}  # no other run takes a short one for a long one
            with contextlib.suppress(_Signal):  # asked to stop: the run is done
                calibration.calibrate(engine_.kernels, folder, machine, self._log, lasting_s)

    def fail(self, error: BaseException) -> bool:
        """Say in the log and on stderr what ended the run early.

        Returns:
            Whether the message says all; otherwise the traceback is of use, too.
        """
        if self._signals.ended_run:  # of which the framework may have made another exception
            error = _Signal()
        status, message = _outcome(error, self._spec.framework)
        # Before they know their ranks all have one log, in which the first end is the cause.
        follows = message == event_log.STOPPED_BY_SIGNAL and event_log.last_run_end(self._own_log())
        if self._log is None and not follows and not _holds_run(self._own_log()):
            self._log = event_log.EventLog(self._own_log())
        fields = {"before_first_step": True} if getattr(error, "before_first_step", False) else {}
        self._end_log(status=status, message=message, **fields)
        print(f"{status}: {message}", file=sys.stderr)
        return isinstance(error, (Error, KeyboardInterrupt, _Signal))

    def _end_log(self, **end: Any) -> None:
        if self._log:
            self._log.write("run_end", t_utc=event_log.utc_now(), **end)

    def _own_log(self) -> Path:
        """The log of this process: one that knows neither rank nor copy has the first one's."""
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
    """Check that there is all that a run needs of its framework.

    Raises:
        Error: packages are missing, or it lacks what the run asks for.
    """
    needed = engine.packages(spec.framework)
    missing = [name for name in needed if not importlib.util.find_spec(name)]
    if missing:
        raise Error(
            f"framework {spec.framework} needs {' and '.join(missing)}, which {sys.executable} "
            f"does not have: `python workflow_scripts/make_environment.py "
            f"envs/{engine.environment(spec.framework)}` makes a Python that does, and "
            f"`pip install {' '.join(missing)}` adds them to this one"
        )
    if reason := engine.unsupported(spec) or sequences.unsupported(spec):
        raise Error(reason)


def _copy(spec: Spec, where: argparse.Namespace, strategy_class: type[BaseStrategy]) -> Copy:
    """Which of the run's copies this process is.

    Raises:
        Error: the run cannot have copies, windows of steps, updates, input or a profile as it says,
            or was not started as a copy.
    """
    parts = (copies, schedule, updates, inputs, profiling)
    reason = next(filter(None, (part.unsupported(spec, strategy_class) for part in parts)), None)
    if not reason and where.checkpoint and spec.copies_per_node > 1:
        reason = copies.NO_CHECKPOINTS
    if reason:
        raise Error(reason)
    return copies.this_copy(spec, where.device, where.log)


def _holds_run(path: Path) -> bool:
    return path.is_file() and any(e["event"] == "run_start" for e in event_log.read(path))


def _outcome(error: BaseException, framework: str) -> tuple[str, str]:
    """Status and message of run_end for what ended the run early."""
    out_of_memory = plugins.constants(framework, "engine")["OUT_OF_MEMORY"]
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or said.startswith(tuple(out_of_memory)):
        return "oom", f"out of memory: {_shortened(error)}"
    if isinstance(error, (KeyboardInterrupt, _Signal)):
        return "failed", event_log.STOPPED_BY_SIGNAL
    if isinstance(error, Error):
        return "failed", redaction.redact(terminal.plain(str(error)))
    return "failed", f"{type(error).__name__}: {_shortened(error)}"


def _shortened(error: BaseException) -> str:
    """What an exception says, without secrets, in one line: its beginning and its end."""
    return terminal.message(redaction.redact(str(error)))


class _Signal(BaseException):
    """SIGTERM or SIGUSR1 arrived."""


class _StopSignals:
    """SIGTERM and SIGUSR1, which ask the run to stop.

    Args:
        end_later: the first one waits for the run to ask after it, so that a checkpoint can be
            written; otherwise, and at a second one, the run ends at once.

    Attributes:
        ended_run: a signal ended the run at once.
    """

    def __init__(self, end_later: bool):
        self._name, self._end_later = "", end_later
        self.ended_run = False
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._receive)

    def ignore(self) -> None:
        """Let no further one end this process."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)

    def name(self) -> str:
        """The signal that asked the run to stop; "" as long as none did."""
        return self._name

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self._end_later or self._name:
            self.ended_run = True
            raise _Signal
        self._name = signal.Signals(number).name
