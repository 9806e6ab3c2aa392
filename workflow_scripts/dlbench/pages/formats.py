"""A page of sections and tables; as text for the terminal, Markdown, one HTML file; data as JSON.

HTML has nothing to load and no script, and is escaped. On a narrow screen each row of a table
becomes a card; on paper rows are not broken.
"""

import json
import math
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from dlbench.common import terminal
from dlbench.pages import templates


@dataclass(frozen=True)
class Cell:
    """A short text with a colour, a note, a link or a drawn interval.

    Attributes:
        kind: good, bad, same or open, which gives it a colour; "": it is plain text.
        href: address that the text links to; `anchor`: name by which others link to the cell.
            Only HTML has both.
        drawn: (ratio, low, high, margin); low and high are nan where there is no interval.
    """

    text: str
    kind: str = ""
    note: str = ""
    drawn: tuple[float, float, float, float] | None = None
    href: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of texts and Cells under headings; columns whose index is in `right` align right."""

    headings: tuple[str, ...]
    rows: list[list[str | Cell]]
    right: tuple[int, ...] = ()


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and a table below them; `drawings` are HTML above the table."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    drawings: tuple[Markup, ...] = ()


@dataclass(frozen=True)
class Page:
    """A title, one sentence that says it all, and sections.

    `kind` is good, bad or open where the page is the outcome of a check, else "".
    """

    title: str
    lead: str
    sections: tuple[Section, ...]
    kind: str = ""


NARROWEST, WIDEST = 80, 120  # columns of a text
LONGEST = 24  # characters of a word, up to which words are not broken where there is room
MIN_WIDTH = 12  # characters that a column is not made narrower than
BREAKING = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|#~"})
TEMPLATE, STYLES = "pages/page.html.jinja", ("pages/page.css", "pages/page_tables.css")
WIDTH, HEIGHT, EDGE = 144, 24, 6  # of a drawn interval, in pixels


def written(page: Page, plain: Any, form: str) -> str:
    """A page as text, markdown, html, or json, which is its data as plain values."""
    if form == "json":
        return json.dumps(plain, indent=1, allow_nan=False) + "\n"
    return {"text": text, "markdown": markdown, "html": html_page}[form](page)


def text(page: Page, width: int | None = None) -> str:
    """The page as text of a width of 80 to 120 columns: that of the terminal, if not given."""
    width = width or shutil.get_terminal_size((100, 24)).columns
    width = max(NARROWEST, min(width, WIDEST))
    lines = [page.title, "=" * len(page.title), *textwrap.wrap(page.lead, width)]
    for section in page.sections:
        lines += ["", section.heading, "-" * len(section.heading)]
        for paragraph in section.paragraphs:
            lines += textwrap.wrap(paragraph, width)
        if section.table:
            lines += [""] if section.paragraphs else []
            lines += _grid(section.table, width)
    return terminal.plain("\n".join(lines) + "\n")


def _grid(table: Table, width: int) -> Iterator[str]:
    rows = [list(table.headings), *([_cell_text(cell) for cell in row] for row in table.rows)]
    widths = _widths(rows, width)
    for index, row in enumerate(rows):
        cells = [
            textwrap.wrap(cell, w, break_on_hyphens=False) or [""]
            for cell, w in zip(row, widths, strict=True)
        ]
        for line in range(max(map(len, cells))):
            parts = (cell[line] if line < len(cell) else "" for cell in cells)
            yield "  ".join(
                part.rjust(w) if column in table.right else part.ljust(w)
                for column, (part, w) in enumerate(zip(parts, widths, strict=True))
            ).rstrip()
        if index == 0:
            yield "  ".join("-" * w for w in widths)


def _widths(rows: list[list[str]], width: int) -> list[int]:
    """Widths of the columns: the widest shrinks until all fit; words are broken last."""
    columns = range(len(rows[0]))
    widths = [max(len(row[column]) for row in rows) for column in columns]
    words = [max(len(w) for row in rows for w in (row[c] or " ").split(" ")) for c in columns]
    room = width - 2 * (len(widths) - 1)
    for least in ([max(MIN_WIDTH, min(w, LONGEST)) for w in words], [MIN_WIDTH] * len(widths)):
        while sum(widths) > room:
            wider = [column for column in columns if widths[column] > least[column]]
            if not wider:
                break
            widths[max(wider, key=lambda column: widths[column])] -= 1
    return widths


def markdown(page: Page) -> str:
    """The page in GitHub's Markdown; texts of the results are escaped."""
    lines = [f"## {_escaped(page.title)}", "", f"**{_escaped(page.lead)}**"]
    for section in page.sections:
        lines += ["", f"### {_escaped(section.heading)}", ""]
        for paragraph in section.paragraphs:
            lines += [_escaped(paragraph), ""]
        if section.table:
            lines += _pipes(section.table)
    return terminal.plain("\n".join(lines) + "\n")


def _pipes(table: Table) -> Iterator[str]:
    columns = range(len(table.headings))
    yield _piped(table.headings, [""] * len(table.headings))
    yield "| " + " | ".join("---:" if c in table.right else "---" for c in columns) + " |"
    for row in table.rows:
        yield _piped(map(_cell_text, row), [_mark(cell) for cell in row])


def _piped(cells: Iterable[str], marks: Sequence[str]) -> str:
    parts = (f"{mark}{_escaped(cell)}{mark}" for cell, mark in zip(cells, marks, strict=True))
    return "| " + " | ".join(parts) + " |"


def _mark(cell: str | Cell) -> str:
    """What stands around a cell: outcomes that are good or bad are bold."""
    return "**" if isinstance(cell, Cell) and cell.kind in ("good", "bad") else ""


def _escaped(text: str) -> str:
    return " ".join(text.translate(BREAKING).split())


def _cell_text(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.text}: {cell.note}" if cell.note else cell.text


def html_page(page: Page) -> str:
    """The page as the text of an HTML file."""
    return templates.render(TEMPLATE, style=templates.source(*STYLES), **template_values(page))


def template_values(page: Page) -> dict[str, Any]:
    """What TEMPLATE, and those that extend it, show of a page; `style` is theirs to add."""
    return {"page": page, "scale_of": _Scale, "kind_of": _kind}


def _kind(row: list[str | Cell]) -> str:
    """The kind of a row: that of its first cell that has one, which colours its interval."""
    return next((cell.kind for cell in row if isinstance(cell, Cell) and cell.kind), "")


class _Scale:
    """One logarithmic scale for all intervals of a table, 1 in its middle."""

    def __init__(self, table: Table):
        cells = (cell for row in table.rows for cell in row if isinstance(cell, Cell))
        intervals = [cell.drawn for cell in cells if cell.drawn]
        values = [value for *ends, margin in intervals for value in (*ends, 1 + margin)]
        sizes = sorted(abs(math.log(v)) for v in values if math.isfinite(v) and v > 0)
        # One interval that is far wider than the others must not make dots of those.
        typical = sizes[int(0.9 * (len(sizes) - 1))] if sizes else 1
        self._reach = max(typical * 1.25, 1e-6)

    def interval(self, drawn: tuple[float, float, float, float], kind: str) -> dict[str, Any]:
        """In pixels: `zone` is the margin; `ends` are None without an interval."""
        ratio, low, high, margin = drawn
        return {
            "ratio": self._x(ratio),
            "ends": (self._x(low), self._x(high)) if math.isfinite(low) else None,
            "zone": (self._x(1 / (1 + margin)), self._x(1 + margin)),
            "kind": kind,
            "width": WIDTH,
            "height": HEIGHT,
        }

    def _x(self, ratio: float) -> float:
        share = max(-1.0, min(1.0, math.log(ratio) / self._reach))
        return WIDTH / 2 + share * (WIDTH / 2 - EDGE)
