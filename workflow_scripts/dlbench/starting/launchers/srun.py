"""Slurm's srun, inside an allocation: one task per process, on all nodes of the run.

- Horovod needs srun's protocol for its MPI library, which depends on the site: SLURM_MPI_TYPE in
  the environment chooses it (`srun --mpi=list` lists them; Open MPI 4 needs pmix). tf.distribute
  needs none.
- When a task fails, srun ends the others.
"""

from pathlib import Path

from dlbench.starting import launchers
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROTOCOL = "slurm"
TAKES_TASKS = True
OPTIONS_SET = (
    "nodes", "ntasks", "distribution", "cpu-bind", "kill-on-bad-exit", "overlap",
    "ntasks-per-node", "multi-prog",
)  # fmt: skip


def unsupported(run: Spec) -> str | None:
    return None


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    strategy = engine.strategy_of(run)
    jobs = strategy.jobs(run)
    # Consecutive ranks share a node. With processes that are no ranks, all are dealt out over the
    # nodes in turn. NoPack: the same number on each node, also if a site packs nodes.
    distribution = "block,NoPack" if list(jobs) == ["worker"] else "cyclic"
    return [
        "srun",
        f"--nodes={run.nodes}",
        f"--ntasks={sum(jobs.values())}",
        f"--distribution={distribution}",
        # The trainer binds cores, since it knows which of them make up a device.
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        # This step shares the cores of the job step in which Snakemake's job runs.
        "--overlap",
        *(f"--{name}={value}" for name, value in launchers.options(run).items()),
        *(trainer[1:] if trainer[0] == "srun" else trainer),  # with Pyxis's options
    ]
