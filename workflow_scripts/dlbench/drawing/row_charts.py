"""Figures with one row for each condition, under a heading for each model and dataset."""

import contextlib
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dlbench.analysis.estimates import Estimate
from dlbench.drawing import styles
from dlbench.drawing.line_charts import FAILED
from dlbench.log.event_fields import SUCCEEDED

MAX_ROWS = 48  # of a figure; a note counts further ones
ROW_INCHES, FRAME_INCHES = 0.34, 1.5
NAME_CHARACTERS = 44
AXES_INCHES, CHARACTER_INCHES = 4.4, 0.075
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
    width = AXES_INCHES + right_inches + CHARACTER_INCHES * max(map(len, lines))
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
