"""No launcher: the trainer is one process, started directly."""

from pathlib import Path

from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROTOCOL = "none"
TAKES_TASKS = False


def unsupported(run: Spec) -> str | None:
    strategy = engine.strategy_of(run)
    if strategy.launcher != "none":
        return f"strategy {run.strategy} needs a launcher such as {strategy.launcher}, found none"
    return None


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    return list(trainer)
