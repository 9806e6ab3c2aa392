"""Export all runs, steps, evaluations and samples as one hive-partitioned Parquet dataset.

FOLDER/{runs,steps,evals,samples}/site=S/model=M/strategy=T/part-0.parquet, of all runs with a
result that stands, also during a campaign. Starts and locks nothing.
"""

import argparse

from dlbench import config, dataset_export
from dlbench.cli import add_configfile, run_program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="an earlier export there is replaced"
    )
    add_configfile(parser)
    args = parser.parse_args()
    dataset_export.export(config.study_of(args.configfile), args.output)


if __name__ == "__main__":
    run_program(main)
