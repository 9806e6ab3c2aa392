"""Jobs that schedulers have not started, with the schedulers' reasons.

A job that exceeds a limit of the site, or is held, waits for ever, and so does Snakemake. `dlbench
status` shows the reason for each run; a start of the workflow prints reasons that do not pass by
themselves, each once.
"""

import contextlib
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from dlbench import schedulers
from dlbench.common import phrases, plugins, tools
from dlbench.schedulers import Waiting

EVERY_S = 60.0


def reasons_by_run(folder: Path) -> dict[str, str]:
    """{run id: why its job waits}, from all schedulers of this machine."""
    reasons = {}
    for name in plugins.names("schedulers"):
        module = plugins.load("schedulers", name)
        if tools.missing_program([(program,) for program in module.PROGRAMS]):
            continue
        for job_id, job in module.waiting(folder).items():
            if job.run_id:
                name_shown = schedulers.display_name(name)
                reasons[job.run_id] = f"{name_shown} has not started job {job_id}: {job.reason}"
    return reasons


def start_reporting(scheduler: str, folder: Path, every_s: float = EVERY_S) -> None:
    """Start a thread that prints why jobs do not start, until this process ends.

    Args:
        scheduler: name of a file in schedulers/.
        folder: of the workflow, from which the jobs are submitted.
    """

    def look():
        reported: set[str] = set()
        while True:
            with contextlib.suppress(Exception):  # it must not end a campaign
                for line in new_reasons(scheduler, folder, reported):
                    print(line, file=sys.stderr, flush=True)
            pause.wait(every_s)

    pause = threading.Event()
    threading.Thread(target=look, name="waiting jobs", daemon=True).start()


def new_reasons(scheduler: str, folder: Path, reported: set[str]) -> list[str]:
    """Messages on reasons that do not pass by themselves; `reported` keeps each from a repeat."""
    module = plugins.load("schedulers", scheduler)
    jobs_by_reason: dict[str, dict[str, Waiting]] = {}
    for job_id, job in module.waiting(folder).items():
        if not job.reason.startswith(module.NORMAL_REASONS) and job.reason not in reported:
            jobs_by_reason.setdefault(job.reason, {})[job_id] = job
    reported.update(jobs_by_reason)
    name = schedulers.display_name(scheduler)
    return [_line(name, reason, jobs) for reason, jobs in jobs_by_reason.items()]


def _line(name: str, reason: str, jobs: Mapping[str, Waiting]) -> str:
    job_id, job = next(iter(jobs.items()))
    which = f"job {job_id}{f' of {job.run_id}' if job.run_id else ''}"
    others = f" and {phrases.counted(len(jobs) - 1, 'other job')}" if len(jobs) > 1 else ""
    return (
        f"{name} does not start {which}{others}: {reason}; dlbench status shows what each run "
        "waits for"
    )
