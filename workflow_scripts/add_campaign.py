"""Add the sessions of an archive or a results folder to the history, once (docs/history.md)."""

import argparse
import json
import sys
from pathlib import Path

from dlbench.common.command_line import run_program
from dlbench.history import add_campaign, sources
from dlbench.tables import parquet_files


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="an archive (.zip) or a results folder")
    parser.add_argument("--options", type=json.loads, default={}, help="of its entry, as JSON")
    parser.add_argument("--history", type=Path, default=sources.HISTORY, help="folder")
    args = parser.parse_args()
    parquet_files.spare_memory()
    receipt = add_campaign.add(sources.Source(args.path, args.options), args.history)
    print(*add_campaign.lines(receipt), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    run_program(main)
