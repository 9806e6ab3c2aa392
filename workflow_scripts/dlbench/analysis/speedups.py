"""The table of speedups: a row for each point of each series of runs (scaling_series.py).

Series are made once, for this table; figures and report read them from it.
"""

from collections.abc import Sequence

from dlbench.analysis import estimates
from dlbench.analysis.scaling_series import ONE_COUNT, all_series
from dlbench.study import wording
from dlbench.study.config import Study
from dlbench.tables.cells import Row, run_name, run_names


def rows(study: Study, runs: Sequence[Row], sentinels: Sequence[Row] = ()) -> list[Row]:
    """Rows of the table of speedups, one for each point of each series.

    Args:
        study: a Study.
        runs, sentinels: rows of the tables of these names.
    """
    return [
        row
        for series in all_series(runs, sentinels, study.equivalence_margin)
        for row in _rows(study, series)
    ]


def _rows(study, series):
    base = series.base
    common = {
        "study": study.name,
        "scaling": series.kind,
        "settings_of": run_name(series.row, study.name),
    }
    if base:
        common |= {
            "base_strategy": base.runs[0].get("strategy"),
            "base_devices": base.devices,
            "base_nodes": base.nodes,
            "base_runs": len(base.runs),
            "base_run_ids": run_names(base.runs, study.name),
            **_rates("base_", base.throughput, series.row),
        }
    for point in series.points:
        yield {
            **common,
            "devices": point.devices,
            "nodes": point.nodes,
            "batch_per_device": point.runs[0]["batch_per_device"],
            "global_batch": point.runs[0]["global_batch"],
            "runs": len(point.runs),
            "run_ids": run_names(point.runs, study.name),
            "unstable_runs": sum(run["status"] == "unstable" for run in point.runs),
            **_rates("", point.throughput, series.row),
            **_estimate("speedup", point.speedup),
            **_estimate("efficiency", point.efficiency),
            **(point.sides.columns if base else {}),
            "base_mismatch": ", ".join(point.mismatch) if base else None,
            "note": _note(series, point),
        }


def _estimate(name, estimate):
    return estimate.columns(name) if estimate else {}


def _rates(prefix, throughput, row):
    """A throughput in items a second, and in tokens where items are sequences."""
    columns = throughput.columns(f"{prefix}images_per_second")
    if tokens := wording.tokens(row.get("item_shape")):
        columns |= throughput.times(tokens).columns(f"{prefix}tokens_per_second")
    return columns


def _note(series, point):
    """Why a row lacks a number or an interval."""
    notes = []
    if series.base is None:
        notes.append(f"no speedup: {ONE_COUNT}")
    elif point.runs is series.base.runs:
        notes.append("the base")
    if len(point.runs) < 2:
        notes.append("one run: no interval")
    elif series.base and len(series.base.runs) < 2:
        notes.append("one run of the base: no interval of the speedup")
    elif series.base and estimates.is_thin(len(point.runs), len(series.base.runs)):
        notes.append(estimates.THIN)
    if point.sides and point.sides.drift:
        notes.append(f"over sessions: {point.sides.label}")
    return "; ".join(notes)
