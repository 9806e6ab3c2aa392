"""Series of runs on several numbers of devices: throughput, speedup, efficiency and laws.

- A series has runs that are equal in all but the number of devices and what goes with it:
  weak, the batch per device is fixed; strong, the global batch is.
- Its base is its own runs on the fewest devices; without any on one device it borrows those of
  another strategy, where there are some. What differs between a point and its base
  (statistics.BASE_KEYS) is named; so is that it was measured apart (dlbench/analysis/drift.py).
- Speedup is the ratio of throughputs to the base, efficiency that times the base's devices
  over the point's. Uncertainty adds on the logarithm (Welch's t, statistics.ratio).
- Laws are fitted to what speedups are made of: throughputs corrected for the drift between the
  sessions of a point and its base, which must be shown to be equivalent to none.

The figure and the table of speedups are both made from this.
"""

import math
from dataclasses import dataclass

from dlbench.analysis import base_flags, drift, estimates, laws
from dlbench.log.event_fields import ENDED_WELL
from dlbench.study.runs import FIELDS

# What is fixed in a kind of scaling.
FIXED = {"weak": "batch_per_device", "strong": "global_batch"}
# What a series can borrow a base across.
STRATEGY = ("strategy", "strategy_options", "launcher")
_FIRST = (
    "precision",
    "xla",
    "strategy",
    "strategy_options",
    "runtime",
    "runtime_options",
    "copies_per_node",
)
# The seed is seen by the check of the base instead.
_NOT_OF_A_SERIES = (
    *("model", "dataset", "nodes", "devices_per_node", "batch_per_device", "repeat", "sentinel"),
    *("warmup_steps", "seed"),
)
FURTHER = (
    *("site", "timing_source", "item_shape"),
    *(name for name in FIELDS if name not in (*_FIRST, *_NOT_OF_A_SERIES)),
)
# What a series is, beside model, dataset and what is fixed.
SERIES = (*_FIRST, *FURTHER)
ONE_COUNT = "one number of devices"
MARGIN = 0.01  # of equivalence, where no study says another


@dataclass(frozen=True)
class Base:
    """What a series is compared with; `borrowed` from another strategy."""

    devices: int
    nodes: int
    runs: list
    borrowed: bool

    @property
    def throughput(self):
        return _mean(self.runs)


@dataclass(frozen=True)
class Point:
    """The repeats of a series on one number of devices.

    `speedup` and `efficiency` are Estimates, without an interval where the point is the base;
    None where the series has no base. `mismatch` names what should agree with the base. `sides`
    are the point and its base, as they are compared.
    """

    devices: int
    nodes: int
    runs: list
    throughput: estimates.Estimate
    speedup: estimates.Estimate | None = None
    efficiency: estimates.Estimate | None = None
    mismatch: tuple = ()
    sides: drift.Sides | None = None


@dataclass(frozen=True)
class Series:
    """Points in the order of their devices; `kind` is weak, strong, or None: on one number only."""

    kind: str | None
    points: list
    base: Base | None

    @property
    def row(self):
        """A run of the fewest devices, for what all runs have in common."""
        return self.points[0].runs[0]

    @property
    def runs(self):
        return [run for point in self.points for run in point.runs]

    @property
    def mismatch(self):
        """What differs from the base in any of the points."""
        return _in_order({key for point in self.points for key in point.mismatch})


@dataclass(frozen=True)
class Tried:
    """Runs of a series, also those that failed.

    `series` is of those that ended well, without a kind where they are on one number of devices;
    None where there are none.
    """

    kind: str
    runs: list
    series: Series | None

    @property
    def row(self):
        return self.runs[0]


def all_series(rows, sentinels=(), margin=MARGIN):
    """The Series of all runs that ended well, weak ones first, each kind in the order of SERIES.

    Args:
        rows: rows of the runs table, dictionaries; nan stands for an absent value.
        sentinels: rows of the table of sentinels.
        margin: within which drift between sessions is equivalent to none.
    """
    known = drift.Drift(rows, sentinels, margin)
    done = _sorted(row for row in map(_plain, rows) if _is_done(row))
    lenders = {kind: _lenders(done, kind) for kind in FIXED}
    found = [_series(kind, group, lenders, known) for kind, group in _groups(done, lenders)]
    seen = {id(run) for series in found for run in series.runs}
    weak = _grouped(done, FIXED["weak"])
    rest = [[row for row in group if id(row) not in seen] for group in weak]
    return [*found, *(_series(None, group, lenders, known) for group in rest if group)]


def tried(rows, sentinels=(), margin=MARGIN):
    """The Tried series: those that there would be had all runs ended well.

    Args:
        rows, sentinels, margin: as of `all_series`.
    """
    rows = [row for row in map(_plain, rows) if _is_done(row) or _has_failed(row)]
    lenders = {kind: _lenders(filter(_is_done, rows), kind) for kind in FIXED}
    well = all_series(rows, sentinels, margin)
    found = {(s.kind, _key(s.row, FIXED[s.kind])): s for s in well if s.kind}
    return [
        Tried(kind, group, found.get((kind, _key(group[0], FIXED[kind]))) or _on_one_count(group))
        for kind, group in _groups(_sorted(rows), lenders)
    ]


def _on_one_count(group):
    done = [row for row in group if _is_done(row)]
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
    return row["status"] in ENDED_WELL and _is_rate(row)


def _has_failed(row):
    return row["status"] not in (*ENDED_WELL, "skipped")


def _plain(row):
    return {name: None if estimates.is_absent(value) else value for name, value in row.items()}


def _is_rate(row):
    rate = row["images_per_second"]
    return rate is not None and 0 < rate < math.inf


def _key(row, fixed):
    return tuple(row.get(name) for name in ("model", "dataset", fixed, *SERIES))


def _grouped(rows, fixed):
    groups = {}
    for row in rows:
        groups.setdefault(_key(row, fixed), []).append(row)
    # None before numbers and names.
    ordered = sorted(groups, key=lambda key: [(value is not None, value) for value in key])
    return [groups[key] for key in ordered]


def _counts(group):
    return len({row["devices"] for row in group})


def _lenders(rows, kind):
    """Runs on one device by all that a borrower must share with them."""
    lenders = {}
    for row in rows:
        if row["devices"] == 1:
            lenders.setdefault(_shared(row, kind), []).append(row)
    return lenders


def _shared(row, kind):
    names = [name for name in SERIES if name not in STRATEGY]
    return tuple(row.get(name) for name in ("model", "dataset", FIXED[kind], *names))


def _lent(kind, row, lenders):
    """The runs of the first other strategy that lends a base; [] where none does."""
    found = lenders[kind].get(_shared(row, kind), [])
    return [r for r in found if all(r.get(n) == found[0].get(n) for n in STRATEGY)]


def _series(kind, group, lenders, known):
    layouts = {}
    for row in group:
        layouts.setdefault((row["devices"], row.get("nodes")), []).append(row)
    base = _base(kind, layouts, lenders) if kind else None
    points = [_point(kind, layout, runs, base, known) for layout, runs in layouts.items()]
    return Series(kind, points, base)


def _base(kind, layouts, lenders):
    (devices, nodes), own = next(iter(layouts.items()))
    lent = _lent(kind, own[0], lenders) if devices > 1 else []
    if lent:
        return Base(1, lent[0].get("nodes"), lent, borrowed=True)
    return Base(devices, nodes, own, borrowed=False)


def _point(kind, layout, runs, base, known):
    if base is None:
        return Point(*layout, runs, _mean(runs))
    sides = known.compared(runs, base.runs)
    ratio = sides.difference.ratio
    if runs is base.runs:  # a speedup of 1, as it was defined
        ratio = estimates.Estimate(1.0, math.nan, math.nan, len(runs))
    share = base.devices / layout[0]
    efficiency = estimates.Estimate(
        ratio.value * share, ratio.low * share, ratio.high * share, ratio.runs
    )
    mismatch = (*_mismatch(kind, runs, base), *sides.flags)
    return Point(*layout, runs, _mean(runs), ratio, efficiency, mismatch, sides)


def _mismatch(kind, runs, base):
    """What should agree and does not, over all runs of a point and of its base."""
    first = base.runs[0]
    found = {
        key
        for run in (*runs, *base.runs)
        for key in estimates.base_mismatch(run, first, FIXED[kind])
    }
    if runs[0].get("epochs"):  # more devices take fewer steps for as many epochs
        found.discard("steps_measured")
    return _in_order(found)


def _in_order(keys):
    order = (*estimates.BASE_KEYS, *FIXED.values(), *base_flags.OTHERS)
    return tuple(key for key in order if key in keys)


def _rates(runs):
    return [run["images_per_second"] for run in runs]


def _mean(runs):
    return estimates.mean(_rates(runs))


# The table.


def rows(study, runs, sentinels=()):
    """Rows of the table of speedups, one for each point of each series.

    Args:
        study: a Study.
        runs, sentinels: rows of these tables, dictionaries.
    """
    return [
        row
        for series in all_series(runs, sentinels, study.equivalence_margin)
        for law in [_laws(series)]
        for row in _rows(study, series, law)
    ]


def _rows(study, series, law):
    base = series.base
    common = {
        "study": study.name,
        "scaling": series.kind,
        **{name: series.row.get(name) for name in ("model", "dataset", *SERIES, *ALONGSIDE)},
        **law,
    }
    if base:
        common |= {
            "base_strategy": base.runs[0].get("strategy"),
            "base_devices": base.devices,
            "base_nodes": base.nodes,
            "base_runs": len(base.runs),
            **_estimate("base_images_per_second", base.throughput),
        }
    for point in series.points:
        yield {
            **common,
            "devices": point.devices,
            "nodes": point.nodes,
            "batch_per_device": point.runs[0]["batch_per_device"],
            "global_batch": point.runs[0]["global_batch"],
            "runs": len(point.runs),
            "unstable_runs": sum(run["status"] == "unstable" for run in point.runs),
            **_estimate("images_per_second", point.throughput),
            **_estimate("speedup", point.speedup),
            **_estimate("efficiency", point.efficiency),
            **(point.sides.columns if base else {}),
            "base_mismatch": ", ".join(point.mismatch) if base else None,
            "note": _note(series, point),
        }


def _corrected(point):
    """Throughputs of a point's runs as they would be in the sessions of its base."""
    drift = point.sides and point.sides.drift
    return [rate / (drift.ratio.value if drift else 1.0) for rate in _rates(point.runs)]


# Facts of a series that are no part of its key.
ALONGSIDE = ("device_kind", "device_model", "framework_version")


def _estimate(name, estimate):
    return estimate.columns(name) if estimate else {}


def _note(series, point):
    """What a number lacks, and why."""
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
        notes.append(f"over sessions: {point.sides.words}")
    return "; ".join(notes)


def _laws(series):
    """What the laws of scaling say of a series, or why they are not asked."""
    if series.base is None:
        return {"fit": f"no fit: {ONE_COUNT}"}
    devices = [run["devices"] for run in series.runs]
    why = laws.why_no_fit(devices)
    if series.mismatch:
        why = base_flags.words(", ".join(series.mismatch), "points and base")
    if why:
        return {"fit": f"no fit: {why}"}
    rates = [rate for point in series.points for rate in _corrected(point)]
    found = {"usl": laws.usl(devices, rates)}
    made = dict(zip(("usl_alpha", "usl_beta"), found["usl"] or (None, None), strict=True))
    if series.kind == "strong":  # Amdahl's is about a fixed amount of work
        made["serial_fraction"] = found["amdahl"] = laws.amdahl(devices, rates)
    failed = [name for name, fitted in found.items() if fitted is None]
    words = {"fit": f"no fit of {' and '.join(failed)}" if failed else "fitted"}
    return words | {k: v for name, e in made.items() for k, v in _estimate(name, e).items()}
