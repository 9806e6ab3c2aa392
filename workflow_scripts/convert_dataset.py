"""Convert the fetched files of a dataset to TFRecord shards with a manifest."""

import argparse
import os

from dlbench.common import command_line
from dlbench.common.command_line import run_program
from dlbench.data import convert_dataset, pictures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    command_line.add_dataset(parser)
    parser.add_argument("--source", required=True, help="folder with the fetched files")
    parser.add_argument("--output", required=True, help="folder for the shards and manifest.json")
    parser.add_argument(
        "--code-sha256", default="", help="digest of the converting code, kept in the manifest"
    )
    parser.add_argument(
        "--workers", type=command_line.whole(1), help="processes; by default one for each core"
    )
    parser.add_argument(
        "--check",
        default="header",
        choices=pictures.CHECKS,
        help="of encoded images: nothing, the header, or decode them whole",
    )
    args = parser.parse_args()
    command_line.check_dataset(args)
    convert_dataset.convert(
        args.dataset,
        args.source,
        args.output,
        code_sha256=args.code_sha256,
        workers=args.workers,
        check=args.check,
    )
    print(f"{args.dataset}: {os.path.join(args.output, 'manifest.json')} written")


if __name__ == "__main__":
    run_program(main)
