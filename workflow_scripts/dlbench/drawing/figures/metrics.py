"""Metrics that programs name themselves: a panel for each, with a row for each condition."""

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.ticker import MaxNLocator

from dlbench.analysis import measures
from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.log.metrics import HIGHER, LOWER

CATEGORY = "Study"
CAPTION = """
Numbers that the programs of runs name themselves, by condition. Points are means over completed
repeats, each run one value, with 95 % intervals: geometric means with Student's t on the logarithm
or, of a metric with values of 0 or less, arithmetic means with Student's t. One run has no
interval. A metric whose unit or better direction differs between runs is not drawn. See the tables
metrics and comparisons.
"""
EMPTY_MESSAGE = "the programs of the runs name no metrics"
BETTER = {HIGHER: "higher is better", LOWER: "lower is better"}
NAME_CHARACTERS, AXES_INCHES, FRAME_INCHES = 34, 3.6, 1.25
MAX_PANELS, MAX_ROWS = 8, 24  # rows of each


def draw(tables: Tables, stem: Path | str) -> None:
    table = tables.metrics.to_dict("records")
    named = measures.named(table)
    runs = series.started_runs(tables.runs)
    panels = [
        (metric, _rows(runs, table, metric)) for metric in list(named.metrics.values())[:MAX_PANELS]
    ]
    panels = [(metric, rows) for metric, rows in panels if rows]
    if not panels:
        unlike = "; ".join(f"{name}: {why}" for name, why in named.unlike.items())
        styles.draw_message(stem, textwrap.fill(unlike or EMPTY_MESSAGE, 80))
        return
    names = [line for _, rows in panels for row in rows for line in row.name.split("\n")]
    width = AXES_INCHES + 1.3 + charts.NAME_INCHES * max(map(len, names))
    heights = [FRAME_INCHES + charts.ROW_INCHES * len(rows) for _, rows in panels]
    with styles.figure(1, width=width, heights=heights) as (drawn, axes):
        for axis, (metric, rows) in zip(axes.flat, panels, strict=True):
            _panel(axis, metric, rows)
        left_out = len(named.metrics) - len(panels)
        if left_out > 0 or named.unlike:
            notes = [f"{left_out} more metrics: see metrics.parquet"] if left_out > 0 else []
            notes += [f"not drawn: {name}: units differ" for name in named.unlike]
            styles.note_below(drawn, "\n".join(notes))
        styles.save(drawn, stem)


def _rows(runs, table, metric):
    """The rows of a panel, from the top, with the values of the metric as column `value`."""
    values = {one["run_id"]: one["value"] for one in table if one["name"] == metric.name}
    known = runs[runs["run_id"].isin(values)]
    known = known.assign(value=known["run_id"].map(values))
    groups = series.conditions(known)
    rows = [
        (f"{heading}: {name}" if len(groups) > 1 else name or "all runs", repeats)
        for (heading, _), conditions in groups.items()
        for name, repeats in conditions
    ][:MAX_ROWS]
    return [
        charts.Row(y, textwrap.fill(name, NAME_CHARACTERS), repeats)
        for y, (name, repeats) in zip(range(len(rows) - 1, -1, -1), rows, strict=True)
    ]


def _panel(axes, metric, rows):
    every = [value for row in rows for value in row.finished["value"]]
    of_runs = [{"status": "ok", metric.column: value} for value in every]
    mean = measures.mean_of(of_runs, metric)
    ends = []
    for row in rows:
        values = row.finished["value"].to_numpy(dtype=float)
        if not len(values):
            charts.annotate_row(axes, row, "")
            continue
        estimate = mean(values)
        ends += [estimate.value, *row.finished["value"]]
        charts.interval(axes, row.y, estimate, styles.COLOURS[0])
        charts.annotate_row(axes, row, f"{_number(estimate.value)} ({len(values)})")
    charts.style_rows(axes, [row.name for row in rows], fontsize=9)
    _scale(axes, ends, metric.unit)
    how = "arithmetic" if any(value <= 0 for value in every) else "geometric"
    notes = (BETTER.get(metric.direction, ""), f"{how} mean, 95 % interval, (runs)")
    styles.heading(axes, metric.name, ", ".join(filter(None, notes)))


def _scale(axes, values, unit):
    if values and min(values) > 0:
        charts.value_axis(axes, values, unit, lambda value, _=None: _number(value))
        return
    axes.set_xlabel(unit)
    axes.axvline(0, color=styles.GREY, lw=0.8, zorder=1)
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(6))


def _number(value):
    """Three digits, with a minus sign that typesetters use."""
    text = styles.significant(abs(value))
    return f"\u2212{text}" if value < 0 and not np.isclose(value, 0) else text
