"""Commands about results: pages, tables, comparisons, logs of others."""

import argparse
import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

from dlbench import Error
from dlbench.command import starting
from dlbench.command.starting import add_configfile, add_json
from dlbench.common import command_line, networks, phrases, plugins, terminal
from dlbench.common.files import atomic_write


def add_report(parser: argparse.ArgumentParser) -> None:
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


def report(args: argparse.Namespace) -> None:
    """Make one self-contained HTML file of a study's tables and figures: results/report.html."""
    from dlbench.report import build_report

    figures = args.figures
    if figures is None:
        drawn = {path.stem for path in args.figures_folder.glob("*.svg")}
        figures = [name for name in plugins.names("figures") if name in drawn]
    study = build_report.read(args.tables, args.runs, args.figures_folder, figures)
    with atomic_write(args.output) as part:
        part.write_text(build_report.html_page(study), encoding="utf-8")


def add_partial(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", required=True, metavar="FOLDER", help="outside results/")
    add_configfile(parser)


def partial(args: argparse.Namespace) -> None:
    """Write tables and figures of the runs finished so far, also during a campaign.

    They go into a separate folder with tables/ and figures/ as in results/. This starts and locks
    nothing, and does not change the results.
    """
    from dlbench.campaign import partial_results
    from dlbench.study import config

    partial_results.write(config.study_from_files(args.configfile), args.output)


def add_export(parser: argparse.ArgumentParser) -> None:
    from dlbench.log.event_fields import STATUSES

    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="ends in .csv, .parquet or .json; or a folder, whose name has no such end",
    )
    add_configfile(parser)
    parser.add_argument("--status", nargs="+", choices=STATUSES, help="runs that ended like this")
    parser.add_argument("--table", choices=("runs", "coverage"), help="runs if not given")


def export(args: argparse.Namespace) -> None:
    """Export what is there now, also during a campaign. Starts and locks nothing.

    --output FILE, which ends in .csv, .parquet or .json: one row for each run with a valid result,
    with the columns of results/tables/runs.parquet; how many there are of how many is said. Or,
    with --table coverage, one row for each combination of the study: how it ended, what it waits
    for, why it is stale, skipped or excluded.

    --output FOLDER: all runs, steps, evaluations, samples and metrics as one hive-partitioned
    Parquet dataset, FOLDER/{runs,steps,...}/site=S/model=M/strategy=T/part-0.parquet. An earlier
    export there is replaced.
    """
    from dlbench.log.event_fields import STATUSES
    from dlbench.results import export_runs
    from dlbench.study import config

    study = config.study_from_files(args.configfile)
    if not Path(args.output).suffix or Path(args.output).is_dir():
        if args.status or args.table:
            raise Error(
                f"--output {args.output} is a folder, for all of the study: --status and --table "
                "need a file that ends in .csv, .parquet or .json"
            )
        export_runs.export_dataset(study, args.output)
    elif args.table == "coverage":
        export_runs.export_coverage(study, args.output)
    else:
        export_runs.export(study, args.output, args.status or STATUSES)


FORMATS = ("text", "markdown", "html", "json")
SUFFIXES = {".txt": "text", ".md": "markdown", ".html": "html", ".json": "json"}


def add_compare(parser: argparse.ArgumentParser) -> None:
    from dlbench.analysis import compare_runs

    parser.add_argument("a", metavar="A", help="the campaign that is the base, or is checked")
    parser.add_argument("b", metavar="B", nargs="?", help="the campaign that is compared with it")
    parser.add_argument(
        "--metric",
        help="a number of the runs table, as step_time_median_s, or a metric that programs name "
        "(images_per_second; tokens_per_second where all runs are of texts)",
    )
    parser.add_argument(
        "--margin",
        type=command_line.real(above=0),
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
        help="check A against the expected values and bounds in this YAML file, or against "
        "published numbers (CSV) less the tolerance",
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
        type=command_line.real(0),
        default=0.05,
        help="how far below and above each mean the bounds that are written lie, and how far below "
        "a published number a mean may, as a share (0.05)",
    )
    written = parser.add_mutually_exclusive_group()
    written.add_argument("--format", choices=FORMATS, help="by the output's name, or text")
    written.add_argument(
        "--json", dest="format", action="store_const", const="json", help="as JSON, for programs"
    )
    parser.add_argument("--output", metavar="FILE", type=Path, help="instead of printing it")


def compare(args: argparse.Namespace) -> int:
    """Compare two campaigns, or check one against bounds; both may still be running.

    A and B are results folders, unpacked archives, or runs tables (.parquet, .csv, .json). Exit
    code 1: --fail-on or --bounds finds a failure; it is 0 if they only differ.
    """
    from dlbench.analysis import bounds, campaigns, compare_runs

    _check_compared(args)
    a = campaigns.read(args.a)
    if args.write_bounds:
        metric = args.metric or compare_runs.throughput_metric(a)
        written = bounds.write(args.write_bounds, a, metric, args.tolerance)
        print(f"{args.write_bounds}: {written} bounds", file=sys.stderr)
        return 0
    failed = _check(a, args) if args.bounds else _compare(a, args)
    return 1 if failed else 0


def _check_compared(args):
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
    from dlbench.analysis import campaigns, compare_runs

    b = campaigns.read(args.b)
    comparison = compare_runs.compare(a, b, args.metric, args.margin, args.on, args.ignore)
    if "slower" in (args.fail_on or ()):
        comparison.metric.check_direction()
    regressions = None if args.fail_on is None else comparison.regressions(args.fail_on)
    page = compare_runs.comparison_page(comparison, regressions)
    _write_page(page, compare_runs.values(comparison, regressions), args)
    return bool(regressions)


def _check(a, args):
    from dlbench.analysis import bounds

    if args.bounds.endswith(".csv"):
        outcomes = bounds.check_published(args.bounds, a, args.tolerance, args.contract)
    else:
        bounded = bounds.Bounded.of(a)
        outcomes = bounds.check(bounds.read(args.bounds, lambda _: bounded), a, args.contract)
    _write_page(bounds.page(outcomes, a), bounds.plain(outcomes), args)
    return any(not outcome.passed for outcome in outcomes)


def _write_page(page, plain, args):
    from dlbench.pages import formats

    format_ = args.format or (SUFFIXES[args.output.suffix] if args.output else "text")
    text = formats.written(page, plain, format_)
    if not args.output:
        sys.stdout.write(text)
        return
    with atomic_write(args.output) as part:
        part.write_text(text, encoding="utf-8")
    print(f"{args.output}: {page.lead}", file=sys.stderr)


def add_history(parser: argparse.ArgumentParser) -> None:
    add_configfile(parser)


def history(args: argparse.Namespace) -> None:
    """Make one history of the campaigns that a config names, and find what changed between them.

    Starts the target history of the workflow, and prints the plain command of Snakemake that does
    it. Options after -- are passed to Snakemake, whose exit code this program returns.

    Example: dlbench history --configfile my_study.yaml -- -n
    """
    from dlbench.study import config

    files = args.configfile or starting.config_files(args.passed_on)
    if not config.settings_of(files)["history"]:
        searched = ", ".join(files) or "config.yaml"
        raise Error(
            f"{searched}: expected archives and results folders under the key history, found none; "
            "docs/history.md has an example"
        )
    named = ["--configfile", *args.configfile] if args.configfile else []
    starting.become_snakemake(["history", *args.passed_on, *named])


def add_gate(parser: argparse.ArgumentParser) -> None:
    from dlbench.history import sources
    from dlbench.history.gate import FAILING, LEAST, SINCE_CHANGE

    parser.add_argument(
        "history", nargs="?", type=Path, default=sources.HISTORY, help="folder of the history"
    )
    add_configfile(parser)
    parser.add_argument("--session", help="judge this one; the newest, if not given")
    parser.add_argument(
        "--base",
        default=SINCE_CHANGE,
        metavar="TAG",
        help="judge it by the sessions since the last change (since-change, the default), by the "
        "one before it (last), or by the session of this tag in the config, or of this name",
    )
    parser.add_argument(
        "--least",
        type=command_line.real(above=0),
        default=LEAST,
        metavar="SHARE",
        help="changes below this share fail nothing (0.01)",
    )
    parser.add_argument(
        "--allow",
        nargs="+",
        default=[],
        choices=FAILING,
        metavar="VERDICT",
        help=f"verdicts that fail nothing, of {', '.join(FAILING)}",
    )
    written = parser.add_mutually_exclusive_group()
    written.add_argument("--format", choices=FORMATS, default="text", help="of what is printed")
    written.add_argument(
        "--json", dest="format", action="store_const", const="json", help="as JSON, for programs"
    )
    for name in FORMATS[1:]:
        parser.add_argument(
            f"--write-{name}", metavar="FILE", type=Path, help=f"write it as {name}, too"
        )


def gate(args: argparse.Namespace) -> int:
    """Judge the newest campaign of a history by those before it, for CI and after an upgrade.

    `snakemake history` adds campaigns to the history first. Exit code 1: a condition is worse, has
    changed, failed, is missing, or was disturbed by other programs in all of its runs.
    """
    from dlbench.history import gate
    from dlbench.history.gate import judge
    from dlbench.pages import formats
    from dlbench.study import config

    settings = config.settings_of(args.configfile)
    judged = judge(
        args.history,
        settings.get("machines", {}),
        args.session,
        args.base,
        args.least,
        args.allow,
        settings.get("tags", {}),
    )
    page, plain = gate.page(judged), gate.values(judged)
    for name in FORMATS:
        if path := getattr(args, f"write_{name}", None):
            with atomic_write(path) as part:
                part.write_text(formats.written(page, plain, name), encoding="utf-8")
    sys.stdout.write(terminal.plain(formats.written(page, plain, args.format)))
    return 0 if judged.passed else 1


def add_site(parser: argparse.ArgumentParser) -> None:
    from dlbench.history import sources

    parser.add_argument(
        "history", nargs="?", type=Path, default=sources.HISTORY, help="folder of the history"
    )
    add_configfile(parser)
    parser.add_argument("--output", type=Path, default="results/site", help="folder (%(default)s)")
    parser.add_argument(
        "--archives",
        type=_address,
        metavar="ADDRESS",
        help="where the archives are, for links to them: https://..., or relative to the pages",
    )


def site(args: argparse.Namespace) -> None:
    """Make a website of a history: static pages to open, or to publish on any server.

    `snakemake site` adds campaigns to the history first.
    """
    from dlbench.report import build_site
    from dlbench.study import config

    names = config.settings_of(args.configfile).get("machines", {})
    site = build_site.build(args.history, names, args.output, args.archives)
    sessions = phrases.counted(len(site.sessions), "session")
    machines = phrases.counted(len(site.machines), "machine")
    made = f"{args.output / 'index.html'}: {sessions} of {machines}"
    print(made, *map(terminal.plain, site.notes), sep="\n", file=sys.stderr)


def _address(text):
    if urlsplit(text).scheme not in ("", "http", "https", "file"):
        raise argparse.ArgumentTypeError(
            f"expected https://..., http://..., file://... or a relative path, found {text!r}"
        )
    return text


def add_accept_nodes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", nargs="?", type=Path, default=Path("results"), help="folder of the study"
    )
    parser.add_argument(
        "--bounds",
        required=True,
        type=Path,
        metavar="FILE",
        help="what nodes and groups must attain, YAML",
    )
    parser.add_argument(
        "--nodes", default="", metavar="LIST", help="all nodes that must be measured, as n[1-8]"
    )
    add_json(parser)


def accept_nodes(args: argparse.Namespace) -> int:
    """Accept nodes: rank them, and list those that keep a site's bounds and those that do not.

    Exit code 1: a node or group failed or was not measured.
    """
    from dlbench.analysis import accept_nodes as acceptance
    from dlbench.pages import formats

    wanted = acceptance.read_bounds(args.bounds, args.results)
    expected = networks.expand_hosts(args.nodes)
    judged = acceptance.judge(wanted, acceptance.read(args.results), expected)
    acceptance.write(judged, args.results)
    page, plain = acceptance.page(judged, args.results), acceptance.values(judged)
    sys.stdout.write(formats.written(page, plain, "json" if args.json else "text"))
    return 0 if acceptance.all_passed(judged) else 1


PARTLY = 3  # the exit code if some logs could not be read


def add_import_(parser: argparse.ArgumentParser) -> None:
    from dlbench.tables import cells

    parser.add_argument("paths", nargs="*", metavar="PATH", help="a log, or a folder of them")
    parser.add_argument("--output", metavar="FILE", help="the runs table, Parquet")
    for name in cells.OF_IMPORT:
        parser.add_argument(f"--{name}", metavar="FILE", help=f"the table of {name}, Parquet")
    parser.add_argument(
        "--baselines",
        metavar="FOLDER",
        help="instead of --output: of nccl-tests' and OSU's tables, a folder of results/baselines/",
    )
    parser.add_argument("--name", help="of the import, the study of its runs: as its folder")
    parser.add_argument(
        "--kind",
        help="of logs that no importer knows by their beginning, and of those that several know: "
        "a name of --list, or a file of patterns, *.yaml",
    )
    parser.add_argument(
        "--fields",
        type=_json,
        metavar="JSON",
        help='columns that the logs lack, as \'{"site": "far"}\'; what a log says must agree',
    )
    parser.add_argument(
        "--path-fields",
        metavar="PATTERN",
        help="columns in paths, as '{runtime}_{_}/{model}_{devices}_gpu/{repeat}'; _ is ignored",
    )
    parser.add_argument("--list", action="store_true", help="the kinds of logs that are known")


def import_(args: argparse.Namespace) -> int:
    """Import logs of other programs, results folders and runs tables of others as our tables.

    Logs are recognised by their content, also in folders. The logs of one program in one folder
    belong to one run. A summary at the end lists what was left out and why. docs/programs.md lists
    the kinds. Exit code 3: some logs could not be read, and the others were imported.
    """
    from dlbench.imports import baseline_importers, import_logs, kinds

    if not args.list and not (args.paths and (args.output or args.baselines)):
        raise Error("expected PATH with --output or --baselines, or --list")
    if args.output and args.baselines:
        raise Error("expected --output or --baselines, not both: they have different logs")
    if args.list:
        for name in kinds.names():
            print(f"{name:24} {kinds.summary(name)}")
        for name in plugins.names(baseline_importers.KIND):
            about = plugins.load(baseline_importers.KIND, name).__doc__ or ""
            print(f"{name:24} {about.splitlines()[0]} (--baselines)")
        return 0
    if args.baselines:
        fields = args.fields or {}
        for path in baseline_importers.import_baselines(args.paths, args.baselines, fields):
            print(path)
        return 0
    outputs = {"runs": args.output, "steps": args.steps, "evals": args.evals}
    outputs |= {"samples": args.samples, "metrics": args.metrics}
    imports = import_logs.import_paths(
        args.paths,
        fields=args.fields,
        path_fields=args.path_fields,
        name=args.name or _default_name(args.paths[0]),
        outputs={name: path for name, path in outputs.items() if path},
        report_progress=import_logs.print_progress,
        kind=args.kind,
    )
    print(imports.summary(), file=sys.stderr)
    return PARTLY if imports.unread else 0


def _default_name(path):
    """The name of a folder, or of a file without its suffixes."""
    path = Path(path).resolve()
    return path.name if path.is_dir() else path.name.partition(".")[0] or path.name


def _json(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
