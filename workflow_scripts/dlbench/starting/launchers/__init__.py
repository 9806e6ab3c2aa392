"""Launchers, one file each: what starts the processes of a run.

A launcher file defines:
    PROTOCOL: how a process learns its rank and the address of the others:
        none      it is the only one
        tf_config by TF_CONFIG
        slurm     by Slurm's variables of a task
        mpi       by Open MPI's variables; the MPI library connects them
        horovod   by the variables of Horovod's own launcher
        torchrun  by RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
      Strategies say which they understand (`protocols`); other combinations are refused.
    TAKES_TASKS: whether its processes are tasks of the scheduler's job; if not, it starts all
        processes of a node from one task.
    LOOPBACK_SUFFICES (optional): whether processes on one node need no network but the loopback
        interface. If it takes tasks, this holds outside of jobs only.
    LISTENS_BY_NAME (optional): whether its processes listen at the address of the machine's own
        name, and abort if it has none.
    ELSEWHERE (optional): whether something other than this workflow starts its runs.
    OPTIONS_SET (optional): the options that it sets itself, if it takes `launcher_options`.
    unsupported(run): why it cannot start a run, or None.
    command(run, trainer, environment): the command line, a list of strings, that starts the
        command `trainer` once per process. Programs are taken from the bin/ of the folder
        `environment`; from PATH if it is None.
Nothing here starts anything.
"""

import json
import os

from dlbench import schedulers
from dlbench.common import assignments, plugins
from dlbench.trainer import cluster
from dlbench.trainer.strategy import Spec


def options(run: Spec) -> dict[str, str]:
    """The `launcher_options` of a run."""
    return assignments.parse(run.launcher_options)


def first_node() -> str | None:
    """The address of the first node of the scheduler's job; None outside of jobs.

    Nodes may have other addresses than their names (start_command.address_variables).
    """
    job = schedulers.job()
    names = plugins.load("schedulers", job[0]).hosts(os.environ) if job else []
    known = json.loads(os.environ.get(cluster.NODE_ADDRESSES, "{}"))
    return known.get(names[0], names[0]) if names else None


def unsupported_across_nodes(run: Spec) -> str | None:
    """Why a launcher that starts processes on this machine only cannot start a run; or None."""
    if run.nodes > 1:
        return (
            f"launcher {run.launcher} starts processes on this machine only, not on "
            f"{run.nodes} nodes"
        )
    return None
