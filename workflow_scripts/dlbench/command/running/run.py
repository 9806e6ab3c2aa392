"""Start the workflow with a study, and print the plain command of Snakemake that does it.

STUDY is a config file, a folder that has one, or the name of a folder in studies/; without one, or
with config.yaml, it is that of the config.yaml here. All after it are targets and options of
Snakemake.

Example: dlbench run overhead -n
"""

import argparse
from pathlib import Path

from dlbench.command import starting
from dlbench.command.study_files import CONFIG, study_file

USAGE = "[STUDY [TARGETS AND OPTIONS OF SNAKEMAKE]]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "study", metavar="STUDY", nargs="?", help="a file, a folder, or a name in studies/"
    )
    parser.add_argument("snakemake", nargs=argparse.REMAINDER, help="as snakemake --help lists")


def run(args: argparse.Namespace) -> None:
    file = study_file(args.study or CONFIG)
    own = Path(file).resolve() == Path(CONFIG).resolve()
    # Behind the others, since --configfile takes all that follows.
    starting.become_snakemake([*args.snakemake, *([] if own else ["--configfile", file])])
