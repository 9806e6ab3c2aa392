"""The pods of an indexed Job of Kubernetes, one a node: start_pod.py starts the processes of each.

`dlbench kubernetes-job` writes such a Job for one run. Outside of such pods the launcher starts
nothing, and a study records these runs as skipped.
"""

import os
from pathlib import Path

from dlbench.common import plugins
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROGRAM = "workflow_scripts/start_pod.py"  # relative to the workflow's folder, as train.py
TAKES_TASKS = False
ELSEWHERE = True
INDEX = "JOB_COMPLETION_INDEX"  # set by Kubernetes in the pods of an indexed Job
# How processes find one another, by the default launcher of their strategy.
DISCOVERY = {
    "none": "nothing",
    "local": "tf_config",
    "torchrun": "tf_config",
    "horovodrun": "horovod",
}


def unsupported(run: Spec) -> str | None:
    if plugins.constants("runtimes", run.runtime)["CONTAINED"]:
        return (
            f"launcher kubernetes needs runtime bare, as a pod is a container; found {run.runtime}"
        )
    if INDEX not in os.environ:
        return (
            "launcher kubernetes needs the pods of a Job: write it with "
            f"`dlbench kubernetes-job {run.id}`"
        )
    return None


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    strategy = engine.strategy_of(run)
    counts = strategy.jobs(run)
    jobs = ",".join(f"{job}={count}" for job, count in counts.items())
    launcher = strategy.launcher
    if launcher == "none" and sum(counts.values()) > 1:  # one process may do, and here are several
        launcher = "local"
    # The Python of the trainer's environment, which has Horovod if that is needed.
    python = os.path.relpath(environment / "bin" / "python") if environment else trainer[0]
    return [
        python,
        PROGRAM,
        "--jobs",
        jobs,
        "--finding",
        DISCOVERY[launcher],
        "--",
        *trainer,
    ]
