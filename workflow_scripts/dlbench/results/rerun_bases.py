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
from dlbench.analysis import base_flags, comparisons, contrasts
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
    rows, sentinels, speedups = (_rows(folder, name) for name in ("runs", "sentinels", "speedups"))
    by_id = {row["run_id"]: row for row in rows}
    links = _links(study, rows, sentinels, speedups)
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


def _links(study, rows, sentinels, speedups):
    """All comparisons of a study's own runs, each pair of sides once."""
    margin = study.equivalence_margin
    drift = Drift(rows, sentinels, margin)
    asked = {entry["field"] for entry in study.compare}
    links = [
        _link(a, b, drift.compare(a, b), True)
        for *_, a, b in comparisons.pairs(study, rows)
        if a and b
    ]
    links += [
        Link(
            _of_study(row["run_ids"].split(" ")),
            _of_study(row["base_run_ids"].split(" ")),
            base_flags.APART in row["base_mismatch"].split(", "),
            asked=True,
        )
        for row in speedups
        if row["base_run_ids"] not in (None, row["run_ids"])
    ]
    links += [
        _link(a, b, compared, False)
        for pairs in contrasts.by_field(rows, asked, margin, sentinels).values()
        for a, b, _, compared in pairs
    ]
    own = {run.id for run in study.runs}
    links_by_ids: dict[tuple[frozenset, frozenset], Link] = {}
    for link in links:
        if link.runs and link.base and link.runs | link.base <= own:
            links_by_ids.setdefault((link.runs, link.base), link)
    return list(links_by_ids.values())


def _link(a, b, compared, asked):
    """The Link of two sides that are rows of the table of runs."""
    runs, base = (_of_study(row["run_id"] for row in side) for side in (a, b))
    return Link(runs, base, base_flags.APART in compared.flags, asked)


def _of_study(run_ids):
    """Ids of a side's runs, without sentinels, which are never trained again."""
    return frozenset(run_id for run_id in run_ids if not is_sentinel(run_id))


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
