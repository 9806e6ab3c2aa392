"""Write the catalogue of datasets as Markdown and JSON, from the files that define them."""

import argparse
from pathlib import Path

from dlbench import catalogue
from dlbench.cli import run_program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder of the pages")
    args = parser.parse_args()
    catalogue.write(args.output)


if __name__ == "__main__":
    run_program(main)
