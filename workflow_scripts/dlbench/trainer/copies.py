"""Copies of a run that are trained at once on one node, each on devices of its own.

- start_processes.py starts them and gives each its number, as DLBENCH_COPY, and its
  devices.
- Each copy writes its own log, as a rank does, and trains its own model, with equal
  seed and equal data.
- Before its first step each copy waits for the others, so that all are timed while all
  train. They use their logs as a barrier: the event `ready` says that a copy has reached
  it. So there is nothing to clean up, and it works across containers.
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
PATIENCE_S = 600.0  # until the last copy is ready: containers start slowly on a full node
NO_CHECKPOINTS = (
    "copies_per_node and checkpoint_every_min exclude each other: copies that went on from "
    "checkpoints would no longer be timed together"
)


def unsupported(run: Spec, strategy: type[BaseStrategy]) -> str | None:
    """Why a run of a class of strategy cannot be trained as several copies; None if it can."""
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
    """The number of this copy among `count` copies; `log` is the path of the first copy's log."""

    number: int
    count: int
    log: Path

    def wait_for_copies(self, log: event_log.EventLog) -> None:
        """Wait until all copies have called this: a barrier. The log gets `ready`, then `met`.

        Raises Error: a copy did not reach it in time.
        """
        if self.count == 1:
            return
        ready_s = log.now()
        log.write("ready", t_s=round(ready_s, 6))
        missing = [number for number in range(self.count) if number != self.number]
        while missing := [number for number in missing if not self._is_ready(number)]:
            if log.now() - ready_s > PATIENCE_S:
                raise Error(
                    f"copy {self.number} waited {PATIENCE_S:g} s before its first step for copy "
                    f"{' and '.join(map(str, missing))}, in vain"
                )
            time.sleep(POLL_S)
        now = log.now()
        log.write("met", t_s=round(now, 6), waited_s=round(now - ready_s, 6))

    def check_gpus(self, visible: int, used: int) -> None:
        """Check that this copy, which uses so many GPUs, sees no others."""
        if self.count > 1 and visible != used:
            raise Error(
                f"copy {self.number} must see {used} GPU(s) of its own and sees {visible} "
                f"(CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}): start "
                f"the trainer by start_processes.py --copies {self.count} --gpus-each {used}, "
                "and check that the container runtime passes the variable on"
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
    """The Copy of this process; `log` is the first copy's.

    Raises Error: it was not started as a copy of this run, or without cores of its own.
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
    needed = cores_per_copy(spec)
    if device == "cpu" and cores != needed:
        raise Error(
            f"copy {text} must have {needed} core(s) of its own and has {cores}: start the "
            f"trainer by start_processes.py --copies {count} --cores-each {needed}"
        )
    return Copy(int(text), count, Path(log))


def cores_per_copy(run: Spec) -> int:
    """Number of cores that make up the CPU devices of one copy."""
    return run.devices_per_node * run.threads_per_device
