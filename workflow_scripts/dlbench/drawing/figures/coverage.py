"""Status of all runs: a row for each condition, a column for each device count or batch size."""

import json
import textwrap
from pathlib import Path

from matplotlib.lines import Line2D

from dlbench.analysis.frames import Tables
from dlbench.common import assignments, phrases
from dlbench.drawing import charts, series, styles
from dlbench.log import event_fields
from dlbench.study import parameters, wording
from dlbench.study.runs import DEFAULTS

CATEGORY = "Study"
CAPTION = """
Every combination of the study, all repeats in one cell; those that need something that is not
installed are counted only. Names have the settings in which rows differ. Symbol and colour are
those of the worst status among the repeats; the legend goes from the best (left) to the worst
(right). The number beside a symbol says how many of the repeats completed (ok or unstable) where
not all did. Reasons are those of the table coverage, the commonest ones with the number of runs
that they concern.
"""
# Status: (symbol, colour, what it means), from the best to the worst.
LOOKS = {
    "ok": ("o", styles.COLOURS[2], "ok"),
    "unstable": ("^", styles.COLOURS[1], "unstable"),
    "stale": ("v", styles.COLOURS[4], "done by other code"),
    "pending": (".", "#9a9a9a", "not yet"),
    "imported": ("P", styles.COLOURS[0], "imported"),
    "excluded": ("_", "#9a9a9a", "excluded"),
    "skipped": ("s", "#bdbdbd", "skipped"),
    "timeout": ("D", styles.COLOURS[5], "over the time limit"),
    "oom": ("x", styles.COLOURS[3], "out of memory"),
    "failed": ("X", "black", "failed"),
}
OTHERS = {"running": "pending", "unread": "pending", "interrupted": "pending"}
# Facts that all rows share; those of what was excluded do not have them.
SHARED_FACTS = ("site", "device_kind", *series.KNOWN_LATE, "timing_source")
# Runs that never started have no item shape, but the sequence length of their config.
SETTINGS = tuple("sequence_length" if n == "item_shape" else n for n in series.SETTINGS)
COLUMNS = {"devices": "devices", "batch_per_device": "batch per device"}
MAX_ROWS, MAX_REASONS = 120, 8
CELL_INCHES, ROW_INCHES, MIN_WIDTH_INCHES = 0.62, 0.27, 7.5
REASON_CHARACTER_INCHES = 0.061


def draw(tables: Tables, stem: Path | str) -> None:
    runs, coverage = tables.runs, tables.coverage.astype(object)
    coverage["status"] = coverage["status"].map(lambda status: OTHERS.get(status, status))
    has_cell = coverage["run_id"].isna() | coverage["run_id"].isin(runs["run_id"])
    cells = _cells(coverage[has_cell], runs)
    if cells.empty:
        styles.draw_message(stem, "no runs in this study")
        return
    column = max(COLUMNS, key=lambda name: cells[name].nunique())
    keys = [name for name in SETTINGS if name not in (column, "global_batch", "nodes")]
    keys = [name for name in keys if name not in (*series.KNOWN_LATE, "launcher")]
    differing = series.differing_settings(cells, [k for k in keys if k not in ("model", "dataset")])
    rows = list(_rows(cells, keys, ["model", "dataset", *differing]))
    shown, columns = rows[:MAX_ROWS], sorted(cells[column].dropna().unique())
    longest = max((len(name) for name, _ in shown))
    width = 1 + charts.NAME_INCHES * longest + CELL_INCHES * len(columns)
    width, height = max(width, MIN_WIDTH_INCHES), 1.2 + ROW_INCHES * max(3, len(shown))
    reasons = _reasons(coverage, int(width / REASON_CHARACTER_INCHES))
    with styles.figure(1, width=width, height=height) as (figure, axes):
        axis = axes[0, 0]
        _draw_cells(axis, shown, column, columns)
        subtitle = [_counts(coverage)]
        if len(rows) > len(shown):
            left_out = len(rows) - len(shown)
            subtitle.append(f"{left_out} of {len(rows)} rows not drawn: see coverage.parquet")
        styles.heading(axis, "Coverage", "\n".join(subtitle))
        _legend(figure, cells, reasons)
        styles.save(figure, stem)


def _cells(coverage, runs):
    """One row for each run of the study, with its settings; excluded ones from their values."""
    settings = ["run_id", "repeat", "device_kind", *SETTINGS]
    runs = runs[settings].astype({n: object for n in settings})
    cells = coverage.merge(runs, on="run_id", how="left")
    for index, row in cells[cells["run_id"].isna()].iterrows():
        for name, value in _values(row["combination"]).items():
            if name in SETTINGS:
                cells.at[index, name] = value
    for name in SHARED_FACTS:
        usual = cells[name].mode()
        cells[name] = cells[name].fillna(usual.iloc[0] if len(usual) else "")
    return cells


def _values(combination):
    """The settings of what was excluded, as the table has them."""
    values = {name: DEFAULTS[name] for name in SETTINGS if name in DEFAULTS}
    values |= {name: v for name, v in json.loads(combination).items() if v is not None}
    values["devices"] = values["nodes"] * values.get("devices_per_node", 1)
    if "global_batch" in values:
        values["batch_per_device"] = values["global_batch"] // values["devices"]
    if isinstance(values.get("runtime_options"), dict):
        options = values["runtime_options"].items()
        values["runtime_options"] = " ".join(f"{k}={v}" for k, v in options)
    values |= {name: assignments.text(v) for name, v in values.items() if isinstance(v, dict)}
    own = {name: values.pop(parameters.PREFIX + name) for name in parameters.own_names(values)}
    if own:
        values[parameters.FIELD] = assignments.text(own)
    return values


def _rows(cells, keys, differing):
    rows = [group for _, group in cells.groupby(keys, dropna=False, sort=True)]
    firsts = [group.iloc[0] for group in rows]
    names = _naming_settings(firsts, differing)
    for first, group in zip(firsts, rows, strict=True):
        yield series.condition_label(first, names) or str(first["combination"]), group


def _naming_settings(firsts, differing):
    """The settings without which fewer rows would have names of their own."""
    names = [name for name in differing if name in (*wording.NAMED, "site", "devices")]
    for name in differing:
        longer = [other for other in differing if other in (*names, name)]
        if _distinct_names(firsts, longer) > _distinct_names(firsts, names):
            names = longer
    return names


def _distinct_names(firsts, names):
    return len({series.condition_label(first, names) for first in firsts})


def _draw_cells(axis, rows, column, columns):
    marks = {}
    for y, (_, group) in zip(range(len(rows) - 1, -1, -1), rows, strict=True):
        for value, cell in group.groupby(column):
            worst = max(cell["status"], key=_severity)
            well = int(cell["status"].isin(event_fields.SUCCEEDED).sum())
            x = columns.index(value)
            marks.setdefault(worst, []).append((x, y))
            if worst not in event_fields.SUCCEEDED and well:
                axis.text(x + 0.22, y, f"{well}/{len(cell)}", fontsize=7.5, va="center")
    for status, places in marks.items():
        axis.plot(*zip(*places, strict=True), label=status, **_marker(status))
    axis.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    axis.set_xlim(-0.6, len(columns) - 0.2)
    axis.set_yticks(range(len(rows) - 1, -1, -1), [name for name, _ in rows], fontsize=9)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set_xlabel(COLUMNS[column])
    axis.tick_params(length=0)
    axis.spines[["left", "bottom"]].set_visible(False)


def _looks(status):
    return LOOKS.get(status, ("*", "black", status))


def _marker(status):
    symbol, colour, _ = _looks(status)
    edge, width = (colour, 2.2) if symbol in "x_" else ("white", 0.8)
    return {"marker": symbol, "color": colour, "mec": edge, "mew": width, "ms": 9, "ls": "none"}


def _severity(status):
    return list(LOOKS).index(status) if status in LOOKS else len(LOOKS)


def _counts(cells):
    counts = cells["status"].value_counts()
    ordered = sorted(counts.index, key=_severity)
    return " \u00b7 ".join(f"{counts[status]} {_looks(status)[2]}" for status in ordered)


def _reasons(cells, characters):
    """The commonest reasons, with their status and how many runs they concern: lines.

    Reasons of a model that differ in numbers only are one.
    """
    explained = cells[cells["reason"].fillna("") != ""]
    models = explained["combination"].str.split().str[0]
    explained = explained.assign(reason=phrases.merged(models, explained["reason"]))
    counts = (
        explained.groupby(["status", "reason"]).size().sort_values(ascending=False, kind="stable")
    )
    lines = []
    for (status, reason), count in counts[:MAX_REASONS].items():
        line = f"{count} {_looks(status)[2]}: {reason}"
        lines += textwrap.wrap(line, characters, subsequent_indent="      ")
    more = len(counts) - MAX_REASONS
    return [*lines, f"and {more} more reasons"] if more > 0 else lines


def _legend(figure, cells, reasons):
    """Symbols that occur and the reasons, below the map."""
    handles = []
    for status in sorted(set(cells["status"]), key=_severity):
        handles.append(Line2D([], [], label=_looks(status)[2], **_marker(status)))
    columns = max(1, int(figure.get_figwidth() / 1.9))
    lines = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.22 * lines + 0.17 * len(reasons))
    legend = figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=columns,
        fontsize=9,
        title="\n".join(reasons) or None,
        title_fontsize=8,
        alignment="left",
    )
    legend.get_title().set_color(styles.GREY)
