"""Read the event logs of one run and write its record, run.json, beside them."""

import argparse
from pathlib import Path

from dlbench import parsing
from dlbench.cli import run_program
from dlbench.runs import Run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path, help="train.jsonl of rank 0, its other ranks beside it")
    parser.add_argument("--spec", required=True, help="fields of the run, JSON")
    args = parser.parse_args()
    parsing.parse(Run.from_json(args.spec), args.log, args.log.with_name("run.json"))


if __name__ == "__main__":
    run_program(main)
