"""What the website shows of a history: machines, conditions, sessions, and the series of numbers.

- A machine is one of a site, as a series is (history/analyse_history.py); a condition is one of a
  name and a meaning, on all machines.
- The level of a series is the mean of its sessions since its last change, with Student's t over
  their means, on logarithms. One session alone has its own interval.
- All is in an order that the data gives, so that equal histories give equal pages.
"""

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from dlbench.analysis import estimates
from dlbench.analysis.estimates import Estimate
from dlbench.common.files import json_digest
from dlbench.history import analyse_history, causes, dataset
from dlbench.history.analyse_history import History
from dlbench.history.history_rows import to_time
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


def study_page(study: str) -> str:
    """The name of the page of a study."""
    return file_name("study", study, study)


@dataclass(frozen=True, eq=False)
class Session:
    """A session of a history that counts, with the origin of its numbers.

    Attributes:
        conditions: number of its conditions and metrics.
        source: name of its archive or results folder; `archive_sha256`: "" of a results folder.
        provenance: {a name of PROVENANCE: texts, with a comma between}.
    """

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
        """The place that says all about it: in the page of its study."""
        return f"{study_page(self.study)}#{self.anchor}"


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
    """A condition, on all machines: its fields that are not their defaults, and its meaning."""

    id: str
    label: str
    fields: Mapping[str, Any]
    meaning: Mapping[str, Any]
    series: list[Series] = field(default_factory=list)

    @property
    def address(self) -> str:
        return file_name("condition", self.label, self.id, dict(self.meaning))


@dataclass
class Site:
    """All that the website shows.

    Attributes:
        sessions: those that count, by date.
        findings: rows of the table of findings, the latest first.
        left_out: rows of the table of campaigns of files that do not count.
        notes: texts on what is kept apart, and questions, for whoever keeps the history.
    """

    machines: list[Machine]
    conditions: list[Condition]
    sessions: list[Session]
    findings: list[Row]
    left_out: list[Row]
    notes: list[str]

    @property
    def studies(self) -> dict[str, list[Session]]:
        """{name of a study: its sessions by date}, by name."""
        found: dict[str, list[Session]] = {}
        for session in self.sessions:
            found.setdefault(session.study, []).append(session)
        return dict(sorted(found.items()))

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
        notes=[*history.remarks, *history.questions],
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
        series.condition.series.append(series)
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
        for condition in self.conditions.values():
            condition.series.sort(key=lambda s: (s.metric, s.machine.site, s.machine.id))
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
