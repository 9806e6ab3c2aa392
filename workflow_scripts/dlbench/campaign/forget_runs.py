"""Which recorded results are forgotten, so that the next start trains their runs again.

What forget_runs.py and retry_runs.py share: the choice on their command lines. The logs of
forgotten runs are kept aside.
"""

from pathlib import Path

from dlbench import Error
from dlbench.common import phrases
from dlbench.log.event_fields import STATUSES
from dlbench.log.event_log import FAILED
from dlbench.records import run_record

LOCKS = Path(".snakemake/locks")


def add_choice(parser):
    """The flags that choose runs."""
    parser.add_argument("run_id", nargs="*", help="these runs only, whatever their status")
    parser.add_argument(
        "--status", nargs="+", choices=STATUSES, default=FAILED,
        help=f"runs that ended like this; {', '.join(FAILED)} if not given",
    )  # fmt: skip
    parser.add_argument(
        "--message", default="", metavar="TEXT", help="of them, those whose message has this text"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be forgotten")


def chosen(args, study=None):
    """The ids of the runs that a command line chooses.

    Args:
        args: as `add_choice` has them parsed.
        study: leave out runs that are not of this Study; None for all in the results.

    Raises:
        Error: a run that was named is not there, or not of the study.
    """
    ours = {run.id for run in study.runs} if study else None
    if args.run_id and args.message:
        raise Error(
            "expected either runs or --message, found both: runs that are named are chosen "
            "whatever their message"
        )
    for run_id in args.run_id:
        if ours is not None and run_id not in ours:
            raise Error(
                f"no run {run_id!r} in the study {study.name!r}"
                f"{phrases.did_you_mean(run_id, ours)}; "
                "of which study is it? Name that with --configfile"
            )
        if not run_record.folder(run_id).is_dir():
            raise Error(f"no run {run_id!r} in {run_record.RESULTS / 'runs'}")
    found = args.run_id or run_record.with_status(args.status, args.message)
    return [run_id for run_id in found if ours is None or run_id in ours]


def refuse_if_at_work():
    """Snakemake would not start beside another one, and the runs would be forgotten already."""
    if any(LOCKS.glob("*.lock")):
        raise Error(
            "Snakemake is at work in this folder, or was killed: nothing is forgotten. Try again "
            "when it is done; after a kill, run snakemake --unlock first"
        )


def forget(run_ids, dry_run):
    """Forget the results of some runs and name them, or only name them."""
    for run_id in run_ids:
        if not dry_run:
            run_record.forget(run_id)
        print(run_id)
    print(f"{'would forget' if dry_run else 'forgot'} {len(run_ids)} run(s)", flush=True)
