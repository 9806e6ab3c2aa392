"""Slurm's srun, inside an allocation: one task per process, on all nodes of the run.

- For Horovod, srun must speak the MPI library's protocol. Its name is a fact of
  the site: SLURM_MPI_TYPE in the environment chooses it (`srun --mpi=list` shows
  what there is; Open MPI 4 wants pmix). tf.distribute needs none.
- A task that fails takes the others with it.
"""

from pathlib import Path

from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

TAKES_TASKS = True


def unsupported(run: Spec) -> str | None:
    return None


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    strategy = engine.strategy_of(run)
    jobs = strategy.jobs(run)
    # Ranks that follow one another share a node; where there are also processes that are
    # no ranks, these are dealt out over the nodes.
    # As many on each, also where a site packs nodes.
    distribution = "block,NoPack" if list(jobs) == ["worker"] else "cyclic"
    return [
        "srun",
        f"--nodes={run.nodes}",
        f"--ntasks={sum(jobs.values())}",
        f"--distribution={distribution}",
        # Cores are bound by the trainer, which knows which of them make up a device.
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        # Within a step of Snakemake's, whose cores these are too.
        "--overlap",
        *trainer,
    ]
