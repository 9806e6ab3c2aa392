"""Check whether a results folder is healthy, and repair it on request.

Prints one line for each finding: what, where, why it matters, how to repair it. Checks all runs, or
with --configfile or --study those of a study. Exit code 1: there are findings. --repair deletes
nothing: it moves files to results/aside.
"""

import argparse
import functools
import json
import sys

from dlbench.campaign import doctor, snakemake_files
from dlbench.command.study_files import add_configfile
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", help="of the workflow, or its results")
    add_configfile(parser)
    parser.add_argument("--study", action="store_true", help="name runs that the config has not")
    parser.add_argument("--content", action="store_true", help="read shards and logs whole")
    parser.add_argument("--repair", action="store_true", help="repair what can be, then look again")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def run(args: argparse.Namespace) -> int:
    doctor.enter_workflow_folder(args.folder)
    study = config.study_from_files(args.configfile) if args.study or args.configfile else None
    look = functools.partial(doctor.examine, study, args.content, args.study)
    problems, tried = look(), []
    if args.repair and problems:
        tried = doctor.repair(problems)
        problems = look()
    if args.json:
        print(json.dumps(_plain(problems, tried)))
    else:
        for problem, failure in tried:
            outcome = "not repaired" if failure else "repaired"
            print(f"{outcome}: {problem.line()} {failure}".strip())
        for problem in problems:
            print(problem.line())
        if snakemake_files.are_in_database():
            print(snakemake_files.NOT_READ, file=sys.stderr)
        print(f"{len(problems)} finding(s)" if problems else "healthy", file=sys.stderr)
    return 1 if problems else 0


def _plain(problems, tried):
    return {
        "schema_version": doctor.SCHEMA_VERSION,
        "findings": [problem.plain() for problem in problems],
        "repaired": [problem.plain() for problem, failure in tried if not failure],
        "not_repaired": [problem.plain() | {"problem": f} for problem, f in tried if f],
    }
