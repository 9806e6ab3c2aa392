"""Where the wall time of runs went, one bar for each condition."""

from pathlib import Path

import pandas as pd

from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles

CATEGORY = "Utilisation"
CAPTION = """
Shares of the wall time of runs, from the start of the container (and the queue before it) until
the trainer had ended; means over the runs of a condition, failed ones left out. Blue are the steps
whose result the run has: their share is the goodput. Compiling is what the first step took longer
than a measured one, with making the graph. Waiting for items and for other devices is within the
steps. At the right the mean wall time of a run, and its goodput. Seconds of every part of every
run are in the table accounts.
"""
# {segment of a bar, from the left: (its parts in the table, colour, hatching)}
SEGMENTS = {
    "steps": (("steps",), styles.COLOURS[0], ""),
    "warm-up": (("warm_up",), styles.COLOURS[4], ""),
    "compiling": (("compile",), styles.COLOURS[1], ""),
    "queue": (("queue",), "#9a9a9a", ""),
    "starting and imports": (("start", "imports"), "#c4c4c4", ""),
    "opening data, building": (("data", "build"), "#dedede", ""),
    "evaluation": (("evaluation",), styles.COLOURS[2], ""),
    "checkpoints": (("checkpoints",), styles.COLOURS[5], ""),
    "lost by restarts": (("restarts",), styles.COLOURS[3], ""),
    "waiting for copies": (("waiting",), styles.COLOURS[5], "//"),
    "ending and other": (("profile", "calibration", "shutdown", "other"), "#f0f0f0", ""),
}
HEIGHT = 0.62  # of a bar, where rows are 1 apart
LEGEND_COLUMNS = 4
MIN_PERCENT = 0.05  # of a bar: less cannot be seen


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    runs = runs[runs["wall_s"].notna()] if len(runs) else runs
    groups = series.conditions(runs)
    if not groups:
        styles.draw_message(stem, "of no run is known where its wall time went")
        return
    shares = _shares(tables.accounts)
    longest = runs["wall_s"].max()
    with charts.figure(stem, groups, "Where the time went", "", 1.9) as (rows, axes):
        drawn = [name for row in rows for name in _bar(axes, row, shares, longest)]
        axes.set_xlim(0, 100)
        axes.set_xlabel("share of the wall time, %")
        looks = {
            name: {"facecolor": colour, "hatch": hatch}
            for name, (_, colour, hatch) in SEGMENTS.items()
            if name in drawn
        }
        charts.bar_legend(axes, looks, LEGEND_COLUMNS)


def _shares(accounts: pd.DataFrame) -> pd.DataFrame:
    """Shares of the wall time: a row for each run, a column for each segment."""
    parts = accounts.astype({"run_id": str, "part": str})
    wide = parts.pivot_table(index="run_id", columns="part", values="share", aggfunc="sum")
    wide = wide.fillna(0.0)
    return pd.DataFrame(
        {
            name: wide.reindex(columns=list(parts), fill_value=0.0).sum(axis=1)
            for name, (parts, _, _) in SEGMENTS.items()
        }
    )


def _bar(axes, row, shares, longest):
    """Draw the bar of a condition. Returns the names of its segments."""
    finished = row.finished[row.finished["run_id"].isin(shares.index)]
    if finished.empty:
        charts.annotate_row(axes, row, "not known", color=styles.GREY)
        return []
    mean = 100 * shares.loc[finished["run_id"]].mean()
    looks = {name: {"color": SEGMENTS[name][1], "hatch": SEGMENTS[name][2]} for name in mean.index}
    shares = {name: (share, looks[name]) for name, share in mean.items()}
    charts.bars(axes, row.y, shares, HEIGHT)
    unit, seconds = styles.time_unit(longest)
    wall = styles.significant(finished["wall_s"].mean() / seconds)
    text = f"{wall} {unit}, goodput {100 * finished['goodput'].mean():.0f} %"
    charts.annotate_row(axes, row, text, fontweight="bold")
    return [name for name, share in mean.items() if share > MIN_PERCENT]
