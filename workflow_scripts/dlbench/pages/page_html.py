"""A page (page.py) as one HTML file: nothing to load, no script, escaped.

On a narrow screen each row of a table becomes a card; on paper rows are not broken.
"""

import math
from typing import Any

from dlbench.pages import templates
from dlbench.pages.page import Cell, Page, Table

TEMPLATE, STYLES = "pages/page.html.jinja", ("pages/page.css", "pages/page_tables.css")
WIDTH, HEIGHT, EDGE = 144, 24, 6  # of a drawn interval, in pixels


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
