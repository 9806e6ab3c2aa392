"""Write the catalogue of datasets as Markdown and JSON, from the files that define them."""

import argparse
from pathlib import Path

from dlbench.common.command_line import run_program
from dlbench.data import list_datasets


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder of the pages")
    args = parser.parse_args()
    list_datasets.write(args.output)


if __name__ == "__main__":
    run_program(main)
