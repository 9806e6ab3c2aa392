"""Jobs that a scheduler did not take, in its own words: account, quota, a filter of the site's.

Snakemake 9.27 loses these words on their way from a plugin to the terminal. So they are printed
here, and kept in the run's folder as refused.json, where status.py reads them; the next attempt
takes them into its log, and so into the run's record.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from dlbench import schedulers
from dlbench.common.files import write_json
from dlbench.log import event_log
from dlbench.records import run_record

FILE = "refused.json"
LONGEST = 600
# What plugins put around a scheduler's words: those for Slurm, LSF, and cluster-generic.
AROUND = (
    r"The error message was '(.*)'\.\n +sbatch call:",
    r"The error message was (.*)",
    r"Error submitting jobscript \(exit code \d+\):\n(.*)",
)


def report(executor: Any, scheduler: str | None) -> None:
    """Have an executor of Snakemake's, a class, report each job that was not taken.

    Args:
        scheduler: name of a file in schedulers/, or None.
    """
    theirs = executor.report_job_error

    def report_job_error(self, job_info, msg=None, **aux):
        if msg and job_info.external_jobid is None:
            _tell(job_info.job, scheduler, _words(msg))
        theirs(self, job_info, msg=msg, **aux)

    executor.report_job_error = report_job_error


def describe(place: Path) -> str:
    """Who refused the job of a run since its last attempt, and why; "" if nobody did.

    Args:
        place: the run's folder.
    """
    refusal = _read(place)
    times = refusal.get("times", 0)
    often = f", {times} times" if times > 1 else ""
    return f"{refusal['by']} refused its job{often}: {refusal['message']}" if refusal else ""


def take(place: Path) -> dict[str, Any] | None:
    """Read and remove the refusal in a run's folder: by, message, times, t_utc; or None."""
    refusal = _read(place)
    (place / FILE).unlink(missing_ok=True)
    return refusal or None


def _tell(job, scheduler, message):
    by = schedulers.display_name(scheduler) if scheduler else "the executor"
    for one in job.jobs if job.is_group() else [job]:
        run_id = one.wildcards_dict.get("run_id")
        name = run_id or " ".join([one.rule.name, *one.wildcards_dict.values()])
        print(f"{name}: {by} refused its job: {message}", file=sys.stderr, flush=True)
        if run_id:
            place = run_record.folder(run_id)
            times = _read(place).get("times", 0) + 1
            refusal = {"by": by, "message": message, "times": times, "t_utc": event_log.utc_now()}
            write_json(place / FILE, refusal)


def _words(text):
    matches = (re.search(pattern, text, re.DOTALL) for pattern in AROUND)
    message = next((match[1] for match in matches if match), text)
    return "; ".join(filter(None, map(str.strip, message.splitlines())))[:LONGEST] or "no message"


def _read(place):
    try:
        refusal = json.loads((place / FILE).read_text())
        return refusal if {"by", "message", "times"} <= refusal.keys() else {}
    except (OSError, ValueError, AttributeError):
        return {}
