"""Verify an archive of a study: every digest and size, both manifests, and all records.

Reads the archive in place; only --deep writes, the logs of one run at a time into a temporary
folder. Archives of unknown origin are safe to verify. Needs the standard library only.
"""

import argparse
import json
import sys

from dlbench.archive import archive_logs, verify_archive
from dlbench.common import flag_types
from dlbench.common.files import sha256
from dlbench.common.phrases import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", help="zip file that dlbench archive wrote")
    parser.add_argument(
        "--deep", action="store_true", help="read all logs again and compare the records with them"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    add_limit(parser)


def run(args: argparse.Namespace) -> int:
    deep = ""
    with verify_archive.open_bag(args.archive, args.limit_gb * 1e9) as bag:
        problems = verify_archive.problems(bag)
        if args.deep and not problems:
            compared = archive_logs.compare(bag)
            problems = compared.differing
            deep = f"; {compared.same} records say what their logs do"
            if note := archive_logs.describe_other_versions(compared.others):
                print(note, file=sys.stderr)
        files = len(bag.payload)
        runs = sum(bool(verify_archive.RECORD.fullmatch(name)) for name in bag.payload)
    digest = sha256(args.archive)
    if args.json:
        found = {"archive": args.archive, "sha256": digest, "files": files, "runs": runs}
        print(json.dumps(found | {"problems": problems}))
        return 1 if problems else 0
    if problems:
        print("\n".join(verify_archive.summarise(problems)), file=sys.stderr)
        print(f"{args.archive}: {len(problems)} problem(s)", file=sys.stderr)
        return 1
    what = f"{counted(files, 'file')}, {counted(runs, 'run')}{deep}"
    print(f"{args.archive}: sound: {what}; SHA-256 {digest}")
    return 0


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option --limit-gb."""
    most = verify_archive.DEFAULT_LIMIT_BYTES / 1e9
    parser.add_argument(
        "--limit-gb", type=flag_types.real(above=0), default=most, help="most that it may unpack to"
    )
