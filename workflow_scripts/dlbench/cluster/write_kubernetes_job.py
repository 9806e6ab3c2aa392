"""A run as an indexed Job of Kubernetes: kubernetes_job.yaml.jinja, filled in.

Each node of the run has one pod. Pod 0 supervises the run as on any machine and writes its log and
its record; in each pod start_processes.py starts the processes. If one pod fails the Job ends,
since the run cannot go on.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from markupsafe import Markup

from dlbench import Error
from dlbench.cluster import jobs
from dlbench.common import plugins, tools
from dlbench.pages import templates
from dlbench.plan import planning, run_command, skipping
from dlbench.records import judgement
from dlbench.records.judgement import State
from dlbench.trainer import engine

TEMPLATE = "cluster/kubernetes_job.yaml.jinja"
RENDEZVOUS_S = 3600  # for nodes, images and the other pods
# For a last checkpoint, and for the processes to end: see dlbench/starting/supervisor.py.
GRACE_S = 90
# Of start_run.py. There is one attempt: people decide whether to apply the Job again, and when, so
# that it belongs to no session of the workflow, which skips such runs.
NOT_IN_PODS = ("--attempts=", "--session=", "--skip=", "--position=", "--runs-after=")


@dataclass(frozen=True)
class Place:
    """The place of the pods: image, volume and cluster.

    Attributes:
        claim: of the volume that all pods share.
        mount: where the volume is mounted.
        folder: of the workflow, on that volume.
        gpu_resource: what pods ask for GPUs by.
        python: of the trainer, absolute or relative to the folder; None: the environment's.
        workflow_python: of the supervisor, absolute or relative to the folder.
    """

    image: str
    claim: str
    mount: str
    folder: str
    gpu_resource: str | None = None
    python: str | None = None
    workflow_python: str = ".venv/bin/python"

    def __post_init__(self):
        for path in (self.mount, self.folder):
            if not PurePosixPath(path).is_absolute():
                raise Error(f"expected an absolute path in the pods, found {path!r}")
        if not PurePosixPath(self.folder).is_relative_to(self.mount):
            raise Error(
                f"the workflow's folder {self.folder} is not below {self.mount}, where the volume "
                f"is mounted: results would be lost with the pods"
            )


def manifest(settings: dict[str, Any], run_id: str, place: Place) -> str:
    """The Service, the NetworkPolicy and the Job of a run that is to be trained, as YAML.

    Raises Error: there is no such run, it is trained already, or it cannot be a Job.
    """
    plan = planning.make_plan(settings)
    run = plan.run(run_id)
    _check(plan, run, place)
    arguments = [
        word
        for word in run_command.start_run_arguments(plan, run_id, with_secrets=True)
        if not word.startswith(NOT_IN_PODS)
    ]
    first = arguments.index("--") + 1
    if place.python:
        arguments[first] = place.python
    log = ["--log", f"results/runs/{run.id}/train.jsonl"]
    messages = ["--messages", f"results/logs/train/{run.id}.log"]
    supervised = [place.workflow_python, "workflow_scripts/start_run.py", *log, *messages]
    # All paths are relative to the workflow's folder, where the pods start.
    launcher = plugins.load("launchers", run.launcher)
    others = launcher.command(run, run.command(arguments[first:]), None)
    study, name = plan.study, f"dlbench-{run.digest()}"  # a run's id is no name in Kubernetes
    job = jobs.job_of_run(run, study.site, plan.device_kind, study.time_limit_s)
    wait_s = RENDEZVOUS_S + study.wait_for_quiet_s + study.site["job"]["start_up_min"] * 60
    return templates.render(
        TEMPLATE,
        run=run,
        job_name=name,
        hosts=[f"{name}-{index}.{name}" for index in range(run.nodes)],
        place=place,
        job=job,
        supervised=_script([*supervised, *arguments]),
        others=_script(others),
        deadline_s=int(wait_s + study.time_limit_s + GRACE_S),
        grace_s=GRACE_S,
    )


def _check(plan, run, place):
    """Check that the run is to be trained, and that it can be a Job."""
    if run.launcher != "kubernetes":
        raise Error(
            f"{run.id} has launcher {run.launcher}, which does not know the pods of a Job: give "
            "it launcher kubernetes (that makes another run of it)"
        )
    launcher = plugins.load("launchers", run.launcher)
    reason = engine.strategy_of(run).unsupported(run) or launcher.unsupported(run)
    reason = reason or (
        f"the nodes of a Job are not named, and it has {run.node}" if run.node else None
    )
    # If the image has a Python of its own, packages of the environment do not matter.
    skipped = plan.skipped.get(run.id) if not place.python else None
    if skipped != skipping.started_elsewhere(run):
        reason = reason or skipped
    if reason:
        raise Error(f"{run.id} cannot be trained: {reason}")
    state, _ = judgement.state(run, True, plan.basis)
    if state is State.CURRENT:
        raise Error(
            f"{run.id} is done already; to train it again: "
            + tools.dlbench_command(f"forget {run.id}")
        )
    if state is State.UNREAD:
        raise Error(f"{run.id} is trained already: the next start of the workflow reads its log")
    converted = Path("results/data", run.dataset, "manifest.json")
    if run.dataset in plan.datasets and not converted.is_file():
        raise Error(
            f"{converted} is missing: the pods only train; first `snakemake data`, with the same "
            "--configfile"
        )
    if plan.device_kind == "gpu" and not place.gpu_resource:
        raise Error(
            "this site's devices are GPUs: name the resource by which pods ask for them, as in "
            "--gpu-resource nvidia.com/gpu"
        )
    if plan.device_kind != "gpu" and place.gpu_resource:
        raise Error(
            f"the devices of this study are CPUs, but the GPU resource {place.gpu_resource} is "
            "named: set site.device: gpu in the config"
        )


def _script(words):
    """A command for a shell, in which Kubernetes, which replaces $(NAME) and $$, changes nothing.

    >>> _script(["$A", "$(B)", "$$"])
    Markup("'$A' '$$(B)' '$$$'")
    """
    return Markup(re.sub(r"\$(?=[$(])", "$$", shlex.join(words)))  # noqa: S704 - no HTML
