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
and where it has it:
    on_each_node(asked): what is put before a command for it to run on each node of such a job.
    accounts(): names of the accounts that this user may give.
    unwatched(profile): why Snakemake would not see jobs end, or None.
and may define:
    clear(folder): cancels the jobs that a killed Snakemake left behind; returns their ids.
    variables(environ): those of the job that the executor plugin has taken from the environment.
    mend(plugin, every_s, settings): changes what lacks in Snakemake's executor plugin.
"""

import os
import subprocess
from dataclasses import dataclass

from dlbench import Error, plugins

PATIENCE_S = 30.0


@dataclass(frozen=True)
class Queue:
    """What a queue (or partition) offers; None where the scheduler does not say.

    Of nodes that differ, the most that any has.
    """

    name: str
    default: bool = False
    up: bool = True
    time_limit_s: float | None = None
    nodes: int | None = None
    cores_per_node: int | None = None
    memory_mb_per_node: int | None = None
    gpus_per_node: int | None = None


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
        raise Error(f"{command[0]} failed (exit code {answer.returncode}): {said[-1]}")
    return answer.stdout


def ask_often(executor, every_s):
    """Let an executor of Snakemake wait for so long at most between two questions on its jobs."""
    theirs = executor.next_seconds_between_status_checks

    def shortened(self):
        return min(theirs.fget(self), every_s)

    executor.next_seconds_between_status_checks = property(shortened, theirs.fset)
