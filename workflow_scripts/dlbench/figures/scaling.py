"""Throughput and parallel efficiency against the number of devices."""

import numpy as np

from dlbench import figure_style as style
from dlbench import statistics

CATEGORY = "Scaling"
CAPTION = """
Weak scaling: the batch per device is fixed, so the global batch grows with the devices.
Points are geometric means over repeats, one run each; bars and bands are 95 % intervals
(Student's t, and Welch's t for ratios, on the logarithm of the throughput). The dashed line is
the base times the number of devices. The base of a series is its own run on the fewest devices;
a series without one borrows that of another strategy, which is marked with a ring and named.
"""
SERIES = ("model", "dataset", "batch_per_device", "precision", "strategy", "runtime")


def draw(tables, stem):
    runs = tables.runs
    runs = runs[(runs["mode"] == "train") & runs["epochs"].isna()]
    done = runs[runs["status"].isin(["ok", "unstable"])]
    scaled = done.groupby(list(SERIES), observed=True)["devices"].transform("max") > 1
    panels = [
        (key, group) for key, group in done[scaled].groupby(["model", "dataset"], observed=True)
    ]
    with style.figure(2, max(1, len(panels)), width=5.2) as (figure, axes):
        if not panels:
            _say_nothing(axes[0])
        for row, ((model, dataset), group) in zip(axes, panels, strict=False):
            _panel(row, model, dataset, group, done)
        style.save(figure, stem)


def _panel(axes, model, dataset, group, done):
    throughput, efficiency = axes
    kind = {"cpu": "CPU devices", "gpu": "GPUs"}[group["device_kind"].iloc[0]]
    notes = []
    names = [name for name in SERIES[2:] if group[name].nunique() > 1]
    for index, (_, series) in enumerate(group.groupby(list(SERIES[2:]), observed=True)):
        looks = style.looks(index)
        label = _label(series.iloc[0], names)
        base, borrowed = _base(series, done)
        if borrowed:
            notes.append(f"{label}: base differs in {', '.join(borrowed)}")
        _throughput(throughput, series, base, borrowed, looks, label)
        _efficiency(efficiency, series, base, looks)
    devices = group["devices"]
    for axis in (throughput.xaxis, efficiency.xaxis):
        style.powers(axis, [1, *devices])
    throughput.set_yscale("log")
    throughput.yaxis.set_major_formatter(style.thousands)
    throughput.yaxis.set_minor_formatter(style.thousands)
    throughput.set_ylabel("images / s")
    throughput.set_xlabel(kind)
    throughput.legend(loc="best")
    style.heading(
        throughput,
        f"Throughput \u00b7 {model}",
        f"{dataset}, weak scaling \u00b7 dashed: linear from the base",
    )
    efficiency.axhline(1, color=style.GREY, linestyle="--", linewidth=1.2, zorder=1)
    efficiency.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    efficiency.set_xlabel(kind)
    efficiency.set_ylim(bottom=min(0.5, efficiency.get_ylim()[0]), top=1.05)
    style.heading(
        efficiency,
        "Parallel efficiency",
        "\n".join(notes) or "speedup / devices \u00b7 bars: 95 % CI",
    )


def _throughput(axes, series, base, borrowed, looks, label):
    points = [
        (devices, statistics.mean(repeats["images_per_second"]))
        for devices, repeats in series.groupby("devices")
    ]
    _line(axes, points, looks, label)
    base_devices, base_runs = base
    rate = statistics.mean(base_runs["images_per_second"]).value
    most = max(devices for devices, _ in points)
    axes.plot(
        [base_devices, most],
        [rate, rate * most / base_devices],
        color=looks["color"],
        linestyle="--",
        linewidth=1.2,
        alpha=0.6,
        zorder=1,
    )
    if borrowed:
        axes.plot(base_devices, rate, "o", ms=13, mfc="none", mec=looks["color"], mew=1.6)


def _efficiency(axes, series, base, looks):
    base_devices, base_runs = base
    points = []
    for devices, repeats in series.groupby("devices"):
        ratio = statistics.ratio(repeats["images_per_second"], base_runs["images_per_second"])
        share = base_devices / devices
        own_base = devices == base_devices and repeats.index.equals(base_runs.index)
        low, high = (np.nan, np.nan) if own_base else (ratio.low * share, ratio.high * share)
        points.append((devices, statistics.Estimate(ratio.value * share, low, high, ratio.runs)))
    _line(axes, points, looks)


def _line(axes, points, looks, label=None):
    devices = [devices for devices, _ in points]
    values = [estimate.value for _, estimate in points]
    axes.plot(devices, values, label=label, zorder=3, **looks)
    for x, estimate in points:
        if np.isfinite(estimate.low):
            axes.plot([x, x], [estimate.low, estimate.high], color=looks["color"], lw=1.4, zorder=2)


def _base(series, done):
    """((devices, runs) of the base, what it differs in from the series)."""
    fewest = series["devices"].min()
    own = series[series["devices"] == fewest]
    if fewest == 1:
        return (1, own), []
    row = own.iloc[0]
    same = done[
        (done["devices"] == 1)
        & np.logical_and.reduce([done[key] == row[key] for key in SERIES if key != "strategy"])
    ]
    if same.empty:
        return (fewest, own), []
    same = same[same["strategy"] == same["strategy"].iloc[0]]
    return (1, same), statistics.base_mismatch(row, same.iloc[0])


def _label(row, names):
    parts = [str(row["strategy"])] if "strategy" in names or not names else []
    parts += [f"batch {row['batch_per_device']}"] if "batch_per_device" in names else []
    parts += [str(row[name]) for name in names if name in ("precision", "runtime")]
    return ", ".join(parts)


def _say_nothing(axes):
    for axis in axes:
        axis.axis("off")
    axes[0].text(0, 0.5, "no series on more than one device", color=style.GREY)
