"""Open MPI's mpirun, from the trainer's environment or from the site.

Across nodes it starts processes on the nodes of the scheduler's job. An mpirun that was built for
the scheduler finds these nodes by itself; that of dlbench's environments is built for Slurm only.
Any other gets their names as --host and starts processes there by the scheduler's remote shell or
by ssh.

The ranks must load the libraries of the environment's Open MPI, also if the system has another one:
with a mix mpirun aborts before MPI_INIT. So the environment's lib folder comes first in
LD_LIBRARY_PATH, for mpirun and, by -x, for the ranks.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from dlbench import Error, schedulers
from dlbench.common import plugins
from dlbench.starting import launchers
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROTOCOL = "mpi"
TAKES_TASKS = True
LOOPBACK_SUFFICES = True
OPTIONS_SET = ("plm-rsh-agent",)
SSH = "ssh"
RANKS = ("$OMPI_COMM_WORLD_RANK", "$OMPI_COMM_WORLD_LOCAL_RANK", "$OMPI_COMM_WORLD_SIZE")


def unsupported(run: Spec) -> str | None:
    return None


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    strategy = engine.strategy_of(run)
    each = strategy.processes_per_node(run)
    if "horovod" not in strategy.packages:  # only with it our environments have an Open MPI
        environment = None
    variables = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
    exported = []
    if environment:
        needed = library_variables(environment)
        variables += [f"{name}={value}" for name, value in needed.items()]
        exported = [argument for name in needed for argument in ("-x", name)]
    return [
        "env",
        *variables,
        str(environment / "bin" / "mpirun") if environment else "mpirun",
        "-np",
        str(run.nodes * each),
        *(_across_nodes(run.nodes, each, environment) if run.nodes > 1 else []),
        "--bind-to",
        "none",
        *exported,
        *(w for name, value in launchers.options(run).items() for w in ("--mca", name, value)),
        *launchers.with_ranks(run, trainer, *RANKS),
    ]


def library_variables(environment: Path) -> dict[str, str]:
    """The variables that an environment's Open MPI needs, and so do the ranks it starts."""
    return {"OPAL_PREFIX": str(environment), "LD_LIBRARY_PATH": str(environment / "lib")}


def components(environment: Path | None) -> set[str]:
    """Names of Open MPI's components that know a job's nodes, as in {"slurm"}.

    Empty if ompi_info does not list them, as from version 5 on.
    """
    info = environment / "bin" / "ompi_info" if environment else "ompi_info"
    lines = output_of([info, "--parsable"], environment).splitlines()
    fields = (line.split(":") for line in lines)
    return {field[2] for field in fields if field[:2] == ["mca", "ras"]}


def output_of(command: Sequence[str | Path], environment: Path | None) -> str:
    """The output of a program of an MPI; "" if it cannot be started.

    `environment`: the environment that has this Open MPI; None: another MPI.
    """
    variables = library_variables(environment) if environment else {}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | variables
        ).stdout
    except OSError:
        return ""


def remote_shells(scheduler: ModuleType) -> list[str]:
    """Commands that may start processes on the nodes of a scheduler's job, the best first."""
    return [shell for shell in (getattr(scheduler, "REMOTE_SHELL", None), SSH) if shell]


def _across_nodes(nodes, each, environment):
    placed = ["--map-by", f"ppr:{each}:node"]
    job = schedulers.job()
    scheduler = job and plugins.load("schedulers", job[0])
    known = job and components(environment)
    if not known or scheduler.OPEN_MPI in known:
        return placed
    hosts = scheduler.hosts(os.environ)
    name = schedulers.display_name(job[0])
    if len(hosts) != nodes:
        raise Error(
            f"the run needs {nodes} nodes, and its job of {name} has "
            f"{len(hosts)} ({', '.join(hosts) or 'it names none'}): does the profile ask for as "
            "many, each with as many slots?"
        )
    shells = remote_shells(scheduler)
    shell = next((shell for shell in shells if shutil.which(shell.split()[0])), None)
    if not shell:
        raise Error(
            f"mpirun cannot start processes on {', '.join(hosts[1:])}: it was not built for {name} "
            f"(ompi_info), and {' or '.join(shell.split()[0] for shell in shells)} is not on the "
            "path of this node; load one, or an Open MPI for it, by site.modules"
        )
    named = ",".join(f"{host}:{each}" for host in hosts)
    return ["--host", named, "--mca", "plm_rsh_agent", shell, *placed]
