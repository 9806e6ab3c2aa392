"""Cells that the website's pages share: numbers with their origin, and links."""

import math
from collections.abc import Iterable
from urllib.parse import quote

from dlbench.analysis.estimates import Estimate
from dlbench.common import phrases
from dlbench.history.history_rows import day
from dlbench.pages.page import Cell
from dlbench.study.wording import number
from dlbench.tables.cells import Row
from dlbench.website.charts import DIRECTIONS
from dlbench.website.site_data import Machine, Point, Series, Session, study_page

ARCHIVE_DIGITS = 12
NONE = "\N{EN DASH}"


def machine(one: Machine) -> Cell:
    """A link to the page of a machine."""
    return Cell(one.label, note=one.hardware, href=one.address)


def condition(series: Series) -> Cell:
    """A link to the page of the condition of a series."""
    return Cell(series.condition.label, note=series.metric, href=series.condition.address)


def session(one: Session) -> Cell:
    """A link to the origin of a number: its session, with the digest of its archive."""
    origin = f"archive {one.archive_sha256[:ARCHIVE_DIGITS]}" if one.archive_sha256 else one.source
    return Cell(one.name, note=origin, href=one.address)


def studies(sessions: Iterable[Session]) -> str:
    """The names of the studies of some sessions."""
    return ", ".join(sorted({one.study for one in sessions}))


def study(name: str) -> Cell:
    """A link to the page of a study."""
    return Cell(name, href=study_page(name))


def archive(one: Session, archives: str | None) -> Cell:
    """The archive of a session with its whole digest, and a link where archives have an address."""
    if not one.archive_sha256:
        return Cell(one.source or NONE, note="a results folder, no archive")
    href = f"{archives.rstrip('/')}/{quote(one.source, safe='')}" if archives else ""
    return Cell(one.source, note=f"sha256 {one.archive_sha256}", href=href)


def value(mean: Estimate | None, unit: str = "") -> str:
    """A number with its 95 % interval."""
    if mean is None:
        return NONE
    text = f"{number(mean.value)} {unit}".strip()
    if math.isfinite(mean.low):
        text += f" ({number(mean.low)} to {number(mean.high)})"
    return text


def runs(point: Point) -> str:
    """How many runs are behind a number, and how many are not."""
    count = point.mean.runs if point.mean else 0
    parts = [str(count)]
    parts += [f"{point.failed} failed"] if point.failed else []
    parts += [f"{point.disturbed} disturbed"] if point.disturbed else []
    parts += [f"{point.missed} missed their learning gate"] if point.missed else []
    return ", ".join(parts)


def finding(row: Row) -> Cell:
    """The size of a change, coloured as a gain or a loss."""
    size = f"{100 * (row['ratio'] - 1):+.1f} %"
    return Cell(size, DIRECTIONS.get(row["direction"], "open"))


def dates(sessions: list[Session]) -> list[str | Cell]:
    """The first and the last date of sessions, which are by date."""
    return [day(sessions[0].started_at), day(sessions[-1].started_at)]


def counted(values: Iterable[object], noun: str) -> str:
    """How many different ones there are, with their noun."""
    return phrases.counted(len(set(values)), noun)
