"""Import logs of other programs, results folders and runs tables of others as our tables.

Logs are recognised by their content, also in folders. The logs of one program in one folder belong
to one run. A summary at the end lists what was left out and why. docs/importing.md lists the kinds.
Exit code 3: some logs could not be read, and the others were imported.
"""

import argparse
import json
import sys
from pathlib import Path

from dlbench import Error
from dlbench.common import plugins
from dlbench.imports import import_baselines, import_logs, kinds
from dlbench.tables import parquet_files, table_names

PARTLY = 3  # the exit code if some logs could not be read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a log, or a folder of them")
    parser.add_argument("--output", metavar="FILE", help="the runs table, Parquet")
    for name in table_names.OF_IMPORT:
        parser.add_argument(f"--{name}", metavar="FILE", help=f"the table of {name}, Parquet")
    parser.add_argument(
        "--baselines",
        metavar="FOLDER",
        help="instead of --output: of nccl-tests' and OSU's tables, a folder of results/baselines/",
    )
    parser.add_argument("--name", help="of the import, the study of its runs: as its folder")
    parser.add_argument(
        "--kind",
        help="of logs that no importer knows by their beginning, and of those that several know: "
        "a name of --list, or a file of patterns, *.yaml",
    )
    parser.add_argument(
        "--fields",
        type=_json,
        metavar="JSON",
        help='columns that the logs lack, as \'{"site": "far"}\'; what a log says must agree',
    )
    parser.add_argument(
        "--path-fields",
        metavar="PATTERN",
        help="columns in paths, as '{runtime}_{_}/{model}_{devices}_gpu/{repeat}'; _ is ignored",
    )
    parser.add_argument("--list", action="store_true", help="the kinds of logs that are known")


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    if args.list:
        for name in kinds.names():
            print(f"{name:24} {kinds.summary(name)}")
        for name in plugins.names(import_baselines.KIND):
            about = plugins.load(import_baselines.KIND, name).__doc__ or ""
            print(f"{name:24} {about.splitlines()[0]} (--baselines)")
        return 0
    if args.baselines:
        fields = args.fields or {}
        for path in import_baselines.import_baselines(args.paths, args.baselines, fields):
            print(path)
        return 0
    parquet_files.spare_memory()
    outputs = {"runs": args.output, "steps": args.steps, "evals": args.evals}
    outputs |= {"samples": args.samples, "metrics": args.metrics}
    imports = import_logs.import_paths(
        args.paths,
        fields=args.fields,
        path_fields=args.path_fields,
        name=args.name or _default_name(args.paths[0]),
        outputs={name: path for name, path in outputs.items() if path},
        report_progress=import_logs.print_progress,
        kind=args.kind,
    )
    print(imports.summary(), file=sys.stderr)
    return PARTLY if imports.unread else 0


def _check_options(args):
    """Check that options go together."""
    if not args.list and not (args.paths and (args.output or args.baselines)):
        raise Error("expected PATH with --output or --baselines, or --list")
    if args.output and args.baselines:
        raise Error("expected --output or --baselines, not both: they have different logs")


def _default_name(path):
    """The name of a folder, or of a file without its suffixes."""
    path = Path(path).resolve()
    return path.name if path.is_dir() else path.name.partition(".")[0] or path.name


def _json(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
