"""Drift of throughput from session to session, and the cores that other processes used."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dlbench.analysis.frames import Tables
from dlbench.common import phrases
from dlbench.drawing import styles
from dlbench.log import event_fields
from dlbench.study.runs import CONDITION, is_sentinel
from dlbench.tables import cells

CATEGORY = "Study"
CAPTION = """
Throughput of every own run that completed, and of every sentinel, over the geometric mean of its
condition, at the time at which it was started. A grey field is a session, one start of the
workflow; time runs evenly in it, and what lies between two of them is not to scale. Coloured are
conditions that were measured in several sessions, from which drift is seen; a bar is the mean of
them in a session. Grey dots are those of one session. Words say how much faster a session was than
the one before, with a 95 % interval and the verdict, as the table drift has it. Below, what other
processes used of the cores that a run may use, where it is known.
"""
UNKNOWN = "unknown session"
REPEATED, SENTINEL, SINGLE = styles.COLOURS[0], styles.COLOURS[3], "#a8a8a8"
OTHERS = styles.COLOURS[5]
FIELD = "#f3f3f3"
MAX_SHAPES, MAX_SESSIONS = 6, 40
MIN_SHARE, GAP_SHARE = 0.035, 0.012  # of the width: of a session, and between two
LABEL_SHARE = 0.2  # of the width, for the label of a drift
VERDICTS = {"none": "no drift"}  # others are shown as they are
WIDTH_INCHES, PANEL_INCHES, OTHERS_INCHES, LABEL_INCHES = 9.0, 2.1, 0.9, 1.25


@dataclass(frozen=True)
class Session:
    """A session and its field in the figure: from `left` to `right`, of 0 to 1."""

    name: str
    started_at: pd.Timestamp
    seconds: float
    left: float
    right: float

    def at(self, dates: pd.Series) -> np.ndarray:
        """Where some dates are in the figure."""
        share = (dates - self.started_at).dt.total_seconds() / self.seconds
        return self.left + (self.right - self.left) * share.to_numpy()


def draw(tables: Tables, stem: Path | str) -> None:
    rows = _measured(tables.runs, tables.sentinels)
    if rows.empty:
        styles.draw_message(stem, "no completed own run of this study has a date")
        return
    sessions, left_out = _sessions(rows)
    drift = _named(tables.drift)
    rows = rows[rows["session"].isin([session.name for session in sessions])]
    shapes = sorted(set(zip(rows["nodes"], rows["devices_per_node"], strict=True)))
    left_out += [f"{len(shapes) - MAX_SHAPES} of {len(shapes)} numbers of devices"] * (
        len(shapes) > MAX_SHAPES
    )
    shapes = shapes[:MAX_SHAPES]
    room = max(1.0, 1.1 * rows["relative"].abs().max())
    has_others = bool(rows["others_cpu_cores"].notna().any())
    heights = [PANEL_INCHES] * len(shapes) + [OTHERS_INCHES] * has_others
    # Room for the heading above and the legend below.
    inches = (sum(heights) + 1.3) / len(heights)
    with styles.figure(
        1, len(heights), width=WIDTH_INCHES, height=inches, sharex=True, height_ratios=heights
    ) as (figure, grid):
        axes = list(grid[:, 0])
        for axis, (nodes, devices) in zip(axes, shapes, strict=False):
            panel_rows = rows[(rows["nodes"] == nodes) & (rows["devices_per_node"] == devices)]
            name = _shape_label(nodes, devices) if len(shapes) > 1 else ""
            _panel(axis, panel_rows, sessions, name, room)
            _label_drift(axis, drift[drift["shape"] == (nodes, devices)], panel_rows, sessions)
        if has_others:
            _cores_of_others(axes[-1], rows, sessions)
        for axis in axes:
            _fields(axis, sessions)
        _dates(axes[0], sessions)
        subtitle = "throughput over its condition's mean"
        subtitle += f" \u00b7 {', '.join(left_out)} not drawn" if left_out else ""
        styles.heading(axes[0], "Drift over sessions", subtitle + "\n\n")
        _legend(figure, rows)
        styles.save(figure, stem)


def _measured(runs, sentinels):
    """Own runs and sentinels that completed, with `relative`: per cent off their condition."""
    is_own = runs["timing_source"].isin([cells.MEASURED]) & ~runs["run_id"].map(is_sentinel).astype(
        bool
    )
    runs = runs[is_own]
    parts = [part for part in (runs.assign(sentinel=0), sentinels) if len(part)]
    if not parts:
        return runs
    rows = pd.concat([part.astype(object) for part in parts], ignore_index=True)
    rows = rows[rows["status"].isin(event_fields.SUCCEEDED) & rows["started_at"].notna()]
    rate = rows["images_per_second"].astype(float)
    rows = rows[rate > 0].reset_index(drop=True).copy()  # columns in one piece: more are added
    if "others_cpu_cores" not in rows:
        rows["others_cpu_cores"] = None
    rows["started_at"] = pd.to_datetime(rows["started_at"], utc=True)
    rows["session"] = rows["session"].fillna(UNKNOWN)
    rows["seconds"] = rows["duration_s"].astype(float).fillna(0.0)
    names = [name for name in CONDITION if name in rows]
    condition = rows.groupby(names, dropna=False, observed=True).ngroup()
    logs = np.log(rows["images_per_second"].astype(float))
    rows["relative"] = 100 * np.expm1(logs - logs.groupby(condition).transform("mean"))
    rows["repeated"] = rows.groupby(condition)["session"].transform("nunique") > 1
    return rows


def _sessions(rows):
    """([Session, ...] in the order of their start, what is left out as text)."""
    ends = rows["started_at"] + pd.to_timedelta(rows["seconds"], unit="s")
    spans = [
        (group["started_at"].min(), ends[group.index].max(), name)
        for name, group in rows.groupby("session", sort=True)
    ]
    shown = sorted(spans)[-MAX_SESSIONS:]
    seconds = [max(1.0, (end - start).total_seconds()) for start, end, _ in shown]
    share = np.maximum(np.array(seconds) / sum(seconds), MIN_SHARE)
    share *= (1 - GAP_SHARE * (len(shown) - 1)) / share.sum()
    lefts = np.cumsum([0, *share[:-1]]) + GAP_SHARE * np.arange(len(shown))
    sessions = [
        Session(name, start, length, left, left + width)
        for (start, _, name), length, left, width in zip(shown, seconds, lefts, share, strict=True)
    ]
    left_out = len(spans) - len(shown)
    return sessions, [f"the first {left_out} of {len(spans)} sessions"] * bool(left_out)


def _panel(axis, rows, sessions, name, room):
    for session in sessions:
        own = rows[rows["session"] == session.name]
        x, y = session.at(own["started_at"]), own["relative"].to_numpy(dtype=float)
        several = own["repeated"].to_numpy(dtype=bool)
        sentinel = own["sentinel"].to_numpy(dtype=int) > 0
        for chosen, marker, colour, size, order in (
            (~several & ~sentinel, "o", SINGLE, 4, 2),
            (several & ~sentinel, "o", REPEATED, 5.5, 3),
            (sentinel, "D", SENTINEL, 6, 4),
        ):
            axis.plot(x[chosen], y[chosen], marker, color=colour, ms=size, mew=0.6, zorder=order)
        if several.any():
            mean = 100 * np.expm1(np.log1p(y[several] / 100).mean())
            ends = [session.left, session.right]
            looks = {"lw": 2.2, "alpha": 0.55, "zorder": 1.5, "solid_capstyle": "butt"}
            axis.plot(ends, [mean, mean], color=REPEATED, **looks)
    axis.axhline(0, color=styles.GREY, lw=0.8, zorder=1.2)
    axis.set_ylim(-room, room)
    axis.yaxis.set_major_locator(MaxNLocator(5, symmetric=True))
    axis.yaxis.set_major_formatter(FuncFormatter(_percent))
    if name:
        looks = {"va": "top", "fontsize": 9, "fontweight": "bold", "zorder": 5}
        axis.text(0, 0.97, f" {name}", transform=axis.transAxes, **looks)


def _named(drift):
    """The table of drift with UNKNOWN for missing sessions, and a column `shape`."""
    names = {
        name: drift[name].astype(object).fillna(UNKNOWN)
        for name in ("earlier_session", "later_session")
    }
    shapes = zip(drift["nodes"], drift["devices_per_node"], strict=True)
    return drift.assign(**names, shape=pd.Series(list(shapes), index=drift.index, dtype=object))


def _label_drift(axis, drift, rows, sessions):
    """How each session differs from the one before, where there is room for it."""
    several = rows[rows["repeated"]].groupby("session")["relative"].mean()
    for before, session in itertools.pairwise(sessions):
        changes = drift[
            (drift["earlier_session"] == before.name) & (drift["later_session"] == session.name)
        ]
        for _, row in changes.iterrows() if session.right - session.left > LABEL_SHARE else ():
            low, high = row["ratio_ci95_low"], row["ratio_ci95_high"]
            label = f"{_change(row['ratio'])} %"
            label += f" [{_change(low)}, {_change(high)}]" if np.isfinite(low) else ""
            label += f", {VERDICTS.get(row['verdict'], row['verdict'])} "
            above = several.get(session.name, 0.0) < 0  # where its points are not
            y, va = (0.96, "top") if above else (0.04, "bottom")
            looks = {"ha": "right", "va": va, "fontsize": 8, "color": styles.GREY}
            at = axis.get_xaxis_transform()
            axis.text(session.right, y, label, transform=at, **looks)


def _change(ratio):
    return styles.signed(100 * (ratio - 1))


def _percent(value, _=None):
    """-2.5 -> `\u22122.5 %`."""
    return f"{value:+g} %".replace("-", "\u2212") if value else "0 %"


def _shape_label(nodes, devices):
    label = phrases.counted(devices, "device")
    return f"{label} on each of {nodes} nodes" if nodes > 1 else label


def _cores_of_others(axis, rows, sessions):
    """What other processes used while a run went on; a gap where it is not known."""
    for session in sessions:
        own = rows[(rows["session"] == session.name) & rows["others_cpu_cores"].notna()]
        own = own.sort_values("started_at")
        start = session.at(own["started_at"])
        end = session.at(own["started_at"] + pd.to_timedelta(own["seconds"], unit="s"))
        used = own["others_cpu_cores"].to_numpy(dtype=float)
        x = np.column_stack([start, start, end, end]).ravel()
        y = np.column_stack([0 * used, used, used, 0 * used]).ravel()
        axis.fill_between(x, 0, y, color=OTHERS, lw=0.8, alpha=0.75, zorder=2)
    axis.set_ylim(0, max(0.1, 1.1 * float(rows["others_cpu_cores"].astype(float).max())))
    axis.yaxis.set_major_locator(MaxNLocator(3))
    axis.set_ylabel("cores, other\nprocesses", fontsize=9)


def _fields(axis, sessions):
    for session in sessions:
        axis.axvspan(session.left, session.right, color=FIELD, lw=0, zorder=0)
    axis.set_xlim(-0.01, 1.01)
    axis.spines["bottom"].set_visible(False)
    axis.tick_params(axis="x", length=0)
    # How long each session was, where there is room for it.
    named = [s for s in sessions if s.right - s.left > 0.08 or len(sessions) == 1]
    axis.set_xticks(
        [(s.left + s.right) / 2 for s in named], [_length(s.seconds) for s in named], fontsize=8.5
    )


def _length(seconds):
    """7200 -> `2 h`."""
    unit, size = ("d", 86400) if seconds >= 172_800 else styles.time_unit(max(seconds, 1))
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"


def _dates(axis, sessions):
    """When each session began and how long after the one before, above as many as have room."""
    free_from, room, previous = 0.0, LABEL_INCHES / WIDTH_INCHES, None
    for session in sessions:
        if free_from <= session.left <= 1.02 - room or len(sessions) == 1:
            label = session.started_at.strftime("%Y-%m-%d %H:%M")
            if previous is not None:
                waited = (session.started_at - previous.started_at).total_seconds()
                waited -= previous.seconds
                label += f"\n{_length(waited)} later" if waited >= 1 else ""
            at = axis.get_xaxis_transform()
            looks = {"fontsize": 8, "color": styles.GREY, "va": "bottom", "linespacing": 1.15}
            styles.write(axis, label, (session.left, 1), (0, 4), xycoords=at, **looks)
            free_from = session.left + room
        previous = session


def _legend(figure, rows):
    looks = []
    several = rows["repeated"].astype(bool) & (rows["sentinel"].astype(int) == 0)
    if several.any():
        looks.append(("o", REPEATED, "condition of several sessions; bar: its mean in one"))
    if (rows["sentinel"].astype(int) > 0).any():
        looks.append(("D", SENTINEL, "sentinel, a finished run repeated"))
    if not rows["repeated"].astype(bool).all():
        looks.append(("o", SINGLE, "condition of one session"))
    handles = [
        Line2D([], [], linestyle="none", marker=marker, color=colour, label=label)
        for marker, colour, label in looks
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=9)
