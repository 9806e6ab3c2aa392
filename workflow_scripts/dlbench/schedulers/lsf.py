"""LSF. Written from its manuals, never run against a real one."""

import contextlib
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.schedulers import Fate, Job, JobRequest, Queue, Waiting, ask
from dlbench.schedulers._lsf_plugin import mend as mend

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
PENDING = "jobid sub_cwd name pend_reason delimiter='|'"
RUN = re.compile(
    r"^Snakemake_rule_train:run_id=([^,]+?)___"
)  # names of snakemake-executor-plugin-lsf
TURN = ("Job slot limit reached", "Not enough job slot", "New job is waiting for scheduling")
FIELDS = "jobid stat exit_code exit_reason delimiter='|'"


def queues() -> dict[str, Queue]:
    """The queues that the user may submit to, by name."""
    queues = {}
    blocks = re.split(r"^QUEUE: ", ask(["bqueues", "-l"]), flags=re.MULTILINE)[1:]
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


def fates(job_ids: Collection[str]) -> dict[str, Fate]:
    """The fates of the jobs that the scheduler knows, by id."""
    fates = {
        job_id: _fate(state, code, reason)
        for job_id, state, code, reason in _jobs(sorted(job_ids))
        if job_id in job_ids
    }
    for job_id in set(job_ids) - set(fates):
        if fate := _remembered(job_id):
            fates[job_id] = fate
    return fates


def waiting(folder: Path) -> dict[str, Waiting]:
    """The jobs of the workflow in a folder that have not started, and why, by id."""
    try:
        lines = ask(["bjobs", "-p", "-noheader", "-o", PENDING]).splitlines()
    except Error:
        return {}
    jobs = (line.split("|", 3) for line in lines if line.count("|") >= 3)
    return {
        job_id: Waiting(run[1] if (run := RUN.search(name)) else "", reason.strip())
        for job_id, place, name, reason in jobs
        if place == str(folder) and name.startswith("Snakemake_")
    }


def resources(job: Job) -> dict[str, Any]:
    """Resources for snakemake-executor-plugin-lsf 0.3.3; {} without LSF.

    Its `cpus_per_task` are the slots of the whole job, and its `mem_mb` is shared by these slots;
    in other plugins these names mean something else.
    """
    if not shutil.which("bsub"):
        return {}
    slots_per_node = job.cores_per_task * job.tasks_per_node
    extra = [job.extra] if job.extra else []
    extra += ["-x"] if job.exclusive else []
    extra += [f"-m {job.node}"] if job.node else []
    if job.gpus_per_node:
        kind = job.gpu_request.partition(":")[2]
        # The number is that of each host.
        extra.append(f"-gpu num={job.gpus_per_node}/host" + (f":gmodel={kind}" if kind else ""))
    return {
        "cpus_per_task": slots_per_node * job.nodes,
        "mem_mb_per_cpu": max(1, job.memory_mb // slots_per_node),
        # Without it the plugin requests one host.
        "mpi": "mpirun" if job.nodes > 1 else None,
        "ptile": slots_per_node,
        "lsf_extra": " ".join(extra) or None,
    }


def wait_command(request: JobRequest, script: str | Path, folder: str | Path) -> list[str]:
    """The command that submits a script and waits for its end."""
    slots = request.cores_per_node
    command = [
        "bsub",
        "-K",
        "-J",
        request.name,
        "-o",
        f"{folder}/job.out",
        "-W",
        str(request.minutes),
    ]
    for option, resource in (("-q", "lsf_queue"), ("-P", "lsf_project")):
        command += [option, request.resources[resource]] if request.resources.get(resource) else []
    command += ["-n", str(slots * request.nodes), "-R", f"span[ptile={slots}]"]
    if request.gpus_per_node:
        kind = request.gpu_request.partition(":")[2]
        model = f":gmodel={kind}" if kind else ""
        command += ["-gpu", f"num={request.gpus_per_node}/host{model}"]
    return [*command, *request.extra, "sh", str(script)]


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
        lines = ask(["bjobs", "-a", "-noheader", "-o", FIELDS, *job_ids]).splitlines()
    except Error:
        # It fails for all jobs if one of them is unknown.
        return [] if len(job_ids) == 1 else [job for one in job_ids for job in _jobs([one])]
    return [line.split("|", 3) for line in lines if line.count("|") >= 3]


def _remembered(job_id):
    """The Fate of a job that bjobs has forgotten, by default an hour after its end."""
    try:
        text = re.sub(r"\n\s+", "", ask(["bhist", "-n", "0", "-l", job_id]))
    except Error:
        return None
    if "Done successfully" in text:
        return _fate("DONE", "-", "-")
    reason = re.search(r"TERM_\w+", text)
    if reason or "Exited" in text:
        return _fate("EXIT", "-", reason[0] if reason else "-")
    return None


def _fate(state, code, reason):
    if state == "DONE":
        return Fate(state, "ok")
    if state not in ("EXIT", "ZOMBI"):
        return Fate(state, "running")
    word = re.match(r"\w+", reason)
    end = f"{state}, {reason}" if word else f"{state}, exit code {code}"
    return Fate(end, ENDS.get(word[0], "failed") if word else "failed")
