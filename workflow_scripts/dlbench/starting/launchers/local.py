"""Plain processes on this machine that find one another by TF_CONFIG.

start_processes.py starts them, and ends all when one fails.
"""

import os
import sys
from pathlib import Path

from dlbench.starting import launchers
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROGRAM = Path(__file__).parents[3] / "start_processes.py"

PROTOCOL = "tf_config"
TAKES_TASKS = False
LOOPBACK_SUFFICES = True

unsupported = launchers.unsupported_across_nodes


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    strategy = engine.strategy_of(run)
    jobs = ",".join(f"{job}={count}" for job, count in strategy.jobs(run).items())
    return [sys.executable, os.path.relpath(PROGRAM), "--jobs", jobs, "--", *trainer]
