"""Which tables a report shows, in their order, and what it says of each."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from dlbench.report import metric_tables, report_tables
from dlbench.report.report_tables import DataTable
from dlbench.tables import baseline_columns, parquet_files, table_columns, table_names
from dlbench.tables.cells import Row

REQUIRED = ("runs", "evals", "coverage", "comparisons", "speedups")
# Columns that are not shown.
LEFT_OUT = ("study", "run_ids", "base_run_ids")
# Tables that are shown as they are: (what a row is, the columns that come first).
TABLES = {
    "speedups": (
        "One row per condition and number of devices; base mismatch: problems of the comparison.",
        ("model", "dataset", "scaling", "strategy", "devices", "images_per_second",
         "tokens_per_second", "speedup", "efficiency", "base_mismatch", "runs"),
    ),
    "comparisons": (
        "One row per condition that the config compares with its base.",
        ("condition", "base", "metric", "model", "dataset", "verdict", "ratio", "repeats_needed",
         "n_a", "n_b", "base_flags"),
    ),
    "runs": (
        "One row per run, whatever its status; apart: why it is in no statistics.",
        ("run_id", "status", "message", "apart", "images_per_second", "tokens_per_second",
         "step_time_median_s", "step_time_p95_s", "model", "dataset", "batch_per_device",
         "strategy", "devices"),
    ),
    "coverage": (
        "The status of every combination, and the reason.",
        ("combination", "status", "reason"),
    ),
}  # fmt: skip
HEADINGS = {"accounts": "Wall-time breakdown"}  # of tables whose name says too little
DESCRIPTIONS = {
    "accounts": "What the wall time of each run was spent on.",
    "explanations": "What a step of each explained condition is made of, by its probes.",
    "nodes": "How fast each node is beside the others, by runs on one node; the slowest first.",
    "drift": "How fast the machine was in a session, over an earlier one, by conditions of both.",
    "published": "Numbers that others published, each with where it stands and how it was read.",
}


def tables(
    read: Mapping[str, pa.Table], rows: Mapping[str, list[Row]], folder: Path
) -> list[DataTable]:
    """All tables with rows, in their order.

    Args:
        read, rows: the REQUIRED tables, and their rows.
        folder: of all tables.
    """
    shown = [report_tables.results(rows["runs"])]
    for name, (description, first) in TABLES.items():
        heading = name.capitalize()
        table = read[name]
        shown.append(report_tables.of_parquet(name, heading, description, table, LEFT_OUT, first))
    shown.append(metric_tables.by_condition(rows["runs"], rows_of(folder, "metrics")))
    for name in further(folder):
        if name == "metrics":
            continue  # by condition, above
        heading = HEADINGS.get(name, name.replace("_", " ").capitalize())
        table = parquet_files.read_any(folder / f"{name}.parquet")
        shown.append(report_tables.of_parquet(name, heading, DESCRIPTIONS.get(name, ""), table))
    return [table for table in shown if table.rows]


def further(folder: Path) -> list[str]:
    """Names of further tables in the folder, as that of published numbers."""
    known = {*table_names.OF_STUDY, *table_names.OF_MACHINES}.difference(REQUIRED)
    return sorted(name for name in known if (folder / f"{name}.parquet").is_file())


def rows_of(folder: Path, name: str) -> list[Row]:
    """Rows of a table that may be missing; that of baselines may be of an earlier version."""
    schema = (table_columns.STUDY_TABLES | baseline_columns.MACHINE_TABLES)[name]
    path, earlier = folder / f"{name}.parquet", name in baseline_columns.MACHINE_TABLES
    return parquet_files.read(path, schema, earlier=earlier).to_pylist() if path.is_file() else []
