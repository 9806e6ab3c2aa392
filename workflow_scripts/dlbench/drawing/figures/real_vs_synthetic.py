"""The cost of reading real data: throughput on real and on synthetic items, in pairs."""

from pathlib import Path

import numpy as np
import pandas as pd

from dlbench.analysis import base_flags, comparisons, estimates
from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.log import event_fields
from dlbench.study import runs, wording
from dlbench.tables import cells

CATEGORY = "Comparisons"
CAPTION = """
Throughput of runs that read real items (circles) and of runs on synthetic ones that are equal in
all other settings and in the shape of an item (squares). Points are geometric means over repeats,
each run one value; the numbers are the difference of real from synthetic with Welch's 95 % interval
on the logarithm of the throughput. Of synthetic runs of several lengths those as long as the real
one count, or the longest. What else differs between the two, as the version of the framework, is
named. Runs on real items without a synthetic counterpart are drawn alone. Hollow points are
published. Half-filled: the two sides were never run in one session (start of the workflow), and
drift between their sessions may exceed the margin. Where the drift is estimated, the difference is
corrected for it and has its uncertainty.
"""
REAL, SYNTHETIC = (styles.COLOURS[0], "o"), (styles.COLOURS[1], "s")
FACTS = ("site", "framework_version", "device_model")


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    unit = wording.rate_unit(runs["item_shape"].unique())
    runs = series.rated(runs, unit)
    is_synthetic = runs["dataset"].map(comparisons.is_synthetic).astype(bool)
    real = runs[~is_synthetic]
    synthetic = runs[is_synthetic & runs["status"].isin(event_fields.SUCCEEDED)]
    groups = series.conditions(real)
    if not groups:
        styles.draw_message(stem, "no run of this study reads real items")
        return
    title, subtitle = "Real and synthetic items", "circle: real \u00b7 square: synthetic"
    with charts.figure(stem, groups, title, subtitle, 1.6) as (rows, axes):
        drift = tables.drift_of(runs)
        values = [value for row in rows for value in _row(axes, row, synthetic, drift)]
        charts.value_axis(axes, values, f"{unit.plural} / s")


def _row(axes, row, synthetic, drift):
    base, differs = _counterparts(row.runs.iloc[0], synthetic)
    published = (row.runs["timing_source"] == cells.PUBLISHED).all()
    timed = [runs.dropna(subset="images_per_second") for runs in (row.finished, base)]
    rates = [runs["rate"] for runs in timed]
    sides = drift.compare(*(t.to_dict("records") for t in timed)) if all(map(len, timed)) else None
    apart = bool(sides and sides.flags)
    means = []
    for values, (colour, marker) in zip(rates, (REAL, SYNTHETIC), strict=True):
        if len(values):
            means.append(estimates.mean(values))
            looks = {"mfc": "white", "mec": colour, "mew": 1.6} if published else {}
            charts.interval(axes, row.y, means[-1], colour, marker, **looks)
            if apart:
                looks = {"color": colour, "marker": marker}
                styles.half(axes, means[-1].value, row.y, looks, zorder=3.5)
    values = [estimate.value for estimate in means]
    if len(values) == 2:
        axes.plot(values, [row.y] * 2, color=styles.GREY, lw=1.2, zorder=1)
        note = base_flags.note(", ".join([*differs, *sides.flags]))
        charts.annotate_row(axes, row, _difference(sides.difference.ratio), note)
    else:
        shape = row.runs.iloc[0]["item_shape"]
        shape_text = "of an unknown shape" if pd.isna(shape) else f"of {shape}"
        charts.annotate_row(axes, row, f"no synthetic items {shape_text}", color=styles.GREY)
    return values


def _counterparts(row, synthetic):
    """(Synthetic runs equal in all settings, in which of FACTS they differ).

    If some of them differ in nothing, only these.
    """
    with_shape = synthetic[synthetic["item_shape"].notna()]
    alike = with_shape[_equal(row, with_shape, (*runs.SAME_SPEED, "item_shape"))]
    partners = comparisons.of_length(row, [partner for _, partner in alike.iterrows()])
    alike = alike.loc[[partner.name for partner in partners]]
    same = alike[_equal(row, alike, FACTS)]
    if len(same):
        return same, []
    return alike, [name for name in FACTS if not _equal(row, alike, [name]).all()]


def _equal(row, table, names):
    equal = np.ones(len(table), dtype=bool)
    for name in names:
        absent = pd.isna(row[name])
        equal &= (table[name].isna() if absent else table[name] == row[name]).to_numpy(dtype=bool)
    return equal


def _difference(ratio):
    numbers = [100 * (value - 1) for value in (ratio.value, ratio.low, ratio.high)]
    texts = list(map(styles.signed, numbers))
    return f"{texts[0]} %" + ("" if np.isnan(ratio.low) else f"  [{texts[1]}, {texts[2]}]")
