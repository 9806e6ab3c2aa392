"""Throughput and parallel efficiency against the number of devices."""

from dataclasses import dataclass

import numpy as np

from dlbench import figure_style as style
from dlbench import scaling

CATEGORY = "Scaling"
CAPTION = """
Weak scaling: the batch per device is fixed, so the global batch grows with the devices. Strong
scaling: the global batch is fixed, so each device has the less of it the more there are.
Points are geometric means over repeats, one run each; bars and bands are 95 % intervals
(Student's t, and Welch's t for ratios, on the logarithm of the throughput). The dashed line is
the base times the number of devices. The base of a series is its own run on the fewest devices;
a series without one borrows that of another strategy, which is marked with a ring and named.
"""


def draw(tables, stem):
    runs = tables.runs
    runs = runs[(runs["mode"] == "train") & runs["epochs"].isna()]
    panels = _panels(scaling.all_series(runs.to_dict("records")))
    with style.figure(2, max(1, len(panels)), width=5.2) as (figure, axes):
        if not panels:
            _say_nothing(axes[0])
        for row, panel in zip(axes, panels, strict=False):
            _panel(row, panel)
        style.save(figure, stem)


def _panels(all_series):
    """The series of each panel: those of one kind, model and dataset."""
    panels = {}
    for series in all_series:
        if series.kind:
            key = (series.kind, series.row["model"], series.row["dataset"])
            panels.setdefault(key, []).append(series)
    return list(panels.values())


def _panel(axes, panel):
    throughput, efficiency = axes
    kind, first = panel[0].kind, panel[0].row
    devices = {"cpu": "CPU devices", "gpu": "GPUs"}[first["device_kind"]]
    notes, ends = [], []
    for index, (series, label) in enumerate(zip(panel, _labels(panel), strict=True)):
        drawn = _Drawn(style.looks(index), index, len(panel), label)
        if series.mismatch:
            notes.append(f"{drawn.label}: base differs in {', '.join(series.mismatch)}")
        ends.append(_throughput(throughput, series, drawn))
        drawn.line(efficiency, [(point.devices, point.efficiency) for point in series.points])
    for axis in (throughput.xaxis, efficiency.xaxis):
        style.powers(axis, [1, *(run["devices"] for series in panel for run in series.runs)])
    style.logarithmic(throughput.yaxis)
    throughput.set_ylabel("images / s")
    throughput.set_xlabel(devices)
    style.name_series(throughput, ends)
    style.heading(
        throughput,
        f"Throughput \u00b7 {first['model']}",
        f"{first['dataset']}, {_fixed_words(kind, panel)} \u00b7 dashed: linear from the base",
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


def _throughput(axes, series, drawn):
    base = series.base
    rate = base.throughput.value
    most = series.points[-1].devices
    axes.plot(
        drawn.x([base.devices, most]),
        [rate, rate * most / base.devices],
        color=drawn.color,
        linestyle="--",
        linewidth=1.2,
        alpha=0.6,
        zorder=1,
    )
    if base.borrowed:
        axes.plot(drawn.x(base.devices), rate, "o", ms=13, mfc="none", mec=drawn.color, mew=1.6)
    return drawn.line(axes, [(point.devices, point.throughput) for point in series.points])


def _labels(panel):
    """What the series of a panel are called: that in which they differ.

    A launcher goes by its name only where series are alike but for it.
    """
    rows = [series.row for series in panel]
    names = [
        name
        for name in (scaling.FIXED[panel[0].kind], *scaling.SERIES)
        if len({row.get(name) for row in rows}) > 1 and name != "launcher"
    ]
    labels = [_label(row, names) for row in rows]
    if len(set(labels)) == len(labels):
        return labels
    return [f"{label}, {row['launcher']}" for label, row in zip(labels, rows, strict=True)]


def _label(row, names):
    parts = [str(row["strategy"])] if "strategy" in names or not names else []
    parts += [f"batch {row[name]}" for name in scaling.FIXED.values() if name in names]
    parts += ["XLA" if row["xla"] else "no XLA"] if "xla" in names else []
    parts += [str(row[name]) for name in names if name in ("precision", "runtime")]
    parts += [
        row[name].replace(",", ", ")
        for name in names
        if name in ("strategy_options", "runtime_options")
    ]
    parts += [f"{row['copies_per_node']} at once"] if "copies_per_node" in names else []
    parts += [
        f"{name.replace('_', ' ')} {row[name]}"
        for name in names
        if name in scaling.FURTHER and row.get(name) is not None
    ]
    return ", ".join(filter(None, parts))


def _fixed_words(kind, panel):
    """As in `weak scaling, 64 per device`."""
    fixed = {series.row[scaling.FIXED[kind]] for series in panel}
    if len(fixed) > 1:
        return f"{kind} scaling"
    return f"{kind} scaling, {fixed.pop()} {'per device' if kind == 'weak' else 'in all'}"


def _say_nothing(axes):
    for axis in axes:
        axis.axis("off")
    axes[0].text(0, 0.5, "no series on more than one device", color=style.GREY)
