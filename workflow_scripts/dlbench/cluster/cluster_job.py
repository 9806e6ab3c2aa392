"""Submit and watch the jobs of a scheduler, for Snakemake's executor cluster-generic.

The executor (1.0.9) starts a program to submit a job, and one for each job whenever it needs the
states of jobs.
- A job writes its exit code to a file (jobscript.sh of a profile). Reading it needs neither the
  scheduler, which may have forgotten the job, nor its accounting, which lags some seconds.
- Without that file the scheduler is queried, for all jobs at once, and its answer is cached for
  CACHE_S.
- If it does not answer, jobs count as running. If it answers but does not know a job, the job
  counts as lost after LOST_S.
- The executor cancels no jobs while it queries states, and does not know the jobs of a Snakemake
  that was killed. So leftover jobs are cancelled when a start fails and before the next one
  trains anything.

.snakemake/cluster_jobs has ID for each watched job, with the id of its run; ID.end with its exit
code; ID.lost, whose date is when the scheduler first did not know the job; answer.json, the last
answer of the scheduler; and full.json, with the process id of the start that has said that there
may be no more jobs.
"""

import contextlib
import itertools
import json
import math
import os
import re
import time
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

from dlbench import Error
from dlbench.common import files, plugins
from dlbench.schedulers import WATCHED, Job, JobState, output_of, watched_runs
from dlbench.starting import fates

FOLDER = WATCHED
LOGS = Path("results/logs/cluster")
LOST_S = 60.0
CACHE_S = 5.0
FULL_S = 10.0  # between tries to submit a job where there may be no more
CANCEL_TIMEOUT_S = 180.0  # supervisors may write a last checkpoint
# Variables of the job in which Snakemake itself may run: sbatch and qsub read options from them.
JOB_VARIABLES = re.compile(r"SLURM_(?!CONF$|MPI_TYPE$|CLUSTERS$)|PBS_(?!DEFAULT$)")
RUNS = re.compile(r"\brun_id=([a-z0-9_.-]+)")  # in the command of a job


def submit(scheduler: str, script: str | Path) -> str:
    """Submit a job script of Snakemake, once there may be one more job. Returns the job's id.

    Raises Error: the scheduler refuses it. The message is also written into the folders of its
    runs.
    """
    for folder in (FOLDER, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    module = plugins.load("schedulers", scheduler)
    request = read_request(script)
    for name in filter(JOB_VARIABLES.match, list(os.environ)):
        del os.environ[name]
    for waits in itertools.count():
        try:
            printed = output_of([*module.submission(request, LOGS), str(script)]).strip()
            break
        except Error as error:
            if not re.search(getattr(module, "FULL", "$^"), str(error)):
                fates.record_refusal(_run_ids(script), scheduler, str(error))
                raise
            if not waits:
                message = f"{error}; it and those after it wait until there may be another job"
                fates.record_refusal(_run_ids(script), scheduler, message, quietly=_is_told())
            time.sleep(FULL_S)
    job_id = module.job_id(printed) if hasattr(module, "job_id") else printed.split()[-1]
    run_id = _properties(script).get("wildcards", {}).get("run_id", "")
    (FOLDER / job_id).write_text(run_id)
    return job_id


def _is_told():
    """Whether the Snakemake that submits has said that there may be no more jobs; it has now."""
    file, start = FOLDER / "full.json", str(os.getppid())
    told = file.exists() and file.read_text() == start
    file.write_text(start)
    return told


def _run_ids(script):
    return sorted(set(RUNS.findall(Path(script).read_text(encoding="utf-8"))))


def status(scheduler: str, job_id: str) -> str:
    """The state of a job as cluster-generic names it: running, success or failed."""
    code = _exit_code(job_id)
    if code is not None:
        state = "success" if code == 0 else "failed"
    else:
        state = _status(scheduler, job_id, _job_states(scheduler, job_id).get(job_id))
        if state == "failed":
            # It may wait in an error state or come back with its node, but another job replaces it.
            _cancel(scheduler, [job_id])
    if state != "running":
        _forget(job_id)
    return state


def cancel_jobs(
    scheduler: str, job_ids: Collection[str], timeout_s: float = CANCEL_TIMEOUT_S
) -> list[str]:
    """Cancel those of some jobs that have not ended, and wait for their end, at most `timeout_s`.

    Returns their ids. Raises Error: they do not end.
    """
    left = sorted(job_id for job_id in job_ids if _exit_code(job_id) is None)
    if left:
        _cancel(scheduler, left)
    deadline = time.monotonic() + timeout_s
    while running := _running(scheduler, left):
        if time.monotonic() > deadline:
            raise Error(
                f"jobs of an earlier start were cancelled and do not end: {', '.join(running)}"
            )
        time.sleep(1)
    for job_id in job_ids:
        _forget(job_id)
    return left


def _running(scheduler, job_ids):
    open_ids = [job_id for job_id in job_ids if _exit_code(job_id) is None]
    job_states = plugins.load("schedulers", scheduler).job_states(open_ids)
    return sorted(
        job_id for job_id, job_state in job_states.items() if job_state.status == "running"
    )


def read_request(script: str | Path) -> Job:
    """The Job of a job script of Snakemake, from its line with the properties of the job.

    Raises Error: there is no such line, or it lacks a resource.
    """
    properties = _properties(script)
    resources = properties["resources"]
    nodes = resources.get("nodes", 1)
    tasks = resources.get("tasks", nodes)
    threads_per_task = math.ceil(properties["threads"] / math.ceil(tasks / nodes))
    try:
        return Job(
            nodes=nodes,
            tasks=tasks,
            cores_per_task=max(threads_per_task, resources.get("cpus_per_task", 1)),
            memory_mb=resources["mem_mb"],
            gpus_per_node=resources.get("gpus_per_node", 0),
            time_min=math.ceil(resources["runtime"]),
            exclusive=bool(resources.get("exclusive")),
            gpu_request=resources.get("gpu_request", "gpu"),
            extra=resources.get("extra") or "",
            node=resources.get("node") or "",
            name=_name(properties),
            resources=resources,
        )
    except KeyError as error:
        raise Error(
            f"{script}: no resource {error} in the job; is its line in the profile's "
            "default-resources missing?"
        ) from None


def _name(properties):
    """The name of a job: its run, its rule, or how many jobs of Snakemake share it."""
    run_id = properties.get("wildcards", {}).get("run_id")
    rule = properties.get("rule") or properties.get("groupid", "group")
    return run_id or f"dlbench.{rule}"


def _properties(script):
    mark = "# properties = "
    with open(script, encoding="utf-8") as file:
        line = next((line for line in file if line.startswith(mark)), None)
    if line is None:
        raise Error(f"{script}: expected a line {mark!r}, as Snakemake writes it; found none")
    return json.loads(line.removeprefix(mark))


def _status(scheduler, job_id, job_state):
    mark = FOLDER / f"{job_id}.lost"
    if job_state is None:
        return "failed" if _is_lost(scheduler, mark) else "running"
    mark.unlink(missing_ok=True)
    return {"running": "running", "ok": "success"}.get(job_state.status, "failed")


def _is_lost(scheduler, mark):
    """Whether a scheduler that answers has not known a job for LOST_S, the age of its mark."""
    try:
        plugins.load("schedulers", scheduler).queues()
        return time.time() - mark.stat().st_mtime > LOST_S
    except (Error, FileNotFoundError):
        FOLDER.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return False


def _job_states(scheduler, job_id):
    """{job id: JobState} of all jobs that are watched, by a recent answer or a new one."""
    file = FOLDER / "answer.json"
    try:
        cached = json.loads(file.read_text())
        fresh = time.time() - file.stat().st_mtime < CACHE_S and job_id in cached["of"]
    except (OSError, ValueError):
        fresh = False
    if not fresh:
        ids = {job_id, *(key for key in watched_runs(Path()) if _exit_code(key) is None)}
        job_states = plugins.load("schedulers", scheduler).job_states(ids)
        cached = {
            "of": sorted(ids),
            "fates": {key: asdict(job_state) for key, job_state in job_states.items()},
        }
        files.write_json(file, cached)
    return {key: JobState(**job_state) for key, job_state in cached["fates"].items()}


def _exit_code(job_id):
    """The exit code that a job wrote; None if it has not ended, or was killed."""
    try:
        return int((FOLDER / f"{job_id}.end").read_text())
    except (OSError, ValueError):
        return None


def _cancel(scheduler, job_ids):
    with contextlib.suppress(Error):  # one of them has just ended
        output_of([plugins.load("schedulers", scheduler).CANCEL, *job_ids])


def _forget(job_id):
    for name in (job_id, f"{job_id}.lost", f"{job_id}.end"):
        (FOLDER / name).unlink(missing_ok=True)
