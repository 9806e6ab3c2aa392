"""Horovod's launcher, over Gloo: needs no MPI.

The one of an environment is started as a module by its Python. The script bin/horovodrun has the
path of the Python with which it was installed, which is wrong in a copy of the environment.
"""

import shlex
from pathlib import Path

from dlbench.starting import launchers
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROTOCOL = "horovod"
TAKES_TASKS = False
LOOPBACK_SUFFICES = True
LISTENS_BY_NAME = True
OPTIONS_SET = ("gloo", "mpi", "np", "num-proc", "hosts", "hostfile")
MODULE = "horovod.runner.launch"

unsupported = launchers.unsupported_across_nodes


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    strategy = engine.strategy_of(run)
    processes = strategy.processes_per_node(run)
    python = environment and str(environment / "bin" / "python3")
    return [
        *([python, "-m", MODULE] if python else ["horovodrun"]),
        "--gloo",
        "-np",
        str(processes),
        "-H",
        f"localhost:{processes}",
        *(w for name, value in launchers.options(run).items() for w in (f"--{name}", value)),
        # As one argument: horovodrun would take the trainer's --log for one of its own flags.
        "sh",
        "-c",
        f"exec {shlex.join(trainer)}",
    ]
