"""Reports of synthetic tables, and their content."""

from types import SimpleNamespace

from dlbench.analysis import scaling_series
from dlbench.common import plugins
from dlbench.report import build_report
from dlbench.tables import parquet_files, table_columns
from support.results import made_tables


def made(folder, rows, figures=(), coverage=None):
    """Write the report of runs. Returns it with the folder of its tables."""
    shown = made_tables.write(folder, rows, steps_each=0)
    if coverage is not None:
        parquet_files.write(folder / "coverage.parquet", coverage, table_columns.COVERAGE)
    for name in figures:
        plugins.load("figures", name).draw(shown, folder / "figures" / name)
    return build_report.read(folder, folder / "runs", folder / "figures", figures)


def table(found, name):
    return next(t for t in found.tables if t.name == name)


def column(found, name, of="runs"):
    return next(c for c in table(found, of).columns if c.name == name)


def covered(run_id, status, reason=""):
    return {"run_id": run_id, "combination": f"run {run_id}", "status": status, "reason": reason}


def speedups_of(runs):
    """The rows of the table of speedups of some runs, as its file has them."""
    study = SimpleNamespace(name="made", equivalence_margin=scaling_series.MARGIN)
    schema = table_columns.STUDY_TABLES["speedups"]
    return parquet_files.table(scaling_series.speedup_rows(study, runs), schema).to_pylist()
