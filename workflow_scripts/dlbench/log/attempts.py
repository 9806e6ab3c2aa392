"""Attempts of a run: one at a time, and the logs of those that ended without a result.

A job may be killed with everything in it, its supervisor too, and Snakemake removes what a failed
job wrote. So a second name (a hard link) keeps the log of a run that goes on; the next attempt
moves it aside, to train.attempt1.jsonl and so on, where those of stopped attempts lie too.
"""

import contextlib
import fcntl
import os
import re

from dlbench import Error
from dlbench.common.files import LACKING_ROOM
from dlbench.log import event_fields, event_log

OPEN = "train.open.jsonl"
KEPT_ASIDE = re.compile(r"train\.(?:attempt(\d+)|open)\.jsonl")  # of rank 0


def keep(log):
    """Give a log that is being written its second name, where the file system has such names."""
    with contextlib.suppress(OSError):
        os.link(log, log.with_name(OPEN))


def release(log):
    """Remove the second name of a log that has come to its end."""
    log.with_name(OPEN).unlink(missing_ok=True)


def is_open(log):
    """Whether an attempt has written to a log and not come to its end."""
    return log.with_name(OPEN).exists()


def rescue(log):
    """Move aside what an attempt left that was killed with its supervisor."""
    spare = log.with_name(OPEN)
    unfinished = spare.exists()
    if unfinished and not log.exists():
        spare.rename(log)
    release(log)
    if log.is_file() and (unfinished or not event_log.finished(log)):
        event_log.keep_aside(log)


def kept_aside(place):
    """[(number, path)] of the logs that were kept aside in a run's folder, the last one last."""
    with contextlib.suppress(OSError):
        matches = (KEPT_ASIDE.fullmatch(path.name) for path in place.iterdir())
        numbers = {match[0]: match[1] and int(match[1]) for match in matches if match}
        following = max(filter(None, numbers.values()), default=0) + 1
        return sorted((number or following, place / name) for name, number in numbers.items())
    return []


@contextlib.contextmanager
def alone(log):
    """Hold a run for this process: two workflows in one folder must not write one log.

    Raises:
        Error: another process here, or on the same file system where that has such locks, has it.
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
    except OSError:  # a file system without such locks
        pass
    try:
        yield
    finally:
        os.close(folder)


def lacked_room(log, end):
    """Whether a run failed on a full disk: nothing about the run, all about the disk."""
    if end["status"] in event_fields.ENDED_WELL:
        return False
    words = map(os.strerror, LACKING_ROOM)
    return any(map(end["message"].__contains__, words)) or not os.statvfs(log.parent).f_bavail
