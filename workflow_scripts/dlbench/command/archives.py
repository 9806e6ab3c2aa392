"""Commands about archives: written, verified, derived again."""

import argparse
import json
import sys

from dlbench.command.starting import add_configfile, add_json
from dlbench.common import command_line, tools
from dlbench.common.files import sha256
from dlbench.common.phrases import counted


def add_archive(parser: argparse.ArgumentParser) -> None:
    add_configfile(parser)
    parser.add_argument("--config-json", metavar="FILE", help="the merged config")
    parser.add_argument("--output", default="results/archive.zip", help="file (%(default)s)")
    parser.add_argument("--with-images", action="store_true", help="the runs' images, too")


def archive(args: argparse.Namespace) -> None:
    """Write a finished study to one zip file that others can verify and derive again.

    `snakemake archive` makes all that is needed and starts this: results/archive.zip.
    """
    from dlbench.archive import write_archive
    from dlbench.study import config

    settings = config.read_merged_config(args.config_json) or config.settings_of(args.configfile)
    summary = write_archive.write(settings, args.output, args.with_images)
    print(
        f"{args.output}: {counted(summary.runs, 'run')}, {counted(summary.files, 'file')}",
        f"  by {summary.by}: CITATION.cff, which you edit before you publish",
        *summary.describe_secrets(),
        sep="\n",
        file=sys.stderr,
    )


def add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", help="zip file that dlbench archive wrote")
    parser.add_argument(
        "--deep", action="store_true", help="read all logs again and compare the records with them"
    )
    add_json(parser)
    add_limit(parser)


def verify(args: argparse.Namespace) -> int:
    """Verify an archive of a study: every digest and size, both manifests, and all records.

    Reads the archive in place; only --deep writes, the logs of one run at a time into a temporary
    folder. Archives of unknown origin are safe to verify. Needs the standard library only.
    """
    from dlbench.archive import verify_archive

    deep = ""
    with verify_archive.open_bag(args.archive, args.limit_gb * 1e9) as bag:
        problems = verify_archive.problems(bag)
        if args.deep and not problems:
            compared = verify_archive.compare(bag)
            problems = compared.differing
            deep = f"; {compared.same} records say what their logs do"
            if note := verify_archive.describe_other_versions(compared.others):
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
    from dlbench.archive import verify_archive

    most = verify_archive.DEFAULT_LIMIT_BYTES / 1e9
    parser.add_argument(
        "--limit-gb",
        type=command_line.real(above=0),
        default=most,
        help="most that it may unpack to",
    )


def add_rederive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", help="zip file that dlbench archive wrote")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--output", metavar="DIR", help="new folder: the project, made again")
    mode.add_argument("--list", action="store_true", help="what would be trained to repeat it")
    parser.add_argument("--own-code", action="store_true", help="run no program of the archive")
    add_json(parser)
    add_limit(parser)


def rederive(args: argparse.Namespace) -> int:
    """Derive the tables, figures and report of an archive again, and report whether they are
    identical.

    Uses the archive's logs and records only: nothing is trained, and no network is needed. It runs
    the programs in the archive, so use it only for archives whose authors you would trust with your
    account, or with --own-code, which runs this checkout's programs instead.
    """
    from dlbench.archive import rederive as derived
    from dlbench.archive import verify_archive

    with verify_archive.open_bag(args.archive, args.limit_gb * 1e9) as bag:
        if args.list:
            derived.check_sound(bag)
            if args.json:
                planned, skipped = derived.trainings(bag)
                print(json.dumps({"archive": args.archive, "runs": planned, "skipped": skipped}))
            else:
                print("\n".join(derived.training_plan(bag)))
            return 0
        outcome = derived.rederive(bag, args.output, args.own_code)
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
    from dlbench.archive import verify_archive

    for name, archived, installed in outcome.versions:
        print(f"{name}: {archived} in the archive, {installed} here", file=sys.stderr)
    total = (
        f"{counted(outcome.tables, 'table')}, {counted(outcome.figures, 'figure')}, the report, "
        f"{counted(outcome.run_tables, 'table')} of runs"
    )
    if note := verify_archive.describe_other_versions(outcome.records.others):
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
