"""Throughput and parallel efficiency against the number of devices."""

import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from dlbench.analysis import base_flags, limits, scaling_series
from dlbench.analysis.frames import Tables
from dlbench.common import phrases
from dlbench.drawing import charts, styles
from dlbench.drawing.series import Series, condition_label, differing_settings
from dlbench.study import wording

CATEGORY = "Scaling"
BASELINES = "beside"
NONE_WELL = "no run completed"
NOTE_LINE = 62  # characters
MAX_INTERVAL = 2.0  # by what factor the axis goes beyond points and lines for intervals
EXPECTED = "dotted: predicted from computation and the measured all-reduce"
CAPTION = """
Weak scaling: the batch per device is fixed, so the global batch grows with the devices. Strong
scaling: the global batch is fixed, so each device has the less of it the more there are.
Points are geometric means over repeats, each run one value; bars and bands are 95 % intervals
(Student's t, and Welch's t for ratios, on the logarithm of the throughput); bars cut off at the
edge of the panel go further. The dashed line is the base times the number of devices. The base of a
series is its own runs on the fewest devices; a series without runs on one device takes those of
another strategy, which is marked with a ring and named. A cross stands for runs that failed, with
how many and why. Hollow points are published numbers. A star marks points of unstable runs, whose
steps stalled or which other processes disturbed. Half-filled: point and base were never run in one
session (start of the workflow), and drift between their sessions may exceed the margin. Where the
drift is estimated, the speedup is corrected for it and has its uncertainty.
Dotted, where the baselines of the machine were measured (`snakemake baselines`): predicted from the
base: its computation time plus the measured time of an all-reduce of the gradients, without
overlap (limits.py).
"""


def draw(tables: Tables, stem: Path | str) -> None:
    runs = tables.runs
    # A publication that states no mode is about training.
    runs = runs[(runs["mode"].isna() | (runs["mode"] == "train")) & runs["epochs"].isna()]
    rows = runs.to_dict("records")
    well = scaling_series.series_from_table(tables.speedups.to_dict("records"), rows)
    panels = _panels(scaling_series.planned_series(rows, well))
    if not panels:
        styles.draw_message(stem, "no series on more than one device")
        return
    baselines = tables.baselines.to_dict("records")
    with styles.figure(2, len(panels), width=5.2) as (figure, axes):
        for row, panel in zip(axes, panels, strict=True):
            _panel(row, panel, baselines)
        if note := styles.star_note(figure):
            styles.note_below(figure, note)
        styles.save(figure, stem)


def _panels(tried):
    """The series of each panel: those of one kind, model and dataset."""
    panels = {}
    for tried_series in tried:
        key = (tried_series.kind, tried_series.row["model"], tried_series.row["dataset"])
        panels.setdefault(key, []).append(tried_series)
    return list(panels.values())


@dataclass(frozen=True)
class _Drawn:
    """How one series of several is drawn; `series` has its completed runs, or is None.

    `expected` is what the baselines of its machine say of it.
    """

    own: Series
    count: int
    series: scaling_series.Series | None
    expected: list[limits.Expected]

    @property
    def color(self):
        return styles.looks(self.own.index)["color"]

    @property
    def points(self):
        return self.series.points if self.series else []

    @property
    def linear(self):
        """Throughputs of the base and, in proportion to devices, of the last point; or None."""
        base = self.series and self.series.base
        if not base:
            return None
        rate = base.throughput.value
        return [rate, rate * self.points[-1].devices / base.devices]

    def draw_expected(self, axes, value):
        """Draw a number of what is expected, if anything is, as a dotted line."""
        if not self.expected:
            return
        x = self.x([one.devices for one in self.expected])
        y = [getattr(one, value) for one in self.expected]
        axes.plot(x, y, color=self.color, linestyle=":", linewidth=1.8, zorder=2.5)

    def x(self, devices):
        return styles.side_by_side(devices, self.own.index, self.count)

    def line(self, axes, points):
        """Draw (Point, Estimate) pairs. Returns the end of the line, or None."""
        x = self.x([point.devices for point, _ in points])
        values = [estimate.value for _, estimate in points]
        axes.plot(x, values, label=self.own.name, zorder=3, **charts.marks(self.own))
        for at, (point, estimate) in zip(x, points, strict=True):
            if np.isfinite(estimate.low):
                axes.plot(
                    [at, at], [estimate.low, estimate.high], color=self.color, lw=1.4, zorder=2
                )
            if base_flags.APART in point.mismatch:
                styles.half(axes, at, estimate.value, styles.looks(self.own.index), zorder=3.5)
            if any(run["status"] == "unstable" for run in point.runs):
                styles.star(axes, at, estimate.value, self.color)
        return (x[-1], values[-1]) if points else None


def _drawn(panel, baselines):
    # Only what crosses and hollow points are made from.
    columns = ["devices", "status", "timing_source"]
    return [
        _Drawn(
            Series(label, index, "devices", pd.DataFrame(one.runs, columns=columns)),
            len(panel),
            one.series,
            limits.expected(one.series, baselines) if one.series else [],
        )
        for index, (one, label) in enumerate(zip(panel, _labels(panel), strict=True))
    ]


def _panel(axes, panel, baselines):
    kind, first = panel[0].kind, panel[0].row
    series = _drawn(panel, baselines)
    unit = wording.rate_unit({one.row.get("item_shape") for one in panel}, one_factor=True)
    _throughputs(axes[0], series, unit)
    _efficiencies(axes[1], series)
    kinds = {one.row["device_kind"] for one in panel}
    kind_of_device = first["device_kind"] if len(kinds) == 1 else None
    devices = phrases.plural(wording.device(kind_of_device), 2)
    for axis in axes:
        axis.set_xlabel(devices)
    subtitles = (
        f"{first['dataset']}, {_fixed_label(kind, panel)} \u00b7 {_line_legend(series)}",
        _notes(series),
    )
    lines = max(subtitle.count("\n") for subtitle in subtitles)
    titles = f"Throughput \u00b7 {first['model']}", "Parallel efficiency"
    for axis, title, subtitle in zip(axes, titles, subtitles, strict=True):
        # As many lines in both: titles stand side by side.
        styles.heading(axis, title, subtitle + "\n" * (lines - subtitle.count("\n")))


def _line_legend(series):
    """What the dashed and the dotted lines are."""
    if not any(drawn.points for drawn in series):
        return NONE_WELL
    if any(drawn.expected for drawn in series):
        return "\n".join(("dashed: linear from the base", EXPECTED))
    return "dashed: linear from the base"


def _notes(series):
    """Notes on the efficiencies: whose base differs, and how many series have none."""
    mismatches = [(drawn.own.name, drawn.series.mismatch) for drawn in series if drawn.series]
    names_by_clause = {}
    for name, keys in mismatches:
        differs = [key for key in keys if key != base_flags.APART]
        if differs:
            clause = base_flags.clause(", ".join(differs), "point and base")
            names_by_clause.setdefault(clause, []).append(name)
    notes = [
        textwrap.fill(f"{', '.join(filter(None, names))}: {clause}".removeprefix(": "), NOTE_LINE)
        for clause, names in names_by_clause.items()
    ]
    notes = notes or ["speedup / devices \u00b7 bars: 95 % CI"]
    if any(base_flags.APART in keys for _, keys in mismatches):
        notes.append("half-filled: measured apart from the base")
    alone = sum(drawn.series.base is None for drawn in series if drawn.series)
    if alone:
        notes.append(f"no efficiency of {alone} series: {scaling_series.ONE_COUNT} completed")
    return "\n".join(notes)


def _throughputs(axes, series, unit):
    ends = [_throughput(axes, drawn) for drawn in series]
    _devices(axes, series)
    styles.logarithmic(axes.yaxis)
    styles.scale_labels(axes.yaxis, unit.per_item)
    axes.set_ylabel(f"{unit.plural} / s")
    _leave_out_far_ends(axes, series)
    if not any(ends):
        axes.set_yticks([])
    # What has crosses only is named beside them.
    corner = axes.get_xlim()[1], axes.get_ylim()[0]
    names = [
        (*(end or corner), drawn.own.name, drawn.color)
        for drawn, end in zip(series, ends, strict=True)
    ]
    styles.name_series(axes, names)


def _leave_out_far_ends(axes, series):
    """Let intervals that reach far beyond points and dashed lines go on outside."""
    rates = [point.throughput.value for drawn in series for point in drawn.points]
    rates += [drawn.linear[1] for drawn in series if drawn.linear]
    if rates:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, min(rates) / MAX_INTERVAL), min(high, MAX_INTERVAL * max(rates)))


def _throughput(axes, drawn):
    base = drawn.series and drawn.series.base
    if base:
        rate = base.throughput.value
        axes.plot(
            drawn.x([base.devices, drawn.points[-1].devices]),
            drawn.linear,
            color=drawn.color,
            linestyle="--",
            linewidth=1.2,
            alpha=0.6,
            zorder=1,
        )
        if base.borrowed:
            axes.plot(drawn.x(base.devices), rate, "o", ms=13, mfc="none", mec=drawn.color, mew=1.6)
    drawn.draw_expected(axes, "images_per_second")
    return drawn.line(axes, [(point, point.throughput) for point in drawn.points])


def _efficiencies(axes, series):
    for drawn in series:
        drawn.draw_expected(axes, "efficiency")
        drawn.line(axes, [(point, point.efficiency) for point in drawn.points if point.efficiency])
    axes.axhline(1, color=styles.GREY, linestyle="--", linewidth=1.2, zorder=1)
    _devices(axes, series)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    values = [p.efficiency.value for drawn in series for p in drawn.points if p.efficiency]
    low, high = axes.get_ylim()
    most = MAX_INTERVAL * max(values, default=1.0)
    axes.set_ylim(min(0.5, max(0.0, low)), max(1.05, min(high, most)))


def _devices(axes, series):
    """Crosses where runs failed, and a tick at every number of devices."""
    failed = charts.failures(axes, [drawn.own for drawn in series])
    values = [1, *(point.devices for drawn in series for point in drawn.points), *failed]
    styles.powers(axes.xaxis, values)
    if failed:
        axes.set_xlim(min(values) / charts.X_ROOM, max(values) * charts.X_ROOM)
        axes.margins(y=0.3)


def _labels(panel):
    """The names of the series of a panel: the settings in which they differ.

    The launcher is named only if series differ in nothing else.
    """
    first = ("strategy", "strategy_options", "site", "timing_source")
    names = dict.fromkeys((*first, scaling_series.FIXED[panel[0].kind], *scaling_series.SERIES))
    rows = pd.DataFrame([{name: one.row.get(name) for name in names} for one in panel])
    differing = differing_settings(rows, [name for name in names if name != "launcher"])
    rows = [pd.Series(one.row) for one in panel]
    labels = [condition_label(row, differing or ["strategy"]) for row in rows]
    if len(set(labels)) == len(labels):
        return labels
    return [f"{label}, {row['launcher']}" for label, row in zip(labels, rows, strict=True)]


def _fixed_label(kind, panel):
    """As in `weak scaling, 64 per device`."""
    fixed = {series.row[scaling_series.FIXED[kind]] for series in panel}
    if len(fixed) > 1 or None in fixed:
        return f"{kind} scaling"
    return f"{kind} scaling, {fixed.pop()} {'per device' if kind == 'weak' else 'in all'}"
