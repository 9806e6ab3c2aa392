"""PBS: OpenPBS and PBS Professional; jobs of Torque are understood too.

Written from its manuals, never run against a server. Its output is read as text, since its JSON is
invalid if the environment of a job has quotes.
"""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path

from dlbench import Error
from dlbench.common import networks
from dlbench.schedulers import (
    Job,
    JobState,
    Nodes,
    Queue,
    clock_seconds,
    group_alike,
    output_of,
)

JOB_ID = "PBS_JOBID"
PROGRAMS = ("qsub", "qstat", "qdel")
QUEUE = "queue"
QUEUED = ("qtime", "stime")  # of a job: into the queue, out of it
CANCEL = "qdel"
OPEN_MPI = "tm"
REMOTE_SHELL = "pbs_tmrsh"

# States of a node in which it starts no jobs.
UNUSABLE = {"offline", "down", "stale", "unresolvable", "state-unknown", "unknown"}
PENDING = ("Q", "H", "W")  # queued, held, waiting for its time
# PBS says so as it puts a job into the queue, and where others use what it asks for.
NORMAL_REASONS = (
    "state Q", "Not Running: Insufficient amount of resource", "Not Running: Not enough",
)  # fmt: skip
ENDED = ("F", "C", "X")  # finished; completed in Torque; expired
# Exit statuses of jobs over a limit; if PBS signalled the job, it may give 256 and the signal.
TIMEOUTS = {-29}
OUT_OF_MEMORY = {-26, -27}


def queues() -> dict[str, Queue]:
    """The queues that users may submit to, by name."""
    default = re.search(
        r"^\s+default_queue = (\S+)", _joined(output_of(["qstat", "-B", "-f"])), re.M
    )
    nodes = _records(output_of(["pbsnodes", "-a"]), r"^(\S+)$")
    queues = {}
    for name, queue in _records(output_of(["qstat", "-Q", "-f"]), r"^Queue: (\S+)").items():
        if queue.get("queue_type") == "Route":
            continue
        # A node that is assigned to a queue serves no other.
        nodes_of_queue = [n for n in nodes.values() if n.get("queue") == name]
        nodes_of_queue = nodes_of_queue or [n for n in nodes.values() if "queue" not in n]
        limit = queue.get("resources_max.walltime")
        queues[name] = Queue(
            name=name,
            default=default is not None and default[1] == name,
            up=queue.get("enabled") == queue.get("started") == "True",
            time_limit_s=clock_seconds(limit) if limit else None,
            nodes=group_alike(map(_node, nodes_of_queue)),
        )
    return queues


def job_states(job_ids: Collection[str]) -> dict[str, JobState]:
    """{job id: JobState} of the jobs that the scheduler knows."""
    jobs = _jobs(sorted(job_ids))
    return {job_id: _job_state(job) for job_id, job in jobs.items() if job_id in job_ids}


def waiting(job_ids: Collection[str]) -> dict[str, str]:
    """Why jobs have not started, by id."""
    return {
        job_id: job.get("comment") or f"state {job['job_state']}"
        for job_id, job in _jobs(sorted(job_ids)).items()
        if job_id in job_ids and job["job_state"] in PENDING
    }


def queue_times(job_id: str) -> tuple[float, float] | None:
    """When a running job was submitted and when it started."""
    fields = _jobs([job_id]).get(job_id, {})
    if not fields.get("qtime") or not fields.get("stime"):
        return None
    dates = (datetime.strptime(fields[name].strip(), "%a %b %d %H:%M:%S %Y") for name in QUEUED)
    submitted, started = (date.timestamp() for date in dates)
    return submitted, started


def hosts(environ: Mapping[str, str]) -> list[str]:
    """Names of the nodes of a job, from its variables; [] if unknown."""
    try:
        lines = Path(environ["PBS_NODEFILE"]).read_text().split()
    except (KeyError, OSError):
        return []
    return list(dict.fromkeys(lines))


def submission(request: Job, logs: str | Path) -> list[str]:
    """The command that submits a job, without its script."""
    chunk = [
        f"ncpus={request.cores_per_node}",
        f"mpiprocs={request.tasks_per_node}",
        f"mem={request.memory_mb}mb",
    ]
    gpus = []
    if request.gpus_per_node:
        name, _, kind = request.gpu_request.partition(":")
        gpus = [f"n{name}s={request.gpus_per_node}", *([f"{name}_type={kind}"] if kind else [])]
    hosts = networks.expand_hosts(request.node)
    # A chunk for each node that is named, or one for as many as there are.
    chunks = [["1", *chunk, f"host={host}", *gpus] for host in hosts]
    chunks = chunks or [[str(request.nodes), *chunk, *gpus]]
    selected = "+".join(map(":".join, chunks))
    place = "scatter:excl" if request.exclusive else "scatter"
    hours, minutes = divmod(request.time_min, 60)
    command = ["qsub", "-V", "-S", "/bin/sh", "-r", "n", "-j", "oe"]
    command += ["-o", f"{logs}/", "-N", request.name[:15]]
    for option, resource in (("-q", "queue"), ("-A", "account"), ("-P", "project")):
        command += [option, request.resources[resource]] if request.resources.get(resource) else []
    command += ["-l", f"select={selected}", "-l", f"place={place}"]
    return [*command, "-l", f"walltime={hours}:{minutes:02}:00", *request.options]


def wait_command(request: Job, script: str | Path, folder: str | Path) -> list[str]:
    """The command that submits a script and waits for its end."""
    return [*submission(request, folder), "-W", "block=true", str(script)]


def _jobs(job_ids):
    """{job id: fields} of the jobs that qstat knows."""
    if not job_ids:
        return {}
    try:
        text = output_of(["qstat", "-x", "-f", *job_ids])
        if text.lstrip().startswith("<"):  # -x means XML in Torque, which keeps ended jobs anyway
            text = output_of(["qstat", "-f", *job_ids])
        return _records(text, r"^Job Id: (\S+)")
    except Error:
        # It fails for all jobs if one of them is unknown.
        if len(job_ids) == 1:
            return {}
        return {key: job for job_id in job_ids for key, job in _jobs([job_id]).items()}


def _job_state(job):
    state = job["job_state"]
    if state not in ENDED:
        return JobState(state, "running")
    code = job.get("Exit_status", job.get("exit_status"))
    if code is None:  # deleted before it ran
        return JobState(f"{state}, no exit status", "failed")
    end = f"{state}, exit status {code}"
    comment = job.get("comment", "").lower()
    if int(code) == 0:
        return JobState(end, "ok")
    if int(code) in TIMEOUTS or "walltime" in comment or _overtime(job):
        return JobState(end, "timeout")
    if int(code) in OUT_OF_MEMORY or re.search(r"\bmem(ory)?\b.*exceed|exceed.*\bmem", comment):
        return JobState(end, "oom")
    return JobState(end, "failed")


def _overtime(job):
    """Whether a job used all the time that it requested, so that it was killed for that."""
    used, limit = job.get("resources_used.walltime"), job.get("Resource_List.walltime")
    return bool(used and limit) and clock_seconds(used) >= clock_seconds(limit)


def _records(text, heading):
    """{name in the heading: fields} of blocks of `key = value` lines."""
    records: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for line in _joined(text).splitlines():
        match = re.search(heading, line)
        if match:
            fields = records.setdefault(match[1], {})
        elif " = " in line:
            key, _, value = line.strip().partition(" = ")
            fields[key] = value
    return records


def _joined(text):
    """A text whose folded lines, which go on after a tab, are joined."""
    return text.replace("\n\t", "")


def _node(fields):
    def has(resource, read, default=None):
        text = fields.get(f"resources_available.{resource}")
        return read(text) if text else default

    up = not UNUSABLE & set(fields.get("state", "").lower().split(","))
    return Nodes(1, has("ncpus", int), has("mem", _mb), has("ngpus", int, default=0), up)


def _mb(text):
    """MiB in PBS's notation of a size.

    >>> [_mb(text) for text in ("263804336kb", "256gb", "1024b")]
    [257621, 262144, 0]
    """
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.lower())
    return int(int(match[1]) * 1024 ** (" kmgt".index(match[2] or " ") - 2)) if match else 0
