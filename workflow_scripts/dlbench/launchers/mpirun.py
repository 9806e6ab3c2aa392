"""Open MPI's mpirun, that of the trainer's environment or of the site.

Across nodes it starts processes on those of the scheduler's job. An mpirun that was built for the
scheduler finds them by itself; that of our environments is built for Slurm alone. Any other is told
their names, and starts on them by the scheduler's own remote shell or by ssh.

The libraries of the environment's own must be those the ranks load, also where the
system has another Open MPI: with a mix mpirun aborts before MPI_INIT. So the environment's
lib folder comes first, for mpirun and, by -x, for the ranks.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from dlbench import Error, schedulers
from dlbench.common import plugins
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

TAKES_TASKS = True
LOOPBACK_SUFFICES = True
RENDEZVOUS = ("horovodrun", "torchrun")
SSH = "ssh"


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
        own = own_variables(environment)
        variables += [f"{name}={value}" for name, value in own.items()]
        exported = [word for name in own for word in ("-x", name)]
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
        *trainer,
    ]


def own_variables(environment: Path) -> dict[str, str]:
    """The variables that an environment's Open MPI needs, and so do the ranks it starts."""
    return {"OPAL_PREFIX": str(environment), "LD_LIBRARY_PATH": str(environment / "lib")}


def components(environment: Path | None) -> set[str]:
    """Names of the components by which an Open MPI learns of a job's nodes, as in {"slurm"}.

    Empty if it does not say, as from version 5 on.
    """
    info = environment / "bin" / "ompi_info" if environment else "ompi_info"
    words = (line.split(":") for line in output_of([info, "--parsable"], environment).splitlines())
    return {word[2] for word in words if word[:2] == ["mca", "ras"]}


def output_of(command: Sequence[str | Path], environment: Path | None) -> str:
    """What a program of an MPI prints; "" if it cannot be started.

    Args:
        environment: the environment whose Open MPI it is; None: another MPI.
    """
    variables = own_variables(environment) if environment else {}
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
