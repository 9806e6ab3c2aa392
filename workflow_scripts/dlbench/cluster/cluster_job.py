"""Jobs of the schedulers for which Snakemake has no plugin of their own: submitted and watched.

Snakemake's plugin cluster-generic 1.0.9 starts a program to submit a job, and one for each job
whenever it wants to know how jobs stand.
- A job says itself how it ended, in a file (profiles/sge/jobscript.sh): that needs no scheduler,
  and no accounting, which lags some seconds.
- Else the scheduler is asked, for all jobs at once, and what it says is good for some seconds.
- Where it does not answer, jobs run. A job that it does not know although it answers is lost
  after LOST_S.
- While the plugin asks how jobs stand, it would cancel none of them; nor does it know those of a
  Snakemake that was killed. So its sidecar cancels what is left, at its start and at its end.

What is remembered lies in .snakemake/cluster_jobs: ID for a job that is watched, ID.end with the
exit code that it wrote, ID.lost since when it is not known, and the scheduler's last answer.
"""

import contextlib
import json
import math
import os
import shlex
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from dlbench import Error
from dlbench.common import plugins
from dlbench.schedulers import Fate, ask

MEMORY = Path(".snakemake/cluster_jobs")
LOGS = Path("results/logs/cluster")
LOST_S = 60.0
GOOD_FOR_S = 5.0
OWN_FILES = (".end", ".lost", ".json")


@dataclass(frozen=True)
class Asked:
    """What a job asks for. `given` are the resources as Snakemake knows them."""

    name: str
    nodes: int
    tasks_per_node: int
    cores_per_node: int
    memory_mb: int
    minutes: int
    gpus_per_node: int
    gpu_request: str
    exclusive: bool
    extra: tuple
    given: dict


def submit(scheduler, script):
    """Submit a job script of Snakemake's. Returns the job's id."""
    for folder in (MEMORY, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    command = plugins.load("schedulers", scheduler).submission(asked(script), LOGS)
    job_id = ask([*command, str(script)]).strip().splitlines()[-1].strip()
    (MEMORY / job_id).touch()
    return job_id


def status(scheduler, job_id):
    """How a job stands, in cluster-generic's words: running, success or failed."""
    code = _exit_code(job_id)
    if code is not None:
        said = "success" if code == 0 else "failed"
    else:
        said = _status(scheduler, job_id, _answer(scheduler, job_id).get(job_id))
        if said == "failed":
            # It may wait in an error state, or come back with its node: another takes its place.
            _cancel([job_id])
    if said != "running":
        _forget(job_id)
    return said


def accompany(scheduler):
    """Cancel what is left of an earlier start, wait for the end of this one, cancel again.

    Where Snakemake is killed, its jobs run on until the next start.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is also for Snakemake, which ends us
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    parent = os.getppid()
    _cancel_watched()
    print(scheduler, flush=True)  # the plugin waits for a line
    while not signal.sigtimedwait({signal.SIGTERM}, 2.0):
        if os.getppid() != parent:
            return
    _cancel_watched()


def watched():
    """Ids of the jobs that were submitted and have not been seen to end."""
    return sorted(p.name for p in MEMORY.glob("*") if p.suffix not in OWN_FILES)


def asked(script):
    """What a job script of Snakemake's asks for, from the line in which its properties stand.

    Raises:
        Error: there is none, or it lacks a resource.
    """
    mark = "# properties = "
    with open(script, encoding="utf-8") as file:
        line = next((line for line in file if line.startswith(mark)), None)
    if line is None:
        raise Error(f"{script}: expected a line {mark!r}, as Snakemake writes it; found none")
    properties = json.loads(line.removeprefix(mark))
    given = properties["resources"]
    try:
        nodes = given["nodes"]
        tasks_per_node = -(-given["tasks"] // nodes)
        return Asked(
            name="smk." + properties.get("rule", "group"),
            nodes=nodes,
            tasks_per_node=tasks_per_node,
            cores_per_node=max(properties["threads"], tasks_per_node * given["cpus_per_task"]),
            memory_mb=given["mem_mb"],
            minutes=math.ceil(given["runtime"]),
            gpus_per_node=given["gpus_per_node"],
            gpu_request=given["gpu_request"],
            exclusive=bool(given["exclusive"]),
            extra=tuple(shlex.split(given.get("extra") or "")),
            given=given,
        )
    except KeyError as error:
        raise Error(
            f"{script}: no resource {error} in the job; is its line in the profile's "
            "default-resources missing?"
        ) from None


def _status(scheduler, job_id, fate):
    mark = MEMORY / f"{job_id}.lost"
    if fate is None:
        return "failed" if _is_lost(scheduler, mark) else "running"
    mark.unlink(missing_ok=True)
    return {"running": "running", "ok": "success"}.get(fate.status, "failed")


def _is_lost(scheduler, mark):
    """Whether a job has been unknown for long to a scheduler that answers; its mark is as old."""
    try:
        plugins.load("schedulers", scheduler).queues()
        return time.time() - mark.stat().st_mtime > LOST_S
    except (Error, FileNotFoundError):
        MEMORY.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return False


def _answer(scheduler, job_id):
    """{job id: Fate} of all jobs that are watched: the last answer, or a new one."""
    file = MEMORY / "answer.json"
    try:
        found = json.loads(file.read_text())
        fresh = time.time() - file.stat().st_mtime < GOOD_FOR_S and job_id in found["of"]
    except (OSError, ValueError):
        fresh = False
    if not fresh:
        ids = {job_id, *(one for one in watched() if _exit_code(one) is None)}
        fates = plugins.load("schedulers", scheduler).fates(ids)
        found = {"of": sorted(ids), "fates": {one: asdict(fate) for one, fate in fates.items()}}
        _write(file, json.dumps(found))
    return {one: Fate(**fate) for one, fate in found["fates"].items()}


def _exit_code(job_id):
    """What the job wrote as it ended; None where it has not, or was killed."""
    try:
        return int((MEMORY / f"{job_id}.end").read_text())
    except (OSError, ValueError):
        return None


def _cancel_watched():
    left = [job_id for job_id in watched() if _exit_code(job_id) is None]
    if left:
        _cancel(left)
    for job_id in watched():
        _forget(job_id)


def _cancel(job_ids):
    """Those that have ended meanwhile make it fail."""
    with contextlib.suppress(Error):
        ask(["qdel", *job_ids])


def _forget(job_id):
    for name in (job_id, f"{job_id}.lost", f"{job_id}.end"):
        (MEMORY / name).unlink(missing_ok=True)


def _write(file, text):
    """All or nothing: another process may read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{os.getpid()}.json")
    part.write_text(text)
    part.replace(file)
