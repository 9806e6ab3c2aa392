"""Slurm."""

import re

from dlbench import Error, cluster
from dlbench.schedulers import Fate, Queue, ask

JOB_ID = "SLURM_JOB_ID"
PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo")
QUEUE = "slurm_partition"

ALIVE = (
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING",
    "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "SIGNALING", "STAGE_OUT", "STOPPED",
)  # fmt: skip
ENDS = {"COMPLETED": "ok", "TIMEOUT": "timeout", "DEADLINE": "timeout", "OUT_OF_MEMORY": "oom"}


def queues():
    lines = ask(["sinfo", "--noheader", "--format=%P|%a|%l|%D|%c|%m|%G"]).splitlines()
    found = {}
    for line in lines:
        name, up, limit, nodes, cores, memory, gres = line.split("|")
        one = Queue(
            name=name.rstrip("*"),
            default=name.endswith("*"),
            up=up == "up",
            time_limit_s=seconds(limit),
            nodes=int(nodes),
            # sinfo marks with + that other nodes have more.
            cores_per_node=int(cores.rstrip("+")),
            memory_mb_per_node=int(memory.rstrip("+")),
            gpus_per_node=_gpus(gres),
        )
        found[one.name] = _both(found[one.name], one) if one.name in found else one
    return found


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


def hosts(environ):
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    return cluster.expand_hosts(listed) if listed else []


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


def _both(some, others):
    """A queue of two kinds of node."""
    limits = some.time_limit_s, others.time_limit_s
    return Queue(
        name=some.name,
        default=some.default,
        up=some.up,
        time_limit_s=None if None in limits else max(limits),
        nodes=some.nodes + others.nodes,
        cores_per_node=max(some.cores_per_node, others.cores_per_node),
        memory_mb_per_node=max(some.memory_mb_per_node, others.memory_mb_per_node),
        gpus_per_node=max(some.gpus_per_node, others.gpus_per_node),
    )
