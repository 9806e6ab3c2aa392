"""Plain processes on this machine that find one another by TF_CONFIG.

start_processes.py starts them and ends all when one fails.
"""

import os
from pathlib import Path

from dlbench import plugins

PROGRAM = Path(__file__).parents[2] / "start_processes.py"


def unsupported(run):
    if run.nodes > 1:
        return f"launcher local starts processes on this machine only, not on {run.nodes} nodes"
    return None


def command(run, trainer, python):
    strategy = plugins.load("strategies", run.strategy).Strategy
    jobs = ",".join(f"{job}={count}" for job, count in strategy.jobs(run).items())
    return [python, os.path.relpath(PROGRAM), "--jobs", jobs, "--", *trainer]
