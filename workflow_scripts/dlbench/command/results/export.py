"""Export what is there now, also during a campaign. Starts and locks nothing.

--output FILE, which ends in .csv, .parquet or .json: one row for each run with a valid result, with
the columns of results/tables/runs.parquet; how many there are of how many is said. Or, with --table
coverage, one row for each combination of the study: how it ended, what it waits for, why it is
stale, skipped or excluded.

--output FOLDER: all runs, steps, evaluations, samples and metrics as one hive-partitioned Parquet
dataset, FOLDER/{runs,steps,...}/site=S/model=M/strategy=T/part-0.parquet. An earlier export there
is replaced.
"""

import argparse
from pathlib import Path

from dlbench import Error
from dlbench.command.study_files import add_configfile
from dlbench.log.event_fields import STATUSES
from dlbench.results import export_runs
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="ends in .csv, .parquet or .json; or a folder, whose name has no such end",
    )
    add_configfile(parser)
    parser.add_argument("--status", nargs="+", choices=STATUSES, help="runs that ended like this")
    parser.add_argument("--table", choices=("runs", "coverage"), help="runs if not given")


def run(args: argparse.Namespace) -> None:
    study = config.study_from_files(args.configfile)
    if not Path(args.output).suffix or Path(args.output).is_dir():
        if args.status or args.table:
            raise Error(
                f"--output {args.output} is a folder, for all of the study: --status and --table "
                "need a file that ends in .csv, .parquet or .json"
            )
        from dlbench.results import export_dataset  # which takes a second

        export_dataset.export(study, args.output)
    elif args.table == "coverage":
        export_runs.export_coverage(study, args.output)
    else:
        export_runs.export(study, args.output, args.status or STATUSES)
