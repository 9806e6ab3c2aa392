"""Train bases again in one session with the runs that are compared with them (docs/sessions.md).

Lists the comparisons whose sides share no session, the finished runs to train again so that they
do, and the cost. --yes forgets these runs and keeps their logs aside; the next start of the
workflow trains them, all in one session.
"""

import argparse

from dlbench.campaign import forget_runs
from dlbench.command.study_files import add_configfile
from dlbench.results import rerun_bases
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configfile(parser)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT",
        help="comparisons with one of these in what they are called, as in `horovod on 2`",
    )  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="forget these runs")


def run(args: argparse.Namespace) -> None:
    chosen = rerun_bases.choose(config.study_from_files(args.configfile), args.only)
    print(*chosen.lines, sep="\n")
    if chosen.run_ids and args.yes:
        forget_runs.check_not_running()
        forget_runs.forget(chosen.run_ids, dry_run=False)
    elif chosen.run_ids:
        print("nothing is forgotten; with --yes these runs are")
