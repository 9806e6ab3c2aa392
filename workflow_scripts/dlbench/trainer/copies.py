"""Copies of a run that are trained at once on one node, each on devices of its own.

- start_processes.py starts them and gives each its number, as DLBENCH_COPY, and its
  devices.
- Each writes a log of its own, as a rank does, and trains a model of its own: equal
  seed, equal data.
- They meet before their first step, so that all are timed while all others train.
  They do so in their logs: the event `ready` says who has come. So there is nothing
  to clean up, and it works across containers.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error
from dlbench.log import event_log
from dlbench.trainer.strategy import BaseStrategy, Spec

POLL_S = 0.005
PATIENCE_S = 600.0  # for the last copy: on a full node containers and TensorFlow start slowly
NO_CHECKPOINTS = (
    "copies_per_node and checkpoint_every_min exclude each other: copies that went on from "
    "checkpoints would no longer be timed together"
)


def unsupported(run: Spec, strategy: type[BaseStrategy]) -> str | None:
    """Why a run cannot be trained as several copies at once, or None.

    Args:
        strategy: its class.
    """
    if run.copies_per_node == 1:
        return None
    if strategy.launcher != "none" or run.launcher != "none":
        return (
            "copies_per_node needs a strategy of one process without a launcher, such as single or "
            f"mirrored; found strategy {run.strategy} with launcher {run.launcher}"
        )
    if run.nodes > 1:
        return f"copies_per_node packs one node; found {run.nodes} nodes"
    return None


@dataclass(frozen=True)
class Copy:
    """Which copy of how many this process is; `log` is the path of the first one's log."""

    number: int
    count: int
    log: Path

    def wait_for_copies(self, log: event_log.EventLog) -> None:
        """Wait until all copies have come here.

        Args:
            log: EventLog of this copy; it gets `ready` now and `met` afterwards.

        Raises:
            Error: a copy did not come in time.
        """
        if self.count == 1:
            return
        came_s = log.now()
        log.write("ready", t_s=round(came_s, 6))
        missing = [number for number in range(self.count) if number != self.number]
        while missing := [number for number in missing if not self._is_ready(number)]:
            if log.now() - came_s > PATIENCE_S:
                raise Error(
                    f"copy {self.number} waited {PATIENCE_S:g} s before its first step for copy "
                    f"{' and '.join(map(str, missing))}, in vain"
                )
            time.sleep(POLL_S)
        now = log.now()
        log.write("met", t_s=round(now, 6), waited_s=round(now - came_s, 6))

    def check_gpus(self, seen: int, wanted: int) -> None:
        """Check that this copy has GPUs of its own.

        Args:
            seen: how many the framework sees.
            wanted: how many the copy uses.

        Raises:
            Error: it sees other ones too.
        """
        if self.count > 1 and seen != wanted:
            raise Error(
                f"copy {self.number} must see {wanted} GPU(s) of its own and sees {seen} "
                f"(CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}): start "
                f"the trainer by start_processes.py --copies {self.count} --gpus-each {wanted}, "
                "and see that the container runtime hands the variable on"
            )

    def _is_ready(self, number):
        try:
            events = event_log.read(event_log.rank_path(self.log, number))
            return any(event["event"] == "ready" for event in events)
        except FileNotFoundError:
            return False


def this_copy(
    spec: Spec, device: str, log: str | Path, environ: Mapping[str, str] = os.environ
) -> Copy:
    """Which Copy this process is.

    Args:
        spec: the run's fields as attributes.
        device: "cpu" or "gpu".
        log: path of the first copy's log.

    Raises:
        Error: it was not started as a copy of this run, or without cores of its own.
    """
    text, count = environ.get("DLBENCH_COPY"), spec.copies_per_node
    if count == 1 and text is None:
        return Copy(0, 1, Path(log))
    if text is None or not text.isdecimal() or int(text) >= count:
        raise Error(
            f"copies_per_node is {count}, but DLBENCH_COPY is {text or 'not set'}: start the "
            f"trainer by start_processes.py --copies {count}"
        )
    cores = len(os.sched_getaffinity(0))
    wanted = cores_of_one(spec)
    if device == "cpu" and cores != wanted:
        raise Error(
            f"copy {text} must have {wanted} core(s) of its own and has {cores}: start the "
            f"trainer by start_processes.py --copies {count} --cores-each {wanted}"
        )
    return Copy(int(text), count, Path(log))


def cores_of_one(run: Spec) -> int:
    """Cores that make up the CPU devices of one copy."""
    return run.devices_per_node * run.threads_per_device
