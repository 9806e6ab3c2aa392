"""A run as an indexed Job of Kubernetes: the manifests, as plain dicts.

- One pod for each node of the run, never two on one node. Pod 0 supervises the run as on any
  machine and writes its log and its record; start_pod.py starts the processes in each.
- The pods know one another by the names that a headless Service gives them: neither an operator
  nor Helm is needed.
- They meet in an init container first. So pulling the image and waiting for nodes is over in all
  of them when the run's time begins.
- One pod that fails ends the Job: what is left of a run is no run.
"""

import contextlib
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import yaml

from dlbench import Error
from dlbench.cluster import jobs
from dlbench.common import phrases, plugins
from dlbench.launchers.kubernetes import INDEX
from dlbench.plan import planning, run_command
from dlbench.records.judgement import State
from dlbench.study import trainer_environments

PROGRAMS = "workflow_scripts"
PORT = 29_400  # any that is free in the pods
MEET_S = 3600  # for nodes, images and the other pods
START_S = 300  # for the other pods' processes, once all have met
LINGER_S = 30  # in which pod 0 writes the record before the Job ends it
# For a last checkpoint, and for the processes to end: see dlbench/starting/supervisor.py.
GRACE_S = 90
KEPT_S = 7 * 24 * 3600  # a Job that has ended, with what its pods printed
NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
QUALIFIED = r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"


@dataclass(frozen=True)
class Place:
    """Where the pods run, and what they see there.

    `folder` is the workflow's, on the volume `claim` that is mounted at `mount`; `python` and
    `workflow_python` are paths in the image, absolute or from that folder: of the trainer, and of
    what supervises it. `python` None is that of the run's environment.
    """

    image: str
    claim: str
    mount: str
    folder: str
    namespace: str = "default"
    gpu_resource: str | None = None
    service_account: str | None = None
    node_selector: dict = field(default_factory=dict)
    python: str | None = None
    workflow_python: str = ".venv/bin/python"
    environment: dict = field(default_factory=dict)

    def __post_init__(self):
        _match("namespace", NAME, self.namespace)
        _match("claim", r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", self.claim)
        if self.gpu_resource is not None:
            _match("GPU resource", QUALIFIED, self.gpu_resource)
        if not self.image or re.search(r"\s", self.image):
            raise Error(
                f"image: expected a reference as in registry/name:tag, found {self.image!r}"
            )
        for name in self.node_selector:
            _match("node selector", QUALIFIED, name)
        for path in (self.mount, self.folder):
            if not PurePosixPath(path).is_absolute():
                raise Error(f"expected an absolute path in the pods, found {path!r}")
        if not PurePosixPath(self.folder).is_relative_to(self.mount):
            raise Error(
                f"the workflow's folder {self.folder} is not below {self.mount}, where the volume "
                f"is mounted: results would be lost with the pods"
            )


@contextlib.contextmanager
def as_in_a_pod():
    """Within it, launchers find what they find in the pods of a Job."""
    before = os.environ.get(INDEX)
    os.environ[INDEX] = "0"
    try:
        yield
    finally:
        os.environ.pop(INDEX)
        if before is not None:
            os.environ[INDEX] = before


def manifests(settings, run_id, place):
    """The Service, the NetworkPolicy and the Job of a run that is to be trained.

    Args:
        settings: the merged config.
        place: Place.

    Raises:
        Error: there is no such run, nothing is to be done for it, or it cannot be a Job.
    """
    with as_in_a_pod():
        plan = planning.make_plan(settings)
        run = _run(plan, run_id)
        _check(plan, run, place)
        # There is one attempt: whether to apply the Job again is for people to say. When it is
        # applied nobody knows, so it is of no session of the workflow.
        words = [
            word
            for word in run_command.start_run_arguments(plan, run_id, 1)
            if not word.startswith(("--attempt=", "--attempts=", "--session="))
        ]
        first = words.index("--") + 1
        if place.python:
            words[first] = place.python
        trainer = words[first:]
        launcher = plugins.load("launchers", run.launcher)
        # As in the workflow's folder, to which all paths in it are relative.
        others = launcher.command(run, trainer, None)
    asked = jobs.ask(run, plan.study.site, plan.device_kind, plan.study.time_limit_s)
    return [
        _service(run, place),
        _policy(run, place),
        _job(run, place, asked, plan.study, words, others),
    ]


def text(documents):
    """Manifests as YAML, scripts in them as they are."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines line by line."""


def _represent(dumper, value):
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent)


def _run(plan, run_id):
    if run_id not in plan.runs:
        raise Error(f"no run {run_id!r} in this study{phrases.did_you_mean(run_id, plan.runs)}")
    return plan.runs[run_id]


def _check(plan, run, place):
    """See that the run is to be trained, and can be as a Job.

    Raises:
        Error: with the reason.
    """
    if run.launcher != "kubernetes":
        raise Error(
            f"{run.id} has launcher {run.launcher}, which does not know the pods of a Job: give "
            "it launcher kubernetes (that makes another run of it)"
        )
    # Packages are those of the image where that has a Python of its own.
    strategy = plugins.load("strategies", run.strategy).Strategy
    launcher = plugins.load("launchers", run.launcher)
    reason = strategy.unsupported(run) or launcher.unsupported(run)
    reason = reason or (None if place.python else plan.skipped.get(run.id))
    if reason:
        raise Error(f"{run.id} cannot be trained: {reason}")
    state, _ = plan.pending.get(run.id, (State.CURRENT, ""))
    if state is State.CURRENT:
        raise Error(
            f"{run.id} is done already; to train it again: "
            f"python {PROGRAMS}/forget_runs.py {run.id}"
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


def name(run):
    """Of a run's Job and Service; a run's id is no name in Kubernetes."""
    return f"dlbench-{run.digest()}"


def hosts(run):
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
    """Nobody but the pods of the run reaches them: its servers ask for no password."""
    own = {"podSelector": {"matchLabels": _labels(run)}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(run, place),
        "spec": {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]},
    }


def _job(run, place, asked, study, supervised, others):
    """
    Args:
        asked: jobs.Job.
        supervised: what follows start_run.py in pod 0.
        others: command of all other pods.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(run, place),
        "spec": {
            "completionMode": "Indexed",
            "completions": run.nodes,
            "parallelism": run.nodes,
            # One pod started anew would not find the others where it left them.
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {
                "metadata": {"labels": _labels(run)},
                "spec": _pod(run, place, asked, study, supervised, others),
            },
        },
    }


def _pod(run, place, asked, study, supervised, others):
    spec = {
        "subdomain": name(run),
        "restartPolicy": "Never",
        # Of the pod and not of the Job, whose time runs while it waits for nodes. start_run.py ends
        # a run at time_limit_s and records it; this is for what that does not reach.
        "activeDeadlineSeconds": int(
            MEET_S
            + study.wait_for_quiet_s
            + study.time_limit_s
            + study.site["job"]["start_up_min"] * 60
            + GRACE_S
        ),
        "terminationGracePeriodSeconds": GRACE_S,
        # A pod's first process, which this makes one of Kubernetes's own, clears away processes
        # whose parent is gone; start_run.py does not.
        "shareProcessNamespace": True,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "affinity": {"podAntiAffinity": _apart(run)},
        "initContainers": [_meeting(run, place, asked)],
        "containers": [_training(run, place, asked, supervised, others)],
        "volumes": [
            {"name": "work", "persistentVolumeClaim": {"claimName": place.claim}},
            # NCCL and data pipelines share memory; a container has 64 MiB by itself.
            {
                "name": "shm",
                "emptyDir": {"medium": "Memory", "sizeLimit": f"{asked.memory_mb // 2}Mi"},
            },
        ],
    }
    if place.service_account:
        spec["serviceAccountName"] = place.service_account
    if place.node_selector:
        spec["nodeSelector"] = dict(place.node_selector)
    if asked.gpus_per_node:
        # Nodes with GPUs are often kept free of others by a taint of that name.
        spec["tolerations"] = [
            {"key": place.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
        ]
    return spec


def _apart(run):
    """No two pods of a run on one node: each is one of its nodes."""
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": _labels(run)},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }


def _meeting(run, place, asked):
    """The init container; in the run's image, so that this is there when the run begins."""
    program = [_python(run, place), f"{PROGRAMS}/start_pod.py", "--meet"]
    return _container("meet", run, place, asked, program, MEET_S)


def _training(run, place, asked, supervised, others):
    log = f"results/runs/{run.id}/train.jsonl"
    messages = f"results/logs/train/{run.id}.log"
    supervisor = [place.workflow_python, f"{PROGRAMS}/start_run.py"]
    supervisor += ["--log", log, "--messages", messages, *supervised]
    script = (
        f'if [ "${INDEX}" = 0 ]; then\n'
        f"  mkdir -p {shlex.quote(str(Path(messages).parent))}\n"
        f"  exec {shlex.join(supervisor)}\n"
        "fi\n"
        f"exec {shlex.join(others)}\n"
    )
    container = _container("train", run, place, asked, ["sh", "-c", script], START_S)
    if asked.gpus_per_node:
        for part in container["resources"].values():
            part[place.gpu_resource] = str(asked.gpus_per_node)
    container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
    return container


def _container(title, run, place, asked, command, wait_s):
    # Equal to the limits, whole cores: so the node's kubelet may give the pod cores of its own.
    amounts = {"cpu": str(asked.cores_per_task), "memory": f"{asked.memory_mb}Mi"}
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


def _escaped(words):
    """Words that are the given ones once Kubernetes has replaced $(NAME) and $$ in them.

    >>> _escaped(["$A $(B) $$"])
    ['$A $$(B) $$$']
    """
    return [re.sub(r"\$(?=[$(])", "$$", word) for word in words]


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


def _match(what, pattern, text):
    if not re.fullmatch(pattern, text):
        raise Error(f"{what}: {text!r} is no name in Kubernetes")
