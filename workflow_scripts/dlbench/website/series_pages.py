"""The pages of a machine and of a condition: series over time, and the numbers behind them."""

from markupsafe import Markup

from dlbench.common import phrases
from dlbench.history import causes
from dlbench.history.history_rows import day
from dlbench.pages.page import Cell, Page, Section, Table
from dlbench.study.wording import number
from dlbench.website import charts, comparison, page_cells
from dlbench.website.site_data import Condition, Machine

MAX_NUMBERS = 2000  # of a page: a larger one is slow to open
MAX_LETTERS = 300  # of a fact
_CHARTS = (
    "Dots: means of sessions, with their 95 % intervals by the scatter of runs. Lines: levels. "
    "Dashed: changes."
)
_BASELINES = (
    "The level is the mean of the sessions since the last confirmed change, with its 95 % interval "
    "by the scatter between sessions: what the gate judges a new session by."
)


def machine(one: Machine) -> Page:
    """The page of a machine: its changes, series, levels, sessions and facts."""
    count = phrases.counted(len(one.sessions), "session")
    first, last = page_cells.dates(one.sessions)
    changes = phrases.counted(len(one.findings), "change")
    return Page(
        title=f"Machine: {one.label}",
        lead=f"{one.hardware}. {count}, {first} to {last}; {changes} of level.",
        sections=(
            Section("Changes", *_changes(one)),
            Section("History", (_CHARTS,), drawings=_charts(one, "condition")),
            Section("Baselines", (_BASELINES,), _levels(one), (_compare(one),)),
            Section("Sessions", (), _sessions(one)),
            Section(f"Facts, {day(one.sessions[-1].started_at)}", (), _facts(one)),
        ),
    )


def condition(one: Condition) -> Page:
    """The page of a condition: its series on all machines, and all numbers with their origin."""
    machines = {series.machine for series in one.series}
    metrics = sorted({series.metric for series in one.series})
    return Page(
        title=f"Condition: {one.label}",
        lead=f"{', '.join(metrics)} on {phrases.counted(len(machines), 'machine')}.",
        sections=(
            Section("Machines", (), _machines(one)),
            Section("History", (_CHARTS,), drawings=_charts(one, "machine")),
            _numbers(one),
            Section("What it is", (), _fields(one)),
        ),
    )


def _changes(one):
    if not one.findings:
        return ("No change of level was found.",), None
    rows = [[day(f["changed_before"]), page_cells.finding(f), f["text"]] for f in one.findings]
    return (), Table(("since", "change", "finding"), rows)


def _charts(one, other_side):
    """A chart of each series, named by what it differs in.

    Args:
        other_side: condition on a machine's page, machine on a condition's.
    """
    points = [point for series in one.series for point in series.points]
    dates, several = charts.dates_of(points), _several_metrics(one.series)
    drawn = []
    for series in one.series:
        side = getattr(series, other_side)
        label = f"{side.label}: {series.metric}" if several else side.label
        drawn.append(charts.chart(series, label, side.address, dates))
    return tuple(drawn)


def _several_metrics(series):
    return len({one.metric for one in series}) > 1


def _compare(one):
    href = f"{comparison.ADDRESS}#{one.address}"
    return Markup('<a href="{}">Compare with other machines</a>').format(href)


def _levels(one):
    rows = [[page_cells.condition(series), *_level(series)] for series in one.series]
    headings = ("condition", "level (95 %)", "since", "sessions", "newest", "from")
    return Table(headings, rows, right=(1, 2, 3, 4))


def _machines(one):
    several = _several_metrics(one.series)
    rows = [
        [
            page_cells.machine(series.machine),
            *([series.metric] if several else []),
            *_level(series),
        ]
        for series in one.series
    ]
    metric = ("metric",) if several else ()
    headings = ("machine", *metric, "level (95 %)", "since", "sessions", "newest", "from")
    right = (2, 3, 4, 5) if several else (1, 2, 3, 4)
    return Table(headings, rows, right=right)


def _level(series) -> list[str | Cell]:
    """Cells of a series: its level, since when, of how many sessions, its newest number, from."""
    if not series.level_points:
        newest = series.points[-1]
        return ["nothing measured", "", "0", page_cells.runs(newest), _from(newest)]
    newest = series.level_points[-1]
    return [
        page_cells.value(series.level, series.unit),
        day(series.level_points[0].session.started_at),
        str(len(series.level_points)),
        number(newest.mean.value),
        _from(newest),
    ]


def _from(point):
    return page_cells.session(point.session)


def _sessions(one):
    rows = [
        [
            page_cells.session(session),
            day(session.started_at),
            page_cells.study(session.study),
            str(session.conditions),
        ]
        for session in reversed(one.sessions)
    ]
    return Table(("session", "date", "study", "numbers"), rows, right=(3,))


def _facts(one):
    def likeliest_first(name):
        starts = enumerate(causes.CLASSES)
        return next((i for i, start in starts if name.startswith(start)), len(causes.CLASSES)), name

    rows: list[list[str | Cell]] = []
    for name in sorted(one.facts, key=likeliest_first):
        text = one.facts[name]
        rows.append([name, text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}..."])
    return Table(("fact", "value"), rows)


def _numbers(one):
    points = [(series, point) for series in one.series for point in series.points]
    points.sort(key=lambda pair: pair[1].session.started_at, reverse=True)
    left = len(points) - MAX_NUMBERS
    note = (f"The newest {MAX_NUMBERS}; {left} earlier ones are in the history.",)
    several = _several_metrics(one.series)
    rows: list[list[str | Cell]] = [
        [
            page_cells.session(point.session),
            day(point.session.started_at),
            Cell(series.machine.label, href=series.machine.address),
            *([series.metric] if several else []),
            page_cells.value(point.mean, series.unit),
            page_cells.runs(point),
        ]
        for series, point in points[:MAX_NUMBERS]
    ]
    metric = ("metric",) if several else ()
    headings = ("from", "date", "machine", *metric, "value (95 %)", "runs")
    right = (4, 5) if several else (3, 4)
    return Section("Numbers", note if left > 0 else (), Table(headings, rows, right=right))


def _fields(one):
    rows: list[list[str | Cell]] = [[name, str(value)] for name, value in one.fields.items()]
    rows += [[f"digest of {name}", str(value)] for name, value in one.meaning.items()]
    return Table(("field", "value"), rows)
