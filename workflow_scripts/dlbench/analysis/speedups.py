"""The table of speedups: a row for each point of each series of runs (scaling_series.py).

Series are made once, for this table; figures, report and rerun_bases read them from it.

Laws of scaling (laws.py) are fitted to the throughputs behind the speedups, corrected for the drift
between the sessions of a point and its base, which must be shown to be equivalent to none.
"""

from collections.abc import Sequence

from dlbench.analysis import base_flags, estimates, laws
from dlbench.analysis.scaling_series import ONE_COUNT, SERIES, all_series, rates, run_names
from dlbench.study import item_names
from dlbench.study.config import Study
from dlbench.tables.cells import Row


def rows(study: Study, runs: Sequence[Row], sentinels: Sequence[Row] = ()) -> list[Row]:
    """Rows of the table of speedups, one for each point of each series.

    Args:
        study: a Study.
        runs, sentinels: rows of the tables of these names.
    """
    return [
        row
        for series in all_series(runs, sentinels, study.equivalence_margin)
        for law in [_laws(series)]
        for row in _rows(study, series, law)
    ]


def _rows(study, series, law):
    base = series.base
    common = {
        "study": study.name,
        "scaling": series.kind,
        **{name: series.row.get(name) for name in ("model", "dataset", *SERIES, *ALONGSIDE)},
        **law,
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


def _corrected(point):
    """Throughputs of a point's runs as they would be in the sessions of its base."""
    drift = point.sides and point.sides.drift
    return [rate / (drift.ratio.value if drift else 1.0) for rate in rates(point.runs)]


# Facts of a series that are no part of its key.
ALONGSIDE = ("device_kind", "device_model", "framework_version")


def _estimate(name, estimate):
    return estimate.columns(name) if estimate else {}


def _rates(prefix, throughput, row):
    """A throughput in items a second, and in tokens where items are sequences."""
    columns = throughput.columns(f"{prefix}images_per_second")
    if tokens := item_names.tokens(row.get("item_shape")):
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


def _laws(series):
    """The columns of the laws fitted to a series, or why none is fitted."""
    if series.base is None:
        return {"fit": f"no fit: {ONE_COUNT}"}
    devices = [run["devices"] for run in series.runs]
    mismatch = base_flags.clause(", ".join(series.mismatch), "points and base")
    # Too few numbers of devices come first: no better base would help.
    if reasons := list(filter(None, (laws.why_no_fit(devices), mismatch))):
        return {"fit": f"no fit: {'; '.join(reasons)}"}
    throughputs = [rate for point in series.points for rate in _corrected(point)]
    estimates_by_law = {"usl": laws.usl(devices, throughputs)}
    parameters = dict(
        zip(("usl_alpha", "usl_beta"), estimates_by_law["usl"] or (None, None), strict=True)
    )
    if series.kind == "strong":  # Amdahl's is about a fixed amount of work
        parameters["serial_fraction"] = estimates_by_law["amdahl"] = laws.amdahl(
            devices, throughputs
        )
    failed = [name for name, fitted in estimates_by_law.items() if fitted is None]
    columns = {"fit": f"no fit of {' and '.join(failed)}" if failed else "fitted"}
    return columns | {k: v for name, e in parameters.items() for k, v in _estimate(name, e).items()}
