"""PyTorch's launcher, for processes on this machine.

The one of an environment is started as a module by its Python: the script bin/torchrun has the path
of the Python with which it was installed.
"""

import shlex
from pathlib import Path

from dlbench import launchers
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

TAKES_TASKS = False
LOOPBACK_SUFFICES = True
RENDEZVOUS = ("torchrun",)
MODULE = "torch.distributed.run"
FRAMEWORK = "pytorch"
RANKS = ("RANK", "LOCAL_RANK")
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
    if run.framework != FRAMEWORK:
        return f"launcher torchrun is {FRAMEWORK}'s; this run is of {run.framework}"
    return launchers.unsupported_across_nodes(run)


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    strategy = engine.strategy_of(run)
    python = environment and str(environment / "bin" / "python3")
    return [
        "env",
        *(f"{name}={value}" for name, value in VARIABLES.items()),
        *([python, "-m", MODULE] if python else ["torchrun"]),
        "--standalone",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={strategy.processes_per_node(run)}",
        *(f"--{name}={value}" for name, value in launchers.options(run).items()),
        "--no-python",
        # As one argument: torchrun would take the trainer's --log for one of its own flags.
        "sh",
        "-c",
        f"exec {shlex.join(trainer)}",
    ]
