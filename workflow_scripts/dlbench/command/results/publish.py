"""Write a history as a data set: a folder for Zenodo, Hugging Face and others, with its metadata.

Nothing is uploaded. Campaigns keep their authors and licences. Of all licences that are not the
same, or not known, --license says the one of the whole.
"""

import argparse
import sys
from pathlib import Path

from dlbench.command.study_files import add_configfile
from dlbench.common import phrases, terminal
from dlbench.history import sources
from dlbench.publication import data_set
from dlbench.study import config

OUTPUT = Path("results/published")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "history", nargs="?", type=Path, default=sources.HISTORY, help="folder of the history"
    )
    add_configfile(parser)
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"folder ({OUTPUT})")
    parser.add_argument(
        "--title", default=data_set.TITLE, help=f"of the data set ({data_set.TITLE})"
    )
    parser.add_argument(
        "--license",
        metavar="SPDX",
        help="of the whole, such as CC-BY-4.0 (default: that of all campaigns)",
    )


def run(args: argparse.Namespace) -> None:
    names = config.settings_of(args.configfile).get("machines", {})
    made = data_set.write(args.history, names, args.output, args.title, args.license)
    sessions = phrases.counted(made.sessions, "session")
    campaigns = phrases.counted(len(made.campaigns), "campaign")
    print(
        f"{args.output}: {sessions} of {campaigns}, {' and '.join(made.licenses)}",
        f"to publish it: hf upload NAME/DATA_SET {args.output} --repo-type dataset",
        f"or upload a zip of it to Zenodo, with the fields of {args.output / '.zenodo.json'}",
        *map(terminal.plain, made.remarks),
        sep="\n",
        file=sys.stderr,
    )
