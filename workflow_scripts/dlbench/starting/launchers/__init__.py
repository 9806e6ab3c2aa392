"""Launchers, one file each: what starts the processes of a run.

A launcher file defines:
    PROTOCOL: how a process learns its rank and the address of the others:
        none      it is the only one
        tf_config by TF_CONFIG
        slurm     by Slurm's variables of a task
        mpi       by the variables of torchrun, which its command makes from those of the MPI
                  (`with_ranks`); the MPI library connects them, too
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
import shlex
from pathlib import Path

from dlbench import schedulers
from dlbench.common import assignments, networks, plugins
from dlbench.trainer import cluster, engine
from dlbench.trainer.strategy import Spec


def options(run: Spec) -> dict[str, str]:
    """The `launcher_options` of a run."""
    return assignments.parse(run.launcher_options)


def meeting_node(run: Spec) -> str:
    """The address at which the processes of a run find rank 0; "" for several nodes of no job.

    Nodes may have other addresses than their names (start_command.address_variables).
    """
    if run.nodes == 1:
        return networks.LOOPBACK
    job = schedulers.job()
    first = next(iter(plugins.load("schedulers", job[0]).hosts(os.environ) if job else []), "")
    addresses: dict[str, str] = json.loads(os.environ.get(cluster.NODE_ADDRESSES, "{}"))
    return addresses.get(first, first)


def meeting_port() -> int:
    """A port for the rendezvous, which runs that are started beside this one do not use."""
    return cluster.PORTS[os.getpid() * cluster.PORTS_PER_JOB % len(cluster.PORTS)]


def module(environment: Path | None, name: str) -> list[str]:
    """The beginning of the command of a launcher that is a module of Python.

    The script in an environment's bin/ has the path of the Python with which it was installed,
    which is wrong in a copy of the environment.
    """
    return [str(environment / "bin" / "python3") if environment else "python3", "-m", name]


def one_word(trainer: list[str]) -> list[str]:
    """The trainer's command as one argument, for launchers that would take its flags for theirs."""
    return ["sh", "-c", f"exec {shlex.join(trainer)}"]


def with_ranks(
    run: Spec, trainer: list[str], rank: str, local_rank: str, size: str, first: str | None = None
) -> list[str]:
    """The command that starts the trainer with the variables of torchrun.

    Args:
        rank, local_rank, size: as a shell of the process finds them, as in `$PMI_RANK`.
        first: likewise the address of the first node; None: `meeting_node`.
    """
    variables = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": str(engine.strategy_of(run).processes_per_node(run)),
        "MASTER_ADDR": f"${{MASTER_ADDR:-{first or meeting_node(run)}}}",
        "MASTER_PORT": f"${{MASTER_PORT:-{meeting_port()}}}",
    }
    words = " ".join(f'{name}="{value}"' for name, value in variables.items())
    return ["sh", "-c", f'exec env {words} "$@"', "sh", *trainer]


def unsupported_across_nodes(run: Spec) -> str | None:
    """Why a launcher that starts processes on this machine only cannot start a run; or None."""
    if run.nodes > 1:
        return (
            f"launcher {run.launcher} starts processes on this machine only, not on "
            f"{run.nodes} nodes"
        )
    return None
