"""Make one self-contained HTML file of a study's tables and figures: results/report.html."""

import argparse
from pathlib import Path

from dlbench.common import plugins
from dlbench.common.command_line import run_program
from dlbench.common.files import atomic_write
from dlbench.report import build_report, report_html


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="results/tables", type=Path)
    parser.add_argument("--runs", default="results/runs", type=Path, help="folder of the runs")
    parser.add_argument("--figures-folder", default="results/figures", type=Path)
    parser.add_argument(
        "--figures",
        nargs="*",
        choices=plugins.names("figures"),
        default=[],
        help="those that are shown, in this order; drawn before",
    )
    parser.add_argument("--output", default="results/report.html", type=Path)
    args = parser.parse_args()
    study = build_report.read(args.tables, args.runs, args.figures_folder, args.figures)
    with atomic_write(args.output) as part:
        part.write_text(report_html.html_page(study), encoding="utf-8")


if __name__ == "__main__":
    run_program(main)
