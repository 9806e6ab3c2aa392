"""What limits each series of runs: the efficiency that is lost on its most devices, in parts.

- The loss is 1 less the efficiency of the most devices whose base differs from them in the strategy
  at most: probes on one device have that of a single one, too.
- From probes of those runs: a step takes longer than the base's, an item, by the sum of what each
  of its parts takes longer; a part's loss is that over the step. Of a base on one device that has
  no probes only what needs several devices is known: exchange and sharing.
- The interval of a difference comes of those of its two sides (G. Y. Zou, A. Donner (2008).
  Statist. Med. 27, 1693-1702), and that of what remains of those of loss and parts: neighbouring
  parts share a probe with opposite signs, which makes it too wide rather than too narrow.
- From baselines: an all-reduce of the gradients that nothing overlaps (expected_scaling.py).
- A part is told if its interval is above zero and nothing is in doubt. None is where those that are
  told exceed the loss beyond its interval: runs and probes do not agree.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.analysis import expected_scaling, explanations
from dlbench.analysis.estimates import Estimate
from dlbench.analysis.scaling_series import STRATEGY, Base, Point, Series
from dlbench.baselines import all_reduce
from dlbench.tables.cells import Row, is_absent

OF_SEVERAL_DEVICES = (explanations.EXCHANGE, explanations.SHARING)
UNTOLD_BASE = "no probes of the base"


@dataclass(frozen=True)
class Part:
    """What one part of a step takes of the efficiency.

    Attributes:
        name: one of explanations.PARTS.
        loss: of the efficiency; no value (nan) where only the step's part is known.
        step_time: seconds of a step on these devices that it takes.
        note: why it is not told; "" if it is.
        shares_node: whether the exchange has in it what devices of a node take from each other.
    """

    name: str
    loss: Estimate
    step_time: Estimate
    note: str
    shares_node: bool = False

    @property
    def resolved(self) -> bool:
        return not self.note


@dataclass(frozen=True)
class AllReduce:
    """One of the gradients among the devices of a point, as baselines have it.

    Attributes:
        bus_bytes: by which bus bandwidth is counted.
        time: seconds; ends are the shortest and the longest round.
        loss: of the efficiency if nothing overlaps, with ends of the same; None where that of
            the base is not known.
    """

    bus_bytes: float
    time: Estimate
    loss: Estimate | None


@dataclass(frozen=True)
class Limit:
    """What limits one series; `loss` is that of `point`, which has the most devices."""

    series: Series
    point: Point
    loss: Estimate
    parts: tuple[Part, ...]
    all_reduce: AllReduce | None

    @property
    def base(self) -> Base:
        """What the series is compared with; one that has no base has no Limit."""
        assert self.series.base is not None
        return self.series.base

    @property
    def is_shown(self) -> bool:
        """Whether any efficiency is shown to be lost."""
        return self.loss.low > 0

    @property
    def resolved(self) -> list[Part]:
        """The resolved parts, the largest first."""
        return sorted(
            (part for part in self.parts if part.resolved), key=lambda part: -part.loss.value
        )

    @property
    def resolved_loss(self) -> float:
        """What the told parts lose together."""
        return math.fsum(part.loss.value for part in self.resolved)

    @property
    def agrees(self) -> bool:
        """Whether the told parts are within the loss."""
        return self.resolved_loss <= self.loss.high

    @property
    def rest(self) -> Estimate:
        """The loss without the told parts."""
        value = self.loss.value - self.resolved_loss
        below = [self.loss.value - self.loss.low]
        above = [self.loss.high - self.loss.value]
        below += [part.loss.high - part.loss.value for part in self.resolved]
        above += [part.loss.value - part.loss.low for part in self.resolved]
        low, high = value - math.hypot(*below), value + math.hypot(*above)
        return Estimate(value, low, high, self.loss.runs)


def of_series(
    series: Sequence[Series], explained: Sequence[Row], baselines: Sequence[Row]
) -> list[Limit]:
    """The Limit of each series whose efficiency has an interval; others are left out.

    Args:
        series: of scaling_series.all_series.
        explained, baselines: rows of the tables of explanations and of baselines.
    """
    parts_by_run: dict[str, list[Row]] = {}
    for row in explained:
        parts_by_run.setdefault(row["run_id"], []).append(row)
    return [
        Limit(
            one,
            point,
            loss,
            tuple(_parts(one, point, parts_by_run)),
            _all_reduce(one, point, baselines),
        )
        for one in series
        if (point := _farthest(one)) and (loss := _loss(point))
    ]


def _farthest(series):
    """The point on the most devices that differs from its base in no more than the strategy."""
    if series.base is None or (series.row.get("copies_per_node") or 1) > 1:
        return None
    more = (point for point in series.points if point.devices > series.base.devices)
    sound = [point for point in more if not {*point.mismatch} - {*STRATEGY}]
    return max(sound, key=lambda point: point.devices, default=None)


def _loss(point):
    kept = point.efficiency
    if kept is None or not math.isfinite(kept.low):
        return None
    return Estimate(1 - kept.value, 1 - kept.high, 1 - kept.low, kept.runs)


def _parts(series, point, parts_by_run):
    """A Part for each part of a step of the point; none without its probes."""
    own, base = (_explained(runs, parts_by_run) for runs in (point.runs, series.base.runs))
    whole_s = next((row["step_time_s"] / row["share"] for row in own if row.get("share")), None)
    if whole_s is None:
        return
    items = _batch(series.base.runs[0]), _batch(point.runs[0])
    names = {row["part"] for row in own}
    in_one = explanations.SHARING not in names and (point.runs[0].get("devices_per_node") or 1) > 1
    for row in own:
        name, step_time, of_base = row["part"], _time(row), _of_base(row["part"], series, base)
        note = "" if row["told_apart"] else row["note"]
        loss = Estimate(math.nan, math.nan, math.nan, row["runs"])
        if of_base is None or None in items:
            note = note or UNTOLD_BASE
        else:
            loss = _difference(step_time, of_base[0], items[1] / items[0], whole_s)
            note = note or of_base[1]
            note = note or ("" if loss.low > 0 else explanations.NO_TIME)
        yield Part(name, loss, step_time, note, in_one and name == explanations.EXCHANGE)


def _explained(runs, parts_by_run):
    return next((parts_by_run[run["run_id"]] for run in runs if run["run_id"] in parts_by_run), [])


def _of_base(name, series, rows):
    """(what a part of a step of the base takes, why that is not relied on); None if not known."""
    found = next((row for row in rows if row["part"] == name), None)
    if found:
        return _time(found), _doubt(found)
    if series.base.devices == 1 and name in OF_SEVERAL_DEVICES:
        return Estimate(0.0, 0.0, 0.0, 0), ""
    return None


def _doubt(row):
    """Why a part of the base is not relied on; that it may be nothing is no reason."""
    relied = row["told_apart"] or row["note"] == explanations.NO_TIME
    return "" if relied else f"of the base: {row['note']}"


def _time(row):
    names = ("step_time_s", "step_time_ci95_low", "step_time_ci95_high")
    values = [math.nan if is_absent(row.get(name)) else row[name] for name in names]
    return Estimate(*values, row["runs"])


def _difference(one, other, factor, whole_s):
    """(one - factor x other) / whole_s with its interval."""
    value = one.value - factor * other.value
    low = value - math.hypot(one.value - one.low, factor * (other.high - other.value))
    high = value + math.hypot(one.high - one.value, factor * (other.value - other.low))
    return Estimate(value / whole_s, low / whole_s, high / whole_s, one.runs)


def _batch(run):
    """Items of a step of one device; None if not known."""
    batch = run.get("global_batch")
    return None if is_absent(batch) else batch / run["devices"]


def _all_reduce(series, point, baselines):
    run, base = point.runs[0], series.base.runs[0]
    time = _attained(run, baselines)
    items = _batch(base), _batch(run)
    if time is None:
        return None
    of_base = Estimate(0.0, 0.0, 0.0, 0)
    if series.base.devices > 1:
        of_base = _attained(base, baselines)
    loss = None
    if of_base and None not in items:
        step_s = run["global_batch"] / point.throughput.value
        factor = items[1] / items[0]
        pairs = (time.value, of_base.value), (time.low, of_base.high), (time.high, of_base.low)
        loss = Estimate(*((own - factor * other) / step_s for own, other in pairs), len(point.runs))
    size_bytes = expected_scaling.all_reduced_bytes(run)
    return AllReduce(all_reduce.bus_bytes(size_bytes, point.devices), time, loss)


def _attained(run, baselines):
    """Seconds of the exchange of a step by its shortest and longest round; None: not measured."""
    names = ("time_s", "time_low_s", "time_high_s")
    found = [expected_scaling.exchange_s(run, baselines, name) for name in names]
    return None if None in found else Estimate(*found, len(baselines))
