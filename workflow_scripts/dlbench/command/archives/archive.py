"""Write a finished study to one zip file that others can verify and derive again.

`snakemake archive` makes all that is needed and starts this: results/archive.zip.
"""

import argparse
import sys

from dlbench.archive import write_archive
from dlbench.command.study_files import add_configfile
from dlbench.common.phrases import counted
from dlbench.study import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configfile(parser)
    parser.add_argument("--config-json", metavar="FILE", help="the merged config")
    parser.add_argument("--output", default="results/archive.zip", help="file (%(default)s)")
    parser.add_argument("--with-images", action="store_true", help="the runs' images, too")


def run(args: argparse.Namespace) -> None:
    settings = config.read_merged_config(args.config_json) or config.settings_of(args.configfile)
    summary = write_archive.write(settings, args.output, args.with_images)
    print(
        f"{args.output}: {counted(summary.runs, 'run')}, {counted(summary.files, 'file')}",
        *summary.describe_secrets(),
        sep="\n",
        file=sys.stderr,
    )
