"""Judge the newest campaign of a history by those before it, for CI and after an upgrade.

`snakemake history` adds campaigns to the history first. Exit code 1: a condition is worse, has
changed, failed, is missing, or was disturbed by other programs in all of its runs.
"""

import argparse
import json
import sys
from pathlib import Path

from dlbench.command.study_files import add_configfile
from dlbench.common import flag_types, terminal
from dlbench.common.files import atomic_write
from dlbench.history import bases, gate, gate_page, sources
from dlbench.pages import page_html, page_text
from dlbench.study import config

WRITERS = {
    "text": lambda judged: page_text.text(gate_page.page(judged)),
    "markdown": lambda judged: page_text.markdown(gate_page.page(judged)),
    "html": lambda judged: page_html.html_page(gate_page.page(judged)),
    "json": lambda judged: json.dumps(gate_page.values(judged), indent=1, allow_nan=False) + "\n",
    "junit": gate_page.junit,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "history", nargs="?", type=Path, default=sources.HISTORY, help="folder of the history"
    )
    add_configfile(parser)
    parser.add_argument("--session", help="judge this one; the newest, if not given")
    parser.add_argument(
        "--base",
        default=bases.SINCE_CHANGE,
        metavar="TAG",
        help="judge it by the sessions since the last change (since-change, the default), by the "
        "one before it (last), or by the session of this tag in the config, or of this name",
    )
    parser.add_argument(
        "--least",
        type=flag_types.real(above=0),
        default=gate.LEAST,
        metavar="SHARE",
        help="changes below this share fail nothing (0.01)",
    )
    parser.add_argument(
        "--allow",
        nargs="+",
        default=[],
        choices=gate.FAILING,
        metavar="VERDICT",
        help=f"verdicts that fail nothing, of {', '.join(gate.FAILING)}",
    )
    written = parser.add_mutually_exclusive_group()
    written.add_argument("--format", choices=WRITERS, default="text", help="of what is printed")
    written.add_argument(
        "--json", dest="format", action="store_const", const="json", help="as JSON, for programs"
    )
    for name in (name for name in WRITERS if name != "text"):
        parser.add_argument(
            f"--write-{name}", metavar="FILE", type=Path, help=f"write it as {name}, too"
        )


def run(args: argparse.Namespace) -> int:
    settings = config.settings_of(args.configfile)
    judged = gate.judge(
        args.history,
        settings.get("machines", {}),
        args.session,
        args.base,
        args.least,
        args.allow,
        settings.get("tags", {}),
    )
    for name, write in WRITERS.items():
        if path := getattr(args, f"write_{name}", None):
            with atomic_write(path) as part:
                part.write_text(write(judged), encoding="utf-8")
    sys.stdout.write(terminal.plain(WRITERS[args.format](judged)))
    return 0 if judged.passed else 1
