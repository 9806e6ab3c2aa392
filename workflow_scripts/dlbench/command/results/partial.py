"""Write tables and figures of the runs finished so far, also during a campaign.

They go into a separate folder with tables/ and figures/ as in results/. This starts and locks
nothing, and does not change the results.
"""

import argparse

from dlbench.campaign import partial_results
from dlbench.command.study_files import add_configfile
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", required=True, metavar="FOLDER", help="outside results/")
    add_configfile(parser)


def run(args: argparse.Namespace) -> None:
    partial_results.write(config.study_from_files(args.configfile), args.output)
