"""Compare the TFRecord shards of a dataset with its manifest.json."""

import argparse
import sys

from dlbench.common import phrases
from dlbench.common.command_line import run_program
from dlbench.data import verify_dataset


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="folder with manifest.json, e.g. results/data/digits")
    args = parser.parse_args()
    problems = verify_dataset.verify(args.folder)
    if problems:
        print("\n".join(problems))
        print(
            f"{phrases.counted(len(problems), 'problem')}; the rule convert_dataset rebuilds the "
            f"shards: delete {args.folder}/manifest.json and the damaged shards, and run the "
            "workflow again"
        )
        sys.exit(1)
    print(f"{args.folder}: all shards are as the manifest says")


if __name__ == "__main__":
    run_program(main)
