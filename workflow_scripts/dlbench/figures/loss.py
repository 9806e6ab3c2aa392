"""Training loss against epochs and against wall-clock time, one colour a combination."""

import numpy as np
from matplotlib.ticker import MaxNLocator

from dlbench import figure_style as style

CATEGORY = "Learning"
CAPTION = """
Training loss of the runs that train for epochs: every step of the first repeat (faint), its
running geometric mean over a fiftieth of the run (line), and the loss on held-out data before
training and after each epoch of every repeat (markers). Time counts from the start of the first
step, evaluations included; loading the framework and compiling lie before it.
"""
COMBINATION = (
    "model",
    "dataset",
    "strategy",
    "devices",
    "batch_per_device",
    "precision",
    "runtime",
)


def draw(tables, stem):
    runs = tables.runs
    runs = runs[runs["epochs"].notna() & runs["status"].isin(["ok", "unstable"])]
    evals = tables.evals
    groups = list(runs.groupby(list(COMBINATION), observed=True))
    names = [name for name in COMBINATION if runs[name].nunique() > 1] or ["devices"]
    with style.figure(2, width=5.4, height=3.8, sharey=True) as (figure, axes):
        by_epoch, by_time = axes[0]
        ends = [], []  # of the lines in the two panels
        for index, (_, repeats) in enumerate(groups):
            looks = style.looks(index)
            runs_logged = [(row, tables.steps(row["run_id"])) for _, row in repeats.iterrows()]
            first, steps = min(runs_logged, key=lambda logged: logged[0]["repeat"])
            label = _label(first, names)
            curves = _curve(by_epoch, by_time, steps, looks, label)
            for end, (x, y) in zip(ends, curves, strict=True):
                end.append((x, y, label, looks["color"]))
            for row, steps in runs_logged:
                held_out = evals[evals["run_id"] == row["run_id"]]
                since = held_out["t_s"] - _started_s(steps)
                for axis, x in ((by_epoch, held_out["epoch"]), (by_time, since)):
                    axis.plot(
                        x, held_out["loss"], looks["marker"], color=looks["color"], ms=3.5, mew=0
                    )
        if groups:
            by_epoch.set_yscale("log")
            by_epoch.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            by_epoch.yaxis.set_minor_formatter(style.NullFormatter())
            by_epoch.xaxis.set_major_locator(MaxNLocator(integer=True))
            by_epoch.set_xlim(0, max(x for x, *_ in ends[0]) * 1.01)
            by_time.set_xlim(left=0)
            style.name_series(by_time, ends[1])
            subtitle = ", ".join(
                f"{model} on {dataset}"
                for model, dataset in sorted(
                    {(r["model"], r["dataset"]) for _, r in runs.iterrows()}
                )
            )
        else:
            subtitle = "no run of this study trains for epochs"
        by_epoch.set_ylabel("loss")
        by_epoch.set_xlabel("epochs")
        by_time.set_xlabel("wall-clock time, s")
        style.heading(by_epoch, "Loss by epoch", subtitle)
        style.heading(by_time, "Loss by time", "line: training \u00b7 markers: held-out data")
        style.save(figure, stem)


def _curve(by_epoch, by_time, steps, looks, label):
    """Draw the loss of one run, the mean over its ranks, raw and smoothed.

    Returns:
        The last (x, y) of the smoothed line in both axes.
    """
    merged = steps.groupby("step").agg({"loss": "mean", "t_s": "max", "epoch": "first"})
    epochs = merged.index / (len(merged) / merged["epoch"].max())
    since = merged["t_s"] - _started_s(steps)
    window = max(1, len(merged) // 50)
    smooth = np.exp(np.log(merged["loss"]).rolling(window, min_periods=1, center=True).mean())
    for axis, x in ((by_epoch, epochs), (by_time, since)):
        axis.plot(x, merged["loss"], color=looks["color"], alpha=0.2, lw=0.6)
        axis.plot(
            x, smooth, color=looks["color"], linestyle=looks["linestyle"], label=label, zorder=3
        )
    return [(x[-1], smooth.iloc[-1]) for x in (np.asarray(epochs), np.asarray(since))]


def _started_s(steps):
    """When the first step began, on the clock of the log."""
    first = steps.iloc[0]
    return first["t_s"] - first["step_time_s"]


def _label(row, names):
    words = {
        "devices": lambda n: f"{n} device{'s' if n > 1 else ''}",
        "batch_per_device": lambda n: f"batch {n}",
    }
    return ", ".join(str(words.get(name, str)(row[name])) for name in names)
