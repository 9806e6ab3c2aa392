"""Figures of a history, one a machine: its conditions over time, and what changed when.

A dot is the mean of a session with its 95 % interval by the scatter of runs, a line the level
between two changes. A change is a dashed line at the first session of the new level, in a field
from the earliest to the latest date of its 95 % interval; its number leads to the sentence below.
"""

import itertools
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from dlbench.common import phrases
from dlbench.drawing import styles
from dlbench.drawing.series import MAX_PANELS
from dlbench.history.history_rows import day
from dlbench.tables import parquet_files, table_columns

COLUMNS, PANEL_INCHES = 3, (4.6, 2.5)
DOT, LEVEL = styles.COLOURS[0], "#202020"
COLOURS = {"gain": styles.COLOURS[2], "loss": styles.COLOURS[3]}
ROOM, LEAST_RANGE = 0.25, 0.02  # as shares: of the range of values, and of the values
TITLE_POINTS, LETTERS = 10, 44  # of a panel's title; letters are those of a line
RIGHT = 0.75  # of the width: beyond it the label of a change is on its left
KEY = ["condition_id", "metric"]
OF_FINDING = ["site", "machine_id", "direction", "changed_before", "earliest", "latest"]


def draw(tables: Path, output: Path) -> list[Path]:
    """Draw a figure for each machine. Returns their stems.

    `tables`: folder of the tables of a history, as analyse_history.py writes them.
    """
    series, findings, changes = (
        parquet_files.read(tables / f"{name}.parquet", table_columns.OF_HISTORY[name]).to_pandas()
        for name in ("series", "findings", "changes")
    )
    changes = changes.merge(findings[["finding", *OF_FINDING]], on="finding")
    stems = []
    for (site, machine), rows in series[series["n"] > 0].groupby(["site", "machine_id"]):
        mine = (changes["site"] == site) & (changes["machine_id"] == machine)
        stem = output / re.sub(r"[^A-Za-z0-9.-]+", "_", f"{site}-{machine}")
        of_machine = findings[(findings["site"] == site) & (findings["machine_id"] == machine)]
        _draw(stem, rows, of_machine, changes[mine])
        stems.append(stem)
    if not stems:
        styles.draw_message(output / "empty", "the history has no session with a number")
    return stems


def _draw(stem, rows, findings, changes):
    changed = changes.groupby(KEY).size()
    panels = sorted(
        rows.groupby(KEY, sort=True),
        key=lambda panel: (-changed.get(panel[0], 0), panel[1]["condition"].iloc[0]),
    )
    shown, left_out = panels[:MAX_PANELS], len(panels) - MAX_PANELS
    columns = min(COLUMNS, len(shown))
    width, height = PANEL_INCHES
    ends = rows["started_at"].min(), rows["started_at"].max()
    with styles.figure(columns, -(-len(shown) // columns), width, height) as (figure, grid):
        for axis in grid.flat[len(shown) :]:
            axis.set_axis_off()
        for axis, (key, panel) in zip(grid.flat, shown, strict=False):
            own = changes[(changes[KEY] == list(key)).all(axis=1)]
            _panel(axis, panel.sort_values("started_at"), own, ends)
        sessions = phrases.counted(rows["session"].nunique(), "session")
        one = rows.iloc[0]
        notes = [f"{one['machine_id']} at {one['site']}: {one['machine']}. {sessions}."]
        notes += [_sentence(row) for row in findings.to_dict("records")]
        if findings.empty:
            notes.append("No change of level was found.")
        if left_out > 0:
            notes.append(f"{phrases.counted(left_out, 'further condition')} not drawn.")
        styles.note_below(figure, "\n".join(notes))
        styles.save(figure, stem)


def _panel(axis, rows, changes, ends):
    dates, means = rows["started_at"], rows["mean"].to_numpy(float)
    bars = [means - rows["mean_ci95_low"], rows["mean_ci95_high"] - means]
    bars = np.nan_to_num(np.array(bars, dtype=float))
    axis.errorbar(dates, means, bars, fmt="o", color=DOT, ms=5, elinewidth=1, zorder=3)
    cuts = [*changes["changed_before"].sort_values()]
    edges = [0, *np.searchsorted(dates, cuts), len(rows)]
    for start, end in itertools.pairwise(edges):
        if end > start:
            level = np.exp(np.log(means[start:end]).mean())
            axis.hlines(
                level, dates.iloc[start], dates.iloc[end - 1], color=LEVEL, lw=1.6, zorder=4
            )
    for change in changes.to_dict("records"):
        colour = COLOURS.get(change["direction"], styles.GREY)
        axis.axvspan(change["earliest"], change["latest"], color=colour, alpha=0.13, lw=0, zorder=0)
        axis.axvline(change["changed_before"], color=colour, lw=1.2, ls="--", zorder=2)
        percent = f"{100 * (change['ratio'] - 1):+.1f} %".replace("-", "\u2212")
        is_late = change["changed_before"] > ends[0] + RIGHT * (ends[1] - ends[0])
        axis.annotate(
            f"{change['finding']}: {percent}",
            (change["changed_before"], 1),
            xytext=(-3 if is_late else 3, -2),
            ha="right" if is_late else "left",
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize=8.5,
            fontweight="bold",
            color=styles.text_colour(colour),
            zorder=5,
        )
    least, most = float(means.min()), float(means.max())
    margin = ROOM * max(most - least, LEAST_RANGE * most)
    axis.set_ylim(least - margin, most + 1.6 * margin)  # above them are the numbers of changes
    room = max((ends[1] - ends[0]) / 40, pd.Timedelta(hours=6))
    axis.set_xlim(ends[0] - room, ends[1] + room)
    axis.yaxis.set_major_locator(MaxNLocator(5))
    locator = mdates.AutoDateLocator(minticks=3, maxticks=6)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
    first = rows.iloc[0]
    title = textwrap.fill(first["condition"], LETTERS, max_lines=2, placeholder=" \u2026")
    styles.heading(axis, title, f"{first['metric']}, {first['unit']}", TITLE_POINTS)


def _sentence(row: dict[str, Any]) -> str:
    """A finding below the panels, with its causes."""
    ends = [100 * (row[name] - 1) for name in ("ratio", "ratio_ci95_low", "ratio_ci95_high")]
    size = "{:+.1f} % ({:+.1f} to {:+.1f})".format(*ends).replace("-", "\u2212")
    causes = "; ".join(
        f"{one['name']} {one['before']} \u2192 {one['after']}{'' if one['exact'] else ' (near it)'}"
        for one in json.loads(row["causes"])
    )
    share = f"{row['conditions']} of {row['conditions_in_all']} conditions"
    what = f"{row['direction']} of {size}, {share}"
    why = f"Changed then, likeliest first: {causes}" if causes else "No recorded fact changed then"
    return f"{row['finding']}  {day(row['changed_before'])}, {what}. {why}."
