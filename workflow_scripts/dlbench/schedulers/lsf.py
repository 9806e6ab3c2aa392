"""LSF. Written from its manuals, never run against a real one."""

import contextlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from dlbench import Error
from dlbench.common import networks
from dlbench.schedulers import Job, JobState, Queue, output_of

JOB_ID = "LSB_JOBID"
PROGRAMS = ("bsub", "bjobs", "bkill", "bhist", "badmin", "lsclusters")
QUEUE = "lsf_queue"
CANCEL = "bkill"
OPEN_MPI = "lsf"
REMOTE_SHELL = "blaunch"

ENDS = {
    "TERM_RUNLIMIT": "timeout", "TERM_DEADLINE": "timeout", "TERM_MEMLIMIT": "oom",
    **dict.fromkeys(("TERM_PREEMPT", "TERM_OWNER", "TERM_ADMIN"), "interrupted"),
}  # fmt: skip
PENDING = "jobid pend_reason delimiter='|'"
NORMAL_REASONS = (
    "Job slot limit reached", "Not enough job slot", "New job is waiting for scheduling",
)  # fmt: skip
FIELDS = "jobid stat exit_code exit_reason delimiter='|'"


def queues() -> dict[str, Queue]:
    """The queues that the user may submit to, by name."""
    queues = {}
    blocks = re.split(r"^QUEUE: ", output_of(["bqueues", "-l"]), flags=re.MULTILINE)[1:]
    for block in blocks:
        name = block.split(None, 1)[0]
        # The default limit comes before the maximum.
        limits = re.findall(r"^ *RUNLIMIT[^\n]*\n\s*([\d.]+) min", block, re.MULTILINE)
        queues[name] = Queue(
            name=name,
            default="This is the default queue" in block,
            up=bool(re.search(r"\sOpen:", block)),
            time_limit_s=float(limits[-1]) * 60 if limits else None,
        )
    return queues


def job_states(job_ids: Collection[str]) -> dict[str, JobState]:
    """{job id: JobState} of the jobs that the scheduler knows."""
    job_states = {
        job_id: _job_state(state, code, reason)
        for job_id, state, code, reason in _jobs(sorted(job_ids))
        if job_id in job_ids
    }
    for job_id in set(job_ids) - set(job_states):
        if job_state := _remembered(job_id):
            job_states[job_id] = job_state
    return job_states


def waiting(job_ids: Collection[str]) -> dict[str, str]:
    """Why jobs have not started, by id."""
    try:
        lines = output_of(["bjobs", "-p", "-noheader", "-o", PENDING]).splitlines()
    except Error:
        return {}
    jobs = (line.split("|", 1) for line in lines if "|" in line)
    return {job_id: why.strip() for job_id, why in jobs if job_id in job_ids}


def submission(request: Job, logs: str | Path) -> list[str]:
    """The command that submits a job, without its script, which must exist when the job starts."""
    slots = request.cores_per_node
    command = ["bsub", "-J", request.name, "-o", f"{logs}/%J.log", "-W", str(request.time_min)]
    command += ["-rn"]  # no requeue: a new job follows it
    for option, resource in (("-q", "lsf_queue"), ("-P", "lsf_project")):
        command += [option, request.resources[resource]] if request.resources.get(resource) else []
    command += ["-n", str(slots * request.nodes), "-R", f"span[ptile={slots}]"]
    command += ["-R", f"rusage[mem={_memory(request)}]"] if request.memory_mb else []
    if request.gpus_per_node:
        kind = request.gpu_request.partition(":")[2]
        model = f":gmodel={kind}" if kind else ""
        # The number is that of each host.
        command += ["-gpu", f"num={request.gpus_per_node}/host{model}"]
    command += ["-x"] if request.exclusive else []
    if request.node:
        command += ["-m", " ".join(networks.expand_hosts(request.node))]
    return [*command, *request.options, "sh"]


def _memory(request):
    """MiB to reserve for each slot, or for the job if the site counts memory by job."""
    by_job = request.resources.get("lsf_memory") == "job"
    return request.memory_mb if by_job else max(1, request.memory_mb // request.cores_per_node)


def job_id(output: str) -> str:
    """The id of a job in what `submission` prints.

    >>> job_id("Job <123> is submitted to default queue <normal>.")
    '123'
    """
    match = re.search(r"Job <(\d+)>", output)
    if not match:
        raise Error(f"bsub names no job: {output.strip() or 'it printed nothing'}")
    return match[1]


def wait_command(request: Job, script: str | Path, folder: str | Path) -> list[str]:
    """The command that submits a script and waits for its end."""
    program, *options = submission(request, folder)
    return [program, "-K", "-o", f"{folder}/job.out", *options, str(script)]


def hosts(environ: Mapping[str, str]) -> list[str]:
    """Names of the nodes of a job; [] if unknown.

    From "n1 4 n2 4", or from a file with a line for each slot, or from "n1 n1 n2 n2".
    """
    named = environ.get("LSB_MCPU_HOSTS", "").split()[::2]
    with contextlib.suppress(KeyError, OSError):
        named = named or Path(environ["LSB_DJOB_HOSTFILE"]).read_text().split()
    return list(dict.fromkeys(named or environ.get("LSB_HOSTS", "").split()))


def _jobs(job_ids):
    """(id, state, exit code, reason) of the jobs that bjobs lists."""
    if not job_ids:
        return []
    try:
        lines = output_of(["bjobs", "-a", "-noheader", "-o", FIELDS, *job_ids]).splitlines()
    except Error:
        # It fails for all jobs if one of them is unknown.
        return [] if len(job_ids) == 1 else [job for key in job_ids for job in _jobs([key])]
    return [line.split("|", 3) for line in lines if line.count("|") >= 3]


def _remembered(job_id):
    """The state of a job that bjobs no longer lists, by default an hour after its end."""
    try:
        text = re.sub(r"\n\s+", "", output_of(["bhist", "-n", "0", "-l", job_id]))
    except Error:
        return None
    if "Done successfully" in text:
        return _job_state("DONE", "-", "-")
    reason = re.search(r"TERM_\w+", text)
    if reason or "Exited" in text:
        return _job_state("EXIT", "-", reason[0] if reason else "-")
    return None


def _job_state(state, code, reason):
    if state == "DONE":
        return JobState(state, "ok")
    if state not in ("EXIT", "ZOMBI"):
        return JobState(state, "running")
    word = re.match(r"\w+", reason)
    end = f"{state}, {reason}" if word else f"{state}, exit code {code}"
    return JobState(end, ENDS.get(word[0], "failed") if word else "failed")
