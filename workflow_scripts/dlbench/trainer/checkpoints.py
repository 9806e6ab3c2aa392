"""Checkpoints: all that a run needs to resume as if it had never stopped.

- A folder holds `latest.json`, which names the newest complete checkpoint, and a
  folder for that one: `step-{n}/rank{r}.npz` with the variables and
  `rank{r}.jsonl` with the log so far. The log is saved here too because a workflow
  deletes the outputs of a job that did not finish.
- Rank 0 saves all variables; the other ranks save those that differ between ranks
  (states of random generators, moving statistics).
- `latest.json` is replaced once all ranks have written, so a kill at any moment
  leaves the previous checkpoint. Ranks share the file system.
- Arrays are saved without pickle.
- A run may name its framework's own writer, which may go on writing beside the next
  steps. Rank 0 logs each write once it has ended.
"""

import contextlib
import json
import shutil
import time
import zipfile
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlbench import Error
from dlbench.common.files import atomic_write, write_json
from dlbench.log.event_log import EventLog
from dlbench.trainer.engine import CheckpointState
from dlbench.trainer.strategy import BaseStrategy

STOP_FILE = "stop"
SYNC_EVERY_S = 0.5
STOPPED_EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: the trainer is to be started again


class Stopped(Exception):
    """The run was asked to stop and has written a checkpoint; the message has its step."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: after which step, when (seconds since run_start), of which run."""

    folder: Path
    step: int
    t_s: float
    run: dict[str, Any]

    def arrays(self, rank: int) -> dict[str, np.ndarray]:
        """The arrays that a rank wrote, by name. Raises Error: the file is damaged."""
        path = _arrays(self.folder, rank)
        try:
            with np.load(path, allow_pickle=False) as content:
                return {name: content[name] for name in content.files}
        except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
            raise Error(
                f"{path} cannot be read ({error}): delete {self.folder.parent} to begin anew"
            ) from error

    def log(self, rank: int) -> bytes:
        """The bytes of a rank's log up to this checkpoint. Raises Error: it is missing."""
        path = _log(self.folder, rank)
        try:
            return path.read_bytes()
        except OSError as error:
            raise Error(
                f"{path} cannot be read ({error.strerror}): delete {self.folder.parent} to begin "
                "anew"
            ) from error


class Checkpointer:
    """Writes checkpoints during a run, and stops the run on request.

    All ranks must do both after the same step. So from time to time they synchronize: an all-gather
    tells each which ranks were asked to stop, and rank 0 decides whether a checkpoint is due and
    after which step the ranks synchronize next.

    Args:
        folder: where the checkpoints lie; a file `stop` in it asks the run to stop.
        every_s: seconds between two checkpoints.
        strategy: that of this process, which has joined the others.
        log: the EventLog of this process.
        run: plain values that identify the run.
        state: the variables to save.
        stop_reason: returns why this process was asked to stop, "" if it was not.
    """

    def __init__(
        self,
        folder: str | Path,
        every_s: float,
        strategy: BaseStrategy,
        log: EventLog,
        run: dict[str, Any],
        state: CheckpointState,
        stop_reason: Callable[[], str],
    ):
        self._folder, self._every_s = Path(folder), every_s
        self._strategy, self._log, self._run = strategy, log, run
        self._replicated, self._per_rank = state.replicated, state.per_rank
        self._stop_reason, self._writer = stop_reason, state.writer
        self._open: tuple[int, float, Any, list[float]] | None = None  # a write; see _write
        self.sync_step = 1  # the step after which the ranks synchronize next
        self._written = time.monotonic()
        self._start = latest(folder, run)

    def resume(self, **values: Any) -> int:
        """Load the newest checkpoint and continue its log; `values` are fields of its resume event.

        The step after which the run resumes is returned; 0 if there is no checkpoint.
        """
        if self._start is None:
            return 0
        if self._writer:
            self._writer.load(self._start.folder)
        else:
            self._load(self._start)
        step, log = self._start.step, self._start.log(self._strategy.rank)
        self._log.resume(log, _checkpoint_time(log, self._start.t_s), step=step, **values)
        self.sync_step = step + 1
        return step

    def synchronize(self, step: int, step_time_s: float, window: int = 1) -> str:
        """Synchronize the ranks after a step, and write a checkpoint if one is due.

        The next synchronization follows a whole number of windows of `window` steps; `step_time_s`
        is the mean time of the last steps. Returns why the run must stop, "" if it goes on.
        """
        reason = self._stop_reason() or (
            "a file named stop" if (self._folder / STOP_FILE).exists() else ""
        )
        due = time.monotonic() - self._written >= self._every_s
        next_step = step + window * max(1, round(SYNC_EVERY_S / (window * max(step_time_s, 1e-6))))
        rows = self._strategy.gather([bool(reason), due, next_step])
        stops, due, self.sync_step = rows[:, 0].any(), rows[0, 1], int(rows[0, 2])
        if due or stops:
            self._write(step)
        if self._open and (stops or self._open[2] is None or self._open[2].done()):
            self._complete()
        return (reason or "another rank was asked to") if stops else ""

    def finish(self) -> None:
        """Remove the checkpoints of a finished run."""
        self._complete()
        if self._strategy.rank == 0:
            remove(self._folder)

    def _write(self, step):
        """Begin to write a checkpoint; `_complete` ends it."""
        started_s = self._log.now()
        self._complete()  # the one before
        strategy, future, arrays = self._strategy, None, None
        if not self._writer:
            variables = {**self._per_rank, **(self._replicated if strategy.rank == 0 else {})}
            arrays = {
                f"{name}:{number}": copy.numpy()
                for name, copies in variables.items()
                for number, copy in enumerate(copies)
            }
        # Before the log is copied, so that the copy ends with this event.
        self._log.write("checkpoint", step=step, t_s=round(started_s, 6))
        write(self._folder, strategy.rank, step, arrays, self._log.content())
        if self._writer:
            future = self._writer.save(_place(self._folder, step))
        strategy.gather([0.0])  # a barrier: all have written, or hold copies to be written
        times = [self._log.now()]  # when steps go on, and when all is written
        if future:
            future.add_done_callback(lambda _: times.append(self._log.now()))
        self._open = step, started_s, future, times
        self._written = time.monotonic()

    def _complete(self):
        """Wait for the write that goes on, if one does, and make it the latest."""
        if not self._open:
            return
        (step, started_s, future, times), self._open = self._open, None
        if future:
            future.result()
        if self._strategy.rank:
            return
        complete(self._folder, step, started_s, self._run)
        paths = _place(self._folder, step).rglob("*")
        self._log.write(
            "checkpoint_written",
            step=step,
            t_s=round(times[-1], 6),
            write_s=round(times[-1] - started_s, 6),
            waited_s=round(times[0] - started_s, 6),
            bytes=sum(p.stat().st_size for p in paths if p.is_file() and p.suffix != ".jsonl"),
        )

    def _load(self, start):
        rank, of_rank_0 = self._strategy.rank, start.arrays(0)
        of_this_rank = start.arrays(rank) if rank else of_rank_0
        for variables, arrays in ((self._replicated, of_rank_0), (self._per_rank, of_this_rank)):
            for name, copies in variables.items():
                for number, copy in enumerate(copies):
                    copy.assign(self._array(arrays, name, number, copy))

    def _array(self, arrays, name, number, copy):
        array = arrays.get(f"{name}:{number}")
        if array is None or array.shape != tuple(copy.shape):
            raise Error(
                f"{self._folder}: the checkpoint has no variable {name} of shape "
                f"{tuple(copy.shape)}: the model has changed; delete the folder to begin anew"
            )
        return array


def write(
    folder: str | Path, rank: int, step: int, arrays: dict[str, Any] | None, log: bytes
) -> None:
    """Write one rank's part of a checkpoint; None: its arrays are written otherwise."""
    place = _place(folder, step)
    if arrays is not None:
        with atomic_write(_arrays(place, rank)) as part, open(part, "wb") as file:
            np.savez(file, **arrays)
    with atomic_write(_log(place, rank)) as part:
        part.write_bytes(log)


def complete(folder: str | Path, step: int, t_s: float, run: dict[str, Any]) -> None:
    """Make a checkpoint of a run (see `latest`) the latest, once all ranks have written."""
    folder = Path(folder)
    write_json(folder / "latest.json", {"step": step, "t_s": t_s, "run": run})
    for other in folder.glob("step-*"):
        number = other.name.removeprefix("step-")
        if number.isdigit() and int(number) < step:  # another rank may write the next one
            shutil.rmtree(other, ignore_errors=True)


def latest(folder: str | Path, run: dict[str, Any] | None = None) -> Checkpoint | None:
    """The newest complete checkpoint; None if there is none.

    Raises Error: it is damaged, or of another run than `run`, as given to `complete`.
    """
    path = Path(folder) / "latest.json"
    try:
        content = json.loads(path.read_bytes())
        checkpoint = Checkpoint(
            _place(folder, content["step"]), content["step"], content["t_s"], dict(content["run"])
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Error(f"{path} is damaged ({error!r}): delete {folder} to begin anew") from error
    if run is not None and checkpoint.run != run:
        different = differences_of_runs(checkpoint.run, run)
        changes = "; ".join(f"{key}: {old!r} there, {new!r} here" for key, old, new in different)
        raise Error(
            f"{path} is a checkpoint of another run ({changes}): name another folder, or delete it "
            "to begin anew"
        )
    return checkpoint


def remove(folder: str | Path) -> None:
    """Remove a folder of checkpoints, `latest.json` first."""
    with contextlib.suppress(FileNotFoundError):
        (Path(folder) / "latest.json").unlink()
    shutil.rmtree(folder, ignore_errors=True)


def differences_of_runs(
    first: dict[str, Any], second: dict[str, Any]
) -> list[tuple[str, Any, Any]]:
    """`differences` of the values that identify two runs, field by field."""
    first, second = ({**values, **values.get("spec", {})} for values in (first, second))
    return differences(first, second, leave_out=("spec",))


def differences(
    first: dict[str, Any], second: dict[str, Any], leave_out: Container[str] = ()
) -> list[tuple[str, Any, Any]]:
    """(key, value in the first, value in the second) of what differs between two mappings."""
    return [
        (key, first.get(key), second.get(key))
        for key in sorted(first.keys() | second.keys())
        if first.get(key) != second.get(key) and key not in leave_out
    ]


def _checkpoint_time(log, t_s):
    """When a rank wrote its part, on the clock of its log: ranks start at different times.

    If its log does not say when, it is `t_s`, when rank 0 wrote.
    """
    events = [line for line in log.splitlines() if b'"event": "checkpoint"' in line]
    return json.loads(events[-1])["t_s"] if events else t_s


def _place(folder, step):
    return Path(folder) / f"step-{step}"


def _arrays(place, rank):
    return place / f"rank{rank}.npz"


def _log(place, rank):
    return place / f"rank{rank}.jsonl"
