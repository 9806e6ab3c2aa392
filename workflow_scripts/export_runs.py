"""Export the runs table of what is there now as CSV, Parquet or JSON, also during a campaign.

One row for each run with a valid result, with the columns of results/tables/runs.parquet;
how many there are of how many is said. Or, with --table coverage, one row for each combination
of the study: how it ended, what it waits for, why it is stale, skipped or excluded. Starts and
locks nothing.
"""

import argparse

from dlbench.common.command_line import add_configfile, run_program
from dlbench.log.event_fields import STATUSES
from dlbench.results import export_runs
from dlbench.study import config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="ends in .csv, .parquet or .json"
    )
    add_configfile(parser)
    parser.add_argument(
        "--status", nargs="+", choices=STATUSES, default=STATUSES, help="runs that ended like this"
    )
    parser.add_argument("--table", choices=("runs", "coverage"), default="runs")
    args = parser.parse_args()
    study = config.study_from_files(args.configfile)
    if args.table == "coverage":
        export_runs.export_coverage(study, args.output)
    else:
        export_runs.export(study, args.output, args.status)


if __name__ == "__main__":
    run_program(main)
