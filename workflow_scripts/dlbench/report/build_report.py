"""A study's report: its content as plain values, made from results/tables, and one HTML file.

- The summary: what was measured, on what, the findings (findings.py), what failed, what is stale.
- Coverage, tables, figures, machine and software, method, caveats, how to reproduce it.

A figure is a data URI, so that no file lies beside the page and no ids clash: its SVG without
invisible parts, or, if that is large, a picture in COLOURS colours.

The same tables, records and figures give the same report: it has no date of its making.
- Style and script stand in the file and are allowed by their digests; a policy in the file
  (Content-Security-Policy) forbids all else, so that nothing leaves the page and no text of a
  run becomes a script.
- Tables are data in the page, drawn by report.js in slices; all else needs no script.
- report.html.jinja is the page, sections/NAME.html.jinja each of its SECTIONS.
"""

import ast
import base64
import contextlib
import io
import json
import math
import re
import urllib.parse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from PIL import Image

from dlbench import Error
from dlbench.analysis import estimates
from dlbench.common import phrases, plugins
from dlbench.common.files import sha256
from dlbench.log import event_fields, event_log
from dlbench.log.event_log import FAILED
from dlbench.machine import binding
from dlbench.machine.hardware import installed_gib
from dlbench.pages import templates
from dlbench.records import costs, run_record
from dlbench.report import findings, report_tables, sentences
from dlbench.report.findings import INDICATED, OPEN, SHOWN, Finding
from dlbench.report.sentences import Sentence
from dlbench.study import contradictions, wording
from dlbench.study.runs import CONDITION, is_sentinel
from dlbench.tables import cells, parquet_files, table_columns
from dlbench.tables.metrics import THROUGHPUT
from dlbench.trainer import engine

MAX_SVG_BYTES = 200_000
COLOURS = 192  # of a picture: 4 % smaller than with 256, and hardly another one
INVISIBLE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
PATH = re.compile(r'(?<= d=")[^"]*')
DIGITS = re.compile(r"(\.\d\d)\d+")
SIZE = re.compile(r'<svg[^>]*?\swidth="([\d.]+)pt"[^>]*?\sheight="([\d.]+)pt"')
POINTS = 4 / 3  # pixels of a point
# What need not be escaped in a data URI between double quotes.
SAFE = " !$'()*+,-./:;<=>?@[]_|~{}"
MAX_FINDINGS = 3
MAX_GROUPS = 20  # of the coverage that is seen at once
ORDER = ("ok", "unstable", "stale", *event_log.FAILED, "skipped", "excluded", "imported")
# The packages of frameworks, each framework's first one before what some of them share.
_PACKAGES = sorted({pair for one in engine.names() for pair in enumerate(engine.packages(one))})
# Facts of machine and software, in their order; further ones follow.
FACTS = ("site", "kind of device", "device", "processor", "memory", "GPU driver",
         sentences.CUDA, "host",
         "operating system", "kernel", "platform", "interconnect", "network", "storage",
         "framework", "python version", *(f"{name} version" for _, name in _PACKAGES),
         "numpy version", "environment", "runtime", "image", "modules", "cores and GPUs", "data",
         "timing source", "source", "dlbench at commit")  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A figure with its title and caption; width and height in pixels."""

    name: str
    title: str
    caption: str
    uri: str
    width: int
    height: int


@dataclass(frozen=True)
class Reason:
    """Why runs have a status, how many have it, and one of them.

    Reasons of a model that differ in numbers only are one.
    """

    status: str
    text: str
    runs: int
    example: str


@dataclass(frozen=True)
class Report:
    """Everything that is shown, in its order.

    Attributes:
        facts: (term, text) of what was measured, on what.
        statuses: (status, runs) of all combinations, those that completed first.
        fastest: (name, Estimate, what it counts) of the highest throughputs.
        without_rate: models and datasets that have none.
        findings, further: the first three, and all others.
        limits: what limits each series, and conditions with probes.
        left_out: reasons of skipped and excluded runs.
        groups: (name, {status: runs}); `grouped_by` says what makes a group.
        traces: (run id, path of its trace as a link from the report).
        machine: (fact, [(value, runs), ...]).
        margin: of equivalence.
        made_from: (file, SHA-256).
    """

    study: str
    lead: str
    facts: list[tuple[str, str]]
    statuses: list[tuple[str, int]]
    fastest: list[tuple[str, estimates.Estimate, str]]
    without_rate: list[str]
    findings: list[Finding]
    further: list[Finding]
    limits: sentences.Sentences
    failures: list[Reason]
    left_out: list[Reason]
    stale: list[Reason]
    groups: list[tuple[str, dict[str, int]]]
    grouped_by: str
    tables: list[report_tables.DataTable]
    traces: list[tuple[str, str]]
    figures: list[Figure]
    machine: list[tuple[str, list[tuple[str, int]]]]
    margin: float
    caveats: list[str]
    made_from: list[tuple[str, str]]

    @property
    def largest_group(self) -> int:
        """The runs of the largest of `groups`, of which there is one."""
        return max(sum(counts.values()) for _, counts in self.groups)


def read(
    tables_folder: str | Path,
    runs_folder: str | Path,
    figures_folder: str | Path,
    figures: Sequence[str],
) -> Report:
    """The Report of the tables in a folder.

    `figures`: names of those that it shows, in their order. Raises TableError: a table is missing
    or cannot be read; FileNotFoundError: a figure is missing.
    """
    folder = Path(tables_folder)
    tables = {
        name: parquet_files.read(folder / f"{name}.parquet", getattr(table_columns, name.upper()))
        for name in report_tables.REQUIRED
        if name != "evals"
    }
    for name in ("comparisons", "speedups"):
        tables[name] = table_columns.with_settings(tables[name], tables["runs"])
    rows = {name: table.to_pylist() for name, table in tables.items()}
    all_runs = [contradictions.withheld(row) for row in rows["runs"]]
    sentinels = [row for row in all_runs if row["sentinel"]]
    runs = rows["runs"] = [row for row in all_runs if not row[table_columns.APART]]
    rows["comparisons"] = [r for r in rows["comparisons"] if r["metric"] == THROUGHPUT.name]
    drift = [r for r in report_tables.rows_of(folder, "drift") if r["metric"] == THROUGHPUT.name]
    coverage = rows["coverage"]
    speedups, comparisons = rows["speedups"], rows["comparisons"]
    of_nodes = report_tables.rows_of(folder, "nodes")
    all_findings = findings.findings(runs, speedups, comparisons, sentinels, of_nodes)
    own_runs = [row for row in runs if not is_sentinel(row["run_id"])]
    groups, grouped_by = _groups(own_runs, coverage)
    recorded = [recorded_facts(Path(runs_folder) / row["run_id"]) for row in runs]
    return Report(
        study=_study(rows) or "without runs",
        lead=sentences.lead(runs, coverage),
        facts=sentences.facts(
            runs, sentinels, drift, _spent_s(folder), costs.prepared_s(Path(runs_folder).parent)
        ),
        statuses=_statuses(coverage),
        fastest=report_tables.fastest(runs),
        without_rate=_workloads_without_rate(runs),
        findings=all_findings[:MAX_FINDINGS],
        further=all_findings[MAX_FINDINGS:],
        limits=sentences.sentences(
            runs,
            report_tables.rows_of(folder, "explanations"),
            report_tables.rows_of(folder, "baselines"),
            speedups,
        ),
        failures=_reasons(coverage, event_log.FAILED),
        left_out=_reasons(coverage, ("skipped", "excluded")),
        stale=_reasons(coverage, ("stale",)),
        groups=groups,
        grouped_by=grouped_by,
        tables=report_tables.shown(tables, rows, folder),
        traces=_traces(runs, Path(runs_folder)),
        figures=[figure(name, Path(figures_folder)) for name in figures],
        machine=_machine(runs, recorded),
        margin=findings.margin_of(comparisons),
        caveats=sentences.caveats(runs, speedups, comparisons, coverage, recorded),
        made_from=[
            (f"{name}.parquet", sha256(folder / f"{name}.parquet"))
            for name in (*tables, *report_tables.further(folder))
        ],
    )


def _workloads_without_rate(runs):
    """The models and datasets of which no run completed, so that they have no throughput."""
    own_runs = [row for row in runs if row["timing_source"] != cells.PUBLISHED]
    well = [row for row in own_runs if row["status"] in event_fields.SUCCEEDED]
    lacking = dict.fromkeys((row["model"], row["dataset"]) for row in own_runs)
    having = {(row["model"], row["dataset"]) for row in well}
    return [", ".join(map(str, key)) for key in lacking if key not in having]


def _traces(runs, folder):
    """(run id, link) of the runs whose trace is there; the report lies beside their folder."""
    profiled = (row["run_id"] for row in runs if row["trace_file"])
    return [
        (run_id, f"{run_record.folder(run_id, Path()).as_posix()}/{event_log.TRACE}")
        for run_id in profiled
        if (folder / run_id / event_log.TRACE).is_file()
    ]


def _spent_s(folder):
    """Seconds of each part of all runs together, by the table of accounts."""
    path = folder / "accounts.parquet"
    if not path.is_file():
        return {}
    table = parquet_files.read(path, table_columns.ACCOUNTS).select(["part", "spent_s"])
    sums = table.group_by("part").aggregate([("spent_s", "sum")]).to_pylist()
    return {row["part"]: row["spent_s_sum"] for row in sums}


def _study(rows):
    """The name of the study; rows of imported runs have the names of their imports."""
    tables_of_study = ("speedups", "comparisons", "published", "runs")
    names = (row["study"] for name in tables_of_study for row in rows.get(name, ()))
    return next(filter(None, names), "")


def _statuses(coverage):
    counts = Counter(row["status"] for row in coverage)
    return sorted(counts.items(), key=lambda item: _status_order(item[0]))


def _status_order(status):
    return (ORDER.index(status) if status in ORDER else len(ORDER), status)


def _reasons(coverage, statuses):
    """Reasons of some statuses, the commonest first."""
    chosen = [row for row in coverage if row["status"] in statuses]
    names = [_combination(row["combination"]) for row in chosen]
    models = [name.partition(" ")[0] for name in names]
    texts = phrases.merged(models, [row["reason"] or "no reason is known" for row in chosen])
    groups = {}
    for row, text, name in zip(chosen, texts, names, strict=True):
        groups.setdefault((row["status"], text), []).append(name)
    reasons = [Reason(*key, len(group), group[0]) for key, group in groups.items()]
    return sorted(reasons, key=lambda reason: (-reason.runs, reason.status, reason.text))


def _combination(text):
    """The label of a combination; the table has an excluded one as a JSON object."""
    try:
        values = json.loads(text)
    except ValueError:
        return text
    if not isinstance(values, dict):
        return text
    names = sorted(values, key=[*wording.TEMPLATES, *values].index)
    return ", ".join(filter(None, (wording.field(name, values[name]) for name in names)))


def _groups(runs, coverage):
    """([(name, {status: runs}), ...], what makes a group): as fine as MAX_GROUPS allows."""
    status = {row["run_id"]: row["status"] for row in coverage}
    fields = [name for name in (*wording.NAMED, *CONDITION) if name != "seed"]
    fields = [
        name
        for name in dict.fromkeys(fields)
        if name in wording.ALWAYS[:2] or len({str(row.get(name)) for row in runs}) > 1
    ]
    groups = _grouped(runs, fields)
    while len(groups) > MAX_GROUPS and len(fields) > 1:
        fields.pop()
        groups = _grouped(runs, fields)
    values = [dict(zip(fields, key, strict=True)) for key in groups]
    names = wording.short_labels(values) if values else []
    counts = (
        Counter(status.get(row["run_id"], row["status"]) for row in group)
        for group in groups.values()
    )
    ordered = (dict(sorted(c.items(), key=lambda item: _status_order(item[0]))) for c in counts)
    named = [(name or "all", c) for name, c in zip(names, ordered, strict=True)]
    return named, ", ".join(map(report_tables.column_label, fields))


def _grouped(rows, fields):
    groups = {}
    for row in sorted(rows, key=lambda row: [_sortable(row.get(name)) for name in fields]):
        groups.setdefault(tuple(row.get(name) for name in fields), []).append(row)
    return groups


def _sortable(value):
    return (value is not None, not isinstance(value, str), value if value is not None else 0)


def _machine(runs, recorded):
    """What runs were on: (fact, [(value, runs), ...]), the commonest value first."""
    facts = {}
    for row, known in zip(runs, recorded, strict=True):
        for name, value in {**_row_facts(row), **known}.items():
            if value not in (None, "", "none"):
                facts.setdefault(name, Counter())[str(value)] += 1
    order = {name: index for index, name in enumerate(FACTS)}
    return [
        (name, sorted(facts[name].items(), key=lambda item: (-item[1], item[0])))
        for name in sorted(facts, key=lambda name: (order.get(name, len(order)), name))
    ]


def _row_facts(row):
    framework = f"{row.get('framework') or ''} {row.get('framework_version') or ''}".strip()
    commit = (row.get("git_commit") or "")[: report_tables.SHORT]
    dirty = ", with changes of its own" if row.get("git_dirty") else ""
    return {
        "site": row.get("site"),
        "device": row.get("device_model"),
        "kind of device": row.get("device_kind"),
        "host": row.get("host"),
        "framework": framework if row.get("framework_version") else None,
        "environment": row.get("environment"),
        "runtime": row.get("runtime"),
        "image": row.get("image_digest"),
        "timing source": row.get("timing_source"),
        "source": row.get("source"),
        "dlbench at commit": commit + dirty if commit else None,
        "dlbench release": row.get("release"),
        "data": row.get("dataset"),
    }


def recorded_facts(folder: Path) -> dict[str, Any]:
    """The facts of the run in a folder, by name; {} of imported runs, which have no record."""
    with contextlib.suppress(run_record.RecordError):
        provenance = run_record.read(folder / "run.json")["provenance"]
        versions = dict(provenance.get("versions") or {})
        site = provenance.get("site") or {}
        return {
            "platform": provenance.get("platform"),
            **_machine_facts(provenance),
            sentences.CUDA: (provenance.get("libraries") or {}).get("cudart"),
            "interconnect": site.get("interconnect"),
            "storage": site.get("storage"),
            "modules": ", ".join(provenance.get("modules") or []),
            "cores and GPUs": binding.describe_ranks(provenance.get("bindings") or ()),
            **{f"{name} version": version for name, version in versions.items()},
        }
    return {}


def _machine_facts(provenance):
    """Hardware of the first node; {} of records of earlier versions."""
    hardware = next(iter((provenance.get("hardware") or {}).values()), None)
    if not hardware:
        return {}
    software = next(iter(provenance["software"].values()))
    cpu, gpus = hardware["cpu"], hardware["gpus"]
    counts = [f"{cpu[name]} {name}" for name in ("sockets", "cores", "threads") if cpu[name]]
    governors = [f"governor {name}" for name in cpu["governors"] or ()]
    ports = [f"{port['rate']} ({port['link_layer']})" for port in hardware["infiniband"]]
    memory = hardware["memory"]["gib"]
    if memory is None and (now_bytes := (provenance.get("present") or {}).get("memory_bytes")):
        memory = installed_gib(now_bytes)
    return {
        "processor": ", ".join([cpu["model"] or "not known", *counts, *governors]),
        "memory": memory and f"{memory} GiB",
        "GPU driver": gpus["driver"] and f"{gpus['driver']}, CUDA {gpus['cuda_driver']}",
        "network": ", ".join(dict.fromkeys(ports)),
        "operating system": software["os"],
        "kernel": software["kernel"],
    }


def figure(name: str, folder: Path) -> Figure:
    """The figure of a name, from the files that draw_figure.py made in a folder.

    Raises UnknownName: no figure has that name; FileNotFoundError: it was not drawn; Error: its SVG
    does not say how large it is.
    """
    caption = plugins.constants("figures", name)["CAPTION"].strip()
    docstring = ast.get_docstring(plugins.parse_file(plugins.path("figures", name))) or name
    text = (folder / f"{name}.svg").read_text(encoding="utf-8")
    size = SIZE.search(text)
    if not size:
        raise Error(f"{folder / name}.svg: expected an SVG with its size in points")
    width, height = (round(POINTS * float(side)) for side in size.groups())
    svg = _minified(text)
    is_small = len(svg) <= MAX_SVG_BYTES
    return Figure(
        name=name,
        title=docstring.splitlines()[0].rstrip("."),
        caption=caption,
        uri=_svg_uri(svg) if is_small else _picture_uri(folder / f"{name}.png"),
        width=width,
        height=height,
    )


def _minified(svg):
    """The same picture: no comments, and paths in hundredths of a point."""
    svg = PATH.sub(lambda path: DIGITS.sub(r"\1", path[0]), INVISIBLE.sub("", svg))
    return re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", svg)).strip()


def _svg_uri(svg):
    if "'" not in svg:
        svg = svg.replace('"', "'")
    return "data:image/svg+xml," + urllib.parse.quote(svg, safe=SAFE)


def _picture_uri(path):
    """The picture in COLOURS colours, as WebP without loss: two thirds of its PNG, or less."""
    webp = io.BytesIO()
    with Image.open(path) as image:
        reduced = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).convert("RGB")
        reduced.save(webp, "WEBP", lossless=True, method=4)
    return "data:image/webp;base64," + base64.b64encode(webp.getvalue()).decode()


TEMPLATE, SCRIPT = "report/report.html.jinja", "report/report.js"
STYLES = ("pages/page.css", "pages/page_links.css", "report/report.css")
MAX_FASTEST = 4
MAX_LIMITS = 6  # of the sentences on series that are seen at once
MAX_VALUES = 6  # of a fact about the machine that are seen at once
SECTIONS = {
    "summary": "Summary",
    "coverage": "Coverage",
    "tables": "Tables",
    "figures": "Figures",
    "machine": "Machine and software",
    "method": "Method",
    "caveats": "Caveats",
    "again": "Reproduce this report",
}
STATUS_LABELS = sentences.STATUS_LABELS | {"imported": "imported, beside them"}
COLOURED = ("ok", "unstable", "stale", *FAILED)
BADGES_OF_STATUS = {"skipped": "", "excluded": "", **dict.fromkeys(FAILED, "bad")}
BADGES = {SHOWN: "good", INDICATED: "warn", OPEN: ""}


def html_page(report: Report) -> str:
    """The report as the text of an HTML file."""
    style, script = templates.source(*STYLES), templates.source(SCRIPT)
    return templates.render(
        TEMPLATE,
        report=report,
        sections=SECTIONS,
        style=style,
        script=script,
        policy=templates.policy(style, script),
        most_fastest=MAX_FASTEST,
        most_limits=MAX_LIMITS,
        most_values=MAX_VALUES,
        badge_of_evidence=BADGES,
        badge_of_status=lambda status: BADGES_OF_STATUS.get(status, "warn"),
        colour=_colour,
        counted=phrases.counted,
        evidence_links=lambda finding: _evidence_links(finding, report),
        interval_text=_interval_text,
        items=_items,
        plain_table=report_tables.plain,
        prose=_prose,
        status_label=lambda status: STATUS_LABELS.get(status, status),
        stripes=_stripes,
    )


def _prose(text: str) -> Markup:
    """Text of reStructuredText with its emphasis and its literals."""
    literals = re.sub(r"``(.+?)``", r"<code>\1</code>", escape(text))
    prose = re.sub(r"(?<![\w*])\*(?!\s)([^*]+?)\*(?![\w*])", r"<em>\1</em>", literals)
    return Markup(prose)  # noqa: S704 - of escaped text


def _interval_text(rate: estimates.Estimate) -> str:
    if math.isnan(rate.low):
        return "none of one run"
    return f"{_items(rate.low)} to {_items(rate.high)}"


def _items(rate: float) -> str:
    """Items per second as report.js shows them in tables: 8 312 or 12.34."""
    if not math.isfinite(rate):
        return str(rate)
    rate = float(f"{rate:.6g}")  # as tables in the page have it, which the script rounds again
    if rate < 1000:
        return f"{rate:.4g}"
    return f"{math.floor(rate + 0.5):,}".replace(",", "\u2009")


def _evidence_links(finding: Finding | Sentence, report: Report) -> list[tuple[str, str]]:
    """(table or figure, its name) of what a finding is from, where the page has it."""
    tables = {table.name for table in report.tables}
    figures = {figure.name for figure in report.figures}
    return [
        *(("table", name) for name in finding.tables if name in tables),
        *(("figure", name) for name in finding.figures if name in figures),
    ]


def _colour(status: str) -> str:
    return status if status in COLOURED else "other"


def _stripes(counts: dict[str, int], most: int | None) -> list[tuple[str, float, float]]:
    """(colour, x, width) of each status in a bar, in percent of `most` runs."""
    percent = 100 / (most or sum(counts.values()))
    stripes, x = [], 0.0
    for status, count in counts.items():
        stripes.append((_colour(status), x, percent * count))
        x += percent * count
    return stripes
