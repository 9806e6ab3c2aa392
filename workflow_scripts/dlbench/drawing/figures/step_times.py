"""Distribution of step times, and steps that stalled: one row for each condition."""

from pathlib import Path

import numpy as np
import pandas as pd

from dlbench.analysis.frames import Tables
from dlbench.common import phrases
from dlbench.drawing import charts, series, styles
from dlbench.log import event_fields

CATEGORY = "Steps"
CAPTION = """
Times of the measured steps, one line a run, repeats above one another: from the 5th to the 95th
percentile (line), the median (dot) and stalled steps, which took more than twice the median of
their run (orange points). Of several processes the one that took longest over all of them. At the
right the median of the runs' medians, how many steps of all runs stalled, and the share of the
measured time that was lost to stalls: what those steps took beyond the median.
"""
STALLED = 2.0  # times the median
COLOUR, STALL_COLOUR = styles.COLOURS[0], styles.COLOURS[3]
MAX_RUNS = 20  # of a row
MAX_STALLS = 200  # points of a run; the longest


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    runs = runs[runs["step_time_median_s"].gt(0) | ~runs["status"].isin(event_fields.SUCCEEDED)]
    groups = series.conditions(runs)
    if not groups:
        styles.draw_message(stem, "no run of this study measured a step")
        return
    text = "line: 5th to 95th percentile of a run \u00b7 dot: median \u00b7 orange: stalled steps"
    with charts.figure(stem, groups, "Step times", text, 4.0) as (rows, axes):
        values = [value for row in rows for value in _row(axes, row, tables)]
        charts.value_axis(axes, values, "ms / step", styles.milliseconds, True, 1e-3)


def _row(axes, row, tables):
    """Draw the runs of a condition. Returns their medians."""
    runs = row.finished.sort_values("repeat")[:MAX_RUNS]
    heights = row.y + np.linspace(0.3, -0.3, len(runs)) * (len(runs) > 1)
    stalls, all_s = [], []
    for y, (_, run) in zip(heights, runs.iterrows(), strict=True):
        times = measured(tables.steps(run["run_id"]), run["copies_per_node"])
        stalls.append(_run(axes, y, run, times, width=min(2.6, 14 / len(runs))))
        all_s.append(times)
    medians = runs["step_time_median_s"].tolist()
    label = f"{styles.milliseconds(np.median(medians))} ms" if medians else ""
    count, seconds = (sum(map(total, all_s)) for total in (len, np.sum))
    if count:
        lost = sum(np.sum(times - median) for times, median in zip(stalls, medians, strict=True))
        label += f" \u00b7 {_stalled(sum(map(len, stalls)), count, lost / seconds)}"
    charts.annotate_row(axes, row, label)
    return medians


def _stalled(stalls, count, share):
    """How many steps stalled, and what share of the time that took."""
    steps = phrases.plural("step", int(count))
    if not stalls:
        return f"none of {styles.thousands(count)} {steps} stalled"
    all_steps = styles.thousands(count)
    return f"{stalls} of {all_steps} {steps} stalled: {100 * share:.1f} % of the time lost"


def _run(axes, y, run, times, width):
    """Draw the steps of one run. Returns the times of those that stalled."""
    median, p95 = run["step_time_median_s"], run["step_time_p95_s"]
    low = np.percentile(times, 5) if len(times) else median
    stalls = np.sort(times[times > STALLED * median])
    shown = stalls[-MAX_STALLS:]
    axes.plot([low, p95], [y, y], color=COLOUR, lw=width, alpha=0.55, zorder=2)
    axes.plot(median, y, "o", color=COLOUR, ms=min(4.5, 3 * width), mew=0, zorder=3)
    axes.plot(shown, np.full(len(shown), y), "o", color=STALL_COLOUR, ms=3, mew=0, zorder=3)
    return stalls


def measured(steps: pd.DataFrame, copies: int = 1) -> np.ndarray:
    """Times of the steps after the warm-up where known, of the rank that took longest for them.

    A step that was timed in a window counts as the mean of that.
    """
    steps = steps[~steps["warm_up"].astype(bool) & steps["step_time_s"].notna()]
    if copies > 1:  # each process is a copy of its own
        return _per_step(steps)
    ranks = [_per_step(rank_steps) for _, rank_steps in steps.groupby("rank")]
    return max(ranks, key=np.sum, default=np.empty(0))


def _per_step(steps):
    windows = steps["window_steps"].fillna(1).to_numpy(dtype=int)
    return np.repeat(steps["step_time_s"].to_numpy(dtype=float), windows)
