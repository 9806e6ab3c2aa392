"""Export all runs, steps, evaluations and samples as one hive-partitioned Parquet dataset.

FOLDER/{runs,steps,evals,samples}/site=S/model=M/strategy=T/part-0.parquet, of all runs with a
valid result, also during a campaign. Starts and locks nothing.
"""

import argparse

from dlbench.common.command_line import add_configfile, run_program
from dlbench.results import export_dataset
from dlbench.study import config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="an earlier export there is replaced"
    )
    add_configfile(parser)
    args = parser.parse_args()
    export_dataset.export(config.study_from_files(args.configfile), args.output)


if __name__ == "__main__":
    run_program(main)
