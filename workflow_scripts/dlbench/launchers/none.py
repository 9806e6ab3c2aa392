"""No launcher: the trainer is one process, started as it is."""

from pathlib import Path

from dlbench.common import plugins
from dlbench.trainer.strategy import Spec

TAKES_TASKS = False


def unsupported(run: Spec) -> str | None:
    strategy = plugins.load("strategies", run.strategy).Strategy
    if strategy.launcher != "none":
        return f"strategy {run.strategy} needs a launcher such as {strategy.launcher}, found none"
    return None


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    return list(trainer)
