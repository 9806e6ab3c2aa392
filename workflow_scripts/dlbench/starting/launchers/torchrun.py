"""PyTorch's launcher, for processes on this machine.

A program of others may run on several nodes of a Slurm job: srun starts one torchrun on each, and
they meet at a port of the first. dlbench's own trainer has srun start its processes itself.

The one of an environment is started as a module by its Python: the script bin/torchrun has the path
of the Python with which it was installed.
"""

import shlex
from pathlib import Path

from dlbench import Error, schedulers
from dlbench.starting import launchers
from dlbench.trainer import cluster, engine
from dlbench.trainer.strategy import Spec

PROTOCOL = "torchrun"
TAKES_TASKS = False
LOOPBACK_SUFFICES = True
MODULE = "torch.distributed.run"
FRAMEWORK = "pytorch"
OPTIONS_SET = (
    "standalone", "local-addr", "nproc-per-node", "no-python", "nnodes", "node-rank", "module",
    "master-addr", "master-port", "rdzv-endpoint", "rdzv-backend", "rdzv-id",
)  # fmt: skip
# Variables instead of flags: a torchrun that is too old for a flag ignores its variable.
VARIABLES = {
    # It forwards these signals, so that a run can write a checkpoint, and waits until it has.
    "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
    "PET_SHUTDOWN_TIMEOUT": "600",
}


def unsupported(run: Spec) -> str | None:
    if getattr(run, "is_external", False):
        return None
    if run.framework != FRAMEWORK:
        return f"launcher torchrun is {FRAMEWORK}'s; this run is of {run.framework}"
    return launchers.unsupported_across_nodes(run)


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    strategy = engine.strategy_of(run)
    python = environment and str(environment / "bin" / "python3")
    return [
        *(_on_each_node(run) if run.nodes > 1 else []),
        "env",
        *(f"{name}={value}" for name, value in VARIABLES.items()),
        *([python, "-m", MODULE] if python else ["torchrun"]),
        *(_rendezvous(run) if run.nodes > 1 else ["--standalone", "--local-addr=127.0.0.1"]),
        f"--nproc-per-node={strategy.processes_per_node(run)}",
        *(f"--{name}={value}" for name, value in launchers.options(run).items()),
        "--no-python",
        # As one argument: torchrun would take the trainer's --log for one of its own flags.
        "sh",
        "-c",
        f"exec {shlex.join(trainer)}",
    ]


def _on_each_node(run):
    tasks = [f"--nodes={run.nodes}", f"--ntasks={run.nodes}", "--ntasks-per-node=1"]
    return ["srun", *tasks, "--cpu-bind=none", "--kill-on-bad-exit=1", "--overlap"]


def _rendezvous(run):
    """The flags by which the torchrun of each node finds the others."""
    job = schedulers.job()
    if not job or job[0] != "slurm":
        raise Error(
            f"launcher torchrun starts the processes of {run.nodes} nodes by srun, in a job of "
            "Slurm, and this is none: choose launcher mpirun, or one node"
        )
    base = cluster.PORTS[int(job[1]) * 7 * cluster.PORTS_PER_JOB % len(cluster.PORTS)]
    return [
        f"--nnodes={run.nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={launchers.first_node()}:{base + cluster.PORTS_PER_JOB - 1}",
        f"--rdzv-id={job[1]}",
    ]
