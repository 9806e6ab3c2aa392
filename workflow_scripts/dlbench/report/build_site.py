"""Write the website of a history into a folder: pages that need no server and load nothing.

- Equal histories give equal bytes: there is no date of making in them.
- A folder that was written before is brought up to date: `files.json` names what is ours in it.
"""

import bisect
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from dlbench import Error
from dlbench.analysis.estimates import Estimate
from dlbench.common import phrases
from dlbench.common.files import atomic_write, read_json, write_json
from dlbench.history import causes
from dlbench.history.history_rows import day
from dlbench.pages import formats, templates
from dlbench.pages.formats import Cell, Page, Section, Table
from dlbench.report import site_data
from dlbench.report.site_data import (
    PROVENANCE,
    Condition,
    Machine,
    Point,
    Series,
    Session,
    Site,
    study_page,
)
from dlbench.study.wording import number
from dlbench.tables.cells import Row

TEMPLATE = "report/site/site.html.jinja"
STYLES = ("pages/page.css", "pages/page_links.css", "pages/page_tables.css", "report/site/site.css")
FILES = "files.json"
OURS = re.compile(r"[a-z0-9-]+\.(html|xml)")


def build(
    history: Path,
    names_of_machines: Mapping[str, Sequence[str]],
    output: Path,
    archives: str | None = None,
) -> Site:
    """Write the website of a history.

    Args:
        names_of_machines: `machines` of a config.
        archives: address of the folder that has the archives, for links.

    Raises Error: the folder holds something else than an earlier website, or there is no history.
    """
    earlier = _earlier(output)
    if not history.is_dir():
        raise Error(
            f"{history}: expected the folder of a history, found none: `uv run snakemake history` "
            "makes one from the campaigns that a config names"
        )
    site = site_data.read(history, names_of_machines)
    written = []
    for name, page in _pages(site, archives):
        style = templates.source(*STYLES)
        values = formats.template_values(page) | {"style": style, "address": name}
        text = templates.render(TEMPLATE, policy=templates.policy(style, ""), **values)
        with atomic_write(output / name) as part:
            part.write_text(text, encoding="utf-8")
        written.append(name)
    for name in set(earlier) - set(written):
        (output / name).unlink(missing_ok=True)
    write_json(output / FILES, {"files": sorted(written)})
    return site


def _earlier(output: Path) -> list[str]:
    """The files of an earlier website in a folder."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return []
    known = (read_json(output / FILES) or {}).get("files") if output.is_dir() else None
    if not isinstance(known, list):
        raise Error(
            f"{output}: expected no such folder, an empty one or an earlier website, found "
            f"something else (without {FILES}): name another folder"
        )
    return [name for name in map(str, known) if OURS.fullmatch(name)]


def _pages(site: Site, archives: str | None) -> Iterator[tuple[str, Page]]:
    """(name, Page) of each file."""
    yield "index.html", index(site)
    for name, sessions in site.studies.items():
        yield study_page(name), study(name, sessions, site, archives)
    for one in site.machines:
        yield one.address, machine(one)
    for each in site.conditions:
        yield each.address, condition(each)


TITLE = "Benchmark results"
MAX_CHANGES = 20  # of the latest ones on the first page
MAX_NUMBERS = 2000  # of a page: a larger one is slow to open
MAX_LETTERS = 300  # of a fact
ARCHIVE_DIGITS = 12
CHART = "report/site/chart.svg.jinja"
WIDTH, HEIGHT = 360, 128  # pixels
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 8, 20  # margins, which labels fill
FRAME = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "top": TOP,
         "bottom": HEIGHT - BOTTOM}  # fmt: skip
ROOM = 0.15  # of the range of values, above and below it
LEAST_RANGE = 0.02  # of the value: smaller scatter must not look like much
DIRECTIONS = {"gain": "good", "loss": "bad"}  # kinds of a finding by its direction
NONE = "\N{EN DASH}"
NO_CHANGE = ("No change of level was found.",)
_ARCHIVES = (
    "The archive has the records and logs of all runs, and the report of the study; dlbench verify "
    "checks it against its digest."
)
_CHARTS = (
    "Dots: means of sessions, with their 95 % intervals by the scatter of runs. Lines: levels. "
    "Dashed: changes."
)
_BASELINES = (
    "The level is the mean of the sessions since the last confirmed change, with its 95 % interval "
    "by the scatter between sessions: what the gate judges a new session by."
)

# Cells: numbers with their origin, and links.


def value_text(mean: Estimate | None, unit: str = "") -> str:
    """A number with its 95 % interval."""
    if mean is None:
        return NONE
    text = f"{number(mean.value)} {unit}".strip()
    if math.isfinite(mean.low):
        text += f" ({number(mean.low)} to {number(mean.high)})"
    return text


def _of_machine(one: Machine) -> Cell:
    return Cell(one.label, note=one.hardware, href=one.address)


def _of_condition(series: Series) -> Cell:
    return Cell(series.condition.label, note=series.metric, href=series.condition.address)


def _of_session(one: Session) -> Cell:
    """The origin of a number: its session, with the digest of its archive."""
    origin = f"archive {one.archive_sha256[:ARCHIVE_DIGITS]}" if one.archive_sha256 else one.source
    return Cell(one.name, note=origin, href=one.address)


def _of_study(name: str) -> Cell:
    return Cell(name, href=study_page(name))


def _of_archive(one: Session, archives: str | None) -> Cell:
    """The archive of a session with its whole digest, and a link where archives have an address."""
    if not one.archive_sha256:
        return Cell(one.source or NONE, note="a results folder, no archive")
    href = f"{archives.rstrip('/')}/{quote(one.source, safe='')}" if archives else ""
    return Cell(one.source, note=f"sha256 {one.archive_sha256}", href=href)


def _runs(point: Point) -> str:
    """How many runs are behind a number, and how many are not."""
    others = {"failed": point.failed, "disturbed": point.disturbed}
    others["missed their learning gate"] = point.missed or 0
    parts = [f"{count} {what}" for what, count in others.items() if count]
    return ", ".join([str(point.mean.runs if point.mean else 0), *parts])


def _of_finding(row: Row) -> Cell:
    """The size of a change, coloured as a gain or a loss."""
    size = f"{100 * (row['ratio'] - 1):+.1f} %"
    return Cell(size, DIRECTIONS.get(row["direction"], "open"))


def _dates(sessions: Sequence[Session]) -> list[str]:
    """The first and the last date of sessions, which are by date."""
    return [day(sessions[0].started_at), day(sessions[-1].started_at)]


def _counted(values: Iterable[object], noun: str) -> str:
    return phrases.counted(len(set(values)), noun)


# The first page.


def index(site: Site) -> Page:
    """The page with all machines, studies and conditions, and the latest changes."""
    return Page(
        title=TITLE,
        lead=_lead(site),
        sections=(
            Section("Latest changes", *_latest_changes(site)),
            Section("Machines", (), _machines(site)),
            Section("Studies", (), _studies(site)),
            Section("Conditions", (), _conditions(site)),
            *_left_out(site),
        ),
    )


def _lead(site):
    if not site.sessions:
        return "The history has no session yet."
    counted = {"session": site.sessions, "machine": site.machines}
    counted |= {"condition": site.conditions, "change": site.findings}
    parts = (phrases.counted(len(found), noun) for noun, found in counted.items())
    return f"{', '.join(parts)}: {' to '.join(_dates(site.sessions))}."


def _latest_changes(site):
    if not site.findings:
        return NO_CHANGE, None
    rows = [[_of_machine(site.machine(row)), *_change(row)] for row in site.findings[:MAX_CHANGES]]
    left = len(site.findings) - len(rows)
    note = (f"{phrases.counted(left, 'earlier one')} on the pages of machines.",) if left else ()
    return note, Table(("machine", "since", "change", "finding"), rows, right=(1,))


def _change(row):
    return [day(row["changed_before"]), _of_finding(row), row["text"]]


def _machines(site):
    rows = [
        [
            _of_machine(one),
            str(len(one.sessions)),
            *_dates(one.sessions),
            ", ".join(sorted({session.study for session in one.sessions})),
            str(len(one.findings)),
        ]
        for one in site.machines
    ]
    headings = ("machine", "sessions", "first", "last", "studies", "changes")
    return Table(headings, rows, right=(1, 2, 3, 5))


def _studies(site):
    machines = _machine_of(site)
    rows = [
        [
            _of_study(name),
            str(len(sessions)),
            *_dates(sessions),
            ", ".join(sorted({machines[one].label for one in sessions})),
        ]
        for name, sessions in site.studies.items()
    ]
    return Table(("study", "sessions", "first", "last", "machines"), rows, right=(1, 2, 3))


def _conditions(site):
    rows = []
    for one in site.conditions:
        meaning = ", ".join(f"{name} {str(text)[:12]}" for name, text in one.meaning.items())
        counts = (
            {series.machine for series in one.series},
            {p.session for series in one.series for p in series.points},
        )
        link = Cell(one.label, href=one.address, note=meaning)
        rows.append([link, *(str(len(found)) for found in counts)])
    return Table(("condition", "machines", "sessions"), rows, right=(1, 2))


def _left_out(site):
    if site.left_out:
        rows = [
            [row["session"], row["site"], Cell(row["standing"], "open"), row["reason"] or ""]
            for row in site.left_out
        ]
        heading = "Sessions that do not count"
        yield Section(heading, (), Table(("session", "site", "standing", "reason"), rows))


def _machine_of(site) -> dict[Session, Machine]:
    return {session: machine for machine in site.machines for session in machine.sessions}


def study(name: str, sessions: list[Session], site: Site, archives: str | None) -> Page:
    """The page of a study: its sessions, with the origin of their numbers, and its conditions.

    `archives`: address of the folder that has the archives; None: it is not known.
    """
    mine = set(sessions)
    rows: list[list[str | Cell]] = []
    for series in (one for condition in site.conditions for one in condition.series):
        points = [point for point in series.measured if point.session in mine]
        if points:
            value = value_text(points[-1].mean, series.unit)
            links = _of_condition(series), _of_machine(series.machine)
            rows.append([*links, str(len(points)), value, _of_session(points[-1].session)])
    machines = _machine_of(site)
    headings = ("condition", "machine", "sessions", "newest value (95 %)", "from")
    count = phrases.counted(len(sessions), "session")
    return Page(
        title=f"Study: {name}",
        lead=f"{count}, {' to '.join(_dates(sessions))}, on "
        f"{_counted((machines[one] for one in sessions), 'machine')}.",
        sections=(
            Section("Conditions", (), Table(headings, rows, right=(2, 3))),
            Section("Sessions", (_ARCHIVES,), _sessions_of_study(sessions, machines, archives)),
        ),
    )


def _sessions_of_study(sessions, machines, archives):
    rows = [
        [
            Cell(one.name, anchor=one.anchor, note=day(one.started_at)),
            _of_machine(machines[one]),
            str(one.conditions),
            _of_archive(one, archives),
            "; ".join(
                f"{PROVENANCE[name]} {text}" for name, text in one.provenance.items() if text
            ),
        ]
        for one in reversed(sessions)
    ]
    return Table(("session", "machine", "numbers", "from", "with"), rows, right=(2,))


# Machines and conditions: series over time, and the numbers behind them.


def machine(one: Machine) -> Page:
    """The page of a machine: its changes, series, levels, sessions and facts."""
    count = phrases.counted(len(one.sessions), "session")
    first, last = _dates(one.sessions)
    changes = Table(("since", "change", "finding"), [_change(row) for row in one.findings])
    levels = [[_of_condition(series), *_level(series)] for series in one.series]
    sessions: list[list[str | Cell]] = [
        [_of_session(s), day(s.started_at), _of_study(s.study), str(s.conditions)]
        for s in reversed(one.sessions)
    ]
    return Page(
        title=f"Machine: {one.label}",
        lead=f"{one.hardware}. {count}, {first} to {last}; "
        f"{phrases.counted(len(one.findings), 'change')} of level.",
        sections=(
            Section("Changes", *(((), changes) if one.findings else (NO_CHANGE, None))),
            Section("History", (_CHARTS,), drawings=_charts(one, "condition")),
            Section("Baselines", (_BASELINES,), _levels("condition", levels)),
            Section(
                "Sessions", (), Table(("session", "date", "study", "numbers"), sessions, right=(3,))
            ),
            Section(f"Facts, {day(one.sessions[-1].started_at)}", (), _facts(one)),
        ),
    )


def condition(one: Condition) -> Page:
    """The page of a condition: its series on all machines, and all numbers with their origin."""
    metrics = sorted({series.metric for series in one.series})
    several = len(metrics) > 1
    rows = [
        [_of_machine(series.machine), *[series.metric] * several, *_level(series)]
        for series in one.series
    ]
    fields = dict(one.fields) | {f"digest of {name}": value for name, value in one.meaning.items()}
    machines = _counted((series.machine for series in one.series), "machine")
    return Page(
        title=f"Condition: {one.label}",
        lead=f"{', '.join(metrics)} on {machines}.",
        sections=(
            Section("Machines", (), _levels("machine", rows, several)),
            Section("History", (_CHARTS,), drawings=_charts(one, "machine")),
            _numbers(one, several),
            Section(
                "What it is",
                (),
                Table(("field", "value"), [[name, str(value)] for name, value in fields.items()]),
            ),
        ),
    )


def _charts(one, other_side):
    """A chart of each series, named by what it differs in: its condition, or its machine."""
    dates = dates_of([point for series in one.series for point in series.points])
    several = len({series.metric for series in one.series}) > 1
    drawn = []
    for series in one.series:
        side = getattr(series, other_side)
        label = f"{side.label}: {series.metric}" if several else side.label
        drawn.append(chart(series, label, side.address, dates))
    return tuple(drawn)


def _levels(of, rows, metric=False):
    headings = (of, *["metric"] * metric, "level (95 %)", "since", "sessions", "newest", "from")
    return Table(headings, rows, right=tuple(range(1 + metric, 5 + metric)))


def _level(series) -> list[str | Cell]:
    """Cells of a series: its level, since when, of how many sessions, its newest number, from."""
    if not series.level_points:
        newest = series.points[-1]
        return ["nothing measured", "", "0", _runs(newest), _of_session(newest.session)]
    newest = series.level_points[-1]
    return [
        value_text(series.level, series.unit),
        day(series.level_points[0].session.started_at),
        str(len(series.level_points)),
        number(newest.mean.value),
        _of_session(newest.session),
    ]


def _facts(one):
    def likeliest_first(name):
        starts = enumerate(causes.CLASSES)
        return next((i for i, start in starts if name.startswith(start)), len(causes.CLASSES)), name

    facts = [(name, one.facts[name]) for name in sorted(one.facts, key=likeliest_first)]
    rows: list[list[str | Cell]] = [
        [name, text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}..."]
        for name, text in facts
    ]
    return Table(("fact", "value"), rows)


def _numbers(one, several):
    points = [(series, point) for series in one.series for point in series.points]
    points.sort(key=lambda pair: pair[1].session.started_at, reverse=True)
    left = len(points) - MAX_NUMBERS
    note = (f"The newest {MAX_NUMBERS}; {left} earlier ones are in the history.",)
    rows: list[list[str | Cell]] = [
        [
            _of_session(point.session),
            day(point.session.started_at),
            Cell(series.machine.label, href=series.machine.address),
            *[series.metric] * several,
            value_text(point.mean, series.unit),
            _runs(point),
        ]
        for series, point in points[:MAX_NUMBERS]
    ]
    headings = ("from", "date", "machine", *["metric"] * several, "value (95 %)", "runs")
    table = Table(headings, rows, right=(3 + several, 4 + several))
    return Section("Numbers", note if left > 0 else (), table)


# A series over time as an inline SVG: means of sessions with intervals, levels, and changes.


def chart(series: Series, label: str, href: str, dates: tuple[datetime, datetime]) -> Markup:
    """A figure of a series; dates are the ends of its axis of time."""
    level = (
        f"{number(series.level.value)} {series.unit}" if series.level_points else "nothing measured"
    )
    drawn = FRAME | _drawn(series, dates) if series.measured else None
    return Markup(  # noqa: S704 - the template escapes
        templates.render(CHART, chart=drawn, label=label, href=href, level=level)
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
