"""Make a website of a history: static pages to open, or to publish on any server.

`snakemake site` adds campaigns to the history first.
"""

import argparse
import sys
from pathlib import Path
from urllib.parse import urlsplit

from dlbench.common import phrases
from dlbench.common.command_line import add_configfile
from dlbench.history import sources
from dlbench.study import config
from dlbench.website import build_site

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
        "--address",
        type=_address,
        default="",
        metavar="ADDRESS",
        help="where the website will be, for links in its feed: https://...",
    )


def run(args: argparse.Namespace) -> None:
    names = config.settings_of(args.configfile).get("machines", {})
    site = build_site.build(args.history, names, args.output, args.archives, args.address)
    sessions = phrases.counted(len(site.sessions), "session")
    machines = phrases.counted(len(site.machines), "machine")
    made = f"{args.output / 'index.html'}: {sessions} of {machines}"
    print(made, *site.notes, sep="\n", file=sys.stderr)


def _address(text):
    if urlsplit(text).scheme not in ("", "http", "https", "file"):
        raise argparse.ArgumentTypeError(
            f"expected https://..., http://..., file://... or a relative path, found {text!r}"
        )
    return text
