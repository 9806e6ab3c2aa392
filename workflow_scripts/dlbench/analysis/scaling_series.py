"""Series of runs on several numbers of devices: throughput, speedup, efficiency.

- A series has runs that are equal in all but the number of devices and what goes with it:
  weak, the batch per device is fixed; strong, the global batch is.
- Its base are its runs on the fewest devices. Without runs on one device it borrows those of
  another strategy, if there are any. A point has flags for what differs from its base
  (base_flags.BASE_KEYS), and for different sessions (dlbench/analysis/drift.py).
- Speedup is the ratio of throughputs to the base, efficiency that times the base's devices
  over the point's. Uncertainty adds on the logarithm (Welch's t, estimates.ratio).

Series are made once, for the table of speedups; figures and report read them from it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlbench.analysis import base_flags, drift, estimates
from dlbench.common.run_fields import ALWAYS, tagged
from dlbench.log.event_fields import SUCCEEDED
from dlbench.study import wording
from dlbench.study.config import Study
from dlbench.study.runs import FIELDS, REPEATED
from dlbench.tables.cells import Row, run_name, run_names

# What is fixed in a kind of scaling.
FIXED = {"weak": "batch_per_device", "strong": "global_batch"}
# Fields in which a borrowed base may differ.
STRATEGY = ("strategy", "strategy_options", "launcher")
# The check of the base compares the seed.
_NOT_SHARED = {*tagged(ALWAYS), "nodes", "devices_per_node", "warmup_steps", "warmup_s", *REPEATED}
# What a series shares, besides model, dataset and what is fixed.
SERIES = (
    *(name for name in FIELDS if name not in _NOT_SHARED),
    *("site", "timing_source", "item_shape"),
)
ONE_COUNT = "one number of devices"
FLAGS = (*base_flags.BASE_KEYS, *FIXED.values(), *base_flags.OTHER_FLAGS)  # in their order
MARGIN = 0.01  # of equivalence, where no study says another


@dataclass(frozen=True)
class Base:
    """What a series is compared with; `borrowed` from another strategy."""

    devices: int
    nodes: int | None
    runs: list[Row]
    borrowed: bool

    @property
    def throughput(self) -> estimates.Estimate:
        return _mean(self.runs)


@dataclass(frozen=True)
class Point:
    """The repeats of a series on one number of devices.

    `speedup` and `efficiency` are Estimates, without an interval where the point is the base;
    None where the series has no base. `mismatch` names what should agree with the base. `sides`
    are the point and its base, as they are compared.
    """

    devices: int
    nodes: int | None
    runs: list[Row]
    throughput: estimates.Estimate
    speedup: estimates.Estimate | None = None
    efficiency: estimates.Estimate | None = None
    mismatch: tuple[str, ...] = ()
    sides: drift.Sides | None = None


@dataclass(frozen=True)
class Series:
    """Points in the order of their devices; `kind` is weak, strong, or None: on one number only."""

    kind: str | None
    points: list[Point]
    base: Base | None

    @property
    def row(self) -> Row:
        """A run on the fewest devices; it stands for what all runs have in common."""
        return self.points[0].runs[0]

    @property
    def runs(self) -> list[Row]:
        return [run for point in self.points for run in point.runs]

    @property
    def mismatch(self) -> tuple[str, ...]:
        """What differs from the base in any of the points."""
        return _in_order({key for point in self.points for key in point.mismatch})


@dataclass(frozen=True)
class PlannedSeries:
    """A series with the runs that failed.

    `series` is of those that completed, without a kind where they are on one number of devices;
    None where there are none.
    """

    kind: str
    runs: list[Row]
    series: Series | None

    @property
    def row(self) -> Row:
        return self.runs[0]


def all_series(
    rows: Sequence[Row], sentinels: Sequence[Row] = (), margin: float = MARGIN
) -> list[Series]:
    """The Series of all completed runs, weak ones first, each kind in the order of SERIES.

    `rows`, `sentinels`: of the runs table; nan stands for an absent value. `margin`: within which
    drift between sessions is equivalent to none.
    """
    drifts = drift.Drift(rows, sentinels, margin)
    done = _sorted(row for row in map(_plain, rows) if _is_done(row))
    lenders = {kind: _lenders(done, kind) for kind in FIXED}
    scaled = [_series(kind, group, lenders, drifts) for kind, group in _groups(done, lenders)]
    in_series = {id(run) for series in scaled for run in series.runs}
    weak = _grouped(done, FIXED["weak"])
    rest = [[row for row in group if id(row) not in in_series] for group in weak]
    return [*scaled, *(_series(None, group, lenders, drifts) for group in rest if group)]


def series_from_table(points: Sequence[Row], rows: Iterable[Row]) -> list[Series]:
    """The Series behind a table of speedups.

    `points`, `rows`: of the tables of speedups and of runs; series with other runs are left out.
    """
    study = points[0]["study"] if points else None
    runs = {run_name(row, study): _plain(row) for row in rows}
    series: dict[tuple[Any, ...], list[Row]] = {}
    for point in map(_plain, points):
        if not point["run_ids"] or point["scaling"] not in (None, *FIXED):
            continue  # in a table of an earlier version, or of another program
        kind, ids = point["scaling"], point["run_ids"].split(" ")
        key = kind, point["settings_of"]
        if runs.keys() >= {*ids, *(point["base_run_ids"] or ids[0]).split(" ")}:
            series.setdefault(key, []).append(point)
    return [_series_from_rows(points, runs) for points in series.values()]


def _series_from_rows(points, runs):
    own = {
        point["run_ids"]: [runs[name] for name in point["run_ids"].split(" ")] for point in points
    }
    first, base = points[0], None
    if first["base_run_ids"]:
        lent = [runs[name] for name in first["base_run_ids"].split(" ")]
        base = Base(
            first["base_devices"],
            first["base_nodes"],
            own.get(first["base_run_ids"], lent),
            borrowed=first["base_run_ids"] not in own,
        )
    return Series(
        first["scaling"], [_point_from_row(p, own[p["run_ids"]], base) for p in points], base
    )


def _point_from_row(point, runs, base):
    fewest = min(len(runs), len(base.runs)) if base else 0
    return Point(
        point["devices"],
        point["nodes"],
        runs,
        _estimate(point, "images_per_second", len(runs)),
        _estimate(point, "speedup", fewest),
        _estimate(point, "efficiency", fewest),
        tuple(filter(None, (point["base_mismatch"] or "").split(", "))),
    )


def _estimate(row, name, runs):
    """The Estimate in some columns of a table; None where there is none."""
    if row[name] is None:
        return None
    low, high = (row[f"{name}_ci95_{end}"] for end in ("low", "high"))
    ends = (math.nan if end is None else end for end in (low, high))
    return estimates.Estimate(row[name], *ends, runs)


def planned_series(rows: Sequence[Row], well: Sequence[Series]) -> list[PlannedSeries]:
    """The series that would exist if all runs had completed.

    `rows`: as of `all_series`; `well`: the Series of those of them that did.
    """
    rows = [
        row
        for row in map(_plain, rows)
        if _is_done(row) or row["status"] not in (*SUCCEEDED, "skipped")
    ]
    lenders = {kind: _lenders(filter(_is_done, rows), kind) for kind in FIXED}
    series_by_key = {(s.kind, _key(s.row, FIXED[s.kind])): s for s in well if s.kind}
    return [
        PlannedSeries(
            kind,
            group,
            series_by_key.get((kind, _key(group[0], FIXED[kind]))) or _on_one_count(group),
        )
        for kind, group in _groups(_sorted(rows), lenders)
    ]


def _on_one_count(group):
    done = list(filter(_is_done, group))
    return _series(None, done, {}, None) if done else None


def _groups(rows, lenders):
    """[(kind, the runs of a series), ...]"""
    weak, strong = (_grouped(rows, fixed) for fixed in FIXED.values())
    return [
        ("weak", group)
        for group in weak
        if _counts(group) > 1 or (group[0]["devices"] > 1 and _lent("weak", group[0], lenders))
    ] + [("strong", group) for group in strong if _counts(group) > 1 and group[0]["global_batch"]]


def _sorted(rows):
    return sorted(
        rows, key=lambda row: (row["devices"], row.get("nodes") or 0, row.get("repeat") or 0)
    )


def _is_done(row):
    rate = row.get("images_per_second")
    return row["status"] in SUCCEEDED and rate is not None and 0 < rate < math.inf


def _plain(row):
    """The row with None for nan."""
    return {name: value if value == value else None for name, value in row.items()}


def _key(row, fixed):
    return tuple([row.get(name) for name in ("model", "dataset", fixed, *SERIES)])


def _grouped(rows, fixed):
    groups = _by(lambda row: _key(row, fixed), rows)
    # None before numbers and names.
    ordered = sorted(groups, key=lambda key: [(value is not None, value) for value in key])
    return [groups[key] for key in ordered]


def _counts(group):
    return len({row["devices"] for row in group})


def _lenders(rows, kind):
    """Runs on one device by all that a borrower must share with them."""
    return _by(lambda row: _shared(row, kind), (row for row in rows if row["devices"] == 1))


def _by(key, rows):
    """{key of a row: the rows that have it}"""
    groups = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _shared(row, kind):
    names = [name for name in SERIES if name not in STRATEGY]
    return tuple(row.get(name) for name in ("model", "dataset", FIXED[kind], *names))


def _lent(kind, row, lenders):
    """The runs of the first other strategy that lends a base; [] if none does."""
    lenders_runs = lenders[kind].get(_shared(row, kind), [])
    return [r for r in lenders_runs if all(r.get(n) == lenders_runs[0].get(n) for n in STRATEGY)]


def _series(kind, group, lenders, drifts):
    layouts = _by(lambda row: (row["devices"], row.get("nodes")), group)
    base = _base(kind, layouts, lenders) if kind else None
    points = [_point(kind, layout, runs, base, drifts) for layout, runs in layouts.items()]
    return Series(kind, points, base)


def _base(kind, layouts, lenders):
    (devices, nodes), own_runs = next(iter(layouts.items()))
    lent = _lent(kind, own_runs[0], lenders) if devices > 1 else []
    if lent:
        return Base(1, lent[0].get("nodes"), lent, borrowed=True)
    return Base(devices, nodes, own_runs, borrowed=False)


def _point(kind, layout, runs, base, drifts):
    if base is None:
        return Point(*layout, runs, _mean(runs))
    sides = drifts.compare(runs, base.runs)
    ratio = sides.difference.ratio
    if runs is base.runs:  # a speedup of 1, as it was defined
        ratio = estimates.Estimate(1.0, math.nan, math.nan, len(runs))
    efficiency = ratio.times(base.devices / layout[0])
    mismatch = (*_mismatch(kind, runs, base), *sides.flags)
    return Point(*layout, runs, _mean(runs), ratio, efficiency, mismatch, sides)


def _mismatch(kind, runs, base):
    """The keys in which runs of a point and of its base differ though they should agree."""
    first = base.runs[0]
    differing = {
        key
        for run in (*runs, *base.runs)
        for key in base_flags.base_mismatch(run, first, FIXED[kind])
    }
    if runs[0].get("epochs"):  # more devices take fewer steps for as many epochs
        differing.discard("steps_measured")
    return _in_order(differing)


def _in_order(keys):
    return tuple(key for key in FLAGS if key in keys)


def _mean(runs):
    return estimates.mean([run["images_per_second"] for run in runs])


def speedup_rows(study: Study, runs: Sequence[Row], sentinels: Sequence[Row] = ()) -> list[Row]:
    """Rows of the table of speedups, one for each point of each series.

    `runs`, `sentinels`: rows of the runs table.
    """
    return [
        row
        for series in all_series(runs, sentinels, study.equivalence_margin)
        for row in _rows(study, series)
    ]


def _rows(study, series):
    base = series.base
    common = {
        "study": study.name,
        "scaling": series.kind,
        "settings_of": run_name(series.row, study.name),
    }
    if base:
        common |= {
            "base_strategy": base.runs[0].get("strategy"),
            "base_devices": base.devices,
            "base_nodes": base.nodes,
            "base_runs": len(base.runs),
            "base_run_ids": run_names(base.runs, study.name),
            **_rate_columns("base_", base.throughput, series.row),
        }
    for point in series.points:
        yield {
            **common,
            "devices": point.devices,
            "nodes": point.nodes,
            "batch_per_device": point.runs[0]["batch_per_device"],
            "global_batch": point.runs[0]["global_batch"],
            "runs": len(point.runs),
            "run_ids": run_names(point.runs, study.name),
            "unstable_runs": sum(run["status"] == "unstable" for run in point.runs),
            **_rate_columns("", point.throughput, series.row),
            **(point.speedup.columns("speedup") if base else {}),
            **(point.efficiency.columns("efficiency") if base else {}),
            **(point.sides.columns if base else {}),
            "base_mismatch": ", ".join(point.mismatch) if base else None,
            "note": _note(series, point),
        }


def _rate_columns(prefix, throughput, row):
    """A throughput in items a second, and in tokens where items are sequences."""
    columns = throughput.columns(f"{prefix}images_per_second")
    if tokens := wording.tokens(row.get("item_shape")):
        columns |= throughput.times(tokens).columns(f"{prefix}tokens_per_second")
    return columns


def _note(series, point):
    """Why a row lacks a number or an interval."""
    notes = []
    if series.base is None:
        notes.append(f"no speedup: {ONE_COUNT}")
    elif point.runs is series.base.runs:
        notes.append("the base")
    if len(point.runs) < 2:
        notes.append("one run: no interval")
    elif series.base and len(series.base.runs) < 2:
        notes.append("one run of the base: no interval of the speedup")
    elif series.base and estimates.is_thin(len(point.runs), len(series.base.runs)):
        notes.append(estimates.THIN)
    if point.sides and point.sides.drift:
        notes.append(f"over sessions: {point.sides.label}")
    return "; ".join(notes)
