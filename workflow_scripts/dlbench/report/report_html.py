"""The report (dlbench/report/build_report.py) as one HTML file that loads nothing.

- Style and script stand in the file and are allowed by their digests; a policy in the file
  (Content-Security-Policy) forbids all else, so that nothing leaves the page and no text of a
  run becomes a script.
- Tables are data in the page, drawn by dlbench/report/report.js in slices; all else is there
  without it.
"""

import base64
import hashlib
import html
import json
import re
from pathlib import Path

from dlbench.report import report_tables

LIBRARY = Path(__file__).parents[1]
STYLES, SCRIPT = ("pages/page.css", "report/report.css"), "report/report.js"
SHORT = 16  # hexadecimal digits of a file's digest
MOST_FASTEST = 4
MOST_VALUES = 6  # of a fact about the machine that are seen at once
SECTIONS = {
    "summary": "Summary",
    "coverage": "Coverage",
    "tables": "Tables",
    "figures": "Figures",
    "machine": "Machine and software",
    "method": "Method",
    "caveats": "Caveats",
    "again": "Make it again",
}
WORDS = {
    "unstable": "ok, but in doubt",
    "oom": "out of memory",
    "timeout": "over the time limit",
    "stale": "stale",
    "imported": "imported, beside them",
}
COLOURED = ("ok", "unstable", "stale", "failed", "oom", "timeout")
BADGES = {"shown": "good", "indicated": "warn", "open": ""}
AGAIN = """uv run snakemake report
uv run python workflow_scripts/build_report.py --help"""


def html_page(report):
    """The whole file."""
    style = "".join((LIBRARY / name).read_text(encoding="utf-8") for name in STYLES)
    script = (LIBRARY / SCRIPT).read_text(encoding="utf-8")
    title = _text(f"{report.study}: report")
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}</title>",
        f"<style>{style}</style></head>",
        "<body>",
        f'<header><p class="eyebrow">Benchmark report</p><h1>{_text(report.study)}</h1>',
        f'<p class="lead">{_text(report.lead)}</p></header>',
        '<nav aria-label="Contents"><ul>',
        *(f'<li><a href="#{key}">{words}</a></li>' for key, words in SECTIONS.items()),
        "</ul></nav>",
        "<main>",
    ]
    for key, words in SECTIONS.items():
        parts += [f'<section id="{key}"><h2>{words}</h2>', *globals()[f"_{key}"](report)]
        parts.append("</section>")
    parts += ["</main>", f"<script>{script}</script>", "</body>", "</html>", ""]
    return "\n".join(parts)


def _policy(style, script):
    return (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    )


def _digest(content):
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _text(words):
    return html.escape(str(words), quote=True)


def _prose(words):
    """Text of reStructuredText with its emphasis and its literals."""
    made = re.sub(r"``(.+?)``", r"<code>\1</code>", _text(words))
    return re.sub(r"(?<![\w*])\*(?!\s)([^*]+?)\*(?![\w*])", r"<em>\1</em>", made)


# Sections.


def _summary(report):
    yield '<dl class="facts">'
    yield from (f"<div><dt>{_text(term)}</dt><dd>{_text(words)}</dd></div>"
                for term, words in report.facts)  # fmt: skip
    yield "</dl>"
    if report.statuses:
        yield _bar(dict(report.statuses))
        yield '<ul class="legend" aria-label="Runs by status">'
        for status, count in report.statuses:
            yield (f'<li><span class="key {_colour(status)}"></span><b>{count}</b> '
                   f"{_text(WORDS.get(status, status))}</li>")  # fmt: skip
        yield "</ul>"
    yield from _throughput(report.fastest)
    yield f"<h3>{_findings_heading(report)}</h3>"
    if report.findings:
        yield '<ol class="findings">'
        for finding in report.findings:
            yield f'<li class="{finding.kind}">{_finding(finding, report)}</li>'
        yield "</ol>"
    if report.further:
        yield f"<details><summary>{len(report.further)} more</summary>"
        yield '<ul class="more">'
        for finding in report.further:
            numbers = ", ".join(filter(None, (finding.number, finding.interval)))
            head = f"{finding.headline} ({numbers})." if numbers else f"{finding.headline}."
            yield (f"<li>{_badge(finding.evidence)} <b>{_text(head)}</b> "
                   f"{_text(finding.text)}</li>")  # fmt: skip
        yield "</ul></details>"
    yield from _reasons("What failed, and why", report.failures)
    yield from _reasons("What is stale", report.stale)
    if report.caveats:
        one = len(report.caveats) == 1
        words = "one caveat" if one else f"{len(report.caveats)} caveats"
        yield f'<p class="note">Read the numbers with <a href="#caveats">{words}</a> in mind.</p>'


def _throughput(fastest):
    if not fastest:
        return
    yield "<h3>Highest throughput <small>of each model and dataset; all in "
    yield '<a href="#table-results">table results</a></small></h3>'
    yield '<table class="groups rates"><thead><tr><th scope="col">combination</th>'
    yield '<th class="right" scope="col">items/s</th><th class="right" scope="col">95 % interval'
    yield '</th><th class="right" scope="col">runs</th></tr></thead><tbody>'
    for name, rate in fastest[:MOST_FASTEST]:
        known = rate.low == rate.low  # of one run it is not
        interval = f"{_items(rate.low)} to {_items(rate.high)}" if known else "none of one run"
        numbers = (f"<b>{_items(rate.value)}</b>", interval, rate.runs)
        cells = "".join(f'<td class="right">{number}</td>' for number in numbers)
        yield f"<tr><td>{_text(name)}</td>{cells}</tr>"
    yield "</tbody></table>"


def _items(rate):
    """As in 8 312 or 12.3."""
    return f"{rate:,.0f}".replace(",", "\u2009") if rate >= 1000 else f"{rate:.3g}"


def _findings_heading(report):
    if not report.findings:
        return "The numbers of this study carry no finding"
    return "What the numbers carry"


def _finding(finding, report):
    parts = []
    if finding.number:
        words = f"95 % interval {finding.interval}" if finding.interval else ""
        parts.append(f'<p class="number">{_text(finding.number)}</p>')
        parts.append(f'<p class="interval">{_text(words)}</p>')
    parts += [f"<h3>{_text(finding.headline)}</h3>", f"<p>{_text(finding.text)}</p>"]
    parts.append(f'<p class="from">{_badge(finding.evidence)} {_from(finding, report)}</p>')
    return "".join(parts)


def _badge(evidence):
    return f'<span class="badge {BADGES[evidence]}">{evidence}</span>'


def _from(finding, report):
    """Links to what a finding is from, where the page has it."""
    there = {table.name for table in report.tables}
    links = [f'<a href="#table-{t}">table {t}</a>' for t in finding.tables if t in there]
    there = {figure.name for figure in report.figures}
    links += [f'<a href="#figure-{f}">figure {f}</a>' for f in finding.figures if f in there]
    return ", ".join(links)


def _reasons(heading, reasons):
    if not reasons:
        return
    yield f"<h3>{heading}</h3>"
    yield '<table class="reasons"><thead><tr><th class="right" scope="col">runs</th>'
    yield '<th scope="col">status</th><th scope="col">why</th></tr></thead><tbody>'
    for reason in reasons:
        kind = "bad" if reason.status in ("failed", "oom", "timeout") else "warn"
        kind = "" if reason.status in ("skipped", "excluded") else kind
        word = _text(WORDS.get(reason.status, reason.status))
        of = "" if reason.runs == 1 else "as "
        yield (f'<tr><td class="right">{reason.runs}</td><td><span class="badge {kind}">'
               f'{word}</span></td><td>{_text(reason.words)}<span class="of">{of}'
               f"{_text(reason.example)}</span></td></tr>")  # fmt: skip
    yield "</tbody></table>"


def _coverage(report):
    if report.groups:
        yield f"<p>Runs by {_text(report.grouped_by)}; each combination is in the table below.</p>"
        yield '<table class="groups"><thead><tr><th scope="col">combination</th>'
        yield '<th scope="col">runs</th><th scope="col">status</th></tr></thead><tbody>'
        most = max(sum(counts.values()) for _, counts in report.groups)
        for name, counts in report.groups:
            words = ", ".join(f"{n} {WORDS.get(s, s)}" for s, n in counts.items())
            yield (f"<tr><td>{_text(name)}</td><td>{_bar(counts, most)}</td>"
                   f"<td>{_text(words)}</td></tr>")  # fmt: skip
        yield "</tbody></table>"
    yield from _reasons("What was left out, and why", report.left_out)


def _bar(counts, most=None):
    """Statuses side by side, in proportion."""
    total = most or sum(counts.values())
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    parts, x = [], 0.0
    for status, count in counts.items():
        width = 100 * count / total
        parts.append(
            f'<rect class="{_colour(status)}" x="{x:.2f}" width="{width:.2f}" height="1"/>'
        )
        x += width
    return (f'<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" '
            f'aria-label="{_text(words)}">{"".join(parts)}</svg>')  # fmt: skip


def _colour(status):
    return status if status in COLOURED else "other"


def _tables(report):
    yield "<p>A heading sorts its table. Numbers have up to six digits here, all in the files.</p>"
    yield "<noscript><p>Tables are drawn by a script in this page; without it, see the files in "
    yield "<code>results/tables</code>.</p></noscript>"
    for table in report.tables:
        heading = _text(table.heading)
        yield (f'<div class="table" id="table-{_text(table.name)}" data-heading="{heading}">'
               f"<h3>{heading}</h3>")  # fmt: skip
        same = ", ".join(f"{_text(name)} {_text(value)}" for name, value in table.constant)
        file = f"<code>{_text(table.file)}.parquet</code>"
        yield f'<p class="note">{_text(table.words)} All digits: {file}.</p>'
        if same:
            yield f"<details><summary>The same in all rows: {len(table.constant)} columns</summary>"
            yield f'<p class="note">{same}</p></details>'
        yield '<div class="tools"></div>'
        yield f'<div class="frame" tabindex="0" role="region" aria-label="{heading}">'
        yield '</div><p class="paper-only note"></p>'
        yield _meaning(table)
        yield f'<script type="application/json">{_json(report_tables.plain(table))}</script></div>'


def _meaning(table):
    """What the columns mean, for those who have no pointer to hover with."""
    known = [column for column in table.columns if column.note]
    if not known:
        return ""
    rows = "".join(
        f"<div><dt>{_text(column.name)}{f' ({_text(column.unit)})' if column.unit else ''}</dt>"
        f"<dd>{_text(column.note)}</dd></div>"
        for column in known
    )
    return (f"<details><summary>What the columns mean</summary>"
            f'<dl class="meaning">{rows}</dl></details>')  # fmt: skip


def _json(values):
    """JSON that ends no script element, whatever is in it."""
    plain = json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return plain.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _figures(report):
    if not report.figures:
        yield "<p>The config names no figures.</p>"
    for number, figure in enumerate(report.figures, start=1):
        title = f"Figure {number}. {figure.title}"
        yield f'<figure id="figure-{_text(figure.name)}">'
        yield f'<div class="plot" tabindex="0" role="region" aria-label="{_text(title)}">'
        yield (f'<img src="{_text(figure.uri)}" width="{figure.width}" height="{figure.height}" '
               f'alt="{_text(figure.title)}" decoding="async"></div>')  # fmt: skip
        yield f"<figcaption><b>{_text(title)}.</b> {_prose(figure.caption)}</figcaption></figure>"


def _machine(report):
    yield '<dl class="machine">'
    for name, values in report.machine:
        shown = ", ".join(_value(value, runs, len(values)) for value, runs in values[:MOST_VALUES])
        more = len(values) - MOST_VALUES
        yield f"<dt>{_text(name)}</dt><dd>{shown}{f' and {more} more' if more > 0 else ''}</dd>"
    yield "</dl>"


def _value(value, runs, of):
    count = f" <span>({runs} run{'' if runs == 1 else 's'})</span>" if of > 1 else ""
    return f"{_text(value)}{count}"


def _method(report):
    yield '<dl class="machine">'
    yield from (f"<dt>{_text(t)}</dt><dd>{_text(words)}</dd>" for t, words in report.method)
    yield "</dl>"


def _caveats(report):
    if not report.caveats:
        yield "<p>None that the tables know of.</p>"
        return
    yield '<ul class="caveats">'
    yield from (f"<li>{_text(words)}</li>" for words in report.caveats)
    yield "</ul>"


def _again(report):
    yield f"<pre><code>{AGAIN}</code></pre>"
    yield "<p>The same tables, records and figures give this file, byte for byte. It was made "
    yield "from:</p>"
    rows = "".join(f"<dt>{_text(name)}</dt><dd><code>sha256 {digest[:SHORT]}</code></dd>"
                   for name, digest in report.made_from)  # fmt: skip
    yield f'<dl class="machine">{rows}</dl>'
