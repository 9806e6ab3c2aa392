"""Forget recorded results, failures by default, so that the next start trains them again.

The logs stay, as train.attemptN.jsonl beside the new ones.
"""

import argparse

from dlbench import Error, records
from dlbench.cli import run_program
from dlbench.eventlog import STATUSES

FAILURES = ("failed", "oom", "timeout")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_id", nargs="*", help="these runs only, whatever their status")
    parser.add_argument(
        "--status", nargs="+", choices=STATUSES, default=FAILURES, help="runs that ended like this"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be forgotten")
    args = parser.parse_args()
    chosen = args.run_id or records.with_status(args.status)
    for run_id in chosen:
        if not records.folder(run_id).is_dir():
            raise Error(f"no run {run_id!r} in {records.RESULTS / 'runs'}")
    for run_id in chosen:
        if not args.dry_run:
            records.forget(run_id)
        print(run_id)
    print(f"{'would forget' if args.dry_run else 'forgot'} {len(chosen)} run(s)")


if __name__ == "__main__":
    run_program(main)
