"""Scores of trained networks on held-out items against the number of devices."""

from pathlib import Path

import numpy as np

from dlbench.analysis.estimates import Estimate
from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.log import event_fields

CATEGORY = "Learning"
CAPTION = """
Score of the last evaluation on held-out items: the share whose best class is right (top 1), else
intersection over union of masks, else perplexity (the lower the better). Every small point is
one run; the line goes through the arithmetic means over repeats. The batch per device is fixed in
a series, so the global batch grows with the devices. A cross stands for runs that failed. Hollow
points are published numbers.
"""
SCORES = {"top1": "top-1 accuracy", "iou": "intersection over union", "perplexity": "perplexity"}


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    scored = runs[[*SCORES]].notna().any(axis=1)
    learning = runs["epochs"].notna() & ~runs["status"].isin(event_fields.SUCCEEDED)
    panels = {
        (*key, next((score for score in SCORES if _has(all_series, score)), "top1")): all_series
        for key, all_series in series.series_along("devices", runs[scored | learning]).items()
    }
    charts.draw(stem, panels, _paint, "no run of this study was evaluated", size=(4.8, 3.6))


def _has(all_series, score):
    return any(s.runs[score].notna().any() for s in all_series)


def _paint(axis, key, all_series):
    model, dataset, score = key
    ends = charts.lines(axis, all_series, lambda s: _means(s, score))
    for number, line in enumerate(all_series):
        for devices, values in line.repeats(score):
            x = styles.side_by_side([devices] * len(values), number, len(all_series))
            marks = charts.marks(line) | {"linestyle": "none", "markersize": 3.5, "alpha": 0.6}
            axis.plot(x, values, zorder=2, **marks)
    if ends and score != "perplexity":
        axis.yaxis.set_major_formatter(styles.percent)
    axis.set_ylabel(SCORES[score])
    axis.set_xlabel("devices")
    batch = series.common((s.runs for s in all_series), ("epochs", "batch_per_device"))
    subtitle = " \u00b7 ".join(filter(None, [batch, "small: single runs"]))
    styles.heading(axis, f"{model} \u00b7 {dataset}", subtitle)
    return ends


def _means(line, score):
    return [
        (x, Estimate(float(np.mean(values)), np.nan, np.nan, len(values)))
        for x, values in line.repeats(score)
    ]
