"""Logs of the attempts of a run that ended without a result.

A job may be killed with everything in it, its supervisor too, and Snakemake removes what a failed
job wrote. So a second name (a hard link) keeps the log of a run that goes on; the next attempt
moves it aside, to train.attempt1.jsonl and so on, where those of stopped attempts lie too.
"""

import contextlib
import os
import re

from dlbench import eventlog

OPEN = "train.open.jsonl"
KEPT_ASIDE = re.compile(r"train\.(?:attempt(\d+)|open)\.jsonl")  # of rank 0


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


def kept_aside(place):
    """[(number, path)] of the logs that were kept aside in a run's folder, the last one last."""
    with contextlib.suppress(OSError):
        matches = (KEPT_ASIDE.fullmatch(path.name) for path in place.iterdir())
        numbers = {match[0]: match[1] and int(match[1]) for match in matches if match}
        following = max(filter(None, numbers.values()), default=0) + 1
        return sorted((number or following, place / name) for name, number in numbers.items())
    return []
