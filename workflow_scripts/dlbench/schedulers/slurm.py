"""Slurm."""

import getpass
import os
import re
import time
from dataclasses import replace
from pathlib import Path

from dlbench import Error
from dlbench.common import host_lists
from dlbench.schedulers import Fate, Nodes, Queue, alike, ask
from dlbench.schedulers._slurm_plugin import mend as mend

JOB_ID = "SLURM_JOB_ID"
PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo")
QUEUE = "slurm_partition"
CANCEL = "scancel"
OPEN_MPI = "slurm"
# Options of sbatch by the resources that the executor plugin makes them from.
OPTIONS = {
    "slurm_partition": "partition", "slurm_account": "account", "constraint": "constraint",
    "qos": "qos", "reservation": "reservation", "clusters": "clusters",
}  # fmt: skip

CANCEL_PATIENCE_S = 180.0  # supervisors may write a last checkpoint

ALIVE = (
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING",
    "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "SIGNALING", "STAGE_OUT", "STOPPED",
)  # fmt: skip
# How states begin in which a node starts no job.
UNUSABLE = ("down", "drain", "drng", "fail", "maint", "inval", "unknown", "future")
ENDS = {"COMPLETED": "ok", "TIMEOUT": "timeout", "DEADLINE": "timeout", "OUT_OF_MEMORY": "oom"}


def queues():
    what = "--format=%P|%a|%l|%D|%c|%m|%G|%T"
    found = {}
    # Without --exact sinfo puts unlike nodes into one line.
    for line in ask(["sinfo", "--noheader", "--exact", what]).splitlines():
        name, up, limit, count, cores, memory, gres, state = line.split("|")
        nodes = Nodes(
            count=int(count),
            cores=int(cores.rstrip("+")),
            memory_mb=int(memory.rstrip("+")),
            gpus=_gpus(gres),
            # With an asterisk: it does not answer.
            up=not state.lower().startswith(UNUSABLE) and not state.endswith("*"),
        )
        one = found.get(name) or Queue(
            name=name.rstrip("*"),
            default=name.endswith("*"),
            up=up == "up",
            time_limit_s=seconds(limit),
        )
        found[name] = replace(one, nodes=alike((*one.nodes, nodes)))
    return {queue.name: queue for queue in found.values()}


def fates(job_ids):
    if not job_ids:
        return {}
    listed = ",".join(sorted(job_ids))
    found = {}
    # squeue forgets jobs after a while, sacct is not everywhere; what both know squeue knows best.
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
                found[job_id] = _fate(state)
    return found


def clear(folder):
    """Cancel the jobs that a killed Snakemake left in the queue, and wait for their end.

    Args:
        folder: that of the workflow, where they were submitted.

    Raises:
        Error: Slurm does not answer, or they do not end.
    """
    deadline = time.monotonic() + CANCEL_PATIENCE_S
    cancelled = set()
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
    listed = ask(["squeue", "--me", "--noheader", "--format=%i|%Z|%k"]).splitlines()
    jobs = (line.split("|", 2) for line in listed if line)
    # As snakemake-executor-plugin-slurm comments upon its jobs.
    return {
        job_id
        for job_id, place, comment in jobs
        if place == str(folder) and comment.startswith(("rule_", "group_"))
    }


def resources(job):
    """For snakemake-executor-plugin-slurm 2.8.0.

    - `mpi` keeps it from starting Snakemake itself by srun, as one task that holds all cores.
    - GPUs by node: its own resources ask for a total, and for tasks by GPU.
    """
    extra = [job.extra] if job.extra else []
    extra += ["--exclusive"] if job.exclusive else []
    extra += [f"--ntasks-per-node={job.tasks_per_node}"] if job.nodes > 1 else []
    if job.gpus_per_node:
        extra.append(
            f"--gpus-per-node={job.gpu_request.removeprefix('gpu:')}:{job.gpus_per_node}"
            if ":" in job.gpu_request
            else f"--gpus-per-node={job.gpus_per_node}"
        )
    return {"slurm_extra": " ".join(extra) or None, "mpi": "srun" if job.tasks > 1 else None}


def wait_command(asked, script, folder):
    command = ["sbatch", "--parsable", "--wait", f"--job-name={asked.name}"]
    command += [f"--output={folder}/job.out", f"--time={asked.minutes}"]
    command += [f"--nodes={asked.nodes}", f"--ntasks-per-node={asked.tasks_per_node}"]
    command += [f"--cpus-per-task={asked.cores_per_node // asked.tasks_per_node}"]
    command += [f"--mem={asked.memory_mb}"] if asked.memory_mb else []
    if asked.gpus_per_node:
        kind = asked.gpu_request.partition(":")[2]
        command.append(f"--gpus-per-node={kind + ':' if kind else ''}{asked.gpus_per_node}")
    given = {OPTIONS[name]: value for name, value in asked.given.items() if name in OPTIONS}
    command += [f"--{option}={value}" for option, value in given.items()]
    return [*command, *asked.extra, str(script)]


def on_each_node(asked):
    return [
        "srun", f"--nodes={asked.nodes}", f"--ntasks={asked.nodes * asked.tasks_per_node}",
        # Since 22.05 srun does not know how many the job has.
        f"--cpus-per-task={asked.cores_per_node // asked.tasks_per_node}",
        "--mpi=none", "--cpu-bind=none",
    ]  # fmt: skip


def accounts():
    """Names of the accounts that this user may give; [] where Slurm keeps none.

    Raises:
        Error: the accounting does not answer.
    """
    show = ["show", "associations", f"user={getpass.getuser()}", "format=Account"]
    lines = ask(["sacctmgr", "--noheader", "--parsable2", *show]).splitlines()
    return sorted({line.strip() for line in lines if line.strip()})


def unwatched(profile):
    """Why Snakemake would not see jobs end, with what to do; None where it would.

    Its plugin asks sacct where there is such a program, also where Slurm keeps no accounts: it
    would wait for ever.

    Args:
        profile: what a profile's file says.
    """
    if profile.get("slurm-status-command", "sacct") != "sacct":
        return None
    try:
        ask(["sacct", "-X", "--noheader", "--format=JobID"])
    except Error as error:
        return f"{error}: write `slurm-status-command: squeue` into the profile"
    return None


def variables(environ):
    """Those that Slurm gave the job and snakemake-executor-plugin-slurm-jobstep 0.6.1 takes away.

    mpirun needs SLURM_NODELIST and SLURM_TASKS_PER_NODE, srun may need SLURM_CONF. The shell that
    Slurm started has them all.
    """
    job_id, pid = environ[JOB_ID], os.getppid()
    while pid > 1:
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
        given = dict(word.split("=", 1) for word in words if word.startswith("SLURM_"))
        if given.get(JOB_ID) == job_id and "SLURM_JOB_NODELIST" in given:
            return {name: value for name, value in given.items() if name not in environ}
    return {}


def hosts(environ):
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    return host_lists.expand_hosts(listed) if listed else []


def seconds(text):
    """Seconds in Slurm's notation of a time; None where there is no limit.

    >>> [seconds(text) for text in ("1-02:00:00", "30:00", "infinite")]
    [93600, 1800, None]
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not match:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _fate(state):
    word = state.split()[0].rstrip("+")  # as in CANCELLED by 0
    return Fate(state, "running" if word in ALIVE else ENDS.get(word, "failed"))


def _gpus(gres):
    """GPUs in a list of resources such as gpu:a100:4(S:0-1),nvme:1."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres)
    return sum(map(int, counts))
