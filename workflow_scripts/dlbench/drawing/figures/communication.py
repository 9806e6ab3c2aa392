"""Bus bandwidth and time of an all-reduce against the size of the message, on each machine."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlbench.analysis.frames import Tables
from dlbench.baselines import rounds
from dlbench.drawing import styles
from dlbench.drawing.series import condition_label, differing_settings
from dlbench.study import wording

CATEGORY = "Scaling"
BASELINES = "alone"
CAPTION = """
All-reduce of float32 values over all devices, by the libraries through which the strategies of the
study exchange gradients and with their options, without a model. Left: bus bandwidth as nccl-tests
defines it, bytes / time times 2 (n - 1) / n for n devices, so that numbers of devices compare.
Right: the time of one; its left end is the latency. Points are medians over rounds, bars reach from
the least to the most of them; the slowest process counts. Dashed: the bandwidth of copies in the
memory of one device. Measured by `snakemake baselines`.
"""
EMPTY_MESSAGE = "no all-reduce was measured: `uv run snakemake baselines` does it"
MACHINE = ("site", "device_model", "hardware_sha256")
# What makes a line, in the order of its name.
LINE = wording.in_order(
    {*rounds.OF_EXCHANGE, "framework_version", "devices"} - {"devices_per_node"}
)
# {setting: settings that imply it}: left out of a name that has those.
IMPLIED = {
    "framework_version": ["framework"],
    "environment": ["framework"],
    "launcher": ["framework", "strategy"],
}
MAX_MACHINES, MAX_LINES = 6, 18
UNITS = ("B", "KiB", "MiB", "GiB")


def draw(tables: Tables, stem: Path | str) -> None:
    baselines = tables.baselines
    exchanges = baselines[(baselines["measure"] == "all_reduce") & baselines["time_s"].notna()]
    if exchanges.empty:
        styles.draw_message(stem, EMPTY_MESSAGE)
        return
    texts = [name for name in exchanges if isinstance(exchanges[name].dtype, pd.CategoricalDtype)]
    exchanges = exchanges.astype(dict.fromkeys(texts, object))
    machines = list(exchanges.groupby(list(MACHINE), dropna=False, sort=True))
    shown = machines[:MAX_MACHINES]
    with styles.figure(2, len(shown), width=5.2, height=3.8) as (figure, axes):
        for row, (key, machine_rows) in zip(axes, shown, strict=True):
            copies = baselines[
                (baselines["measure"] == "memory_copy")
                & (baselines["hardware_sha256"] == key[2])
                & (baselines["site"] == key[0])
            ]
            _machine(row, machine_rows, copies["value"].max())
        if len(machines) > len(shown):
            figure.supxlabel(f"{len(machines) - len(shown)} more machines: see baselines.parquet")
        styles.save(figure, stem)


def _machine(axes: Any, exchanges: pd.DataFrame, memory: float) -> None:
    """Draw one machine.

    `memory`: bandwidth of copies in a device, GB/s; nan if it was not measured.
    """
    lines = _lines(exchanges)
    left_out = f" \u00b7 {len(lines) - MAX_LINES} lines not drawn" * (len(lines) > MAX_LINES)
    lines = lines[:MAX_LINES]
    first = exchanges.iloc[0]
    device = first["device_model"] or "unknown device"
    rounds = int(exchanges["rounds"].median())
    panels = (
        (axes[0], ("value", "low", "high"), 1.0, "bus bandwidth, GB / s"),
        (axes[1], ("time_s", "time_low_s", "time_high_s"), 1e3, "time of one, ms"),
    )
    for axis, columns, factor, label in panels:
        ends = [_line(axis, rows, columns, factor, index) for index, (_, rows) in enumerate(lines)]
        styles.logarithmic(axis.yaxis)
        if axis is axes[0] and memory > 0:
            axis.axhline(memory, color=styles.GREY, linestyle="--", linewidth=1.2, zorder=1)
        _sizes(axis, exchanges["size_bytes"])
        axis.set_ylabel(label)
        names = [
            (*end, name, styles.looks(index)["color"])
            for index, (end, (name, _)) in enumerate(zip(ends, lines, strict=True))
        ]
        if axis is axes[1]:
            styles.name_series(axis, names)
    alone = f"{lines[0][0]} \u00b7 " if len(lines) == 1 else ""
    copied = f"dashed: copies in memory, {styles.significant(memory)} GB/s" if memory > 0 else ""
    styles.heading(axes[0], f"All-reduce \u00b7 {device}", copied or first["site"])
    styles.heading(
        axes[1],
        "Time",
        f"{alone}medians of {rounds} rounds, bars: least and most{left_out}",
    )


def _lines(exchanges: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """(name, rows in the order of their sizes) of each line."""
    differing = differing_settings(exchanges, LINE)
    for name, leading in IMPLIED.items():
        groups = exchanges.groupby(leading, dropna=False)[name]
        if name in differing and (groups.nunique(dropna=False) <= 1).all():
            differing.remove(name)
    differing = differing if "strategy" in differing else ["strategy", *differing]
    return [
        (condition_label(line.iloc[0], differing), line.sort_values("size_bytes"))
        for _, line in exchanges.groupby(list(LINE), dropna=False, sort=True)
    ]


def _line(
    axis: Any, rows: pd.DataFrame, columns: tuple[str, str, str], factor: float, index: int
) -> tuple[float, float]:
    """Draw one line with its bars. Returns its end."""
    looks = styles.looks(index)
    sizes = rows["size_bytes"].to_numpy(dtype=float)
    value, low, high = (factor * rows[name].to_numpy(dtype=float) for name in columns)
    axis.plot(sizes, value, zorder=3, **looks | {"markersize": 4.5, "linewidth": 1.6})
    axis.vlines(sizes, low, high, color=looks["color"], lw=1.2, zorder=2)
    return float(sizes[-1]), float(value[-1])


def _sizes(axis: Any, sizes: pd.Series) -> None:
    """An axis of bytes, with a tick at each power of 16."""
    powers = np.arange(np.floor(np.log2(sizes.min())), np.log2(sizes.max()) + 0.5)
    styles.powers(axis.xaxis, [2.0**power for power in powers if power % 4 == 2 or len(powers) < 6])
    axis.xaxis.set_major_formatter(lambda value, _: size_label(value))
    axis.set_xlabel("message")


def size_label(size_bytes: float) -> str:
    """Bytes in binary units.

    >>> size_label(1024), size_label(1 << 22), size_label(1536)
    ('1 KiB', '4 MiB', '1.5 KiB')
    """
    power = min(max(int(np.log2(max(size_bytes, 1)) // 10), 0), len(UNITS) - 1)
    return f"{size_bytes / 1024**power:g} {UNITS[power]}"
