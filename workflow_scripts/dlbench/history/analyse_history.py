"""Tables of a history: its campaigns, the series of conditions, and the findings in them.

- Series are of one site, machine, condition and metric. All of a machine are tested together; what
  conditions share is looked for in each metric by itself, since metrics change by other shares and
  in other directions.
- Conditions of equal fields whose data or own files differ are two, and the report says so.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dlbench.common import phrases, terminal
from dlbench.history import causes, change_points, dataset, sources
from dlbench.history.change_points import MIN_SESSIONS, Change, Found
from dlbench.history.history_rows import HistoryRows, day, to_time
from dlbench.tables import parquet_files, table_columns
from dlbench.tables.cells import Row

COLUMNS = tuple(name for name in table_columns.SESSIONS.names if name not in ("fields", "logs"))
NO_CAUSE = "nothing that is recorded changed then"


@dataclass
class History:
    """What is known of a history.

    Attributes:
        findings: rows of the table of findings; `changes`: of changes.
        news: texts on what changed in the newest sessions and has no finding so far.
        remarks: texts on what is left out.
        rows: the rows of `series`, in their order.
    """

    campaigns: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    changes: list[Row] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    series: pa.Table | None = None
    rows: HistoryRows | None = None

    def lines(self) -> list[str]:
        """What the analysis prints."""
        current = sum(row["standing"] == dataset.CURRENT for row in self.campaigns)
        found = phrases.counted(len(self.findings), "finding")
        head = f"{phrases.counted(current, 'session')} of the history count; {found}"
        numbered = [f"{row['finding']}. {row['text']}" for row in self.findings]
        lines = (head, *numbered, *self.news, *self.remarks)
        return list(map(terminal.plain, lines))


def analyse(
    folder: Path, names_of_machines: Mapping[str, Sequence[str]], more: Sequence[str] = ()
) -> History:
    """Read a history and look for changes in it.

    `names_of_machines`: `machines` of a config; `more`: columns of SESSIONS with texts that `rows`
    has, too. Raises Error: `machines` gives one key to two machines.
    """
    names = sources.machine_names(names_of_machines)
    standings = dataset.standings(folder)
    table, damaged = dataset.read(folder, standings, list(dict.fromkeys((*COLUMNS, *more))))
    by_file = {one.file: one for one in (*standings, *damaged)}
    history = History()
    for one in by_file.values():
        if one.standing in (dataset.CONTRADICTORY, dataset.DAMAGED):
            history.remarks.append(f"{folder / one.file}: {one.standing}: {one.reason}")
    columns = history.rows = HistoryRows(table, names, more)
    history.series = _series_table(table, columns)
    history.campaigns = _campaigns(by_file.values(), columns)
    history.remarks += columns.remarks
    add_findings(history, columns, columns.places())
    return history


def add_findings(history: History, columns: HistoryRows, places: Iterable[tuple[str, str]]) -> None:
    """Look for changes in the rows of a history at some places: its `findings` and `changes`."""
    for site, machine in places:
        _add_findings(history, columns, site, machine)
    history.findings.sort(key=lambda row: (row["changed_before"], row["site"]), reverse=True)
    numbers = {}
    for number, row in enumerate(history.findings, start=1):
        numbers[row["finding"]] = row["finding"] = number
    for row in history.changes:
        row["finding"] = numbers[row["finding"]]
    history.changes.sort(key=lambda row: (row["finding"], row["condition"]))


def write(history: History, output: Path) -> None:
    """Write the tables of a history as Parquet, and all but the series as CSV, too."""
    for name, schema in table_columns.OF_HISTORY.items():
        content = getattr(history, name)
        if name != "series":
            content = parquet_files.table(content, schema)
        content = content.cast(parquet_files.with_metadata(schema))
        with (
            parquet_files.atomic_write(output / f"{name}.parquet") as part,
            parquet_files.writer(part, content.schema) as parquet,
        ):
            parquet.write_table(content)
        if name != "series":  # of many campaigns it has millions of rows
            parquet_files.write_csv(output / f"{name}.csv", content)


def _add_findings(history, columns, site, machine):
    """Add the findings of one machine at one site."""
    here = columns.where("site", site) & columns.where("machine_id", machine)
    rows = np.flatnonzero(here & (columns.n > 0))
    if not len(rows):
        return
    sessions, first, place = _sessions(columns, rows)
    dates = columns.dates[first]
    metrics = columns.codes["metric"][rows]
    groups = [np.flatnonzero(metrics == metric) for metric in np.unique(metrics)]
    counts = [len(np.unique(columns.condition[rows[group]])) for group in groups]
    suite = sum(map(change_points.tests_of, counts))
    for group in groups:
        _add_of_metric(history, columns, rows[group], place[group], (sessions, dates), suite)


def _add_of_metric(history, columns, rows, place, in_time, suite):
    """Add the findings in rows of one machine and metric.

    Args:
        place: of each row, its session in those of `in_time`, (names, dates).
        suite: how many series of the machine are tested.
    """
    sessions, dates = in_time
    conditions, condition = np.unique(columns.condition[rows], return_inverse=True)
    shape = len(conditions), len(sessions)
    means, facts = np.full(shape, np.nan), np.full(shape, -1)
    means[condition, place] = columns.means[rows]
    facts[condition, place] = columns.codes["facts"][rows]
    some_row = dict(zip(condition.tolist(), rows.tolist(), strict=True))
    texts = [_Facts(columns.texts["facts"], line) for line in facts]
    found = change_points.find(means, suite)
    news = _news(texts, [one.change.at for one in found], sessions, dates)
    history.news += [line for line in news if line not in history.news]  # of another metric
    labels = {at: columns.labels(row) for at, row in some_row.items()}
    for one in found:
        number = -1 - len(history.findings)  # until they are sorted
        others = [other.change.at for other in found if other is not one]
        why = _causes(texts, one, others)
        row = {
            "finding": number,
            **{name: columns.text(name, rows[0]) for name in ("site", "machine_id", "machine")},
            **_in_time(one.change, sessions, dates),
            **_in_size(one, labels),
            "conditions_in_all": len(conditions),
            "causes": json.dumps([cause.__dict__ for cause in why]),
        }
        row["text"] = _sentence(row, one, labels, why)
        history.findings.append(row)
        for index, change in one.members.items():
            history.changes.append({"finding": number, **labels[index], **_ratio(change)})


class _Facts:
    """The facts of a condition in the sessions in which it was measured."""

    def __init__(self, texts, codes):
        self.sessions = np.flatnonzero(codes >= 0)
        self.texts = [texts[int(code)] for code in codes[self.sessions]]

    def ranked(self, change, others):
        def place(session):
            return int(np.searchsorted(self.sessions, session))

        # The session before a gap is compared with that after it.
        last = min(place(change.last), len(self.texts) - 1)
        return causes.ranked(
            self.texts, place(change.at), place(change.first), last, map(place, others)
        )


def _news(texts, explained, sessions, dates):
    """What changed in the newest sessions of conditions, where that explains no finding so far."""
    found: dict[tuple[int, str], int] = {}  # {(session, what): sessions since then}
    for one in texts:
        for place in causes.events(one.texts)[-MIN_SESSIONS:]:
            session, since = int(one.sessions[place]), len(one.texts) - place
            if since < MIN_SESSIONS and session not in explained:
                named = causes.ranked(one.texts, place, place, place)
                found[session, "; ".join(cause.text for cause in named)] = since
    for (session, what), since in sorted(found.items()):
        yield (
            f"{day(dates[session])}, {sessions[session]}: changed: {what}. No change of level is "
            f"found so far; one can be confirmed from {MIN_SESSIONS} sessions on ({since} now)"
        )


def _causes(texts, found, others):
    """The causes of a finding: those that most of its conditions have, likeliest first."""
    ranks: dict[Any, list[int]] = {}
    for index in found.members:
        for rank, cause in enumerate(texts[index].ranked(found.change, others)):
            ranks.setdefault(cause, []).append(rank)
    most = max(map(len, ranks.values()), default=0)
    likely = [cause for cause, places in ranks.items() if len(places) >= most / 2]
    return sorted(likely, key=lambda cause: (np.mean(ranks[cause]), cause.name))[
        : causes.MAX_CAUSES
    ]


def _sessions(columns, rows):
    """(sessions in the order of their starts, a row of each, the place of each row in them)."""
    codes, first, inverse = np.unique(
        columns.codes["session"][rows], return_index=True, return_inverse=True
    )
    order = np.lexsort((codes, columns.dates[rows][first]))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    names = [columns.texts["session"][code] for code in codes[order]]
    return names, rows[first[order]], place[inverse]


def _in_time(change: Change, sessions, dates):
    return {
        "session": sessions[change.at],
        "previous_session": sessions[change.at - 1],
        "changed_after": to_time(dates[change.at - 1]),
        "changed_before": to_time(dates[change.at]),
        "earliest": to_time(dates[change.first - 1]),
        "latest": to_time(dates[change.last]),
        "sessions_before": change.before,
        "sessions_after": change.after,
        "gradual": change.gradual,
    }


def _in_size(found: Found, labels):
    better = {labels[index]["better"] for index in found.members}
    gains = {"higher": found.change.size > 0, "lower": found.change.size <= 0}
    gain = gains.get(*better) if len(better) == 1 else None
    return {
        "kind": "shared" if found.shared else "own",
        "direction": {True: "gain", False: "loss", None: "change"}[gain],
        **_ratio(found.change),
        "p": found.change.p,
        "conditions": len(found.members),
        "spared": ", ".join(labels[index]["condition"] for index in found.spared) or None,
    }


def _ratio(change):
    return {
        "ratio": math.exp(change.size),
        "ratio_ci95_low": math.exp(change.low),
        "ratio_ci95_high": math.exp(change.high),
    }


def _sentence(row, found: Found, labels, why):
    percent = [100 * (row[name] - 1) for name in ("ratio", "ratio_ci95_low", "ratio_ci95_high")]
    size = f"{percent[0]:+.1f} % ({percent[1]:+.1f} to {percent[2]:+.1f})"
    members = sorted(labels[index]["condition"] for index in found.members)
    metrics = sorted({labels[index]["metric"] for index in found.members})
    what = members[0] if len(members) == 1 else f"{len(members)} of {len(labels)} conditions"
    dates = f"between {day(row['changed_after'])} and {day(row['changed_before'])}"
    if (row["earliest"], row["latest"]) != (row["changed_after"], row["changed_before"]):
        dates += f" (95 %: {day(row['earliest'])} to {day(row['latest'])})"
    parts = [f"{row['direction']} of {size} in {what}, {', '.join(metrics)}, {dates}"]
    parts.append(f"{row['site']}, {row['machine_id']} ({row['machine']})")
    named = "; ".join(cause.text for cause in why)
    parts.append(f"changed then, likeliest first: {named}" if why else NO_CAUSE)
    if row["spared"]:
        parts.append(f"not in {row['spared']}")
    if row["gradual"]:
        parts.append("more like a slope than a step")
    return ". ".join(parts)


def _campaigns(standings: Iterable[dataset.Standing], columns):
    """Rows of the table of campaigns: one a file of the history."""
    files, first = np.unique(columns.codes["file"], return_index=True)
    row_of = {columns.texts["file"][code]: row for code, row in zip(files, first, strict=True)}
    counts = np.bincount(columns.codes["file"])
    rows = []
    for one in sorted(standings, key=lambda one: one.file):
        row = {name: getattr(one, name) for name in ("site", "session", "standing", "file")}
        row["reason"] = one.reason or None
        if (at := row_of.get(one.file)) is not None:
            names = ("study", "machine", "machine_id", "archive_sha256")
            row |= {name: columns.text(name, at) for name in names}
            row["started_at"] = to_time(columns.dates[at])
            row["conditions"] = int(counts[columns.codes["file"][at]])
        rows.append(row)
    return rows


def _series_table(table, columns):
    names, codes = (of["machine_id"] for of in (columns.texts, columns.codes))
    machines = pa.array(names, pa.string()).take(pa.array(codes))
    with_machines = table.append_column("machine_id", machines)
    arrays = [with_machines[one.name].cast(one.type) for one in table_columns.SERIES]
    return pa.table(arrays, schema=table_columns.SERIES)
