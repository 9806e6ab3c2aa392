"""Make a website of a history: static pages to open, or to publish on any server.

`snakemake site` adds campaigns to the history first.
"""

import argparse
import sys
from pathlib import Path
from urllib.parse import urlsplit

from dlbench.command.study_files import add_configfile
from dlbench.common import phrases, terminal
from dlbench.history import sources
from dlbench.report import build_site
from dlbench.study import config

OUTPUT = Path("results/site")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "history", nargs="?", type=Path, default=sources.HISTORY, help="folder of the history"
    )
    add_configfile(parser)
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"folder ({OUTPUT})")
    parser.add_argument(
        "--archives",
        type=_address,
        metavar="ADDRESS",
        help="where the archives are, for links to them: https://..., or relative to the pages",
    )
    parser.add_argument(
        "--reports",
        nargs="+",
        metavar="PATH",
        help="archives and results folders, or folders of them, whose reports are shown "
        "(default: those of the config's history)",
    )


def run(args: argparse.Namespace) -> None:
    settings = config.settings_of(args.configfile)
    names = settings.get("machines", {})
    places = settings.get("history", []) if args.reports is None else args.reports
    found = [Path(one.path) for one in sources.sources(places, names)]
    site = build_site.build(
        args.history, names, args.output, args.archives, places_of_reports=found
    )
    sessions = phrases.counted(len(site.sessions), "session")
    machines = phrases.counted(len(site.machines), "machine")
    made = f"{args.output / 'index.html'}: {sessions} of {machines}"
    print(made, *map(terminal.plain, site.notes), sep="\n", file=sys.stderr)


def _address(text):
    if urlsplit(text).scheme not in ("", "http", "https", "file"):
        raise argparse.ArgumentTypeError(
            f"expected https://..., http://..., file://... or a relative path, found {text!r}"
        )
    return text
