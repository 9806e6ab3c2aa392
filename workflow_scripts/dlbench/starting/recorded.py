"""Hard links to the results of a start, so that no result is lost with its job.

A job may count as failed although its run has ended and its record is written: its scheduler has
forgotten it, or its node went down at that moment. Snakemake starts such a job again and removes
its outputs first. So the log and the record of a finished run have hard links in
results/recorded/{run_id}/, which Snakemake does not know. The next job of the run checks them and
puts the files back instead of training. The links are removed at the end of the start.

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
    """Make the hard links of a run that has a record.

    Args:
        log: of rank 0, in the run's folder. For other folders, as those of a search's tries, which
            Snakemake does not know, nothing is done.
        messages: the file with the trainer's output.
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
    """Restore the files of a run that an earlier job of this start recorded.

    Args:
        log, messages: as in `link`.
        is_wanted: record -> whether it is valid for this run, so that it need not be trained again.

    Returns:
        Whether there was such a record, with files that have its digests.
    """
    folder = FOLDER / log.parent.name
    try:
        record = run_record.read(folder / RECORD)
        run_record.check_files(folder, record, content=True)
    except run_record.RecordError:
        return False
    if not is_wanted(record):
        return False
    # The record comes last, so that a record always has its logs.
    for name in (*record["files"], RECORD):
        _replace(folder / name, log.with_name(name))
    if (folder / MESSAGES).is_file():
        _replace(folder / MESSAGES, messages)
    return True


def put_aside(log: Path) -> None:
    """Move the logs that an earlier job recorded aside: the run is trained again."""
    folder = FOLDER / log.parent.name
    if not (folder / LOG).is_file():
        return
    for path in folder.iterdir():
        if path.name not in (RECORD, MESSAGES):
            _replace(path, log.with_name(path.name))
    event_log.keep_aside(log)
    shutil.rmtree(folder, ignore_errors=True)


def settle() -> None:
    """At the end of a start: restore missing files and remove the links."""
    for folder in _folders():
        place = run_record.folder(folder.name)
        messages = run_record.RESULTS / "logs" / "train" / f"{folder.name}.log"
        if not (place / RECORD).is_file():
            put_back(place / LOG, messages, functools.partial(_is_of, folder.name))
    forget_standing()


def forget_standing() -> None:
    """Remove the links of runs whose records are in place, or whose folders were deleted."""
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
