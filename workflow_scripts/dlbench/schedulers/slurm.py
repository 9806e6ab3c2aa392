"""Slurm."""

import getpass
import os
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common import host_lists
from dlbench.schedulers import (
    Fate,
    Job,
    JobRequest,
    Limits,
    Nodes,
    Queue,
    Waiting,
    ask,
    group_alike,
    local_seconds,
)
from dlbench.schedulers._slurm_plugin import mend as mend

JOB_ID = "SLURM_JOB_ID"
PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo")
QUEUE = "slurm_partition"
CANCEL = "scancel"
OPEN_MPI = "slurm"
# Options of sbatch, by the resources of the executor plugin.
OPTIONS = {
    "slurm_partition": "partition", "slurm_account": "account", "constraint": "constraint",
    "qos": "qos", "reservation": "reservation", "clusters": "clusters",
}  # fmt: skip

# A BeginTime is what Slurm gives a job that it has queued again.
TURN = ("None", "Priority", "Resources", "BeginTime", "Cleaning", "Prolog")
LOOKS_EVERY_S = 10.0  # Snakemake's own default
CANCEL_PATIENCE_S = 180.0  # supervisors may write a last checkpoint

ALIVE = (
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING",
    "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "SIGNALING", "STAGE_OUT", "STOPPED",
)  # fmt: skip
# Beginnings of the states of nodes that start no jobs.
UNUSABLE = ("down", "drain", "drng", "fail", "maint", "inval", "unknown", "future")
TRAINING = "rule_train_wildcards_"  # begins the comment of a run's job
ENDS = {
    "COMPLETED": "ok", "TIMEOUT": "timeout", "DEADLINE": "timeout", "OUT_OF_MEMORY": "oom",
    **dict.fromkeys(("PREEMPTED", "CANCELLED", "NODE_FAIL", "BOOT_FAIL"), "interrupted"),
}  # fmt: skip


def queues() -> dict[str, Queue]:
    """The queues that users may submit to, by name."""
    columns = "--format=%P|%a|%l|%D|%c|%m|%G|%T"
    queues: dict[str, Queue] = {}
    # Without --exact sinfo joins nodes that differ in one line.
    for line in ask(["sinfo", "--noheader", "--exact", columns]).splitlines():
        name, up, limit, count, cores, memory, gres, state = line.split("|")
        nodes = Nodes(
            count=int(count),
            cores=int(cores.rstrip("+")),
            memory_mb=int(memory.rstrip("+")),
            gpus=_gpus(gres),
            # An asterisk: the node does not answer.
            up=not state.lower().startswith(UNUSABLE) and not state.endswith("*"),
        )
        queue = queues.get(name) or Queue(
            name=name.rstrip("*"),
            default=name.endswith("*"),
            up=up == "up",
            time_limit_s=seconds(limit),
        )
        queues[name] = replace(queue, nodes=group_alike((*queue.nodes, nodes)))
    return {queue.name: queue for queue in queues.values()}


def fates(job_ids: Collection[str]) -> dict[str, Fate]:
    """The fates of the jobs that the scheduler knows, by id."""
    if not job_ids:
        return {}
    listed = ",".join(sorted(job_ids))
    fates = {}
    # squeue forgets jobs after a while, and not every site has sacct; of both squeue is newer.
    for command in (
        ["sacct", "-X", "--noheader", "--parsable2", "--format=JobID,State", "--jobs", listed],
        ["squeue", "--noheader", "--states=all", "--format=%i|%T", "--jobs", listed],
    ):
        try:
            lines = ask(command).splitlines()
        except Error:
            continue
        for line in lines:
            job_id, _, state = line.partition("|")
            if job_id in job_ids and state:
                fates[job_id] = _fate(state)
    return fates


def queued(job_id: str) -> tuple[float, float] | None:
    """When a running job was submitted and when it started."""
    line = ask(["squeue", "--noheader", "--format=%V|%S", "--jobs", job_id]).strip()
    if not line:
        return None
    submitted, started = (local_seconds(text, "%Y-%m-%dT%H:%M:%S") for text in line.split("|"))
    return submitted, started


def waiting(folder: Path) -> dict[str, Waiting]:
    """The jobs of the workflow in a folder that have not started, and why, by id."""
    try:
        listed = _of_workflow(folder, ["--states=PENDING"])
    except Error:
        return {}
    return {
        job_id: Waiting(comment.removeprefix(TRAINING) if TRAINING in comment else "", reason)
        for job_id, reason, comment in listed
    }


def limits(account: str | None, qos: str | None, queue: str | None) -> list[Limits]:
    """What QOS and associations let this user's jobs ask for.

    Args:
        account, qos, queue: that jobs ask for; None: the default.

    Raises:
        Error: Slurm keeps no accounts, or does not answer.
    """
    columns = "format=Account,Partition,DefaultQOS,MaxWall,MaxTRES"
    user = f"user={getpass.getuser()}"
    lines = ask(["sacctmgr", "--noheader", "--parsable2", "show", "associations", user, columns])
    found, used = [], {qos, _qos_of_partition(queue)}
    for its_account, partition, default, wall, tres in _columns(lines, 5):
        if account in (None, its_account) and partition in ("", queue):
            found.append(_limits(f"the association with account {its_account}", wall, tres))
            used |= set() if qos else {default}
    columns = "format=Name,MaxWall,MaxTRES"
    lines = ask(["sacctmgr", "--noheader", "--parsable2", "show", "qos", columns])
    for name, wall, tres in _columns(lines, 3):
        if name in used:
            found.append(_limits(f"QOS {name}", wall, tres))
    return found


def _columns(text, number):
    return [line.split("|") for line in text.splitlines() if line.count("|") == number - 1]


def _qos_of_partition(name):
    if not name:
        return None
    match = re.search(r"\bQoS=(\S+)", ask(["scontrol", "--oneliner", "show", "partition", name]))
    return match and match[1]


def _limits(source, wall, tres):
    most = dict(part.split("=", 1) for part in tres.split(",") if "=" in part)
    limit_s = seconds(wall)

    def number(name):
        return int(most[name]) if most.get(name, "").isdigit() else None

    return Limits(
        source,
        minutes=limit_s / 60 if limit_s is not None else None,
        nodes=number("node"),
        cores=number("cpu"),
        gpus=number("gres/gpu"),
    )


def clear(folder: Path) -> set[str]:
    """Cancel the jobs that a killed Snakemake left in the queue, and wait for their end.

    Args:
        folder: of the workflow, from which they were submitted.

    Returns:
        The ids of the jobs.

    Raises:
        Error: Slurm does not answer, or the jobs do not end.
    """
    deadline = time.monotonic() + CANCEL_PATIENCE_S
    cancelled: set[str] = set()
    while left := _left(folder):
        if not left <= cancelled:
            ask(["scancel", *sorted(left)])
            cancelled |= left
        if time.monotonic() > deadline:
            raise Error(
                f"jobs of an earlier start were cancelled and do not end: {', '.join(sorted(left))}"
            )
        time.sleep(1)
    return cancelled


def _left(folder):
    return {job_id for job_id, _, _ in _of_workflow(folder)}


def _of_workflow(folder, states=()):
    """(id, reason, comment) of the jobs in the queue that were submitted from a folder."""
    command = ["squeue", "--me", "--noheader", *states, "--format=%i|%Z|%r|%k"]
    jobs = (line.split("|", 3) for line in ask(command).splitlines() if line.count("|") >= 3)
    # The comments are those of snakemake-executor-plugin-slurm.
    return [
        (job_id, reason, comment)
        for job_id, place, reason, comment in jobs
        if place == str(folder) and comment.startswith(("rule_", "group_"))
    ]


def resources(job: Job) -> dict[str, Any]:
    """Resources for snakemake-executor-plugin-slurm 2.8.0.

    - `mpi` keeps it from starting Snakemake itself by srun, as one task that holds all cores.
    - GPUs are requested by node; its own resources request a total, and tasks by GPU.
    """
    extra = [job.extra] if job.extra else []
    extra += ["--exclusive"] if job.exclusive else []
    extra += [f"--nodelist={job.node}"] if job.node else []
    extra += [f"--ntasks-per-node={job.tasks_per_node}"] if job.nodes > 1 else []
    if job.gpus_per_node:
        extra.append(
            f"--gpus-per-node={job.gpu_request.removeprefix('gpu:')}:{job.gpus_per_node}"
            if ":" in job.gpu_request
            else f"--gpus-per-node={job.gpus_per_node}"
        )
    return {"slurm_extra": " ".join(extra) or None, "mpi": "srun" if job.tasks > 1 else None}


def wait_command(request: JobRequest, script: str | Path, folder: str | Path) -> list[str]:
    """The command that submits a script and waits for its end."""
    command = ["sbatch", "--parsable", "--wait", f"--job-name={request.name}"]
    command += [f"--output={folder}/job.out", f"--time={request.minutes}"]
    command += [f"--nodes={request.nodes}", f"--ntasks-per-node={request.tasks_per_node}"]
    command += [f"--cpus-per-task={request.cores_per_node // request.tasks_per_node}"]
    command += [f"--mem={request.memory_mb}"] if request.memory_mb else []
    if request.gpus_per_node:
        kind = request.gpu_request.partition(":")[2]
        command.append(f"--gpus-per-node={kind + ':' if kind else ''}{request.gpus_per_node}")
    command += [
        f"--{OPTIONS[name]}={value}" for name, value in request.resources.items() if name in OPTIONS
    ]
    return [*command, *request.extra, str(script)]


def on_each_node(request: JobRequest) -> list[str]:
    """The words before a command that make it run on each node of a job."""
    return [
        "srun",
        f"--nodes={request.nodes}",
        f"--ntasks={request.nodes * request.tasks_per_node}",
        # Since 22.05 srun does not take it over from the job.
        f"--cpus-per-task={request.cores_per_node // request.tasks_per_node}",
        *([] if request.speaks_mpi else ["--mpi=none"]),
        "--cpu-bind=none",
    ]


def accounts() -> list[str]:
    """Names of the accounts that this user may use; [] if Slurm keeps none.

    Raises:
        Error: the accounting does not answer.
    """
    show = ["show", "associations", f"user={getpass.getuser()}", "format=Account"]
    lines = ask(["sacctmgr", "--noheader", "--parsable2", *show]).splitlines()
    return sorted({line.strip() for line in lines if line.strip()})


def unwatched(profile: Mapping[str, Any]) -> str | None:
    """Why Snakemake would not notice that jobs end, and the remedy; None if it would.

    Its plugin asks sacct if there is such a program, even if Slurm keeps no accounts, and then
    waits for ever.

    Args:
        profile: the content of a profile's file.
    """
    if profile.get("slurm-status-command", "sacct") != "sacct":
        return None
    try:
        ask(["sacct", "-X", "--noheader", "--format=JobID"])
    except Error as error:
        return f"{error}: write `slurm-status-command: squeue` into the profile"
    return None


def forgets(profile: Mapping[str, Any]) -> str | None:
    """What comes of it if Slurm forgets jobs before Snakemake asks for them again; None if not.

    Args:
        profile: the content of a profile's file.
    """
    every_s = float(profile.get("seconds-between-status-checks", LOOKS_EVERY_S))
    try:
        ask(["sacct", "-X", "--noheader", "--format=JobID"])
        return None  # accounts remember them
    except Error:
        pass
    try:
        match = re.search(r"^MinJobAge\s*=\s*(\d+)", ask(["scontrol", "show", "config"]), re.M)
    except Error:
        return None
    if not match or int(match[1]) >= 3 * every_s:
        return None
    return (
        f"Slurm keeps no accounts and forgets jobs {match[1]} s after their end (MinJobAge), and "
        f"Snakemake looks every {every_s:g} s: it would take some that ended well for failed and "
        "start them again, which finds their results; ask for MinJobAge=300, Slurm's default"
    )


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of the job that snakemake-executor-plugin-slurm-jobstep 0.6.1 removes.

    mpirun needs SLURM_NODELIST and SLURM_TASKS_PER_NODE, srun may need SLURM_CONF. They are read
    from the shell that Slurm started, an ancestor of this process.
    """
    job_id, pid = environ[JOB_ID], os.getppid()
    while pid > 1:
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
        of_slurm = dict(word.split("=", 1) for word in words if word.startswith("SLURM_"))
        if of_slurm.get(JOB_ID) == job_id and "SLURM_JOB_NODELIST" in of_slurm:
            return {name: value for name, value in of_slurm.items() if name not in environ}
    return {}


def hosts(environ: Mapping[str, str]) -> list[str]:
    """Names of the nodes of a job, from its variables; [] if unknown."""
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    return host_lists.expand_hosts(listed) if listed else []


def addresses(names: Collection[str]) -> dict[str, str]:
    """By which address Slurm itself reaches nodes: {name: NodeAddr} of those that it knows.

    Args:
        names: of nodes; none: all.
    """
    try:
        lines = ask(
            ["scontrol", "show", "node", "--oneliner", *([",".join(names)] if names else [])]
        )
    except Error:
        return {}
    found = re.findall(r"^NodeName=(\S+) .*?\bNodeAddr=(\S+)", lines, re.MULTILINE)
    return {name: address for name, address in found if not names or name in names}


def seconds(text: str) -> int | None:
    """Seconds in Slurm's notation of a time; None without a limit.

    >>> [seconds(text) for text in ("1-02:00:00", "30:00", "infinite")]
    [93600, 1800, None]
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not match:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _fate(state):
    word = state.split()[0].rstrip("+")  # e.g. of CANCELLED by 0
    return Fate(state, "running" if word in ALIVE else ENDS.get(word, "failed"))


def _gpus(gres):
    """GPUs in a list of resources such as gpu:a100:4(S:0-1),nvme:1."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres)
    return sum(map(int, counts))
