"""The command that starts the copies of a run on one node."""

import os
from pathlib import Path

from dlbench.study.runs import Run
from dlbench.trainer import copies

PROGRAM = Path(__file__).parents[2] / "start_processes.py"


def command(run: Run, trainer: list[str], python: str, device: str) -> list[str]:
    """The command line that starts the command `trainer` once per copy.

    Args:
        python: runs start_processes.py.
        device: "cpu" or "gpu", what each copy gets its own of.
    """
    if device == "gpu":
        each = ["--gpus-each", str(run.devices_per_node)]
    else:
        each = ["--cores-each", str(copies.cores_of_one(run))]
    count = str(run.copies_per_node)
    return [python, os.path.relpath(PROGRAM), "--copies", count, *each, "--", *trainer]
