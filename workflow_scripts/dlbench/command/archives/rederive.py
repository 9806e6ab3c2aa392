"""Derive the tables, figures and report of an archive again, and report whether they are identical.

Uses the archive's logs and records only: nothing is trained, and no network is needed. It runs the
programs in the archive, so use it only for archives whose authors you would trust with your
account, or with --own-code, which runs this checkout's programs instead.
"""

import argparse
import json
import sys

from dlbench.archive import archive_logs, rederive, verify_archive
from dlbench.command.archives.verify import add_limit
from dlbench.common import tools
from dlbench.common.phrases import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", help="zip file that dlbench archive wrote")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--output", metavar="DIR", help="new folder: the project, made again")
    mode.add_argument("--list", action="store_true", help="what would be trained to repeat it")
    parser.add_argument("--own-code", action="store_true", help="run no program of the archive")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    add_limit(parser)


def run(args: argparse.Namespace) -> int:
    with verify_archive.open_bag(args.archive, args.limit_gb * 1e9) as bag:
        if args.list:
            rederive.check_sound(bag)
            if args.json:
                planned, skipped = rederive.trainings(bag)
                print(json.dumps({"archive": args.archive, "runs": planned, "skipped": skipped}))
            else:
                print("\n".join(rederive.training_plan(bag)))
            return 0
        outcome = rederive.rederive(bag, args.output, args.own_code)
    if args.json:
        print(json.dumps({"archive": args.archive} | _plain(outcome)))
    else:
        _print_outcome(outcome, args.own_code)
    return 1 if outcome.differing or outcome.records.differing else 0


def _plain(outcome):
    return {
        "tables": outcome.tables,
        "run_tables": outcome.run_tables,
        "figures": outcome.figures,
        "differing": outcome.differing,
        "versions": [
            {"name": name, "archive": archived, "here": installed}
            for name, archived, installed in outcome.versions
        ],
        "records": {
            "same": outcome.records.same,
            "differing": outcome.records.differing,
            "of_other_versions": sum(outcome.records.others.values()),
        },
    }


def _print_outcome(outcome, own_code):
    for name, archived, installed in outcome.versions:
        print(f"{name}: {archived} in the archive, {installed} here", file=sys.stderr)
    total = (
        f"{counted(outcome.tables, 'table')}, {counted(outcome.figures, 'figure')}, the report, "
        f"{counted(outcome.run_tables, 'table')} of runs"
    )
    if note := archive_logs.describe_other_versions(outcome.records.others):
        print(note, file=sys.stderr)
    for line in verify_archive.summarise(outcome.records.differing):
        print(line, file=sys.stderr)
    if not outcome.differing:
        print(f"identical: {total}; {outcome.records.same} records say what their logs do")
        return
    print("\n".join(f"{name}: differs" for name in outcome.differing), file=sys.stderr)
    why = (
        "the versions above are not those that made the archive: "
        f"`{tools.uv_command('run --project FOLDER')}`, with the unpacked archive as FOLDER, takes "
        "those of its lock file"
        if outcome.versions
        else "versions are the same, so the archived ones were made by other code"
        + (" (without --own-code, that in the archive does it)" if own_code else "")
        + ", or changed, or the processor computes otherwise"
    )
    print(f"{len(outcome.differing)} file(s) differ, of {total}: {why}", file=sys.stderr)
