"""Attempts of a run: one at a time; the logs of attempts without a result are kept.

A job may be killed together with its supervisor, and Snakemake removes the outputs of a failed job.
So the log of a running attempt has a second name, a hard link. The next attempt renames such a log
to train.attempt1.jsonl and so on, as those of attempts that were stopped.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlbench import Error
from dlbench.common.files import DISK_FULL
from dlbench.log import event_fields, event_log

OPEN = "train.open.jsonl"
KEPT_ASIDE = re.compile(r"train\.(?:attempt(\d+)|open)\.jsonl")  # of rank 0


def link_open_log(log: Path) -> None:
    """Create the second name of a running attempt's log, if the file system has hard links."""
    with contextlib.suppress(OSError):
        os.link(log, log.with_name(OPEN))


def unlink_open_log(log: Path) -> None:
    """Remove the second name of a finished attempt's log."""
    log.with_name(OPEN).unlink(missing_ok=True)


def is_open(log: Path) -> bool:
    """Whether an attempt has started a log and not finished it."""
    return log.with_name(OPEN).exists()


def rescue(log: Path) -> None:
    """Rename the log of an attempt that was killed together with its supervisor."""
    second_name = log.with_name(OPEN)
    unfinished = second_name.exists()
    if unfinished and not log.exists():
        second_name.rename(log)
    unlink_open_log(log)
    if log.is_file() and (unfinished or not event_log.final_run_end(log)):
        event_log.keep_aside(log)


def put_measured_aside(log: Path) -> None:
    """Rename the log of a finished attempt that has measured something."""
    end = event_log.final_run_end(log)
    if end and end["status"] != "skipped":
        event_log.keep_aside(log)


def kept_logs(folder: Path) -> list[tuple[int, Path]]:
    """(number, path) of the logs of earlier attempts in a run's folder, the latest last."""
    with contextlib.suppress(OSError):
        matches = (KEPT_ASIDE.fullmatch(path.name) for path in folder.iterdir())
        numbers = {match[0]: match[1] and int(match[1]) for match in matches if match}
        open_number = max(filter(None, numbers.values()), default=0) + 1
        return sorted((number or open_number, folder / name) for name, number in numbers.items())
    return []


@contextlib.contextmanager
def lock(log: Path) -> Iterator[None]:
    """Lock a run for this process, so that two workflows in one folder do not write one log.

    Raises Error: another process holds the lock, on this node or, if the file system supports it,
    on another one.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(log.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise Error(
            f"{log.parent.name} is being trained by another process: are two workflows at work "
            "in this folder?"
        ) from None
    except OSError:  # the file system has no such locks
        pass
    try:
        yield
    finally:
        os.close(folder)


def failed_on_full_disk(log: Path, end: dict[str, Any]) -> bool:
    """Whether a run failed, by its run_end, because the disk was full: it may be tried again."""
    if end["status"] in event_fields.SUCCEEDED:
        return False
    reasons = map(os.strerror, DISK_FULL)
    return (
        any(reason in end["message"] for reason in reasons) or not os.statvfs(log.parent).f_bavail
    )
