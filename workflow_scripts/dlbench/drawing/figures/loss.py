"""Loss in training and on held-out items against steps, epochs and wall-clock time."""

from pathlib import Path

import numpy as np
from matplotlib.ticker import MaxNLocator

from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.tables import cells

CATEGORY = "Learning"
CAPTION = """
Training loss, mean over devices (upper panels). Where runs of the study train for epochs or are
scored on held-out items, only these are drawn; else all. A series is drawn by one run, the longest
that completed (of equally long ones the first): its single steps (faint; left out beyond 12
series) and their running geometric mean over a fiftieth of the run (line), at most 2000 points of
each. Where not all training runs of a model and dataset are drawn, the number of those that are
stands above the panel; the training loss of every run is in its steps.parquet. Loss on held-out
items (lower panels) before training and after each epoch, of every repeat. Time counts from the
start of the first step, evaluations included; loading the framework and compiling lie before it.
"""
AXES = ("steps", "epochs", "time")
MAX_POINTS = 2000  # of a line
MAX_RAW = 12  # series whose single steps are drawn
MAX_PANELS = 8  # models and datasets


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    runs = runs[(runs["mode"] == "train") & (runs["timing_source"] != cells.PUBLISHED)]
    trained = runs.groupby(["model", "dataset"], dropna=False).size()
    learning = runs["epochs"].notna() | (runs["evaluate"] == "yes")
    runs = runs[learning] if learning.any() else runs
    evals = tables.evals
    evals = evals[evals["run_id"].isin(runs["run_id"])]
    panels = dict(list(series.series_along(None, runs).items())[:MAX_PANELS])
    drawn = {k: [s for s in group if s.index < series.MAX_SERIES] for k, group in panels.items()}
    curves = {key: [_training(s, tables) for s in group] for key, group in drawn.items()}
    scored = set(evals[evals["loss"] > 0]["run_id"])
    drawn = {
        key: group
        for key, group in drawn.items()
        if any(c is not None for c in curves[key])
        or any(scored & set(s.finished["run_id"]) for s in group)
    }
    if not drawn:
        styles.draw_message(stem, "no training run of this study finished")
        return
    rows = 2 if scored else 1
    with styles.figure(3, rows * len(drawn), width=4.2, height=3.1) as (figure, axes):
        for number, (key, all_series) in enumerate(drawn.items()):
            panel_axes = axes[rows * number : rows * (number + 1)]
            with_curves = list(zip(all_series, curves[key], strict=True))
            shown = sum(curve is not None for _, curve in with_curves)
            note = f"{shown} of {trained[key]} runs drawn" if shown < trained[key] else ""
            _panel(panel_axes, key, with_curves, note, evals, tables)
        names = {s.name: s for all_series in drawn.values() for s in all_series}
        if len(names) > 1:
            total = len({s.index for group in panels.values() for s in group})
            note = f"{total - len(names)} of {total} series not drawn: see runs.parquet"
            charts.legend(figure, names.values(), note if total > len(names) else "")
        styles.save(figure, stem)


def _panel(axes, key, series_and_curves, note, evals, tables):
    """Draw one model and dataset, as many rows of axes as there are.

    `note`: how many of its runs are drawn.
    """
    held_out = axes[1] if len(axes) > 1 else None
    all_series, curves = zip(*series_and_curves, strict=True)
    training = [(line, c) for line, c in zip(all_series, curves, strict=True) if c is not None]
    longest = max((np.nanmax([0, *curve["time"]]) for _, curve in training), default=1.0)
    unit, seconds = styles.time_unit(longest)
    for line, curve in training:
        looks = charts.marks(line) | {
            "marker": "",
            "linewidth": 2 if len(training) <= 6 else 1.2,
        }
        curve["time"] = curve["time"] / seconds
        for axis, name in zip(axes[0], AXES, strict=True):
            if len(training) <= MAX_RAW:
                axis.plot(curve[name], curve["loss"], color=looks["color"], alpha=0.2, lw=0.6)
            axis.plot(curve[name], curve["smooth"], **looks)
        if held_out is not None:
            _held_out(held_out, line, evals, tables, seconds)
    for axis, name in zip(axes[-1], (*AXES[:2], f"wall-clock time, {unit}"), strict=True):
        axis.set_xlabel(name)
    model, dataset = key
    failed = sum(len(s.runs) - len(s.finished) for s in all_series)
    note = [note, f"{failed} of {sum(len(s.runs) for s in all_series)} failed" if failed else ""]
    note = " \u00b7 ".join(filter(None, ["training loss", *note]))
    styles.heading(axes[0][0], f"{model} \u00b7 {dataset}", note)
    if held_out is not None:
        styles.heading(axes[1][0], "", "loss on held-out items")
    _limits(axes)


def _limits(axes):
    """One logarithmic axis of losses for all panels, and room from the first step on."""
    low, high = np.array([a.dataLim.intervaly for a in axes.flat if _has_data(a)]).T
    for row in axes:
        for column, axis in enumerate(row):
            styles.logarithmic(axis.yaxis)
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
            axis.set_ylim(low.min() / 1.1, high.max() * 1.1)
            if not _has_data(axis):
                looks = {"color": styles.GREY, "ha": "center", "va": "center"}
                axis.annotate("not known", (0.5, 0.5), xycoords="axes fraction", **looks)
            axis.set_xlim(
                0, max((a.dataLim.xmax for a in axes[:, column] if _has_data(a)), default=1)
            )
            axis.xaxis.set_major_locator(MaxNLocator(5))
        row[0].set_ylabel("loss")


def _has_data(axis):
    """Whether something is drawn: of imported runs epochs or times may be unknown."""
    return axis.has_data() and bool(np.isfinite(axis.dataLim.get_points()).all())


def _training(line, tables):
    """Steps, epochs, time and losses of the longest run as arrays; None where no loss is known."""
    if not len(line.finished):
        return None
    longest = ["steps_measured", "repeat"]
    run = line.finished.sort_values(longest, ascending=[False, True], kind="stable").iloc[0]
    steps = tables.steps(run["run_id"])
    if not steps["loss"].gt(0).any():
        return None
    merged = steps.groupby("step").agg({"loss": "mean", "t_s": "max", "epoch": "first"})
    loss = merged["loss"].where(merged["loss"] > 0)
    window = max(1, len(merged) // 50)
    smooth = np.exp(np.log(loss).rolling(window, min_periods=1, center=True).mean())
    every = slice(None, None, -(-len(merged) // MAX_POINTS))
    # Of an imported run that completed the last step is that of the epochs asked for.
    epochs = merged["epoch"].max() if merged["epoch"].notna().any() else run["epochs"]
    columns = {
        "steps": merged.index,
        "epochs": merged.index * (float(epochs) / merged.index[-1]),
        # Within a window of steps only its end is known.
        "time": merged["t_s"].interpolate(limit_area="inside") - _started_s(steps),
        "loss": loss,
        "smooth": smooth,
    }
    return {name: np.asarray(values, dtype=float)[every] for name, values in columns.items()}


def _held_out(axes, one, evals, tables, seconds):
    looks = charts.marks(one) | {"markersize": 3.5, "linewidth": 0.9, "markeredgewidth": 0}
    for run_id in one.finished["run_id"]:
        own = evals[(evals["run_id"] == run_id) & (evals["loss"] > 0)]
        if len(own):
            own = own[own["split"].isna() | (own["split"] == own["split"].iloc[0])]  # of one set
            time = (own["t_s"] - _started_s(tables.steps(run_id))) / seconds
            for axis, x in zip(axes, (own["step"], own["epoch"], time), strict=True):
                axis.plot(x, own["loss"], **looks)


def _started_s(steps):
    """When the first step began, on the clock of the log; 0 where it does not say."""
    began_s = (steps["t_s"] - steps["step_time_s"]).iloc[:1]
    return began_s.iloc[0] if began_s.notna().any() else 0.0
