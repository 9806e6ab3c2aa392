"""Check whether a results folder is healthy.

Prints one line for each finding: what, where, why it matters, what to do. Checks the records of all
runs, or with --configfile or --study those of a study, and what lies around them; nothing is
changed. Exit code 1: there are findings.
"""

import argparse
import json
import sys

from dlbench.campaign import doctor
from dlbench.command.study_files import add_configfile
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", help="of the workflow, or its results")
    add_configfile(parser)
    parser.add_argument("--study", action="store_true", help="name runs that the config has not")
    parser.add_argument("--content", action="store_true", help="read shards and logs whole")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def run(args: argparse.Namespace) -> int:
    doctor.enter_workflow_folder(args.folder)
    study = config.study_from_files(args.configfile) if args.study or args.configfile else None
    problems = doctor.examine(study, args.content, args.study)
    if args.json:
        findings = [vars(problem) for problem in problems]
        print(json.dumps({"schema_version": doctor.SCHEMA_VERSION, "findings": findings}))
    else:
        for problem in problems:
            print(problem.line())
        print(f"{len(problems)} finding(s)" if problems else "healthy", file=sys.stderr)
    return 1 if problems else 0
