"""Submit and watch jobs of the schedulers for which Snakemake has no plugin of their own.

Snakemake's plugin cluster-generic 1.0.9 starts a program to submit a job, and one for each job
whenever it needs the states of jobs.
- A job writes its exit code to a file (profiles/sge/jobscript.sh). Reading it needs neither the
  scheduler nor its accounting, which lags some seconds.
- Without that file the scheduler is asked, for all jobs at once; its answer is kept for seconds.
- If it does not answer, jobs count as running. A job that it does not know although it answers is
  lost after LOST_S.
- While the plugin asks for states, it cancels no jobs; nor does it know the jobs of a Snakemake
  that was killed. So its sidecar cancels jobs that are left, at its start and at its end.

.snakemake/cluster_jobs has: ID for a job that is watched, with the id of its run, ID.end with its
exit code, ID.lost with the time since when the scheduler does not know it, and the last answer of
the scheduler.
"""

import contextlib
import json
import math
import os
import shlex
import signal
import time
from dataclasses import asdict
from pathlib import Path

from dlbench import Error
from dlbench.common import plugins
from dlbench.schedulers import WATCHED, Fate, JobRequest, ask, watched_runs

MEMORY = WATCHED
LOGS = Path("results/logs/cluster")
LOST_S = 60.0
GOOD_FOR_S = 5.0


def submit(scheduler: str, script: str | Path) -> str:
    """Submit a job script of Snakemake. Returns the id of the job."""
    for folder in (MEMORY, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    command = plugins.load("schedulers", scheduler).submission(read_request(script), LOGS)
    job_id = ask([*command, str(script)]).strip().splitlines()[-1].strip()
    (MEMORY / job_id).write_text(_properties(script).get("wildcards", {}).get("run_id", ""))
    return job_id


def status(scheduler: str, job_id: str) -> str:
    """The state of a job as cluster-generic names it: running, success or failed."""
    code = _exit_code(job_id)
    if code is not None:
        state = "success" if code == 0 else "failed"
    else:
        state = _status(scheduler, job_id, _answer(scheduler, job_id).get(job_id))
        if state == "failed":
            # It may wait in an error state, or come back with its node; another job replaces it.
            _cancel(scheduler, [job_id])
    if state != "running":
        _forget(job_id)
    return state


def accompany(scheduler: str) -> None:
    """Cancel the jobs of an earlier start, wait for the end of this one, cancel what it left.

    If Snakemake is killed, its jobs run on until the next start.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Snakemake gets Ctrl-C too, and ends us
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    parent = os.getppid()
    _cancel_watched(scheduler)
    print(scheduler, flush=True)  # the plugin waits for a line
    while not signal.sigtimedwait({signal.SIGTERM}, 2.0):
        if os.getppid() != parent:
            return
    _cancel_watched(scheduler)


def watched() -> list[str]:
    """Ids of the jobs that were submitted and whose end is not known."""
    return sorted(watched_runs(Path()))


def read_request(script: str | Path) -> JobRequest:
    """The JobRequest of a job script of Snakemake, from its line with the properties of the job.

    Raises:
        Error: there is no such line, or it lacks a resource.
    """
    properties = _properties(script)
    resources = properties["resources"]
    try:
        nodes = resources["nodes"]
        tasks_per_node = -(-resources["tasks"] // nodes)
        return JobRequest(
            name="smk." + properties.get("rule", "group"),
            nodes=nodes,
            tasks_per_node=tasks_per_node,
            cores_per_node=max(properties["threads"], tasks_per_node * resources["cpus_per_task"]),
            memory_mb=resources["mem_mb"],
            minutes=math.ceil(resources["runtime"]),
            gpus_per_node=resources["gpus_per_node"],
            gpu_request=resources["gpu_request"],
            exclusive=bool(resources["exclusive"]),
            extra=tuple(shlex.split(resources.get("extra") or "")),
            resources=resources,
        )
    except KeyError as error:
        raise Error(
            f"{script}: no resource {error} in the job; is its line in the profile's "
            "default-resources missing?"
        ) from None


def _properties(script):
    mark = "# properties = "
    with open(script, encoding="utf-8") as file:
        line = next((line for line in file if line.startswith(mark)), None)
    if line is None:
        raise Error(f"{script}: expected a line {mark!r}, as Snakemake writes it; found none")
    return json.loads(line.removeprefix(mark))


def _status(scheduler, job_id, fate):
    mark = MEMORY / f"{job_id}.lost"
    if fate is None:
        return "failed" if _is_lost(scheduler, mark) else "running"
    mark.unlink(missing_ok=True)
    return {"running": "running", "ok": "success"}.get(fate.status, "failed")


def _is_lost(scheduler, mark):
    """Whether a scheduler that answers has not known a job for LOST_S, the age of its mark."""
    try:
        plugins.load("schedulers", scheduler).queues()
        return time.time() - mark.stat().st_mtime > LOST_S
    except (Error, FileNotFoundError):
        MEMORY.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return False


def _answer(scheduler, job_id):
    """{job id: Fate} of all jobs that are watched, by a recent answer or a new one."""
    file = MEMORY / "answer.json"
    try:
        answer = json.loads(file.read_text())
        fresh = time.time() - file.stat().st_mtime < GOOD_FOR_S and job_id in answer["of"]
    except (OSError, ValueError):
        fresh = False
    if not fresh:
        ids = {job_id, *(one for one in watched() if _exit_code(one) is None)}
        fates = plugins.load("schedulers", scheduler).fates(ids)
        answer = {"of": sorted(ids), "fates": {one: asdict(fate) for one, fate in fates.items()}}
        _write(file, json.dumps(answer))
    return {one: Fate(**fate) for one, fate in answer["fates"].items()}


def _exit_code(job_id):
    """The exit code that a job wrote; None if it has not ended, or was killed."""
    try:
        return int((MEMORY / f"{job_id}.end").read_text())
    except (OSError, ValueError):
        return None


def _cancel_watched(scheduler):
    left = [job_id for job_id in watched() if _exit_code(job_id) is None]
    if left:
        _cancel(scheduler, left)
    for job_id in watched():
        _forget(job_id)


def _cancel(scheduler, job_ids):
    with contextlib.suppress(Error):  # one of them has ended meanwhile
        ask([plugins.load("schedulers", scheduler).CANCEL, *job_ids])


def _forget(job_id):
    for name in (job_id, f"{job_id}.lost", f"{job_id}.end"):
        (MEMORY / name).unlink(missing_ok=True)


def _write(file, text):
    """Write a file whole, for another process may read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{os.getpid()}.json")
    part.write_text(text)
    part.replace(file)
