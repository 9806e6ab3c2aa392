"""Draw the history of each machine from the tables of a history, as SVG, PNG and PDF."""

import argparse
from pathlib import Path

from dlbench.common.command_line import run_program
from dlbench.history import draw_history, sources


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, default=sources.RESULTS, help="their folder")
    parser.add_argument("--output", type=Path, default=sources.RESULTS / "figures", help="folder")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    draw_history.draw(args.tables, args.output)


if __name__ == "__main__":
    run_program(main)
