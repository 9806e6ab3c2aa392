"""Figures of lines along an axis, and of rows.

Lines have one panel for each key, one legend, failures as crosses; rows are one for each condition,
under a heading for each model and dataset.
"""

import contextlib
import itertools
import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import offset_copy

from dlbench.analysis.estimates import Estimate
from dlbench.drawing import styles
from dlbench.drawing.series import MAX_PANELS, MAX_SERIES, Series
from dlbench.log.event_fields import SUCCEEDED

FAILED = {"oom": "out of\nmemory", "timeout": "time\nlimit"}
X_ROOM = 1.35  # left and right of the outermost values, a factor
MAX_CROSSES = 3  # above one another; more are counted
LEGEND_LINE_INCHES, CHARACTER_INCHES = 0.19, 0.072
NARROW_INCHES = 6.0  # figures below have their legend beside them

Point = tuple[Any, Estimate]  # x, y
End = tuple[Any, float, Series]  # of a line: x, y, whose
Panels = dict[Any, list[Series]]


def draw(
    stem: Path | str,
    panels: Panels,
    paint: Callable[[Any, Any, list[Series]], list[End]],
    empty_message: str,
    columns: int = 3,
    size: tuple[float, float] = (4.4, 3.5),
    rows: int = 1,
) -> None:
    """Draw panels and save them.

    Args:
        paint: paint(axes, key, series) draws one panel into its axes, of several `rows` a list,
            and returns the ends of the lines of the first one.
        empty_message: what the figure says if there are no panels.
        columns: the most panels beside each other.
        size: width and height of a panel in inches.
    """
    shown, left_out = _capped(panels)
    if not shown:
        styles.draw_message(stem, empty_message)
        return
    columns = min(columns, len(shown))
    lines = math.ceil(len(shown) / columns)
    with styles.figure(columns, lines * rows, width=size[0], height=size[1]) as (figure, axes):
        for axis in axes.flat:
            axis.set_axis_off()
        for number, (key, series) in enumerate(shown.items()):
            line, column = divmod(number, columns)
            panel_axes = [axes[line * rows + row, column] for row in range(rows)]
            for axis in panel_axes:
                axis.set_axis_on()
            ends = paint(panel_axes if rows > 1 else panel_axes[0], key, series)
        names = {s.name: s for s in itertools.chain(*shown.values())}
        notes = "\n".join(filter(None, (left_out, styles.star_note(figure))))
        if len(names) > 1 or left_out:
            if len(shown) == 1 and len(names) <= styles.MAX_DIRECT_LABELS and not left_out:
                _name_ends(panel_axes[0], ends, names)
            else:
                legend(figure, names.values(), notes)
                notes = ""
        if notes:
            styles.note_below(figure, notes)
        styles.save(figure, stem)


def _capped(panels):
    """(the panels that are drawn, a note on those and the series that are not)."""
    indices = {s.index for s in itertools.chain(*panels.values())}
    shown = {
        key: [s for s in series if s.index < MAX_SERIES]
        for key, series in itertools.islice(panels.items(), MAX_PANELS)
    }
    shown = {key: series for key, series in shown.items() if series}
    not_drawn = []
    if len(indices) > MAX_SERIES:
        not_drawn.append(f"{len(indices) - MAX_SERIES} of {len(indices)} series")
    if len(panels) > MAX_PANELS:
        not_drawn.append(f"{len(panels) - MAX_PANELS} of {len(panels)} panels")
    return shown, f"{' and '.join(not_drawn)} not drawn: see runs.parquet" if not_drawn else ""


def _name_ends(axes, ends, names):
    """Names at the ends of the lines; series that were not drawn have none."""
    styles.name_series(
        axes, [(x, y, s.name, styles.looks(s.index)["color"]) for x, y, s in ends if s.name]
    )
    missing = [s for s in names.values() if s.name not in {end[2].name for end in ends}]
    if missing:
        legend(axes.figure, missing)


def legend(figure: Figure, series: Iterable[Series], notes: str = "") -> None:
    """Add a legend below the panels, or beside a single one, with notes above it.

    The figure grows by its size.
    """
    handles = [
        Line2D([], [], label=s.name or "all runs", **marks(s))
        for s in sorted(series, key=lambda s: s.index)
    ]
    entry = 0.6 + CHARACTER_INCHES * max(len(str(handle.get_label())) for handle in handles)
    width, height = figure.get_size_inches()
    on_the_right = width < NARROW_INCHES and len(handles) > 3
    if on_the_right:
        columns = math.ceil(len(handles) * LEGEND_LINE_INCHES / (height - 0.8))
        longest = max(map(len, notes.splitlines()), default=0)
        figure.set_figwidth(width + max(columns * entry, CHARACTER_INCHES * longest))
    else:
        columns = max(1, min(len(handles), int(width / entry)))
        lines = math.ceil(len(handles) / columns) + len(notes.splitlines())
        figure.set_figheight(height + 0.15 + LEGEND_LINE_INCHES * lines)
    figure.legend(
        handles=handles,
        loc="outside right upper" if on_the_right else "outside lower left",
        ncols=columns,
        fontsize=9,
        title=notes or None,
        title_fontsize=9,
        alignment="left",
    )


def marks(series: Series) -> dict[str, Any]:
    """Colour, marker and line of a series; published points are hollow."""
    looks = styles.looks(series.index)
    if series.published:
        looks |= {"markerfacecolor": "white", "markeredgecolor": looks["color"]}
        looks |= {"markeredgewidth": 1.6}
    return looks


def line(
    axes: Axes,
    series: Series,
    points: list[Point],
    position: tuple[int, int] = (0, 1),
    stars: bool = False,
) -> list[End]:
    """Draw points of a series with their intervals. Returns its end, if it has points.

    Args:
        position: (index of the series, number of series), which stand side by side at one x.
        stars: mark points of unstable runs.
    """
    if not points:
        return []
    looks = marks(series)
    if position[1] > styles.MAX_DIRECT_LABELS:
        looks |= {"linewidth": 1.2, "markersize": 5}
    x = styles.side_by_side([x for x, _ in points], *position)
    values = [estimate.value for _, estimate in points]
    axes.plot(x, values, zorder=3, **looks)
    unstable = series.unstable() if stars else ()
    for at, (value, estimate) in zip(x, points, strict=True):
        if value in unstable:
            styles.star(axes, at, estimate.value, looks["color"])
        if np.isfinite(estimate.low):
            interval = [estimate.low, estimate.high]
            axes.plot([at, at], interval, color=looks["color"], lw=1.4, zorder=2)
    return [(x[-1], values[-1], series)]


def lines(
    axes: Axes,
    all_series: list[Series],
    points: Callable[[Series], list[Point]],
    stars: bool = True,
) -> list[End]:
    """Draw points(series) of each series, and its failures as crosses; ticks are at their x.

    Stars mark points of unstable runs, as where they are rates or times. Returns the ends.
    """
    ends = []
    for number, series in enumerate(all_series):
        ends += line(axes, series, points(series), (number, len(all_series)), stars)
    failed = failures(axes, all_series)
    values = [*(x for s in all_series for x, _ in points(s)), *failed]
    styles.powers(axes.xaxis, values)
    axes.set_xlim(min(values) / X_ROOM, max(values) * X_ROOM)
    axes.yaxis.set_major_formatter(styles.thousands)
    if not ends:
        axes.set_yticks([])
    if failed:
        axes.margins(y=0.3)
    return ends


def failures(axes: Axes, all_series: Iterable[Series]) -> list[float]:
    """Draw a cross for each series that failed at an x, with the reason. Returns these x."""
    failed_at: dict[float, list[tuple[str, str, int, int]]] = {}
    for series in all_series:
        colour = styles.looks(series.index)["color"]
        for x, status, failed, tried in series.failures():
            failed_at.setdefault(x, []).append((colour, status, failed, tried))
    for x, failed_series in failed_at.items():
        colours = [colour for colour, *_ in failed_series]
        if len(failed_series) > MAX_CROSSES:
            colours = [styles.GREY]
        for height, colour in enumerate(colours):
            place = _above_the_edge(axes, 10 * height)
            styles.cross(axes, x, 0, colour, zorder=4, transform=place)
        looks: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8}
        looks |= {"linespacing": 1.05, "zorder": 4}
        axes.text(
            x,
            0,
            _reason(failed_series),
            color=styles.text_colour(colours[0]) if len(colours) == 1 else styles.GREY,
            transform=_above_the_edge(axes, 10 * len(colours) - 4),
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            **looks,
        )
    return list(failed_at)


def _above_the_edge(axes, points):
    return offset_copy(axes.get_xaxis_transform(), axes.figure, y=points, units="points")


def _reason(failed_series):
    statuses = sorted({status for _, status, *_ in failed_series})
    reason = " or\n".join(FAILED.get(status, status) for status in statuses)
    failed = sum(count for *_, count, _ in failed_series)
    tried = sum(count for *_, count in failed_series)
    return reason if failed == tried else f"{failed} of {tried} runs\n{reason}"


MAX_ROWS = 48  # of a figure; a note counts further ones
ROW_INCHES, FRAME_INCHES = 0.34, 1.5
NAME_CHARACTERS = 44
AXES_INCHES, NAME_INCHES = 4.4, 0.075
INK, ALARM = "#262626", styles.COLOURS[3]

# {(heading, subheading): [(name, runs) of each condition, ...]}
Groups = dict[tuple[str, str], list[tuple[str, pd.DataFrame]]]


@dataclass(frozen=True)
class Row:
    """One condition, at the height `y`, from 0 at the bottom."""

    y: int
    name: str
    runs: pd.DataFrame

    @property
    def finished(self) -> pd.DataFrame:
        return self.runs[self.runs["status"].isin(SUCCEEDED)]

    def failures(self) -> str:
        """As in `1 of 3: out of memory`; "" if no run failed."""
        failed = self.runs[~self.runs["status"].isin(SUCCEEDED)]["status"]
        if failed.empty:
            return ""
        statuses = " or ".join(FAILED.get(s, s).replace("\n", " ") for s in sorted(set(failed)))
        return f"{len(failed)} of {len(self.runs)}: {statuses}"

    def unstable(self) -> str:
        """As in `1 of 3 unstable`; "" if no run is."""
        count = int((self.runs["status"] == "unstable").sum())
        return f"{count} of {len(self.runs)} unstable" if count else ""


@contextlib.contextmanager
def figure(
    stem: Path | str, groups: Groups, title: str, subtitle: str = "", right_inches: float = 1.0
) -> Iterator[tuple[list[Row], Axes]]:
    """Yield (rows, axes) to draw into, then save the figure.

    Args:
        groups: from the top; not empty.
        right_inches: width of the text right of the axes.
    """
    rows, labels, left_out = _laid_out(groups)
    names = [textwrap.fill(name, NAME_CHARACTERS) for _, name, _ in labels]
    lines = "\n".join(names).split("\n")
    width = AXES_INCHES + right_inches + NAME_INCHES * max(map(len, lines))
    height = FRAME_INCHES + ROW_INCHES * len(labels)
    with styles.figure(1, width=width, height=height) as (drawn, axes):
        axis = axes[0, 0]
        yield rows, axis
        _rows(axis, labels, names)
        single = " \u00b7 ".join(filter(None, *groups)) if len(groups) == 1 else ""
        styles.heading(axis, title, "\n".join(filter(None, (single, subtitle, left_out))))
        styles.save(drawn, stem)


def _laid_out(groups):
    """(rows, [(y, name, subheading or None), ...], a note on what is left out)."""
    lines = []
    for heading, conditions in groups.items():
        lines += [(*heading, None)] if len(groups) > 1 else []
        lines += [(name or "all runs", None, runs) for name, runs in conditions]
    shown = lines[:MAX_ROWS]
    rows, labels = [], []
    for y, (name, subheading, runs) in zip(range(len(shown) - 1, -1, -1), shown, strict=True):
        labels.append((y, name, subheading))
        if runs is not None:
            rows.append(Row(y, name, runs))
    total = sum(len(conditions) for conditions in groups.values())
    left_out = f"{total - len(rows)} of {total} conditions not drawn: see runs.parquet"
    return rows, labels, left_out if total > len(rows) else ""


def _rows(axes, labels, names):
    style_rows(axes, names, fontsize=9)
    for label, (y, _, subheading) in zip(axes.get_yticklabels(), labels, strict=True):
        if subheading is not None:
            label.set_fontweight("bold")
            axes.text(
                0.01,
                y,
                subheading,
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=8,
                color=styles.GREY,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )


def style_rows(axes: Axes, names: Sequence[str], room: float = 0.6, **looks: Any) -> None:
    """Name the rows of axes from the top: no ticks and no line at the left, vertical grid lines.

    `room`: above the first row, of the distance between two.
    """
    axes.set_ylim(-0.6, len(names) - 1 + room)
    axes.set_yticks(range(len(names) - 1, -1, -1), names, **looks)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")


def annotate_row(axes: Axes, row: Row, text: str, note: str = "", **looks: Any) -> None:
    """Write right of a row, below it a note and what failed; draw a cross if all runs failed."""
    failed = row.failures()
    notes = " \u00b7 ".join(filter(None, (failed, row.unstable(), note)))
    if row.finished.empty:
        styles.cross(axes, 0.015, row.y, ALARM, transform=axes.get_yaxis_transform())
        annotate(axes, row.y, notes, color=ALARM)
        return
    annotate(axes, row.y, text, 5 if notes else 0, **looks)
    annotate(axes, row.y, notes, -6, color=ALARM if failed else styles.GREY, fontsize=7.5)


def annotate(
    axes: Axes, y: float, text: str, y_points: float = 0, x_points: float = 8, **looks: Any
) -> None:
    """Write right of the axes at a height, moved up and to the right by some points."""
    style = {"color": INK, "fontsize": 9, "va": "center", "annotation_clip": False} | looks
    at = axes.get_yaxis_transform()
    styles.write(axes, text, (1, y), (x_points, y_points), xycoords=at, **style)


def bars(
    axes: Axes, y: float, shares: Mapping[str, tuple[float, dict[str, Any]]], height: float
) -> None:
    """Draw parts side by side from 0 on, each of a width in per cent and with its looks."""
    left, edge = 0.0, {"edgecolor": "white", "lw": 0.6}
    for share, looks in shares.values():
        axes.barh(y, share, height, left=left, **{**edge, **looks})
        left += share


def bar_legend(axes: Axes, looks: Mapping[str, dict[str, Any]], columns: int) -> None:
    """A legend of parts, by their names, below the axes."""
    axes.figure.legend(
        handles=[Patch(edgecolor="white", label=name, **own) for name, own in looks.items()],
        loc="outside lower center",
        ncols=columns,
        fontsize=8.5,
        columnspacing=1.2,
        handlelength=1.2,
    )


def interval(
    axes: Axes, y: float, estimate: Estimate, colour: str, marker: str = "o", **looks: Any
) -> None:
    """Draw a point with its 95 % interval."""
    axes.plot([estimate.low, estimate.high], [y, y], color=colour, lw=1.6, zorder=2)
    axes.plot(estimate.value, y, marker, color=colour, zorder=3, **looks)


def value_axis(
    axes: Axes,
    values: Collection[float],
    label: str,
    form: Callable[..., str] = styles.thousands,
    logarithmic: bool = False,
    unit: float = 1.0,
) -> None:
    """Scale the axis from 0, or by logarithms if values differ by more than a factor of 20.

    Without values it has no ticks.
    """
    axes.set_xlabel(label)
    if not values:
        axes.set_xticks([])
        return
    if logarithmic or max(values) > 20 * min(values):
        styles.logarithmic(axes.xaxis, unit)
    else:
        axes.set_xlim(0, 1.08 * max(values))
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(form)
