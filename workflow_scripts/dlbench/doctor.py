"""What is wrong with a results folder, why it matters, and how it is repaired.

- Looking changes nothing, so it may be done at any time, also while runs are trained.
- Repairing deletes nothing: what has to go is moved to results/aside, under the path that it had.
- What only a person may decide (a process to be ended, a disk to be emptied) is said, not done.

dlbench/doctor_runs.py looks at the runs, dlbench/doctor_place.py at all that is around them.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error, records

SCHEMA_VERSION = 1
ASIDE = "aside"


@dataclass(frozen=True)
class Finding:
    """One thing that is amiss.

    `where` is relative to the folder of the workflow; `repair` says what to do, or what --repair
    does where there is `mend`, a function without arguments.
    """

    kind: str
    where: str
    what: str
    why: str
    repair: str
    mend: Callable | None = None

    def line(self):
        """For people, on one line: nothing that a file name or a log has in it breaks it."""
        words = f"{self.kind}: {self.where}: {self.what}; {self.why}; repair: {self.repair}"
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)

    def plain(self):
        names = ("kind", "where", "what", "why", "repair")
        return {name: getattr(self, name) for name in names} | {"repairable": bool(self.mend)}


def examine(study=None, content=False, unknown=False):
    """Look at the results in the current folder.

    Args:
        study: the Study whose runs are looked at; None: all that are there.
        content: also read shards, logs and records whole and compare their digests and numbers.
        unknown: also say which runs the study does not know.

    Returns:
        The Findings, those that concern everything first.
    """
    from dlbench import doctor_place, doctor_runs

    return [*doctor_place.findings(content), *doctor_runs.findings(study, content, unknown)]


def mend(findings):
    """Repair what can be. Returns [(Finding, why it could not be, or "")] of those that were tried.

    Raises:
        Error: a workflow is at work here, whose files would be moved under it.
    """
    from dlbench import doctor_place

    if pids := doctor_place.workflows():
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
        results = place / records.RESULTS
        ours = any((results / name).is_dir() for name in ("runs", "data", "images", "environments"))
        if ours and (place == folder or folder.name == records.RESULTS.name):
            os.chdir(place)
            return place
    raise Error(f"{folder}: no results of dlbench: expected a folder with {records.RESULTS}/runs")


STARTED = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def put_aside(path):
    """Move a file or folder into results/aside, where it keeps its path. Returns where it is."""
    path = Path(path)
    target = records.RESULTS / ASIDE / STARTED / str(path).lstrip("/").replace("..", "_")
    while os.path.lexists(target):
        target = target.with_name(f"{target.name}.again")
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.move(path, target)  # the results may be a link to another disk
    return target
