"""Collect the records of a study's runs into results/tables/.

If the logs of a run no longer match its record, the record is removed, the logs are kept aside and
no tables are written: the next start of the workflow trains the run again.
"""

import argparse
import sys

from dlbench.common import phrases
from dlbench.common.command_line import run_program
from dlbench.plan import skipping
from dlbench.records import run_record
from dlbench.results import collect_runs
from dlbench.study import config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    given = parser.add_mutually_exclusive_group()
    given.add_argument(
        "--config", nargs="+", default=["config.yaml"], help="config files, the last one winning"
    )
    given.add_argument("--config-json", metavar="FILE", help="the merged config")
    parser.add_argument("--output", default="results/tables", help="folder of the tables")
    args = parser.parse_args()
    study = config.study(config.read_merged_config(args.config_json) or config.read(*args.config))
    try:
        collect_runs.collect(study, skipping.devices(study.site).kind, args.output)
    except run_record.Damaged as error:
        for run_id in error.runs:
            run_record.forget(run_id)
        runs = phrases.counted(len(error.runs), "run")
        sys.exit(f"{error}\n{runs} forgotten, the logs kept aside: the next start trains again")


if __name__ == "__main__":
    run_program(main)
