"""Laws of scaling beside the throughputs they were fitted to, one panel for each series."""

import textwrap
from pathlib import Path

import numpy as np

from dlbench.analysis.frames import Tables
from dlbench.drawing import series, styles
from dlbench.study import item_names

CATEGORY = "Scaling"
CAPTION = """
Throughput against devices (points: geometric means over repeats with 95 % intervals) and the
universal scalability law, n / (1 + alpha (n - 1) + beta n (n - 1)) times the throughput of one
device; in strong scaling also Amdahl's, n / (1 + s (n - 1)). Both are fitted by least squares to
the logarithms of the throughputs of all runs (laws.py), corrected for drift where a point and its
base are of two sessions, with 95 % intervals of the parameters in
brackets, and the number of devices with the highest throughput where beta is surely above 0.
Lines are solid where there are runs and dashed beyond: there they are an extrapolation,
which holds if the law does. Dotted: in proportion to devices. Laws are fitted only to series on
five numbers of devices or more whose base differs in nothing else.
"""
MAX_PANELS = 12
EXTRAPOLATION = 4  # times as many devices as were measured are drawn
LAWS = {"USL": (styles.COLOURS[0], 2.0), "Amdahl": (styles.COLOURS[3], 1.6)}
SERIES = [name for name in series.SETTINGS if name not in ("devices", "nodes", "global_batch")]


def draw(tables: Tables, stem: Path | str) -> None:
    points = tables.speedups
    points = points[points["scaling"].notna()]
    fitted = points[points["usl_alpha"].notna()]
    all_series, left_out = _series(fitted), _left_out(points, fitted)
    shown = all_series[:MAX_PANELS]
    left_out += (
        [f"{len(all_series) - len(shown)} not drawn"] if len(all_series) > len(shown) else []
    )
    if not shown:
        styles.draw_message(stem, "\n".join(["no law is fitted to any series", *left_out]))
        return
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    with styles.figure(columns, lines, width=4.6, height=3.7) as (figure, axes):
        for axis in axes.flat:
            axis.set_axis_off()
        for axis, (name, rows) in zip(axes.flat, shown, strict=False):
            axis.set_axis_on()
            _panel(axis, name, rows)
        if left_out:
            note = textwrap.fill("; ".join(left_out), int(13 * figure.get_figwidth()))
            figure.supxlabel(note, x=0.01, ha="left", color=styles.GREY, fontsize=9)
        styles.save(figure, stem)


def _series(points):
    """[(name, rows of one series), ...]; weak ones differ in the batch per device."""
    points = points.assign(
        batch_per_device=points["batch_per_device"].where(points["scaling"] == "weak"),
        fixed=points["global_batch"].where(points["scaling"] == "strong"),
    )
    keys = [name for name in SERIES if name in points]
    further = [name for name in keys if name not in ("model", "dataset")]
    differing = series.differing_settings(points, further)
    groups = points.groupby(["scaling", "fixed", *keys], dropna=False, observed=True, sort=False)
    return [
        (series.condition_label(group.iloc[0], differing), group.sort_values("devices"))
        for _, group in groups
    ]


def _left_out(points, fitted):
    """How many series have no fit, by reason."""
    rest = points.drop(fitted.index)
    reasons = {}
    for _, rows in _series(rest):
        reasons[rows["fit"].iloc[0]] = reasons.get(rows["fit"].iloc[0], 0) + 1
    common = sorted(reasons.items(), key=lambda item: -item[1])
    lines = [f"{count} series: {reason}" for reason, count in common[:2]]
    return lines + ([f"{sum(c for _, c in common[2:])} more without a fit"] if common[2:] else [])


def _panel(axes, name, rows):
    devices = rows["devices"].to_numpy(dtype=float)
    rates = rows["images_per_second"].to_numpy()
    weights = rows["runs"].to_numpy()
    n = np.geomspace(devices[0], EXTRAPOLATION * devices[-1], 200)
    legend = []
    first = rows.iloc[0]
    for law, label, penalty in _laws(first):
        colour, width = LAWS[law]
        one_device = np.exp(
            np.average(np.log(rates) - np.log(devices / penalty(devices)), weights=weights)
        )
        for within, dashes in ((n <= devices[-1], "-"), (n >= devices[-1], "--")):
            curve = one_device * n[within] / penalty(n[within])
            axes.plot(n[within], curve, dashes, color=colour, lw=width, zorder=2)
        if law == "USL":
            axes.plot(n, one_device * n, ":", color=styles.GREY, lw=1, zorder=1)
        legend.append((label, colour))
    for x, y, low, high in rows[["devices", *_with_interval()]].to_numpy(dtype=float):
        axes.plot([x, x], [low, high], color="black", lw=1.4, zorder=3)
        axes.plot(x, y, "o", color="black", ms=5.5, zorder=4)
    for line, (label, colour) in enumerate(reversed(legend)):
        axes.text(
            0.98,
            0.03 + 0.13 * line,
            label,
            transform=axes.transAxes,
            ha="right",
            va="bottom",
            fontsize=8,
            color=styles.text_colour(colour),
        )
    styles.powers(axes.xaxis, [*devices, EXTRAPOLATION * devices[-1]])
    styles.logarithmic(axes.yaxis)
    axes.set_ylim(bottom=rates.min() / 2.2)
    axes.set_xlabel("devices")
    unit = item_names.unit(rows["item_shape"].unique(), one_factor=True)
    styles.scale_labels(axes.yaxis, unit.per_item)
    axes.set_ylabel(f"{unit.plural} / s")
    fixed = {"weak": "batch per device fixed", "strong": "global batch fixed"}[first["scaling"]]
    subtitle = textwrap.fill(f"{name or first['strategy']} \u00b7 {fixed}", 58)
    styles.heading(axes, f"{first['model']} \u00b7 {first['dataset']}", subtitle)


def _with_interval():
    return [f"images_per_second{end}" for end in ("", "_ci95_low", "_ci95_high")]


def _laws(row):
    """[(law, label with its parameters, what devices are divided by), ...]"""
    a, b = row["usl_alpha"], row["usl_beta"]
    label = f"USL: alpha {_parameter(row, 'usl_alpha')}\nbeta {_parameter(row, 'usl_beta')}"
    if row["usl_beta_ci95_low"] > 0 and a < 1:
        label += f" \u00b7 most at {styles.significant(np.sqrt((1 - a) / b))} devices"
    laws = [("USL", label, lambda n: np.maximum(1 + a * (n - 1) + b * n * (n - 1), 1e-9))]
    s = row["serial_fraction"]
    if not np.isnan(s):
        label = f"Amdahl: s {_parameter(row, 'serial_fraction')}"
        laws.append(("Amdahl", label, lambda n: np.maximum(1 + s * (n - 1), 1e-9)))
    return laws


def _parameter(row, name):
    """As in `0.031 [0.028, 0.034]`."""
    value, low, high = (float(row[name + end]) for end in ("", "_ci95_low", "_ci95_high"))
    interval = "" if np.isnan(low) else f" [{low:.2g}, {high:.2g}]"
    return f"{value:.2g}{interval}".replace("-", "\u2212")
