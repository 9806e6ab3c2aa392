"""A series over time as an inline SVG: means of sessions with intervals, levels, and changes."""

import bisect
import itertools
import math
from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from dlbench.common import phrases
from dlbench.history.history_rows import day
from dlbench.pages import templates
from dlbench.report.site_data import Point, Series
from dlbench.study.wording import number

TEMPLATE = "report/site/chart.svg.jinja"
WIDTH, HEIGHT = 360, 128  # pixels
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 8, 20  # margins, which labels fill
FRAME = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "top": TOP,
         "bottom": HEIGHT - BOTTOM}  # fmt: skip
ROOM = 0.15  # of the range of values, above and below it
LEAST_RANGE = 0.02  # of the value: smaller scatter must not look like much
DIRECTIONS = {"gain": "good", "loss": "bad"}  # kinds of a finding by its direction


def chart(series: Series, label: str, href: str, dates: tuple[datetime, datetime]) -> Markup:
    """A figure of a series; dates are the ends of its axis of time."""
    level = (
        f"{number(series.level.value)} {series.unit}" if series.level_points else "nothing measured"
    )
    drawn = FRAME | _drawn(series, dates) if series.measured else None
    return Markup(  # noqa: S704 - the template escapes
        templates.render(TEMPLATE, chart=drawn, label=label, href=href, level=level)
    )


def dates_of(points: Sequence[Point]) -> tuple[datetime, datetime]:
    """The first and the last date of some points."""
    dates = [point.session.started_at for point in points]
    return min(dates), max(dates)


def _drawn(series, dates):
    """What is drawn, in pixels; points, ends and levels are paths of SVG."""
    points = series.measured
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

    times = [point.session.started_at for point in points]
    places = [(x(time), point.mean) for time, point in zip(times, points, strict=True)]
    cuts = {bisect.bisect_left(times, finding["changed_before"]) for finding, _ in series.findings}
    levels = [
        (x(times[a]), y(math.exp(sum(map(math.log, means[a:b])) / (b - a))), x(times[b - 1]))
        for a, b in itertools.pairwise(sorted({0, *cuts, len(points)}))
    ]
    return {
        "points": "".join(f"M{at:.1f} {y(m.value):.1f}h0" for at, m in places),
        "ends": "".join(
            f"M{at:.1f} {y(m.low):.1f}V{y(m.high):.1f}" for at, m in places if math.isfinite(m.low)
        ),
        "levels": "".join(f"M{start:.1f} {at:.1f}H{end:.1f}" for start, at, end in levels),
        "labels": [(y(value), number(value)) for value in dict.fromkeys((greatest, least))],
        "marks": [
            (x(f["changed_before"]), DIRECTIONS.get(f["direction"], "open"), f["text"])
            for f, _ in series.findings
        ],
        "dates": (day(first), day(last)),
        "text": (
            f"{phrases.counted(len(points), 'session')}, {day(times[0])} to {day(times[-1])}, "
            f"{number(least)} to {number(greatest)} {series.unit}, "
            f"{phrases.counted(len(series.findings), 'change')}"
        ),
    }
