"""Utilisation of devices during a run, one strip for each condition."""

from pathlib import Path

import numpy as np
import pandas as pd

from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles

CATEGORY = "Steps"
CAPTION = """
How busy the devices of a run were, in samples taken about once a second from its start to its
end; compiling and evaluations are in it. Each strip is the first repeat of a condition and
reaches from 0 to 100 %: the line is the mean over devices, the dark area the least busy device.
Of GPUs it is the share of time in which a kernel ran; of CPU devices the CPU time of the process,
over that of the cores it may use. At the right the mean over the run.
"""
HEIGHT = 0.8  # of a strip, where rows are 1 apart
COLOUR = styles.COLOURS[0]


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    groups = series.conditions(runs)
    if not groups:
        styles.draw_message(stem, "no run of this study was started")
        return
    text = "strips from 0 to 100 % \u00b7 line: mean over devices \u00b7 dark: least busy device"
    with charts.figure(stem, groups, "Device utilisation", text) as (rows, axes):
        drawn = [(row, _first(tables, row)) for row in rows]
        longest = max((busy.index[-1] for _, busy in drawn if busy is not None), default=1.0)
        unit, seconds = styles.time_unit(longest)
        for row, busy in drawn:
            if busy is None:
                charts.annotate_row(axes, row, "not sampled", color=styles.GREY)
            else:
                _strip(axes, row.y - HEIGHT / 2, busy, seconds)
                mean = busy["mean"].mean()
                charts.annotate_row(axes, row, f"{mean:.0f} %", fontweight="bold")
        axes.set_xlim(0, longest / seconds)
        axes.set_xlabel(f"time since the start of the run, {unit}")
        if all(busy is None for _, busy in drawn):
            axes.set_xticks([])


def _first(tables, row):
    """The utilisation of the first repeat that finished; None where it was not sampled."""
    for _, run in row.finished.sort_values("repeat")[:1].iterrows():
        return utilisation(tables.samples(run["run_id"]), run)
    return None


def utilisation(samples: pd.DataFrame, run: pd.Series) -> pd.DataFrame | None:
    """Per cent over time: a data frame of `mean` and `least` over devices, or None.

    All devices at the times of the first one, since processes sample in their own time.
    """
    measured = samples[samples["utilisation_percent"].notna()]
    names, cores = ["rank", "gpu"], 1
    values = "utilisation_percent"
    if measured.empty:
        measured, names, values = samples[samples["cpu_percent"].notna()], ["rank"], "cpu_percent"
        ranks = max(1, measured["rank"].nunique())
        cores = run["threads_per_device"] * run["devices"] * run["copies_per_node"] / ranks
    devices = [d.sort_values("t_s") for _, d in measured.groupby(names, observed=True)]
    if not devices or len(devices[0]) < 2:
        return None
    at = devices[0]["t_s"].to_numpy()
    each = [np.interp(at, device["t_s"], device[values] / cores) for device in devices]
    return pd.DataFrame({"mean": np.mean(each, axis=0), "least": np.min(each, axis=0)}, index=at)


def _strip(axes, bottom, busy, seconds):
    x = busy.index.to_numpy(dtype=float) / seconds
    mean, least = (bottom + HEIGHT * busy[name].to_numpy() / 100 for name in ("mean", "least"))
    axes.plot([0, x[-1]], [bottom, bottom], color=styles.GREY, lw=0.6, zorder=1)
    axes.fill_between(x, bottom, mean, color=COLOUR, alpha=0.22, lw=0, zorder=1)
    axes.fill_between(x, bottom, np.minimum(least, mean), color=COLOUR, alpha=0.25, lw=0, zorder=1)
    axes.plot(x, mean, color=COLOUR, lw=1.2, zorder=2)
