"""Jobs that schedulers have not started, with the schedulers' reasons.

A job that exceeds a limit of the site, or is held, waits for ever, and so does Snakemake. `dlbench
status` shows the reason for each run; a start of the workflow prints reasons that do not pass by
themselves, each once.
"""

import contextlib
import sys
import threading
from pathlib import Path

from dlbench import schedulers
from dlbench.common import phrases, plugins, tools

EVERY_S = 60.0


def reasons_by_run(folder: Path) -> dict[str, str]:
    """{run id: why its job waits}, from all schedulers of this machine."""
    reasons, runs = {}, schedulers.watched_runs(folder)
    for name in plugins.names("schedulers"):
        module = plugins.load("schedulers", name)
        if tools.missing_program([(program,) for program in module.PROGRAMS]):
            continue
        for job_id, reason in module.waiting(runs).items():
            name_shown = schedulers.display_name(name)
            reasons[runs[job_id]] = f"{name_shown} has not started job {job_id}: {reason}"
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
    module, runs = plugins.load("schedulers", scheduler), schedulers.watched_runs(folder)
    jobs_by_reason: dict[str, list[str]] = {}
    for job_id, reason in module.waiting(runs).items():
        if not reason.startswith(module.NORMAL_REASONS) and reason not in reported:
            jobs_by_reason.setdefault(reason, []).append(job_id)
    reported.update(jobs_by_reason)
    name = schedulers.display_name(scheduler)
    return [_line(name, reason, jobs, runs[jobs[0]]) for reason, jobs in jobs_by_reason.items()]


def _line(name, reason, jobs, run_id):
    which = f"job {jobs[0]}{f' of {run_id}' if run_id else ''}"
    others = f" and {phrases.counted(len(jobs) - 1, 'other job')}" if len(jobs) > 1 else ""
    return (
        f"{name} does not start {which}{others}: {reason}; dlbench status shows what each run "
        "waits for"
    )
