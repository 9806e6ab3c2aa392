"""Horovod's launcher, over Gloo: needs no MPI."""

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
    processes = engine.strategy_of(run).processes_per_node(run)
    return [
        *(launchers.module(environment, MODULE) if environment else ["horovodrun"]),
        "--gloo",
        "-np",
        str(processes),
        "-H",
        f"localhost:{processes}",
        *(w for name, value in launchers.options(run).items() for w in (f"--{name}", value)),
        *launchers.one_word(trainer),
    ]
