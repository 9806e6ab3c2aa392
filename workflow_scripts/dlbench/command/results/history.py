"""Make one history of the campaigns that a config names, and find what changed between them.

Starts the target history of the workflow, and prints the plain command of Snakemake that does it.
Options after -- are passed to Snakemake, whose exit code this program returns.

Example: dlbench history --configfile my_study.yaml -- -n
"""

import argparse

from dlbench import Error
from dlbench.command import starting
from dlbench.command.study_files import add_configfile
from dlbench.study import config

PASSES_ON = True
USAGE = "[OPTIONS] [-- OPTIONS OF SNAKEMAKE]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configfile(parser)


def run(args: argparse.Namespace) -> None:
    files = args.configfile or starting.config_files(args.passed_on)
    if not config.settings_of(files)["history"]:
        searched = ", ".join(files) or "config.yaml"
        raise Error(
            f"{searched}: expected archives and results folders under the key history, found none; "
            "docs/history.md has an example"
        )
    named = ["--configfile", *args.configfile] if args.configfile else []
    starting.become_snakemake(["history", *args.passed_on, *named])
