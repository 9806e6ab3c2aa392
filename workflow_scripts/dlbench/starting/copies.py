"""The command that starts the copies of a run on one node."""

import os
from pathlib import Path

from dlbench.trainer import copies

PROGRAM = Path(__file__).parents[2] / "start_processes.py"


def command(run, trainer, python, device):
    """The command line, a list of strings, that starts `trainer` once per copy.

    Args:
        trainer: list of strings.
        python: runs start_processes.py.
        device: "cpu" or "gpu", what each copy gets its own of.
    """
    if device == "gpu":
        each = ["--gpus-each", str(run.devices_per_node)]
    else:
        each = ["--cores-each", str(copies.cores_of_one(run))]
    started = [python, os.path.relpath(PROGRAM), "--copies", str(run.copies_per_node), *each]
    return [*started, "--", *trainer]
