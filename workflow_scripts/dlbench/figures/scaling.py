"""Throughput and parallel efficiency against the number of devices."""

from dataclasses import dataclass

import numpy as np

from dlbench import figure_style as style
from dlbench import statistics

CATEGORY = "Scaling"
CAPTION = """
Weak scaling: the batch per device is fixed, so the global batch grows with the devices. Strong
scaling: the global batch is fixed, so each device has the less of it the more there are.
Points are geometric means over repeats, one run each; bars and bands are 95 % intervals
(Student's t, and Welch's t for ratios, on the logarithm of the throughput). The dashed line is
the base times the number of devices. The base of a series is its own run on the fewest devices;
a series without one borrows that of another strategy, which is marked with a ring and named.
"""
# What is fixed in a kind of scaling, and what else makes up a series.
FIXED = {"weak": "batch_per_device", "strong": "global_batch"}
SERIES = (
    "precision",
    "xla",
    "strategy",
    "strategy_options",
    "runtime",
    "runtime_options",
    "copies_per_node",
)


def draw(tables, stem):
    runs = tables.runs
    runs = runs[(runs["mode"] == "train") & runs["epochs"].isna()]
    done = runs[runs["status"].isin(["ok", "unstable"])]
    panels = [
        (kind, *key, group)
        for kind, fixed in FIXED.items()
        for key, group in _scaled(done, kind, fixed).groupby(["model", "dataset"], observed=True)
    ]
    with style.figure(2, max(1, len(panels)), width=5.2) as (figure, axes):
        if not panels:
            _say_nothing(axes[0])
        for row, panel in zip(axes, panels, strict=False):
            _panel(row, *panel, done)
        style.save(figure, stem)


def _scaled(done, kind, fixed):
    """The runs of series on several numbers of devices, or with a base that another lends."""
    groups = done.groupby(["model", "dataset", fixed, *SERIES], observed=True)["devices"]
    several = groups.transform("nunique") > 1
    if kind == "strong":
        return done[several]
    # A base that another strategy can lend: one device, all else alike.
    keys = ["model", "dataset", fixed, *(k for k in SERIES if not k.startswith("strategy"))]
    lent = done.groupby(keys, observed=True)["devices"].transform("min") == 1
    return done[several | (lent & (groups.transform("max") > 1))]


def _panel(axes, scaling, model, dataset, group, done):
    throughput, efficiency = axes
    devices = {"cpu": "CPU devices", "gpu": "GPUs"}[group["device_kind"].iloc[0]]
    keys = [FIXED[scaling], *SERIES]
    names = [name for name in keys if group[name].nunique() > 1]
    all_series = [series for _, series in group.groupby(keys, observed=True)]
    notes, ends = [], []
    for index, series in enumerate(all_series):
        drawn = _Drawn(style.looks(index), index, len(all_series), _label(series.iloc[0], names))
        base, borrowed = _base(series, done, keys)
        if borrowed:
            notes.append(f"{drawn.label}: base differs in {', '.join(borrowed)}")
        ends.append(_throughput(throughput, series, base, borrowed, drawn))
        _efficiency(efficiency, series, base, drawn)
    for axis in (throughput.xaxis, efficiency.xaxis):
        style.powers(axis, [1, *group["devices"]])
    style.logarithmic(throughput.yaxis)
    throughput.set_ylabel("images / s")
    throughput.set_xlabel(devices)
    style.name_series(throughput, ends)
    style.heading(
        throughput,
        f"Throughput \u00b7 {model}",
        f"{dataset}, {_fixed_words(scaling, group)} \u00b7 dashed: linear from the base",
    )
    efficiency.axhline(1, color=style.GREY, linestyle="--", linewidth=1.2, zorder=1)
    efficiency.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    efficiency.set_xlabel(devices)
    low, high = efficiency.get_ylim()
    efficiency.set_ylim(min(0.5, low), max(1.05, high))
    style.heading(
        efficiency,
        "Parallel efficiency",
        "\n".join(notes) or "speedup / devices \u00b7 bars: 95 % CI",
    )


@dataclass(frozen=True)
class _Drawn:
    """How one series of several is drawn."""

    looks: dict
    index: int
    count: int
    label: str

    @property
    def color(self):
        return self.looks["color"]

    def x(self, devices):
        return style.side_by_side(devices, self.index, self.count)

    def line(self, axes, points):
        """Draw (devices, Estimate) points. Returns the end of the line, for its name."""
        x = self.x([devices for devices, _ in points])
        values = [estimate.value for _, estimate in points]
        axes.plot(x, values, label=self.label, zorder=3, **self.looks)
        for at, (_, estimate) in zip(x, points, strict=True):
            if np.isfinite(estimate.low):
                axes.plot(
                    [at, at], [estimate.low, estimate.high], color=self.color, lw=1.4, zorder=2
                )
        return x[-1], values[-1], self.label, self.color


def _throughput(axes, series, base, borrowed, drawn):
    points = [
        (devices, statistics.mean(repeats["images_per_second"]))
        for devices, repeats in series.groupby("devices")
    ]
    base_devices, base_runs = base
    rate = statistics.mean(base_runs["images_per_second"]).value
    most = max(devices for devices, _ in points)
    axes.plot(
        drawn.x([base_devices, most]),
        [rate, rate * most / base_devices],
        color=drawn.color,
        linestyle="--",
        linewidth=1.2,
        alpha=0.6,
        zorder=1,
    )
    if borrowed:
        axes.plot(drawn.x(base_devices), rate, "o", ms=13, mfc="none", mec=drawn.color, mew=1.6)
    return drawn.line(axes, points)


def _efficiency(axes, series, base, drawn):
    base_devices, base_runs = base
    points = []
    for devices, repeats in series.groupby("devices"):
        ratio = statistics.ratio(repeats["images_per_second"], base_runs["images_per_second"])
        share = base_devices / devices
        own_base = devices == base_devices and repeats.index.equals(base_runs.index)
        low, high = (np.nan, np.nan) if own_base else (ratio.low * share, ratio.high * share)
        points.append((devices, statistics.Estimate(ratio.value * share, low, high, ratio.runs)))
    drawn.line(axes, points)


def _base(series, done, keys):
    """((devices, runs) of the base, what it differs in from the series)."""
    fewest = series["devices"].min()
    own = series[series["devices"] == fewest]
    if fewest == 1:
        return (1, own), []
    row = own.iloc[0]
    same = done[
        (done["devices"] == 1)
        & np.logical_and.reduce(
            [
                done[key] == row[key]
                for key in ("model", "dataset", *keys)
                if key not in ("strategy", "strategy_options")
            ]
        )
    ]
    if same.empty:
        return (fewest, own), []
    same = same[same["strategy"] == same["strategy"].iloc[0]]
    fixed = keys[0]
    return (1, same), statistics.base_mismatch(row, same.iloc[0], fixed)


def _label(row, names):
    parts = [str(row["strategy"])] if "strategy" in names or not names else []
    parts += [f"batch {row[name]}" for name in FIXED.values() if name in names]
    parts += ["XLA" if row["xla"] else "no XLA"] if "xla" in names else []
    parts += [str(row[name]) for name in names if name in ("precision", "runtime")]
    parts += [
        row[name].replace(",", ", ")
        for name in names
        if name in ("strategy_options", "runtime_options")
    ]
    parts += [f"{row['copies_per_node']} at once"] if "copies_per_node" in names else []
    return ", ".join(filter(None, parts))


def _fixed_words(scaling, group):
    """As in `weak scaling, 64 per device`."""
    fixed = group[FIXED[scaling]].unique()
    if len(fixed) > 1:
        return f"{scaling} scaling"
    return f"{scaling} scaling, {fixed[0]} {'per device' if scaling == 'weak' else 'in all'}"


def _say_nothing(axes):
    for axis in axes:
        axis.axis("off")
    axes[0].text(0, 0.5, "no series on more than one device", color=style.GREY)
