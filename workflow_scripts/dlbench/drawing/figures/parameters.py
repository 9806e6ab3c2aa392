"""Throughput against each parameter of other programs that has several values."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from dlbench.analysis.frames import Tables
from dlbench.drawing import charts, series, styles
from dlbench.study.parameters import PREFIX

CATEGORY = "Study"
CAPTION = """
Throughput against the parameters that a study gives to other programs, a panel for each parameter
that has several values. Runs of one line differ in that parameter, and in what follows from it, as
the global batch, alone. Values stand at equal distances in their order: numbers by size, texts by
the alphabet. Points are geometric means over repeats, each run one value; bars are 95 % intervals
(Student's t on the logarithm of the throughput). A star marks points of unstable runs. A cross
stands for runs that failed, with how many and why.
"""
EMPTY_MESSAGE = "no parameter has several values"
PANEL = ("mode", "model", "dataset")


def draw(tables: Tables, stem: Path | str) -> None:
    runs = series.started_runs(tables.runs)
    runs = runs[runs["epochs"].isna()]
    panels, labels = {}, {}
    indices: dict[str, int] = {}
    for column in (name for name in runs if name.startswith(PREFIX)):
        placed, labels[column] = _placed(runs[runs[column].notna()], column)
        for key, found in series.series_along(column, placed, PANEL, minimum=2).items():
            panels[(column, *key)] = [
                replace(one, index=indices.setdefault(one.name, len(indices))) for one in found
            ]

    def paint(axis, key, all_series):
        column, mode, model, dataset = key
        unit = series.rate_unit(all_series)
        ends = charts.lines(axis, all_series, lambda line: line.rates(unit))
        axis.set_ylim(bottom=0)
        axis.set_ylabel(f"{unit.plural} / s")
        axis.set_xscale("function", functions=(_log2, np.exp2))  # of places, not of values
        axis.set_xticks(list(labels[column]), list(labels[column].values()))
        axis.set_xlabel(column.removeprefix(PREFIX))
        shared = series.common((line.runs for line in all_series), ("precision", "strategy"))
        subtitle = filter(None, (series.MODES[mode], shared))
        styles.heading(axis, f"{model} \u00b7 {dataset}", " \u00b7 ".join(subtitle))
        return ends

    beside = len({key[1:] for key in panels})  # the panels of one parameter
    charts.draw(stem, panels, paint, EMPTY_MESSAGE, beside if beside in (2, 4) else 3)


def _placed(runs, column):
    """Runs with places instead of the values of a parameter, and {place: value as text}.

    Places are powers of two, which are equally far apart on the axis of charts.
    """
    values = sorted(runs[column].unique(), key=lambda value: (isinstance(value, str), value))
    places = {value: 2.0**number for number, value in enumerate(values)}
    labels = {place: _label(value) for value, place in places.items()}
    return runs.assign(**{column: runs[column].map(places).astype(float)}), labels


def _log2(places):
    return np.log2(np.maximum(places, np.finfo(float).tiny))


def _label(value):
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    return styles.thousands(value) if value == int(value) else styles.significant(value)
