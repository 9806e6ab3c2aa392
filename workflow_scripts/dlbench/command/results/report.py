"""Make one self-contained HTML file of a study's tables and figures: results/report.html."""

import argparse
from pathlib import Path

from dlbench.common import plugins
from dlbench.common.files import atomic_write
from dlbench.report import build_report, report_html


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tables", default="results/tables", type=Path, help="folder of the tables"
    )
    parser.add_argument("--runs", default="results/runs", type=Path, help="folder of the runs")
    parser.add_argument(
        "--figures-folder", default="results/figures", type=Path, help="folder of the figures"
    )
    parser.add_argument(
        "--figures",
        nargs="*",
        choices=plugins.names("figures"),
        help="those that are shown, in this order; if not given, all that are drawn",
    )
    parser.add_argument(
        "--output", default="results/report.html", type=Path, help="file (%(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    figures = args.figures
    if figures is None:
        drawn = {path.stem for path in args.figures_folder.glob("*.svg")}
        figures = [name for name in plugins.names("figures") if name in drawn]
    study = build_report.read(args.tables, args.runs, args.figures_folder, figures)
    with atomic_write(args.output) as part:
        part.write_text(report_html.html_page(study), encoding="utf-8")
