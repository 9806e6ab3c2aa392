"""Show the status of a study: which runs are done, running, pending, failed, skipped or stale.

Also shows the cost. It reads the config, the records and the logs, and changes nothing, so it can
run at any time, also on another machine that has access to the results.
"""

import argparse

from dlbench.campaign import status
from dlbench.command.study_files import add_configfile
from dlbench.common import flag_types
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configfile(parser)
    parser.add_argument(
        "--jobs",
        type=flag_types.whole(1),
        metavar="N",
        help="trained at a time; as many as now, if not given",
    )
    parser.add_argument("--runs", action="store_true", help="also one line a run")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    parser.add_argument(
        "--watch", type=flag_types.real(above=0), metavar="SECONDS", help="again and again"
    )


def run(args: argparse.Namespace) -> None:
    study = config.study_from_files(args.configfile)
    status.print_status(study, args.jobs, args.runs, args.json, args.watch)
