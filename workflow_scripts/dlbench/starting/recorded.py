"""Second names of the results of a start, so that none is lost with its job.

A job may count as failed though the run in it has ended and its record is written: its scheduler
has forgotten it, or its node went down just then. Snakemake starts such a job again, and removes
its outputs before it does. So the log and the record of a run that has ended have second names,
hard links in results/recorded/{run_id}/, of which Snakemake does not know. The next job of the run
checks them and puts them back instead of training. At the end of the start they go.

Needs the standard library only.
"""

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dlbench.log import event_log
from dlbench.records import run_record

FOLDER = run_record.RECORDED
RECORD, LOG, MESSAGES = "run.json", "train.jsonl", "messages.log"


def link(log: Path, messages: Path) -> None:
    """Give the files of a run that has a record their second names.

    Args:
        log: of rank 0, in the run's folder; elsewhere, as of a try of a search, Snakemake knows
            nothing of it and nothing is done.
        messages: what the trainer printed.
    """
    if log.parent.parent != run_record.RESULTS / "runs":
        return
    folder = FOLDER / log.parent.name
    part = folder.with_name(f"{folder.name}.part")
    with contextlib.suppress(OSError):  # it is a precaution, no part of the result
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        record = run_record.read(log.with_name(RECORD))
        for name in (RECORD, *record["files"]):
            _link(log.with_name(name), part / name)
        if messages.is_file():
            _link(messages, part / MESSAGES)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)


def put_back(log: Path, messages: Path, is_wanted: Callable[[dict[str, Any]], bool]) -> bool:
    """Put the files of a run back that an earlier job of this start recorded.

    Args:
        log, messages: as in `link`.
        is_wanted: whether the run with this record need not be trained again.

    Returns:
        Whether there is such a record and all its files are as it says, to the last byte.
    """
    folder = FOLDER / log.parent.name
    try:
        record = run_record.read(folder / RECORD)
        run_record.check_files(folder, record, content=True)
    except run_record.RecordError:
        return False
    if not is_wanted(record):
        return False
    # The record last: where there is one its logs are there, too.
    for name in (*record["files"], RECORD):
        _replace(folder / name, log.with_name(name))
    if (folder / MESSAGES).is_file():
        _replace(folder / MESSAGES, messages)
    return True


def put_aside(log: Path) -> None:
    """Put logs aside that an earlier job recorded of a run that is now trained again."""
    folder = FOLDER / log.parent.name
    if not (folder / LOG).is_file():
        return
    for path in folder.iterdir():
        if path.name not in (RECORD, MESSAGES):
            _replace(path, log.with_name(path.name))
    event_log.keep_aside(log)
    shutil.rmtree(folder, ignore_errors=True)


def settle() -> None:
    """At the end of a start: put back what is missing; second names are needed no longer."""
    for folder in _folders():
        place = run_record.folder(folder.name)
        messages = run_record.RESULTS / "logs" / "train" / f"{folder.name}.log"
        if not (place / RECORD).is_file():
            put_back(place / LOG, messages, functools.partial(_is_of, folder.name))
    forget_standing()


def forget_standing() -> None:
    """Remove the second names of runs whose records are in their place, or that were deleted."""
    for folder in _folders():
        place = run_record.folder(folder.name)
        if (place / RECORD).is_file() or not place.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # not there, or not empty
        FOLDER.rmdir()


def _is_of(run_id: str, record: dict[str, Any]) -> bool:
    return record["run_id"] == run_id


def _folders() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(path for path in FOLDER.iterdir() if path.is_dir())


def _link(path, name):
    try:
        os.link(path, name)
    except OSError:  # a file system without hard links
        shutil.copy2(path, name)


def _replace(path, target):
    if target.exists() and target.samefile(path):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    _link(path, target)
