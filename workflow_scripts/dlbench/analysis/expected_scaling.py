"""The scaling that the baselines of a machine predict, by a model that can be wrong.

- A step on n devices takes the computation of one device plus an all-reduce of the gradients on n
  devices, whose time was measured for as many bytes. The two do not overlap.
- With sharded weights, the run records how many bytes of weights a step gathers, and how many of
  gradients it reduce-scatters. For either, a device sends half as much as for an all-reduce of as
  many bytes (NVIDIA/nccl-tests, doc/PERFORMANCE.md): an all-reduce of half of both takes as long.
- The computation is the step of the base, less an all-reduce if the base has several devices. In
  strong scaling it is in proportion to the items of a device.
- Between two sizes the logarithm of the time is linear in that of the bytes; above the largest the
  bandwidth stays, below the smallest the time does.
- Baselines are of the hardware, the framework's version and the exchange of the runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.analysis.scaling_series import Point, Series
from dlbench.baselines import collectives
from dlbench.tables.cells import Row, is_absent

# Columns in which a baseline equals the runs of a point.
MATCHED = (
    *("framework", "framework_version", "environment", "runtime", "runtime_options"),
    *("threads_per_device", "strategy", "strategy_options", "launcher"),
    *("nodes", "devices", "device_kind", "hardware_sha256"),
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

    Args:
        baselines: rows of the table of that name.
    """
    base = series.base
    if base is None or not series.points:
        return []
    first = base.runs[0]
    rate = base.throughput.value
    base_exchange_s = exchange_s(first, baselines) if base.devices > 1 else 0.0
    if base_exchange_s is None or is_absent(first.get("global_batch")):
        return []
    compute_s = first["global_batch"] / rate - base_exchange_s
    if compute_s <= 0:
        return []
    expectations = [Expected(base.devices, rate, 1.0, compute_s, base_exchange_s)]
    for point in series.points:
        if point.devices > base.devices:
            expectation = _at(point, series, compute_s, baselines)
            expectations += [expectation] if expectation else []
    return expectations if len(expectations) > 1 else []


def _at(
    point: Point, series: Series, compute_s: float, baselines: Sequence[Row]
) -> Expected | None:
    base = series.base
    run = point.runs[0]
    step_exchange_s = exchange_s(run, baselines)
    if base is None or step_exchange_s is None or is_absent(run.get("global_batch")):
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

    Args:
        run: a row of the table of runs.
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

    Args:
        run: a row of the table of runs.
        column: of the baselines: time_s, the median over rounds, or time_low_s or time_high_s.
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

    Args:
        times_s: {bytes: seconds}, at least one.
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
