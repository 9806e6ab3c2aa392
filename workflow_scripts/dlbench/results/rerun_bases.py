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
from dlbench.common import phrases
from dlbench.records import costs
from dlbench.study.config import Study
from dlbench.study.runs import is_sentinel
from dlbench.tables import parquet_files, table_columns

TABLES = Path("results/tables")
SHOWN = 20  # lines of a list; a note counts further ones


@dataclass(frozen=True)
class Link:
    """A condition and its base, as ids of their runs.

    Attributes:
        apart: they were measured apart.
        requested: the config asks for the comparison, or it is a speedup.
    """

    runs: frozenset[str]
    base: frozenset[str]
    apart: bool
    requested: bool


@dataclass(frozen=True)
class Chosen:
    """What is to be measured again.

    Attributes:
        links: those that were measured apart.
        run_ids: of the runs that the next start trains.
        lines: a summary for people.
    """

    links: list[Link]
    run_ids: list[str]
    lines: list[str]


def choose(study: Study, only: Sequence[str] = (), folder: Path | str = TABLES) -> Chosen:
    """Choose what of a study is to be measured again, by its tables.

    Args:
        only: comparisons whose name has one of these texts; all comparisons, if it is empty.

    Raises:
        Error: a table is missing, or no comparison that was measured apart has such a text.
    """
    names = ("runs", "sentinels", "speedups", "metrics")
    rows, sentinels, speedups, metrics = (_rows(folder, name) for name in names)
    by_id = {row["run_id"]: row for row in rows}
    links = _links(study, rows, sentinels, speedups, metrics)
    apart = [link for link in links if link.apart and _is_selected(study, link, only)]
    if only and not apart:
        raise Error(
            f"no comparison that was measured apart has {' or '.join(only)} in its name; "
            "without --only all of them are named"
        )
    chosen = _with_partners({run_id for link in apart for run_id in link.runs | link.base}, links)
    run_ids = [run.id for run in study.runs if run.id in chosen]
    return Chosen(apart, run_ids, list(_summary_lines(study, apart, run_ids, by_id)))


def _rows(folder, name):
    path = Path(folder) / f"{name}.parquet"
    if name == "metrics" and not path.is_file():
        return []  # tables of earlier versions
    return parquet_files.read(path, table_columns.STUDY_TABLES[name]).to_pylist()


def _links(study, rows, sentinels, speedups, metrics):
    """All comparisons of a study's own runs, each pair of sides and metric once."""
    margin = study.equivalence_margin
    compared_fields = {entry["field"] for entry in study.compare}
    links = [
        _link(pair.a, pair.b, sides, True)
        for pair, sides in comparisons.sides(study, rows, sentinels, metrics)
    ]
    links += [
        Link(
            _of_study(row["run_ids"].split(" ")),
            _of_study(row["base_run_ids"].split(" ")),
            base_flags.APART in row["base_mismatch"].split(", "),
            requested=True,
        )
        for row in speedups
        if row["base_run_ids"] not in (None, row["run_ids"])
    ]
    links += [
        _link(a, b, compared, False)
        for pairs in contrasts.by_field(rows, compared_fields, margin, sentinels).values()
        for a, b, _, compared in pairs
    ]
    own_ids = {run.id for run in study.runs}
    links_by_ids: dict[tuple[frozenset, frozenset], Link] = {}
    for link in links:
        if link.runs and link.base and link.runs | link.base <= own_ids:
            first = links_by_ids.setdefault((link.runs, link.base), link)
            if link.apart and link.requested and not first.apart:  # by another metric
                links_by_ids[link.runs, link.base] = link
    return list(links_by_ids.values())


def _link(a, b, compared, requested):
    """The Link of two sides that are rows of the table of runs."""
    runs, base = (_of_study(row["run_id"] for row in side) for side in (a, b))
    return Link(runs, base, base_flags.APART in compared.flags, requested)


def _of_study(run_ids):
    """Ids of a side's runs, without sentinels, which are never trained again."""
    return frozenset(run_id for run_id in run_ids if not is_sentinel(run_id))


def _with_partners(chosen, links):
    """Runs that are measured again, and those that would be measured apart from them otherwise."""
    links = [link for link in links if link.requested and not link.apart]
    before = None
    while before != len(chosen):
        before = len(chosen)
        for link in links:
            if link.runs <= chosen or link.base <= chosen:
                chosen = chosen | link.runs | link.base
    return chosen


def _is_selected(study, link, only):
    name = _name(study, link).lower()
    return not only or any(text.lower() in name for text in only)


def _name(study, link):
    return " over ".join(_condition_label(study, min(side)) for side in (link.runs, link.base))


def _condition_label(study, run_id):
    return study.labels[run_id].rpartition(", repeat ")[0]


def _summary_lines(study, apart, run_ids, rows):
    if not apart:
        yield f"nothing of the study {study.name!r} was measured apart"
        return
    yield f"measured apart: {phrases.counted(len(apart), 'comparison')}"
    yield from _first_lines([_name(study, link) for link in apart])
    seconds = [_node_s(rows[run_id]) for run_id in run_ids]
    repeats = {}
    for run_id in run_ids:
        repeats.setdefault(_condition_label(study, run_id), []).append(run_id)
    yield (
        f"to be trained again, in one session: {phrases.counted(len(run_ids), 'finished run')} "
        f"of {phrases.counted(len(repeats), 'condition')}, "
        f"about {costs.node_hours(sum(seconds) / 3600)}"
    )
    bases = frozenset().union(*(link.base for link in apart))
    yield from _first_lines(
        [
            f"{name} ({phrases.counted(len(ids), 'run')}){', a base' if bases & {*ids} else ''}"
            for name, ids in repeats.items()
        ]
    )


def _first_lines(names):
    yield from (f"  {name}" for name in names[:SHOWN])
    if len(names) > SHOWN:
        yield f"  and {len(names) - SHOWN} more"


def _node_s(row):
    parts = (row.get(name) or 0.0 for name in ("start_s", "import_s", "duration_s"))
    return row["nodes"] * sum(parts)
