"""Parse the event logs of one run and write its record, run.json, beside them.

With --put-aside, logs that cannot be read are renamed to train.attempt1.jsonl and so on. The
workflow then trains the run again.
"""

import argparse
import sys
from pathlib import Path

from dlbench.common.command_line import run_program
from dlbench.log import event_fields, event_log
from dlbench.records import parse_run
from dlbench.study.runs import Run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path, help="train.jsonl of rank 0, its other ranks beside it")
    parser.add_argument("--spec", required=True, help="fields of the run, JSON")
    parser.add_argument("--put-aside", action="store_true", help="logs that cannot be read")
    args = parser.parse_args()
    try:
        parse_run.parse(Run.from_json(args.spec), args.log, args.log.with_name("run.json"))
    except event_fields.LogError as error:
        if not args.put_aside or not args.log.is_file():
            raise
        moved_to = event_log.keep_aside(args.log)
        sys.exit(f"{error}; it is kept as {moved_to}: the next start trains the run again")


if __name__ == "__main__":
    run_program(main)
