"""Print the folder that has dlbench's Snakefile, profiles, studies and programs.

It is the clone, or a folder of the Python in which a wheel was installed.

Example: snakemake --snakefile "$(dlbench where)/Snakefile" --configfile my_study.yaml
"""

import argparse

from dlbench.common import own_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing is to be given."""


def run(args: argparse.Namespace) -> None:
    print(own_code.PROJECT)
