"""What a run asks of a cluster's scheduler, and which runs share a job.

- A run's processes are the tasks of its job where its launcher takes them from the scheduler;
  else the job has one task, in which all of them are started.
- Time: so many times what runs like it took (dlbench/records/costs.py), what it may wait for a
  quiet node and what starting takes; all of time_limit_s where none is done yet, and when it is
  tried again.
- Memory: by device; twice as much when a run is tried again, at most a node's.
- Runs of one shape, which ask for the same, may share a job, in which they follow one another.
"""

import itertools
import math
from dataclasses import dataclass, replace

from dlbench import Error
from dlbench.common import phrases, plugins
from dlbench.schedulers import Nodes

CONVERSION = "conversion of data"
# Of the 128 KiB that Linux gives to one argument: sbatch gets the ids of all runs of a job in one.
MOST_IDS_BYTES = 100_000
WORKFLOW_MB = 1000  # of the two Snakemakes in a job, 400 MB measured, and the run's supervisor


@dataclass(frozen=True)
class Job:
    """What a run asks for. `memory_mb` and `gpus_per_node` are those of each node."""

    nodes: int
    tasks: int
    cores_per_task: int
    memory_mb: int
    gpus_per_node: int
    time_min: int
    exclusive: bool
    gpu_request: str
    extra: str

    @property
    def tasks_per_node(self):
        return math.ceil(self.tasks / self.nodes)

    @property
    def each(self):
        """What it asks of each node, as Queue.count takes it."""
        cores = self.cores_per_task * self.tasks_per_node
        return {"cores": cores, "memory_mb": self.memory_mb, "gpus": self.gpus_per_node}


def ask(run, site, kind, time_limit_s, estimate_s=None, attempt=1, place=None, wait_s=0):
    """The Job of a run.

    Args:
        site: the config's `site`.
        kind: cpu or gpu, what a device is.
        estimate_s: what runs like it took; None where none has.
        place: where in a job that runs share, from 0; None where it is alone in its job.
        wait_s: the most that it waits for a quiet node before it starts.
    """
    wanted = site["job"]
    devices = run.devices_per_node * run.copies_per_node
    tasks = _tasks(run)
    cores = devices * run.threads_per_device
    if kind == "gpu" and site["cores_per_node"] != "auto":
        # Those that belong to the GPUs: they read and prepare the data.
        cores = max(cores, site["cores_per_node"] * devices // site["devices_per_node"])
    memory_mb = WORKFLOW_MB + wanted["memory_mb_per_device"] * devices * 2 ** (attempt - 1)
    time_s = time_limit_s
    # In a shared job the others are tried again too, so that there is time enough.
    if estimate_s is not None and (attempt == 1 or place is not None):
        time_s = min(time_limit_s, estimate_s * wanted["time_margin"])
    return Job(
        nodes=run.nodes,
        tasks=tasks,
        cores_per_task=math.ceil(cores / math.ceil(tasks / run.nodes)),
        memory_mb=min(memory_mb, site["memory_mb_per_node"] or memory_mb),
        gpus_per_node=devices if kind == "gpu" else 0,
        time_min=math.ceil((time_s + wait_s) / 60) + (0 if place else wanted["start_up_min"]),
        exclusive=wanted["exclusive"],
        gpu_request=wanted["gpu_request"],
        extra=wanted["extra"],
    )


def plain(asked):
    """The Job of a step that trains nothing, which asks for what the profile says."""
    values = (str(asked("convert_dataset", name)) for name in ("mem_mb", "runtime"))
    # What is no number is an expression of Snakemake's, known only once it submits.
    memory_mb, time_min = (int(value) if value.isdecimal() else 0 for value in values)
    return Job(1, 1, 1, memory_mb, 0, time_min, False, "", "")


def resources(job, scheduler=None):
    """A job as resources of Snakemake: those that all schedulers share, and one's own."""
    found = {
        "nodes": job.nodes,
        "tasks": job.tasks,
        "cpus_per_task": job.cores_per_task,
        "mem_mb": job.memory_mb,
        "runtime": job.time_min,
        "gpus_per_node": job.gpus_per_node,
        "exclusive": int(job.exclusive),
        "gpu_request": job.gpu_request,
        "extra": job.extra,
    }
    return found | (plugins.load("schedulers", scheduler).resources(job) if scheduler else {})


@dataclass
class Bundle:
    """A job that several runs share: what they take by what runs like them took, and ask for."""

    name: str
    runs: int = 0
    takes_s: float = 0.0
    asks_min: int = 0
    ids_bytes: int = 0


def bundles(runs, job_of, estimate_of, bundle_min, limit_min=None):
    """Which runs share a job: {run id: (name of the bundle, place in it)}.

    Args:
        runs: in the order of their execution.
        job_of: (run, place) -> Job; runs of one bundle ask for the same but for time.
        estimate_of: run -> seconds, or None where it is not known; such runs are left alone.
        bundle_min: how long the training in a job takes at least, where there are enough runs.
        limit_min: how long a job may be; None for any length.
    """
    found, last = {}, {}
    numbers = itertools.count(1)
    for run in runs if bundle_min else ():
        seconds = estimate_of(run)
        if seconds is None:
            continue
        shape = _shape(run, job_of(run, 0))
        bundle = last.get(shape)
        full = bundle and (
            bundle.takes_s >= bundle_min * 60 or bundle.ids_bytes + _id_bytes(run) > MOST_IDS_BYTES
        )
        if bundle and limit_min and bundle.asks_min + job_of(run, 1).time_min > limit_min:
            full = True
        if not bundle or full:
            bundle = last[shape] = Bundle(f"bundle{next(numbers)}")
        found[run.id] = bundle.name, bundle.runs
        bundle.asks_min += job_of(run, bundle.runs).time_min
        bundle.takes_s += seconds
        bundle.ids_bytes += _id_bytes(run)
        bundle.runs += 1
    return found


def _id_bytes(run):
    return len(f" 'train:run_id={run.id}'")


def within(job, queue):
    """A job that asks for no more memory than a node with its cores and GPUs has."""
    able = [n for n in queue.nodes if n.have(**{**job.each, "memory_mb": 0})]
    most = replace(queue, nodes=tuple(able)).most("memory_mb")
    return replace(job, memory_mb=min(job.memory_mb, most)) if most else job


def check(asked, queues, wanted, unfit=None):
    """See that a queue would take some jobs, before the first is submitted.

    Args:
        asked: [(what it does, Job)].
        queues: {name: schedulers.Queue}.
        wanted: name of the queue; None for the scheduler's default.
        unfit: that of the scheduler's file, where it has one.

    Returns:
        The schedulers.Queue; None where the scheduler chooses.

    Raises:
        Error: it would not; with every reason, one a line.
    """
    name = wanted or next((queue.name for queue in queues.values() if queue.default), None)
    if name is None:
        return None
    if name not in queues:
        raise Error(
            f"the scheduler has no partition or queue {name!r}"
            f"{phrases.did_you_mean(name, queues)}; "
            f"there are: {', '.join(sorted(queues))}. It is named in the profile's config.yaml"
        )
    queue = queues[name]
    if not queue.up:
        raise Error(f"{name} is down; sinfo shows its state")
    found = {}
    for label, job in asked:
        for problem in _problems(job, queue):
            found.setdefault(problem, []).append(label)
    for problem, job in unfit([job for _, job in asked]) if unfit else ():
        found.setdefault(problem, []).append(next(label for label, one in asked if one is job))
    if found:
        raise Error(
            "\n".join(
                f"{problem}: {phrases.counted(len(labels), 'job')}, as {labels[0]}"
                for problem, labels in found.items()
            )
        )
    return queue


def _tasks(run):
    launcher = plugins.load("launchers", run.launcher)
    if not launcher.TAKES_TASKS or run.copies_per_node > 1:
        return run.nodes
    strategy = plugins.load("strategies", run.strategy).Strategy
    return sum(strategy.jobs(run).values())


def _shape(run, job):
    return (
        job.nodes, job.tasks, job.cores_per_task, job.gpus_per_node, job.memory_mb, run.launcher
    )  # fmt: skip


def _problems(job, queue):
    """Why a queue would not take a job, in words that are the same for like jobs."""
    each = job.each
    limits = (
        ("nodes", job.nodes, queue.count() if queue.nodes else None, "lower site.nodes"),
        (
            "GPUs per node", each["gpus"], queue.most("gpus"), "correct site.devices_per_node",
        ),
        (
            "cores per node", each["cores"], queue.most("cores"), "correct site.cores_per_node",
        ),
        (
            "MiB of memory per node", each["memory_mb"], queue.most("memory_mb"),
            "lower site.job.memory_mb_per_device or set site.memory_mb_per_node",
        ),
        (
            "minutes", job.time_min, queue.time_limit_s and queue.time_limit_s // 60,
            "lower time_limit_s or, for jobs that train nothing, the profile's runtime",
        ),
    )  # fmt: skip
    above = [limit for limit in limits if limit[2] is not None and limit[1] > limit[2]]
    for what, asked, offered, remedy in above:
        yield (
            f"asks for {asked:g} {what}, and {queue.name} has {offered:g} ({remedy}, "
            "or leave such runs out)"
        )
    if queue.nodes and not above and queue.count(**each) < job.nodes:
        yield (
            f"asks for {Nodes(job.nodes, **each)}, and {queue.name} has {queue.count(**each)} such "
            f"({queue.kinds}): say in site.yaml what one kind of node has, "
            "or leave such runs out"
        )
