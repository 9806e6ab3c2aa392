"""A page (comparison/comparison_page.py) as one HTML file: nothing to load, no script, escaped.

On a narrow screen each row of a table becomes a card; on paper rows are not broken.
"""

import html
import math
from pathlib import Path

SHARED = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
STYLE = """
table { width: 100%; margin-top: .75rem; border-collapse: collapse; font-size: .92rem; }
th { padding: .35rem .75rem .35rem 0; border-bottom: 2px solid var(--ink); text-align: left;
  font-size: .8rem; color: var(--soft); vertical-align: bottom; }
td { padding: .5rem .75rem .5rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
td:first-child { font-weight: 600; min-width: 16rem; }
th:last-child, td:last-child { padding-right: 0; }
svg { display: inline-block; width: 9rem; height: 1.5rem; vertical-align: middle;
  margin-right: .75rem; }
.zone { fill: var(--zone); } .one { stroke: var(--soft); stroke-width: 1; }
.ci { stroke: var(--ink); stroke-width: 2.5; stroke-linecap: round; }
.dot { fill: var(--ink); stroke: var(--paper); stroke-width: 1.5; }
.dot.good { fill: var(--good); } .ci.good { stroke: var(--good); }
.dot.bad { fill: var(--bad); } .ci.bad { stroke: var(--bad); }
@media (max-width: 46rem) {
  thead { display: none; }
  table, tbody, tr, td { display: block; }
  tr { margin: .75rem 0; padding: .6rem .85rem; border: 1px solid var(--line);
    border-radius: .6rem; }
  td { display: flex; justify-content: space-between; gap: 1rem; padding: .2rem 0; border: 0;
    text-align: right; white-space: normal; }
  td:first-child { display: block; min-width: 0; padding-bottom: .35rem; text-align: left; }
  td[data-of]:not(:first-child)::before { content: attr(data-of); flex: none; color: var(--soft);
    text-align: left; }
  svg { width: 8rem; margin-right: .5rem; }
}
"""
WIDTH, HEIGHT, EDGE, DOT = 144, 24, 6, 4.5  # of a drawn interval, in pixels


def html_page(page):
    """The whole file."""
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(page.title)}</title>",
        f"<style>{SHARED}{STYLE}</style></head>",
        "<body>",
        f"<h1>{html.escape(page.title)}</h1>",
        f'<p class="lead {page.kind}">{html.escape(page.lead)}</p>',
    ]
    for section in page.sections:
        parts += ["<section>", f"<h2>{html.escape(section.heading)}</h2>"]
        parts += [f"<p>{html.escape(words)}</p>" for words in section.words]
        parts += _table(section.table) if section.table else []
        parts.append("</section>")
    return "\n".join([*parts, "</body>", "</html>", ""])


def _table(table):
    scale = _Scale([cell.drawn for row in table.rows for cell in row if _drawn(cell)])
    yield "<table><thead><tr>"
    for column, heading in enumerate(table.headings):
        yield f'<th scope="col"{_class(column, table)}>{html.escape(heading)}</th>'
    yield "</tr></thead><tbody>"
    for row in table.rows:
        kind = next((cell.kind for cell in row if not isinstance(cell, str) and cell.kind), "")
        yield "<tr>"
        for column, cell in enumerate(row):
            of = html.escape(table.headings[column], quote=True)
            yield f'<td data-of="{of}"{_class(column, table)}>{_cell(cell, scale, kind)}</td>'
        yield "</tr>"
    yield "</tbody></table>"


def _class(column, table):
    return ' class="right"' if column in table.right else ""


def _drawn(cell):
    return not isinstance(cell, str) and cell.drawn


def _cell(cell, scale, kind):
    if isinstance(cell, str):
        return f"<span>{html.escape(cell)}</span>"
    words = html.escape(cell.text)
    if cell.drawn:
        return f"<span>{scale.draw(*cell.drawn, kind)}{words}</span>"
    note = f"<small>{html.escape(cell.note)}</small>" if cell.note else ""
    return f'<span><span class="badge {cell.kind}">{words}</span>{note}</span>'


class _Scale:
    """One logarithmic scale for all intervals of a table, 1 in its middle."""

    def __init__(self, drawn):
        values = [v for ratio, low, high, margin in drawn for v in (ratio, low, high, 1 + margin)]
        ends = sorted(abs(math.log(v)) for v in values if math.isfinite(v) and v > 0)
        # One interval that is far wider than the others must not make dots of those.
        typical = ends[int(0.9 * (len(ends) - 1))] if ends else 1
        self._reach = max(typical * 1.25, 1e-6)

    def draw(self, ratio, low, high, margin, kind):
        left, right = self._x(1 / (1 + margin)), self._x(1 + margin)
        y = HEIGHT / 2
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">',
            f'<rect class="zone" x="{left:.1f}" y="2" width="{right - left:.1f}" '
            f'height="{HEIGHT - 4}" rx="2"/>',
            f'<line class="one" x1="{WIDTH / 2}" x2="{WIDTH / 2}" y1="0" y2="{HEIGHT}"/>',
        ]
        if math.isfinite(low):
            parts.append(
                f'<line class="ci {kind}" x1="{self._x(low):.1f}" x2="{self._x(high):.1f}" '
                f'y1="{y}" y2="{y}"/>'
            )
        parts.append(f'<circle class="dot {kind}" cx="{self._x(ratio):.1f}" cy="{y}" r="{DOT}"/>')
        return "".join([*parts, "</svg>"])

    def _x(self, ratio):
        share = max(-1, min(1, math.log(ratio) / self._reach))
        return WIDTH / 2 + share * (WIDTH / 2 - EDGE)
