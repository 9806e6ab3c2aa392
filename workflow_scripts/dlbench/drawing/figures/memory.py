"""Peak memory against batch and sequence length, a series for each model, framework and device."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.log import event_fields
from dlbench.study import wording
from dlbench.tables import cells

CATEGORY = "Memory"
CAPTION = """
The most memory that a run held at any time, start-up, warm-up and evaluations included, against
its batch per device and, for models of text, against the length of its sequences. On GPUs it is
what the framework's arrays took of a device, by the framework's own count; on CPUs, where no
framework counts, the resident set of a process, with all that it loaded: the axis says which.
Points are geometric means over repeats, each run one value; bars are 95 % intervals (Student's t on
the logarithm). The dashed line is the memory that there is: of a GPU, or of a node and its control
group. A cross stands for runs that failed, with how many and why. What the framework's allocator
reserved, and what NVML saw in use, are in the table of runs.
"""
PANEL = ("model", "dataset", "device_kind")
AXES = {"batch_per_device": "batch per device", "sequence_length": "sequence length, tokens"}
ALLOCATED = ("peak_allocated_bytes_per_device", "allocated on a device")
USED = ("peak_used_bytes_per_device", "in use on a GPU")
RESIDENT = ("peak_memory_bytes", "resident set of a process")
# Of a panel the first that is known of any of its runs.
GPU_ORDER, CPU_ORDER = (ALLOCATED, USED, RESIDENT), (RESIDENT, ALLOCATED, USED)
LIMIT = "memory_limit_bytes"
NEAR = 10  # a limit is drawn up to so many times the largest value
UNITS = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
EMPTY_MESSAGE = "no series with several batch sizes or sequence lengths whose memory is known"


def draw(tables: Tables, stem: Path | str) -> None:
    runs = _with_memory(series.started_runs(tables.runs))
    lengths = runs["item_shape"].map(wording.tokens).astype(float)
    runs = runs.assign(sequence_length=lengths)
    panels: dict[Any, list[series.Series]] = {}
    for x in AXES:
        along_axis = series.series_along(x, runs[runs[x].notna()], PANEL, minimum=2)
        panels |= {(*key, x): all_series for key, all_series in along_axis.items()}
    panels = dict(sorted(_named(panels).items(), key=lambda item: str(item[0])))
    columns = 2 if len(panels) in (2, 4) else 3
    charts.draw(stem, panels, _paint, EMPTY_MESSAGE, columns=columns)


def _named(panels):
    """The panels with one name and one colour for a condition along both axes."""
    if not panels:
        return panels
    axes = {name for x in AXES for name in series.ALONG[x]}
    runs = pd.concat([line.runs for all_series in panels.values() for line in all_series])
    settings = [name for name in series.SETTINGS if name not in {*PANEL, *axes}]
    differing = series.differing_settings(runs, settings)
    indices: dict[str, int] = {}
    named = {}
    for key, all_series in panels.items():
        first = pd.DataFrame([line.runs.iloc[0] for line in all_series])
        other = [n for n in ("batch_per_device", "item_shape") if n not in series.ALONG[key[-1]]]
        settings_named = [*differing, *series.differing_settings(first, other)]
        names = [series.condition_label(row, settings_named) for _, row in first.iterrows()]
        named[key] = [
            replace(line, name=name, index=indices.setdefault(name, len(indices)))
            for line, name in zip(all_series, names, strict=True)
        ]
    return named


def _with_memory(runs: pd.DataFrame) -> pd.DataFrame:
    """Own runs that failed, and any of which some memory is known, as positive numbers."""
    columns = [name for name, _ in GPU_ORDER]
    runs = runs.assign(**{name: runs[name].where(runs[name] > 0) for name in columns})
    failed = ~runs["status"].isin(event_fields.SUCCEEDED)
    is_own = runs["timing_source"] == cells.MEASURED
    return runs[runs[columns].notna().any(axis=1) | (failed & is_own)]


def _paint(axis, key, all_series):
    model, dataset, kind, x = key
    runs = pd.concat([line.runs for line in all_series])
    finished = pd.concat([line.finished for line in all_series])
    order = GPU_ORDER if kind == "gpu" else CPU_ORDER
    column, label = next((c for c in order if finished[c[0]].notna().any()), order[0])
    ends = charts.lines(axis, all_series, lambda line: line.means(column), stars=False)
    limit = runs[LIMIT].dropna().unique()
    largest = finished[column].max()
    drawn = len(limit) == 1 and column != USED[0] and largest < limit[0] < NEAR * largest
    if drawn:
        axis.axhline(limit[0], color=styles.GREY, linestyle="--", linewidth=1.2, zorder=1)
    unit, size = _unit(largest)
    if ends:
        styles.logarithmic(axis.yaxis, unit=size)
        axis.yaxis.set_major_formatter(lambda value, _: styles.significant(value / size))
    axis.set_ylabel(f"{label}, {unit}")
    axis.set_xlabel(AXES[x])
    shared = series.common((line.runs for line in all_series), ("mode", "devices", "precision"))
    note = (
        f"dashed: the {styles.significant(limit[0] / size)} {unit} that there are" if drawn else ""
    )
    subtitle = "\n".join(filter(None, [f"peak memory \u00b7 {shared}", note]))
    styles.heading(axis, f"{model} \u00b7 {dataset}", subtitle)
    return ends


def _unit(most: float) -> tuple[str, int]:
    """(unit, its bytes) in which the largest value of a panel is 1 or more."""
    return next((item for item in UNITS.items() if most >= item[1]), ("GiB", UNITS["GiB"]))
