"""PBS: OpenPBS and PBS Professional; jobs of Torque are understood too.

Written after its manuals, never run against a server. The text form is read, since its JSON is
not valid where a job's environment has quotes.
"""

import re
from pathlib import Path

from dlbench import Error
from dlbench.schedulers import Fate, Nodes, Queue, alike, ask

JOB_ID = "PBS_JOBID"
PROGRAMS = ("qsub", "qstat", "qdel")
QUEUE = "queue"
CANCEL = "qdel"
OPEN_MPI = "tm"
REMOTE_SHELL = "pbs_tmrsh"

# Of the states of a node, those in which it starts no job.
UNUSABLE = {"offline", "down", "stale", "unresolvable", "state-unknown", "unknown"}
ENDED = ("F", "C", "X")  # finished; completed in Torque; expired
# Exit statuses by which PBS says what limit it enforced; where it signalled the job, it may give
# 256 and the signal instead.
TIMEOUTS = {-29}
OUT_OF_MEMORY = {-26, -27}


def queues():
    default = re.search(r"^\s+default_queue = (\S+)", _joined(ask(["qstat", "-B", "-f"])), re.M)
    nodes = _records(ask(["pbsnodes", "-a"]), r"^(\S+)$")
    found = {}
    for name, queue in _records(ask(["qstat", "-Q", "-f"]), r"^Queue: (\S+)").items():
        if queue.get("queue_type") == "Route":
            continue
        # A node that belongs to a queue serves no other.
        own = [n for n in nodes.values() if n.get("queue") == name]
        own = own or [n for n in nodes.values() if "queue" not in n]
        limit = queue.get("resources_max.walltime")
        found[name] = Queue(
            name=name,
            default=bool(default) and default[1] == name,
            up=queue.get("enabled") == queue.get("started") == "True",
            time_limit_s=_seconds(limit) if limit else None,
            nodes=alike(map(_node, own)),
        )
    return found


def fates(job_ids):
    found = {}
    for job_id, job in _jobs(sorted(job_ids)).items():
        if job_id in job_ids:
            found[job_id] = _fate(job)
    return found


def resources(job):
    """Nothing: what it is submitted with is made from the resources that all have."""
    return {}


def hosts(environ):
    try:
        lines = Path(environ["PBS_NODEFILE"]).read_text().split()
    except (KeyError, OSError):
        return []
    return list(dict.fromkeys(lines))


def submission(asked, logs):
    """The command that submits a job, but for its script."""
    chunk = [
        f"select={asked.nodes}",
        f"ncpus={asked.cores_per_node}",
        f"mpiprocs={asked.tasks_per_node}",
        f"mem={asked.memory_mb}mb",
    ]
    if asked.gpus_per_node:
        name, _, kind = asked.gpu_request.partition(":")
        chunk.append(f"n{name}s={asked.gpus_per_node}")
        chunk += [f"{name}_type={kind}"] if kind else []
    place = "scatter:excl" if asked.exclusive else "scatter"
    hours, minutes = divmod(asked.minutes, 60)
    command = ["qsub", "-V", "-S", "/bin/sh", "-r", "n", "-j", "oe"]
    command += ["-o", f"{logs}/", "-N", asked.name[:15]]
    for option, resource in (("-q", "queue"), ("-A", "account"), ("-P", "project")):
        command += [option, asked.given[resource]] if asked.given.get(resource) else []
    command += ["-l", ":".join(chunk), "-l", f"place={place}"]
    return [*command, "-l", f"walltime={hours}:{minutes:02}:00", *asked.extra]


def wait_command(asked, script, folder):
    return [*submission(asked, folder), "-W", "block=true", str(script)]


def _jobs(job_ids):
    """What qstat says of jobs, {job id: fields}; jobs it does not know are left out."""
    if not job_ids:
        return {}
    try:
        text = ask(["qstat", "-x", "-f", *job_ids])
        if text.lstrip().startswith("<"):  # -x means XML in Torque, which keeps ended jobs anyway
            text = ask(["qstat", "-f", *job_ids])
        return _records(text, r"^Job Id: (\S+)")
    except Error:
        # It fails for all where one is not known.
        if len(job_ids) == 1:
            return {}
        return {key: job for one in job_ids for key, job in _jobs([one]).items()}


def _fate(job):
    state = job["job_state"]
    if state not in ENDED:
        return Fate(state, "running")
    code = job.get("Exit_status", job.get("exit_status"))
    if code is None:  # deleted before it ran
        return Fate(f"{state}, no exit status", "failed")
    said = f"{state}, exit status {code}"
    comment = job.get("comment", "").lower()
    if int(code) == 0:
        return Fate(said, "ok")
    if int(code) in TIMEOUTS or "walltime" in comment or _overtime(job):
        return Fate(said, "timeout")
    if int(code) in OUT_OF_MEMORY or re.search(r"\bmem(ory)?\b.*exceed|exceed.*\bmem", comment):
        return Fate(said, "oom")
    return Fate(said, "failed")


def _overtime(job):
    """Whether a job used all the time it asked for: then it was killed for that."""
    used, asked = job.get("resources_used.walltime"), job.get("Resource_List.walltime")
    return bool(used and asked) and _seconds(used) >= _seconds(asked)


def _records(text, heading):
    """Blocks of `key = value` lines by what their heading names."""
    found, fields = {}, {}
    for line in _joined(text).splitlines():
        match = re.search(heading, line)
        if match:
            fields = found.setdefault(match[1], {})
        elif " = " in line:
            key, _, value = line.strip().partition(" = ")
            fields[key] = value
    return found


def _joined(text):
    """Long lines in one piece: they are folded, and go on after a tab."""
    return text.replace("\n\t", "")


def _node(fields):
    def has(resource, read, unsaid=None):
        text = fields.get(f"resources_available.{resource}")
        return read(text) if text else unsaid

    up = not UNUSABLE & set(fields.get("state", "").lower().split(","))
    return Nodes(1, has("ncpus", int), has("mem", _mb), has("ngpus", int, unsaid=0), up)


def _seconds(text):
    """Seconds in PBS's notation of a time, as in 24:00:00.

    >>> _seconds("24:00:00")
    86400
    """
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(float(part or 0))
    return total


def _mb(text):
    """MiB in PBS's notation of a size.

    >>> [_mb(text) for text in ("263804336kb", "256gb", "1024b")]
    [257621, 262144, 0]
    """
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.lower())
    return int(int(match[1]) * 1024 ** (" kmgt".index(match[2] or " ") - 2)) if match else 0
