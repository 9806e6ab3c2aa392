"""Published numbers redrawn as a table, with our own beside them."""

import textwrap
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.ticker import MaxNLocator

from dlbench.analysis.frames import Tables
from dlbench.common.run_fields import DEFAULTS
from dlbench.drawing import charts, series, styles
from dlbench.study import wording

CATEGORY = "Comparisons"
CAPTION = """
Every published number of the study (hollow) and the same number from one's own runs (filled).
Own numbers are geometric means over repeats, of scores arithmetic ones, and ratios of two means
where a number is relative; lines are 95 % intervals (Student's or Welch's t, on logarithms but for
scores), the last column is own over published. Circles are numbers that the source prints,
diamonds were derived from what it prints or from its logs, squares read off a picture. A relative
number is orange where its base differs in more than it should, which is named below the axis, and
so is a printed number that does not follow from the others. Own runs agree with a point in the
fields that the config lists under `match`; in what else they differ is said below the heading. The
numbers are in the table `published`.
"""
# Settings in the names of conditions, in this order.
GROUP = (
    *("site", "device_model", "framework", "framework_version", "strategy", "runtime"),
    *("precision", "mode", "batch_per_device", "epochs"),
)
METRIC_LABELS = {
    "images_per_second": "images / s",
    "duration_s": "training time",
    "top1": "top-1 accuracy",
    "top5": "top-5 accuracy",
    "efficiency": "parallel efficiency",
    "difference_percent": "difference of images / s, %",
    "slowdown": "times slower",
}
MARKERS = {"printed": "o", "derived": "D", "read_off": "s"}
QUALITIES = {"printed": "as printed", "derived": "diamond: derived", "read_off": "square: read off"}
PUBLISHED_COLOUR, OWN_COLOUR = "#5f5f5f", styles.COLOURS[0]
MAX_PANELS = 24  # a note counts further ones
CHARACTERS = 100  # of a line of text above a panel
ROW_INCHES, FRAME_INCHES, WORDS_INCHES = 0.27, 1.5, 0.18
PANEL_INCHES, CHARACTER_INCHES = 6.4, 0.085
# Points right of the axes where the columns of numbers end, if the first has no long texts.
PRINTED, MEASURED, RATIO = 54, 102, 154
GAP_POINTS, CHARACTER_POINTS = 8, 5.2  # between axes and text; of a character


class _Panel(NamedTuple):
    """One metric of a workload, with its base where points have several.

    Attributes:
        numbers: its rows of the table.
        labels: [(y, text, the point or None of a heading), ...] from the top.
    """

    numbers: pd.DataFrame
    metric: str
    base: str | None
    labels: list
    title: str
    subtitle: str


def draw(tables: Tables, stem: Path | str) -> None:
    table = _plain(tables.published)
    panels = [
        panel
        for rows in _groups(table, ("framework", "model", "dataset"))
        for panel in _panels(rows)
    ]
    if not panels:
        styles.draw_message(stem, "no published numbers to draw: see `references` in the config")
        return
    shown, left_out = panels[:MAX_PANELS], len(panels) - MAX_PANELS
    heights = [
        FRAME_INCHES + ROW_INCHES * len(one.labels) + WORDS_INCHES * one.subtitle.count("\n")
        for one in shown
    ]
    names = max(len(name) for one in shown for _, name, _ in one.labels)
    width = PANEL_INCHES + CHARACTER_INCHES * names
    with styles.figure(1, width=width, heights=heights) as (figure, axes):
        figure.set_layout_engine("constrained", h_pad=0.12)
        for axis, panel in zip(axes.flat, shown, strict=True):
            _draw_panel(axis, panel)
        if left_out > 0:
            note = f"{left_out} of {len(panels)} panels not drawn: see published.parquet"
            styles.note_below(figure, note)
        styles.save(figure, stem)


def _plain(table):
    """Text instead of categories, whole numbers also where some are absent."""
    types = {name: object for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)}
    types |= dict.fromkeys(("nodes", "devices", "batch_per_device", "epochs"), "Int64")
    return table.astype(types)


def _groups(table, names):
    return [rows for _, rows in table.groupby([*names], dropna=False, sort=False)]


def _panels(rows):
    """The panels of one workload; the first one says whose numbers these are."""
    several = rows.groupby(["metric", "point"])["base"].nunique().groupby("metric").max() > 1
    keys = dict.fromkeys(
        (metric, base if several[metric] else None)
        for metric, base in zip(rows["metric"], rows["base"], strict=True)
    )
    title, subtitle = _title(rows), _subtitle(rows)
    for metric, base in keys:
        numbers = rows[rows["metric"] == metric]
        numbers = numbers if base is None else numbers[numbers["base"] == base]
        labels = _labels(numbers.drop_duplicates("point"))
        yield _Panel(numbers, metric, base, labels, title, subtitle)
        subtitle = ""


def _title(rows):
    row = rows.iloc[0]
    framework = row["framework"] if row["framework"] != DEFAULTS["framework"] else None
    return " \u00b7 ".join(w for w in (framework, row["model"], row["dataset"]) if not pd.isna(w))


def _subtitle(rows):
    """Whose numbers these are, and in what own runs differ from the published ones."""
    sources = ", ".join(dict.fromkeys(rows["source"]))
    qualities = [label for name, label in QUALITIES.items() if (rows["quality"] == name).any()]
    own_note = " \u00b7 filled: own, 95 % CI" if rows["own"].notna().any() else ""
    lines = [f"hollow: published by {sources}, {', '.join(qualities)}{own_note}"]
    differs = _distinct(rows["own_differs"])
    lines += [f"own runs differ in {_readable(differs)}"] if differs else []
    lines += [f"no own number: {note}" for note in dict.fromkeys(rows["own_note"].dropna())]
    return "\n".join(textwrap.fill(line, CHARACTERS) for line in lines)


def _labels(points):
    """Labels of points, those alike in all but their devices under one heading."""
    differing = series.differing_settings(points, GROUP)
    groups = _groups(points, differing) if differing else [points]
    entries = []
    for group in groups:
        name = series.condition_label(group.iloc[0], differing)
        several = group["nodes"].nunique() > 1
        rows = [(_devices(row, several), row["point"]) for _, row in group.iterrows()]
        if len(groups) > 1 and len(rows) > 1:
            entries += [(name, None), *rows]
        else:
            entries += [(", ".join(filter(None, (name, devices))) or p, p) for devices, p in rows]
    ys = range(len(entries) - 1, -1, -1)
    return [(y, name, point) for y, (name, point) in zip(ys, entries, strict=True)]


def _devices(row, several):
    """As in `24 GPUs on 6 nodes`."""
    devices, nodes = (series.setting_label(row, name) for name in ("devices", "nodes"))
    return f"{devices} on {nodes}" if devices and nodes and several else devices


def _distinct(texts):
    """The distinct names in comma-separated texts."""
    return list(dict.fromkeys(name for text in texts.dropna() if text for name in text.split(", ")))


def _readable(names):
    return ", ".join(names).replace("_", " ")


def _draw_panel(axes, panel):
    numbers, labels = panel.numbers, panel.labels
    heights = {point: y for y, _, point in labels}
    points = list(numbers.groupby("point", sort=False))
    longest = max(len(_printed_text(of_point)) for _, of_point in points)
    shift = max(0, GAP_POINTS + CHARACTER_POINTS * longest - PRINTED)
    for point, of_point in points:
        _cell(axes, heights[point], of_point, shift)
    _scale(axes, panel.metric, numbers)
    over = f" over {panel.base}" if panel.base else ""
    differs = _distinct(numbers["base_mismatch"])
    orange = [f"the base differs in {_readable(differs)}"] if differs else []
    if any(_is_wrong(row) for _, row in numbers.iterrows()):
        orange.append("in brackets what follows from the source's other numbers")
    label = METRIC_LABELS.get(panel.metric, panel.metric.replace("_", " "))
    axes.set_xlabel(label.replace("images", _counted(numbers)) + over + "\n" * bool(orange))
    if orange:
        _below(axes, f"orange: {'; '.join(orange)}")
    columns = {"published": PRINTED}
    columns |= {"own": MEASURED, "ratio": RATIO} if numbers["own"].notna().any() else {}
    for text, x_points in columns.items():
        y = len(labels) - 0.35
        _annotate(axes, y, text, x_points + shift, color=styles.GREY, fontsize=8)
    charts.style_rows(axes, [name for _, name, _ in labels], room=0.9, fontsize=9)
    for tick, (_, _, point) in zip(axes.get_yticklabels(), labels, strict=True):
        tick.set_fontweight("normal" if point else "bold")
    styles.heading(axes, panel.title, panel.subtitle)


def _counted(numbers):
    """What the rates of a panel count: its numbers are as published, so a text's are sequences."""
    unit = wording.rate_unit(numbers["item_shape"].unique())
    return "sequences" if unit.item == wording.SEQUENCE else unit.plural


def _cell(axes, y, numbers, shift):
    """The numbers of one point, mostly one; texts moved right by so many points."""
    row = numbers.iloc[0]
    alarming = _is_wrong(row) or bool(row["base_mismatch"] and not pd.isna(row["base_mismatch"]))
    colour = charts.ALARM if alarming else PUBLISHED_COLOUR
    for _, number in numbers.iterrows():
        if not pd.isna(number["low"]):
            axes.plot([number["low"], number["high"]], [y, y], color=colour, lw=4, alpha=0.4)
        looks = {"ms": 6.5, "color": colour, "mfc": "white", "mec": colour, "mew": 1.5, "zorder": 3}
        axes.plot(number["value"], y, MARKERS[number["quality"]], **looks)
    ink = colour if alarming else charts.INK
    _annotate(axes, y, _printed_text(numbers), PRINTED + shift, color=ink)
    if pd.isna(row["own"]):
        return
    axes.plot([row["value"], row["own"]], [y, y], color=styles.LIGHT, lw=2, zorder=1)
    ends = [row["own_ci95_low"], row["own_ci95_high"]]
    axes.plot(ends, [y, y], color=OWN_COLOUR, lw=1.6, zorder=4)
    axes.plot(row["own"], y, "o", color=OWN_COLOUR, ms=6.5, zorder=5)
    own = _number(row["own"], row["metric"])
    _annotate(axes, y, own, MEASURED + shift, color=OWN_COLOUR, fontweight="bold")
    if not pd.isna(row["own_over_published"]):
        ratio = _ratio(row["own_over_published"])
        _annotate(axes, y, ratio, RATIO + shift, color=charts.INK)


def _is_wrong(row):
    """Whether a printed number does not follow from the others."""
    return row["agrees"] is not None and not pd.isna(row["agrees"]) and not row["agrees"]


def _printed_text(numbers):
    """A number as the source has it, and what follows from the others where that is another one.

    Of several numbers the least and the most.
    """
    row, ordered = numbers.iloc[0], numbers.sort_values("value")["printed"]
    text = " to ".join(dict.fromkeys((ordered.iloc[0], ordered.iloc[-1]))).replace("-", "\u2212")
    return f"{text} (= {row['recomputed']:.4g})" if _is_wrong(row) else text


def _number(value, metric):
    if metric == "duration_s":
        minutes = round(value / 60)
        return f"{minutes // 60}:{minutes % 60:02d}" if minutes >= 60 else f"{value:.3g} s"
    text = f"{value:#.3g}" if 0.01 <= abs(value) < 100 else styles.significant(value)
    return text.replace("-", "\u2212")


def _ratio(value):
    return "\u00d7" + (
        f"{value:.2f}" if 0.1 <= value < 10 else styles.thousands(float(f"{value:.2g}"))
    )


def _scale(axes, metric, numbers):
    """From nought, or logarithmic where values differ by more than twentyfold."""
    columns = ["value", "low", "high", "own", "own_ci95_low", "own_ci95_high"]
    values = numbers[columns].to_numpy(dtype=float).ravel()
    values = values[~pd.isna(values)].tolist()
    most, least = max(values), min(values)
    unit, seconds = styles.time_unit(most) if metric == "duration_s" else ("", 1)
    if metric in ("difference_percent", "efficiency"):
        neutral = 0 if metric == "difference_percent" else 1
        axes.axvline(neutral, color=styles.GREY, linewidth=1.4, zorder=1)
        axes.margins(x=0.1)
        return
    if most > 20 * least > 0:
        styles.logarithmic(axes.xaxis, seconds)
    else:
        axes.set_xlim(0, 1.08 * most)
        ticks = MaxNLocator(5, steps=[1, 2, 5, 10])
        axes.set_xticks(
            [
                tick * seconds
                for tick in ticks.tick_values(0, most / seconds)
                if tick * seconds <= 1.08 * most
            ]
        )
    axes.xaxis.set_major_formatter(lambda v, _: f"{styles.thousands(v / seconds)} {unit}".strip())


def _below(axes, text):
    looks = {"ha": "center", "color": charts.ALARM, "fontsize": 8, "in_layout": False}
    styles.write(axes, text, (0.5, 0), (0, -46), xycoords="axes fraction", **looks)


def _annotate(axes, y, text, x_points, **looks):
    charts.annotate(axes, y, text, x_points=x_points, ha="right", **looks)
