"""Write a manifest for existing TFRecords, which stay where they are."""

import argparse

from dlbench.common import flag_types
from dlbench.common.command_line import run_program
from dlbench.data import adopt_dataset


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    flag_types.add_dataset(parser)
    parser.add_argument("folder", help="folder with the shards, or with our manifest.json")
    parser.add_argument("--output", required=True, help="path of the manifest")
    parser.add_argument(
        "--code-sha256", default="", help="digest of a user's text and of the code that converts it"
    )
    parser.add_argument(
        "--check",
        default="header",
        choices=["header", "decode"],
        help="count the records and read the first of each shard, or read all",
    )
    args = parser.parse_args()
    flag_types.check_dataset(parser, args)
    adopt_dataset.adopt(args.dataset, args.folder, args.output, args.check, args.code_sha256)


if __name__ == "__main__":
    run_program(main)
