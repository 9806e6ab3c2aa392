"""The config file that is meant by the name of a study, and the option that takes such names."""

import argparse
from pathlib import Path

from dlbench import Error
from dlbench.common import own_code, phrases

CONFIG, STUDIES = "config.yaml", "studies"


def add_configfile(parser: argparse.ArgumentParser) -> None:
    """Add --configfile, the option that names the study."""
    parser.add_argument(
        "--configfile",
        nargs="+",
        default=[],
        type=_file_or_name,
        help="merged over config.yaml, as by the workflow: a file, a folder, or a name in studies/",
    )


def _file_or_name(name):
    """The config file of a study; a name that is none is left for whoever reads it."""
    try:
        return study_file(name)
    except Error:
        return name


def study_file(name: str) -> str:
    """The config file of a study: a file, that of a folder, or that of a folder in studies/.

    Raises:
        Error: there is none.
    """
    if Path(name).is_file():
        return name
    ours = own_code.project_path(STUDIES)
    for folder in (Path(name), ours / name):
        if (folder / CONFIG).is_file():
            return str(folder / CONFIG)
    names = [path.parent.name for path in ours.glob(f"*/{CONFIG}")]
    raise Error(
        f"no study {name!r}: expected a config file, a folder that has {CONFIG}, or the name of "
        f"one in {ours}{phrases.did_you_mean(name, names)}"
    )
