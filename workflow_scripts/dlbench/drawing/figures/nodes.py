"""Nodes beside one another: how fast each is, and which is slower than the others."""

from pathlib import Path

from dlbench.analysis import estimates, nodes
from dlbench.analysis.frames import Tables
from dlbench.common import phrases
from dlbench.drawing import charts, styles

CATEGORY = "Study"
CAPTION = """
Throughput of each node over that of the middle half of the others, in the same conditions and
sessions, by completed runs on one node; the slowest first. Bars are 95 %
intervals, each of its node alone. The grey field is the margin: a node is slower, and orange, if it
is shown to be below it (one-sided t test, corrected for the number of nodes). See the table nodes.
"""
EMPTY_MESSAGE = "no two nodes have repeats of a condition in one session"
MAX_NODES = 40  # of all groups; the slowest of each are drawn
SLOWER_COLOUR, COLOUR, BAND = charts.ALARM, styles.COLOURS[0], "#ececec"


def draw(tables: Tables, stem: Path | str) -> None:
    rows = tables.nodes
    if rows.empty:
        styles.draw_message(stem, EMPTY_MESSAGE)
        return
    groups_of_nodes = list(rows.groupby(list(nodes.GROUP), sort=False, dropna=False, observed=True))
    most_each = max(1, MAX_NODES // len(groups_of_nodes))
    groups = {
        (f"{site}: {model or kind}", _spread(group)): [
            (name, group[group["node"] == name]) for name in group["node"].head(most_each)
        ]
        for (site, kind, model), group in groups_of_nodes
    }
    left_out = sum(max(0, len(group) - most_each) for _, group in groups_of_nodes)
    subtitle = "over the middle half of the others, 95 % intervals"
    subtitle += f"\n{left_out} faster ones not drawn: see nodes.parquet" if left_out else ""
    with charts.figure(stem, groups, "Nodes", subtitle, right_inches=1.9) as (drawn, axes):
        margin = rows["margin"].iloc[0]
        ends = (100 * (1 / (1 + margin) - 1), 100 * margin)
        axes.axvspan(*ends, color=BAND, lw=0, zorder=0)
        axes.axvline(0, color=styles.GREY, lw=0.8, zorder=1)
        for row in drawn:
            _node(axes, row.y, row.runs.iloc[0])
        axes.margins(x=0.04)
        axes.set_xlabel(
            f"per cent faster or slower; grey: within the margin of {100 * margin:.3g} %"
        )


def _spread(rows):
    """What the nodes of a group, and repeats on one of them, scatter by."""
    first = rows.iloc[0]
    nodes_sd, repeats_sd = (f"{100 * first[name]:.2g} %" for name in ("node_sd", "scatter"))
    return f"nodes scatter by {nodes_sd}, repeats by {repeats_sd}"


def _node(axes, y, row):
    slower = row["verdict"] == nodes.SLOWER
    colour = SLOWER_COLOUR if slower else COLOUR
    ends = (row["ratio"], row["ratio_ci95_low"], row["ratio_ci95_high"])
    percent = estimates.Estimate(*(100 * (end - 1) for end in ends), int(row["runs"]))
    charts.interval(axes, y, percent, colour, "D" if slower else "o")
    label = f"{styles.signed(percent.value)} %, {phrases.counted(percent.runs, 'run')}"
    label += ", slower" if slower else ""
    charts.annotate(axes, y, label, **({"color": SLOWER_COLOUR} if slower else {}))
