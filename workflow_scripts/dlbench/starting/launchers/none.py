"""No launcher: the trainer is one process, started directly."""

from pathlib import Path

from dlbench.starting import launchers
from dlbench.trainer.strategy import Spec

PROTOCOL = "none"
TAKES_TASKS = False

unsupported = launchers.unsupported_processes


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    return list(trainer)
