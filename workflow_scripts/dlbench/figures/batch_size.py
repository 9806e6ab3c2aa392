"""Throughput on one device against the batch size, a panel a model."""

import numpy as np

from dlbench import figure_style as style
from dlbench import statistics

CATEGORY = "Batch size"
CAPTION = """
Throughput of one device against its batch size, training steps, data loading included. Points
are geometric means over repeats, one run each; bars are 95 % intervals (Student's t on the
logarithm of the throughput). A cross stands for runs that failed, with the reason beside it.
"""
SERIES = ("dataset", "strategy", "precision", "runtime", "mode")


def draw(tables, stem):
    runs = tables.runs
    runs = runs[(runs["devices"] == 1) & runs["epochs"].isna() & (runs["status"] != "skipped")]
    sizes = runs.groupby(["model", *SERIES], observed=True)["batch_per_device"]
    runs = runs[sizes.transform("nunique") > 1]
    models = sorted(runs["model"].unique())
    names = [name for name in SERIES if runs[name].nunique() > 1]
    with style.figure(max(1, len(models)), width=4.2) as (figure, axes):
        if not models:
            axes[0, 0].axis("off")
            axes[0, 0].text(0, 0.5, "no series with several batch sizes", color=style.GREY)
        for axis, model in zip(axes[0], models, strict=False):
            _panel(axis, runs[runs["model"] == model], model, names)
        if models:
            axes[0, 0].set_ylabel("images / s")
        style.save(figure, stem)


def _panel(axis, runs, model, names):
    for index, (_, series) in enumerate(runs.groupby(list(SERIES), observed=True)):
        looks = style.looks(index)
        done = series[series["status"].isin(["ok", "unstable"])]
        points = [
            (size, statistics.mean(repeats["images_per_second"]))
            for size, repeats in done.groupby("batch_per_device")
        ]
        label = ", ".join(str(series.iloc[0][name]) for name in names)
        axis.plot([s for s, _ in points], [e.value for _, e in points], label=label, **looks)
        for size, estimate in points:
            if np.isfinite(estimate.low):
                axis.plot([size] * 2, [estimate.low, estimate.high], color=looks["color"], lw=1.4)
        for size in sorted(set(series["batch_per_device"]) - set(done["batch_per_device"])):
            status = series[series["batch_per_device"] == size]["status"].iloc[0]
            axis.plot(size, 0, "x", color=looks["color"], ms=8, mew=2, clip_on=False)
            axis.annotate(
                {"oom": "out of\nmemory"}.get(status, status),
                (size, 0),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=style.text_colour(looks["color"]),
            )
    style.powers(axis.xaxis, runs["batch_per_device"])
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(style.thousands)
    axis.set_xlabel("batch per device")
    if names:
        axis.legend(loc="best")
    what = {name: str(runs.iloc[0][name]) for name in SERIES if name not in names}
    style.heading(axis, model, ", ".join(what[n] for n in ("dataset", "strategy") if n in what))
