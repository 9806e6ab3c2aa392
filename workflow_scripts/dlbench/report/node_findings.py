"""Findings on nodes: those that are slower than the others are named with their evidence."""

import math
from collections.abc import Iterable

from dlbench.analysis import nodes
from dlbench.common import phrases
from dlbench.report import finding_words
from dlbench.report.findings import EVIDENCE, INDICATED, SHOWN, Finding
from dlbench.tables.cells import Row

MAX_NAMED = 5  # in the text; all are in the table


def findings(rows: Iterable[Row]) -> list[Finding]:
    """A Finding for each group of like nodes of which one is slower than the others.

    Args:
        rows: of the table of nodes, the slowest of each group first.
    """
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in nodes.GROUP), []).append(row)
    several_sites = len({row["site"] for group in groups.values() for row in group}) > 1
    slow = [
        (group, [row for row in group if row["verdict"] == nodes.SLOWER])
        for group in groups.values()
    ]
    return [_finding(group, named, several_sites) for group, named in slow if named]


def _finding(group, named, several_sites):
    named = sorted(named, key=lambda row: bool(row["disturbed"]))  # others may have slowed these
    first = named[0]
    evidence = INDICATED if first["disturbed"] else SHOWN
    number, interval = _ratio(first)
    names = ", ".join(row["node"] for row in named[:MAX_NAMED])
    names += f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    headline = f"node {names} is slower than the others"
    if len(named) > 1:
        headline = f"{len(named)} of {len(group)} nodes are slower than the others: {names}"
    details = "; ".join(map(_evidence, named[:MAX_NAMED]))
    text = (
        f"{details}. Compared in the same conditions and sessions with the middle half of the "
        f"{phrases.counted(len(group) - 1, 'other')}; p is the chance of such runs of a node that "
        f"is slower by the margin of {100 * first['margin']:.3g} % and no more, corrected for the "
        f"number of nodes. Repeats on one node scatter by {100 * first['scatter']:.2g} %, "
        f"nodes by {100 * first['node_sd']:.2g} %."
    )
    return Finding(
        headline=f"{first['site']}: {headline}" if several_sites else headline,
        text=text,
        number=number,
        interval=interval,
        evidence=evidence,
        kind="bad",
        tables=("nodes",),
        figures=("nodes",),
        rank=(EVIDENCE.index(evidence), 0.5, math.log(first["ratio"])),
    )


def _evidence(row):
    number, interval = _ratio(row)
    runs = phrases.counted(row["runs"], "run")
    runs += ", all disturbed" if row["disturbed"] else ""
    return f"{row['node']}: {number} ({interval}) in {runs}, p = {row['p_slower']:.2g}"


def _ratio(row):
    return finding_words.ratio_texts(row["ratio"], row["ratio_ci95_low"], row["ratio_ci95_high"])
