"""Check a site before a campaign, and print what to fix: profile, scheduler, site.yaml, nodes.

Runs one short job on a compute node, which reports what the node has. Exit code 0 means that there
is nothing to fix.
"""

import argparse

from dlbench.cluster import check_site
from dlbench.command.study_files import add_configfile
from dlbench.common import flag_types


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile", required=True, help="its name or folder, as for Snakemake, or one of profiles/"
    )
    add_configfile(parser)
    parser.add_argument("--no-job", action="store_true", help="start no job on a compute node")
    parser.add_argument(
        "--timeout",
        type=flag_types.real(above=0),
        default=600,
        metavar="S",
        help="seconds that job may be queued",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def run(args: argparse.Namespace) -> int:
    remarks = check_site.print_remarks
    fine = remarks(args.profile, args.configfile, not args.no_job, args.timeout, args.json)
    return 0 if fine else 1
