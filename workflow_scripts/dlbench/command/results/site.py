"""Make a website of a history: static pages to open, or to publish on any server.

`snakemake site` adds campaigns to the history first. --git-branch also commits the pages to a
branch of a Git repository, for hosts such as GitHub Pages; it touches no work tree, and pushes
nothing.
"""

import argparse
import shlex
import sys
from pathlib import Path
from urllib.parse import urlsplit

from dlbench.command.study_files import add_configfile
from dlbench.common import phrases, terminal
from dlbench.history import sources
from dlbench.publication import git_branch
from dlbench.study import config
from dlbench.website import build_site
from dlbench.website.overview_pages import TITLE

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
    parser.add_argument(
        "--reports",
        nargs="+",
        metavar="PATH",
        help="archives and results folders, or folders of them, whose reports are shown "
        "(default: those of the config's history)",
    )
    parser.add_argument(
        "--git-branch", metavar="BRANCH", help="also commit the pages to this branch, such as pages"
    )
    parser.add_argument(
        "--git-repository",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="repository of --git-branch (that of this folder)",
    )


def run(args: argparse.Namespace) -> None:
    repository = git_branch.Repository(args.git_repository) if args.git_branch else None
    settings = config.settings_of(args.configfile)
    names = settings.get("machines", {})
    places = settings.get("history", []) if args.reports is None else args.reports
    found = [Path(one.path) for one in sources.sources(places, names)]
    site = build_site.build(
        args.history, names, args.output, args.archives, args.address, places_of_reports=found
    )
    sessions = phrases.counted(len(site.sessions), "session")
    machines = phrases.counted(len(site.machines), "machine")
    made = f"{args.output / 'index.html'}: {sessions} of {machines}"
    print(made, *map(terminal.plain, site.notes), sep="\n", file=sys.stderr)
    if repository:
        message = f"{TITLE}: {sessions} of {machines}"
        commit = repository.commit(args.git_branch, args.output, build_site.FILES, message)
        push = ["git", "-C", str(repository.folder), "push", repository.remote(), args.git_branch]
        print(
            f"branch {args.git_branch}: "
            + (f"commit {commit[:12]}" if commit else "it has these pages already"),
            f"to publish it: {shlex.join(push)}",
            sep="\n",
            file=sys.stderr,
        )


def _address(text):
    if urlsplit(text).scheme not in ("", "http", "https", "file"):
        raise argparse.ArgumentTypeError(
            f"expected https://..., http://..., file://... or a relative path, found {text!r}"
        )
    return text
