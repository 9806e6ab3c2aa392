"""Schedulers of clusters, one file each: their queues and jobs, and how a job is submitted.

cluster_job.py submits and watches jobs by them, for Snakemake's executor cluster-generic. They
import common and the standard library only. Other rooms import this file, and load a scheduler by
its name. A scheduler's file defines:
    JOB_ID: the environment variable with the id of the job inside a job.
    PROGRAMS: programs that must be on PATH, as `tools.missing_program` takes them.
    QUEUE: the resource of a Snakemake profile that names the queue (or partition).
    CANCEL: the program that cancels a job, given its id.
    OPEN_MPI: the name of Open MPI's component for it, as `ompi_info` lists them.
    queues(): {name: Queue} of the queues that users may submit to. Raises Error if the scheduler
        does not answer.
    job_states(job_ids): {job id: JobState} of the jobs that it knows; {} if it does not answer.
    submission(request, logs): the command that submits a Job, without the script.
    wait_command(request, script, folder): the command that submits a script with a Job and waits
        until the job has ended. The job writes its output to `folder`; the first number in
        the output of the command is the id of the job.
    hosts(environ): names of the job's nodes, from its variables; [] if unknown.
and, if the scheduler supports it:
    REMOTE_SHELL: the command that starts another command on a node of the job, as ssh does.
    job_id(output): the id of a job in the output of the submit command; the default is its last
        line.
    on_each_node(request): the prefix that runs a command on each node of such a job.
    accounts(): names of the accounts that this user may use.
    unsupported_jobs(jobs): (reason, job) of each Job that cannot be requested from it.
and may define:
    queue_times(job_id): (submission, start) of a running job in seconds since 1970; None if the
        scheduler does not say. Raises Error if it does not answer, ValueError if its output has
        another form.
    jobs_of_folder(folder): {job id: id of its run, or ""} of the jobs that wait or run and that
        Snakemake submitted from a folder by another executor than cluster-generic.
    variables(job_id): its variables that name the nodes of a job, for processes that lost them.
    waiting(job_ids): {job id: why it waits} of the jobs that have not started; {} if it does not
        answer.
    FULL: a pattern in the message of a submit command that refuses a job since there are too many.
    NORMAL_REASONS: beginnings of reasons for waiting that pass by themselves, as for a job whose
        turn has not come.
    limits(account, qos, queue): the rules of the site on jobs, by its accounting, each as a Queue.
        Raises Error if it does not answer.
    addresses(names): {name: address} by which the scheduler itself reaches nodes.
    forgets_after_s(): seconds for which it knows a job that has ended; None: longer than needed, or
        it does not say.
    cluster_name(): the name that the scheduler has for the cluster; None if it does not say.
"""

import contextlib
import fcntl
import math
import os
import shlex
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from dlbench import Error
from dlbench.common import plugins

TIMEOUT_S = 30.0  # with a program of a scheduler
MAX_LINES = 8  # of its message, in errors
# For each job that cluster_job.py submitted, a file named by its id, with the id of its run.
WATCHED = Path(".snakemake/cluster_jobs")
QUEUED = "DLBENCH_QUEUED"  # the variable with scheduler, id and dates of the job
WATCH_SUFFIXES = (".end", ".lost", ".json")  # further files there
UTC_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"  # as in training logs


@dataclass(frozen=True)
class Job:
    """What a run, or another step of the workflow, needs of a job, for any scheduler.

    Attributes:
        tasks: processes that the scheduler starts or counts, on all nodes.
        memory_mb: of each node.
        gpus_per_node: 0 for none.
        gpu_request: the name by which GPUs are requested, e.g. gpu or gpu:a100.
        extra: further options of the submit command, as a shell reads them.
        node: name of the only node that will do; "" for any.
        time_s: the time of the run within time_min, not rounded, without the start.
        name: that the scheduler shows, as those below only of jobs that dlbench submits itself.
        resources: all resources of the job by their names in Snakemake.
        speaks_mpi: whether the scheduler starts its processes with a protocol of MPI, as those of
            runs with launcher srun.
    """

    nodes: int
    tasks: int
    cores_per_task: int
    memory_mb: int
    gpus_per_node: int
    time_min: int
    exclusive: bool
    gpu_request: str
    extra: str
    node: str = ""
    time_s: float = 0.0
    name: str = ""
    resources: Mapping[str, Any] = field(default_factory=dict)
    speaks_mpi: bool = False

    @property
    def tasks_per_node(self) -> int:
        """Tasks on each node, rounded up."""
        return math.ceil(self.tasks / self.nodes)

    @property
    def cores_per_node(self) -> int:
        return self.cores_per_task * self.tasks_per_node

    @property
    def per_node(self) -> dict[str, int]:
        """The needs of each node, as keyword arguments of Queue.count."""
        needs = {"cores": self.cores_per_node, "memory_mb": self.memory_mb}
        return {**needs, "gpus": self.gpus_per_node}

    @property
    def options(self) -> list[str]:
        """The words of `extra`."""
        return shlex.split(self.extra)


@dataclass(frozen=True)
class Nodes:
    """Equal nodes of a queue; None means that the scheduler does not say.

    They are not `up` if they start no jobs now: drained, down, or not answering.
    """

    count: int
    cores: int | None = None
    memory_mb: int | None = None
    gpus: int | None = None
    up: bool = True

    def have(self, cores: int = 0, memory_mb: int = 0, gpus: int = 0) -> bool:
        """Whether each of them has at least so many cores, MiB and GPUs, as far as is known."""
        needs = (cores, self.cores), (memory_mb, self.memory_mb), (gpus, self.gpus)
        return all(offered is None or needed <= offered for needed, offered in needs)

    def __str__(self) -> str:
        offers = (self.cores, "cores"), (self.memory_mb, "MiB"), (self.gpus, "GPUs")
        has = ", ".join(f"{value} {unit}" for value, unit in offers if value is not None)
        return f"{self.count} node{'s' if self.count != 1 else ''} of {has or 'any kind'}"


@dataclass(frozen=True)
class Queue:
    """A queue (or partition), or a rule on jobs, with the most that it allows; None: any number.

    `nodes` has an entry for each kind; () if not known. `jobs_at_once`: of a user, in the queue.
    """

    name: str
    default: bool = False
    up: bool = True
    time_limit_s: float | None = None
    nodes: tuple[Nodes, ...] = ()
    nodes_per_job: int | None = None
    cores_per_job: int | None = None
    gpus_per_job: int | None = None
    jobs_at_once: int | None = None

    @property
    def kinds(self) -> str:
        """A description of its kinds of nodes, up or not."""
        return "; ".join(map(str, group_alike(replace(nodes, up=True) for nodes in self.nodes)))

    def maximum(self, resource: str) -> int | None:
        """The most cores, memory_mb or gpus of any node; None if not known."""
        amounts = (getattr(nodes, resource) for nodes in self.nodes)
        return max((amount for amount in amounts if amount is not None), default=None)

    def count(self, up: bool = False, **per_node: int) -> int:
        """The number of nodes with at least so many cores, memory_mb and gpus.

        `up`: count nodes that are up only.
        """
        return sum(n.count for n in self.nodes if n.have(**per_node) and (n.up or not up))


def group_alike(nodes: Iterable[Nodes]) -> tuple[Nodes, ...]:
    """Nodes, with equal ones counted together.

    >>> nodes = [Nodes(2, cores=8), Nodes(1, cores=4), Nodes(1, cores=8)]
    >>> [str(kind) for kind in group_alike(nodes)]
    ['3 nodes of 8 cores', '1 node of 4 cores']
    """
    counts: Counter[Nodes] = Counter()
    for group in nodes:
        counts[replace(group, count=1)] += group.count
    return tuple(replace(kind, count=count) for kind, count in counts.items())


@dataclass(frozen=True)
class JobState:
    """The state of a job, or how it ended.

    Attributes:
        state: as the scheduler calls it.
        status: running (or waiting), ok, failed, interrupted, oom or timeout. Another attempt may
            succeed after failed, but not after oom and timeout. An interrupted job was preempted,
            cancelled, or lost its node.
    """

    state: str
    status: str


def job(environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """(name of the scheduler, id) of the job in which this process runs; None outside of jobs."""
    variables = {
        n: plugins.constants("schedulers", n)["JOB_ID"] for n in plugins.names("schedulers")
    }
    # The longest name first: other programs may set JOB_ID, the variable of Grid Engine.
    for name, variable in sorted(variables.items(), key=lambda item: -len(item[1])):
        if environ.get(variable):
            return name, environ[variable]
    return None


def take_turn(folder: str | None = None) -> IO[str] | None:
    """Wait until no other run of this scheduler's job is being trained on this node.

    Snakemake starts the runs that share a job in parallel, as many as there are cores.

    `folder`: of this node, for the lock file; None: that for temporary files. Returns the locked
    file: the lock is held until it is closed, or this process ends. None outside of jobs, or if the
    file cannot be locked.
    """
    if not (around := job()):
        return None
    name = f"dlbench-{os.getuid()}-{'-'.join(around)}.turn"
    with contextlib.suppress(OSError):
        turn = open(os.path.join(folder or tempfile.gettempdir(), name), "w")  # noqa: SIM115
        fcntl.flock(turn, fcntl.LOCK_EX)
        return turn
    return None


def job_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for all processes of this scheduler's job, {} outside of jobs or where they are.

    The scheduler is asked when the job was submitted and started, and for the names of its nodes if
    something removed them: Snakemake's executor slurm keeps little more than the id.
    """
    if not (around := job(environ)):
        return {}
    module, job_id = plugins.load("schedulers", around[0]), around[1]
    found: dict[str, str] = {}
    with contextlib.suppress(Error):
        if hasattr(module, "variables") and not module.hosts(environ):
            found |= module.variables(job_id)
    if environ.get(QUEUED, "").split()[:2] != [*around]:
        found[QUEUED] = " ".join([*around, *_queue_dates(module, job_id)])
    return found


def queue_dates(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """When the job was submitted and when it started, by `job_variables`; {} if it is unknown."""
    dates = environ.get(QUEUED, "").split()[2:]
    return dict(zip(("submitted_at", "started_at"), dates, strict=False))


def _queue_dates(module, job_id):
    """Two dates in UTC; none if the scheduler does not say."""
    try:
        times = (module.queue_times(job_id) if hasattr(module, "queue_times") else None) or ()
        dates = [f"{datetime.fromtimestamp(time, timezone.utc):{UTC_FORMAT}}" for time in times]
    except (Error, ValueError, OverflowError, OSError):
        return []  # a run is trained without them
    return dates if dates == sorted(dates) else []


def clock_seconds(text: str) -> int:
    """Seconds of a time as PBS and Grid Engine write it, as in 24:00:00 or 600.

    >>> clock_seconds("24:00:00"), clock_seconds("600")
    (86400, 600)
    """
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(float(part or 0))
    return total


def display_name(name: str) -> str:
    """The name of a scheduler in a sentence.

    >>> display_name("slurm"), display_name("pbs")
    ('Slurm', 'PBS')
    """
    return name.upper() if len(name) <= 3 else name.capitalize()


def output_of(command: Sequence[str]) -> str:
    """The output of a scheduler's program.

    Raises Error: it fails, does not exist, or does not answer.
    """
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise Error(f"{command[0]} is not on the path of this machine") from None
    except subprocess.TimeoutExpired:
        raise Error(f"{command[0]} did not answer within {TIMEOUT_S:g} s") from None
    if completed.returncode:
        lines = (completed.stderr or completed.stdout).strip().splitlines() or ["no message"]
        # The reason may be in any line: qsub prints it first, sites print greetings before it.
        message = "; ".join(line.strip() for line in lines[-MAX_LINES:] if line.strip())
        raise Error(f"{command[0]} failed (exit code {completed.returncode}): {message}")
    return completed.stdout


def runs_of_jobs(scheduler: str, folder: Path) -> dict[str, str]:
    """{job id: id of its run, or ""} of the jobs submitted from a folder, by any executor."""
    module = plugins.load("schedulers", scheduler)
    others = module.jobs_of_folder(folder) if hasattr(module, "jobs_of_folder") else {}
    return watched_runs(folder) | others


def watched_runs(folder: Path) -> dict[str, str]:
    """{job id: id of its run, or ""} of the jobs that cluster_job.py submitted and watches."""
    paths = (path for path in (folder / WATCHED).glob("*") if path.suffix not in WATCH_SUFFIXES)
    runs = {}
    for path in paths:
        with contextlib.suppress(OSError):  # the job has just ended
            runs[path.name] = path.read_text().strip()
    return runs
