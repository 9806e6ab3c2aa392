"""Write docs/config.md and docs/tables.md: all keys of a config, all columns of the tables."""

import argparse
from pathlib import Path

from dlbench.common.command_line import run_program
from dlbench.tables import write_reference_pages


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs"), help="folder of the pages")
    args = parser.parse_args()
    write_reference_pages.write(args.output)


if __name__ == "__main__":
    run_program(main)
