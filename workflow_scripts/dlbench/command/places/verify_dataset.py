"""Compare the TFRecord shards of a dataset with its manifest.json."""

import argparse

from dlbench.common import phrases
from dlbench.data import verify_dataset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="folder with manifest.json, e.g. results/data/digits")


def run(args: argparse.Namespace) -> int:
    problems = verify_dataset.verify(args.folder)
    if problems:
        print("\n".join(problems))
        print(
            f"{phrases.counted(len(problems), 'problem')}; the rule convert_dataset rebuilds the "
            f"shards: delete {args.folder}/manifest.json and the damaged shards, and run the "
            "workflow again"
        )
        return 1
    print(f"{args.folder}: all shards are as the manifest says")
    return 0
