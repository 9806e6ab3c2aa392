"""The pods of an indexed Job of Kubernetes, one a node, which find one another by TF_CONFIG.

`dlbench kubernetes-job` writes such a Job for one run, and in its pods start_processes.py starts
the processes. A study records these runs as skipped.
"""

import os
from pathlib import Path

from dlbench.common import plugins
from dlbench.trainer import engine
from dlbench.trainer.strategy import Spec

PROGRAM = "workflow_scripts/start_processes.py"  # relative to the workflow's folder, as train.py
PROTOCOL = "tf_config"
TAKES_TASKS = False
ELSEWHERE = True


def unsupported(run: Spec) -> str | None:
    if plugins.constants("runtimes", run.runtime)["CONTAINED"]:
        return (
            f"launcher kubernetes needs runtime bare, as a pod is a container; found {run.runtime}"
        )
    return None


def command(run: Spec, trainer: list[str], environment: Path | None) -> list[str]:
    jobs = ",".join(f"{job}={count}" for job, count in engine.strategy_of(run).jobs(run).items())
    python = os.path.relpath(environment / "bin" / "python") if environment else trainer[0]
    return [python, PROGRAM, "--jobs", jobs, "--", *trainer]
