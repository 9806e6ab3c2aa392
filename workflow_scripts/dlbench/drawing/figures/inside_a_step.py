"""What a step is made of, one bar for each condition that is explained."""

from pathlib import Path
from typing import Any

import pandas as pd

from dlbench.analysis import limits
from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles

CATEGORY = "Utilisation"
CAPTION = """
What a step is made of, for each condition whose block has explain. Probes measure it: short
runs, each without one thing (real input, the exchange of gradients, ...). A part is the time by
which a step is longer with that thing than without it; of input, copies to the device and exchange
it is the time that a step waits for them. Waiting for a slower device counts as exchange. Lines at
the ends of parts are their 95 % intervals (Welch's t). Hatched is the time that is not resolved:
the intervals of the other parts include zero, or their probes were disturbed, measured in several
sessions, or did not complete. At the right: the mean time of a step, and the least number of probes
of a kind.
"""
# {part: (label, colour)}, from the left.
SEGMENTS = {
    limits.COMPUTATION: ("computation", styles.COLOURS[0]),
    limits.REST: ("the remaining step", styles.COLOURS[0]),
    limits.SHARING: ("devices slowing one another", styles.COLOURS[4]),
    limits.EXCHANGE: ("exposed exchange of gradients", styles.COLOURS[3]),
    limits.COPIES: ("waiting for copies to the device", styles.COLOURS[5]),
    limits.INPUT: ("waiting for input", styles.COLOURS[1]),
    limits.WAITS: ("host: waiting for each loss", styles.COLOURS[2]),
}
UNRESOLVED, UNRESOLVED_GREY = "not resolved", "#d4d4d4"
EMPTY_MESSAGE = "no condition has probes: explain: true in a block of the config asks for them"
INTERVAL: dict[str, Any] = {
    "color": charts.INK, "mec": charts.INK, "lw": 1.1, "ms": 4, "mew": 1.1, "zorder": 3,
}  # fmt: skip
SUBTITLE = "lines at the end of parts: 95 % intervals"
HEIGHT = 0.68  # of a bar, where rows are 1 apart
LEGEND_COLUMNS = 3
MAX_PERCENT = 130.0  # that is seen of intervals beyond the whole step
MIN_PERCENT = 0.05  # of a bar: less cannot be seen


def draw(tables: Tables, stem: Path | str) -> None:
    parts = tables.explanations.astype({"part": str, "run_id": str})
    parts = parts[parts["share"].notna()]
    runs = tables.runs
    # A run that failed has probes that may not have.
    runs = runs[runs["run_id"].isin(parts["run_id"])].assign(status="ok")
    groups = series.conditions(runs) if len(runs) else {}
    if not groups:
        styles.draw_message(stem, EMPTY_MESSAGE)
        return
    by_run = dict(list(parts.groupby("run_id")))
    longest_s = max(map(_step_s, by_run.values()))
    with charts.figure(stem, groups, "Inside a step", SUBTITLE, 1.3) as (rows, axes):
        drawn = [_bar(axes, row, by_run[row.runs["run_id"].iloc[0]], longest_s) for row in rows]
        axes.set_xlim(0, min(MAX_PERCENT, max(end for _, end in drawn)))
        axes.set_xlabel("share of a step, %")
        names = {name for names, _ in drawn for name in names}
        looks = {name: {"facecolor": colour} for name, colour in SEGMENTS.values()}
        looks[UNRESOLVED] = {"facecolor": UNRESOLVED_GREY, "hatch": "////"}
        found = {name: own for name, own in looks.items() if name in names}
        charts.bar_legend(axes, found, LEGEND_COLUMNS)


def _step_s(parts: pd.DataFrame) -> float:
    largest = parts.loc[parts["share"].abs().idxmax()]
    return float(largest["step_time_s"] / largest["share"])


def _bar(axes, row, parts, longest_s):
    """Draw the bar of a condition. Returns (names of its segments, how far it reaches)."""
    step_s = _step_s(parts)
    percent = 100 / step_s
    resolved = parts[parts["told_apart"]].set_index("part")
    names, left, farthest = [], 0.0, 100.5
    shown = [part for part in SEGMENTS if part in resolved.index]
    for number, part in enumerate(shown):
        name, colour = SEGMENTS[part]
        share = percent * resolved.loc[part, "step_time_s"]
        axes.barh(row.y, share, HEIGHT, left=left, color=colour, edgecolor="white", lw=0.6)
        left += share
        ends = [
            left - share + percent * resolved.loc[part, f"step_time_ci95_{end}"]
            for end in ("low", "high")
        ]
        # Each at its own height: parts are narrower than their intervals may be.
        y = row.y + HEIGHT * ((number + 1) / (len(shown) + 1) - 0.5)
        axes.plot(ends, [y, y], "|-", **INTERVAL)
        names.append(name)
        farthest = max(farthest, left, ends[1] + 0.5)
    rest = 100 - left
    if rest > MIN_PERCENT:
        looks = {"color": UNRESOLVED_GREY, "hatch": "////", "edgecolor": "white", "lw": 0.6}
        axes.barh(row.y, rest, HEIGHT, left=left, **looks)
        names.append(UNRESOLVED)
    unit, seconds = styles.time_unit(longest_s)
    label = f"{styles.significant(step_s / seconds)} {unit}"
    note = f"{parts['runs'].min()} probes each"
    charts.annotate_row(axes, row, label, note, fontweight="bold")
    return names, farthest
