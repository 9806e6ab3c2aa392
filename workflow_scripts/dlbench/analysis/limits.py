"""What a step of a run is made of, and how much efficiency each part costs a series of runs.

The table of explanations has the parts of a step, from its probes:
- Each kind of probe leaves out what the one before it leaves out, and one thing more
  (dlbench/study/probes.py). The thing costs the difference of the mean step times with and without
  it, with Welch's interval over runs. The last kind is computation alone, or of another program
  what its parameters do not leave out: parts add up to a step.
- What overlaps with computation costs nothing here: of input, of copies to the devices and of
  exchange a part is the time that a step waits. Copies of a run exchange nothing, and none waits
  for the slowest, so that the wait for stragglers counts as exchange.
- A part is resolved (column `told_apart`) if its interval is above zero, all its probes are
  reliable, and one session measured them.

What limits a series:
- The loss is 1 minus the efficiency on the largest number of devices whose runs differ from their
  base in the strategy at most. (A probe on one device has the strategy of a single device, too.)
- With probes: per item, a step takes longer than a step of the base. Each part has a share in that;
  its loss is this share over the step time. A base on one device without probes has no exchange and
  no sharing; its other parts are unknown.
- The interval of a difference follows from the intervals of its two sides (G. Y. Zou, A. Donner
  (2008). Statist. Med. 27, 1693-1702), that of the residual from those of the loss and its parts.
  Neighbouring parts share a probe with opposite signs, so it is too wide rather than too narrow.
- With baselines: the loss to an all-reduce of the gradients without overlap (below).
- A part is resolved if its interval is above zero and its probes are reliable. If the resolved
  parts add up to more than the interval of the loss allows, runs and probes contradict one another.

The scaling that the baselines of a machine predict, by a model that can be wrong.

- A step on n devices takes the computation of one device plus an all-reduce of the gradients on n
  devices, whose time was measured for as many bytes. The two do not overlap.
- With sharded weights, the run records how many bytes of weights a step gathers, and how many of
  gradients it reduce-scatters. For either, a device sends half as much as for an all-reduce of as
  many bytes (NVIDIA/nccl-tests, doc/PERFORMANCE.md): an all-reduce of half of both takes as long.
  What groups of devices exchange counts as if all did.
- The computation is the step of the base, less an all-reduce if the base has several devices. In
  strong scaling it is in proportion to the items of a device.
- Between two sizes the logarithm of the time is linear in that of the bytes; above the largest the
  bandwidth stays, below the smallest the time does.
- Baselines are of the hardware, the framework's version and the exchange of the runs.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlbench.analysis.estimates import Estimate
from dlbench.analysis.scaling_series import STRATEGY, Base, Point, Series
from dlbench.baselines import collectives, rounds
from dlbench.log.event_fields import SUCCEEDED
from dlbench.study import probes
from dlbench.study.config import Study
from dlbench.study.runs import Run
from dlbench.tables import table_columns
from dlbench.tables.cells import Row, is_absent

INPUT, COPIES, EXCHANGE, SHARING, WAITS, COMPUTATION, REST = PARTS = tuple(table_columns.PARTS)
PROBE_LABELS = {
    probes.WHOLE: "of the whole step",
    probes.READING: "without reading",
    probes.COPIES: "without input",
    probes.EXCHANGE: "without exchange",
    probes.OTHER_DEVICES: "on one device",
    probes.WAITS: "without waits",
}
PART_BY_KIND = {probes.READING: INPUT, probes.COPIES: COPIES, probes.EXCHANGE: EXCHANGE}
PART_BY_KIND[probes.WAITS] = WAITS
CONFIDENCE = 0.95
INCLUDES_ZERO = "its interval includes zero"


def explained_rows(study: Study, runs: Sequence[Row]) -> list[Row]:
    """Rows of the table of explanations: one for each part of each condition that is explained.

    `runs`: rows of the table of runs, those of probes among them.
    """
    by_id = {row["run_id"]: row for row in runs}
    conditions: dict[Run, list[Run]] = {}
    for run in sorted(study.without_probes, key=lambda run: run.repeat):
        if run.id in study.explained:
            conditions.setdefault(run.combination, []).append(run)
    explained: list[Row] = []
    for repeats in sorted(conditions.values(), key=lambda repeats: repeats[0].id):
        probes_by_kind = {
            kind: [by_id.get(study.explained[run.id][kind]) for run in repeats]
            for kind in study.explained[repeats[0].id]
        }
        name = study.labels[repeats[0].id].rpartition(", repeat")[0]
        common = {"study": study.name, "run_id": repeats[0].id, "combination": name}
        last = REST if repeats[0].is_external else COMPUTATION
        explained += [common | part for part in _parts_of_step(probes_by_kind, last)]
    return explained


def step_time_s(row: Row | None) -> float | None:
    """Seconds of a step of a run, by its row of the table of runs; None if it did not complete."""
    if row is None or row["status"] not in SUCCEEDED or not row.get("images_per_second"):
        return None
    return row["global_batch"] / row["images_per_second"]  # of copies: the mean over them


def _parts_of_step(probes_by_kind: dict[str, list[Row | None]], last: str) -> Iterator[Row]:
    """A row for each part, without what the parts of a condition have in common.

    `last`: the part that is left when all others are left out.
    """
    kinds = list(probes_by_kind)
    whole_s = _times(probes_by_kind[kinds[0]])
    next_kinds: list[str | None] = [*kinds[1:], None]
    for kind, next_kind in zip(kinds, next_kinds, strict=True):
        sides = [probes_by_kind[kind], *([probes_by_kind[next_kind]] if next_kind else [])]
        times = [_times(side) for side in sides]
        row: Row = {
            "part": _part_name(next_kind, kinds) if next_kind else last,
            "runs": min(map(len, times)),
            "told_apart": False,
        }
        if not all(times):
            missing = next_kind if next_kind and times[0] else kind
            yield row | {"note": f"no probe {PROBE_LABELS[missing]} completed"}
            continue
        value, low, high = _estimate(*times)
        row |= {"step_time_s": value, "step_time_ci95_low": low, "step_time_ci95_high": high}
        row["share"] = value / statistics.fmean(whole_s) if whole_s else None
        note = _why_unreliable([probe for side in sides for probe in side if step_time_s(probe)])
        if not note and low is None:
            note = "one run: no interval"
        elif not note and low <= 0:
            note = INCLUDES_ZERO
        yield row | {"told_apart": not note, "note": note or None}


def _part_name(kind, kinds):
    """The part that a kind of probe leaves out; `sharing` only if copies were measured."""
    if kind == probes.OTHER_DEVICES:
        return SHARING if probes.EXCHANGE in kinds else EXCHANGE
    return PART_BY_KIND[kind]


def _times(side):
    return [seconds for row in side if (seconds := step_time_s(row))]


def _estimate(times, others=None):
    """(mean, ends of its interval) of times, or of how much longer they are than others."""
    from scipy import stats  # late: it takes half a second, and few studies are explained

    value = statistics.fmean(times) - (statistics.fmean(others) if others else 0.0)
    if min(len(times), len(others or times)) < 2:
        return value, None, None
    test = (
        stats.ttest_ind(times, others, equal_var=False) if others else stats.ttest_1samp(times, 0)
    )
    interval = test.confidence_interval(CONFIDENCE)
    low, high = float(interval.low), float(interval.high)
    # Equal times have no scatter that an interval could be made of.
    return (value, None, None) if math.isnan(low) else (value, low, high)


def _why_unreliable(rows):
    """Why a difference of probes is unreliable; "" if it is reliable."""
    unstable = sum(row["status"] == "unstable" for row in rows)
    if unstable:
        return f"{unstable} of {len(rows)} probes were disturbed"
    if len({row.get("session") for row in rows}) > 1:
        return "its probes were measured in several sessions"
    return ""


# Columns in which a baseline equals the runs of a point.
MATCHED = (
    *(name for name in rounds.OF_EXCHANGE if name not in ("node", "devices_per_node")),
    *("framework_version", "devices", "device_kind", "hardware_sha256"),
)
# Columns of runs that baselines have not: they are measured without any, whose times may differ.
WITHOUT = ("variables", "launcher_options")


@dataclass(frozen=True)
class Expected:
    """The prediction for a number of devices.

    Attributes:
        images_per_second: items a second over all devices.
        efficiency: over the base, as that of a Point.
        compute_s, all_reduce_s: the parts of a step.
    """

    devices: int
    images_per_second: float
    efficiency: float
    compute_s: float
    all_reduce_s: float


def expected(series: Series, baselines: Sequence[Row]) -> list[Expected]:
    """The predictions for the points of a series and its base; [] where they are unknown.

    `baselines`: rows of the table of that name.
    """
    base = series.base
    if base is None:
        return []
    first = base.runs[0]
    rate = base.throughput.value
    base_exchange_s = exchange_s(first, baselines) if base.devices > 1 else 0.0
    if base_exchange_s is None or is_absent(first.get("global_batch")):
        return []
    compute_s = first["global_batch"] / rate - base_exchange_s
    larger = [point for point in series.points if compute_s > 0 and point.devices > base.devices]
    expectations = [one for p in larger if (one := _at(p, base, compute_s, baselines))]
    of_base = Expected(base.devices, rate, 1.0, compute_s, base_exchange_s)
    return [of_base, *expectations] if expectations else []


def _at(point: Point, base: Base, compute_s: float, baselines: Sequence[Row]) -> Expected | None:
    run = point.runs[0]
    step_exchange_s = exchange_s(run, baselines)
    if step_exchange_s is None or is_absent(run.get("global_batch")):
        return None
    base_items = base.runs[0]["global_batch"] / base.devices
    compute_here_s = compute_s * (run["global_batch"] / point.devices) / base_items
    rate = run["global_batch"] / (compute_here_s + step_exchange_s)
    speedup = rate / base.throughput.value
    efficiency = speedup * base.devices / point.devices
    return Expected(point.devices, rate, efficiency, compute_here_s, step_exchange_s)


def all_reduced_bytes(run: Row) -> int | None:
    """The bytes of an all-reduce that takes as long as the exchange of a step; None if not known.

    >>> all_reduced_bytes({"parameters": 1000})
    4000
    >>> all_reduced_bytes({"gathered_bytes_per_step": 3000, "reduced_bytes_per_step": 4000})
    3500

    `run`: a row of the table of runs.
    """
    gathered, reduced = run.get("gathered_bytes_per_step"), run.get("reduced_bytes_per_step")
    if gathered is not None and reduced is not None and not is_absent(gathered + reduced):
        return int(gathered + reduced) // 2
    parameters = run.get("parameters")
    if is_absent(parameters) or not parameters:
        return None
    return collectives.FLOAT32_BYTES * int(parameters)


def exchange_s(run: Row, baselines: Sequence[Row], column: str = "time_s") -> float | None:
    """Seconds of the exchange of a step among the devices of a run; None if not measured.

    `column`: of the baselines: time_s, the median over rounds, or time_low_s or time_high_s.
    """
    size_bytes = all_reduced_bytes(run)
    given = [run[name] for name in WITHOUT if not is_absent(run.get(name))]
    if size_bytes is None or any(given):
        return None
    times_s = {
        row["size_bytes"]: row[column]
        for row in baselines
        if row["measure"] == collectives.ALL_REDUCE and _matches(row, run)
        if not is_absent(row.get(column))
    }
    return interpolated_s(times_s, size_bytes) if times_s else None


def interpolated_s(times_s: dict[int, float], size_bytes: float) -> float:
    """The time of an all-reduce of a size between measured ones (see the module's docstring).

    >>> round(interpolated_s({100: 1.0, 10_000: 100.0}, 1000), 9)
    10.0

    `times_s`: {bytes: seconds}, at least one.
    """
    sizes = sorted(times_s)
    if size_bytes <= sizes[0]:
        return times_s[sizes[0]]
    if size_bytes >= sizes[-1]:
        return times_s[sizes[-1]] * size_bytes / sizes[-1]
    above = next(size for size in sizes if size >= size_bytes)
    below = max(size for size in sizes if size < size_bytes)
    share = math.log(size_bytes / below) / math.log(above / below)
    return math.exp((1 - share) * math.log(times_s[below]) + share * math.log(times_s[above]))


def _matches(baseline, run):
    """Whether a baseline is of a run's devices; one of named nodes is of runs that name them."""
    if _plain(baseline.get("node")) not in ("", _plain(run.get("node"))):
        return False
    return all(_plain(baseline.get(name)) == _plain(run.get(name)) for name in MATCHED)


def _plain(value):
    return "" if is_absent(value) else value


OF_SEVERAL_DEVICES = (EXCHANGE, SHARING)
NO_BASE_PROBES = "no probes of the base"


@dataclass(frozen=True)
class Part:
    """The efficiency that one part of a step costs.

    Attributes:
        name: one of PARTS.
        loss: share of the efficiency; nan where the same part of the base is unknown.
        step_time: its seconds in a step of the point.
        note: why it is not resolved; "" if it is.
        shares_node: the exchange includes the slowdown by other devices of the node.
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
    """An all-reduce of the gradients over the devices of a point, as the baselines timed it.

    Attributes:
        bus_bytes: the bytes that bus bandwidth counts.
        time: seconds; the ends are the shortest and the longest round.
        loss: share of the efficiency without overlap, with the same ends; None if the all-reduce
            of the base was not measured.
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
        """The base of the series; a series without one has no Limit."""
        assert self.series.base is not None
        return self.series.base

    @property
    def is_resolved(self) -> bool:
        """Whether the loss is above zero by its interval."""
        return self.loss.low > 0

    @property
    def resolved(self) -> list[Part]:
        """The resolved parts, the largest first."""
        resolved = (part for part in self.parts if part.resolved)
        return sorted(resolved, key=lambda part: -part.loss.value)

    @property
    def resolved_loss(self) -> float:
        """The sum of the losses of the resolved parts."""
        return math.fsum(part.loss.value for part in self.resolved)

    @property
    def agrees(self) -> bool:
        """Whether the resolved parts are within the interval of the loss."""
        return self.resolved_loss <= self.loss.high

    @property
    def residual(self) -> Estimate:
        """The loss without the resolved parts."""
        value = self.loss.value - self.resolved_loss
        below = [self.loss.value - self.loss.low]
        above = [self.loss.high - self.loss.value]
        below += [part.loss.high - part.loss.value for part in self.resolved]
        above += [part.loss.value - part.loss.low for part in self.resolved]
        low, high = value - math.hypot(*below), value + math.hypot(*above)
        return Estimate(value, low, high, self.loss.runs)


def of_series(
    all_series: Sequence[Series], explained: Sequence[Row], baselines: Sequence[Row]
) -> list[Limit]:
    """The Limit of each series whose efficiency has an interval; others are left out.

    `explained`, `baselines`: rows of the tables of explanations and of baselines.
    """
    parts_by_run: dict[str, list[Row]] = {}
    for row in explained:
        parts_by_run.setdefault(row["run_id"], []).append(row)
    return [
        Limit(
            series,
            point,
            loss,
            tuple(_parts(series, point, parts_by_run)),
            _all_reduce_of(series, point, baselines),
        )
        for series in all_series
        if (point := _largest_point(series)) and (loss := _loss(point))
    ]


def _largest_point(series):
    """The point on the most devices that differs from its base in the strategy at most."""
    if series.base is None or (series.row.get("copies_per_node") or 1) > 1:
        return None
    larger = (point for point in series.points if point.devices > series.base.devices)
    comparable = [point for point in larger if not {*point.mismatch} - {*STRATEGY}]
    return max(comparable, key=lambda point: point.devices, default=None)


def _loss(point):
    efficiency = point.efficiency
    if efficiency is None or not math.isfinite(efficiency.low):
        return None
    return Estimate(1 - efficiency.value, 1 - efficiency.high, 1 - efficiency.low, efficiency.runs)


def _parts(series, point, parts_by_run):
    """A Part for each part of a step of the point; none without its probes."""
    rows, base_rows = (
        next((parts_by_run[run["run_id"]] for run in runs if run["run_id"] in parts_by_run), [])
        for runs in (point.runs, series.base.runs)
    )
    step_s = next((row["step_time_s"] / row["share"] for row in rows if row.get("share")), None)
    if step_s is None:
        return
    items = _batch(series.base.runs[0]), _batch(point.runs[0])
    names = {row["part"] for row in rows}
    several = (point.runs[0].get("devices_per_node") or 1) > 1
    shares_node = several and not names & {SHARING, REST}
    for row in rows:
        name, step_time, in_base = row["part"], _time(row), _of_base(row["part"], series, base_rows)
        note = "" if row["told_apart"] else row["note"]
        loss = Estimate(math.nan, math.nan, math.nan, row["runs"])
        if in_base is None or None in items:
            note = note or NO_BASE_PROBES
        else:
            loss = _difference(step_time, in_base[0], items[1] / items[0], step_s)
            note = note or in_base[1]
            note = note or ("" if loss.low > 0 else INCLUDES_ZERO)
        yield Part(name, loss, step_time, note, shares_node and name == EXCHANGE)


def _of_base(name, series, base_rows):
    """(seconds of a part in a step of the base, why they are unreliable or ""); None: unknown."""
    part_row = next((row for row in base_rows if row["part"] == name), None)
    if part_row:
        reliable = part_row["told_apart"] or part_row["note"] == INCLUDES_ZERO
        return _time(part_row), "" if reliable else f"of the base: {part_row['note']}"
    if series.base.devices == 1 and name in OF_SEVERAL_DEVICES:
        return Estimate(0.0, 0.0, 0.0, 0), ""
    return None


def _time(row):
    names = ("step_time_s", "step_time_ci95_low", "step_time_ci95_high")
    values = [math.nan if is_absent(row.get(name)) else row[name] for name in names]
    return Estimate(*values, row["runs"])


def _difference(part, base_part, factor, step_s):
    """(part - factor x base_part) / step_s with its interval."""
    value = part.value - factor * base_part.value
    low = value - math.hypot(part.value - part.low, factor * (base_part.high - base_part.value))
    high = value + math.hypot(part.high - part.value, factor * (base_part.value - base_part.low))
    return Estimate(value / step_s, low / step_s, high / step_s, part.runs)


def _batch(run):
    """Items of a step of one device; None if not known."""
    batch = run.get("global_batch")
    return None if is_absent(batch) else batch / run["devices"]


def _all_reduce_of(series, point, baselines):
    run, base = point.runs[0], series.base.runs[0]
    time = _exchange_time(run, baselines)
    items = _batch(base), _batch(run)
    if time is None:
        return None
    base_time = Estimate(0.0, 0.0, 0.0, 0)
    if series.base.devices > 1:
        base_time = _exchange_time(base, baselines)
    loss = None
    if base_time and None not in items:
        step_s = run["global_batch"] / point.throughput.value
        factor = items[1] / items[0]
        base_s = base_time.value, base_time.high, base_time.low
        pairs = zip((time.value, time.low, time.high), base_s, strict=True)
        loss = Estimate(*((t_s - factor * b_s) / step_s for t_s, b_s in pairs), len(point.runs))
    size_bytes = all_reduced_bytes(run)
    moved = collectives.bus_bytes(collectives.ALL_REDUCE, size_bytes, point.devices)
    return AllReduce(moved, time, loss)


def _exchange_time(run, baselines):
    """Seconds of the exchange of a step by its shortest and longest round; None: not measured."""
    names = ("time_s", "time_low_s", "time_high_s")
    seconds = [exchange_s(run, baselines, name) for name in names]
    return None if None in seconds else Estimate(*seconds, len(baselines))
