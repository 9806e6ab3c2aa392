"""Schedulers of clusters, one file each: what they say about jobs and queues.

Snakemake's executor plugins submit and watch jobs; asked here is what they do not say. A file
defines:
    JOB_ID: the environment variable that names the job inside a job.
    PROGRAMS: what must be on the path, as in `tools.missing`.
    QUEUE: the resource of a Snakemake profile that names the queue (or partition).
    queues(): {name: Queue}, those one may submit to.
        Raises Error where the scheduler does not answer.
    fates(job_ids): {job_id: Fate} of those that the scheduler knows; {} where it does not answer.
    resources(job): what Snakemake's executor plugin is told beside what all are told, from a
        jobs.Job, as {name: value or None}.
    wait_command(asked, script, folder): submits a script and waits for its end, a list; the job is
        a cluster_jobs.Asked and says in `folder` what it prints. The job's id is the first number
        that it prints.
    CANCEL: the program that cancels a job of that id.
    hosts(environ): names of the allocation's nodes, from the variables inside a job; [] if unknown.
    OPEN_MPI: the name of Open MPI's component that knows it, as `ompi_info` lists them.
and where it has it:
    REMOTE_SHELL: the command that starts another on a node of the job, as rsh and ssh do.
    on_each_node(asked): what is put before a command for it to run on each node of such a job.
    accounts(): names of the accounts that this user may give.
    unwatched(profile): why Snakemake would not see jobs end, or None.
    unfit(jobs): [(why, job)] of the jobs.Job that it cannot be asked for in its terms.
and may define:
    clear(folder): cancels the jobs that a killed Snakemake left behind; returns their ids.
    variables(environ): those of the job that the executor plugin has taken from the environment.
    mend(plugin, every_s, settings): changes what lacks in Snakemake's executor plugin.
"""

import os
import subprocess
from collections import Counter
from dataclasses import dataclass, replace

from dlbench import Error
from dlbench.common import plugins

PATIENCE_S = 30.0
MOST_LINES = 8


@dataclass(frozen=True)
class Nodes:
    """Nodes of a queue that are alike; None where the scheduler does not say.

    `up` is False where they start no job now: drained, down, or not answering.
    """

    count: int
    cores: int | None = None
    memory_mb: int | None = None
    gpus: int | None = None
    up: bool = True

    def have(self, cores=0, memory_mb=0, gpus=0):
        """Whether each of them has so much of all."""
        wanted = (cores, self.cores), (memory_mb, self.memory_mb), (gpus, self.gpus)
        return all(offered is None or asked <= offered for asked, offered in wanted)

    def __str__(self):
        said = (self.cores, "cores"), (self.memory_mb, "MiB"), (self.gpus, "GPUs")
        has = ", ".join(f"{value} {unit}" for value, unit in said if value is not None)
        return f"{self.count} node{'s' if self.count != 1 else ''} of {has or 'any kind'}"


@dataclass(frozen=True)
class Queue:
    """What a queue (or partition) offers; `nodes` are its kinds of Nodes, () for unknown ones."""

    name: str
    default: bool = False
    up: bool = True
    time_limit_s: float | None = None
    nodes: tuple = ()

    @property
    def kinds(self):
        """Its nodes in words, whether they are up or not."""
        return "; ".join(map(str, alike(replace(nodes, up=True) for nodes in self.nodes)))

    def most(self, what):
        """The most that any node has of cores, memory_mb or gpus; None where nothing is said."""
        found = (getattr(nodes, what) for nodes in self.nodes)
        return max((value for value in found if value is not None), default=None)

    def count(self, up=False, **each):
        """How many nodes have so much of cores, memory_mb and gpus; those that are up, or all."""
        return sum(n.count for n in self.nodes if n.have(**each) and (n.up or not up))


def alike(nodes):
    """Nodes with those that are alike put together.

    >>> [str(kind) for kind in alike([Nodes(2, cores=8), Nodes(1, cores=4), Nodes(1, cores=8)])]
    ['3 nodes of 8 cores', '1 node of 4 cores']
    """
    counts = Counter()
    for one in nodes:
        counts[replace(one, count=1)] += one.count
    return tuple(replace(kind, count=count) for kind, count in counts.items())


@dataclass(frozen=True)
class Fate:
    """How a job stands or ended.

    `state` is the scheduler's own word. `status` is running (also: waiting), ok, or what becomes of
    a run in it: failed, oom or timeout. The latter two would repeat themselves, a failure may pass.
    """

    state: str
    status: str


def job(environ=os.environ):
    """(name of the scheduler, id) of the job this process runs in; None outside of one."""
    variables = {
        n: plugins.constants("schedulers", n)["JOB_ID"] for n in plugins.names("schedulers")
    }
    # The most telling first: plain JOB_ID, as Grid Engine has it, may be somebody else's.
    for name, variable in sorted(variables.items(), key=lambda item: -len(item[1])):
        if environ.get(variable):
            return name, environ[variable]
    return None


def called(name):
    """A scheduler's name in a sentence.

    >>> called("slurm"), called("pbs")
    ('Slurm', 'PBS')
    """
    return name.upper() if len(name) <= 3 else name.capitalize()


def ask(command):
    """What a scheduler's program prints.

    Raises:
        Error: it fails, is not there, or does not answer.
    """
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except FileNotFoundError:
        raise Error(f"{command[0]} is not on the path of this machine") from None
    except subprocess.TimeoutExpired:
        raise Error(f"{command[0]} did not answer within {PATIENCE_S:g} s") from None
    if answer.returncode:
        said = (answer.stderr or answer.stdout).strip().splitlines() or ["no message"]
        # The reason is in the first lines, as of qsub, or in the last, below what a site greets by.
        said = "; ".join(line.strip() for line in said[-MOST_LINES:] if line.strip())
        raise Error(f"{command[0]} failed (exit code {answer.returncode}): {said}")
    return answer.stdout


def ask_often(executor, every_s):
    """Let an executor of Snakemake wait for so long at most between two questions on its jobs."""
    theirs = executor.next_seconds_between_status_checks

    def shortened(self):
        return min(theirs.fget(self), every_s)

    executor.next_seconds_between_status_checks = property(shortened, theirs.fset)
