"""What commands share: the options of several, the file of a study, and the start of Snakemake."""

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from dlbench import Error
from dlbench.common import own_code, phrases

CONFIG, STUDIES = "config.yaml", "studies"
# Where Snakemake looks for it.
SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")


def add_configfile(parser: argparse.ArgumentParser) -> None:
    """Add --configfile, the option that names the study."""
    parser.add_argument(
        "--configfile",
        nargs="+",
        default=[],
        type=_file_or_name,
        help="merged over config.yaml, as by the workflow: a file, a folder, or a name in studies/",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json, the option of those whose answer programs read."""
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def _file_or_name(name):
    """The config file of a study; a name that is none is left for whoever reads it."""
    try:
        return study_file(name)
    except Error:
        return name


def study_file(name: str) -> str:
    """The config file of a study: a file, that of a folder, or that of a folder in studies/.

    Raises Error: there is none.
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


def become_snakemake(arguments: Sequence[str]) -> NoReturn:
    """Print the command, and replace this process by it, which gets signals and sets the code.

    In a folder without a Snakefile it is that of dlbench. Raises Error: a config file is no YAML,
    of which Snakemake does not say where.
    """
    from dlbench.study import yaml_files

    for file in filter(os.path.exists, config_files(arguments)):
        yaml_files.read(file)
    numpy, folders = importlib.util.find_spec("numpy"), os.environ.get("PYTHONPATH", "").split(":")
    if numpy and str(numpy.origin).startswith(tuple(filter(None, folders))):
        print(f"PYTHONPATH puts {numpy.origin} before the installed numpy", file=sys.stderr)
    if not any(map(os.path.exists, SNAKEFILES)):
        arguments = ["--snakefile", str(own_code.PROJECT / "Snakefile"), *arguments]
    print(f"+ {shlex.join(['snakemake', *arguments])}", file=sys.stderr, flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *arguments])


def config_files(arguments: Sequence[str]) -> list[str]:
    """The config files among arguments of Snakemake."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
    return parser.parse_known_args(arguments)[0].configfile
