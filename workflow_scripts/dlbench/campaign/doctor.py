"""Find what is wrong with a results folder, say why it matters, and repair it.

- Examining changes nothing, so it may be done at any time, also while runs are trained.
- Repairing deletes nothing: files that have to go are moved to results/aside, where they keep
  their path.
- What a person must decide (ending a process, emptying a disk) is reported, not done.

doctor_runs.py examines the runs, doctor_batches.py the largest batches that were found,
doctor_tables.py what was made of them, doctor_driver.py the driver of GPUs, and
doctor_surroundings.py everything else around them.
"""

import os
from pathlib import Path

from dlbench import Error
from dlbench.campaign import (
    doctor_batches,
    doctor_driver,
    doctor_runs,
    doctor_surroundings,
    doctor_tables,
    snakemake_files,
)
from dlbench.campaign.doctor_problem import Problem
from dlbench.records import run_record
from dlbench.study.config import Study

SCHEMA_VERSION = 1


def examine(
    study: Study | None = None, content: bool = False, unknown: bool = False
) -> list[Problem]:
    """Look at the results in the current folder.

    Args:
        study: the Study whose runs are examined; None: all runs in the results.
        content: also read shards, logs and records whole and compare their digests and numbers.
        unknown: also report runs that are not part of the study.

    Returns:
        Problems around the runs first, then those of runs.
    """
    return [
        *doctor_surroundings.problems(content),
        *doctor_driver.problems(study),
        *doctor_batches.problems(),
        *doctor_tables.problems(content),
        *doctor_runs.problems(study, content, unknown),
    ]


def repair(problems: list[Problem]) -> list[tuple[Problem, str]]:
    """Repair what can be repaired.

    Returns:
        (Problem, why its repair failed, or "") of each Problem that can be repaired.

    Raises:
        Error: a workflow is at work here, whose files would be moved under it.
    """
    if pids := snakemake_files.workflows():
        raise Error(
            f"a workflow is at work here (process {', '.join(map(str, pids))}): nothing is "
            "repaired under it; try again when it has ended"
        )
    results = []
    for problem in problems:
        if problem.repair_action:
            failure = ""
            try:
                problem.repair_action()
            except (Error, OSError) as error:
                failure = str(error)
            results.append((problem, failure))
    return results


def enter_workflow_folder(folder: str | Path) -> Path:
    """Make the workflow's folder the current one and return it.

    Args:
        folder: of the workflow, or its results.

    Raises:
        Error: the folder has no results of dlbench.
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
