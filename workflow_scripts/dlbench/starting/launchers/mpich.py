"""Launchers of MPICH and of MPIs built on it, which find the nodes of a job themselves.

mpiexec is MPICH's (Hydra; where Open MPI is installed, too, mpiexec.hydra) or that of HPE's PALS.
Horovod needs to be built with the same MPI; that of envs/train was built with Open MPI.

flux is `flux run`, in an instance of Flux (`flux alloc`, `flux batch`).

PALS and Flux were not run. Options and variables of PALS are those of its mpiexec(1) and of scripts
for Polaris and Aurora (https://docs.alcf.anl.gov, https://github.com/argonne-lcf/alcf-nccl-tests),
those of Flux of flux-run(1), flux-shell-options(7) and flux-environment(7)
(https://flux-framework.readthedocs.io/projects/flux-core).
"""

from pathlib import Path
from typing import Any

from dlbench.common import tools
from dlbench.starting import launchers
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROTOCOL = "mpi"
TAKES_TASKS = True
LOOPBACK_SUFFICES = True
# Without binding: the trainer binds cores and selects GPUs. Hydra and PALS have different flags for
# it, and so variables. Flux deals out ranks in blocks, from the first node on.
VARIANTS: dict[str, dict[str, Any]] = {
    "mpiexec": {
        "PROGRAMS": ("mpiexec.hydra", "mpiexec"),
        "OPTIONS_SET": ("n", "np", "ppn", "bind-to", "cpu-bind"),
        "START": "env HYDRA_BINDING=none PALS_CPU_BIND=none {program} -n {processes} -ppn {each}",
        "RANKS": (
            "${PMI_RANK:-$PALS_RANKID}",
            "${MPI_LOCALRANKID:-$PALS_LOCAL_RANKID}",
            "${PMI_SIZE:-$((PALS_LOCAL_SIZE * NODES))}",
        ),
    },
    "flux": {
        "PROGRAMS": ("flux",),
        "OPTIONS_SET": ("nodes", "ntasks", "exclusive", "tasks-per-node"),
        "START": "{program} run --nodes={nodes} --ntasks={processes} --exclusive"
        " --setopt=cpu-affinity=off --setopt=gpu-affinity=off --setopt=exit-on-error",
        "RANKS": ("$FLUX_TASK_RANK", "$FLUX_TASK_LOCAL_ID", "$FLUX_JOB_SIZE"),
        "FIRST_NODE": "$(flux hostlist --nth=0 local)",
    },
}


def unsupported(run: Spec) -> str | None:
    return None


def command(
    run: Spec, trainer: list[str], environment: Path | None, constants: dict[str, Any]
) -> list[str]:
    each = engine.strategy_of(run).processes_per_node(run)
    program = tools.first_installed(constants["PROGRAMS"]) or constants["PROGRAMS"][-1]
    size = {"nodes": run.nodes, "processes": run.nodes * each, "each": each}
    rank, local_rank, count = constants["RANKS"]
    count = count.replace("NODES", str(run.nodes))
    first = constants.get("FIRST_NODE") if run.nodes > 1 else None
    return [
        *constants["START"].format(program=program, **size).split(),
        *(f"--{name}={value}" for name, value in launchers.options(run).items()),
        *launchers.with_ranks(run, trainer, rank, local_rank, count, first),
    ]
