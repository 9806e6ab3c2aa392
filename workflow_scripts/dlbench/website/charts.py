"""A series over time as an inline SVG: means of sessions with intervals, levels, and changes."""

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from dlbench.common import phrases
from dlbench.history.history_rows import day
from dlbench.pages import templates
from dlbench.study.wording import number
from dlbench.website.site_data import Point, Series

TEMPLATE = "website/chart.svg.jinja"
WIDTH, HEIGHT = 360, 128
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 8, 20  # margins, which labels fill
ROOM = 0.15  # of the range of values, above and below it
LEAST_RANGE = 0.02  # of the value: smaller scatter must not look like much
DIRECTIONS = {"gain": "good", "loss": "bad"}  # kinds of a finding by its direction


@dataclass(frozen=True)
class Chart:
    """What is drawn, in pixels; points, ends and levels are paths of SVG.

    Attributes:
        values: (y, text) of the least and the greatest value.
        marks: (x, kind, text) of changes.
        dates: texts below the left and the right end.
        text: the chart in words.
    """

    points: str
    ends: str
    levels: str
    values: list[tuple[float, str]]
    marks: list[tuple[float, str, str]]
    dates: tuple[str, str]
    text: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def chart(series: Series, label: str, href: str, dates: tuple[datetime, datetime]) -> Markup:
    """A figure of a series; dates are the ends of its axis of time."""
    level = (
        f"{number(series.level.value)} {series.unit}" if series.level_points else "nothing measured"
    )
    return Markup(  # noqa: S704 - the template escapes
        templates.render(TEMPLATE, chart=_drawn(series, dates), label=label, href=href, level=level)
    )


def dates_of(points: Sequence[Point]) -> tuple[datetime, datetime]:
    """The first and the last date of some points."""
    dates = [point.session.started_at for point in points]
    return min(dates), max(dates)


def _drawn(series, dates):
    points = series.measured
    if not points:
        return None
    means = [point.mean.value for point in points]
    least, greatest = min(means), max(means)
    room = ROOM * max(greatest - least, LEAST_RANGE * greatest)
    low, high = least - room, greatest + room
    first, last = dates
    span = (last - first).total_seconds() or 1.0

    def x(date):
        share = (date - first).total_seconds() / span if last > first else 0.5
        return LEFT + 4 + share * (WIDTH - LEFT - RIGHT - 8)

    def y(value):
        share = (min(max(value, low), high) - low) / (high - low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    places = [(x(p.session.started_at), p.mean) for p in points]
    ends = [(at, m) for at, m in places if math.isfinite(m.low)]
    extremes = dict.fromkeys((greatest, least))
    return Chart(
        points="".join(f"M{at:.1f} {y(m.value):.1f}h0" for at, m in places),
        ends="".join(f"M{at:.1f} {y(m.low):.1f}V{y(m.high):.1f}" for at, m in ends),
        levels="".join(
            f"M{x(part[0].session.started_at):.1f} {y(_level(part)):.1f}"
            f"H{x(part[-1].session.started_at):.1f}"
            for part in _parts(series)
        ),
        values=[(y(value), number(value)) for value in extremes],
        marks=[
            (x(f["changed_before"]), DIRECTIONS.get(f["direction"], "open"), f["text"])
            for f, _ in series.findings
        ],
        dates=(day(first), day(last)),
        text=(
            f"{phrases.counted(len(points), 'session')}, {day(points[0].session.started_at)} to "
            f"{day(points[-1].session.started_at)}, {number(least)} to {number(greatest)} "
            f"{series.unit}, {phrases.counted(len(series.findings), 'change')}"
        ),
    )


def _parts(series):
    """The points of each level."""
    points = series.measured
    dates = [point.session.started_at for point in points]
    cuts = {bisect.bisect_left(dates, f["changed_before"]) for f, _ in series.findings}
    edges = sorted({0, *cuts, len(points)})
    return [points[a:b] for a, b in itertools.pairwise(edges)]


def _level(points):
    return math.exp(sum(math.log(point.mean.value) for point in points) / len(points))
