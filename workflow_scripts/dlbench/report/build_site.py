"""Write the website of a history into a folder: pages that need no server and load nothing.

- Equal histories give equal bytes: there is no date of making in them.
- A folder that was written before is brought up to date: `files.json` names what is ours in it.
- A machine is one of a site, as a series is (history/analyse_history.py); a condition is one of a
  name and a meaning, on all machines.
- The level of a series is the mean of its sessions since its last change, with Student's t over
  their means, on logarithms. One session alone has its own interval.
"""

import bisect
import functools
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from dlbench import Error
from dlbench.analysis import estimates
from dlbench.analysis.estimates import Estimate
from dlbench.common import phrases
from dlbench.common.files import atomic_write, json_digest, read_json, write_json
from dlbench.history import analyse_history, causes, dataset
from dlbench.history.analyse_history import History
from dlbench.history.history_rows import day, to_time
from dlbench.pages import formats, templates
from dlbench.pages.formats import Cell, Page, Section, Table
from dlbench.study.wording import number
from dlbench.tables.cells import Row

READABLE, DIGITS = 40, 10  # of names of pages
# Texts of a session that say where its numbers come from, by their names on pages.
PROVENANCE = {
    "framework": "framework",
    "framework_version": "version",
    "driver": "GPU driver",
    "firmware": "firmware",
    "kernel": "kernel",
    "image_digest": "image",
    "git_commit": "dlbench commit",
}
NUMBERS = ("mean", "mean_ci95_low", "mean_ci95_high", "failed", "disturbed", "missed")
TEXTS = ("source", "fields", *PROVENANCE)
NO_STUDY = "without a name"


def file_name(kind: str, label: str, *key: object) -> str:
    """The name of a page: readable, safe, and by a digest of its key of one thing alone.

    >>> file_name("machine", "2 x AMD/../EPYC", "here", "35f0")
    'machine-2-x-amd-epyc-1c1809a106.html'

    `label`: any text; letters of one case only are taken, as some file systems know no other.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", label.lower())[:READABLE].strip("-")
    digest = json_digest([kind, *key])[:DIGITS]
    return "-".join(filter(None, (kind, readable, digest))) + ".html"


def anchor(*key: object) -> str:
    """The name of a place in a page."""
    return f"s{json_digest(list(key))[:DIGITS]}"


@dataclass(frozen=True, eq=False)
class Session:
    """A session of a history that counts, with the origin of its numbers.

    Attributes:
        conditions: number of its conditions and metrics.
        source: name of its archive or results folder; `archive_sha256`: "" of a results folder.
        provenance: {a name of PROVENANCE: texts, with a comma between}.
    """

    machine: "Machine"
    site: str
    name: str
    study: str
    started_at: datetime
    conditions: int
    file: str
    source: str
    archive_sha256: str
    provenance: Mapping[str, str]

    @property
    def anchor(self) -> str:
        return anchor(self.site, self.name)

    @property
    def address(self) -> str:
        """The place that says all about it: in the page of its machine."""
        return f"{self.machine.address}#{self.anchor}"


@dataclass(frozen=True, eq=False)
class Point:
    """The number of a condition in a session.

    Attributes:
        mean: None if no run counts.
        missed: runs that missed their learning gate; None: no gate is known.
    """

    session: Session
    mean: Estimate | None
    failed: int
    disturbed: int
    missed: int | None


@dataclass(eq=False)
class Series:
    """The numbers of a condition on a machine, by date.

    Attributes:
        findings: changes of its level with their findings, by date: rows of both tables.
    """

    machine: "Machine"
    condition: "Condition"
    metric: str
    unit: str
    better: str
    points: list[Point] = field(default_factory=list)
    findings: list[tuple[Row, Row]] = field(default_factory=list)

    @property
    def measured(self) -> list[Point]:
        return [point for point in self.points if point.mean is not None]

    @functools.cached_property
    def level_points(self) -> list[Point]:
        """The measured points since the last change."""
        first = max((finding["changed_before"] for finding, _ in self.findings), default=None)
        return [p for p in self.measured if first is None or p.session.started_at >= first]

    @functools.cached_property
    def level(self) -> Estimate:
        """The mean of `level_points`, of which there is at least one."""
        means = [point.mean for point in self.level_points if point.mean is not None]
        return means[0] if len(means) == 1 else estimates.mean([mean.value for mean in means])


@dataclass(eq=False)
class Machine:
    """A machine of a site.

    Attributes:
        id: its key, or its name in the config; `hardware`: models and numbers of processors.
        facts: of its newest session, by their names in words.
    """

    site: str
    id: str
    hardware: str
    sessions: list[Session] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.id} at {self.site}"

    @property
    def address(self) -> str:
        return file_name("machine", self.label, self.site, self.id)


@dataclass(eq=False)
class Condition:
    """A condition: its fields that are not their defaults, and its meaning."""

    id: str
    label: str
    fields: Mapping[str, Any]
    meaning: Mapping[str, Any]


@dataclass
class Site:
    """All that the website shows.

    Attributes:
        sessions: those that count, by date.
        findings: rows of the table of findings, the latest first.
        left_out: rows of the table of campaigns of files that do not count.
        notes: texts on what is kept apart, for whoever keeps the history.
    """

    machines: list[Machine]
    conditions: list[Condition]
    sessions: list[Session]
    findings: list[Row]
    left_out: list[Row]
    notes: list[str]

    def machine(self, row: Row) -> Machine:
        """The machine of a row of the table of findings or campaigns."""
        key = row["site"], row["machine_id"]
        return next(one for one in self.machines if (one.site, one.id) == key)


def read(folder: Path, names_of_machines: Mapping[str, Sequence[str]]) -> Site:
    """Read and analyse a history; `names_of_machines` is `machines` of a config.

    Raises Error: `machines` gives one key to two machines.
    """
    history = analyse_history.analyse(folder, names_of_machines, TEXTS)
    reading = _Reading(history)
    for rows in _split(
        reading.rows.codes["site"], reading.rows.codes["machine_id"], reading.rows.condition
    ):
        reading.add_series(rows)
    reading.add_findings()
    return Site(
        machines=sorted(reading.machines.values(), key=lambda one: (one.site, one.id)),
        conditions=sorted(reading.conditions.values(), key=_condition_order),
        sessions=sorted(reading.sessions.values(), key=_session_order),
        findings=history.findings,
        left_out=[row for row in history.campaigns if row["standing"] != dataset.CURRENT],
        notes=history.remarks,
    )


class _Reading:
    """Makes objects of the rows of a history."""

    def __init__(self, history: History):
        assert history.rows is not None and history.series is not None  # of an analysed one
        self._history, self.rows, series = history, history.rows, history.series
        self.machines: dict[tuple[str, str], Machine] = {}
        self.conditions: dict[tuple[int, int], Condition] = {}
        files = self.rows.codes["file"]
        self.sessions = {int(files[rows[0]]): self._session(rows) for rows in _split(files)}
        self._numbers = {name: series[name].to_numpy().astype(float) for name in NUMBERS}

    def add_series(self, rows: np.ndarray) -> None:
        """Add the series of some rows, which are one of a site, machine, condition and metric."""
        texts = [self._text(name, rows[-1]) for name in ("metric", "unit", "better")]
        series = Series(self._machine(rows[0]), self._condition(rows[0]), *texts)
        series.points = sorted(map(self._point, rows), key=lambda p: _session_order(p.session))
        series.machine.series.append(series)
        known = {one.name for one in series.machine.sessions}
        new = (point.session for point in series.points if point.session.name not in known)
        series.machine.sessions.extend(new)

    def add_findings(self) -> None:
        """Give machines and series their findings; then levels are known, and the order."""
        changes: dict[int, list[Row]] = {}
        for row in self._history.changes:
            changes.setdefault(row["finding"], []).append(row)
        for finding in self._history.findings:
            machine = self.machines[finding["site"], finding["machine_id"]]
            machine.findings.append(finding)
            for change in changes.get(finding["finding"], ()):
                key = change["condition_id"], change["metric"]
                for series in machine.series:
                    if (series.condition.id, series.metric) == key and _spans(series, finding):
                        series.findings.append((finding, change))
        for machine in self.machines.values():
            machine.sessions.sort(key=_session_order)
            machine.series.sort(key=lambda s: (*_condition_order(s.condition), s.metric))
            for series in machine.series:
                series.findings.sort(key=lambda pair: pair[0]["changed_before"])
        for rows in _split(self.rows.codes["machine_id"], self.rows.codes["site"]):
            self._machine(rows[0]).facts = self._facts(rows)

    def _text(self, name, row):
        return self.rows.text(name, row) or ""

    def _machine(self, row):
        key = (self.rows.text("site", row), self.rows.text("machine_id", row))
        return self.machines.setdefault(key, Machine(*key, self._text("machine", row)))

    def _condition(self, row):
        key = int(self.rows.codes["condition_id"][row]), int(self.rows.meaning[row])
        if key not in self.conditions:
            meaning = self.rows.texts["meaning"][key[1]] if key[1] >= 0 else "{}"
            self.conditions[key] = Condition(
                self._text("condition_id", row),
                self._text("condition", row),
                json.loads(self._text("fields", row) or "{}"),
                json.loads(meaning),
            )
        return self.conditions[key]

    def _session(self, indices):
        rows, first = self.rows, indices[0]
        provenance = {}
        for name in PROVENANCE:
            codes = set(rows.codes[name][indices].tolist()) - {-1}
            provenance[name] = ", ".join(sorted(rows.texts[name][code] for code in codes))
        return Session(
            machine=self._machine(first),
            site=rows.text("site", first),
            name=self._text("session", first),
            study=self._text("study", first) or NO_STUDY,
            started_at=to_time(rows.dates[first]),
            conditions=len(indices),
            file=self._text("file", first),
            source=self._text("source", first),
            archive_sha256=self._text("archive_sha256", first),
            provenance=provenance,
        )

    def _point(self, row):
        value, low, high, *counts = (float(self._numbers[name][row]) for name in NUMBERS)
        failed, disturbed, missed = (None if math.isnan(n) else int(n) for n in counts)
        runs = int(self.rows.n[row])
        mean = Estimate(value, low, high, runs) if runs and math.isfinite(value) else None
        session = self.sessions[int(self.rows.codes["file"][row])]
        return Point(session, mean, failed or 0, disturbed or 0, missed)

    def _facts(self, rows):
        """The facts of the newest session of some rows; of several conditions, those of all."""
        newest = rows[self.rows.dates[rows] == self.rows.dates[rows].max()]
        values: dict[str, set[str]] = {}
        for text in sorted({self._text("facts", row) or "{}" for row in newest}):
            for name, value in causes.parsed(text).items():
                values.setdefault(name, set()).add(value)
        return {name: " and ".join(sorted(texts)) for name, texts in sorted(values.items())}


def _split(*codes: np.ndarray) -> list[np.ndarray]:
    """The indices of equal codes."""
    if not len(codes[0]):
        return []
    inverse = np.unique(np.stack(codes), axis=1, return_inverse=True)[1].ravel()
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)


def _spans(series, finding):
    """Whether a series was measured before and after a change: of several meanings one was."""
    after = {p.session.started_at >= finding["changed_before"] for p in series.measured}
    return len(after) == 2


def _session_order(session):
    return session.started_at, session.site, session.name


def _condition_order(condition):
    parts = re.split(r"(\d+)", condition.label)  # batch 8 before batch 16
    natural = [int(part) if at % 2 else part for at, part in enumerate(parts)]
    return natural, condition.id, json.dumps(condition.meaning, sort_keys=True)


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
    site = read(history, names_of_machines)
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
    for one in site.machines:
        yield one.address, machine(one, archives)


TITLE = "Benchmark results"
MAX_CHANGES = 20  # of the latest ones on the first page
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
    meaning = ", ".join(f"{name} {str(t)[:12]}" for name, t in series.condition.meaning.items())
    return Cell(series.condition.label, note=", ".join(filter(None, (series.metric, meaning))))


def _of_session(one: Session) -> Cell:
    """The origin of a number: its session, with the digest of its archive."""
    origin = f"archive {one.archive_sha256[:ARCHIVE_DIGITS]}" if one.archive_sha256 else one.source
    return Cell(one.name, note=origin, href=one.address)


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
    return [day(sessions[0].started_at), day(sessions[-1].started_at)]


# The first page.


def index(site: Site) -> Page:
    """The page with all machines, and the latest changes."""
    return Page(
        title=TITLE,
        lead=_lead(site),
        sections=(
            Section("Latest changes", *_latest_changes(site)),
            Section("Machines", (), _machines(site)),
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


def _left_out(site):
    if site.left_out:
        rows = [
            [row["session"], row["site"], Cell(row["standing"], "open"), row["reason"] or ""]
            for row in site.left_out
        ]
        heading = "Sessions that do not count"
        yield Section(heading, (), Table(("session", "site", "standing", "reason"), rows))


def _sessions(machine, archives):
    rows = [
        [
            Cell(one.name, anchor=one.anchor, note=day(one.started_at)),
            one.study,
            str(one.conditions),
            _of_archive(one, archives),
            "; ".join(
                f"{PROVENANCE[name]} {text}" for name, text in one.provenance.items() if text
            ),
        ]
        for one in reversed(machine.sessions)
    ]
    return Table(("session", "study", "numbers", "from", "with"), rows, right=(2,))


# Machines: series over time, and their levels.


def machine(one: Machine, archives: str | None) -> Page:
    """The page of a machine: its changes, series, levels, sessions and facts.

    `archives`: address of the folder that has the archives; None: it is not known.
    """
    count = phrases.counted(len(one.sessions), "session")
    first, last = _dates(one.sessions)
    changes = Table(("since", "change", "finding"), [_change(row) for row in one.findings])
    levels: list[list[str | Cell]] = [
        [_of_condition(series), *_level(series)] for series in one.series
    ]
    headings = ("condition", "level (95 %)", "since", "sessions", "newest", "from")
    return Page(
        title=f"Machine: {one.label}",
        lead=f"{one.hardware}. {count}, {first} to {last}; "
        f"{phrases.counted(len(one.findings), 'change')} of level.",
        sections=(
            Section("Changes", *(((), changes) if one.findings else (NO_CHANGE, None))),
            Section("History", (_CHARTS,), drawings=_charts(one)),
            Section("Baselines", (_BASELINES,), Table(headings, levels, right=(1, 2, 3, 4))),
            Section("Sessions", (_ARCHIVES,), _sessions(one, archives)),
            Section(f"Facts, {day(one.sessions[-1].started_at)}", (), _facts(one)),
        ),
    )


def _charts(one):
    """A chart of each series, named by its condition."""
    dates = dates_of([point for series in one.series for point in series.points])
    several = len({series.metric for series in one.series}) > 1
    labels = (
        f"{s.condition.label}: {s.metric}" if several else s.condition.label for s in one.series
    )
    return tuple(chart(*both, dates) for both in zip(one.series, labels, strict=True))


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


# A series over time as an inline SVG: means of sessions with intervals, levels, and changes.


def chart(series: Series, label: str, dates: tuple[datetime, datetime]) -> Markup:
    """A figure of a series; dates are the ends of its axis of time."""
    level = (
        f"{number(series.level.value)} {series.unit}" if series.level_points else "nothing measured"
    )
    drawn = FRAME | _drawn(series, dates) if series.measured else None
    return Markup(  # noqa: S704 - the template escapes
        templates.render(CHART, chart=drawn, label=label, level=level)
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
