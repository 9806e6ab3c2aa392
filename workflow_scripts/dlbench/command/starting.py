"""Start Snakemake in the place of this process, and read the arguments that it gets."""

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from dlbench.common import own_code
from dlbench.study import yaml_files

# Where Snakemake looks for it.
SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")


def become_snakemake(arguments: Sequence[str]) -> NoReturn:
    """Print the command, and replace this process by it, which gets signals and sets the code.

    In a folder without a Snakefile it is that of dlbench.

    Raises:
        Error: a config file is no YAML, of which Snakemake does not say where.
    """
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
