"""Energy per image against throughput: which conditions no other one beats in both."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.patheffects import withStroke

from dlbench.analysis import estimates
from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.drawing.figures import energy as energies

CATEGORY = "Energy"
CAPTION = """
Energy per image against throughput: further right is faster, further down takes less energy. Each
point is a condition, the geometric means over its repeats, with 95 % intervals of both (Student's t
on the logarithm); a line joins the numbers of devices of one series, which stand beside the points.
The grey steps are the Pareto front: no condition is both faster and takes less energy than a point
on it. It follows the means alone; where intervals overlap, the order may be chance. The energy is
that of all GPUs if the study knows it, else that of the whole node, else that of the processors and
their memory: the title says which. Runs that failed, and those whose energy is not known, are not
drawn.
"""
ROOM = 1.25  # beside the outermost points, a factor
Point = tuple[float, float]


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    kind = energies.kind_of(runs)
    panels = {}
    if kind is not None:
        energy = energies.per_image(kind)
        known = runs[runs[energy].gt(0) & runs["images_per_second"].gt(0)]
        known = known.assign(energy=known[energy], whose=energies.KINDS[kind])
        panels = series.series_along("devices", known)
    charts.draw(stem, panels, _paint, energies.NO_ENERGY, columns=2, size=(5.2, 3.9))


def pareto(points: list[Point]) -> list[Point]:
    """The points (throughput, energy) that no other one beats in both, the slowest first.

    >>> pareto([(10, 5.0), (20, 4.0), (30, 7.0), (25, 8.0)])
    [(20, 4.0), (30, 7.0)]
    """
    front: list[Point] = []
    for rate, joules in sorted(points, key=lambda point: (-point[0], point[1])):
        if not front or joules < front[-1][1]:
            front.append((rate, joules))
    return front[::-1]


def _paint(axis: Any, key: Any, all_series: list[series.Series]) -> list[charts.End]:
    unit = series.rate_unit(all_series)
    ends, drawn = [], []
    several = len({count for line in all_series for count in line.runs["devices"]}) > 1
    around = {"path_effects": [withStroke(linewidth=2.5, foreground="white")]}
    for line in all_series:
        points = _points(line, unit)
        if not points:
            continue
        looks = charts.marks(line) | {"lw": 1.2}
        for _, rate, joules in points:
            axis.plot([rate.low, rate.high], [joules.value] * 2, color=looks["color"], lw=1)
            axis.plot([rate.value] * 2, [joules.low, joules.high], color=looks["color"], lw=1)
        positions = [(rate.value, joules.value) for _, rate, joules in points]
        axis.plot(*zip(*positions, strict=True), zorder=3, **looks)
        for (devices, *_), position in zip(points, positions, strict=True):
            if several:
                styles.write(axis, str(devices), position, (5, 4), fontsize=7.5, **around)
        drawn += positions
        ends.append((*positions[-1], line))
    runs = pd.concat([line.finished for line in all_series])
    styles.logarithmic(axis.xaxis)
    styles.logarithmic(axis.yaxis)
    _limits(axis, drawn)
    _front(axis, pareto(drawn))
    axis.set_xlabel(f"{unit.plural} / s")
    axis.set_ylabel(f"J / {unit.item}")
    axis.yaxis.set_major_formatter(styles.significant)
    notes = [f"energy of {runs['whose'].iloc[0]}", energies.flagged(runs)]
    if several:
        notes.append("numbers: devices")
    notes.append("grey: Pareto front")
    styles.heading(axis, " \u00b7 ".join(map(str, key)), " \u00b7 ".join(filter(None, notes)))
    return ends


def _points(line, unit):
    """[(devices, throughput, energy), ...], both as Estimates."""
    runs = series.rated(line.finished, unit)
    scale = runs["images_per_second"] / runs["rate"]  # items in one of what the panel counts
    runs = runs.assign(energy=runs["energy"] * scale)
    return [
        (devices, *(estimates.mean(repeats[name].tolist()) for name in ("rate", "energy")))
        for devices, repeats in runs.groupby("devices")
    ]


def _limits(axis, drawn):
    for name, values in zip("xy", zip(*drawn, strict=True), strict=True):
        low, high = getattr(axis, f"get_{name}lim")()
        limits = min(low, min(values) / ROOM), max(high, max(values) * ROOM)
        getattr(axis, f"set_{name}lim")(*limits)


def _front(axis, front):
    """The stairs, from edge to edge; right of them and below them is no point."""
    rates = [axis.get_xlim()[0], *(rate for rate, _ in front), front[-1][0]]
    joules = [front[0][1], *(joules for _, joules in front), axis.get_ylim()[1]]
    axis.step(rates, joules, where="pre", color=styles.GREY, lw=1.4, alpha=0.6, zorder=1)
