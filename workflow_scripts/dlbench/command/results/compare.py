"""Compare two campaigns, or check one against bounds; both may still be running.

A and B are results folders, unpacked archives, or runs tables (.parquet, .csv, .json). Exit code 1:
--fail-on or --bounds finds a failure; it is 0 if they only differ.
"""

import argparse
import json
import sys
from pathlib import Path

from dlbench import Error
from dlbench.analysis import bounds, bounds_page, campaigns, compare_runs, comparison_page
from dlbench.common import flag_types
from dlbench.common.files import atomic_write
from dlbench.pages import page_html, page_text

FORMATS = ("text", "markdown", "html", "json")
SUFFIXES = {".txt": "text", ".md": "markdown", ".html": "html", ".json": "json"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the campaign that is the base, or is checked")
    parser.add_argument("b", metavar="B", nargs="?", help="the campaign that is compared with it")
    parser.add_argument(
        "--metric",
        help="a number of the runs table, as step_time_median_s, or a metric that programs name "
        "(images_per_second; tokens_per_second where all runs are of texts)",
    )
    parser.add_argument(
        "--margin",
        type=flag_types.real(above=0),
        default=compare_runs.DEFAULT_MARGIN,
        help="differences within it are equivalent (0.01)",
    )
    matched = parser.add_mutually_exclusive_group()
    matched.add_argument("--on", nargs="+", metavar="FIELD", help="match runs on these fields only")
    matched.add_argument(
        "--ignore",
        nargs="+",
        metavar="FIELD",
        default=[],
        help="match runs on all fields except these, as environment between versions",
    )
    parser.add_argument(
        "--fail-on",
        nargs="+",
        choices=("slower", "failed", "timeout"),
        help="exit with 1 if, in some combination, B is shown to be slower (or worse) than A by "
        "more than the margin (slower), or A has a result and B has none, as its runs failed or "
        "ran out of memory (failed) or reached their time limit (timeout)",
    )
    parser.add_argument(
        "--bounds",
        "--references",
        dest="bounds",
        metavar="FILE",
        help="check A against the expected values and bounds in this YAML file",
    )
    parser.add_argument(
        "--contract",
        action="store_true",
        help="with --bounds: pass only if the whole 95 %% interval of a mean keeps its bounds",
    )
    parser.add_argument(
        "--write-bounds",
        "--write-references",
        dest="write_bounds",
        metavar="FILE",
        help="write such a file from A",
    )
    parser.add_argument(
        "--tolerance",
        type=flag_types.real(0),
        default=0.05,
        help="how far below and above each mean the bounds that are written lie, as a share (0.05)",
    )
    written = parser.add_mutually_exclusive_group()
    written.add_argument("--format", choices=FORMATS, help="by the output's name, or text")
    written.add_argument(
        "--json", dest="format", action="store_const", const="json", help="as JSON, for programs"
    )
    parser.add_argument("--output", metavar="FILE", type=Path, help="instead of printing it")


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    a = campaigns.read(args.a)
    if args.write_bounds:
        metric = args.metric or compare_runs.throughput_metric(a)
        written = bounds.write(args.write_bounds, a, metric, args.tolerance)
        print(f"{args.write_bounds}: {written} bounds", file=sys.stderr)
        return 0
    failed = _check(a, args) if args.bounds else _compare(a, args)
    return 1 if failed else 0


def _check_options(args):
    """Check that options go together."""
    modes = [args.b, args.bounds, args.write_bounds]
    if sum(value is not None for value in modes) != 1:
        raise Error("expected A with one of: B, --bounds, --write-bounds")
    if args.output and not args.format and args.output.suffix not in SUFFIXES:
        raise Error(
            f"--output {args.output}: expected a name that ends in {', '.join(SUFFIXES)}, or a "
            "--format"
        )
    if args.contract and not args.bounds:
        raise Error("--contract needs --bounds")
    if args.fail_on and args.b is None:
        raise Error("--fail-on needs A and B")


def _compare(a, args):
    b = campaigns.read(args.b)
    comparison = compare_runs.compare(a, b, args.metric, args.margin, args.on, args.ignore)
    if "slower" in (args.fail_on or ()):
        comparison.metric.check_direction()
    regressions = None if args.fail_on is None else comparison.regressions(args.fail_on)
    page = comparison_page.comparison_page(comparison, regressions)
    _write_page(page, compare_runs.values(comparison, regressions), args)
    return bool(regressions)


def _check(a, args):
    bounded = bounds.Bounded.of(a)
    outcomes = bounds.check(bounds.read(args.bounds, lambda _: bounded), a, args.contract)
    _write_page(bounds_page.page(outcomes, a), bounds_page.plain(outcomes), args)
    return any(not outcome.passed for outcome in outcomes)


def _write_page(page, plain, args):
    format_ = args.format or (SUFFIXES[args.output.suffix] if args.output else "text")
    text = {
        "text": lambda: page_text.text(page),
        "markdown": lambda: page_text.markdown(page),
        "html": lambda: page_html.html_page(page),
        "json": lambda: json.dumps(plain, indent=1, allow_nan=False) + "\n",
    }[format_]()
    if not args.output:
        sys.stdout.write(text)
        return
    with atomic_write(args.output) as part:
        part.write_text(text, encoding="utf-8")
    print(f"{args.output}: {page.lead}", file=sys.stderr)
