"""Which runs are measured again, so that comparisons flagged `measured apart` share a session.

- Both sides of each flagged comparison are; the next start trains them in one session.
- So is what shares a session with one of them now, in a comparison that the config asks for or as a
  point of a speedup: it would be measured apart afterwards.
- A flagged comparison that the config does not ask for (dlbench/analysis/contrasts.py) has both
  sides measured again, but not what shares a session with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlbench import Error
from dlbench.analysis import base_flags, comparisons, contrasts, scaling_series
from dlbench.analysis.drift import Drift
from dlbench.common import phrases
from dlbench.records import costs
from dlbench.study.config import Study
from dlbench.study.runs import is_sentinel
from dlbench.tables import parquet_files, table_columns

TABLES = Path("results/tables")
SHOWN = 20  # comparisons that are named


@dataclass(frozen=True)
class Link:
    """A condition and its base, as ids of their runs.

    Attributes:
        apart: they were measured apart.
        asked: the config asks for the comparison, or it is a speedup.
    """

    runs: frozenset[str]
    base: frozenset[str]
    apart: bool
    asked: bool


@dataclass(frozen=True)
class Chosen:
    """What is to be measured again.

    Attributes:
        links: those that were measured apart.
        run_ids: of the runs that the next start trains.
        words: lines that say so.
    """

    links: list[Link]
    run_ids: list[str]
    words: list[str]


def choose(study: Study, only: Sequence[str] = (), folder: Path | str = TABLES) -> Chosen:
    """Choose what of a study is to be measured again, by its tables.

    Args:
        only: comparisons whose name has one of these texts; all comparisons, if it is empty.

    Raises:
        Error: a table is missing, or no comparison that was measured apart has such a text.
    """
    rows, sentinels = (_rows(folder, name) for name in ("runs", "sentinels"))
    by_id = {row["run_id"]: row for row in rows}
    links = _links(study, rows, sentinels)
    apart = [link for link in links if link.apart and _is_meant(study, link, only)]
    if only and not apart:
        raise Error(
            f"no comparison that was measured apart has {' or '.join(only)} in its name; "
            "without --only all of them are named"
        )
    again = _closed({run_id for link in apart for run_id in link.runs | link.base}, links)
    run_ids = [run.id for run in study.runs if run.id in again]
    return Chosen(apart, run_ids, list(_words(study, apart, run_ids, by_id)))


def _rows(folder, name):
    path = Path(folder) / f"{name}.parquet"
    return parquet_files.read(path, table_columns.STUDY_TABLES[name]).to_pylist()


def _links(study, rows, sentinels):
    """All comparisons of a study's own runs, each pair of sides once."""
    own = {run.id for run in study.runs}
    margin = study.equivalence_margin
    drift = Drift(rows, sentinels, margin)
    asked = {entry["field"] for entry in study.compare}
    sides = [
        (a, b, drift.compare(a, b), True) for *_, a, b in comparisons.pairs(study, rows) if a and b
    ]
    sides += [
        (point.runs, series.base.runs, point.sides, True)
        for series in scaling_series.all_series(rows, sentinels, margin)
        if series.base
        for point in series.points
        if point.runs is not series.base.runs
    ]
    sides += [
        (a, b, compared, False)
        for pairs in contrasts.by_field(rows, asked, margin, sentinels).values()
        for a, b, _, compared in pairs
    ]
    links_by_ids: dict[tuple[frozenset, frozenset], Link] = {}
    for a, b, compared, is_asked in sides:
        runs, base = _of_study(a), _of_study(b)
        if runs and base and runs | base <= own:
            apart = base_flags.APART in compared.flags
            links_by_ids.setdefault((runs, base), Link(runs, base, apart, is_asked))
    return list(links_by_ids.values())


def _of_study(side):
    """Ids of a side's runs, without sentinels, which are never trained again."""
    return frozenset(row["run_id"] for row in side if not is_sentinel(row["run_id"]))


def _closed(again, links):
    """Runs that are measured again, and those that would be measured apart from them otherwise."""
    links = [link for link in links if link.asked and not link.apart]
    before = None
    while before != len(again):
        before = len(again)
        for link in links:
            if link.runs <= again or link.base <= again:
                again = again | link.runs | link.base
    return again


def _is_meant(study, link, only):
    name = _name(study, link).lower()
    return not only or any(text.lower() in name for text in only)


def _name(study, link):
    return " over ".join(_called(study, min(side)) for side in (link.runs, link.base))


def _called(study, run_id):
    return study.labels[run_id].rpartition(", repeat ")[0]


def _words(study, apart, run_ids, rows):
    if not apart:
        yield f"nothing of the study {study.name!r} was measured apart"
        return
    yield f"measured apart: {phrases.counted(len(apart), 'comparison')}"
    yield from _shown([_name(study, link) for link in apart])
    seconds = [_node_s(rows[run_id]) for run_id in run_ids]
    repeats = {}
    for run_id in run_ids:
        repeats.setdefault(_called(study, run_id), []).append(run_id)
    yield (
        f"to be trained again, in one session: {phrases.counted(len(run_ids), 'finished run')} "
        f"of {phrases.counted(len(repeats), 'condition')}, "
        f"about {costs.node_hours(sum(seconds) / 3600)}"
    )
    bases = frozenset().union(*(link.base for link in apart))
    yield from _shown(
        [
            f"{name} ({phrases.counted(len(ids), 'run')}){', a base' if bases & {*ids} else ''}"
            for name, ids in repeats.items()
        ]
    )


def _shown(names):
    yield from (f"  {name}" for name in names[:SHOWN])
    if len(names) > SHOWN:
        yield f"  and {len(names) - SHOWN} more"


def _node_s(row):
    parts = (row.get(name) or 0.0 for name in ("start_s", "import_s", "duration_s"))
    return row["nodes"] * sum(parts)
