"""Write the generated pages: all config keys, all columns, all commands, the map of rooms."""

import argparse
from pathlib import Path

from dlbench.command import dispatch
from dlbench.common.command_line import run_program
from dlbench.tables import write_reference_pages


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(), help="the checkout to write into")
    args = parser.parse_args()
    write_reference_pages.write(args.output, {dispatch.COMMANDS_PAGE: dispatch.commands_page()})


if __name__ == "__main__":
    run_program(main)
