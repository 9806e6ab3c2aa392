"""Count the calls and file accesses of a start of Snakemake; a program for a workflow's folder.

    python planning_counts.py COUNTS.json [arguments of snakemake]

Writes {"calls", "opened", "listed", "stats"}: calls of Python functions, files opened, folders
listed and files looked at.
"""

import contextlib
import cProfile
import json
import os
import pstats
import sys
from pathlib import Path

EVENTS = {"open": "opened", "os.listdir": "listed", "os.scandir": "listed"}


def main():
    """Run Snakemake in this process and write what it did."""
    path, *arguments = sys.argv[1:]
    counts = {"opened": 0, "listed": 0, "stats": 0}

    def count(event, _):
        if event in EVENTS:
            counts[EVENTS[event]] += 1

    def counted(function):
        def stat(*given, **named):
            counts["stats"] += 1
            return function(*given, **named)

        return stat

    os.stat, os.lstat = counted(os.stat), counted(os.lstat)
    sys.addaudithook(count)
    profile = cProfile.Profile()
    with contextlib.suppress(SystemExit):
        from snakemake import cli

        profile.runcall(cli.main, arguments)
    Path(path).write_text(json.dumps(counts | {"calls": pstats.Stats(profile).total_calls}))


if __name__ == "__main__":
    main()
