"""A run as an indexed Job of Kubernetes: the manifests, as plain dicts.

- Each node of the run has one pod. Pod 0 supervises the run as on any machine and writes its log
  and its record; start_pod.py starts the processes in each pod.
- The pods find one another by the names of a headless Service, without an operator or Helm.
- Their init containers hold a rendezvous first, so that all images are pulled and all nodes are
  there when the time of the run starts.
- If one pod fails the Job ends, since the run cannot go on.
"""

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from dlbench import Error
from dlbench.cluster import jobs
from dlbench.common import plugins, tools
from dlbench.launchers.kubernetes import INDEX
from dlbench.plan import planning, run_command
from dlbench.records.judgement import State
from dlbench.study import trainer_environments
from dlbench.study.runs import Run
from dlbench.trainer import engine

PROGRAMS = "workflow_scripts"
PORT = 29_400  # any that is free in the pods
RENDEZVOUS_S = 3600  # for nodes, images and the other pods
START_S = 300  # for the other pods' processes, once all have met
LINGER_S = 30  # in which pod 0 writes the record before the Job ends it
# For a last checkpoint, and for the processes to end: see dlbench/starting/supervisor.py.
GRACE_S = 90
TTL_S = 7 * 24 * 3600  # of a Job that has ended, and of the output of its pods
NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
QUALIFIED = r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"


@dataclass(frozen=True)
class Place:
    """The place of the pods: image, volume and cluster.

    Attributes:
        claim: of the volume that all pods share.
        mount: where the volume is mounted.
        folder: of the workflow, on that volume.
        python: of the trainer, absolute or relative to the folder; None: the environment's.
        workflow_python: of the supervisor, absolute or relative to the folder.
        environment: variables of all processes.
    """

    image: str
    claim: str
    mount: str
    folder: str
    namespace: str = "default"
    gpu_resource: str | None = None
    service_account: str | None = None
    node_selector: dict[str, str] = field(default_factory=dict)
    python: str | None = None
    workflow_python: str = ".venv/bin/python"
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        _check_name("namespace", NAME, self.namespace)
        _check_name("claim", r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", self.claim)
        if self.gpu_resource is not None:
            _check_name("GPU resource", QUALIFIED, self.gpu_resource)
        if not self.image or re.search(r"\s", self.image):
            raise Error(
                f"image: expected a reference as in registry/name:tag, found {self.image!r}"
            )
        for name in self.node_selector:
            _check_name("node selector", QUALIFIED, name)
        for path in (self.mount, self.folder):
            if not PurePosixPath(path).is_absolute():
                raise Error(f"expected an absolute path in the pods, found {path!r}")
        if not PurePosixPath(self.folder).is_relative_to(self.mount):
            raise Error(
                f"the workflow's folder {self.folder} is not below {self.mount}, where the volume "
                f"is mounted: results would be lost with the pods"
            )


@contextlib.contextmanager
def as_in_a_pod() -> Iterator[None]:
    """Set the variable of a pod for a block, so that the launcher plans runs as in a pod."""
    before = os.environ.get(INDEX)
    os.environ[INDEX] = "0"
    try:
        yield
    finally:
        os.environ.pop(INDEX)
        if before is not None:
            os.environ[INDEX] = before


def manifests(settings: dict[str, Any], run_id: str, place: Place) -> list[dict[str, Any]]:
    """The Service, the NetworkPolicy and the Job of a run that is to be trained.

    Args:
        settings: the merged config.

    Raises:
        Error: there is no such run, it is trained already, or it cannot be a Job.
    """
    with as_in_a_pod():
        plan = planning.make_plan(settings)
        run = plan.run(run_id)
        _check(plan, run, place)
        # There is one attempt: people decide whether to apply the Job again, and when, so that it
        # belongs to no session of the workflow.
        arguments = [
            word
            for word in run_command.start_run_arguments(plan, run_id, with_secrets=True)
            if not word.startswith(("--attempts=", "--session="))
        ]
        first = arguments.index("--") + 1
        if place.python:
            arguments[first] = place.python
        trainer = arguments[first:]
        launcher = plugins.load("launchers", run.launcher)
        # All paths are relative to the workflow's folder, where the pods start.
        command_of_others = launcher.command(run, run.command(trainer), None)
    job = jobs.job_of_run(run, plan.study.site, plan.device_kind, plan.study.time_limit_s)
    return [
        _service(run, place),
        _policy(run, place),
        _job(run, place, job, plan.study, arguments, command_of_others),
    ]


def text(documents: list[dict[str, Any]]) -> str:
    """Manifests as YAML, with scripts line by line."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines line by line."""


def _represent(dumper, value):
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent)


def _check(plan, run, place):
    """Check that the run is to be trained, and that it can be a Job.

    Raises:
        Error: with the reason.
    """
    if run.launcher != "kubernetes":
        raise Error(
            f"{run.id} has launcher {run.launcher}, which does not know the pods of a Job: give "
            "it launcher kubernetes (that makes another run of it)"
        )
    # If the image has a Python of its own, packages of the environment do not matter.
    strategy = engine.strategy_of(run)
    launcher = plugins.load("launchers", run.launcher)
    reason = strategy.unsupported(run) or launcher.unsupported(run)
    reason = reason or (
        f"the nodes of a Job are not named, and it has {run.node}" if run.node else None
    )
    reason = reason or (None if place.python else plan.skipped.get(run.id))
    if reason:
        raise Error(f"{run.id} cannot be trained: {reason}")
    state, _ = plan.pending.get(run.id, (State.CURRENT, ""))
    if state is State.CURRENT:
        raise Error(
            f"{run.id} is done already; to train it again: "
            + tools.dlbench_command(f"forget {run.id}")
        )
    if state is State.UNREAD:
        raise Error(f"{run.id} is trained already: the next start of the workflow reads its log")
    manifest = Path("results/data", run.dataset, "manifest.json")
    if run.dataset in plan.datasets and not manifest.is_file():
        raise Error(
            f"{manifest} is missing: the pods only train; first `snakemake data`, with the same "
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


def name(run: Run) -> str:
    """The name of a run's Job and Service; Kubernetes does not allow the id of a run as a name."""
    return f"dlbench-{run.digest()}"


def hosts(run: Run) -> list[str]:
    """The host names of the pods, in order."""
    return [f"{name(run)}-{index}.{name(run)}" for index in range(run.nodes)]


def _service(run, place):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(run, place),
        "spec": {
            "clusterIP": "None",
            "selector": _labels(run),
            # The pods look for one another before they are ready.
            "publishNotReadyAddresses": True,
        },
    }


def _policy(run, place):
    """Only the pods of the run reach one another, for its servers have no passwords."""
    own = {"podSelector": {"matchLabels": _labels(run)}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(run, place),
        "spec": {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]},
    }


def _job(run, place, job, study, supervised, command_of_others):
    """The Job.

    Args:
        job: schedulers.Job.
        supervised: arguments of start_run.py in pod 0.
        command_of_others: what all other pods run.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(run, place),
        "spec": {
            "completionMode": "Indexed",
            "completions": run.nodes,
            "parallelism": run.nodes,
            # A pod that started again would not find the others.
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": TTL_S,
            "template": {
                "metadata": {"labels": _labels(run)},
                "spec": _pod(run, place, job, study, supervised, command_of_others),
            },
        },
    }


def _pod(run, place, job, study, supervised, command_of_others):
    spec = {
        "subdomain": name(run),
        "restartPolicy": "Never",
        # Of the pod, since the time of the Job includes its wait for nodes. start_run.py ends a run
        # at time_limit_s and records it; this limit is for the case that it cannot.
        "activeDeadlineSeconds": int(
            RENDEZVOUS_S
            + study.wait_for_quiet_s
            + study.time_limit_s
            + study.site["job"]["start_up_min"] * 60
            + GRACE_S
        ),
        "terminationGracePeriodSeconds": GRACE_S,
        # With it the first process is Kubernetes's own, which waits for orphaned processes, as
        # start_run.py does not.
        "shareProcessNamespace": True,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "affinity": {"podAntiAffinity": _anti_affinity(run)},
        "initContainers": [_rendezvous_container(run, place, job)],
        "containers": [_training_container(run, place, job, supervised, command_of_others)],
        "volumes": [
            {"name": "work", "persistentVolumeClaim": {"claimName": place.claim}},
            # For the shared memory of NCCL and data pipelines; the default is 64 MiB.
            {
                "name": "shm",
                "emptyDir": {"medium": "Memory", "sizeLimit": f"{job.memory_mb // 2}Mi"},
            },
        ],
    }
    if place.service_account:
        spec["serviceAccountName"] = place.service_account
    if place.node_selector:
        spec["nodeSelector"] = dict(place.node_selector)
    if job.gpus_per_node:
        # A taint of that name often keeps other pods off nodes with GPUs.
        spec["tolerations"] = [
            {"key": place.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
        ]
    return spec


def _anti_affinity(run):
    """Rule that no two pods of a run share a node."""
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": _labels(run)},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }


def _rendezvous_container(run, place, job):
    """The init container, with the image of the run, so that it is pulled before the run begins."""
    program = [_python(run, place), f"{PROGRAMS}/start_pod.py", "--meet"]
    return _container("meet", run, place, job, program, RENDEZVOUS_S)


def _training_container(run, place, job, supervised, command_of_others):
    log = f"results/runs/{run.id}/train.jsonl"
    messages = f"results/logs/train/{run.id}.log"
    supervisor = [place.workflow_python, f"{PROGRAMS}/start_run.py"]
    supervisor += ["--log", log, "--messages", messages, *supervised]
    script = (
        f'if [ "${INDEX}" = 0 ]; then\n'
        f"  mkdir -p {shlex.quote(str(Path(messages).parent))}\n"
        f"  exec {shlex.join(supervisor)}\n"
        "fi\n"
        f"exec {shlex.join(command_of_others)}\n"
    )
    container = _container("train", run, place, job, ["sh", "-c", script], START_S)
    if job.gpus_per_node:
        for part in container["resources"].values():
            part[place.gpu_resource] = str(job.gpus_per_node)
    container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
    return container


def _container(title, run, place, job, command, wait_s):
    # Requests equal to limits, and whole cores: so the kubelet may give the pod cores of its own.
    amounts = {"cpu": str(job.cores_per_task), "memory": f"{job.memory_mb}Mi"}
    variables = {
        "DLBENCH_POD_HOSTS": ",".join(hosts(run)),
        "DLBENCH_POD_PORT": str(PORT),
        "DLBENCH_POD_WAIT_S": str(wait_s),
        "DLBENCH_POD_LINGER_S": str(LINGER_S),
        **place.environment,
    }
    return {
        "name": title,
        "image": place.image,
        "command": _escaped(command),
        "workingDir": place.folder,
        "env": [{"name": key, "value": _escaped([value])[0]} for key, value in variables.items()],
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
        "volumeMounts": [{"name": "work", "mountPath": place.mount}],
    }


def _escaped(arguments):
    """Words in which Kubernetes, which replaces $(NAME) and $$, leaves everything as it is.

    >>> _escaped(["$A $(B) $$"])
    ['$A $$(B) $$$']
    """
    return [re.sub(r"\$(?=[$(])", "$$", word) for word in arguments]


def _python(run, place):
    return place.python or str(trainer_environments.trainer_python(run.environment))


def _metadata(run, place):
    return {
        "name": name(run),
        "namespace": place.namespace,
        "labels": _labels(run),
        "annotations": {"dlbench/run-id": run.id},
    }


def _labels(run):
    return {"app.kubernetes.io/name": "dlbench", "app.kubernetes.io/instance": name(run)}


def _check_name(kind, pattern, text):
    if not re.fullmatch(pattern, text):
        raise Error(f"{kind}: {text!r} is no name in Kubernetes")
