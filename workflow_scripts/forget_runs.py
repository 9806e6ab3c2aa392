"""Forget recorded results, failures by default, so that the next start trains them again.

The logs stay, as train.attemptN.jsonl beside the new ones.
"""

import argparse

from dlbench.campaign import forget_runs
from dlbench.common.command_line import run_program
from dlbench.study import config


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    forget_runs.add_selection_flags(parser)
    parser.add_argument(
        "--configfile",
        nargs="+",
        help="only runs of this study, merged over config.yaml, as by the workflow",
    )
    args = parser.parse_args()
    study = config.study_from_files(args.configfile) if args.configfile else None
    forget_runs.forget(forget_runs.select(args, study), args.dry_run)


if __name__ == "__main__":
    run_program(main)
