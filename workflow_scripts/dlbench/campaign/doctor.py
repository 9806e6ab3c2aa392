"""What is wrong with a results folder, why it matters, and how it is repaired.

- Looking changes nothing, so it may be done at any time, also while runs are trained.
- Repairing deletes nothing: what has to go is moved to results/aside, under the path that it had.
- What only a person may decide (a process to be ended, a disk to be emptied) is said, not done.

dlbench/campaign/doctor_runs.py looks at the runs, dlbench/campaign/doctor_surroundings.py at all
that is around them.
"""

import os
from pathlib import Path

from dlbench import Error
from dlbench.records import run_record

SCHEMA_VERSION = 1


def examine(study=None, content=False, unknown=False):
    """Look at the results in the current folder.

    Args:
        study: the Study whose runs are looked at; None: all that are there.
        content: also read shards, logs and records whole and compare their digests and numbers.
        unknown: also say which runs the study does not know.

    Returns:
        The Findings, those that concern everything first.
    """
    from dlbench.campaign import doctor_runs, doctor_surroundings

    return [*doctor_surroundings.findings(content), *doctor_runs.findings(study, content, unknown)]


def mend(findings):
    """Repair what can be. Returns [(Finding, why it could not be, or "")] of those that were tried.

    Raises:
        Error: a workflow is at work here, whose files would be moved under it.
    """
    from dlbench.campaign import doctor_surroundings

    if pids := doctor_surroundings.workflows():
        raise Error(
            f"a workflow is at work here (process {', '.join(map(str, pids))}): nothing is "
            "repaired under it; try again when it has ended"
        )
    tried = []
    for finding in findings:
        if finding.mend:
            problem = ""
            try:
                finding.mend()
            except (Error, OSError) as error:
                problem = str(error)
            tried.append((finding, problem))
    return tried


def entered(folder):
    """The workflow's folder, given it or its results, made the current one.

    Raises:
        Error: there are no results of ours.
    """
    folder = Path(os.path.abspath(folder))
    for place in (folder, folder.parent):
        results = place / run_record.RESULTS
        ours = any((results / name).is_dir() for name in ("runs", "data", "images", "environments"))
        if ours and (place == folder or folder.name == run_record.RESULTS.name):
            os.chdir(place)
            return place
    raise Error(
        f"{folder}: no results of dlbench: expected a folder with {run_record.RESULTS}/runs"
    )
