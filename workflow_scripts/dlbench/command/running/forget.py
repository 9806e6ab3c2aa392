"""Forget recorded results, failures by default, so that the next start trains them again.

With --configfile only those of that study. The logs stay, as train.attemptN.jsonl beside the new
ones.
"""

import argparse

from dlbench.campaign import forget_runs
from dlbench.command.study_files import add_configfile
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forget_runs.add_selection_flags(parser)
    add_configfile(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def run(args: argparse.Namespace) -> None:
    study = config.study_from_files(args.configfile) if args.configfile else None
    forget_runs.forget(forget_runs.select(args, study), args.dry_run, args.json)
