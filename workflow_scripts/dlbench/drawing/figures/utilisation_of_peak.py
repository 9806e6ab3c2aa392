"""Achieved FLOP/s against arithmetic intensity, below the roofs of each device."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles

CATEGORY = "Utilisation"
CAPTION = """
Achieved FLOP/s against arithmetic intensity, for each device and precision. Achieved FLOP/s are
those of the model's matrix products and convolutions for the items that a device trains in a
second; data loading and element-wise operations take time, but their FLOPs are not counted.
Arithmetic intensity is the FLOPs of these products over the bytes that they read and write, each
product by itself, weights once a batch. A point is a run; runs of one colour differ in their batch
alone. The grey lines are the roofline of the device: the horizontal part is its peak rate of
products, the slope its memory bandwidth. Solid: measured on the device by the same framework;
dashed: stated by its maker or the site. Runs whose model has a layer without a rule for FLOPs,
failed and published runs are not drawn.
"""
PANEL = ("device_model", "precision")
X, Y = "arithmetic_intensity", "achieved_tflops_per_device"
# Level roof in TFLOP/s, slope in GB/s, looks, and whose it is.
ROOFS = (
    ("attainable_tflops", "attainable_gb_per_s", "-", "measured"),
    ("device_peak_tflops", "device_memory_gb_per_s", "--", "stated"),
)
ROOM = 1.6  # beside the outermost points, a factor


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    known = runs[runs[X].gt(0) & runs[Y].gt(0)] if len(runs) else runs
    panels = series.series_along("batch_per_device", known, PANEL) if len(known) else {}
    empty_message = "of no run is known what its model computes"
    charts.draw(stem, panels, _paint, empty_message, columns=2, size=(5.2, 3.9))


def _paint(axis, key, all_series):
    device, precision = key
    runs = pd.concat([s.finished for s in all_series])
    ends = []
    for line in all_series:
        x, y = (line.finished[name].to_numpy(dtype=float) for name in (X, Y))
        looks = charts.marks(line) | {"linestyle": "none", "markersize": 6, "alpha": 0.8}
        axis.plot(x, y, zorder=3, **looks)
        if len(x):
            ends.append((x[-1], y[-1], line))
    low, high = runs[X].min() / ROOM, runs[X].max() * ROOM
    drawn = [label for roof in ROOFS if (label := _roof(axis, runs, roof, low, high))]
    styles.logarithmic(axis.xaxis)
    styles.logarithmic(axis.yaxis)
    axis.set_xlim(low, high)
    axis.margins(y=0.12)
    axis.set_xlabel("arithmetic intensity, FLOP / byte")
    axis.set_ylabel("achieved per device, TFLOP / s")
    styles.heading(axis, f"{device} \u00b7 {precision}", _subtitle(runs, drawn))
    return ends


def _roof(axis: Any, runs: pd.DataFrame, roof: tuple[str, ...], low: float, high: float) -> str:
    """Draw one pair of roofs. Returns its label, "" if it is unknown."""
    level, slope, looks, source = roof
    tflops = runs[level].median()
    if not tflops > 0:
        return ""
    gigabytes = runs[slope].median()
    ridge = 1e3 * tflops / gigabytes if gigabytes > 0 else low
    x = np.array(sorted({low, high, min(max(ridge, low), high)}))
    y = np.minimum(tflops, x * gigabytes / 1e3) if gigabytes > 0 else np.full(len(x), tflops)
    axis.plot(x, y, looks, color=styles.GREY, lw=1.4, zorder=2)
    memory = f", {styles.significant(gigabytes)} GB/s" if gigabytes > 0 else ""
    return f"{source}: {styles.significant(tflops)} TFLOP/s{memory}"


def _subtitle(runs, roofs):
    shares = runs["mfu"].dropna() if runs["mfu"].notna().any() else runs["mfu_of_attainable"]
    shares = shares.dropna()
    subtitle = "; ".join(roofs) or "roofs unknown: see device_peak_source"
    if len(shares):
        share = "MFU" if runs["mfu"].notna().any() else "MFU of attainable"
        low, high = (styles.significant(100 * value) for value in (shares.min(), shares.max()))
        subtitle += f"\n{share}: {low} to {high} %" if low != high else f"\n{share}: {low} %"
    return subtitle
