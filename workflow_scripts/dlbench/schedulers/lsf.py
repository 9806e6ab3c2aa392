"""LSF. Written after its manuals, never run against a real one."""

import contextlib
import re
import shutil
from pathlib import Path

from dlbench import Error
from dlbench.schedulers import Fate, Queue, ask
from dlbench.schedulers._lsf_plugin import mend as mend

JOB_ID = "LSB_JOBID"
PROGRAMS = ("bsub", "bjobs", "bkill", "bhist", "badmin", "lsclusters")
QUEUE = "lsf_queue"
CANCEL = "bkill"
OPEN_MPI = "lsf"
REMOTE_SHELL = "blaunch"

ENDS = {"TERM_RUNLIMIT": "timeout", "TERM_DEADLINE": "timeout", "TERM_MEMLIMIT": "oom"}
FIELDS = "jobid stat exit_code exit_reason delimiter='|'"


def queues():
    found = {}
    blocks = re.split(r"^QUEUE: ", ask(["bqueues", "-l"]), flags=re.MULTILINE)[1:]
    for block in blocks:
        name = block.split(None, 1)[0]
        # The limit by default comes before the one that may be asked for.
        limits = re.findall(r"^ *RUNLIMIT[^\n]*\n\s*([\d.]+) min", block, re.MULTILINE)
        found[name] = Queue(
            name=name,
            default="This is the default queue" in block,
            up=bool(re.search(r"\sOpen:", block)),
            time_limit_s=float(limits[-1]) * 60 if limits else None,
        )
    return found


def fates(job_ids):
    found = {}
    for job_id, *said in _jobs(sorted(job_ids)):
        if job_id in job_ids:
            found[job_id] = _fate(*said)
    for job_id in set(job_ids) - set(found):
        fate = _remembered(job_id)
        if fate:
            found[job_id] = fate
    return found


def resources(job):
    """For snakemake-executor-plugin-lsf 0.3.3; {} where there is no LSF.

    Its `cpus_per_task` are the slots of the whole job, and its `mem_mb` is shared by as many: for
    other plugins these names mean other things.
    """
    if not shutil.which("bsub"):
        return {}
    slots_per_node = job.cores_per_task * job.tasks_per_node
    extra = [job.extra] if job.extra else []
    extra += ["-x"] if job.exclusive else []
    if job.gpus_per_node:
        kind = job.gpu_request.partition(":")[2]
        # Counted on each host.
        extra.append(f"-gpu num={job.gpus_per_node}/host" + (f":gmodel={kind}" if kind else ""))
    return {
        "cpus_per_task": slots_per_node * job.nodes,
        "mem_mb_per_cpu": max(1, job.memory_mb // slots_per_node),
        # Without it the plugin asks for one host.
        "mpi": "mpirun" if job.nodes > 1 else None,
        "ptile": slots_per_node,
        "lsf_extra": " ".join(extra) or None,
    }


def wait_command(asked, script, folder):
    slots = asked.cores_per_node
    command = ["bsub", "-K", "-J", asked.name, "-o", f"{folder}/job.out", "-W", str(asked.minutes)]
    for option, resource in (("-q", "lsf_queue"), ("-P", "lsf_project")):
        command += [option, asked.given[resource]] if asked.given.get(resource) else []
    command += ["-n", str(slots * asked.nodes), "-R", f"span[ptile={slots}]"]
    if asked.gpus_per_node:
        kind = asked.gpu_request.partition(":")[2]
        model = f":gmodel={kind}" if kind else ""
        command += ["-gpu", f"num={asked.gpus_per_node}/host{model}"]
    return [*command, *asked.extra, "sh", str(script)]


def hosts(environ):
    """From "n1 4 n2 4", or a file of a line for each slot, or "n1 n1 n2 n2"."""
    named = environ.get("LSB_MCPU_HOSTS", "").split()[::2]
    with contextlib.suppress(KeyError, OSError):
        named = named or Path(environ["LSB_DJOB_HOSTFILE"]).read_text().split()
    return list(dict.fromkeys(named or environ.get("LSB_HOSTS", "").split()))


def _jobs(job_ids):
    """What bjobs says of jobs: (id, state, exit code, reason)."""
    if not job_ids:
        return []
    try:
        lines = ask(["bjobs", "-a", "-noheader", "-o", FIELDS, *job_ids]).splitlines()
    except Error:
        # It fails for all where one is not known.
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
    said = f"{state}, {reason}" if word else f"{state}, exit code {code}"
    return Fate(said, ENDS.get(word[0], "failed") if word else "failed")
