"""Attempts of a run that ended without a result, and what ended them.

A job may be killed with everything in it, its supervisor too, and Snakemake removes what a failed
job wrote. So a second name (a hard link) keeps the log of a run that goes on; the next attempt
moves it aside, to train.attempt1.jsonl and so on, where those of stopped attempts lie too.
"""

import contextlib
import os

from dlbench import eventlog, fates

OPEN = "train.open.jsonl"


def keep(log):
    """Give a log that is being written its second name, where the file system has such names."""
    with contextlib.suppress(OSError):
        os.link(log, log.with_name(OPEN))


def release(log):
    """Remove the second name of a log that has come to its end."""
    log.with_name(OPEN).unlink(missing_ok=True)


def rescue(log):
    """Move aside what an attempt left that was killed with its supervisor."""
    spare = log.with_name(OPEN)
    unfinished = spare.exists()
    if unfinished and not log.exists():
        spare.rename(log)
    release(log)
    if log.is_file() and (unfinished or not eventlog.finished(log)):
        eventlog.keep_aside(log)


def verdict(log):
    """What a scheduler's word on the last attempt makes of a run: (status, message), or None.

    Only what would repeat itself is a result: an attempt that ran out of memory or time.
    """
    last = fates.kept_aside(log.parent)
    if last is None or last.job is None:
        return None
    fate = fates.of([last.job]).get(last.job)
    if fate is None or fate.status not in ("oom", "timeout"):
        return None
    return fate.status, f"its job {last.job[1]} was ended, as those before it: {fate.state}"
