"""Throughput on one device against the batch size, one panel for each model and mode."""

from pathlib import Path

from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles

CATEGORY = "Batch size"
CAPTION = """
Throughput of one device against its batch size, data loading included: of training steps, of the
forward pass alone, and of forward and backward pass without the update of the weights. Points
are geometric means over repeats, each run one value; bars are 95 % intervals (Student's t on the
logarithm of the throughput); bars cut off at the edge of the panel go further. A star marks points
of unstable runs, whose steps stalled or which other processes disturbed. A cross stands for runs
that failed, with how many and why. Hollow points are published numbers.
"""
PANEL = ("mode", "model", "dataset")
# The axis ends at so many times the highest point: intervals of two runs may reach far beyond.
MAX_OVER_POINTS = 2.0


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    runs = runs[(runs["devices"] == 1) & runs["epochs"].isna()]
    several = series.series_along("batch_per_device", runs, PANEL, minimum=2)
    modes = list(series.MODES)
    ordered = dict(sorted(several.items(), key=lambda item: (modes.index(item[0][0]), item[0])))
    models = len({key[1:] for key in ordered})
    empty_message = "no series with several batch sizes"
    charts.draw(stem, ordered, _paint, empty_message, columns=min(4, models))


def _subtitle(mode, all_series):
    shared = series.common((s.runs for s in all_series), ("strategy", "precision", "runtime"))
    return f"{series.MODES[mode]} \u00b7 {shared}" if shared else series.MODES[mode]


def _paint(axis, key, all_series):
    mode, model, dataset = key
    unit = series.rate_unit(all_series)
    ends = charts.lines(axis, all_series, lambda s: s.rates(unit))
    values = [estimate.value for line in all_series for _, estimate in line.rates(unit)]
    axis.set_ylim(bottom=0)
    if values:
        axis.set_ylim(top=min(axis.get_ylim()[1], MAX_OVER_POINTS * max(values)))
    axis.set_ylabel(f"{unit.plural} / s")
    axis.set_xlabel("batch per device")
    styles.heading(axis, f"{model} \u00b7 {dataset}", _subtitle(mode, all_series))
    return ends
