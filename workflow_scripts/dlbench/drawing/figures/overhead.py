"""Conditions against their base: differences of throughput with verdicts, and start-up times."""

import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.patches import Patch

from dlbench.analysis import base_flags, comparisons, judge
from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.study import wording
from dlbench.study.config import COMPANIONS

CATEGORY = "Comparisons"
CAPTION = """
Each row compares the runs of one condition with those of the base that are equal in all else.
Markers are ratios of geometric mean throughputs, each run one value, less 1; thin lines are their
95 % intervals, which tables and the report have, the thick parts in them 90 % intervals (Welch's t
on the logarithm of the throughput), each of its row alone. Before any correction a row is
equivalent where the thick line is within the zone, and different where the thin one leaves out 0.
The green zone is the margin of equivalence, symmetric on the logarithm: from 1 / (1 + margin) to
1 + margin.
Lines cut off at the edge of the panel go further.
*Equivalent*: two one-sided tests (TOST) show that the difference is within the margin; else
*slower* or *faster*: a two-sided test shows that there is one; else *undecided*. Both tests are
at the 5 % level, corrected by Holm's method for all comparisons of the study. Repeats needed:
runs of each condition that would give a verdict with a probability of 80 %, at the scatter that
was found: show equivalence if there were no difference, or, of a ratio beyond the margin, show a
difference of that size. Half-filled: the two sides were never run in one session, and drift between
their sessions may exceed the margin. Where the drift is estimated, the difference is corrected for
it. Start-up is no part of the throughput; its bars are medians over runs: start of the container
until the trainer's first line, imports, and from there to the end of the first step. Conditions
without a base are in the table only. Where copies are trained at once, SD is the standard deviation
of the step times, of the base and of the row.
"""
LOOKS = {
    judge.EQUIVALENT: (styles.COLOURS[2], "o"),
    judge.SLOWER: (styles.COLOURS[3], "D"),
    judge.FASTER: (styles.COLOURS[0], "D"),
}
UNDECIDED_LOOKS = ("#8a8a8a", "s")  # no verdict
ZONE = "#e3f4ee"
PHASES = {"start": styles.COLOURS[0], "import": styles.COLOURS[4], "first_batch": styles.COLOURS[1]}
PHASE_LABELS = {"start": "container start", "import": "imports, model", "first_batch": "first step"}
# What names a row, where rows of a panel differ in it; the rest goes to the heading.
SETTINGS = tuple(
    "sequence_length" if name == "item_shape" else name
    for name in series.SETTINGS
    if name
    not in ("model", "dataset", "device_model", "framework_version", "nodes", "global_batch")
)
IN_HEADING = (
    *("site", "strategy", "runtime", "devices", "batch_per_device", "sequence_length"),
    "precision",
)
# Points right of the axes where the difference ends, and the base and the verdict begin.
DIFFERENCE_COLUMN, BASE_COLUMN, VERDICT_COLUMN = 50, 56, 128
SPREAD_POINTS = 28  # by how much a spread is wider than the base above it
ROW_INCHES, FRAME_INCHES, CHARACTER_INCHES = 0.44, 1.5, 0.085
TOKENS = "tokens_per_second_b"
HEADING_CHARACTERS = 80  # of a line: beside it is the heading of start-up
LONGEST_PART = 12  # characters by which a line may be longer than half of a name
MAX_INTERVAL = 1.0  # of the range of all else, by which intervals extend the axis to either side
LARGE = 100  # per cent, from which a difference has no decimals


def draw(tables: Tables, stem: Path | str) -> None:
    table = tables.comparisons
    if table["site"].nunique() < 2:  # all rows are of one site
        table = table.assign(site=None)
    panels = [
        (key, rows.iloc[::-1].reset_index(drop=True))
        for key, rows in table[table["verdict"] != comparisons.NO_BASE].groupby(
            ["field", "base", "model", "dataset"], observed=True, sort=False
        )
    ]
    if not panels:
        reason = f"without a base: {len(table)}" if len(table) else "see `compare` in the config"
        styles.draw_message(stem, f"no conditions to compare \u00b7 {reason}")
        return
    heights = [FRAME_INCHES + ROW_INCHES * len(rows) for _, rows in panels]
    names = [_name(row, rows) for _, rows in panels for _, row in rows.iterrows()]
    longest = max(len(line) for name in names for line in name.split("\n"))
    width = 5.2 + CHARACTER_INCHES * longest / 2
    with styles.figure(2, width=width, heights=heights, width_ratios=[3, 2]) as (figure, axes):
        figure.set_layout_engine("constrained", h_pad=0.1)
        for (differences, start_up), (key, rows) in zip(axes, panels, strict=False):
            _differences(differences, key, rows)
            _start_up(start_up, rows)
        styles.save(figure, stem)


def _differences(axes, key, rows):
    field, base, model, dataset = key
    margin = rows["margin"].iloc[0]
    axes.axvspan(_percent(1 / (1 + margin)), _percent(1 + margin), color=ZONE, zorder=0)
    axes.axvline(0, color=styles.GREY, linewidth=1.4, zorder=1)
    for y, row in rows.iterrows():
        colour, marker = LOOKS.get(row["verdict"], UNDECIDED_LOOKS)
        for level, width in (("ci95", 1.3), ("ci90", 3.2)):
            interval = _percent(row[[f"{level}_low", f"{level}_high"]].astype(float))
            if interval.notna().all():
                looks = {"color": colour, "lw": width, "solid_capstyle": "round"}
                axes.plot(interval, [y, y], gid=level, **looks)
        if not np.isnan(row["ratio"]):
            apart = base_flags.APART in (row["base_flags"] or "")
            looks, own = {"color": colour, "marker": marker}, {"ms": 7.5, "gid": "ratio"}
            if apart:
                styles.half(axes, _percent(row["ratio"]), y, looks, **own)
            else:
                axes.plot(_percent(row["ratio"]), y, **looks, **own)
        _columns(axes, y, row, colour)
    charts.style_rows(axes, [_name(row, rows) for _, row in rows[::-1].iterrows()])
    axes.set_xlim(*_limits(rows))
    axes.xaxis.set_major_formatter(lambda value, _: _signed(value, styles.thousands))
    axes.xaxis.set_major_locator(styles.FittingTicks(7))
    axes.set_xlabel(_legend(rows), loc="left")
    is_single = rows["condition"].nunique() == 1
    subject = f"{wording.condition(field, rows['condition'].iloc[0])} " if is_single else ""
    common = [
        series.setting_label(rows.iloc[0], name)
        for name in IN_HEADING
        if name != field and rows[name].nunique(dropna=False) == 1 and not pd.isna(rows[name][0])
    ]
    field_name = wording.field_name(field)
    subtitle = f"{subject}relative to {wording.condition(field, base)} \u00b7 {', '.join(common)}"
    styles.heading(
        axes,
        f"{field_name[0].upper()}{field_name[1:]} \u00b7 {model}, {dataset}",
        textwrap.fill(subtitle, HEADING_CHARACTERS),
    )


def _legend(rows):
    label = (
        "difference in throughput, % \u00b7 thin: 95 % CI, thick: 90 % CI"
        f"\ngreen zone: \u00b1{100 * rows['margin'].iloc[0]:g} % equivalence margin"
    )
    family = rows["family"].max()
    if family > 1:
        label += (
            f"\neach line on its own \u00b7 verdicts corrected for {family:g} comparisons (Holm)"
        )
    if rows[TOKENS].notna().any():
        label += "\nthroughput of the base in tokens / s"
    if rows["base_flags"].fillna("").str.contains(base_flags.APART).any():
        label += "\nhalf-filled: the two sides were measured apart"
    return label


def _columns(axes, y, row, colour):
    """Right of a row: the difference, the base's throughput, the verdict and what else to know."""
    if not np.isnan(row["ratio"]):
        looks = {"ha": "right", "color": "#262626", "fontsize": 10}
        _annotate(axes, y, _difference(row), DIFFERENCE_COLUMN, **looks)
    copies = row["field"] == "copies_per_node"
    verdict_column = VERDICT_COLUMN + SPREAD_POINTS * copies
    if row["n_b"]:
        spread = _spread(row) if copies else ""
        rate = row["value_b"] if pd.isna(tokens := row[TOKENS]) else tokens
        base = f"of {styles.thousands(rate)}/s"
        _annotate(axes, y, base, BASE_COLUMN, 6 if spread else 0)
        _annotate(axes, y, spread, BASE_COLUMN, -6, fontsize=8)
    notes = []
    if row["verdict"] in (judge.UNDECIDED, judge.TOO_FEW_RUNS):
        least, needed = min(row["n_a"], row["n_b"]), row["repeats_needed"]
        more = "\u2265\u2009" if needed == judge.MAX_REPEATS else ""
        notes += [f"{more}{styles.thousands(needed)} repeats needed"] if needed > least else []
    if row["verdict"] == comparisons.NO_RUNS:
        notes.append("of the base" if row["n_a"] else "of this condition")
    notes += filter(None, [base_flags.note(row["base_flags"])])
    looks = {"color": colour, "fontweight": "bold", "fontsize": 10}
    _annotate(axes, y, row["verdict"], verdict_column, 6 if notes else 0, **looks)
    _annotate(axes, y, " \u00b7 ".join(notes), verdict_column, -6, fontsize=8)


def _spread(row):
    """Standard deviation of the step times of the base and of the condition, with an arrow."""
    both = row[["step_time_sd_b_s", "step_time_sd_a_s"]].astype(float)
    if both.isna().any():
        return ""
    milliseconds = (styles.thousands(float(f"{1e3 * value:.2g}")) for value in both)
    return "SD " + " \u2192 ".join(milliseconds) + " ms"


def _annotate(axes, y, text, x_points, y_points=0, **looks):
    charts.annotate(axes, y, text, y_points, x_points, **{"color": styles.GREY} | looks)


def _start_up(axes, rows):
    phases = [f"{phase}_{side}_s" for phase in PHASES for side in "ab"]
    styles.heading(axes, "Start-up", "")
    if rows[phases].isna().all(axis=None):
        axes.axis("off")
        axes.text(0, 0.5, "not recorded", color=styles.GREY, transform=axes.transAxes)
        return
    charts.style_rows(axes, [""] * len(rows))
    for y, row in rows.iterrows():
        _bar(axes, row, "a", (y + 0.14, 0.26), "", alpha=1, color="#262626", fontsize=9)
        base = f"{wording.condition(row['field'], row['base'])}: "
        _bar(axes, row, "b", (y - 0.2, 0.18), base, alpha=0.45, color=styles.GREY, fontsize=7.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("s \u00b7 pale: the base", loc="left")
    axes.legend(
        handles=[Patch(facecolor=colour, label=PHASE_LABELS[n]) for n, colour in PHASES.items()],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=len(PHASES),
        fontsize=9,
        borderpad=0.1,
        borderaxespad=0.2,
        handlelength=1,
        columnspacing=1,
    )


def _bar(axes, row, side, position, name, alpha, **looks):
    """One bar of start-up, its phases side by side and written at its end."""
    times = np.array([row[f"{phase}_{side}_s"] for phase in PHASES])
    if np.isnan(times).all():
        return
    middle, height = position
    ends = np.nancumsum(times)
    known = np.nan_to_num(times)
    axes.barh(middle, known, height, ends - known, color=PHASES.values(), alpha=alpha)
    text = f"{name}{' + '.join(map(_seconds, times))} s"
    styles.write(axes, text, (ends[-1], middle), (4, 0), va="center", **looks)


def _name(row, rows):
    """The label of the settings in which a row differs from the others of its panel."""
    field = row["field"]
    compared = (field, *COMPANIONS.get(field, ()))
    differing = [n for n in SETTINGS if n not in compared and rows[n].nunique() > 1]
    parts = [series.setting_label(row, n) for n in wording.fields_for_label(differing, row)]
    if not parts or rows["condition"].nunique() > 1:
        parts.insert(0, wording.condition(field, row["condition"]))
    name = ", ".join(filter(None, parts))
    # There is room for two lines in a row.
    return textwrap.fill(name, max(styles.NAME_CHARACTERS, len(name) // 2 + LONGEST_PART))


def _limits(rows):
    """Of the axis of differences: all ratios, more than the zone, and intervals if not too wide.

    Those of two runs may reach beyond any scale; of them as much is seen as of all else.
    """
    margin = rows["margin"].iloc[0]
    ratios = _percent(rows["ratio"].to_numpy(dtype=float))
    needed = [*ratios[np.isfinite(ratios)], -150 * margin, 150 * margin]
    low, high = min(needed), max(needed)
    room = MAX_INTERVAL * (high - low)
    ends = _percent(rows[["ci95_low", "ci95_high"]].to_numpy(dtype=float))
    drawn = [low, high, *np.clip(ends[np.isfinite(ends)], max(-100, low - room), high + room)]
    low, high = min(drawn), max(drawn)
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def _seconds(time):
    """As in 0.05, 2.9 and 120."""
    if np.isnan(time):
        return "?"
    return f"{time:.{2 if time < 1 else 1 if time < 10 else 0}f}"


def _percent(ratio):
    return 100 * (ratio - 1)


def _difference(row):
    """As in `+0.3 %`, with a second digit where the interval is narrow, none of a large one."""
    narrow = row["ci90_high"] - row["ci90_low"] < 0.002
    percent = _percent(row["ratio"])
    if abs(percent) >= LARGE:
        return f"{_signed(percent, styles.thousands)} %"
    return f"{_signed(percent, lambda size: f'{size:.{2 if narrow else 1}f}')} %"


def _signed(number, form):
    """A number with its sign, as typeset; nought has none."""
    digits = form(abs(number))
    if not digits.strip("0."):
        return digits
    return ("\u2212" if number < 0 else "+") + digits
