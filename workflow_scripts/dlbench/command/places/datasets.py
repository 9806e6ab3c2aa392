"""List the datasets: what each is, its records and the bytes to fetch.

With --output it writes the whole catalogue, datasets.md and datasets.json, into a folder.
"""

import argparse
import json
from pathlib import Path

from dlbench.data import list_datasets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write the catalogue there")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def run(args: argparse.Namespace) -> None:
    if args.output:
        list_datasets.write(args.output)
    elif args.json:
        print(json.dumps(list_datasets.entries()))
    else:
        print("\n".join(list_datasets.lines(list_datasets.entries())))
