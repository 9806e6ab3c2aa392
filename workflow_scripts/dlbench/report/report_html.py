"""The report (build_report.py) as one HTML file that loads nothing.

- Style and script stand in the file and are allowed by their digests; a policy in the file
  (Content-Security-Policy) forbids all else, so that nothing leaves the page and no text of a
  run becomes a script.
- Tables are data in the page, drawn by report.js in slices; all else needs no script.
- report.html.jinja is the page, sections/NAME.html.jinja each of its SECTIONS.
"""

import math
import re

from markupsafe import Markup, escape

from dlbench.analysis import estimates
from dlbench.common import phrases
from dlbench.log.event_log import FAILED
from dlbench.pages import templates
from dlbench.report import report_tables, sentences
from dlbench.report.build_report import Report
from dlbench.report.findings import INDICATED, OPEN, SHOWN, Finding
from dlbench.report.limit_sentences import Sentence

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
