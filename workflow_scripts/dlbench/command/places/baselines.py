"""Collect the baselines of machines into one table, results/tables/baselines.parquet and .csv."""

import argparse
from pathlib import Path

from dlbench.results import collect_baselines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="with a folder for each machine")
    parser.add_argument("--output", default="results/tables", type=Path, help="folder of the table")


def run(args: argparse.Namespace) -> None:
    collect_baselines.collect(args.folder, args.output)
