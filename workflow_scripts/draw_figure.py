"""Draw one figure from the result tables, as SVG, PNG and PDF."""

import argparse
from pathlib import Path

from dlbench.analysis.frames import Tables
from dlbench.common import plugins
from dlbench.common.command_line import run_program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=plugins.names("figures"))
    parser.add_argument("--tables", default="results/tables", type=Path)
    parser.add_argument("--runs", default="results/runs", type=Path, help="folder of the runs")
    parser.add_argument("--output", default="results/figures", type=Path)
    args = parser.parse_args()
    figure = plugins.load("figures", args.name)
    figure.draw(Tables(args.tables, args.runs), args.output / args.name)


if __name__ == "__main__":
    run_program(main)
