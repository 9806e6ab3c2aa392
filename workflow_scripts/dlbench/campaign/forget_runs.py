"""Forget recorded results, so that the next start trains their runs again.

`dlbench forget` and `dlbench retry` share the flags that select runs. Logs of forgotten runs are
moved aside. A search for a largest batch is selected as a run is: by its id or, if it found no
batch, by its status.
"""

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import psutil

from dlbench import Error
from dlbench.common import phrases
from dlbench.log.event_fields import STATUSES
from dlbench.log.event_log import FAILED
from dlbench.records import run_record
from dlbench.study import batch_searches
from dlbench.study.config import Study

LOCKS = Path(".snakemake/locks")


def add_selection_flags(parser: ArgumentParser) -> None:
    """Add the flags that select runs."""
    parser.add_argument(
        "run_id",
        nargs="*",
        help="these runs, or searches for a largest batch, only, whatever their status",
    )
    parser.add_argument(
        "--status",
        nargs="+",
        choices=STATUSES,
        default=FAILED,
        help=f"runs that ended like this; {', '.join(FAILED)} if not given",
    )
    parser.add_argument(
        "--message", default="", metavar="TEXT", help="of them, those whose message has this text"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be forgotten")


def select(args: Namespace, study: Study | None = None) -> list[str]:
    """The ids of the runs, and of the searches for a largest batch, that a command line selects.

    Raises Error: a run that was named has no results, or is not part of the study.

    Args:
        args: the parsed flags of `add_selection_flags`.
        study: leave out runs that are not of this Study; None: all runs in the results.
    """
    known = {run.id for run in study.runs} | study.searches.keys() if study else set()
    if args.run_id and args.message:
        raise Error(
            "expected either runs or --message, found both: runs that are named are chosen "
            "whatever their message"
        )
    for run_id in args.run_id:
        if study and run_id not in known:
            raise Error(
                f"no run {run_id!r} in the study {study.name!r}"
                f"{phrases.did_you_mean(run_id, known)}; "
                "of which study is it? Name that with --configfile"
            )
        if not run_record.folder(run_id).is_dir() and not _is_search(run_id):
            raise Error(
                f"no run {run_id!r} in {run_record.RESULTS / 'runs'}, and no search of that name "
                f"in {batch_searches.FOLDER}"
            )
    run_ids = args.run_id or [
        *run_record.ids_with_status(args.status, args.message),
        *batch_searches.failed_searches(args.status, args.message),
    ]
    return [run_id for run_id in run_ids if study is None or run_id in known]


def check_not_running() -> None:
    """Check that no Snakemake is running in this folder.

    Otherwise runs would be forgotten, and then a second Snakemake could not start. Raises Error:
    one is running, or has left its lock.
    """
    if pids := workflows():
        raise Error(
            f"Snakemake is at work in this folder (process {', '.join(map(str, pids))}): nothing "
            "is forgotten; try again when it has ended"
        )
    # Snakemake has no command that prints them; with --persistence-backend db they are no files.
    if any(LOCKS.glob("*.lock")):
        raise Error(
            "this folder is locked, and no Snakemake is at work in it on this machine: nothing is "
            "forgotten. If none is on another machine either, it was killed: run snakemake "
            "--unlock, then try again"
        )


def forget(run_ids: Sequence[str], dry_run: bool, as_json: bool = False) -> None:
    """Forget the results of runs and searches and print their ids; with `dry_run` only print."""
    of_searches = [run_id for run_id in run_ids if _is_search(run_id)]
    for run_id in run_ids:
        if not dry_run:
            _forget_search(run_id) if run_id in of_searches else run_record.forget(run_id)
        if not as_json:
            print(run_id)
    if as_json:
        of_runs = [run_id for run_id in run_ids if run_id not in of_searches]
        print(json.dumps({"runs": of_runs, "searches": of_searches, "forgotten": not dry_run}))
        return
    searches = len(of_searches)
    noun = "search" if searches == 1 else "searches"
    found = f" and {searches} {noun} for a largest batch" if searches else ""
    verb = "would forget" if dry_run else "forgot"
    print(f"{verb} {phrases.counted(len(run_ids) - searches, 'run')}{found}", flush=True)


def _is_search(name):
    return (batch_searches.FOLDER / name).is_dir()


def _forget_search(search_id):
    """Remove the result of a search and the records of its tries; move their logs aside."""
    place = batch_searches.FOLDER / search_id
    (place / batch_searches.RESULT_FILE).unlink(missing_ok=True)
    for record in place.glob("*/run.json"):
        run_record.forget_in(record.parent)


def workflows() -> list[int]:
    """The ids of Snakemake processes that run in this folder, on this machine."""
    here = os.path.realpath(".")
    return [
        process.pid
        for process in psutil.process_iter(("cmdline", "cwd"))
        if process.info["cwd"] == here  # None for processes of other users
        and any(Path(word).name == "snakemake" for word in (process.info["cmdline"] or [])[:4])
    ]
