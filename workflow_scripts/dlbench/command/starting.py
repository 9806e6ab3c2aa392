"""Start Snakemake in the place of this process, and read the arguments that it gets."""

import argparse
import importlib.util
import itertools
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from dlbench import Error
from dlbench.common import own_code, phrases
from dlbench.study import yaml_files

# Where Snakemake looks for it.
SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")
# Rules of ours that collect or make what a user wants; others have an underscore.
TARGETS = (
    *("all", "archive", "baselines", "batches", "data", "figures", "history", "history_figures"),
    *("images", "report", "runs", "site", "tables", "tensorboard"),
)


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


def check_targets(words: Sequence[str]) -> None:
    """Check that words before options are targets of our workflow, or its rules or files.

    Raises:
        Error: one is not; the message has all targets.
    """
    is_ours = own_code.in_project_folder() or not any(map(os.path.exists, SNAKEFILES))
    for word in itertools.takewhile(lambda word: is_ours and word[:1] != "-", words):
        if word not in TARGETS and not {*"/_"} & {*word}:
            hint = phrases.did_you_mean(word, TARGETS)
            raise Error(f"no target {word!r}{hint}; there are: {', '.join(TARGETS)}")


def config_files(arguments: Sequence[str]) -> list[str]:
    """The config files among arguments of Snakemake."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
    return parser.parse_known_args(arguments)[0].configfile
