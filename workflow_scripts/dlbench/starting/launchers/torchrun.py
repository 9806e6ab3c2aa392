"""PyTorch's launcher, for processes on this machine.

A program of others may run on several nodes of a Slurm job: srun starts one torchrun on each, and
they meet at a port of the first. dlbench's own trainer has srun start its processes itself.
"""

from pathlib import Path

from dlbench import Error, schedulers
from dlbench.starting import launchers
from dlbench.trainer import engine
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
# It forwards these signals, so that a run can write a checkpoint, and waits until it has.
FORWARDED = "PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
SIGNALS = ("env", FORWARDED, "PET_SHUTDOWN_TIMEOUT=600")


def unsupported(run: Spec) -> str | None:
    if getattr(run, "is_external", False):
        return None
    if run.framework != FRAMEWORK:
        return f"launcher {run.launcher} is {FRAMEWORK}'s; this run is of {run.framework}"
    return launchers.unsupported_across_nodes(run)


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    port, meet = launchers.meeting_port(), ["--standalone", "--local-addr=127.0.0.1"]
    if run.nodes > 1:
        meet = [f"--nnodes={run.nodes}", "--rdzv-backend=c10d", f"--rdzv-id={port}"]
        meet += [f"--rdzv-endpoint={launchers.meeting_node(run)}:{port}"]
    return [
        *(*on_each_node(run), *SIGNALS),
        *(launchers.module(environment, MODULE) if environment else ["torchrun"]),
        *meet,
        f"--nproc-per-node={engine.strategy_of(run).processes_per_node(run)}",
        *(f"--{name}={value}" for name, value in launchers.options(run).items()),
        *("--no-python", *launchers.one_word(trainer)),
    ]


def on_each_node(run: Spec) -> list[str]:
    """The beginning of a command that starts one launcher on each node of a run.

    Raises Error: the run has several nodes, and this is no job of Slurm.
    """
    if run.nodes == 1:
        return []
    job = schedulers.job()
    if not job or job[0] != "slurm":
        raise Error(
            f"launcher {run.launcher} starts the processes of {run.nodes} nodes by srun, in a job "
            "of Slurm, and this is none: choose launcher mpirun, or one node"
        )
    tasks = [f"--nodes={run.nodes}", f"--ntasks={run.nodes}", "--ntasks-per-node=1"]
    return ["srun", *tasks, "--cpu-bind=none", "--kill-on-bad-exit=1", "--overlap"]
